// SPDX-License-Identifier: GPL-2.0

//! What a responder receives (RFC 8166 section 3.5).

use super::stream::{positions_fit, rest};
use crate::proto::message::{Body, Message, MessageType, Refused};
use crate::proto::wire::chunk::Lists;
use crate::proto::wire::error::{ErrorBody, ErrorMessage};
use crate::proto::wire::header::{Credits, Versions, Xid, FIXED_LEN};
use crate::proto::wire::malformed::HeaderError;

/// A Call as a responder received it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReceivedCall<'a> {
    /// The transaction.
    pub(crate) xid: Xid,
    /// The version word, to be repeated in the Reply.
    pub(crate) version: u32,
    /// Replies that the requester can take at once.
    pub(crate) credits: Credits,
    /// Bytes of the transport header.
    pub(crate) header_len: usize,
    /// The chunk lists. The Positions of the Read list lie in the Payload stream.
    pub(crate) lists: Lists<'a>,
    /// The inline part of the RPC message, `None` if the Position Zero chunk holds all of it.
    pub(crate) payload: Option<&'a [u8]>,
}

/// A message as a responder received it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ReceivedByResponder<'a> {
    /// A forward Call.
    Call(ReceivedCall<'a>),
    /// The Reply to a backward Call: to be used only if one with this XID is outstanding.
    BackwardReply {
        /// The backward transaction.
        xid: Xid,
        /// The version word.
        version: u32,
        /// Backward credits granted.
        credits: Credits,
        /// The RPC message.
        payload: &'a [u8],
    },
    /// The end of a backward Call: to be used only if one with this XID is outstanding.
    Error(ErrorMessage),
}

/// Why a responder refuses a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallError {
    /// The header is in error.
    Header(HeaderError),
    /// RDMA_NOMSG without a Position Zero chunk that holds bytes (`no_pz`).
    NoPositionZero,
    /// A Read chunk outside the Payload stream, or overlapping another one.
    PositionRange,
    /// A backward Reply with a chunk list (RFC 8167 section 5).
    ChunksInBackwardReply,
}

/// What a responder does with a message that it refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResponderRefusal {
    /// Forgets it.
    Discard,
    /// Sends this RDMA_ERROR.
    Answer(ErrorMessage),
    /// Sends an RPC Reply with `accept_stat` GARBAGE_ARGS: the header is good, its chunks do not
    /// fit the RPC message (RFC 8166 section 4.5.2).
    GarbageArgs,
}

impl Refused<CallError> {
    /// What a responder does.
    pub(crate) fn at_responder(&self) -> ResponderRefusal {
        let body = match self.why.error {
            CallError::PositionRange => return ResponderRefusal::GarbageArgs,
            CallError::ChunksInBackwardReply | CallError::Header(HeaderError::MessageType) => {
                return ResponderRefusal::Discard;
            }
            CallError::Header(HeaderError::Version) => ErrorBody::Version(self.versions),
            CallError::Header(_) | CallError::NoPositionZero => ErrorBody::Chunk,
        };
        match self.answer(body) {
            Some(error) => ResponderRefusal::Answer(error),
            None => ResponderRefusal::Discard,
        }
    }
}

/// Decodes `bytes`, one message that a responder received.
///
/// # Errors
///
/// A [`Refused`] whose [`Refused::at_responder`] says what to send.
pub(crate) fn decode_call(
    bytes: &[u8],
    versions: Versions,
) -> Result<ReceivedByResponder<'_>, Refused<CallError>> {
    let message =
        Message::decode(bytes, versions).map_err(|refused| refused.map(CallError::Header))?;
    let refuse = |error| Err(message.refuse(error, FIXED_LEN, versions));
    let fixed = message.fixed;
    let (lists, payload) = match message.body {
        Body::Error(body) => {
            return Ok(ReceivedByResponder::Error(ErrorMessage {
                xid: fixed.xid,
                version: fixed.version,
                body,
            }));
        }
        Body::Msg {
            lists,
            payload,
            message_type: MessageType::Reply,
        } => {
            if !lists.is_empty() {
                return refuse(CallError::ChunksInBackwardReply);
            }
            return Ok(ReceivedByResponder::BackwardReply {
                xid: fixed.xid,
                version: fixed.version,
                credits: fixed.credits,
                payload,
            });
        }
        Body::Msg { lists, payload, .. } => (lists, Some(payload)),
        Body::Nomsg { lists } => (lists, None),
    };
    let rest = rest(payload, &lists.reads);
    if rest == 0 {
        return refuse(CallError::NoPositionZero);
    }
    if !positions_fit(&lists.reads, rest) {
        return refuse(CallError::PositionRange);
    }
    Ok(ReceivedByResponder::Call(ReceivedCall {
        xid: fixed.xid,
        version: fixed.version,
        credits: fixed.credits,
        header_len: message.header_len,
        lists,
        payload,
    }))
}
