// SPDX-License-Identifier: GPL-2.0

//! Two endpoints that talk to each other on virtual time, as a seed decides.
//!
//! A requester and a responder exchange forward and backward RPCs (RFC 8166, RFC 8167) over a
//! fabric that loses connections, delays what it carries, and checks what both do. All protocol
//! decisions are those of the core; the endpoints here only carry them out, as a transport does.
//!
//! In every run
//!
//! - each RPC ends exactly once, with all bytes of its Reply right, or with the error that its fate
//!   makes unavoidable ([`rpc::Fate`]);
//! - no more Calls are outstanding at their receiver than it has granted, also where tasks are
//!   killed, no Send finds its peer without a Receive, no message is larger than its threshold;
//! - the responder reaches registered memory only, and no RPC ends while it still could;
//! - a Call is served once for each incarnation of the responder, which keeps a duplicate request
//!   cache; the requester serves backward Calls at least once;
//! - a Call whose chunks name no memory costs some connections, and then fails;
//! - nothing stays registered, nothing stays taken, and nothing stays undone.
//!
//! | file | subject |
//! |---|---|
//! | [`scenario`], [`rpc`], [`shape`] | what a seed decides: the peers, each RPC and its fate |
//! | [`queue`], [`random`] | virtual time, and the numbers of a seed |
//! | [`fabric`], [`memory`], [`message`], [`private_bytes`] | the connection, regions, Sends |
//! | [`world`], [`payload`] | the upper layers, whose messages have known bytes |
//! | [`requester`], [`connecting`], [`killed`], [`callbacks`] | the end that connects |
//! | [`plan_general`] | its plans, with any number of chunks (RFC 8166 sections 3.3 to 3.5) |
//! | [`form`], [`offer`], [`transmit`], [`check`] | its Calls, and their Replies |
//! | [`responder`], [`job`], [`service`], [`answer`], [`backward`] | the end that listens |
//! | [`faults`] | what it sends although it must not |
//! | [`run`], [`history`] | one run, and what happened |

pub(crate) mod answer;
pub(crate) mod backward;
pub(crate) mod callbacks;
pub(crate) mod check;
pub(crate) mod connecting;
pub(crate) mod fabric;
pub(crate) mod faults;
pub(crate) mod form;
pub(crate) mod history;
pub(crate) mod job;
pub(crate) mod killed;
pub(crate) mod memory;
pub(crate) mod message;
pub(crate) mod offer;
pub(crate) mod payload;
pub(crate) mod plan_general;
pub(crate) mod private_bytes;
pub(crate) mod queue;
pub(crate) mod random;
pub(crate) mod requester;
pub(crate) mod responder;
pub(crate) mod rpc;
pub(crate) mod run;
pub(crate) mod scenario;
pub(crate) mod service;
pub(crate) mod shape;
pub(crate) mod transmit;
pub(crate) mod world;

use crate::proto::responder::refusal::CallError;

/// The most forward RPCs of a run, but for the one that only has to be there.
pub(crate) const FORWARD_RPCS: usize = 12;

/// The most backward RPCs of a run.
pub(crate) const BACKWARD_RPCS: usize = 6;

/// The most RPCs of a run.
pub(crate) const RPCS: usize = 1 + FORWARD_RPCS + BACKWARD_RPCS;

/// Bytes of all buffers: two for each forward RPC.
pub(crate) const MEMORY: usize = (1 + FORWARD_RPCS) * 2 * BUFFER_LEN;

/// Regions of all forward RPCs.
pub(crate) const REGIONS: usize = (1 + FORWARD_RPCS) * REGIONS_PER_RPC;

/// The most regions of one RPC: three lists of [`scenario::Scenario::max_segments`].
pub(crate) const REGIONS_PER_RPC: usize = 48;

/// Bytes of each of the two buffers of an RPC.
pub(crate) const BUFFER_LEN: usize = 12 * 1024;

/// Bytes of the largest message.
pub(crate) const MESSAGE_LEN: usize = 4096;

/// Messages that exist at the same time.
pub(crate) const MESSAGES: usize = 64;

/// Events that are in the future at the same time.
pub(crate) const EVENTS: usize = 1024;

/// Steps that a failing run shows.
pub(crate) const STEPS: usize = 64;

/// One end of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The end that connects, and makes forward Calls.
    Requester,
    /// The end that listens, and makes backward Calls.
    Responder,
}

/// The direction of a Call (RFC 8167 section 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// From the requester to the responder.
    Forward,
    /// From the responder to the requester.
    Backward,
}

/// How an RPC has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// With a Reply, all of whose bytes are right.
    Answered,
    /// With an error.
    Failed,
    /// Without either, because its task was killed.
    Killed,
}

/// Why a run has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The simulation itself ran out of places.
    Storage,
    /// An encoder refused a message that fits.
    NoSpace,
    /// A header is not as long as its plan says.
    HeaderLength,
    /// A message to this end, of so many bytes, is larger than the threshold.
    Threshold(End, u32),
    /// A Send to this end found no Receive.
    NoReceive(End),
    /// A message to this end was larger than the Receive.
    ReceiveSize(End),
    /// A Call was sent beyond the credits of its direction.
    Credits(Direction),
    /// The receiver of a Call finds it beyond the credits.
    Excess(Direction),
    /// The responder grants more than was asked for.
    Grant(u32),
    /// A state machine for versions asks for what does not follow from its event.
    Negotiation,
    /// A Call is to be sent without a connection.
    NotConnected,
    /// This Call arrived twice on one connection.
    SentTwice(usize),
    /// The responder named memory that it may not reach.
    NotRegistered(u32),
    /// Send With Invalidate to a requester that does not expect it.
    NotNegotiated,
    /// An RPC ended while its peer could still reach its memory.
    Fence {
        /// The RPC.
        rpc: usize,
        /// The handle.
        handle: u32,
    },
    /// The Call of this RPC arrived with other bytes.
    CallBytes(usize),
    /// The Reply to this RPC arrived with other bytes.
    ReplyBytes(usize),
    /// A good message was refused.
    Refused(CallError),
    /// This RPC ended twice.
    EndedTwice(usize),
    /// This RPC was served twice.
    ServedTwice(usize),
    /// This RPC was answered, and nobody has served it.
    NotServed(usize),
    /// This RPC ended in another way than it had to.
    Outcome(usize, Outcome),
    /// Nothing will happen any more, and so many RPCs have not ended.
    Deadlock(usize),
    /// Events go on for ever.
    Endless,
    /// A region was not released.
    Leak,
    /// A message was not released.
    MessageLeak,
}
