// SPDX-License-Identifier: GPL-2.0

//! Plans with any number of chunks (RFC 8166 sections 3.4, 3.5 and 4.3).
//!
//! The simulation, and properties of the responder, have such a requester of another make. The
//! planner of the module, [`crate::proto::requester::plan::plan`], is for messages with one item
//! that may be placed directly. Here each of the pieces of a message may be such an item: a Call
//! can have several Read chunks, beside a Position Zero chunk or not, and the Reply several Write
//! chunks, with a Reply chunk or not.
//!
//! A responder fills Write chunks in the order of the results that have data, and a result may turn
//! out to have none. So a chunk is as large as the largest item that can end up in it: its own, or
//! one that follows.

use crate::proto::requester::plan::header_len;
use crate::proto::requester::plan::{list_of, PlanError, PlanLimits};
use crate::proto::wire::chunk::MIN_POSITION;
use crate::proto::wire::header::Procedure;

/// A stretch of an RPC message. A message is its pieces, one after the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Bytes: of the message for a Call, of the largest message for a Reply.
    pub(crate) len: u32,
    /// Segments that registering it needs.
    pub(crate) segments: u32,
    /// Whether it is one data item, without its length word and its padding, that the upper layer
    /// binding lets be placed directly (RFC 8166 section 6.1). Never so with RPCSEC_GSS integrity
    /// or privacy.
    pub(crate) eligible: bool,
}

/// When to place items directly that may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reduction {
    /// If the message would not fit inline.
    WhenNeeded,
    /// Always (RFC 8166 section 3.5.2).
    Always,
}

/// How a piece of the Call travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallPiece {
    /// Inline, without its first `skip` bytes, 0 to 3: the padding of a chunk before it.
    Inline {
        /// The bytes that are not sent.
        skip: u32,
    },
    /// As a Read chunk.
    ReadChunk {
        /// The Position of the chunk, in bytes.
        position: u32,
    },
    /// In the Position Zero chunk, without its first `skip` bytes, 0 to 3.
    PositionZero {
        /// The bytes that are not registered.
        skip: u32,
    },
}

/// How a piece of the Reply may travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplyPiece {
    /// Inline.
    Inline,
    /// In a Write chunk.
    WriteChunk {
        /// The bytes that the chunk has to have, no fewer than the piece.
        capacity: u32,
        /// The segments that registering them needs.
        segments: u32,
    },
    /// In the Reply chunk; inline if the Reply turns out to be small.
    ReplyChunk,
}

/// How one RPC travels whose Call has `C` pieces and whose Reply has `R`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GeneralPlan<const C: usize, const R: usize> {
    /// The pieces of the Call, in their order.
    pub(crate) call: [CallPiece; C],
    /// The pieces of the Reply, in their order.
    pub(crate) reply: [ReplyPiece; R],
    /// Bytes of the transport header, if registering needs the segments that the pieces say.
    pub(crate) header_len: u32,
    /// Bytes of the RPC message that follow the header in the same Send.
    pub(crate) inline_len: u32,
}

impl<const C: usize, const R: usize> GeneralPlan<C, R> {
    /// The procedure of the Call.
    pub(crate) fn procedure(&self) -> Procedure {
        let in_chunk = |piece: &CallPiece| matches!(piece, CallPiece::PositionZero { .. });
        if self.call.iter().any(in_chunk) {
            Procedure::Nomsg
        } else {
            Procedure::Msg
        }
    }
}

/// Chooses the chunks of an RPC. No list has more segments than `limits` allow.
///
/// # Errors
///
/// [`PlanError`] if a message fits in no form.
pub(crate) fn plan_general<const C: usize, const R: usize>(
    call: &[Piece; C],
    reply: &[Piece; R],
    limits: &PlanLimits,
    reduction: Reduction,
) -> Result<GeneralPlan<C, R>, PlanError> {
    let mut error = PlanError::ReplyTooLarge;
    let plans = reply_plans(reply, limits, reduction);
    for replied in plans.filter(|plan| reply_fits(reply, plan, limits)) {
        let header = |reads| {
            let chunk = reply_segments(reply, &replied);
            header_len(reads, write_segments(&replied), chunk)
        };
        // The chunks of the Reply may leave too little room for the Call.
        let Some(call) = CallPlan::new(call, limits, reduction, header) else {
            error = PlanError::CallTooLarge;
            continue;
        };
        let narrow = |bytes: u64| u32::try_from(bytes).map_err(|_| PlanError::CallTooLarge);
        return Ok(GeneralPlan {
            call: call.pieces(),
            reply: replied,
            header_len: narrow(header(call.reads()))?,
            inline_len: narrow(call.inline())?,
        });
    }
    Err(error)
}

/// The segments of each Write chunk.
fn write_segments(pieces: &[ReplyPiece]) -> impl Iterator<Item = u32> + '_ {
    pieces.iter().filter_map(|piece| match piece {
        ReplyPiece::WriteChunk { segments, .. } => Some(*segments),
        _ => None,
    })
}

/// The segments of the Reply chunk, if there is one.
fn reply_segments(pieces: &[Piece], plan: &[ReplyPiece]) -> Option<u32> {
    let in_chunk = pieces
        .iter()
        .zip(plan)
        .filter_map(|(piece, plan)| (*plan == ReplyPiece::ReplyChunk).then_some(piece.segments));
    in_chunk.fold(None, |sum, segments| {
        Some(u32::saturating_add(sum.unwrap_or(0), segments))
    })
}

/// Whether `piece` is a data item that may be placed directly.
fn is_item(piece: &Piece) -> bool {
    piece.eligible && piece.len > 0
}

/// Whether `piece` can be a chunk of its own.
fn reducible(piece: &Piece, limits: &PlanLimits) -> bool {
    is_item(piece) && list_of(u64::from(piece.segments), limits).is_some()
}

/// The plans for the Reply, the best one first, whether they fit or not.
fn reply_plans<'a, const R: usize>(
    pieces: &'a [Piece; R],
    limits: &'a PlanLimits,
    reduction: Reduction,
) -> impl Iterator<Item = [ReplyPiece; R]> + 'a {
    let inline = (reduction == Reduction::WhenNeeded).then_some([ReplyPiece::Inline; R]);
    let items = || pieces.iter().filter(|piece| is_item(piece));
    // Any item can end up in the first chunk, so all have to fit a chunk.
    let most = if items().all(|piece| reducible(piece, limits)) {
        items().fold(0, |n, _| usize::saturating_add(n, 1))
    } else {
        0
    };
    let rests = [ReplyPiece::Inline, ReplyPiece::ReplyChunk].into_iter();
    // Results that get no chunk must be the last ones, as the responder fills them in order.
    let chunks = rests.flat_map(move |rest| (0..=most).rev().map(move |count| (count, rest)));
    let plans = chunks.map(|(count, rest)| with_write_chunks(pieces, count, rest));
    inline.into_iter().chain(plans)
}

/// The plan with Write chunks for the first `count` items, and `rest` for all other pieces.
fn with_write_chunks<const R: usize>(
    pieces: &[Piece; R],
    count: usize,
    rest: ReplyPiece,
) -> [ReplyPiece; R] {
    let mut plan = [rest; R];
    let items = (0..R).zip(pieces.iter().zip(&mut plan));
    let items = items.filter(|(_, (piece, _))| is_item(piece));
    for (index, (_, form)) in items.take(count) {
        let candidates = pieces.iter().skip(index).filter(|piece| is_item(piece));
        let (capacity, segments) = candidates.fold((0, 0), |(len, segments), piece| {
            (piece.len.max(len), piece.segments.max(segments))
        });
        *form = ReplyPiece::WriteChunk { capacity, segments };
    }
    // Nothing is no reason for a chunk.
    for (piece, form) in pieces.iter().zip(&mut plan) {
        if piece.len == 0 {
            *form = ReplyPiece::Inline;
        }
    }
    plan
}

/// Whether a Reply that follows `plan` fits the Receives, and its lists the limits.
///
/// The header of the Reply repeats the chunks, so it counts into what must fit.
fn reply_fits(pieces: &[Piece], plan: &[ReplyPiece], limits: &PlanLimits) -> bool {
    let inline = pieces.iter().zip(plan).fold(0, |sum, (piece, plan)| {
        let inline = match plan {
            ReplyPiece::Inline => piece.len,
            _ => 0,
        };
        u64::saturating_add(sum, u64::from(inline))
    });
    let writes = write_segments(plan).fold(0, |sum, segments| {
        u64::saturating_add(sum, u64::from(segments))
    });
    let chunk = reply_segments(pieces, plan);
    let in_limits = |segments: u64| segments == 0 || list_of(segments, limits).is_some();
    let header = header_len(0, write_segments(plan), chunk);
    in_limits(writes)
        && chunk.is_none_or(|segments| list_of(u64::from(segments), limits).is_some())
        && header.saturating_add(inline) <= u64::from(limits.inline_receive)
}

/// A piece of a Call, and whether it is a Read chunk.
#[derive(Clone, Copy)]
struct Choice<'a> {
    piece: &'a Piece,
    reduced: bool,
}

/// The choice of Read chunks for a Call.
struct CallPlan<'a, const C: usize> {
    choices: [Choice<'a>; C],
    /// Whether the other pieces are the Position Zero chunk.
    whole: bool,
}

impl<'a, const C: usize> CallPlan<'a, C> {
    /// Chooses, if the Call fits in some form; `header` gives the length of the header for a number
    /// of Read segments.
    fn new(
        pieces: &'a [Piece; C],
        limits: &PlanLimits,
        reduction: Reduction,
        header: impl Fn(u32) -> u64,
    ) -> Option<Self> {
        let choices = pieces.each_ref().map(|piece| Choice {
            piece,
            reduced: false,
        });
        let mut plan = Self {
            choices,
            whole: false,
        };
        let room = u64::from(limits.inline_send);
        let fits = |plan: &Self| {
            plan.reads() <= limits.max_segments
                && header(plan.reads()).saturating_add(plan.inline()) <= room
        };
        loop {
            let done = reduction == Reduction::WhenNeeded && fits(&plan);
            if done || !plan.reduce_largest(limits) {
                break;
            }
        }
        if fits(&plan) {
            return Some(plan);
        }
        plan.whole = true;
        while !(fits(&plan) && plan.has_position_zero()) {
            if !plan.put_back_smallest() {
                return None;
            }
        }
        Some(plan)
    }

    /// The form of each piece.
    fn pieces(&self) -> [CallPiece; C] {
        let mut forms = self.forms();
        core::array::from_fn(|_| {
            forms
                .next()
                .map_or(CallPiece::Inline { skip: 0 }, |(_, form)| form)
        })
    }

    /// Each piece with its form.
    fn forms(&self) -> impl Iterator<Item = (&'a Piece, CallPiece)> + '_ {
        let mut offset = 0u64;
        let mut padding = 0;
        self.choices.iter().map(move |choice| {
            let piece = choice.piece;
            let position = u32::try_from(offset).unwrap_or(u32::MAX);
            offset = offset.saturating_add(u64::from(piece.len));
            if choice.reduced {
                padding = piece.len.wrapping_neg() & 3;
                return (piece, CallPiece::ReadChunk { position });
            }
            let skip = piece.len.min(padding);
            padding = padding.saturating_sub(skip);
            let form = if self.whole {
                CallPiece::PositionZero { skip }
            } else {
                CallPiece::Inline { skip }
            };
            (piece, form)
        })
    }

    /// The segments of the Read list.
    fn reads(&self) -> u32 {
        self.forms().fold(0, |sum, (piece, form)| {
            let segments = match form {
                CallPiece::Inline { .. } => 0,
                CallPiece::ReadChunk { .. } | CallPiece::PositionZero { .. } => piece.segments,
            };
            u32::saturating_add(sum, segments)
        })
    }

    /// The bytes that go inline.
    fn inline(&self) -> u64 {
        self.sum(|form| match form {
            CallPiece::Inline { skip } => Some(skip),
            _ => None,
        })
    }

    /// Whether the Position Zero chunk has bytes, no more than a 32-bit count can say, and a
    /// segment.
    fn has_position_zero(&self) -> bool {
        let bytes = self.sum(|form| match form {
            CallPiece::PositionZero { skip } => Some(skip),
            _ => None,
        });
        let segments = u64::from(self.reads()).saturating_sub(self.chunk_segments());
        (1..=u64::from(u32::MAX)).contains(&bytes) && segments > 0
    }

    /// The bytes of all pieces for whose form `skip` gives a number, less that number each.
    fn sum(&self, skip: impl Fn(CallPiece) -> Option<u32>) -> u64 {
        self.forms().fold(0, |sum, (piece, form)| {
            let bytes = skip(form).map_or(0, |skip| piece.len.saturating_sub(skip));
            u64::saturating_add(sum, u64::from(bytes))
        })
    }

    /// Makes the longest piece that can be one a Read chunk; whether there is such a piece.
    fn reduce_largest(&mut self, limits: &PlanLimits) -> bool {
        let reads = self.chunk_segments();
        let mut best: Option<(usize, u32)> = None;
        let mut offset = 0u64;
        for (index, &Choice { piece, reduced }) in (0..C).zip(&self.choices) {
            let position = offset;
            offset = offset.saturating_add(u64::from(piece.len));
            let segments = reads.saturating_add(u64::from(piece.segments));
            if reducible(piece, limits)
                && !reduced
                && position >= u64::from(MIN_POSITION)
                && position & 3 == 0
                && u32::try_from(position).is_ok()
                && list_of(segments, limits).is_some()
                && !self.is_beside_odd(index, piece)
                && best.is_none_or(|(_, len)| piece.len > len)
            {
                best = Some((index, piece.len));
            }
        }
        self.set(best.map(|(index, _)| index), true)
    }

    /// Notes whether the piece at `index` is a Read chunk; whether there is such a piece.
    fn set(&mut self, index: Option<usize>, reduced: bool) -> bool {
        let choice = index.and_then(|index| self.choices.get_mut(index));
        choice.map(|choice| choice.reduced = reduced).is_some()
    }

    /// The segments of the chunks that were chosen, without those of a Position Zero chunk.
    fn chunk_segments(&self) -> u64 {
        let chosen = self.choices.iter().filter(|choice| choice.reduced);
        chosen.fold(0, |sum, choice| {
            u64::saturating_add(sum, u64::from(choice.piece.segments))
        })
    }

    /// Whether a chunk at `index` would be behind another one whose length is not a multiple of
    /// four, or would be such a one itself. There are responders that take the round-up of the one
    /// into account for the Position of the other, and some that do not.
    fn is_beside_odd(&self, index: usize, piece: &Piece) -> bool {
        let mut chosen = (0..C)
            .zip(&self.choices)
            .filter(|(_, choice)| choice.reduced);
        chosen.any(|(other, choice)| {
            let first = if other < index { choice.piece } else { piece };
            first.len & 3 != 0
        })
    }

    /// Undoes the choice of the shortest Read chunk; whether there is one.
    fn put_back_smallest(&mut self) -> bool {
        let mut best: Option<(usize, u32)> = None;
        for (index, choice) in (0..C).zip(&self.choices) {
            let len = choice.piece.len;
            if choice.reduced && best.is_none_or(|(_, shortest)| len < shortest) {
                best = Some((index, len));
            }
        }
        self.set(best.map(|(index, _)| index), false)
    }
}
