// SPDX-License-Identifier: GPL-2.0

//! Tests of plans with any number of chunks.

#[cfg_attr(rpcrdma_kunit, kernel::macros::kunit_tests(rpcrdma_proto_plan_general))]
mod tests {
    use crate::proto::requester::plan::{PlanError, PlanLimits};
    use crate::proto::testing::requester::plan_general::{
        plan_general, CallPiece, GeneralPlan, Piece, Reduction, ReplyPiece,
    };
    use crate::proto::wire::header::{Procedure, VERSION_ONE, VERSION_TWO};
    use crate::proto::wire::private_data::Thresholds;

    const LIMITS: PlanLimits = PlanLimits {
        inline_send: 1024,
        inline_receive: 1024,
        max_segments: 16,
    };

    /// A piece that needs one segment for each 4096 bytes.
    const fn piece(len: u32, eligible: bool) -> Piece {
        Piece {
            len,
            segments: len.div_ceil(4096),
            eligible,
        }
    }

    /// Bytes that must not be placed directly.
    const fn fixed(len: u32) -> Piece {
        piece(len, false)
    }

    /// A data item.
    const fn item(len: u32) -> Piece {
        piece(len, true)
    }

    /// Plans a Call next to a Reply of 100 bytes.
    fn call<const C: usize>(pieces: [Piece; C]) -> Result<GeneralPlan<C, 1>, PlanError> {
        plan_general(&pieces, &[fixed(100)], &LIMITS, Reduction::WhenNeeded)
    }

    /// Plans a Reply next to a Call of 100 bytes.
    fn reply<const R: usize>(
        pieces: [Piece; R],
        reduction: Reduction,
    ) -> Result<[ReplyPiece; R], PlanError> {
        let plan = plan_general(&[fixed(100)], &pieces, &LIMITS, reduction);
        plan.map(|plan| plan.reply)
    }

    const fn inline(skip: u32) -> CallPiece {
        CallPiece::Inline { skip }
    }

    const fn read(position: u32) -> CallPiece {
        CallPiece::ReadChunk { position }
    }

    const fn zero(skip: u32) -> CallPiece {
        CallPiece::PositionZero { skip }
    }

    const fn write(capacity: u32) -> ReplyPiece {
        ReplyPiece::WriteChunk {
            capacity,
            segments: capacity.div_ceil(4096),
        }
    }

    const NEEDED: Reduction = Reduction::WhenNeeded;

    /// Proves: V1-073, V1-104, V1-105.
    #[test]
    fn what_fits_goes_inline() {
        let plan = call([fixed(100), item(892), fixed(4)]);
        let expected = GeneralPlan {
            call: [inline(0); 3],
            reply: [ReplyPiece::Inline],
            header_len: 28,
            inline_len: 996,
        };
        assert_eq!(plan, Ok(expected));
        assert_eq!(plan.map(|plan| plan.procedure()), Ok(Procedure::Msg));
        let replied = reply([fixed(100), item(892), fixed(4)], NEEDED);
        assert_eq!(replied, Ok([ReplyPiece::Inline; 3]));
    }

    /// Proves: V1-040, V1-044, V1-049, V1-052.
    #[test]
    fn several_items_become_several_read_chunks() {
        let pieces = [fixed(44), item(8192), fixed(4), item(4099), fixed(1 + 8)];
        let plan = call(pieces);
        let expected = GeneralPlan {
            call: [
                inline(0),
                read(44),
                inline(0),
                read(44 + 8192 + 4),
                inline(1),
            ],
            reply: [ReplyPiece::Inline],
            header_len: 28 + 24 * (2 + 2),
            inline_len: 44 + 4 + 8,
        };
        assert_eq!(plan, Ok(expected));
        // The longest ones go first, and no more than have to.
        let few = call([
            fixed(44),
            item(900),
            fixed(4),
            item(8192),
            fixed(4),
            item(800),
        ]);
        let forms = [
            inline(0),
            read(44),
            inline(0),
            read(948),
            inline(0),
            inline(0),
        ];
        assert_eq!(
            few.map(|plan| (plan.call, plan.inline_len)),
            Ok((forms, 852))
        );
    }

    /// Proves: V1-077, V1-078, V1-084.
    #[test]
    fn a_long_call_keeps_its_items_in_chunks_of_their_own() {
        let plan = call([fixed(1200), item(8190), fixed(2 + 50)]);
        let expected = GeneralPlan {
            call: [zero(0), read(1200), zero(2)],
            reply: [ReplyPiece::Inline],
            header_len: 28 + 24 * (1 + 2 + 1),
            inline_len: 0,
        };
        assert_eq!(plan, Ok(expected));
        assert_eq!(plan.map(|plan| plan.procedure()), Ok(Procedure::Nomsg));
    }

    /// Proves: V1-034, V1-076, V1-083, SEC-010, SEC-013, SEC-014.
    #[test]
    fn what_is_not_eligible_is_never_a_chunk_of_its_own() {
        let large = [fixed(100), fixed(65536), fixed(4)];
        let plan = plan_general(
            &large,
            &large,
            &PlanLimits {
                max_segments: 32,
                ..LIMITS
            },
            NEEDED,
        );
        let forms = plan.map(|plan| (plan.call, plan.reply));
        assert_eq!(forms, Ok(([zero(0); 3], [ReplyPiece::ReplyChunk; 3])));
        let plan = plan_general(
            &large,
            &large,
            &PlanLimits {
                max_segments: 32,
                ..LIMITS
            },
            Reduction::Always,
        );
        assert_eq!(plan.map(|plan| (plan.call, plan.reply)), forms);
    }

    /// Proves: V1-055.
    #[test]
    fn items_that_do_not_start_at_a_word_are_no_chunks() {
        let whole = Ok([zero(0); 3]);
        assert_eq!(
            call([fixed(46), item(4096), fixed(0)]).map(|plan| plan.call),
            whole
        );
        assert_eq!(
            call([fixed(0), item(4096), fixed(0)]).map(|plan| plan.call),
            whole
        );
    }

    #[test]
    fn an_odd_chunk_is_the_last_one() {
        // The first item is longer, so it is chosen, and the second one stays inline.
        let plan = call([fixed(44), item(8191), fixed(1), item(400), fixed(4)]);
        let forms = [inline(0), read(44), inline(1), inline(0), inline(0)];
        assert_eq!(plan.map(|plan| plan.call), Ok(forms));
        // Together they do not fit: the longer one is a chunk of a Long Call.
        let plan = call([fixed(44), item(4095), fixed(1), item(4096 * 2), fixed(4)]);
        let forms = [zero(0), zero(0), zero(0), read(44 + 4096), zero(0)];
        assert_eq!(plan.map(|plan| plan.call), Ok(forms));
    }

    /// Proves: V1-060, V1-106, V1-109, V1-111.
    #[test]
    fn each_result_that_may_be_placed_has_a_write_chunk() {
        let none = ReplyPiece::Inline;
        let one = reply([fixed(128), item(8192), fixed(4)], NEEDED);
        assert_eq!(one, Ok([none, write(8192), none]));
        // The first result may have no data, and the second one come in the first chunk.
        let two = reply(
            [fixed(128), item(4096), fixed(8), item(8192), fixed(4)],
            NEEDED,
        );
        assert_eq!(two, Ok([none, write(8192), none, write(8192), none]));
        // Nothing follows the second that could come in its chunk.
        let two = reply(
            [fixed(128), item(8192), fixed(8), item(4096), fixed(4)],
            NEEDED,
        );
        assert_eq!(two, Ok([none, write(8192), none, write(4096), none]));
    }

    /// Proves: V1-068.
    #[test]
    fn write_chunks_have_no_room_for_padding() {
        let plan = reply([fixed(128), item(4097), fixed(3)], NEEDED);
        assert_eq!(
            plan,
            Ok([ReplyPiece::Inline, write(4097), ReplyPiece::Inline])
        );
    }

    /// Proves: V1-079, V1-081, V1-113, V1-114, V1-157, PD-029, SEC-011.
    #[test]
    fn what_may_not_fit_has_a_reply_chunk() {
        let (chunk, none) = (ReplyPiece::ReplyChunk, ReplyPiece::Inline);
        assert_eq!(reply([fixed(996)], NEEDED), Ok([none]));
        assert_eq!(reply([fixed(997)], NEEDED), Ok([chunk]));
        // A larger verifier is enough.
        assert_eq!(reply([fixed(900), fixed(100)], NEEDED), Ok([chunk, chunk]));
        // Write list and Reply chunk together: the rest is too long.
        let both = reply([fixed(1500), item(8192), fixed(4)], NEEDED);
        assert_eq!(both, Ok([chunk, write(8192), chunk]));
        let plan = plan_general(
            &[fixed(100)],
            &[fixed(1500), item(8192), fixed(4)],
            &LIMITS,
            NEEDED,
        );
        let header = 28 + (8 + 2 * 16) + (4 + 2 * 16);
        assert_eq!(plan.map(|plan| plan.header_len), Ok(header));
    }

    /// Proves: V1-108.
    #[test]
    fn results_without_a_chunk_are_the_last_ones() {
        let few = |max_segments, pieces| {
            let limits = PlanLimits {
                max_segments,
                ..LIMITS
            };
            plan_general(&[fixed(100)], &pieces, &limits, NEEDED).map(|plan| plan.reply)
        };
        let (chunk, none) = (ReplyPiece::ReplyChunk, ReplyPiece::Inline);
        // The third result is small enough to come inline.
        let pieces = [
            fixed(128),
            item(8192),
            fixed(4),
            item(4096),
            fixed(4),
            item(500),
        ];
        let forms = [none, write(8192), none, write(4096), none, none];
        assert_eq!(few(3, pieces), Ok(forms));
        // It comes in the Reply chunk, or in a Write chunk if one before has no data.
        let large = 4 * 4096;
        let pieces = [
            fixed(128),
            item(large),
            fixed(4),
            item(4096),
            fixed(4),
            item(large),
        ];
        let forms = [chunk, write(large), chunk, write(large), chunk, chunk];
        assert_eq!(few(8, pieces), Ok(forms));
        assert_eq!(few(6, pieces), Err(PlanError::ReplyTooLarge));
    }

    /// Proves: V1-109.
    #[test]
    fn no_item_may_be_too_large_for_a_chunk_that_it_can_end_up_in() {
        let pieces = [fixed(8), item(4096), fixed(4), item(4097), fixed(4)];
        let limits = PlanLimits {
            inline_receive: 16384,
            max_segments: 1,
            ..LIMITS
        };
        let plan = plan_general(&[fixed(100)], &pieces, &limits, Reduction::Always);
        let none = [ReplyPiece::Inline; 5];
        assert_eq!(plan.map(|plan| plan.reply), Ok(none));
    }

    /// Proves: V1-074.
    #[test]
    fn items_may_be_placed_although_they_would_fit() {
        let pieces = [fixed(40), item(400), fixed(4)];
        let plan = plan_general(&pieces, &pieces, &LIMITS, Reduction::Always);
        let none = ReplyPiece::Inline;
        let expected = GeneralPlan {
            call: [inline(0), read(40), inline(0)],
            reply: [none, write(400), none],
            header_len: 28 + 24 + 8 + 16,
            inline_len: 44,
        };
        assert_eq!(plan, Ok(expected));
        // Without items there is nothing to place.
        let pieces = [fixed(40), item(0), fixed(4)];
        let plan = plan_general(&pieces, &pieces, &LIMITS, Reduction::Always);
        assert_eq!(
            plan.map(|plan| (plan.call, plan.reply)),
            Ok(([inline(0); 3], [none; 3]))
        );
    }

    /// Proves: V2-002, V2-005, V2-030.
    #[test]
    fn version_two_has_room_for_4096_bytes() {
        let thresholds = Thresholds {
            send: 1024,
            receive: 1024,
            remote_invalidation: false,
        };
        let form = |thresholds: Thresholds, len| {
            let limits = PlanLimits {
                inline_send: thresholds.send,
                inline_receive: thresholds.receive,
                ..LIMITS
            };
            let plan = plan_general(&[fixed(len)], &[fixed(len)], &limits, NEEDED);
            plan.map(|plan| (plan.call, plan.reply))
        };
        let is_inline = Ok(([inline(0)], [ReplyPiece::Inline]));
        let is_long = Ok(([zero(0)], [ReplyPiece::ReplyChunk]));
        let agreed = thresholds.at_version(VERSION_TWO);
        assert_eq!(form(agreed, 2048), is_inline);
        assert_eq!(form(agreed, 4096 - 28), is_inline);
        assert_eq!(form(agreed, 4096 - 28 + 4), is_long);
        assert_eq!(form(agreed, 5000), is_long);
        assert_eq!(form(thresholds.first(), 2048), is_long);
        assert_eq!(form(thresholds.at_version(VERSION_ONE), 2048), is_long);
    }

    #[test]
    fn lists_and_messages_have_their_limits() {
        let none = [fixed(100)];
        let too_large = |pieces: [Piece; 2], limits| {
            plan_general(&pieces, &none, &limits, NEEDED).err() == Some(PlanError::CallTooLarge)
        };
        assert!(too_large([fixed(100), fixed(17 * 4096)], LIMITS));
        assert!(!too_large([fixed(100), item(16 * 4096)], LIMITS));
        assert!(too_large([fixed(100), item(17 * 4096)], LIMITS));
        // The header of a Long Call alone is too long.
        assert!(too_large(
            [fixed(100), fixed(100)],
            PlanLimits {
                inline_send: 51,
                ..LIMITS
            }
        ));
        // A chunk has a segment and a 32-bit length.
        let one = |len| Piece {
            len,
            segments: 1,
            eligible: false,
        };
        assert!(!too_large([one(1000), one(u32::MAX - 1000)], LIMITS));
        assert!(too_large([one(1000), one(u32::MAX - 999)], LIMITS));
        let unregistered = Piece {
            segments: 0,
            ..one(2000)
        };
        assert!(too_large([unregistered, unregistered], LIMITS));
    }
}
