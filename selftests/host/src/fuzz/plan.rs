// SPDX-License-Identifier: GPL-2.0

//! Plans for RPCs of any shape.

use super::Input;
use crate::proto::requester::encode::encode_call;
use crate::proto::requester::plan::header_len;
use crate::proto::requester::plan::{
    plan as make_plan, CallForm, Parts, PlanError, PlanLimits, ReplyForm, RpcShape, Side,
};
use crate::proto::wire::chunk::{ReadSegment, Segment};
use crate::proto::wire::header::{Credits, FixedHeader, Xid, VERSION_ONE};

/// The most segments of one list in a generated case.
const MAX_SEGMENTS: u8 = 32;

/// Any shape of an RPC within any limits.
pub fn plan(input: &[u8]) {
    let mut input = Input(input);
    let limits = limits(&mut input);
    let mut side = || Side {
        len: Parts {
            head: input.size(),
            pages: input.size(),
            tail: input.size(),
        },
        segments: Parts {
            head: input.below(4).into(),
            pages: input.byte().into(),
            tail: input.below(4).into(),
        },
        pages_eligible: input.byte() & 1 == 1,
    };
    let shape = RpcShape {
        call: side(),
        reply: side(),
    };
    check_plan(&shape, &limits);
}

fn limits(input: &mut Input<'_>) -> PlanLimits {
    PlanLimits {
        inline_send: input.size(),
        inline_receive: input.size(),
        max_segments: u32::from(input.below(MAX_SEGMENTS)) + 1,
    }
}

fn total(parts: &Parts) -> u64 {
    u64::from(parts.head) + u64::from(parts.pages) + u64::from(parts.tail)
}

/// `count` segments of one byte.
fn placeholders(count: u32) -> impl Iterator<Item = Segment> + Clone {
    (0..count).map(|handle| Segment {
        handle,
        length: 1,
        offset: 0,
    })
}

/// Makes a plan, and checks that it fits, is no dearer than needed, and says the right lengths.
pub(crate) fn check_plan(shape: &RpcShape<Parts>, limits: &PlanLimits) {
    let (send, receive) = (
        u64::from(limits.inline_send),
        u64::from(limits.inline_receive),
    );
    let (call, reply) = (&shape.call, &shape.reply);
    let small_reply = 28 + total(&reply.len) <= receive;
    let plan = match make_plan(shape, limits) {
        Ok(plan) => plan,
        Err(PlanError::ReplyTooLarge) => return assert!(!small_reply),
        Err(PlanError::CallTooLarge) => {
            return assert!(!small_reply || 28 + total(&call.len) > send);
        }
    };
    assert_eq!(plan.reply == ReplyForm::Inline, small_reply);

    let segments = |parts: &Parts| u32::try_from(total(parts)).unwrap();
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
        assert!(count <= limits.max_segments);
    }

    let fixed = FixedHeader {
        xid: Xid(1),
        version: VERSION_ONE,
        credits: Credits::new(1),
        procedure: plan.procedure(),
    };
    let mut buffer = [0; 4096];
    let entries = placeholders(reads).map(|segment| ReadSegment { position, segment });
    let (write_chunk, reply_chunk) = (placeholders(writes), placeholders(chunk));
    let length = encode_call(&mut buffer, &fixed, entries, [write_chunk], reply_chunk).unwrap();
    assert_eq!(u64::try_from(length), Ok(plan.header_len()));
    let inline = u64::from(plan.inline_len);
    assert!(plan.header_len() + inline <= send);

    // Each byte of the Call travels once, except pad bytes.
    match plan.call {
        CallForm::Inline => assert_eq!(inline, total(&call.len)),
        CallForm::ReadChunk {
            position,
            tail_skip,
        } => {
            assert!(call.pages_eligible && position % 4 == 0 && position > 0);
            assert_eq!(position, call.len.head);
            assert!(tail_skip <= call.len.tail.min(3));
            let rest = u64::from(call.len.head) + u64::from(call.len.tail);
            assert_eq!(inline, rest - u64::from(tail_skip));
            if tail_skip != call.len.tail {
                assert_eq!((u64::from(call.len.pages) + u64::from(tail_skip)) % 4, 0);
            }
        }
        CallForm::PositionZero => {
            assert_eq!(inline, 0);
            let offered = plan.header_len() - 24 * u64::from(reads);
            assert!(offered + total(&call.len) > send);
        }
    }

    // Whatever the responder returns within the capacity, its message fits our Receives.
    let rest = u64::from(reply.len.head) + u64::from(reply.len.tail);
    assert!(match plan.reply {
        ReplyForm::Inline => header_len(0, None, None) + total(&reply.len) <= receive,
        ReplyForm::WriteChunk => {
            reply.pages_eligible && header_len(0, Some(writes), None) + rest <= receive
        }
        ReplyForm::ReplyChunk => header_len(0, None, Some(chunk)) <= receive,
    });
}
