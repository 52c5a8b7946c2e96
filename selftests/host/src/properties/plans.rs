// SPDX-License-Identifier: GPL-2.0

//! Properties of plans.

use proptest::prelude::*;

use std::collections::HashMap;

use proptest::collection::vec;

use crate::proto::call::{decode_call, encode_call, ReceivedByResponder};
use crate::proto::chunk::{header_len, ReadSegment, Segment};
use crate::proto::header::{Credits, FixedHeader, Procedure, Versions, Xid, VERSION_ONE};
use crate::proto::plan::{plan, CallForm, Limits, Parts, PlanError, ReplyForm, RpcShape, Side};
use crate::proto::plan_general::{
    plan_general, CallPiece, GeneralPlan, Piece, Reduction, ReplyPiece,
};
use crate::proto::stream::StreamPart;

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

prop_compose! {
    fn limits()(
        send in 0u8..8, receive in 0u8..8, max_segments in 1u32..=32,
    ) -> Limits {
        Limits {
            inline_send: (u32::from(send) + 1) * 1024,
            inline_receive: (u32::from(receive) + 1) * 1024,
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

prop_compose! {
    /// Five pieces of which every second may be a data item that is followed by its padding.
    fn call_pieces()(
        words in [1u32..300, 0u32..300, 0u32..300],
        items in [0u32..20_000, 0u32..20_000],
        eligible: [bool; 2],
    ) -> [Piece; 5] {
        let padding = |len: u32| len.wrapping_neg() % 4;
        let piece = |len: u32, eligible| Piece { len, segments: len.div_ceil(4096), eligible };
        [
            piece(words[0] * 4 + 8, false),
            piece(items[0], eligible[0]),
            piece(padding(items[0]) + words[1] * 4, false),
            piece(items[1], eligible[1]),
            piece(padding(items[1]) + words[2] * 4, false),
        ]
    }
}

fn reduction() -> impl Strategy<Value = Reduction> {
    prop_oneof![Just(Reduction::WhenNeeded), Just(Reduction::Always)]
}

/// The Call of a plan: the message that is sent, and the memory that its segments name.
#[derive(Default)]
struct Sent {
    header: Vec<u8>,
    inline: Vec<u8>,
    memory: HashMap<u32, Vec<u8>>,
    reads: Vec<ReadSegment>,
}

impl Sent {
    /// Registers `bytes` as one segment at `position`.
    fn register(&mut self, position: u32, bytes: &[u8]) {
        let handle = u32::try_from(self.memory.len()).unwrap();
        let length = u32::try_from(bytes.len()).unwrap();
        let segment = Segment {
            handle,
            length,
            offset: 0,
        };
        self.memory.insert(handle, bytes.to_vec());
        self.reads.push(ReadSegment { position, segment });
    }

    /// Sends `stream`, cut into `pieces`, as `plan` says.
    fn new<const C: usize, const R: usize>(
        stream: &[u8],
        pieces: &[Piece; C],
        plan: &GeneralPlan<C, R>,
    ) -> Self {
        let mut sent = Self::default();
        let mut rest = stream;
        for (piece, form) in pieces.iter().zip(plan.call) {
            let (bytes, after) = rest.split_at(usize::try_from(piece.len).unwrap());
            rest = after;
            let skip = |skip: u32| &bytes[usize::try_from(skip).unwrap()..];
            match form {
                CallPiece::Inline { skip: padding } => sent.inline.extend(skip(padding)),
                CallPiece::ReadChunk { position } => {
                    // In two segments, which need not be cut at a word.
                    let (first, second) = bytes.split_at(bytes.len() / 2);
                    sent.register(position, first);
                    sent.register(position, second);
                }
                CallPiece::PositionZero { skip: padding } => sent.register(0, skip(padding)),
            }
        }
        let fixed = FixedHeader {
            xid: Xid(0),
            version: VERSION_ONE,
            credits: Credits::new(1),
            procedure: plan.procedure(),
        };
        sent.header = vec![0; 4096];
        let none = std::iter::empty();
        let length = encode_call(
            &mut sent.header,
            &fixed,
            sent.reads.iter().copied(),
            [none.clone()],
            none,
        );
        sent.header.truncate(length.unwrap());
        sent
    }

    /// What a responder makes of it.
    fn rebuild(&self) -> Option<Vec<u8>> {
        let message = [self.header.as_slice(), &self.inline].concat();
        let Ok(ReceivedByResponder::Call(call)) = decode_call(&message, Versions::ONE) else {
            return None;
        };
        let chunk = |at| {
            let segments = call
                .lists
                .reads
                .segments()
                .filter(move |read| read.position == at);
            segments.flat_map(|read| self.memory[&read.segment.handle].clone())
        };
        let zero: Vec<u8> = chunk(0).collect();
        let mut rest = call.payload.unwrap_or(&zero);
        let mut stream = Vec::new();
        for part in call.stream() {
            match part {
                StreamPart::Rest(bytes) => {
                    let (taken, after) = rest.split_at(usize::try_from(bytes).ok()?);
                    stream.extend(taken);
                    rest = after;
                }
                StreamPart::Chunk(position, _) => stream.extend(chunk(position)),
                StreamPart::RoundUp(bytes) => {
                    stream.resize(stream.len() + usize::try_from(bytes).ok()?, 0);
                }
            }
        }
        rest.is_empty().then_some(stream)
    }
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

    /// Proves: V1-033, V1-034, V1-049, V1-051, V1-054, V1-055, V1-084, V1-100, V1-153.
    #[test]
    fn a_responder_rebuilds_what_was_planned(
        pieces in call_pieces(),
        limits in limits(),
        reduction in reduction(),
        bytes in vec(any::<u8>(), 64),
    ) {
        let none = [Piece::default()];
        let Ok(plan) = plan_general(&pieces, &none, &limits, reduction) else {
            return Ok(());
        };
        // Any bytes, but an RPC header in front and zeros for the padding of items.
        let mut stream: Vec<u8> = Vec::new();
        for piece in &pieces {
            let start = stream.len();
            let padding = start.wrapping_neg() % 4;
            stream.extend(bytes.iter().cycle().take(usize::try_from(piece.len).unwrap()));
            let end = stream.len().min(start + padding);
            stream[start..end].fill(0);
        }
        stream[..8].fill(0);
        let sent = Sent::new(&stream, &pieces, &plan);
        prop_assert_eq!(u32::try_from(sent.inline.len()), Ok(plan.inline_len));
        prop_assert!(plan.header_len + plan.inline_len <= limits.inline_send);
        prop_assert_eq!(plan.procedure() == Procedure::Msg, !sent.inline.is_empty());
        for (piece, form) in pieces.iter().zip(plan.call) {
            let is_chunk = matches!(form, CallPiece::ReadChunk { .. });
            prop_assert!(piece.eligible || !is_chunk);
        }
        prop_assert_eq!(sent.rebuild(), Some(stream));
    }

    /// Proves: V1-100, V1-113, V1-114, V1-109, V1-157.
    #[test]
    fn whatever_is_replied_has_room(
        pieces in call_pieces(),
        limits in limits(),
        reduction in reduction(),
        lengths in any::<[u32; 5]>(),
    ) {
        let none = [Piece::default()];
        let Ok(plan) = plan_general(&none, &pieces, &limits, reduction) else {
            return Ok(());
        };
        // The Reply as it turns out.
        let lengths: Vec<u64> = pieces.iter().zip(lengths)
            .map(|(piece, length)| u64::from(length % (piece.len + 1)))
            .collect();
        let mut chunks = plan.reply.iter().filter_map(|form| match form {
            ReplyPiece::WriteChunk { capacity, .. } => Some(u64::from(*capacity)),
            _ => None,
        });
        // The responder puts each item that has data into the next Write chunk that there is.
        let mut rest = 0;
        for (piece, &length) in pieces.iter().zip(&lengths) {
            if !piece.eligible || length == 0 {
                rest += length;
            } else if let Some(capacity) = chunks.next() {
                prop_assert!(length <= capacity);
            } else {
                rest += length;
            }
        }
        let parts = pieces.iter().zip(plan.reply);
        let reply_chunk: Vec<_> = parts.filter(|(_, form)| *form == ReplyPiece::ReplyChunk).collect();
        let segments = plan.reply.iter().filter_map(|form| match form {
            ReplyPiece::WriteChunk { segments, .. } => Some(*segments),
            _ => None,
        });
        let chunk_segments = reply_chunk.iter().map(|(piece, _)| piece.segments).sum::<u32>();
        let chunk = (!reply_chunk.is_empty()).then_some(chunk_segments);
        let header = header_len(0, segments, chunk);
        let receive = u64::from(limits.inline_receive);
        if chunk.is_some() {
            // Items that come in the Reply chunk take the place of others in it.
            let capacity: u64 = reply_chunk.iter().map(|(piece, _)| u64::from(piece.len)).sum();
            prop_assert!(header <= receive);
            prop_assert!(rest <= capacity);
        } else {
            prop_assert!(header + rest <= receive);
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
