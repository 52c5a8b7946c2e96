// SPDX-License-Identifier: GPL-2.0

//! Tests of [`crate::proto::responder::call`].

#[cfg_attr(rpcrdma_kunit, kernel::macros::kunit_tests(rpcrdma_proto_index))]
mod tests {
    use crate::proto::requester::encode::encode_call;
    use crate::proto::responder::budget::CallBudget;
    use crate::proto::responder::call::*;
    use crate::proto::responder::decode::{decode_call, ReceivedByResponder};
    use crate::proto::responder::placement::Placement;
    use crate::proto::responder::refusal::ResponderRefusal;
    use crate::proto::wire::chunk::{ReadSegment, Segment};
    use crate::proto::wire::encode::encode_inline;
    use crate::proto::wire::error::ErrorBody;
    use crate::proto::wire::header::{Credits, FixedHeader, Procedure, Xid};
    use crate::proto::wire::header::{Versions, VERSION_ONE};
    use crate::proto::wire::private_data::Thresholds;

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

    /// The first `count` of them.
    fn first(handles: &[(u32, u32)], count: usize) -> &[(u32, u32)] {
        handles.get(..count).unwrap_or_default()
    }

    /// Proves: PD-006, PD-020.
    #[test]
    fn of_several_handles_each_reply_invalidates_one() {
        let (mut calls, mut handles, mut invalidated) = (0, 0, 0);
        for shape in 0..64usize {
            let [reads, writes, reply] = [shape % 4, shape / 4 % 4, shape / 16];
            let reads = first(&[(1, 8), (2, 8), (3, 8)], reads);
            let writes = first(&[(4, 8), (5, 8), (6, 8)], writes);
            let reply = first(&[(7, 8), (8, 8), (9, 8)], reply);
            let encoded = encode(44, reads, writes, reply);
            let call = encoded
                .as_ref()
                .and_then(|(bytes, length)| call(bytes, *length));
            assert!(call.is_some());
            let Some(call) = call else { return };
            let handle = call.handle_to_invalidate(&AGREED);
            let mut offered = reads.iter().chain(writes).chain(reply);
            assert_eq!(handle.is_some(), shape != 0);
            assert!(handle.is_none_or(|handle| offered.any(|&(known, _)| known == handle)));
            // A Reply to a Call that offers no memory has the handle of the first RDMA Read.
            let read = call.reads().next().map(|(_, segment)| segment.handle);
            assert!(read.is_none() || read == handle);
            calls += usize::from(shape != 0);
            handles += reads.len() + writes.len() + reply.len();
            invalidated += usize::from(handle.is_some());
        }
        assert_eq!((calls, handles, invalidated), (63, 288, 63));
    }

    #[test]
    fn a_reply_without_chunks_has_the_shortest_header() {
        for (reads, reply, expected) in [
            ([].as_slice(), [].as_slice(), false),
            (&[(1, 8)], &[], false),
            (&[], &[(3, 8)], true),
        ] {
            let encoded = encode(44, reads, &[], reply);
            let found = encoded.as_ref().and_then(|(bytes, length)| {
                let call = call(bytes, *length)?;
                let index = call.index;
                let mut headers = [[0xff; 64]; 2];
                let [one, other] = &mut headers;
                let placement = Placement::default();
                let plan = placement.finish(&call, 100, 1024).ok()?;
                let length = plan.encode(one, &call, Credits::new(7)).ok()?;
                let is_same =
                    encode_inline(other, index.version, index.xid, Credits::new(7)) == Ok(length);
                Some((index.offers_memory, is_same && one == other))
            });
            assert_eq!(found, Some((expected, !expected)));
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
            let index = call(&bytes, length).map(|call| call.index);
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
            call(bytes, *length).map(|call| (call.index, call.index.error(ErrorBody::Chunk)))
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
