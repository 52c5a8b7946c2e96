// SPDX-License-Identifier: GPL-2.0

//! Tests of the choice of chunks.

#[cfg_attr(rpcrdma_kunit, kernel::macros::kunit_tests(rpcrdma_proto_plan))]
mod tests {
    use crate::proto::requester::plan::{
        plan, CallForm, Parts, Plan, PlanError, PlanLimits, ReplyForm, RpcShape, Segments, Side,
    };
    use crate::proto::wire::header::Procedure;
    use core::cell::Cell;

    const LIMITS: PlanLimits = PlanLimits {
        inline_send: 1024,
        inline_receive: 1024,
        max_segments: 16,
    };

    const fn parts(head: u32, pages: u32, tail: u32) -> Parts {
        Parts { head, pages, tail }
    }

    /// A direction whose parts need one segment for each 4096 bytes.
    fn side(len: Parts, pages_eligible: bool) -> Side<Parts> {
        Side {
            len,
            segments: parts(
                len.head.div_ceil(4096),
                len.pages.div_ceil(4096),
                len.tail.div_ceil(4096),
            ),
            pages_eligible,
        }
    }

    /// Plans a Call next to a Reply that is inline.
    fn call(len: Parts, eligible: bool) -> Result<Plan, PlanError> {
        let shape = RpcShape {
            call: side(len, eligible),
            reply: side(parts(100, 0, 0), false),
        };
        plan(&shape, &LIMITS)
    }

    /// Plans a Reply next to a Call of 100 bytes.
    fn reply(len: Parts, eligible: bool) -> Result<Plan, PlanError> {
        let shape = RpcShape {
            call: side(parts(100, 0, 0), false),
            reply: side(len, eligible),
        };
        plan(&shape, &LIMITS)
    }

    fn sent(call: CallForm, header_len: u32, inline_len: u32) -> Result<Plan, PlanError> {
        Ok(Plan {
            call,
            reply: ReplyForm::Inline,
            reads: (header_len - 28) / 24,
            results: 0,
            inline_len,
        })
    }

    fn offered(reply: ReplyForm, header_len: u32) -> Result<Plan, PlanError> {
        Ok(Plan {
            call: CallForm::Inline,
            reply,
            reads: 0,
            results: (header_len - 28) / 16,
            inline_len: 100,
        })
    }

    #[test]
    fn segments_are_those_of_the_parts_in_chunks() {
        let both = |call: Parts, reply: Parts, eligible| {
            let shape = RpcShape {
                call: side(call, eligible),
                reply: side(reply, eligible),
            };
            let (planned, sides) = (
                plan(&shape, &LIMITS),
                (shape.call.segments, shape.reply.segments),
            );
            let count = |plan: Plan| (plan.reads.into(), plan.results.into());
            (planned.map(count), sides)
        };
        let (small, large) = (parts(100, 0, 0), parts(100, 9000, 8));
        assert_eq!(both(small, small, true).0, Ok((0, 0)));
        let (planned, (call, reply)) = both(large, large, true);
        assert_eq!(planned, Ok((call.pages.into(), reply.pages.into())));
        let (planned, (call, reply)) = both(large, large, false);
        assert_eq!(planned, Ok((call.total(), reply.total())));
    }

    #[test]
    fn what_is_inline_is_not_asked_for_its_segments() {
        struct Asked<'a>(&'a Cell<bool>);
        impl Segments for Asked<'_> {
            fn pages(&self) -> u32 {
                self.0.set(true);
                1
            }

            fn all(&self) -> u64 {
                self.0.set(true);
                1
            }
        }
        let asked = Cell::new(false);
        let side = |head| Side {
            len: parts(head, 0, 0),
            segments: Asked(&asked),
            pages_eligible: true,
        };
        let is_inline = |call, reply| {
            let shape = RpcShape {
                call: side(call),
                reply: side(reply),
            };
            plan(&shape, &LIMITS).map(|plan| plan.is_inline())
        };
        assert_eq!(is_inline(996, 996), Ok(true));
        assert!(!asked.get());
        assert_eq!(is_inline(996, 997), Ok(false));
        assert!(asked.get());
    }

    /// Proves: V1-032, V1-073, V1-100, V1-104.
    #[test]
    fn call_is_inline_up_to_the_threshold() {
        let inline = |bytes| sent(CallForm::Inline, 28, bytes);
        assert_eq!(call(parts(100, 0, 0), false), inline(100));
        assert_eq!(call(parts(100, 892, 4), true), inline(996));
        let long = sent(CallForm::PositionZero, 28 + 24, 0);
        assert_eq!(call(parts(997, 0, 0), false), long);
        assert_eq!(long.map(|plan| plan.procedure()), Ok(Procedure::Nomsg));
        assert_eq!(inline(1).map(|plan| plan.procedure()), Ok(Procedure::Msg));
    }

    /// Proves: V1-035, V1-041, V1-042, V1-052.
    #[test]
    fn eligible_pages_become_a_read_chunk_without_padding() {
        let chunk = |position, tail_skip, inline| {
            let form = CallForm::ReadChunk {
                position,
                tail_skip,
            };
            sent(form, 28 + 24, inline)
        };
        assert_eq!(call(parts(44, 4096, 0), true), chunk(44, 0, 44));
        assert_eq!(call(parts(44, 3003, 1), true), chunk(44, 1, 44));
        assert_eq!(call(parts(44, 3002, 42), true), chunk(44, 2, 84));
        assert_eq!(call(parts(44, 3001, 2), true), chunk(44, 2, 44));
        assert_eq!(call(parts(44, 3001, 900), true), chunk(44, 3, 941));
    }

    /// Proves: V1-034, V1-055, V1-076, V1-077, V1-078, PD-003, SEC-013.
    #[test]
    fn other_large_calls_go_whole() {
        let whole = |segments: u32| sent(CallForm::PositionZero, 28 + 24 * segments, 0);
        assert_eq!(call(parts(44, 4096, 0), false), whole(2));
        // A Position must be a multiple of four, and neither that of a whole message nor that of
        // the message type.
        assert_eq!(call(parts(46, 4096, 0), true), whole(2));
        assert_eq!(call(parts(0, 4096, 0), true), whole(1));
        assert_eq!(call(parts(4, 4096, 0), true), whole(2));
        // Head and tail alone are over the threshold.
        assert_eq!(call(parts(500, 4096, 500), true), whole(3));
        assert_eq!(call(parts(4096, 14 * 4096, 4096), false), whole(16));
        let too_large = Err(PlanError::CallTooLarge);
        assert_eq!(call(parts(4096, 15 * 4096, 4096), false), too_large);
        assert_eq!(call(parts(100, u32::MAX, 100), true), too_large);
    }

    /// Proves: V1-105, V1-113, PD-029.
    #[test]
    fn reply_is_inline_up_to_the_threshold() {
        let inline = offered(ReplyForm::Inline, 28);
        assert_eq!(reply(parts(996, 0, 0), false), inline);
        assert_eq!(reply(parts(96, 896, 4), true), inline);
        let chunk = offered(ReplyForm::ReplyChunk, 28 + 4 + 16);
        assert_eq!(reply(parts(997, 0, 0), false), chunk);
    }

    /// Proves: V1-035, V1-068, V1-070, V1-106, V1-111.
    #[test]
    fn eligible_pages_become_a_write_chunk_if_the_rest_fits() {
        let write = offered(ReplyForm::WriteChunk, 28 + 8 + 16);
        assert_eq!(reply(parts(128, 4095, 4), true), write);
        assert_eq!(reply(parts(968, 4096, 4), true), write);
        let whole = offered(ReplyForm::ReplyChunk, 28 + 4 + 3 * 16);
        assert_eq!(reply(parts(969, 4096, 4), true), whole);
        assert_eq!(reply(parts(128, 4096, 4), false), whole);
    }

    /// Proves: V1-079, V1-114.
    #[test]
    fn replies_stay_within_the_segments_of_one_list() {
        let whole = offered(ReplyForm::ReplyChunk, 28 + 4 + 16 * 16);
        assert_eq!(reply(parts(100, 15 * 4096, 0), false), whole);
        let write = offered(ReplyForm::WriteChunk, 28 + 8 + 16 * 16);
        assert_eq!(reply(parts(100, 16 * 4096, 0), true), write);
        let too_large = Err(PlanError::ReplyTooLarge);
        assert_eq!(reply(parts(100, 16 * 4096, 0), false), too_large);
        assert_eq!(reply(parts(100, 17 * 4096, 0), true), too_large);
    }

    /// Proves: V1-100, SEC-011.
    #[test]
    fn the_chunks_of_the_reply_count_into_the_call() {
        // 28 + 24 bytes of header with the Write chunk leave 972 bytes.
        let shape = |head| RpcShape {
            call: side(parts(head, 0, 0), false),
            reply: side(parts(128, 4096, 0), true),
        };
        let form = |head| plan(&shape(head), &LIMITS).map(|plan| (plan.call, plan.header_len()));
        assert_eq!(form(972), Ok((CallForm::Inline, 52)));
        assert_eq!(form(973), Ok((CallForm::PositionZero, 76)));
    }

    #[test]
    fn chunks_have_a_segment_and_a_32_bit_length() {
        let result = |pages, segments| {
            let call = Side {
                len: parts(1000, pages, 0),
                segments,
                pages_eligible: true,
            };
            let reply = side(parts(100, 0, 0), false);
            plan(&RpcShape { call, reply }, &LIMITS).map(|plan| plan.call)
        };
        let (whole, too_large) = (Ok(CallForm::PositionZero), Err(PlanError::CallTooLarge));
        assert_eq!(result(u32::MAX - 1000, parts(1, 1, 0)), whole);
        assert_eq!(result(u32::MAX - 999, parts(1, 1, 0)), too_large);
        assert_eq!(result(0, parts(0, 0, 0)), too_large);
    }

    /// Proves: V1-139.
    #[test]
    fn no_form_fits_a_connection_that_is_too_small() {
        let small = |inline_send, inline_receive| PlanLimits {
            inline_send,
            inline_receive,
            ..LIMITS
        };
        let shape = RpcShape {
            call: side(parts(100, 0, 0), false),
            reply: side(parts(100, 0, 0), false),
        };
        let result = |limits| plan(&shape, &limits).err();
        assert_eq!(result(small(51, 128)), Some(PlanError::CallTooLarge));
        assert_eq!(result(small(128, 47)), Some(PlanError::ReplyTooLarge));
        assert_eq!(result(small(52, 128)), None);
        assert_eq!(result(small(128, 48)), None);
    }
}
