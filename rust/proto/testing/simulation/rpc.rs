// SPDX-License-Identifier: GPL-2.0

//! The RPCs of a run as their upper layers know them: what is sent, what is expected, what goes
//! wrong, and how it has to end.

use super::payload::{Layout, Payload};
use super::random::Random;
use super::scenario::Scenario;
use super::shape;
use super::{Direction, Outcome};
use crate::proto::message::MessageType;

/// What is wrong with a Reply that the responder sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A returned segment is longer than it was offered.
    Length,
    /// A returned chunk lacks its last segment.
    FewerSegments,
    /// A returned chunk has one segment more than was offered.
    MoreSegments,
    /// It has a Read list.
    ReadList,
    /// It ends within the header.
    Truncated,
    /// The XIDs of the two headers differ.
    XidMismatch,
    /// It has a Reply chunk that nobody offered.
    Chunk,
    /// It has a Reply chunk without segments that nobody offered.
    EmptyChunk,
}

/// What becomes of an RPC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is served.
    Served,
    /// The responder ignores its first Call.
    FirstLost,
    /// It is answered with a Reply of a version that nobody speaks.
    OtherVersion,
    /// It is served, and its Reply comes twice.
    RepliedTwice,
    /// The Reply is larger than the upper layer has said it could be.
    LargerReply,
    /// It needs more segments than a list may have.
    NoPlan,
    /// It is answered with ERR_CHUNK.
    RefusedHeader,
    /// It is answered with ERR_VERS.
    RefusedVersion,
    /// It is answered with a bad Reply.
    Answered(Fault),
    /// The requester invalidates the memory that its Call offers as soon as it has sent it, each
    /// time.
    Invalidated,
    /// The Call has a chunk list, which a backward Call must not have.
    HasChunks,
    /// Nobody answers, or nobody is there any more who would take the answer.
    Ignored,
}

/// One RPC.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rpc {
    /// The transaction.
    pub(crate) xid: u32,
    /// Who calls whom.
    pub(crate) direction: Direction,
    /// What becomes of it.
    pub(crate) fate: Fate,
    /// The Call.
    pub(crate) call: Layout,
    /// The largest Reply, as the caller knows it.
    pub(crate) largest: Layout,
    /// The Reply.
    pub(crate) reply: Layout,
    /// Bytes of the largest region, for Call and Reply.
    pub(crate) region: (u32, u32),
    /// Whether its task was killed before it had ended.
    pub(crate) killed: bool,
    /// How often the other end has received its Call.
    pub(crate) received: u32,
    /// How often the other end's upper layer has served it.
    pub(crate) served: u32,
    /// How it has ended.
    pub(crate) outcome: Option<Outcome>,
}

impl Rpc {
    /// What an unused place of the storage holds: an RPC that has ended.
    pub(crate) const NONE: Self = Self {
        xid: 0,
        direction: Direction::Forward,
        fate: Fate::Served,
        call: Layout::plain(0),
        largest: Layout::plain(0),
        reply: Layout::plain(0),
        region: (1, 1),
        killed: false,
        received: 0,
        served: 0,
        outcome: Some(Outcome::Answered),
    };

    /// The bytes of the Call.
    pub(crate) fn call_payload(&self) -> Payload {
        Payload {
            xid: self.xid,
            direction: self.direction,
            message_type: MessageType::Call,
            layout: self.call,
        }
    }

    /// The bytes of the Reply.
    pub(crate) fn reply_payload(&self) -> Payload {
        Payload {
            message_type: MessageType::Reply,
            layout: self.reply,
            ..self.call_payload()
        }
    }

    /// The only end that is right.
    pub(crate) fn expected(&self) -> Outcome {
        if self.killed {
            return Outcome::Killed;
        }
        match self.fate {
            Fate::Served | Fate::FirstLost | Fate::RepliedTwice => Outcome::Answered,
            Fate::LargerReply
            | Fate::OtherVersion
            | Fate::NoPlan
            | Fate::RefusedHeader
            | Fate::RefusedVersion
            | Fate::Answered(_)
            | Fate::Invalidated
            | Fate::HasChunks
            | Fate::Ignored => Outcome::Failed,
        }
    }

    /// A forward RPC with the least of everything.
    pub(crate) fn null(xid: u32) -> Self {
        Self {
            xid,
            call: Layout::plain(40),
            largest: Layout::plain(24),
            reply: Layout::plain(24),
            outcome: None,
            ..Self::NONE
        }
    }

    /// A forward RPC of the connections that `scenario` describes.
    pub(crate) fn forward(random: &mut Random<'_>, scenario: &Scenario, xid: u32) -> Self {
        let fate = forward_fate(random, scenario);
        let segments = scenario.max_segments;
        let mut call = shape::call(random, scenario);
        let mut largest = shape::largest_reply(random, scenario);
        let mut reply = shape::reply(random, &largest);
        let mut region = (
            shape::region(random, &call, segments),
            shape::region(random, &largest, segments),
        );
        match fate {
            Fate::NoPlan => {
                let (unplanned, length) = shape::unplanned(segments);
                if random.one_in(2) {
                    (call, region.0) = (unplanned, length);
                } else {
                    (largest, region.1) = (unplanned, length);
                }
            }
            Fate::LargerReply => reply = shape::larger_reply(random, &largest),
            Fate::Invalidated => {
                let long = shape::long(random);
                if random.one_in(2) {
                    (call, region.0) = (long, shape::region(random, &long, segments));
                } else {
                    (largest, reply) = (long, long);
                    region.1 = shape::region(random, &long, segments);
                }
            }
            _ => {}
        }
        Self {
            fate,
            call,
            largest,
            reply,
            region,
            ..Self::null(xid)
        }
    }

    /// A backward RPC.
    pub(crate) fn backward(random: &mut Random<'_>, scenario: &Scenario, xid: u32) -> Self {
        let fate = if !scenario.serves {
            Fate::Ignored
        } else if scenario.faults && random.one_in(4) {
            random.pick(Fate::HasChunks, &[Fate::Ignored])
        } else {
            Fate::Served
        };
        let most = match fate {
            // Room for the chunk.
            Fate::HasChunks => scenario.requester_threshold() - 24,
            _ => scenario.requester_threshold(),
        };
        let reply = shape::inline(random, scenario.responder_threshold());
        Self {
            direction: Direction::Backward,
            fate,
            call: shape::inline(random, most),
            largest: reply,
            reply,
            ..Self::null(xid)
        }
    }
}

fn forward_fate(random: &mut Random<'_>, scenario: &Scenario) -> Fate {
    if !scenario.faults || !random.one_in(3) {
        return match random.below(40) {
            0 => Fate::FirstLost,
            1 => Fate::NoPlan,
            2 => Fate::Invalidated,
            _ => Fate::Served,
        };
    }
    match random.below(9) {
        0 => Fate::LargerReply,
        1 => Fate::RefusedHeader,
        2 => Fate::RefusedVersion,
        3 => Fate::OtherVersion,
        4 => Fate::RepliedTwice,
        _ => Fate::Answered(random.pick(
            Fault::Length,
            &[
                Fault::FewerSegments,
                Fault::MoreSegments,
                Fault::ReadList,
                Fault::Truncated,
                Fault::XidMismatch,
                Fault::Chunk,
                Fault::EmptyChunk,
            ],
        )),
    }
}
