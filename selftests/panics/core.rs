// SPDX-License-Identifier: GPL-2.0

//! The protocol core alone, as `scripts/check-panics.sh` compiles it.

#[path = "../../rust/proto/mod.rs"]
mod proto;

use proto::call::Call;
use proto::chunk::{Chunk, Segment};
use proto::cursor::NoSpace;
use proto::header::FixedHeader;
use proto::placement::{Placement, ReplyPart, ReplyTooLarge};
use proto::plan::{plan, Limits, Plan, PlanError, RpcShape};
use proto::plan_general::{plan_general, GeneralPlan, Piece, Reduction};
use proto::reply::{encode_reply, Delivered, Mismatch, Reply};

/// Instantiates the generic functions that the core does not call itself.
pub fn instances(reply: &Reply<'_>, lengths: &[u32]) -> Result<Delivered<1>, Mismatch> {
    let lengths = lengths.iter().copied();
    reply.reconcile([lengths.clone()], lengths)
}

/// The same for plans with one item.
pub fn plan_instances(shape: &RpcShape, limits: &Limits) -> Result<Plan, PlanError> {
    plan(shape, limits)
}

/// The same for plans with any number of chunks.
pub fn general_plan_instances(
    call: &[Piece; 3],
    reply: &[Piece; 3],
    limits: &Limits,
    reduction: Reduction,
) -> Result<GeneralPlan<3, 3>, PlanError> {
    let plan = plan_general(call, reply, limits, reduction)?;
    plan.procedure();
    Ok(plan)
}

/// The same for those of a responder.
pub fn responder_instances(
    buffer: &mut [u8],
    fixed: &FixedHeader,
    chunk: &Chunk<'_>,
    segments: &[Segment],
) -> Result<usize, NoSpace> {
    let writes = [chunk.filled(1)];
    encode_reply(buffer, fixed, writes, Some(segments.iter().copied()))
}

/// The same for the parts of a Reply.
pub fn placement_instances(
    call: &Call<'_>,
    parts: &[ReplyPart; 3],
    threshold: u32,
) -> Result<Placement<3>, ReplyTooLarge> {
    let placement = call.place_reply(parts, threshold)?;
    placement.procedure();
    placement.write_len(0);
    Ok(placement)
}
