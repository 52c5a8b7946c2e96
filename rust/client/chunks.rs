// SPDX-License-Identifier: GPL-2.0

//! The chunks of Calls that wait for a Reply: their registered regions, until the fence.
//!
//! An entry is in one of these states:
//!
//! 1. Free.
//! 2. Offered: the peer may use the regions. From the Send to the Reply.
//! 3. Replied: local invalidations are under way; their completion completes the RPC.
//! 4. Abandoned: local invalidations are under way for an RPC whose task is gone.
//! 5. Stuck: the regions could not be invalidated. They wait for the connection's end, which is
//!    on its way.
//!
//! A completion leads from 3 and 4 to 1 or 5. The connection's end leads from any state to 1.

use super::reply::Settlement;
use crate::rdma::{MrList, Registered};
use kernel::{
    new_condvar, new_spinlock,
    prelude::*,
    sync::{CondVar, SpinLock},
};

/// What a Call has offered.
pub(super) struct Offer {
    /// The regions of the Read list first, then those of the Write or Reply chunk.
    pub(super) regions: MrList<Registered>,
    /// How many of them are the Read list's.
    pub(super) reads: usize,
    /// Whether the others are the Reply chunk.
    pub(super) is_reply_chunk: bool,
}

/// What becomes of an entry when its local invalidations have completed.
pub(super) enum Invalidated {
    /// The RPC can be completed.
    Settle(Settlement),
    /// Nobody waits but the fence.
    Nothing,
}

enum State {
    Free,
    Offered(u32, Offer),
    Replied(u32, Settlement),
    Abandoned(u32),
    Stuck(
        u32,
        #[expect(dead_code, reason = "kept until it can be destroyed")] MrList<Registered>,
    ),
}

impl State {
    /// The Call that the entry belongs to.
    fn xid(&self) -> Option<u32> {
        match *self {
            Self::Free => None,
            Self::Offered(xid, _)
            | Self::Replied(xid, _)
            | Self::Abandoned(xid)
            | Self::Stuck(xid, _) => Some(xid),
        }
    }
}

#[pin_data]
struct Entry {
    #[pin]
    state: SpinLock<State>,
    /// Notified when the entry becomes free.
    #[pin]
    freed: CondVar,
}

/// The entries of a connection. An index is that of the local invalidation as well.
#[pin_data]
pub(super) struct Chunks {
    entries: Pin<KBox<[Entry]>>,
    #[pin]
    free: SpinLock<KVec<usize>>,
}

impl Chunks {
    /// Makes `count` entries.
    pub(super) fn new(count: u32) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            entries: KBox::pin_slice(
                |_| try_pin_init!(Entry {
                    state <- new_spinlock!(State::Free, "rpcrdma_chunks"),
                    freed <- new_condvar!("rpcrdma_chunks_freed"),
                }? Error),
                usize::try_from(count)?,
                GFP_KERNEL,
            )?,
            free <- {
                let count = usize::try_from(count)?;
                let mut free = KVec::with_capacity(count, GFP_KERNEL)?;
                for index in 0..count {
                    free.push_within_capacity(index).map_err(|_| ENOMEM)?;
                }
                new_spinlock!(free, "rpcrdma_chunks_free")
            },
        }? Error)
    }

    /// Reserves a free entry.
    pub(super) fn reserve(&self) -> Option<usize> {
        self.free.lock().pop()
    }

    /// Gives an entry back that has no regions any more.
    pub(super) fn release(&self, index: usize) {
        if let Some(entry) = self.entries.get(index) {
            let old = core::mem::replace(&mut *entry.state.lock(), State::Free);
            // Dropped outside the lock.
            drop(old);
            entry.freed.notify_all();
        }
        // There is room: the list held all of them once.
        let _ = self.free.lock().push_within_capacity(index);
    }

    /// State 1 to 2: keeps what the Call `xid` offers.
    pub(super) fn offer(&self, index: usize, xid: u32, offer: Offer) {
        self.replace(index, State::Offered(xid, offer));
    }

    /// Takes what the Call `xid` has offered, once; nothing if the entry is another's by now.
    pub(super) fn take(&self, index: usize, xid: u32) -> Option<Offer> {
        let mut state = self.entries.get(index)?.state.lock();
        match core::mem::replace(&mut *state, State::Abandoned(xid)) {
            State::Offered(owner, offer) if owner == xid => Some(offer),
            other => {
                *state = other;
                None
            }
        }
    }

    /// To state 3, before the invalidations are posted.
    pub(super) fn reply(&self, index: usize, xid: u32, settlement: Settlement) {
        self.replace(index, State::Replied(xid, settlement));
    }

    /// To state 5.
    pub(super) fn stick(&self, index: usize, regions: MrList<Registered>) {
        if let Some(entry) = self.entries.get(index) {
            let mut state = entry.state.lock();
            let xid = state.xid().unwrap_or(0);
            let old = core::mem::replace(&mut *state, State::Stuck(xid, regions));
            drop(state);
            drop(old);
        }
    }

    /// Out of state 3 or 4, after the invalidations: frees the entry.
    pub(super) fn invalidated(&self, index: usize) -> Invalidated {
        let Some(entry) = self.entries.get(index) else {
            return Invalidated::Nothing;
        };
        let old = core::mem::replace(&mut *entry.state.lock(), State::Free);
        self.release(index);
        match old {
            State::Replied(_, settlement) => Invalidated::Settle(settlement),
            _ => Invalidated::Nothing,
        }
    }

    /// Waits until the entry is not that of the Call `xid` any more. May sleep.
    pub(super) fn wait(&self, index: usize, xid: u32) {
        if let Some(entry) = self.entries.get(index) {
            let mut state = entry.state.lock();
            while state.xid() == Some(xid) {
                entry.freed.wait(&mut state);
            }
        }
    }

    /// Frees all entries. The queue pair is drained, so that the regions can be destroyed. May
    /// sleep.
    pub(super) fn revoke(&self) {
        for index in 0..self.entries.len() {
            let Some(entry) = self.entries.get(index) else {
                break;
            };
            // The regions are destroyed before anybody learns that the entry is free.
            let xid = entry.state.lock().xid();
            if let Some(xid) = xid {
                let old = core::mem::replace(&mut *entry.state.lock(), State::Abandoned(xid));
                drop(old);
                self.release(index);
            }
        }
    }

    fn replace(&self, index: usize, new: State) {
        if let Some(entry) = self.entries.get(index) {
            let old = core::mem::replace(&mut *entry.state.lock(), new);
            drop(old);
        }
    }
}
