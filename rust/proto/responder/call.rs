// SPDX-License-Identifier: GPL-2.0

//! A forward Call as a responder received it.

use super::layout::StreamLayout;
use super::refusal::ResponderRefusal;
use crate::proto::message::{check_payload, MessageType};
use crate::proto::wire::chunk::{Lists, READ_ENTRY_LEN};
use crate::proto::wire::error::{ErrorBody, ErrorMessage};
use crate::proto::wire::header::{Credits, FixedHeader, Xid};
use crate::proto::wire::malformed::HeaderError;
use crate::proto::wire::private_data::Thresholds;
use crate::proto::wire::xdr::Reader;

/// A Call as a responder received it: within the budget, and with Read chunks that fit its RPC
/// message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReceivedCall<'a> {
    /// What is kept of it.
    pub(crate) index: CallIndex,
    /// The chunk lists. The Positions of the Read list lie in the Payload stream.
    pub(crate) lists: Lists<'a>,
    /// The inline part of the RPC message, `None` if the Position Zero chunk holds all of it.
    pub(crate) payload: Option<&'a [u8]>,
}

impl ReceivedCall<'_> {
    /// The handle that Send With Invalidate of the Reply may name, `None` for a plain Send.
    ///
    /// Both ends must have agreed to it, and the handle must belong to this Call (RFC 8797 section
    /// 4.1): it is the first one whose segment has bytes. The others, if there are any, are left
    /// to the requester. Neither an RDMA_ERROR nor a backward message invalidates anything.
    pub(crate) fn handle_to_invalidate(&self, thresholds: &Thresholds) -> Option<u32> {
        if !thresholds.remote_invalidation {
            return None;
        }
        let reads = self.lists.reads.segments().map(|entry| entry.segment);
        let mut segments = reads.chain(self.lists.segments());
        // A segment without bytes need not name a registration.
        let found = segments.find(|segment| segment.length != 0);
        found.map(|segment| segment.handle)
    }

    /// Bytes of the header of a Reply, which returns the Write list and the Reply chunk, and has no
    /// Read list; `None` if that is out of range.
    pub(super) fn reply_header_len(&self) -> Option<u32> {
        let length = u32::try_from(self.index.header_len).ok()?;
        length.checked_sub(self.lists.reads.count().checked_mul(READ_ENTRY_LEN)?)
    }
}

/// A [`ReceivedCall`] without its bytes, which stay in the Receive buffer until it is answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallIndex {
    /// The transaction.
    pub(crate) xid: Xid,
    /// The version word, to be repeated in the Reply.
    pub(crate) version: u32,
    /// The credits that it requests.
    pub(crate) credits: Credits,
    /// Which bytes of the RPC message are where when it is put together.
    pub(crate) layout: StreamLayout,
    /// Bytes of the transport header.
    pub(crate) header_len: usize,
    /// Bytes of the whole message.
    pub(super) message_len: usize,
    /// The segments of the Read list, and their bytes.
    pub(crate) reads: (u32, u64),
    /// Whether the Call offers memory for its Reply: a Write chunk, or the Reply chunk.
    pub(crate) offers_memory: bool,
    /// Whether the RPC message has an inline part; if not, the Position Zero chunk holds all of it.
    pub(crate) is_inline: bool,
}

impl CallIndex {
    /// The RDMA_ERROR that ends this Call (RFC 8166 section 4.5).
    pub(crate) const fn error(&self, body: ErrorBody) -> ErrorMessage {
        ErrorMessage {
            xid: self.xid,
            version: self.version,
            body,
        }
    }

    /// Ranges of the message that RDMA Reads fill: a Position Zero chunk is read in pieces, which
    /// the other chunks separate.
    pub(crate) fn read_ranges(&self) -> u32 {
        self.reads.0.saturating_add(self.layout.read_chunks)
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
        match check_payload(Reader::new(start), self.xid) {
            Ok(MessageType::Call) => Ok(()),
            Ok(MessageType::Reply) => Err(ResponderRefusal::Discard),
            Err(HeaderError::MessageType) => Err(ResponderRefusal::Discard),
            Err(_) => Err(ResponderRefusal::Answer(self.error(ErrorBody::Chunk))),
        }
    }

    /// The Call in `buffer`, which is the Receive buffer that it was decoded from or the part of it
    /// that was filled. `None` if `buffer` is too short for it.
    pub(crate) fn call<'a>(&self, buffer: &'a [u8]) -> Option<ReceivedCall<'a>> {
        let mut reader = Reader::new(buffer.get(..self.message_len)?);
        FixedHeader::decode(&mut reader).ok()?;
        let lists = Lists::decode(&mut reader).ok()?;
        Some(ReceivedCall {
            index: *self,
            lists,
            payload: self.is_inline.then_some(reader.rest()),
        })
    }
}
