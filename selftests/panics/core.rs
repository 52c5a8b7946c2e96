// SPDX-License-Identifier: GPL-2.0

//! The protocol core alone, as `scripts/check-panics.sh` compiles it.

#[path = "../../rust/proto/mod.rs"]
mod proto;

use proto::requester::decode::ReceivedReply;
use proto::requester::plan::{plan, Plan, PlanError, PlanLimits, RpcShape};
use proto::requester::reconcile::{Delivered, Mismatch};
use proto::responder::call::{CallIndex, ReceivedCall};
use proto::responder::placement::{Placement, ReplyTooLarge};
use proto::responder::unanswerable::UnanswerableCalls;
use proto::testing::requester::plan_general::{plan_general, GeneralPlan, Piece, Reduction};
use proto::wire::header::{Credits, Xid};
use proto::wire::private_data::Thresholds;

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

/// The same for a responder.
pub fn responder_instances(
    buffer: &mut [u8],
    call: &ReceivedCall<'_>,
    lengths: [u32; 2],
) -> Result<usize, ReplyTooLarge> {
    let placement = Placement::new();
    let plan = placement.finish(call, lengths[0], lengths[1])?;
    let mut written = 0;
    plan.for_each_rdma_write(call, |at, segment| {
        written = at;
        match segment.length < at {
            true => Ok(()),
            false => Err(ReplyTooLarge),
        }
    })?;
    let header = plan.encode(buffer, call, Credits::new(written));
    header.map_err(|_| ReplyTooLarge)
}

/// The same for what it remembers.
pub fn memory_instances(calls: &mut UnanswerableCalls<u64, 4>, xid: Xid, now: u64) -> bool {
    calls.record(1, xid, now);
    let is_refused = calls.is_refused(1, xid, now);
    calls.forget(1, xid);
    is_refused && calls.is_empty()
}

/// The same for a new memory.
pub fn new_memory() -> UnanswerableCalls<u64, 4> {
    UnanswerableCalls::new(1)
}
