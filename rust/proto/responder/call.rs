// SPDX-License-Identifier: GPL-2.0

//! A forward Call as a responder received it.

use super::decode::ResponderRefusal;
use super::stream::StreamLayout;
use crate::proto::message::{check_payload, MessageType};
use crate::proto::wire::chunk::{ListIndex, Lists};
use crate::proto::wire::error::{ErrorBody, ErrorMessage};
use crate::proto::wire::header::{Credits, FixedHeader, Procedure, Xid};
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
    pub(crate) fn handle_to_invalidate(&self, thresholds: &Thresholds) -> Option<u32> {
        if !thresholds.remote_invalidation {
            return None;
        }
        let chunks = self.lists.writes.chunks().chain(self.lists.reply);
        let reads = self.lists.reads.segments().map(|entry| entry.segment);
        let mut segments = reads.chain(chunks.flat_map(|chunk| chunk.segments()));
        // A segment without bytes need not name a registration.
        let segment = segments.find(|segment| segment.length != 0)?;
        Some(segment.handle)
    }

    /// What of the Call a responder keeps beside its Receive buffer. `message_len` is the length
    /// of the whole message in bytes.
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
    message_len: usize,
    header_len: usize,
    lists: ListIndex,
    is_inline: bool,
}

impl CallIndex {
    /// Checks the start of the RPC message of a Call by RDMA_NOMSG, after it was read: `start` are
    /// its first bytes, eight of them if it has as many. Inline messages are checked when they are
    /// decoded.
    ///
    /// # Errors
    ///
    /// What to do with the message instead: the RDMA_ERROR if the message is too short or has
    /// another XID, nothing if it is no Call.
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
            Err(_) => Err(ResponderRefusal::Answer(ErrorMessage {
                xid: self.xid,
                version: self.version,
                body: ErrorBody::Chunk,
            })),
        }
    }

    /// The Call in `buffer`, which is the Receive buffer that it was decoded from or the part of it
    /// that was filled. `None` if `buffer` is too short for it.
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

#[cfg(any(test, rpcrdma_kunit))]
#[cfg_attr(rpcrdma_kunit, kernel::macros::kunit_tests(rpcrdma_proto_index))]
mod tests {
    use super::*;
    use crate::proto::requester::encode::encode_call;
    use crate::proto::responder::budget::CallBudget;
    use crate::proto::responder::decode::{decode_call, ReceivedByResponder};
    use crate::proto::wire::chunk::{ReadSegment, Segment};
    use crate::proto::wire::header::{Versions, VERSION_ONE};

    const XID: Xid = Xid(0xa1b2_c3d4);

    const BUDGET: CallBudget = CallBudget {
        read_segments: 4,
        read_chunks: 4,
        read_bytes: 4096,
        write_chunks: 4,
        write_segments: 4,
        reply_segments: 4,
    };

    /// The bytes of a Call whose chunks are segments of these handles and lengths, by RDMA_NOMSG if
    /// the Read chunk is at Position Zero; and their number.
    fn encode(
        position: u32,
        reads: &[(u32, u32)],
        writes: &[(u32, u32)],
        reply: &[(u32, u32)],
    ) -> Option<([u8; 256], usize)> {
        let mut bytes = [0; 256];
        let segment = |&(handle, length): &(u32, u32)| Segment {
            handle,
            length,
            offset: 0x1000,
        };
        let is_long = position == 0 && !reads.is_empty();
        let fixed = FixedHeader {
            xid: XID,
            version: VERSION_ONE,
            credits: Credits::new(5),
            procedure: if is_long {
                Procedure::Nomsg
            } else {
                Procedure::Msg
            },
        };
        let reads = reads.iter().map(segment);
        let reads = reads.map(|segment| ReadSegment { position, segment });
        let writes = [writes.iter().map(segment)];
        let reply = reply.iter().map(segment);
        let header = encode_call(&mut bytes, &fixed, reads, writes, reply).ok()?;
        if is_long {
            return Some((bytes, header));
        }
        let xid = bytes.get_mut(header..).and_then(<[u8]>::first_chunk_mut)?;
        *xid = XID.0.to_be_bytes();
        Some((bytes, header.checked_add(44)?))
    }

    /// The Call in the first `length` bytes.
    fn call(bytes: &[u8], length: usize) -> Option<ReceivedCall<'_>> {
        match decode_call(bytes.get(..length)?, Versions::ONE, &BUDGET) {
            Ok(ReceivedByResponder::Call(call)) => Some(call),
            _ => None,
        }
    }

    const AGREED: Thresholds = Thresholds {
        send: 1024,
        receive: 1024,
        remote_invalidation: true,
    };

    /// Proves: PD-019, PD-020, PD-021.
    #[test]
    fn one_handle_of_the_call_is_invalidated_if_both_ends_agree() {
        for (reads, writes, reply, expected) in [
            ([].as_slice(), [].as_slice(), [].as_slice(), None),
            (&[(1, 8)], &[(2, 8)], &[(3, 8)], Some(1)),
            (&[], &[(2, 8), (4, 8)], &[(3, 8)], Some(2)),
            (&[], &[], &[(3, 8)], Some(3)),
            (&[(1, 0)], &[(2, 0), (4, 8)], &[(3, 8)], Some(4)),
            (&[(1, 0)], &[(2, 0)], &[(3, 0)], None),
        ] {
            let encoded = encode(44, reads, writes, reply);
            let call = encoded
                .as_ref()
                .and_then(|(bytes, length)| call(bytes, *length));
            let handle = call.map(|call| call.handle_to_invalidate(&AGREED));
            assert_eq!(handle, Some(expected));
            let not_agreed = Thresholds {
                remote_invalidation: false,
                ..AGREED
            };
            let handle = call.map(|call| call.handle_to_invalidate(&not_agreed));
            assert_eq!(handle, Some(None));
        }
    }

    #[test]
    fn a_call_is_had_again_from_its_receive_buffer() {
        for position in [0, 44] {
            let encoded = encode(position, &[(1, 48)], &[(2, 8), (4, 9)], &[(3, 8)]);
            assert!(encoded.is_some());
            let Some((bytes, length)) = encoded else {
                return;
            };
            let index = call(&bytes, length).map(|call| call.index(length));
            assert!(index.is_some());
            let Some(index) = index else { return };
            // The buffer is larger than the message.
            let again = index.call(&bytes);
            let inline = again.map(|call| call.payload.map(<[u8]>::len));
            let expected = if position == 0 { None } else { Some(44) };
            assert_eq!(inline, Some(expected));
            let lists = again.map(|call| call.lists);
            let reads = lists.map(|lists| (lists.reads.count(), lists.reads.length()));
            assert_eq!(reads, Some((1, 48)));
            let lengths = lists.map(|lists| {
                let mut chunks = lists.writes.chunks().chain(lists.reply);
                let mut next = || chunks.next().map(|chunk| (chunk.count(), chunk.length()));
                [next(), next(), next()]
            });
            assert_eq!(lengths, Some([Some((2, 17)), Some((1, 8)), None]));
            let pieces = again.map(|call| call.stream().count());
            let expected = if position == 0 { 1 } else { 2 };
            assert_eq!(pieces, Some(expected));
            let short = bytes.get(..length.saturating_sub(1)).unwrap_or_default();
            assert!(index.call(short).is_none());
        }
    }

    /// Proves: V1-095, BD-023.
    #[test]
    fn a_message_that_was_read_has_to_be_the_call() {
        let encoded = encode(0, &[(1, 48)], &[], &[]);
        let call = encoded.as_ref().and_then(|(bytes, length)| {
            call(bytes, *length).map(|call| (call.index(*length), call.error(ErrorBody::Chunk)))
        });
        assert!(call.is_some());
        let Some((index, error)) = call else { return };
        let bad = Err(ResponderRefusal::Answer(error));
        for (xid, message_type, expected) in [
            (XID.0, 0, Ok(())),
            (XID.0 ^ 1, 0, bad),
            (XID.0 ^ 1, 1, bad),
            (XID.0, 1, Err(ResponderRefusal::Discard)),
            (XID.0, 2, Err(ResponderRefusal::Discard)),
        ] {
            let [a, b, c, d] = xid.to_be_bytes();
            let start = [a, b, c, d, 0, 0, 0, message_type];
            assert_eq!(index.check_rpc_header(&start), expected);
            let short = start.get(..7).unwrap_or_default();
            assert_eq!(index.check_rpc_header(short), bad);
        }
    }
}
