// SPDX-License-Identifier: GPL-2.0

//! What the seed decides before anything happens.

use super::super::private_data::{InlineSize, PrivateData};
use super::random::Random;

/// What one end is like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    /// What it says about itself, `None` for one that knows nothing of private messages.
    pub(crate) private_data: Option<PrivateData>,
    /// The size of its Receives, and the most that it sends, in bytes.
    pub(crate) sizes: (u32, u32),
    /// The most credits that it grants, at least 1.
    pub(crate) grants: u32,
    /// Credits that its own Calls ask for.
    pub(crate) requests: u32,
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
    /// Forward RPCs.
    pub(crate) forward: usize,
    /// Backward RPCs.
    pub(crate) backward: usize,
    /// Whether grants change all the time.
    pub(crate) unsteady: bool,
    /// Whether peers send what they must not.
    pub(crate) faults: bool,
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

fn size(random: &mut Random) -> u32 {
    random.between(1, 4).saturating_mul(1024)
}

fn peer(random: &mut Random, sends: bool) -> Peer {
    let sizes = (size(random), size(random));
    let inline = |bytes| InlineSize::from_bytes(bytes).unwrap_or(InlineSize::DEFAULT);
    let private_data = PrivateData {
        receive: inline(sizes.0),
        send: inline(sizes.1),
        remote_invalidation: !random.one_in(4),
    };
    Peer {
        private_data: sends.then_some(private_data),
        sizes,
        grants: random.pick(1, &[2, 3, 8]),
        requests: random.pick(1, &[2, 4, 8]),
    }
}

impl Scenario {
    /// What `random` decides, for at most so many RPCs of each direction.
    pub(crate) fn new(random: &mut Random, forward: usize, backward: usize) -> Self {
        let speaks = (!random.one_in(6), !random.one_in(6));
        let mut losses = [NEVER; 3];
        let lossy = random.below(4);
        for (number, loss) in (0..lossy).zip(&mut losses) {
            // Half of them while the first connection is made and the first Calls are on their way.
            let latest = if number == 0 && random.one_in(2) {
                40
            } else {
                600
            };
            *loss = random.below(latest);
        }
        let restart = if random.one_in(4) {
            random.below(400)
        } else {
            NEVER
        };
        let few = |random: &mut Random, most: usize| {
            let most = u32::try_from(most).unwrap_or(u32::MAX);
            usize::try_from(random.between(1, most)).unwrap_or(1)
        };
        Self {
            requester: peer(random, speaks.0),
            responder: peer(random, speaks.1),
            answer_lost: random.one_in(12),
            max_segments: random.between(4, 16),
            forward: few(random, forward),
            backward: if random.one_in(3) {
                0
            } else {
                few(random, backward)
            },
            unsteady: random.one_in(2),
            faults: random.one_in(3),
            serves: !random.one_in(8),
            delay: random.pick(1, &[20, 200, 2000]),
            service: random.pick(1, &[100, 5_000, 300_000]),
            losses,
            restart,
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

    /// The largest message to the responder, in bytes (RFC 8797 section 4.2.1).
    pub(crate) fn responder_threshold(&self) -> u32 {
        match self.seen_by_requester() {
            Some(_) => self.requester.sizes.1.min(self.responder.sizes.0),
            None => 1024,
        }
    }

    /// The largest message to the requester, in bytes.
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
}
