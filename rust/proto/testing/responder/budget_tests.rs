// SPDX-License-Identifier: GPL-2.0

//! Tests of [`crate::proto::responder::budget`].

#[cfg_attr(rpcrdma_kunit, kernel::macros::kunit_tests(rpcrdma_proto_budget))]
mod tests {
    use crate::proto::responder::budget::*;
    use crate::proto::responder::decode::decode_call;
    use crate::proto::responder::refusal::{CallError, ResponderRefusal};
    use crate::proto::wire::chunk::{ReadSegment, Segment};
    use crate::proto::wire::encode::encode_header;
    use crate::proto::wire::error::{ErrorBody, ErrorMessage};
    use crate::proto::wire::header::{Credits, FixedHeader, Procedure, Versions, Xid, VERSION_ONE};

    const BUDGET: CallBudget = CallBudget {
        read_segments: 3,
        read_chunks: 2,
        read_bytes: 4096,
        write_chunks: 2,
        write_segments: 3,
        reply_segments: 4,
    };

    const FIXED: FixedHeader = FixedHeader {
        xid: Xid(0xa1b2_c3d4),
        version: VERSION_ONE,
        credits: Credits::new(1),
        procedure: Procedure::Msg,
    };

    fn segments(count: usize) -> impl Iterator<Item = Segment> + Clone {
        let segment = Segment {
            handle: 1,
            length: 0,
            offset: 0,
        };
        core::iter::repeat(segment).take(count)
    }

    /// What a responder with `budget` finds wrong with a Call of these Read segments, Write chunks
    /// of so many segments, and a Reply chunk, if there is one; and what it does then.
    fn judged(
        budget: &CallBudget,
        reads: &[(u32, u32)],
        writes: &[usize],
        reply: Option<usize>,
    ) -> Option<Option<(CallError, ResponderRefusal)>> {
        let mut bytes = [0; 1024];
        let reads = reads.iter().map(|&(position, length)| ReadSegment {
            position,
            segment: Segment {
                handle: 1,
                length,
                offset: 0,
            },
        });
        let writes = writes.iter().map(|&count| segments(count));
        let header = encode_header(&mut bytes, &FIXED, reads, writes, reply.map(segments)).ok()?;
        *bytes.get_mut(header..)?.first_chunk_mut()? = FIXED.xid.0.to_be_bytes();
        let end = header.checked_add(44)?;
        let decoded = decode_call(bytes.get(..end)?, Versions::ONE, budget);
        let refused = decoded.err();
        Some(refused.map(|refused| (refused.error, refused.at_responder())))
    }

    /// What is exceeded.
    fn excess(
        reads: &[(u32, u32)],
        writes: &[usize],
        reply: Option<usize>,
    ) -> Option<Option<CallError>> {
        let found = judged(&BUDGET, reads, writes, reply)?;
        Some(found.map(|(error, _)| error))
    }

    const WITHIN: Option<Option<CallError>> = Some(None);

    const fn over(excess: Excess) -> Option<Option<CallError>> {
        Some(Some(CallError::Budget(excess)))
    }

    /// Proves: V1-102.
    #[test]
    fn a_call_may_have_all_of_the_budget_and_no_more() {
        let reads = [(40, 4000), (40, 92), (4136, 0)];
        assert_eq!(excess(&reads, &[], None), WITHIN);
        assert_eq!(excess(&[], &[3, 3], Some(4)), WITHIN);
        assert_eq!(excess(&[(44, 4000), (44, 96)], &[0, 3], Some(0)), WITHIN);
        assert_eq!(
            excess(&[(44, 4000), (44, 97)], &[], None),
            over(Excess::ReadBytes)
        );
        // The first segment uses all of it.
        assert_eq!(excess(&[(44, 4096)], &[], None), WITHIN);
        assert_eq!(
            excess(&[(44, 4096), (44, 4)], &[], None),
            over(Excess::ReadBytes)
        );
        // The four bytes that follow the data are put behind them.
        assert_eq!(excess(&[(40, 4092)], &[], None), WITHIN);
        assert_eq!(excess(&[(40, 4093)], &[], None), over(Excess::ReadBytes));
        // The inline part, of 44 bytes, is put together with them.
        assert_eq!(excess(&[(40, 2048), (2092, 2004)], &[], None), WITHIN);
        assert_eq!(
            excess(&[(40, 2048), (2092, 2008)], &[], None),
            over(Excess::ReadBytes)
        );
        assert_eq!(excess(&[(40, 0); 4], &[], None), over(Excess::ReadSegments));
        assert_eq!(
            excess(&[(36, 0), (40, 0), (44, 0)], &[], None),
            over(Excess::ReadChunks)
        );
        assert_eq!(excess(&[], &[1, 1, 1], None), over(Excess::WriteChunks));
        assert_eq!(excess(&[], &[3, 4], None), over(Excess::WriteSegments));
        assert_eq!(excess(&[], &[], Some(5)), over(Excess::ReplySegments));
    }

    /// Proves: V1-132.
    #[test]
    fn a_call_beyond_the_budget_is_a_bad_header() {
        let error = CallError::Budget(Excess::ReplySegments);
        let refusal = ResponderRefusal::Answer(ErrorMessage {
            xid: FIXED.xid,
            version: VERSION_ONE,
            body: ErrorBody::Chunk,
        });
        let found = judged(&BUDGET, &[], &[], Some(5));
        assert_eq!(found, Some(Some((error, refusal))));
    }

    #[test]
    fn no_budget_has_more_write_chunks_than_a_reply_has_results() {
        let generous = CallBudget {
            write_chunks: u32::MAX,
            ..BUDGET
        };
        assert_eq!(judged(&generous, &[], &[1; 8], None), Some(None));
        let more = judged(&generous, &[], &[1; 9], None);
        let error = more.flatten().map(|(error, _)| error);
        assert_eq!(error, Some(CallError::Budget(Excess::WriteChunks)));
        let nothing = CallBudget {
            read_segments: 0,
            read_chunks: 0,
            read_bytes: 0,
            write_chunks: 0,
            write_segments: 0,
            reply_segments: 0,
        };
        let inline = |writes: &[usize]| judged(&nothing, &[], writes, None);
        assert_eq!(inline(&[]), Some(None));
        assert_eq!(
            inline(&[0]).flatten().map(|(error, _)| error),
            Some(CallError::Budget(Excess::WriteChunks))
        );
    }
}
