// SPDX-License-Identifier: GPL-2.0

//! Plans for RPCs of any shape.

use super::Input;
use crate::proto::requester::encode::encode_call;
use crate::proto::requester::plan::header_len;
use crate::proto::requester::plan::{
    plan as make_plan, CallForm, Parts, PlanError, PlanLimits, ReplyForm, RpcShape, Side,
};
use crate::proto::testing::requester::plan_general::{
    plan_general as make_general, CallPiece, Piece, Reduction, ReplyPiece,
};
use crate::proto::wire::chunk::{ReadSegment, Segment};
use crate::proto::wire::header::{Credits, FixedHeader, Procedure, Xid, VERSION_ONE};

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

/// Any RPC of messages with several pieces, within any limits.
pub fn plan_general(input: &[u8]) {
    let mut input = Input(input);
    let limits = limits(&mut input);
    let reduction = match input.below(2) {
        0 => Reduction::WhenNeeded,
        _ => Reduction::Always,
    };
    let mut piece = || Piece {
        len: input.size(),
        segments: input.below(8).into(),
        eligible: input.below(2) == 1,
    };
    let call: [Piece; 5] = std::array::from_fn(|_| piece());
    let reply: [Piece; 4] = std::array::from_fn(|_| piece());
    check_general(&call, &reply, &limits, reduction);
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
pub(crate) fn check_plan(shape: &RpcShape, limits: &PlanLimits) {
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
    assert_eq!(u32::try_from(length), Ok(plan.header_len));
    let inline = u64::from(plan.inline_len);
    assert!(u64::from(plan.header_len) + inline <= send);

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
            let offered = plan.header_len - 24 * reads;
            assert!(u64::from(offered) + total(&call.len) > send);
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

/// Makes a plan for messages with several pieces, and checks that all of them travel and fit.
fn check_general(call: &[Piece; 5], reply: &[Piece; 4], limits: &PlanLimits, reduction: Reduction) {
    let (send, receive) = (
        u64::from(limits.inline_send),
        u64::from(limits.inline_receive),
    );
    let bytes = |pieces: &[Piece]| pieces.iter().map(|piece| u64::from(piece.len)).sum::<u64>();
    let small = 28 + bytes(call) <= send && 28 + bytes(reply) <= receive;
    let Ok(plan) = make_general(call, reply, limits, reduction) else {
        assert!(!small || reduction == Reduction::Always);
        return;
    };

    let (mut offset, mut inline, mut reads) = (0u64, 0, 0);
    for (piece, form) in call.iter().zip(plan.call) {
        match form {
            CallPiece::Inline { skip } => {
                assert!(skip <= piece.len.min(3));
                inline += u64::from(piece.len - skip);
            }
            CallPiece::ReadChunk { position } => {
                assert!(piece.eligible && piece.len > 0 && position > 0 && position % 4 == 0);
                assert_eq!(u64::from(position), offset);
                reads += piece.segments;
            }
            CallPiece::PositionZero { skip } => {
                assert!(skip <= piece.len.min(3));
                assert_eq!(plan.procedure(), Procedure::Nomsg);
                reads += piece.segments;
            }
        }
        offset += u64::from(piece.len);
    }
    assert_eq!(u64::from(plan.inline_len), inline);
    assert!(inline == 0 || plan.procedure() == Procedure::Msg);

    let (mut writes, mut chunk, mut returned) = (Vec::new(), None, 0);
    for (piece, form) in reply.iter().zip(plan.reply) {
        match form {
            ReplyPiece::Inline => returned += u64::from(piece.len),
            ReplyPiece::WriteChunk { capacity, segments } => {
                assert!(piece.eligible && capacity >= piece.len && segments >= piece.segments);
                writes.push(segments);
            }
            ReplyPiece::ReplyChunk => *chunk.get_or_insert(0) += piece.segments,
        }
    }
    for segments in [reads, writes.iter().sum(), chunk.unwrap_or(0)] {
        assert!(segments <= limits.max_segments);
    }
    let header = header_len(reads, writes.iter().copied(), chunk);
    assert_eq!(u64::from(plan.header_len), header);
    assert!(header + inline <= send);
    assert!(header_len(0, writes, chunk) + returned <= receive);
}
