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

impl Segments for Parts {
    fn pages(&self) -> u32 {
        self.pages
    }

    fn all(&self) -> u64 {
        self.total()
    }
}

/// One direction of an RPC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Side<S = Parts> {
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
pub(crate) struct RpcShape<S = Parts> {
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
    /// Bytes of the transport header.
    pub(crate) header_len: u32,
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
    let narrow = |bytes: u64| u32::try_from(bytes).map_err(|_| PlanError::CallTooLarge);
    Ok(Plan {
        call,
        reply,
        reads,
        results,
        header_len: narrow(header_len(reads, write, chunk))?,
        inline_len: narrow(inline)?,
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

#[cfg(any(test, rpcrdma_kunit))]
#[cfg_attr(rpcrdma_kunit, kernel::macros::kunit_tests(rpcrdma_proto_plan))]
mod tests {
    use super::*;
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
    fn side(len: Parts, pages_eligible: bool) -> Side {
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
            header_len,
            inline_len,
        })
    }

    fn offered(reply: ReplyForm, header_len: u32) -> Result<Plan, PlanError> {
        Ok(Plan {
            call: CallForm::Inline,
            reply,
            reads: 0,
            results: (header_len - 28) / 16,
            header_len,
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
        let form = |head| plan(&shape(head), &LIMITS).map(|plan| (plan.call, plan.header_len));
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
