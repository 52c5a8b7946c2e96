// SPDX-License-Identifier: GPL-2.0

//! A forward Call as a responder received it.

use super::layout::StreamLayout;
use super::refusal::ResponderRefusal;
use crate::proto::message::{check_payload, MessageType};
use crate::proto::wire::chunk::{ListIndex, Lists, Segment, SEGMENT_LEN};
use crate::proto::wire::error::{ErrorBody, ErrorMessage};
use crate::proto::wire::header::{Credits, FixedHeader, Procedure, Xid, FIXED_LEN};
use crate::proto::wire::malformed::HeaderError;
use crate::proto::wire::private_data::Thresholds;
use crate::proto::wire::xdr::Reader;

/// A Call as a responder received it: within the budget, and with Read chunks that fit its RPC
/// message.
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
    /// Which bytes of the RPC message are where when it is put together.
    pub(crate) layout: StreamLayout,
}

impl ReceivedCall<'_> {
    /// The RDMA_ERROR that ends this Call (RFC 8166 section 4.5).
    pub(crate) const fn error(&self, body: ErrorBody) -> ErrorMessage {
        ErrorMessage {
            xid: self.xid,
            version: self.version,
            body,
        }
    }

    /// The handle that Send With Invalidate of the Reply may name, `None` for a plain Send.
    ///
    /// Both ends must have agreed to it, and the handle must belong to this Call (RFC 8797 section
    /// 4.1): it is the first one whose segment has bytes. The others, if there are any, are left
    /// to the requester. Neither an RDMA_ERROR nor a backward message invalidates anything.
    #[inline(always)]
    pub(crate) fn handle_to_invalidate(&self, thresholds: &Thresholds) -> Option<u32> {
        if !thresholds.remote_invalidation || self.lists.is_empty() {
            return None;
        }
        // A segment without bytes need not name a registration.
        let has_bytes = |segment: &Segment| segment.length != 0;
        let lists = &self.lists;
        let mut reads = lists.reads.segments().map(|entry| entry.segment);
        let mut found = reads.find(has_bytes);
        for chunk in lists.writes.chunks() {
            if found.is_some() {
                break;
            }
            found = chunk.segments().find(has_bytes);
        }
        let found = found.or_else(|| lists.reply?.segments().find(has_bytes));
        found.map(|segment| segment.handle)
    }

    /// Bytes of the transport header behind the Read list: the Write list and the Reply chunk.
    fn results_len(&self) -> usize {
        self.header_len.saturating_sub(self.lists.writes.position())
    }

    /// Bytes of the header of a Reply, which returns these lists, and has no Read list; `None` if
    /// that is out of range.
    pub(super) fn reply_header_len(&self) -> Option<u32> {
        let length = self
            .results_len()
            .checked_add(FIXED_LEN + size_of::<u32>())?;
        u32::try_from(length).ok()
    }

    /// The most segments that the Write list and the Reply chunk can have together.
    pub(super) fn most_result_segments(&self) -> usize {
        // Both of them end with a word.
        self.results_len().saturating_sub(2 * size_of::<u32>()) / SEGMENT_LEN
    }

    /// What a responder keeps of the Call in addition to its Receive buffer. `message_len` is the
    /// length of the whole message in bytes.
    #[inline]
    pub(crate) fn index(&self, message_len: usize) -> CallIndex {
        CallIndex {
            xid: self.xid,
            version: self.version,
            credits: self.credits,
            layout: self.layout,
            message_len,
            header_len: self.header_len,
            lists: self.lists.index(),
            is_inline: self.payload.is_some(),
        }
    }
}

/// A [`ReceivedCall`] without its bytes: those stay in the Receive buffer until it is answered, and
/// are not decoded again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallIndex {
    /// The transaction.
    pub(crate) xid: Xid,
    /// The version word, to be repeated in the Reply.
    pub(crate) version: u32,
    /// Replies that the requester can take at once.
    pub(crate) credits: Credits,
    /// Which bytes of the RPC message are where when it is put together.
    pub(crate) layout: StreamLayout,
    /// Bytes of the transport header.
    pub(crate) header_len: usize,
    message_len: usize,
    lists: ListIndex,
    is_inline: bool,
}

impl CallIndex {
    /// As [`ReceivedCall::error`].
    pub(crate) const fn error(&self, body: ErrorBody) -> ErrorMessage {
        ErrorMessage {
            xid: self.xid,
            version: self.version,
            body,
        }
    }

    /// Whether the RPC message has an inline part; if not, the Position Zero chunk holds all of it.
    pub(crate) const fn is_inline(&self) -> bool {
        self.is_inline
    }

    /// The segments of the Read list, and their bytes.
    pub(crate) const fn reads(&self) -> (u32, u64) {
        self.lists.reads()
    }

    /// Whether the Call offers memory for its Reply: a Write chunk, or the Reply chunk.
    pub(crate) const fn offers_memory(&self) -> bool {
        self.lists.has_results()
    }

    /// Checks the start of an RPC message that an RDMA_NOMSG announced, after it was read: `start`
    /// are its first bytes, eight of them if it has as many. Inline messages are checked when they
    /// are decoded.
    ///
    /// # Errors
    ///
    /// What to do with the message instead: answer it with an RDMA_ERROR if it is too short or has
    /// another XID, discard it if it is not a Call.
    pub(crate) fn check_rpc_header(&self, start: &[u8]) -> Result<(), ResponderRefusal> {
        let fixed = FixedHeader {
            xid: self.xid,
            version: self.version,
            credits: self.credits,
            procedure: Procedure::Nomsg,
        };
        match check_payload(Reader::new(start), &fixed) {
            Ok(MessageType::Call) => Ok(()),
            Ok(MessageType::Reply) => Err(ResponderRefusal::Discard),
            Err(why) if why.error == HeaderError::MessageType => Err(ResponderRefusal::Discard),
            Err(_) => Err(ResponderRefusal::Answer(self.error(ErrorBody::Chunk))),
        }
    }

    /// The Call in `buffer`, which is the Receive buffer that it was decoded from or the part of it
    /// that was filled. `None` if `buffer` is too short for it.
    #[inline(always)]
    pub(crate) fn call<'a>(&self, buffer: &'a [u8]) -> Option<ReceivedCall<'a>> {
        let message = buffer.get(..self.message_len)?;
        let payload = message.get(self.header_len..)?;
        Some(ReceivedCall {
            xid: self.xid,
            version: self.version,
            credits: self.credits,
            header_len: self.header_len,
            lists: self.lists.lists(message)?,
            payload: self.is_inline.then_some(payload),
            layout: self.layout,
        })
    }
}
