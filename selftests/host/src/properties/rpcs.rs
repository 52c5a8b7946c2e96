// SPDX-License-Identifier: GPL-2.0

//! Properties of whole RPCs with several chunks: what one end plans, the other one can use.

use std::collections::HashMap;

use proptest::collection::vec;
use proptest::prelude::*;

use super::plans::limits;
use crate::proto::requester::decode::{decode_received, Received};
use crate::proto::requester::encode::encode_call;
use crate::proto::responder::decode::ReceivedByResponder;
use crate::proto::responder::placement::Placement;
use crate::proto::responder::stream::{Source, StreamPiece};
use crate::proto::testing::responder::decode::decode_call;
use crate::proto::testing::simulation::plan_general::{
    plan_general, CallPiece, GeneralPlan, Piece, Reduction, ReplyPiece,
};
use crate::proto::wire::chunk::{ReadSegment, Segment};
use crate::proto::wire::header::{Credits, FixedHeader, Versions, Xid, VERSION_ONE};

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
        let mut stream = Vec::new();
        for StreamPiece { at, length, source } in call.stream() {
            let count = |number: u32| usize::try_from(number).unwrap();
            assert_eq!(stream.len(), count(at));
            match source {
                Source::Inline(from) => {
                    stream.extend(&call.payload?[count(from)..][..count(length)]);
                }
                Source::Read { handle, offset } => {
                    let from = usize::try_from(offset).unwrap();
                    stream.extend(&self.memory[&handle][from..][..count(length)]);
                }
                Source::RoundUp => stream.resize(stream.len() + count(length), 0),
            }
        }
        Some(stream)
    }
}

/// The lengths of `segments` segments with `capacity` bytes, which need not end at a word.
fn cut(capacity: u32, segments: u32) -> Vec<u32> {
    let each = capacity / segments;
    let mut lengths = vec![each; usize::try_from(segments).unwrap()];
    lengths[0] += capacity - each * segments;
    lengths
}

proptest! {
    /// Proves: V1-033, V1-039, V1-049, V1-050, V1-051, V1-054, V1-084, V1-119, V1-153.
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
        prop_assert_eq!(sent.rebuild(), Some(stream));
    }

    /// What the fuzz target has, for as long as a test may take.
    #[test]
    fn a_responder_keeps_within_its_budget(input in vec(any::<u8>(), 0..2000)) {
        crate::fuzz::responder(&input);
    }

    /// Proves: V1-061, V1-066, V1-081, V1-082, V1-100, V1-159.
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
        let mut offered: Vec<Vec<u32>> = Vec::new();
        let (mut chunk, mut chunk_segments) = (0, 0);
        for (piece, form) in pieces.iter().zip(plan.reply) {
            match form {
                ReplyPiece::Inline => {}
                ReplyPiece::WriteChunk { capacity, segments } => {
                    offered.push(cut(capacity, segments));
                }
                ReplyPiece::ReplyChunk => {
                    chunk += piece.len;
                    chunk_segments += piece.segments;
                }
            }
        }
        let reply_chunk = if chunk > 0 { cut(chunk, chunk_segments) } else { Vec::new() };
        let fixed = FixedHeader {
            xid: Xid(0),
            version: VERSION_ONE,
            credits: Credits::new(1),
            procedure: plan.procedure(),
        };
        let segments = |lengths: &[u32]| {
            let lengths: Vec<_> = lengths.to_vec();
            lengths.into_iter().map(|length| Segment { handle: 1, length, offset: 0 })
        };
        let writes = offered.iter().map(|lengths| segments(lengths));
        let mut call = vec![0; 2048];
        let header = encode_call(&mut call, &fixed, [], writes, segments(&reply_chunk));
        call.truncate(header.unwrap() + 8);
        let Ok(ReceivedByResponder::Call(call)) = decode_call(&call, Versions::ONE) else {
            return Err(TestCaseError::fail("not a Call"));
        };

        // The Reply as it turns out, and what the responder makes of it.
        let mut placement = Placement::default();
        let mut at = 0;
        for (number, (piece, length)) in pieces.iter().zip(lengths).enumerate() {
            let length = length % (piece.len + 1);
            let length = if number == 0 { length.max(8) } else { length };
            if piece.eligible {
                placement.place(&call, at, length);
            }
            at += length;
        }
        let placed = placement.finish(&call, at, limits.inline_receive).unwrap();
        let mut message = vec![0; 2048];
        let header = placed.encode(&mut message, &call, Credits::new(1)).unwrap();
        prop_assert_eq!(u32::try_from(header), Ok(placed.header_len));
        message.truncate(header);
        if placed.inline_len > 0 {
            message.extend([0, 0, 0, 0, 0, 0, 0, 1]);
        }

        // The requester finds in its chunks what was placed in them.
        let Ok(Received::Reply(received)) = decode_received(&message, Versions::ONE) else {
            return Err(TestCaseError::fail("not a Reply"));
        };
        let lengths = |index: usize| offered.get(index).cloned().unwrap_or_default().into_iter();
        let writes = [lengths(0), lengths(1)];
        let delivered = received.reconcile(writes, reply_chunk.into_iter()).unwrap();
        let placed_lengths = placed.results().map(|result| u64::from(result.length));
        for (delivery, length) in delivered.writes.iter().zip(placed_lengths.chain([0, 0])) {
            prop_assert_eq!(delivery.contiguous, length);
        }
        prop_assert_eq!(delivered.reply.contiguous, placed.reply_chunk_len.into());
    }
}
