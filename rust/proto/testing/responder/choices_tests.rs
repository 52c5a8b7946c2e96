// SPDX-License-Identifier: GPL-2.0

//! Tests of what requesters may choose, and of what may not depend on it.

#[cfg_attr(rpcrdma_kunit, kernel::macros::kunit_tests(rpcrdma_proto_choices))]
mod tests {
    use crate::proto::requester::encode::encode_call;
    use crate::proto::responder::budget::CallBudget;
    use crate::proto::responder::call::ReceivedCall;
    use crate::proto::responder::decode::{decode_call, ReceivedByResponder};
    use crate::proto::responder::grants::Grants;
    use crate::proto::responder::refusal::ResponderRefusal;
    use crate::proto::responder::stream::Source;
    use crate::proto::wire::chunk::{ReadSegment, Segment};
    use crate::proto::wire::encode::encode_inline;
    use crate::proto::wire::error::{ErrorBody, ErrorMessage};
    use crate::proto::wire::header::{Credits, FixedHeader, Procedure, Versions, Xid, VERSION_ONE};

    const XID: Xid = Xid(0xa1b2_c3d4);

    /// Bytes of an RPC Call of the procedure NULL without credentials (RFC 5531 section 9).
    const NULL_LEN: usize = 40;

    const BUDGET: CallBudget = CallBudget {
        read_segments: 4,
        read_chunks: 1,
        read_bytes: 4096,
        write_chunks: 0,
        write_segments: 0,
        reply_segments: 0,
    };

    /// The header of a Call, in an RDMA_NOMSG if it has Read segments, each for so many bytes of
    /// the RPC message; and its length.
    fn header(credits: u32, reads: &[u32]) -> Option<([u8; 128], usize)> {
        let mut bytes = [0; 128];
        let fixed = FixedHeader {
            xid: XID,
            version: VERSION_ONE,
            credits: Credits::new(credits),
            procedure: match reads {
                [] => Procedure::Msg,
                _ => Procedure::Nomsg,
            },
        };
        let reads = (1..).zip(reads).map(|(handle, &length)| ReadSegment {
            position: 0,
            segment: Segment {
                handle,
                length,
                offset: 0x1000,
            },
        });
        let none = core::iter::empty::<Segment>();
        let length = encode_call(&mut bytes, &fixed, reads, [none.clone()], none).ok()?;
        Some((bytes, length))
    }

    /// The Call of the procedure NULL whose RPC header has this XID, as it comes in an RDMA_MSG.
    fn inline(credits: u32, xid: Xid) -> Option<([u8; 128], usize)> {
        let (mut bytes, length) = header(credits, &[])?;
        let rpc = bytes.get_mut(length..)?;
        *rpc.first_chunk_mut()? = xid.0.to_be_bytes();
        Some((bytes, length.checked_add(NULL_LEN)?))
    }

    /// The Call in the first `length` bytes.
    fn call((bytes, length): &([u8; 128], usize)) -> Option<ReceivedCall<'_>> {
        match decode_call(bytes.get(..*length)?, Versions::ONE, &BUDGET) {
            Ok(ReceivedByResponder::Call(call)) => Some(call),
            _ => None,
        }
    }

    /// The credit word of the Reply to a Call with this one, which has just arrived.
    fn granted(server: &mut Grants, credits: u32) -> Option<u32> {
        let message = inline(credits, XID)?;
        let call = call(&message)?;
        if !server.call(call.index.credits) {
            return None;
        }
        reply(server, &call)
    }

    /// The credit word of the Reply to a Call that the server knows of.
    fn reply(server: &mut Grants, call: &ReceivedCall<'_>) -> Option<u32> {
        let mut header = [0xff; 28];
        let index = call.index;
        let length = encode_inline(&mut header, index.version, index.xid, server.reply()).ok()?;
        assert_eq!(length, 28);
        let word = header.get(8..)?.first_chunk()?;
        Some(u32::from_be_bytes(*word))
    }

    /// Proves: V1-014.
    #[test]
    fn each_call_may_ask_for_other_credits() {
        let mut server = Grants::new(16, 16);
        for (asked, expected) in [
            (32, 16),
            (1, 1),
            (9, 9),
            (9, 9),
            (0, 1),
            (u32::MAX, 16),
            (3, 3),
        ] {
            assert_eq!(granted(&mut server, asked), Some(expected));
        }
    }

    /// Proves: V1-015.
    #[test]
    fn a_grant_is_the_same_whatever_is_outstanding() {
        let mut server = Grants::new(16, 16);
        assert_eq!(granted(&mut server, 64), Some(16));
        let message = inline(64, XID);
        let call = message.as_ref().and_then(call);
        assert!(call.is_some());
        let Some(call) = call else { return };
        for outstanding in 1..=16 {
            for _ in 0..outstanding {
                assert!(server.call(call.index.credits));
            }
            for left in (0..outstanding).rev() {
                assert_eq!(reply(&mut server, &call), Some(16));
                assert_eq!(server.outstanding(), left);
            }
        }
    }

    /// Proves: V1-080.
    #[test]
    fn a_call_that_fits_inline_may_come_in_a_position_zero_chunk() {
        for reads in [[40].as_slice(), &[1, 0, 36, 3]] {
            let message = header(32, reads);
            let call = message.as_ref().and_then(call);
            let found = call.map(|call| {
                let layout = call.index.layout;
                (call.payload, layout.pages, layout.total())
            });
            assert_eq!(found, Some((None, 40, 40)));
            let Some(call) = call else { return };
            let pieces = call.stream().filter_map(|piece| match piece.source {
                Source::Read { handle, .. } => Some((piece.at, piece.length, handle)),
                _ => None,
            });
            let (mut at, handles) = (0, 1..);
            let expected = reads.iter().zip(handles).filter(|(&length, _)| length != 0);
            assert!(pieces.eq(expected.map(|(&length, handle)| {
                let start = at;
                at += length;
                (start, length, handle)
            })));
            let index = call.index;
            let [a, b, c, d] = XID.0.to_be_bytes();
            let start = [a, b, c, d, 0, 0, 0, 0];
            assert_eq!(index.check_rpc_header(&start), Ok(()));
            // Its Reply is inline.
            let mut header = [0xff; 28];
            let length = encode_inline(&mut header, index.version, index.xid, Credits::new(1));
            assert_eq!(length, Ok(28));
        }
    }

    /// This end does not rely on the XID of the header only, but that is the one it answers with.
    ///
    /// Proves: V1-096.
    #[test]
    fn a_call_with_two_xids_is_refused_by_the_one_of_its_header() {
        let answer = ResponderRefusal::Answer(ErrorMessage {
            xid: XID,
            version: VERSION_ONE,
            body: ErrorBody::Chunk,
        });
        let other = Xid(XID.0 ^ 0x8000_0000);
        for (xid, expected) in [(XID, None), (other, Some(answer))] {
            let message = inline(32, xid);
            let bytes = message
                .as_ref()
                .and_then(|(bytes, length)| bytes.get(..*length));
            let decoded = bytes.map(|bytes| decode_call(bytes, Versions::ONE, &BUDGET));
            let refusal =
                decoded.map(|decoded| decoded.err().map(|refused| refused.at_responder()));
            assert_eq!(refusal, Some(expected));

            let message = header(32, &[40]);
            let call = message.as_ref().and_then(call);
            let index = call.map(|call| call.index);
            let [a, b, c, d] = xid.0.to_be_bytes();
            let checked = index.map(|index| index.check_rpc_header(&[a, b, c, d, 0, 0, 0, 0]));
            assert_eq!(checked.map(Result::err), Some(expected));
        }
    }
}
