// SPDX-License-Identifier: GPL-2.0

//! Properties of plans.

use proptest::prelude::*;

use crate::proto::call::encode_call;
use crate::proto::chunk::{header_len, ReadSegment, Segment};
use crate::proto::header::{Credits, FixedHeader, Xid, VERSION_ONE};
use crate::proto::plan::{plan, CallForm, Limits, Parts, PlanError, ReplyForm, RpcShape, Side};
use crate::proto::plan_general::{plan_general, Piece, Reduction, ReplyPiece};

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
    fn side()(head in length(), pages in length(), tail in length(), pages_eligible: bool) -> Side {
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
    fn shape()(call in side(), reply in side()) -> RpcShape {
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
    ) -> Limits {
        Limits {
            inline_send: send,
            inline_receive: receive,
            max_segments,
        }
    }
}

fn total(parts: &Parts) -> u64 {
    u64::from(parts.head) + u64::from(parts.pages) + u64::from(parts.tail)
}

/// A direction as three pieces.
fn pieces(side: &Side) -> [Piece; 3] {
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

/// `count` segments of one byte.
fn placeholders(count: u32) -> impl Iterator<Item = Segment> + Clone {
    (0..count).map(|handle| Segment {
        handle,
        length: 1,
        offset: 0,
    })
}

proptest! {
    #[test]
    fn plans_fit_and_say_the_length_of_the_header(shape in shape(), limits in limits()) {
        let Ok(plan) = plan(&shape, &limits) else {
            return Ok(());
        };
        let segments = |parts: &Parts| parts.head + parts.pages + parts.tail;
        let (call, reply) = (&shape.call, &shape.reply);
        let (reads, position) = match plan.call {
            CallForm::Inline => (0, 4),
            CallForm::ReadChunk { position, .. } => (call.segments.pages, position),
            CallForm::PositionZero => (segments(&call.segments), 0),
        };
        let (writes, chunk) = match plan.reply {
            ReplyForm::Inline => (0, 0),
            ReplyForm::WriteChunk => (reply.segments.pages, 0),
            ReplyForm::ReplyChunk => (0, segments(&reply.segments)),
        };
        for count in [reads, writes, chunk] {
            prop_assert!(count <= limits.max_segments);
        }

        let fixed = FixedHeader {
            xid: Xid(1),
            version: VERSION_ONE,
            credits: Credits::new(1),
            procedure: plan.procedure(),
        };
        let mut buffer = vec![0; 4096];
        let reads = placeholders(reads).map(|segment| ReadSegment { position, segment });
        let length =
            encode_call(&mut buffer, &fixed, reads, [placeholders(writes)], placeholders(chunk));
        prop_assert_eq!(u32::try_from(length.unwrap()), Ok(plan.header_len));
        prop_assert!(plan.header_len + plan.inline_len <= limits.inline_send);

        // Each byte of the Call travels once, except pad bytes.
        match plan.call {
            CallForm::Inline => prop_assert_eq!(u64::from(plan.inline_len), total(&call.len)),
            CallForm::ReadChunk { position, tail_skip } => {
                prop_assert!(call.pages_eligible && position % 4 == 0 && position > 0);
                prop_assert_eq!(position, call.len.head);
                prop_assert!(tail_skip <= call.len.tail.min(3));
                let inline = call.len.head + call.len.tail - tail_skip;
                prop_assert_eq!(plan.inline_len, inline);
                if tail_skip != call.len.tail {
                    prop_assert_eq!((u64::from(call.len.pages) + u64::from(tail_skip)) % 4, 0);
                }
            }
            CallForm::PositionZero => prop_assert_eq!(plan.inline_len, 0),
        }

        // Whatever the responder returns within the capacity, its message fits our Receives.
        let receive = u64::from(limits.inline_receive);
        let rest = u64::from(reply.len.head) + u64::from(reply.len.tail);
        let fits = match plan.reply {
            ReplyForm::Inline => header_len(0, None, None) + total(&reply.len) <= receive,
            ReplyForm::WriteChunk => {
                reply.pages_eligible && header_len(0, Some(writes), None) + rest <= receive
            }
            ReplyForm::ReplyChunk => header_len(0, None, Some(chunk)) <= receive,
        };
        prop_assert!(fits);
    }

    #[test]
    fn plans_are_no_dearer_than_needed(shape in shape(), limits in limits()) {
        let result = plan(&shape, &limits);
        let receive = u64::from(limits.inline_receive);
        let small_reply = 28 + total(&shape.reply.len) <= receive;
        if let Ok(plan) = result {
            prop_assert_eq!(plan.reply == ReplyForm::Inline, small_reply);
            if plan.call == CallForm::PositionZero && plan.reply == ReplyForm::Inline {
                let send = u64::from(limits.inline_send);
                prop_assert!(28 + total(&shape.call.len) > send);
            }
        }
        if result == Err(PlanError::ReplyTooLarge) {
            prop_assert!(!small_reply);
        }
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
                prop_assert_eq!(simple.header_len, general.header_len);
            }
        }
    }
}
