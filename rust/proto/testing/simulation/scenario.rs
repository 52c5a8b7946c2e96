// SPDX-License-Identifier: GPL-2.0

//! What the seed decides before anything happens.

use super::payload::{index, short};
use super::random::Random;
use crate::proto::testing::simulation::plan_general::Reduction;
use crate::proto::wire::header::Versions;
use crate::proto::wire::header::VERSION_TWO;
use crate::proto::wire::private_data::{InlineSize, PrivateData};

/// What one end is like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    /// What it says about itself, `None` for one that knows nothing of private messages.
    pub(crate) private_data: Option<PrivateData>,
    /// The most that it receives, and the most that it sends, in bytes.
    pub(crate) sizes: (u32, u32),
    /// The versions that it supports.
    pub(crate) versions: Versions,
    /// The most credits that it grants, at least 1.
    pub(crate) grants: u32,
    /// Credits that its own Calls ask for.
    pub(crate) requests: u32,
}

impl Peer {
    fn new(random: &mut Random<'_>) -> Self {
        let size = |random: &mut Random<'_>| random.between(1, 4) * 1024;
        let sizes = (size(random), size(random));
        let inline = |bytes| InlineSize::from_bytes(bytes).unwrap_or(InlineSize::DEFAULT);
        let private_data = PrivateData {
            receive: inline(sizes.0),
            send: inline(sizes.1),
            remote_invalidation: !random.one_in(4),
        };
        Self {
            private_data: (!random.one_in(6)).then_some(private_data),
            sizes,
            versions: random.pick(Versions::ONE, &[Versions::ONE_AND_TWO]),
            grants: random.pick(1, &[2, 3, 8]),
            requests: random.pick(1, &[2, 4, 8]),
        }
    }

    /// The size of its Receives, which are large enough for every version.
    pub(crate) fn receive_size(&self) -> u32 {
        if self.versions.contains(VERSION_TWO) {
            self.sizes.0.max(4096)
        } else {
            self.sizes.0
        }
    }
}

/// What a run is like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scenario {
    /// The end that connects.
    pub(crate) requester: Peer,
    /// The end that listens.
    pub(crate) responder: Peer,
    /// Whether the responder's private message does not reach the requester.
    pub(crate) answer_lost: bool,
    /// The most segments of one list.
    pub(crate) max_segments: u32,
    /// Whether messages have any number of items, and plans of any number of chunks.
    pub(crate) general: bool,
    /// When such plans place items directly.
    pub(crate) reduction: Reduction,
    /// Forward RPCs.
    pub(crate) forward: usize,
    /// Backward RPCs.
    pub(crate) backward: usize,
    /// Whether grants change all the time.
    pub(crate) unsteady: bool,
    /// Whether the responder sends what it must not.
    pub(crate) faults: bool,
    /// Whether tasks of the requester are killed.
    pub(crate) kills: bool,
    /// Whether the requester serves backward Calls.
    pub(crate) serves: bool,
    /// The longest way of a message, in units of virtual time.
    pub(crate) delay: u32,
    /// The longest that serving a Call takes.
    pub(crate) service: u32,
    /// After which numbers of events the connection is lost.
    pub(crate) losses: [u32; 3],
    /// After which number of events the responder restarts.
    pub(crate) restart: u32,
}

/// After more events than any run has.
const NEVER: u32 = u32::MAX;

impl Scenario {
    /// What `random` decides, for at most so many RPCs of each direction.
    pub(crate) fn new(random: &mut Random<'_>, forward: usize, backward: usize) -> Self {
        let mut losses = [NEVER; 3];
        for loss in &mut losses {
            // Many of them while the first connection is made, and its first Calls are under way.
            *loss = match random.below(6) {
                0 => random.below(24),
                1 => random.below(100),
                2 => random.below(300),
                _ => NEVER,
            };
        }
        let few = |random: &mut Random<'_>, most| index(random.between(1, short(most)));
        Self {
            requester: Peer::new(random),
            responder: Peer::new(random),
            answer_lost: random.one_in(12),
            max_segments: random.between(6, 16),
            general: random.one_in(2),
            reduction: random.pick(Reduction::WhenNeeded, &[Reduction::Always]),
            forward: few(random, forward),
            backward: match random.below(3) {
                0 => 0,
                _ => few(random, backward),
            },
            unsteady: random.one_in(2),
            faults: random.one_in(3),
            kills: random.one_in(3),
            serves: !random.one_in(8),
            delay: random.pick(1, &[20, 200, 2000]),
            service: random.pick(1, &[100, 5_000, 300_000]),
            losses,
            restart: match random.below(5) {
                0 => random.below(150),
                _ => NEVER,
            },
        }
    }

    /// What the requester reads of the responder's private message.
    pub(crate) fn seen_by_requester(&self) -> Option<PrivateData> {
        self.requester.private_data?;
        let lost = self.answer_lost;
        self.responder.private_data.filter(|_| !lost)
    }

    /// What the responder reads of the requester's private message.
    pub(crate) fn seen_by_responder(&self) -> Option<PrivateData> {
        self.responder.private_data?;
        self.requester.private_data
    }

    /// The largest message of Version One to the responder, in bytes (RFC 8797 section 4.2).
    pub(crate) fn responder_threshold(&self) -> u32 {
        match self.seen_by_requester() {
            Some(_) => self.requester.sizes.1.min(self.responder.sizes.0),
            None => 1024,
        }
    }

    /// The largest message of Version One to the requester, in bytes.
    pub(crate) fn requester_threshold(&self) -> u32 {
        match self.seen_by_responder() {
            Some(_) => self.responder.sizes.1.min(self.requester.sizes.0),
            None => 1024,
        }
    }

    /// Whether the responder may use Send With Invalidate.
    pub(crate) fn remote_invalidation(&self) -> bool {
        let allows = |peer: &Peer| peer.private_data.is_some_and(|d| d.remote_invalidation);
        allows(&self.requester) && allows(&self.responder)
    }

    /// Whether both ends support Version Two.
    pub(crate) fn speaks_two(&self) -> bool {
        let speaks = |peer: &Peer| peer.versions.contains(VERSION_TWO);
        speaks(&self.requester) && speaks(&self.responder)
    }
}
