// SPDX-License-Identifier: GPL-2.0

//! The RPCs of a run as their upper layers know them: what is sent, what is expected, what goes
//! wrong, and how it has to end.

use super::super::message::MessageType;
use super::super::plan::{Parts, RpcShape, Side};
use super::random::Random;
use super::scenario::Scenario;
use super::stream::{round_up, Stream};
use super::Direction;

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
    /// Its first Reply is of a version that nobody speaks.
    FirstOfOtherVersion,
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
    /// The Call has a chunk list, which a backward Call must not have.
    HasChunks,
    /// The requester's upper layer does not answer.
    Ignored,
}

/// How an RPC has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// With a Reply, all of whose bytes are right.
    Answered,
    /// With an error.
    Failed,
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
    /// Bytes of the Call.
    pub(crate) call: Parts,
    /// Bytes of the largest Reply, as the caller knows them.
    pub(crate) largest: Parts,
    /// Bytes of the Reply.
    pub(crate) reply: Parts,
    /// Whether the pages of Call and Reply may be placed directly.
    pub(crate) eligible: (bool, bool),
    /// Bytes of the largest region, for Call and Reply.
    pub(crate) region: (u32, u32),
    /// How often the other end has received its Call.
    pub(crate) received: u32,
    /// How often the other end's upper layer has served it.
    pub(crate) served: u32,
    /// How often the other end has replied.
    pub(crate) replied: u32,
    /// How it has ended.
    pub(crate) outcome: Option<Outcome>,
}

/// Regions for each part.
fn regions(len: Parts, region: u32) -> Parts {
    let count = |length: u32| length.div_ceil(region.max(1));
    Parts {
        head: count(len.head),
        pages: count(len.pages),
        tail: count(len.tail),
    }
}

impl Rpc {
    /// What an unused place of the storage holds.
    pub(crate) const NONE: Self = Self {
        xid: 0,
        direction: Direction::Forward,
        fate: Fate::Served,
        call: EMPTY,
        largest: EMPTY,
        reply: EMPTY,
        eligible: (false, false),
        region: (1, 1),
        received: 0,
        served: 0,
        replied: 0,
        outcome: None,
    };

    /// The bytes of the Call.
    pub(crate) fn call_stream(&self) -> Stream {
        Stream {
            xid: self.xid,
            direction: self.direction,
            message_type: MessageType::Call,
            len: self.call,
        }
    }

    /// The bytes of the Reply.
    pub(crate) fn reply_stream(&self) -> Stream {
        Stream {
            message_type: MessageType::Reply,
            len: self.reply,
            ..self.call_stream()
        }
    }

    /// What the caller knows before it sends the Call.
    pub(crate) fn shape(&self) -> RpcShape {
        RpcShape {
            call: Side {
                len: self.call,
                segments: regions(self.call, self.region.0),
                pages_eligible: self.eligible.0,
            },
            reply: Side {
                len: self.largest,
                segments: regions(self.largest, self.region.1),
                pages_eligible: self.eligible.1,
            },
        }
    }

    /// The only end that is right.
    pub(crate) fn expected(&self) -> Outcome {
        match self.fate {
            Fate::Served | Fate::FirstLost | Fate::FirstOfOtherVersion | Fate::RepliedTwice => {
                Outcome::Answered
            }
            Fate::LargerReply
            | Fate::NoPlan
            | Fate::RefusedHeader
            | Fate::RefusedVersion
            | Fate::Answered(_)
            | Fate::HasChunks
            | Fate::Ignored => Outcome::Failed,
        }
    }

    /// A forward RPC of the connections that `scenario` describes.
    pub(crate) fn forward(random: &mut Random, scenario: &Scenario, xid: u32) -> Self {
        let fate = forward_fate(random, scenario);
        let (call, call_eligible) = call_parts(random, scenario.responder_threshold());
        let (largest, reply_eligible) = reply_parts(random, scenario.requester_threshold());
        let segments = scenario.max_segments;
        let mut rpc = Self {
            xid,
            direction: Direction::Forward,
            fate,
            call,
            largest,
            reply: actual(random, largest),
            eligible: (call_eligible, reply_eligible),
            region: (
                region_length(random, call, segments),
                region_length(random, largest, segments),
            ),
            ..Self::NONE
        };
        match fate {
            Fate::NoPlan => rpc.prevent_plan(random, segments),
            Fate::LargerReply => {
                // Larger than any threshold, and than the chunk that was offered.
                let excess = random.between(4096, 6000);
                let grown = if rpc.largest.pages == 0 {
                    &mut rpc.reply.head
                } else {
                    &mut rpc.reply.pages
                };
                *grown = grown.saturating_add(excess).saturating_add(4096) & !3;
                rpc.reply.tail = 0;
            }
            _ => {}
        }
        rpc
    }

    /// Makes the RPC need more segments than a list may have.
    fn prevent_plan(&mut self, random: &mut Random, segments: u32) {
        let parts = Parts {
            head: 64,
            pages: 6000,
            tail: 0,
        };
        let region = parts.pages / segments.saturating_add(2);
        if random.one_in(2) {
            (self.call, self.eligible.0, self.region.0) = (parts, false, region);
        } else {
            (self.largest, self.eligible.1, self.region.1) = (parts, false, region);
        }
    }

    /// A backward RPC.
    pub(crate) fn backward(random: &mut Random, scenario: &Scenario, xid: u32) -> Self {
        let head = |random: &mut Random, threshold: u32| {
            let most = threshold.saturating_sub(28) & !3;
            let head = match random.below(4) {
                0 => most,
                1 => most.saturating_sub(4),
                _ => random.between(40, 400) & !3,
            };
            Parts { head, ..EMPTY }
        };
        let fate = if !scenario.serves {
            Fate::Ignored
        } else if scenario.faults && random.one_in(4) {
            random.pick(Fate::HasChunks, &[Fate::Ignored])
        } else {
            Fate::Served
        };
        let mut call = head(random, scenario.requester_threshold());
        if fate == Fate::HasChunks {
            // Room for the chunk.
            call.head = call.head.min(400);
        }
        let reply = head(random, scenario.responder_threshold());
        Self {
            xid,
            direction: Direction::Backward,
            fate,
            call,
            largest: reply,
            reply,
            ..Self::NONE
        }
    }
}

/// A message without parts.
const EMPTY: Parts = Parts {
    head: 0,
    pages: 0,
    tail: 0,
};

fn forward_fate(random: &mut Random, scenario: &Scenario) -> Fate {
    if !scenario.faults || !random.one_in(3) {
        return match random.below(40) {
            0 => Fate::FirstLost,
            1 => Fate::NoPlan,
            _ => Fate::Served,
        };
    }
    match random.below(9) {
        0 => Fate::LargerReply,
        1 => Fate::RefusedHeader,
        2 => Fate::RefusedVersion,
        3 => Fate::FirstOfOtherVersion,
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

/// A number of bytes around the most that is sent inline.
fn around(random: &mut Random, threshold: u32) -> u32 {
    let room = threshold.saturating_sub(28 + 16);
    (room & !3).saturating_add(random.below(8).saturating_mul(4))
}

/// A number of bytes that hardly any threshold allows.
fn bulk(random: &mut Random) -> u32 {
    match random.below(4) {
        0 => random.between(1, 64),
        1 => random.between(900, 1100),
        _ => random.between(1, 5000),
    }
}

/// The parts of a Call, and whether its pages may be placed directly.
fn call_parts(random: &mut Random, threshold: u32) -> (Parts, bool) {
    let head = random.between(10, 40).saturating_mul(4);
    let pages = bulk(random);
    let tail = round_up(pages).saturating_add(random.below(8).saturating_mul(4));
    match random.below(6) {
        0 | 1 => (Parts { head, ..EMPTY }, false),
        2 => {
            let head = around(random, threshold);
            (Parts { head, ..EMPTY }, false)
        }
        3 => (Parts { head, pages, tail }, random.one_in(2)),
        4 => {
            let head = around(random, threshold);
            (Parts { head, pages, tail }, true)
        }
        _ => (Parts { head, pages, tail }, true),
    }
}

/// The parts of the largest Reply, and whether its pages may be placed directly.
fn reply_parts(random: &mut Random, threshold: u32) -> (Parts, bool) {
    let head = random.between(6, 40).saturating_mul(4);
    let pages = bulk(random);
    let tail = random.between(1, 8).saturating_mul(4);
    match random.below(6) {
        0 | 1 => (Parts { head, ..EMPTY }, false),
        2 => {
            let head = around(random, threshold);
            (Parts { head, ..EMPTY }, false)
        }
        3 => (Parts { head, pages, tail }, random.one_in(2)),
        4 => {
            let head = around(random, threshold);
            (Parts { head, pages, tail }, true)
        }
        _ => (Parts { head, pages, tail }, true),
    }
}

/// A Reply that is not larger than `largest`.
fn actual(random: &mut Random, largest: Parts) -> Parts {
    if random.one_in(2) && largest.pages != 0 || largest.head < 24 {
        let pages = match random.below(3) {
            0 => largest.pages,
            _ => random.between(1, largest.pages.max(1)).min(largest.pages),
        };
        let rest = largest.tail.saturating_sub(round_up(pages)) & !3;
        return Parts {
            head: largest.head,
            pages,
            tail: round_up(pages).saturating_add(rest),
        };
    }
    let head = match random.below(3) {
        0 => random.between(24, largest.head) & !3,
        _ => largest.head,
    };
    Parts { head, ..EMPTY }
}

/// A length of the regions with which no list has more than `most` of them.
fn region_length(random: &mut Random, len: Parts, most: u32) -> u32 {
    let Parts { head, pages, tail } = len;
    let total = head.saturating_add(pages).saturating_add(tail);
    // Each part may have one that is not full.
    let least = total.div_ceil(most.saturating_sub(3).max(1)).max(1);
    match random.below(3) {
        0 => least,
        1 => total.max(1),
        _ => least.max(random.between(64, 3000)),
    }
}
