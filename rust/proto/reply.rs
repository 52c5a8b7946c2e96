// SPDX-License-Identifier: GPL-2.0

//! The Reply: decoded and measured by a requester, encoded by a responder (RFC 8166 section 3.5).
//!
//! A requester uses a received message in two steps. [`decode_received`] needs only the bytes and
//! gives the XID. With the Call that the XID names, [`Reply::reconcile`] compares the returned
//! chunks with those that were offered.

use core::iter::empty;

use super::call::encode_call;
#[cfg(rpcrdma_selftest)]
use super::chunk::{put_read_list, put_reply_chunk, put_write_list, Segment};
use super::chunk::{Chunk, Lists, WriteList};
#[cfg(rpcrdma_selftest)]
use super::cursor::Writer;
use super::cursor::{Cause, NoSpace, Reader};
use super::header::{Credits, ErrorMessage, FixedHeader, Procedure, Versions, Xid, FIXED_LEN};
use super::message::{check_payload, Body, Message, MessageType, Refused, MIN_PAYLOAD_LEN};

/// A Reply as a requester received it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reply<'a> {
    /// The transaction.
    pub(crate) xid: Xid,
    /// The version word.
    #[cfg(rpcrdma_selftest)]
    pub(crate) version: u32,
    /// Calls that the responder can take at once.
    pub(crate) credits: Credits,
    /// Bytes of the transport header.
    pub(crate) header_len: usize,
    /// The inline part of the RPC message, `None` if the Reply chunk holds all of it.
    pub(crate) payload: Option<&'a [u8]>,
    /// The returned Write chunks.
    writes: WriteList<'a>,
    /// The returned Reply chunk.
    chunk: Option<Chunk<'a>>,
}

/// A backward Call as a requester received it (RFC 8167 section 5).
#[derive(Clone, Copy, Debug)]
pub(crate) struct BackwardCall<'a> {
    /// The transaction, in the XID space of the backward direction.
    pub(crate) xid: Xid,
    /// The version word, to be repeated in the Reply.
    #[cfg(rpcrdma_selftest)]
    pub(crate) version: u32,
    /// Backward credits requested.
    #[cfg(rpcrdma_selftest)]
    pub(crate) credits: Credits,
    /// Bytes of the transport header.
    #[cfg(rpcrdma_selftest)]
    pub(crate) header_len: usize,
    /// The RPC message.
    pub(crate) payload: &'a [u8],
}

/// A message as a requester received it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Received<'a> {
    /// A Reply; its XID names a forward Call or nothing.
    Reply(Reply<'a>),
    /// The end of the forward Call with this XID, which is not to be retransmitted. It grants no
    /// credits (RFC 8166 section 4.5).
    Error(ErrorMessage),
    /// A backward Call. An endpoint without backward service drops it.
    BackwardCall(BackwardCall<'a>),
}

/// Decodes `bytes`, one message that a requester received.
///
/// # Errors
///
/// A [`Refused`] whose [`Refused::at_requester`] says what to send.
pub(crate) fn decode_received(bytes: &[u8], versions: Versions) -> Result<Received<'_>, Refused> {
    match Reply::take(bytes, versions) {
        Some(reply) => Ok(Received::Reply(reply)),
        None => decode_any(bytes, versions),
    }
}

/// [`decode_received`] of a message that need not be a Reply, nor well formed.
fn decode_any(bytes: &[u8], versions: Versions) -> Result<Received<'_>, Refused> {
    let message = Message::decode(bytes, versions)?;
    let refuse = |cause| Err(message.refuse(cause, FIXED_LEN, versions));
    let fixed = message.fixed;
    let header_len = message.header_len;
    let (lists, payload) = match message.body {
        Body::Error(body) => {
            return Ok(Received::Error(ErrorMessage {
                xid: fixed.xid,
                version: fixed.version,
                body,
            }));
        }
        Body::Msg {
            lists,
            payload,
            message_type: MessageType::Call,
        } => {
            if !lists.is_empty() {
                return refuse(Cause::ChunksInBackwardCall);
            }
            return Ok(Received::BackwardCall(BackwardCall {
                xid: fixed.xid,
                #[cfg(rpcrdma_selftest)]
                version: fixed.version,
                #[cfg(rpcrdma_selftest)]
                credits: fixed.credits,
                #[cfg(rpcrdma_selftest)]
                header_len,
                payload,
            }));
        }
        Body::Msg { lists, payload, .. } => (lists, Some(payload)),
        Body::Nomsg { lists } => (lists, None),
        #[cfg(rpcrdma_selftest)]
        Body::Optional { .. } => return refuse(Cause::UnknownOption),
    };
    if !lists.reads.is_empty() {
        return refuse(Cause::ReadListInReply);
    }
    Ok(Received::Reply(Reply {
        xid: fixed.xid,
        #[cfg(rpcrdma_selftest)]
        version: fixed.version,
        credits: fixed.credits,
        header_len,
        payload,
        writes: lists.writes,
        chunk: lists.reply,
    }))
}

/// Why the chunks of a Reply do not match those of its Call. The RPC fails, and nothing is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mismatch {
    /// Another number of Write chunks than were offered, or a Reply chunk that was not.
    Chunks,
    /// Another number of segments in a chunk than were offered.
    Segments,
    /// A segment came back longer than it was offered.
    Length,
    /// RDMA_MSG with bytes in the Reply chunk: two different Payloads.
    UsedReplyChunk,
    /// RDMA_NOMSG without a Reply chunk, or with less at its start than an RPC header has.
    NoPayload,
}

/// What the responder placed in one chunk, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Delivery {
    /// The sum of the returned lengths (RFC 8166 section 4.3.2).
    pub(crate) total: u64,
    /// The bytes that lie in the chunk's memory without a gap, counted from its start.
    ///
    /// A responder that fills the segments in order gives the same number as `total`. A smaller
    /// one means that a segment which was not full is followed by one that is not empty; memory
    /// beyond this number must not be taken for data.
    pub(crate) contiguous: u64,
}

impl Delivery {
    /// Compares a returned chunk with the segment lengths that were offered.
    ///
    /// # Errors
    ///
    /// [`Mismatch::Segments`] and [`Mismatch::Length`].
    fn measure(chunk: &Chunk<'_>, offered: impl Iterator<Item = u32>) -> Result<Self, Mismatch> {
        let mut delivery = Self::default();
        let mut gap = false;
        let mut returned = chunk.segments();
        for capacity in offered {
            let length = returned.next().ok_or(Mismatch::Segments)?.length;
            if length > capacity {
                return Err(Mismatch::Length);
            }
            let bytes = u64::from(length);
            delivery.total = delivery.total.saturating_add(bytes);
            if !gap {
                delivery.contiguous = delivery.contiguous.saturating_add(bytes);
            }
            gap |= length < capacity;
        }
        match returned.next() {
            Some(_) => Err(Mismatch::Segments),
            None => Ok(delivery),
        }
    }
}

/// What a Reply delivered by RDMA Write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Delivered<const N: usize> {
    /// The Write chunks; zero bytes for one that was not offered or not used.
    pub(crate) writes: [Delivery; N],
    /// The Reply chunk; zero bytes if none was offered or the Reply is inline.
    pub(crate) reply: Delivery,
}

impl<'a> Reply<'a> {
    /// Decodes a Reply by RDMA_MSG, or by RDMA_NOMSG with a Reply chunk, without what other messages
    /// need: that takes a third of the time. `None` for anything else.
    fn take(bytes: &'a [u8], versions: Versions) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        let fixed = FixedHeader::take(&mut reader).ok()?;
        if !versions.contains(fixed.version) {
            return None;
        }
        let (writes, chunk) = Lists::take_returned(&mut reader)?;
        let payload = match fixed.procedure {
            Procedure::Msg if check_payload(reader, &fixed) == Ok(MessageType::Reply) => {
                Some(reader.rest())
            }
            Procedure::Nomsg if chunk.is_some() && reader.rest().is_empty() => None,
            _ => return None,
        };
        Some(Self {
            xid: fixed.xid,
            #[cfg(rpcrdma_selftest)]
            version: fixed.version,
            credits: fixed.credits,
            header_len: reader.position(),
            payload,
            writes,
            chunk,
        })
    }
}

impl Reply<'_> {
    /// Compares the returned chunks with the offered ones.
    ///
    /// Each item of `writes` is one Write chunk and `reply` is the Reply chunk, both as the
    /// segment lengths in bytes that the Call had; no segments means that no such chunk was
    /// offered.
    ///
    /// The numbers of chunks and segments must be the offered ones and no length may have grown. A
    /// list that was left out counts as unused. A segment behind the last byte of the data need not
    /// have the length 0. Handles and offsets are not compared, because the
    /// data is where this end registered it, whatever they say.
    ///
    /// # Errors
    ///
    /// Any [`Mismatch`].
    pub(crate) fn reconcile<const N: usize>(
        &self,
        writes: [impl Iterator<Item = u32> + Clone; N],
        reply: impl Iterator<Item = u32> + Clone,
    ) -> Result<Delivered<N>, Mismatch> {
        let mut delivered = Delivered {
            writes: [Delivery::default(); N],
            reply: Delivery::default(),
        };
        if !self.writes.is_empty() {
            let mut returned = self.writes.chunks();
            for (delivery, offered) in delivered.writes.iter_mut().zip(writes) {
                if is_offered(&offered) {
                    let chunk = returned.next().ok_or(Mismatch::Chunks)?;
                    *delivery = Delivery::measure(&chunk, offered)?;
                }
            }
            if returned.next().is_some() {
                return Err(Mismatch::Chunks);
            }
        }
        if let Some(chunk) = self.chunk {
            if !is_offered(&reply) {
                return Err(Mismatch::Chunks);
            }
            delivered.reply = Delivery::measure(&chunk, reply)?;
        }
        match self.payload {
            None if delivered.reply.contiguous < MIN_PAYLOAD_LEN => Err(Mismatch::NoPayload),
            Some(_) if delivered.reply.total != 0 => Err(Mismatch::UsedReplyChunk),
            _ => Ok(delivered),
        }
    }
}

/// Whether the Call had a chunk with these segment lengths, as one without segments is not sent.
fn is_offered(lengths: &(impl Iterator<Item = u32> + Clone)) -> bool {
    lengths.clone().next().is_some()
}

/// Writes the header of a backward message into `buffer` and returns its length, 28 bytes.
///
/// Backward Calls and Replies are RDMA_MSG with three empty lists in every version; the RPC message
/// follows in the same Send (RFC 8167 section 5). `version` is the one that the forward direction
/// uses. `credits` is requested by a Call and granted by a Reply, apart from the forward credits.
///
/// # Errors
///
/// [`NoSpace`] if the header does not fit.
pub(crate) fn encode_backward(
    buffer: &mut [u8],
    version: u32,
    xid: Xid,
    credits: Credits,
) -> Result<usize, NoSpace> {
    let fixed = FixedHeader {
        xid,
        version,
        credits,
        procedure: Procedure::Msg,
    };
    encode_call(buffer, &fixed, [], [empty()], empty())
}

/// Writes the header of a Reply into `buffer` and returns its length in bytes.
///
/// `writes` and `reply` are all chunks of the Call, the unused ones included, with the lengths
/// that were placed; see [`Chunk::filled`].
///
/// # Errors
///
/// [`NoSpace`] if the header does not fit.
#[cfg(rpcrdma_selftest)]
pub(crate) fn encode_reply<W>(
    buffer: &mut [u8],
    fixed: &FixedHeader,
    writes: impl IntoIterator<Item = W>,
    reply: Option<impl Iterator<Item = Segment> + Clone>,
) -> Result<usize, NoSpace>
where
    W: Iterator<Item = Segment> + Clone,
{
    let mut writer = Writer::new(buffer);
    fixed.put(&mut writer)?;
    put_read_list(&mut writer, [])?;
    put_write_list(&mut writer, writes)?;
    put_reply_chunk(&mut writer, reply)?;
    Ok(writer.position())
}
