// SPDX-License-Identifier: GPL-2.0

//! The Reply: decoded and measured by a requester, encoded by a responder (RFC 8166 section 3.5).
//!
//! A requester uses a received message in two steps. [`decode_received`] needs only the bytes and
//! gives the XID. With the Call that the XID names, [`Reply::reconcile`] compares the returned
//! chunks with those that were offered.

use crate::proto::message::{Body, Message, MessageType, Refused};
use crate::proto::wire::chunk::{Chunk, WriteList};
use crate::proto::wire::error::{ErrorBody, ErrorMessage};
use crate::proto::wire::header::{FixedHeader, Versions};
use crate::proto::wire::malformed::HeaderError;

/// A Reply as a requester received it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReceivedReply<'a> {
    /// The fixed words, whose credits are the grant.
    pub(crate) fixed: FixedHeader,
    /// Bytes of the transport header.
    pub(crate) header_len: usize,
    /// The inline part of the RPC message, `None` if the Reply chunk holds all of it.
    pub(crate) payload: Option<&'a [u8]>,
    /// The returned Write chunks.
    pub(super) writes: WriteList<'a>,
    /// The returned Reply chunk.
    pub(super) chunk: Option<Chunk<'a>>,
}

/// A backward Call as a requester received it (RFC 8167 section 5).
#[derive(Clone, Copy, Debug)]
pub(crate) struct BackwardCall<'a> {
    /// The fixed words. The XID belongs to the backward direction, the version must be repeated in
    /// the Reply, and the credits are those that the Call requests.
    pub(crate) fixed: FixedHeader,
    /// The RPC message.
    pub(crate) payload: &'a [u8],
}

/// A message as a requester received it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Received<'a> {
    /// A Reply; its XID names a forward Call or nothing.
    Reply(ReceivedReply<'a>),
    /// The end of the forward Call with this XID, which is not to be retransmitted. It grants no
    /// credits (RFC 8166 section 4.5).
    Error(ErrorMessage),
    /// A backward Call. An endpoint without backward service drops it.
    BackwardCall(BackwardCall<'a>),
}

/// Why a requester refuses a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplyError {
    /// The header is in error.
    Header(HeaderError),
    /// A Reply with a Read list; only requesters expose memory.
    ReadList,
    /// A backward Call with a chunk list (RFC 8167 section 5).
    ChunksInBackwardCall,
}

/// What a requester does with a message that it refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequesterRefusal {
    /// Discards it. If a Call waits for this XID, it continues to wait.
    Discard,
    /// Ends the Call that waits for this XID, and sends nothing.
    EndCall,
    /// Sends this RDMA_ERROR.
    Answer(ErrorMessage),
}

impl Refused<ReplyError> {
    /// What a requester does.
    ///
    /// `awaited` says whether a forward Call with this XID is outstanding, `backward` whether the
    /// endpoint serves backward Calls. A message that may be the Reply to an own Call is never
    /// answered: an RDMA_ERROR does not tell its direction, and might hit a backward Call with the
    /// same XID.
    pub(crate) fn at_requester(&self, awaited: bool, backward: bool) -> RequesterRefusal {
        let body = match self.error {
            // Its XID is the peer's: a forward Call with the same one has nothing to do with it.
            ReplyError::ChunksInBackwardCall if backward => ErrorBody::Chunk,
            ReplyError::ChunksInBackwardCall => return RequesterRefusal::Discard,
            // Not a Reply, whatever its XID is.
            ReplyError::Header(HeaderError::UnknownOption) => ErrorBody::InvalidOption,
            _ if self.is_optional() => ErrorBody::Chunk,
            // No Call ends by an RDMA_ERROR that cannot be decoded (RFC 8166 section 4.5).
            _ if self.fixed.is_none() || self.is_error() => return RequesterRefusal::Discard,
            _ if awaited => return RequesterRefusal::EndCall,
            ReplyError::Header(HeaderError::Version) => ErrorBody::Version(self.versions),
            ReplyError::Header(HeaderError::Procedure) => ErrorBody::Chunk,
            ReplyError::ReadList | ReplyError::Header(HeaderError::MessageType) => {
                return RequesterRefusal::Discard;
            }
            ReplyError::Header(_) if backward => ErrorBody::Chunk,
            ReplyError::Header(_) => return RequesterRefusal::Discard,
        };
        match self.answer(body) {
            Some(error) => RequesterRefusal::Answer(error),
            None => RequesterRefusal::Discard,
        }
    }
}

/// Decodes `bytes`, one message that a requester received.
///
/// # Errors
///
/// A [`Refused`] whose [`Refused::at_requester`] says what to send.
pub(crate) fn decode_received(
    bytes: &[u8],
    versions: Versions,
) -> Result<Received<'_>, Refused<ReplyError>> {
    let message =
        Message::decode(bytes, versions).map_err(|refused| refused.map(ReplyError::Header))?;
    let refuse = |error| Err(message.refuse(error, versions));
    let fixed = message.fixed;
    let header_len = message.header_len;
    let (lists, payload) = match message.body {
        Body::Error(body) => {
            return Ok(Received::Error(fixed.error(body)));
        }
        Body::Msg {
            lists,
            payload,
            message_type: MessageType::Call,
        } => {
            if !lists.is_empty() {
                return refuse(ReplyError::ChunksInBackwardCall);
            }
            return Ok(Received::BackwardCall(BackwardCall { fixed, payload }));
        }
        Body::Msg { lists, payload, .. } => (lists, Some(payload)),
        Body::Nomsg { lists } => (lists, None),
    };
    if !lists.reads.is_empty() {
        return refuse(ReplyError::ReadList);
    }
    Ok(Received::Reply(ReceivedReply {
        fixed,
        header_len,
        payload,
        writes: lists.writes,
        chunk: lists.reply,
    }))
}
