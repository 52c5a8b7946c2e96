// SPDX-License-Identifier: GPL-2.0

//! Properties of plans.

use proptest::prelude::*;

use crate::fuzz::check_plan;
use crate::proto::requester::plan::{plan, CallForm, Parts, PlanLimits, ReplyForm, RpcShape, Side};
use crate::proto::testing::simulation::plan_general::{plan_general, Piece, Reduction, ReplyPiece};

/// A length that is often near a border: of nothing, of a threshold, of a page, of a list.
fn length() -> impl Strategy<Value = u32> {
    prop_oneof![
        Just(0),
        0u32..2048,
        (0u32..40).prop_map(|n| n * 4),
        0u32..(20 * 4096),
        any::<u32>(),
    ]
}

prop_compose! {
    /// A direction whose parts need one segment for each page, as real ones do.
    fn side()(head in length(), pages in length(), tail in length(), pages_eligible: bool) -> Side<Parts> {
        let len = Parts { head, pages, tail };
        let segments = Parts {
            head: head.div_ceil(4096),
            pages: pages.div_ceil(4096),
            tail: tail.div_ceil(4096),
        };
        Side { len, segments, pages_eligible }
    }
}

prop_compose! {
    fn shape()(call in side(), reply in side()) -> RpcShape<Parts> {
        RpcShape { call, reply }
    }
}

/// An inline threshold: small ones, and the largest that there is.
fn threshold() -> impl Strategy<Value = u32> {
    prop_oneof![
        8 => (1u32..=8).prop_map(|n| n * 1024),
        1 => Just(262_144),
    ]
}

prop_compose! {
    pub(super) fn limits()(
        send in threshold(), receive in threshold(), max_segments in 1u32..=32,
    ) -> PlanLimits {
        PlanLimits {
            inline_send: send,
            inline_receive: receive,
            max_segments,
        }
    }
}

/// A direction as three pieces.
fn pieces(side: &Side<Parts>) -> [Piece; 3] {
    let piece = |len, segments, eligible| Piece {
        len,
        segments,
        eligible,
    };
    let Side {
        len,
        segments,
        pages_eligible,
    } = side;
    [
        piece(len.head, segments.head, false),
        piece(len.pages, segments.pages, *pages_eligible),
        piece(len.tail, segments.tail, false),
    ]
}

proptest! {
    /// Proves: V1-032, V1-100, V1-143, V1-145, V1-159.
    #[test]
    fn plans_fit_and_say_the_length_of_the_header(shape in shape(), limits in limits()) {
        check_plan(&shape, &limits);
    }

    #[test]
    fn both_planners_agree_where_both_can_choose(shape in shape(), limits in limits()) {
        let (call, reply) = (pieces(&shape.call), pieces(&shape.reply));
        let general = plan_general(&call, &reply, &limits, Reduction::WhenNeeded);
        let Ok(simple) = plan(&shape, &limits) else {
            return Ok(());
        };
        let general = general.unwrap();
        let is_write = |form: &ReplyPiece| matches!(form, ReplyPiece::WriteChunk { .. });
        match simple.reply {
            ReplyForm::Inline => prop_assert_eq!(general.reply, [ReplyPiece::Inline; 3]),
            ReplyForm::WriteChunk => {
                prop_assert_eq!(general.reply.map(|form| is_write(&form)), [false, true, false]);
                prop_assert!(!general.reply.contains(&ReplyPiece::ReplyChunk));
            }
            ReplyForm::ReplyChunk => prop_assert!(general.reply.contains(&ReplyPiece::ReplyChunk)),
        }
        // Write chunks beside the Reply chunk make the header longer.
        if simple.reply != ReplyForm::ReplyChunk {
            prop_assert_eq!(simple.procedure(), general.procedure());
            prop_assert_eq!(simple.inline_len, general.inline_len);
            if simple.call != CallForm::PositionZero {
                prop_assert_eq!(simple.header_len(), u64::from(general.header_len));
            }
        }
    }
}
