// SPDX-License-Identifier: GPL-2.0

//! The protocol core alone, as `scripts/check-panics.sh` compiles it.

#[path = "../../rust/proto/mod.rs"]
mod proto;

use proto::requester::decode::ReceivedReply;
use proto::requester::plan::{plan, Plan, PlanError, PlanLimits, RpcShape};
use proto::requester::reconcile::{Delivered, Mismatch};
use proto::testing::requester::plan_general::{plan_general, GeneralPlan, Piece, Reduction};
use proto::testing::responder::decode::ReceivedCall;
use proto::testing::responder::encode::encode_reply;
use proto::testing::responder::placement::{Placement, ReplyPart, ReplyTooLarge};
use proto::wire::chunk::{Chunk, Segment};
use proto::wire::header::FixedHeader;
use proto::wire::xdr::NoSpace;

/// Instantiates the generic functions that the core does not call itself.
pub fn instances(reply: &ReceivedReply<'_>, lengths: &[u32]) -> Result<Delivered<1>, Mismatch> {
    let lengths = lengths.iter().copied();
    reply.reconcile([lengths.clone()], lengths)
}

/// The same for plans with one item.
pub fn plan_instances(shape: &RpcShape, limits: &PlanLimits) -> Result<Plan, PlanError> {
    plan(shape, limits)
}

/// The same for plans with any number of chunks.
pub fn general_plan_instances(
    call: &[Piece; 3],
    reply: &[Piece; 3],
    limits: &PlanLimits,
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
    call: &ReceivedCall<'_>,
    parts: &[ReplyPart; 3],
    threshold: u32,
) -> Result<Placement<3>, ReplyTooLarge> {
    let placement = call.place_reply(parts, threshold)?;
    placement.procedure();
    placement.write_len(0);
    Ok(placement)
}
