// SPDX-License-Identifier: GPL-2.0

//! The Call: encoded by a requester, decoded by a responder (RFC 8166 section 3.5).

#[cfg(rpcrdma_selftest)]
use super::chunk::Lists;
use super::chunk::{put_read_list, put_reply_chunk, put_write_list, ReadSegment, Segment};
use super::cursor::{NoSpace, Writer};
use super::header::FixedHeader;
#[cfg(rpcrdma_selftest)]
use super::{
    cursor::Cause,
    header::{Credits, ErrorMessage, Versions, Xid, FIXED_LEN},
    message::{Body, Message, MessageType, Refused},
    stream::{positions_fit, rest},
};

/// Writes the header of a Call into `buffer` and returns its length in bytes.
///
/// `reads` are the Read segments, those of one chunk adjacent and the chunks by ascending
/// Position. Each item of `writes` is one Write chunk and `reply` is the Reply chunk; a chunk
/// without segments is left out, as it could hold nothing (RFC 8166 section 3.4.6).
///
/// The procedure in `fixed` is [`super::plan::Plan::procedure`].
///
/// # Errors
///
/// [`NoSpace`] if the header does not fit `buffer`.
pub(crate) fn encode_call<W>(
    buffer: &mut [u8],
    fixed: &FixedHeader,
    reads: impl IntoIterator<Item = ReadSegment>,
    writes: impl IntoIterator<Item = W>,
    reply: impl Iterator<Item = Segment> + Clone,
) -> Result<usize, NoSpace>
where
    W: Iterator<Item = Segment> + Clone,
{
    let mut writer = Writer::new(buffer);
    let has_segments = |chunk: &W| chunk.clone().next().is_some();
    fixed.put(&mut writer)?;
    put_read_list(&mut writer, reads)?;
    put_write_list(&mut writer, writes.into_iter().filter(has_segments))?;
    put_reply_chunk(&mut writer, reply.clone().next().map(|_| reply))?;
    Ok(writer.position())
}

/// A Call as a responder received it.
#[cfg(rpcrdma_selftest)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call<'a> {
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
#[cfg(rpcrdma_selftest)]
#[derive(Clone, Copy, Debug)]
pub(crate) enum ReceivedByResponder<'a> {
    /// A forward Call.
    Call(Call<'a>),
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

/// Decodes `bytes`, one message that a responder received.
///
/// # Errors
///
/// A [`Refused`] whose [`Refused::at_responder`] says what to send.
#[cfg(rpcrdma_selftest)]
pub(crate) fn decode_call(
    bytes: &[u8],
    versions: Versions,
) -> Result<ReceivedByResponder<'_>, Refused> {
    let message = Message::decode(bytes, versions)?;
    let refuse = |cause| Err(message.refuse(cause, FIXED_LEN, versions));
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
                return refuse(Cause::ChunksInBackwardReply);
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
        Body::Optional { .. } => return refuse(Cause::UnknownOption),
    };
    let rest = rest(payload, &lists.reads);
    if rest == 0 {
        return refuse(Cause::NoPositionZero);
    }
    if !positions_fit(&lists.reads, rest) {
        return refuse(Cause::PositionRange);
    }
    Ok(ReceivedByResponder::Call(Call {
        xid: fixed.xid,
        version: fixed.version,
        credits: fixed.credits,
        header_len: message.header_len,
        lists,
        payload,
    }))
}
