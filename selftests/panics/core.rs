// SPDX-License-Identifier: GPL-2.0

//! The protocol core alone, as `scripts/check-panics.sh` compiles it.

#[path = "../../rust/proto/mod.rs"]
mod proto;

use proto::requester::decode::ReceivedReply;
use proto::requester::reconcile::{Delivered, Mismatch};
use proto::responder::call::ReceivedCall;
use proto::responder::placement::{Placement, ReplyTooLarge};
use proto::wire::header::Credits;

/// Instantiates the generic functions that the core does not call itself.
pub fn instances(reply: &ReceivedReply<'_>, lengths: &[u32]) -> Result<Delivered<1>, Mismatch> {
    let lengths = lengths.iter().copied();
    reply.reconcile([lengths.clone()], lengths)
}

/// The same for a responder.
pub fn responder_instances(
    buffer: &mut [u8],
    call: &ReceivedCall<'_>,
    lengths: [u32; 2],
) -> Result<usize, ReplyTooLarge> {
    let placement = Placement::default();
    let plan = placement.finish(call, lengths[0], lengths[1])?;
    let mut written = 0;
    for (at, segment) in plan.rdma_writes(call) {
        written = at.max(segment.length);
    }
    let header = plan.encode(buffer, call, Credits::new(written));
    header.map_err(|_| ReplyTooLarge)
}

/// The same for iterators.
pub fn iterator_instances(call: &ReceivedCall<'_>) -> u32 {
    let mut most = 0;
    for (piece, (at, segment)) in call.stream().zip(call.reads()) {
        most = most.max(piece.length).max(at).max(segment.length);
    }
    most
}
