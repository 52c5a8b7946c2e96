// SPDX-License-Identifier: GPL-2.0

//! The chunks of Calls, from the Send until the fence. An entry is kept in the slot of the queue
//! pair that has the Call's registered regions, under the slot's lock.
//!
//! An entry is in one of these states:
//!
//! 1. Free: no regions.
//! 2. Offered: the peer may use the regions. From the Send to the Reply.
//! 3. Replied: local invalidations are in progress; their completion completes the RPC.
//! 4. Abandoned: the task is gone, or the Reply is being handled; in either case the regions are
//!    being taken care of.
//! 5. Stuck: the regions could not be invalidated. They wait for the connection to end, which is
//!    imminent.
//!
//! A Reply that invalidates all regions leads from 2 to 1, and a completion from 3 or 4 to 1 or 5.
//! The end of the connection leads from any state to 1.

use super::{answered::AnsweredCall, connection::Connection};
use crate::{
    proto::requester::plan::ReplyForm,
    rdma::{Idle, LockedSlot, Mr, MrList, QueuePair, Registered, RemoteInvalidation},
    stats::Form,
};

/// What a Call has offered.
#[derive(Clone, Copy)]
pub(super) struct Offer {
    /// The number of regions, from the first on, that belong to the Read list.
    pub(super) reads: usize,
    /// Which chunk the others belong to; `Inline` if there are none.
    pub(super) reply: ReplyForm,
    /// The form of the RPC.
    pub(super) form: Form,
}

/// Numbers of regions, by the state of their entry.
#[derive(Default)]
pub(super) struct Counts {
    /// State 2.
    pub(super) offered: usize,
    /// States 3 and 4.
    pub(super) invalidating: usize,
    /// State 5.
    pub(super) stuck: usize,
}

#[derive(Default)]
enum State {
    #[default]
    Free,
    Offered(u32, Offer),
    Replied(u32, AnsweredCall),
    Abandoned(u32),
    Stuck(u32),
}

impl State {
    /// The Call to which the entry belongs.
    fn xid(&self) -> Option<u32> {
        match *self {
            Self::Free => None,
            Self::Offered(xid, _)
            | Self::Replied(xid, _)
            | Self::Abandoned(xid)
            | Self::Stuck(xid) => Some(xid),
        }
    }
}

/// The chunks of one Call.
#[derive(Default)]
pub(super) struct Entry {
    state: State,
    /// Whether a thread waits for the entry to become free.
    awaited: bool,
}

impl Entry {
    /// State 1 to 2: the Call `xid` offers regions.
    pub(super) fn offer(&mut self, xid: u32, offer: Offer) {
        self.state = State::Offered(xid, offer);
    }

    /// State 2 to 4: takes what the Call `xid` has offered; returns `None` if that was done before,
    /// or if the entry now belongs to another Call.
    fn take(&mut self, xid: u32) -> Option<Offer> {
        match self.state {
            State::Offered(owner, offer) if owner == xid => {
                self.state = State::Abandoned(xid);
                Some(offer)
            }
            _ => None,
        }
    }
}

/// A slot of the queue pair with its entry.
type Slot<'a> = LockedSlot<'a, Entry>;

/// What a Reply has found and taken of its Call's chunks.
pub(super) struct Taken<R> {
    /// What the Call has offered.
    pub(super) offer: Offer,
    /// The result of `look`.
    pub(super) seen: R,
    /// The region that the Reply has invalidated.
    pub(super) region: Option<Mr<Idle>>,
    /// Whether that was the last region, so the entry is free.
    pub(super) is_free: bool,
}

/// The entries of a connection.
#[derive(Clone, Copy)]
pub(super) struct Chunks<'a> {
    qp: &'a QueuePair<Connection>,
}

impl<'a> Chunks<'a> {
    /// The entries of this connection.
    pub(super) fn of(qp: &'a QueuePair<Connection>) -> Self {
        Self { qp }
    }

    /// Changes the state if the entry belongs to the Call `xid`, or to any Call if `xid` is `None`;
    /// returns the old state, which must not be dropped under the lock.
    fn change(
        &self,
        mut slot: Slot<'_>,
        xid: Option<u32>,
        new: impl FnOnce(u32) -> State,
    ) -> Option<State> {
        let entry = slot.user();
        let owner = entry.state.xid();
        let Some(owner) = owner.filter(|&owner| xid.is_none_or(|xid| xid == owner)) else {
            // Whatever `new` holds must not be dropped under the lock either.
            drop(slot);
            return None;
        };
        let old = core::mem::replace(&mut entry.state, new(owner));
        let is_free = entry.state.xid().is_none();
        let wake = is_free && core::mem::replace(&mut entry.awaited, false);
        drop(slot);
        if wake {
            self.qp.context().chunks_freed.notify_all();
        }
        Some(old)
    }

    /// State 4 to 1.
    fn free(&self, mut slot: Slot<'_>) {
        let entry = slot.user();
        // State 4 holds nothing that needs to be dropped.
        core::mem::forget(core::mem::replace(&mut entry.state, State::Free));
        let wake = core::mem::replace(&mut entry.awaited, false);
        drop(slot);
        if wake {
            self.qp.context().chunks_freed.notify_all();
        }
    }

    /// State 2 to 4, or to 1 if the Reply has invalidated all regions: `look` compares the regions
    /// with the Reply to the Call `xid`, and the region that `proof` is for is taken out. Returns
    /// `None` if the Call already had a Reply, or is gone.
    pub(super) fn take<R>(
        &self,
        index: usize,
        xid: u32,
        proof: Option<RemoteInvalidation<'_>>,
        look: impl FnOnce(&Offer, &MrList<Registered>) -> R,
    ) -> Option<Taken<R>> {
        let mut slot = self.qp.slot(index)?;
        let offer = slot.user().take(xid)?;
        let seen = look(&offer, slot.regions());
        let region = proof.and_then(|proof| slot.take_invalidated(proof));
        let is_free = slot.regions().is_empty();
        if is_free {
            self.free(slot);
        }
        Some(Taken {
            offer,
            seen,
            region,
            is_free,
        })
    }

    /// State 2 to 4, for a Call whose task is gone; returns whether there was such a Call.
    pub(super) fn abandon(&self, index: usize, xid: u32) -> bool {
        self.qp
            .slot(index)
            .is_some_and(|mut slot| slot.user().take(xid).is_some())
    }

    /// State 4 to 3, before the invalidations are posted.
    pub(super) fn replied(&self, index: usize, xid: u32, answered: AnsweredCall) {
        if let Some(slot) = self.qp.slot(index) {
            self.change(slot, Some(xid), |xid| State::Replied(xid, answered));
        }
    }

    /// State 4 to 1: the Call has no regions.
    pub(super) fn release(&self, index: usize, xid: u32) {
        let old = self
            .qp
            .slot(index)
            .and_then(|slot| self.change(slot, Some(xid), |_| State::Free));
        if old.is_some() {
            let connection = self.qp.context();
            connection.regions.put(None, Some(index));
            connection.transport.xprt.write_space();
        }
    }

    /// To state 5, unless the connection has ended. The RPC is not completed; it is sent again on
    /// the next connection.
    pub(super) fn keep_until_end(&self, index: usize) {
        if let Some(slot) = self.qp.slot(index) {
            self.change(slot, None, State::Stuck);
        }
    }

    /// State 3 or 4 to 1, after the invalidations; returns the Call to be completed now, if there
    /// is one.
    pub(super) fn invalidated(&self, index: usize) -> Option<AnsweredCall> {
        let old = self.change(self.qp.slot(index)?, None, |_| State::Free)?;
        self.qp.context().regions.put(None, Some(index));
        match old {
            State::Replied(_, answered) => Some(answered),
            _ => None,
        }
    }

    /// Counts regions by the state of their entry.
    pub(super) fn count(&self) -> Counts {
        let mut counts = Counts::default();
        for mut slot in (0..self.qp.slots()).filter_map(|index| self.qp.slot(index)) {
            let len = slot.regions().len();
            let count = match slot.user().state {
                State::Free => continue,
                State::Offered(..) => &mut counts.offered,
                State::Replied(..) | State::Abandoned(_) => &mut counts.invalidating,
                State::Stuck(_) => &mut counts.stuck,
            };
            *count = count.saturating_add(len);
        }
        counts
    }

    /// Waits until the entry no longer belongs to the Call `xid`. May sleep.
    pub(super) fn wait(&self, index: usize, xid: u32) {
        if let Some(mut slot) = self.qp.slot(index) {
            while slot.user().state.xid() == Some(xid) {
                slot.user().awaited = true;
                slot.wait(&self.qp.context().chunks_freed);
            }
        }
    }

    /// Frees all entries, whose regions have been destroyed. Calls that wait for a Reply continue
    /// to wait, for the next connection.
    pub(super) fn revoke(&self) {
        for slot in (0..self.qp.slots()).filter_map(|index| self.qp.slot(index)) {
            self.change(slot, None, |_| State::Free);
        }
    }
}
