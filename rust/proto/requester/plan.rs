// SPDX-License-Identifier: GPL-2.0

//! Which chunks one RPC needs: a pure choice from sizes and limits (RFC 8166 sections 3.4, 3.5).
//!
//! One Read chunk, one Write chunk or one Reply chunk is used for what does not fit inline. A Call
//! and its Reply are each planned in the cheapest form that fits:
//!
//! - inline, if the whole RPC message fits the Send;
//! - with the pages in a chunk, if they are eligible for direct placement and the rest fits;
//! - as a whole in a chunk.
//!
//! XDR round-up is never moved by RDMA. The pages of a Call go without their pad bytes, which are
//! also left out of the inline part, and the responder supplies them. A Write chunk is as long as
//! the pages and has no segment for pad bytes, as a responder writes none
//! (RFC 8166 sections 3.4.5 and 3.4.6).

use crate::proto::wire::chunk::MIN_POSITION;
use crate::proto::wire::header::{Procedure, MIN_HEADER_LEN};

/// A number for each part of an RPC message as the kernel keeps it (`struct xdr_buf`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Parts {
    /// The first part, which starts with the RPC header.
    pub(crate) head: u32,
    /// The bulk data between the two other parts.
    pub(crate) pages: u32,
    /// What follows the bulk data, its pad bytes first.
    pub(crate) tail: u32,
}

impl Parts {
    /// The sum of the three.
    pub(crate) fn total(&self) -> u64 {
        u64::from(self.head) + u64::from(self.pages) + u64::from(self.tail)
    }
}

/// How many segments registering a message would need, asked for only if it does not fit inline.
pub(crate) trait Segments {
    /// Those of the pages.
    fn pages(&self) -> u32;

    /// Those of all parts.
    fn all(&self) -> u64;
}

/// One direction of an RPC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Side<S> {
    /// Bytes of each part: of the message for the Call, of the largest message for the Reply.
    pub(crate) len: Parts,
    /// Segments that registering it would need.
    pub(crate) segments: S,
    /// Whether the pages are one item that the upper layer binding lets be placed directly
    /// (RFC 8166 section 6.1). Never so with RPCSEC_GSS integrity or privacy.
    pub(crate) pages_eligible: bool,
}

/// What is known of an RPC before its Call is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RpcShape<S> {
    /// The Call.
    pub(crate) call: Side<S>,
    /// The Reply.
    pub(crate) reply: Side<S>,
}

/// What the connection and the transport allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlanLimits {
    /// The largest message to send, in bytes.
    pub(crate) inline_send: u32,
    /// The largest message to receive, in bytes.
    pub(crate) inline_receive: u32,
    /// The most segments of one list.
    pub(crate) max_segments: u32,
}

/// How the Call travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallForm {
    /// The whole RPC message is sent inline.
    Inline,
    /// The pages are a Read chunk; head and the rest of the tail are sent inline.
    ReadChunk {
        /// The Position of the chunk, in bytes.
        position: u32,
        /// Pad bytes of the pages at the start of the tail that are not sent, 0 to 3.
        tail_skip: u32,
    },
    /// The whole RPC message is the Position Zero chunk, and nothing follows the header.
    PositionZero,
}

/// How the Reply may travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplyForm {
    /// Inline, whatever its size will be.
    Inline,
    /// The pages are offered as a Write chunk; the rest comes inline.
    WriteChunk,
    /// Head, pages and tail are offered as the Reply chunk.
    ReplyChunk,
}

/// How one RPC travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// The Call.
    pub(crate) call: CallForm,
    /// The Reply.
    pub(crate) reply: ReplyForm,
    /// Segments of the Read list.
    pub(crate) reads: u32,
    /// Segments of the Write chunk or Reply chunk.
    pub(crate) results: u32,
    /// Bytes of the RPC message that follow the header in the same Send.
    pub(crate) inline_len: u32,
}

impl Plan {
    /// Whether the Call offers no memory.
    pub(crate) fn is_inline(&self) -> bool {
        self.call == CallForm::Inline && self.reply == ReplyForm::Inline
    }

    /// The procedure of the Call.
    pub(crate) fn procedure(&self) -> Procedure {
        match self.call {
            CallForm::Inline | CallForm::ReadChunk { .. } => Procedure::Msg,
            CallForm::PositionZero => Procedure::Nomsg,
        }
    }
}

/// Why an RPC cannot be sent on this connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PlanError {
    /// The Call fits neither inline nor into the segments of one list.
    CallTooLarge,
    /// The largest Reply fits neither inline nor into the segments of one list.
    ReplyTooLarge,
}

/// Chooses the chunks of an RPC.
///
/// # Errors
///
/// [`PlanError`] if a message fits in no form.
pub(crate) fn plan(
    shape: &RpcShape<impl Segments>,
    limits: &PlanLimits,
) -> Result<Plan, PlanError> {
    let (reply, results) = plan_reply(&shape.reply, limits)?;
    let (write, chunk) = match reply {
        ReplyForm::Inline => (None, None),
        ReplyForm::WriteChunk => (Some(results), None),
        ReplyForm::ReplyChunk => (None, Some(results)),
    };
    let (call, reads, inline) =
        plan_call(&shape.call, limits, |reads| header_len(reads, write, chunk))?;
    Ok(Plan {
        call,
        reply,
        reads,
        results,
        inline_len: u32::try_from(inline).map_err(|_| PlanError::CallTooLarge)?,
    })
}

/// Chooses the form of the Reply and returns it with the segments of its chunk.
///
/// The header of the Reply repeats the chunk, so it is part of what must fit.
fn plan_reply(
    side: &Side<impl Segments>,
    limits: &PlanLimits,
) -> Result<(ReplyForm, u32), PlanError> {
    let threshold = u64::from(limits.inline_receive);
    let fits = |header: u64, inline: u64| header + inline <= threshold;

    if fits(header_len(0, None, None), side.len.total()) {
        return Ok((ReplyForm::Inline, 0));
    }
    if let Some((segments, rest)) = reducible(side, limits) {
        if fits(header_len(0, Some(segments), None), rest) {
            return Ok((ReplyForm::WriteChunk, segments));
        }
    }
    match list_of(side.segments.all(), limits) {
        Some(segments) if fits(header_len(0, None, Some(segments)), 0) => {
            Ok((ReplyForm::ReplyChunk, segments))
        }
        _ => Err(PlanError::ReplyTooLarge),
    }
}

/// Chooses the form of the Call and returns it with its Read segments and its inline bytes.
///
/// `header` gives the length of the header for a number of Read segments.
fn plan_call(
    side: &Side<impl Segments>,
    limits: &PlanLimits,
    header: impl Fn(u32) -> u64,
) -> Result<(CallForm, u32, u64), PlanError> {
    let threshold = u64::from(limits.inline_send);
    let fits = |reads: u32, inline: u64| header(reads) + inline <= threshold;

    let whole = side.len.total();
    if fits(0, whole) {
        return Ok((CallForm::Inline, 0, whole));
    }
    // A Position is a multiple of four, and not in the RPC header.
    if side.len.head >= MIN_POSITION && side.len.head & 3 == 0 {
        if let Some((segments, rest)) = reducible(side, limits) {
            let tail_skip = (side.len.pages.wrapping_neg() & 3).min(side.len.tail);
            let rest = rest - u64::from(tail_skip);
            if fits(segments, rest) {
                let form = CallForm::ReadChunk {
                    position: side.len.head,
                    tail_skip,
                };
                return Ok((form, segments, rest));
            }
        }
    }
    match list_of(side.segments.all(), limits) {
        // A chunk is no longer than a 32-bit count can say.
        Some(segments) if whole <= u64::from(u32::MAX) && fits(segments, 0) => {
            Ok((CallForm::PositionZero, segments, 0))
        }
        _ => Err(PlanError::CallTooLarge),
    }
}

/// The segments of the pages and the bytes of the other parts, if the pages may be a chunk.
fn reducible(side: &Side<impl Segments>, limits: &PlanLimits) -> Option<(u32, u64)> {
    if !side.pages_eligible {
        return None;
    }
    let segments = list_of(u64::from(side.segments.pages()), limits)?;
    let rest = u64::from(side.len.head) + u64::from(side.len.tail);
    Some((segments, rest))
}

/// `segments`, if one list may have that many; a chunk has one at least.
pub(crate) fn list_of(segments: u64, limits: &PlanLimits) -> Option<u32> {
    let segments = u32::try_from(segments).ok()?;
    (1..=limits.max_segments)
        .contains(&segments)
        .then_some(segments)
}

/// Exact length in bytes of an RDMA_MSG or RDMA_NOMSG header with these numbers of segments.
///
/// `reads` counts the segments of the Read list, each item of `writes` those of one Write chunk,
/// `reply` those of the Reply chunk.
pub(crate) fn header_len(
    reads: u32,
    writes: impl IntoIterator<Item = u32>,
    reply: Option<u32>,
) -> u64 {
    let chunk = |segments: u32| 4 + 16 * u64::from(segments);
    // Each Read segment and each Write chunk has a flag.
    let reads = 24 * u64::from(reads);
    let writes: u64 = writes.into_iter().map(|segments| 4 + chunk(segments)).sum();
    u64::from(MIN_HEADER_LEN) + reads + writes + reply.map_or(0, chunk)
}
