// SPDX-License-Identifier: GPL-2.0

//! The chunks of Calls that wait for a Reply, until the fence. Their regions are in the slot of
//! the queue pair that has the entry's number.
//!
//! An entry is in one of these states:
//!
//! 1. Free: no regions.
//! 2. Offered: the peer may use the regions. From the Send to the Reply.
//! 3. Replied: local invalidations are under way; their completion completes the RPC.
//! 4. Abandoned: the task is gone, or the Reply is being handled; somebody sees to the regions.
//! 5. Stuck: the regions could not be invalidated. They wait for the connection's end, which is
//!    on its way.
//!
//! A completion leads from 3 and 4 to 1 or 5. The connection's end leads from any state to 1.

use super::reply::Settlement;
use crate::stats::Form;
use kernel::{
    new_condvar, new_spinlock,
    prelude::*,
    sync::{CondVar, SpinLock},
};

/// What a Call has offered.
#[derive(Clone, Copy)]
pub(super) struct Offer {
    /// How many of the regions, the first ones, are the Read list's.
    pub(super) reads: usize,
    /// Whether the others are the Reply chunk, not the Write chunk.
    pub(super) is_reply_chunk: bool,
    /// How the RPC travels.
    pub(super) form: Form,
}

/// Regions by the state of their entry.
#[derive(Default)]
pub(super) struct Counts {
    /// State 2.
    pub(super) offered: usize,
    /// States 3 and 4.
    pub(super) invalidating: usize,
    /// State 5.
    pub(super) stuck: usize,
}

enum State {
    Free,
    Offered(u32, Offer),
    Replied(u32, Settlement),
    Abandoned(u32),
    Stuck(u32),
}

impl State {
    /// The Call that the entry belongs to.
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

struct Watched {
    state: State,
    /// Whether somebody waits for the entry to become free.
    awaited: bool,
}

#[pin_data]
struct Entry {
    #[pin]
    watched: SpinLock<Watched>,
    /// Notified when the entry becomes free, if that is awaited.
    #[pin]
    freed: CondVar,
}

impl Entry {
    /// Goes to another state, if the entry is that of the Call `xid`; the old state.
    fn change(&self, xid: u32, new: State) -> Option<State> {
        let mut watched = self.watched.lock();
        if watched.state.xid() != Some(xid) {
            return None;
        }
        let is_free = matches!(new, State::Free);
        let old = core::mem::replace(&mut watched.state, new);
        let wake = is_free && core::mem::replace(&mut watched.awaited, false);
        drop(watched);
        if wake {
            self.freed.notify_all();
        }
        Some(old)
    }

    /// The Call that the entry belongs to.
    fn xid(&self) -> Option<u32> {
        self.watched.lock().state.xid()
    }
}

/// The entries of a connection.
#[pin_data]
pub(super) struct Chunks {
    entries: Pin<KVBox<[Entry]>>,
    /// Entries that are free, and that nobody has reserved.
    #[pin]
    free: SpinLock<KVVec<usize>>,
}

impl Chunks {
    /// Makes `count` entries.
    pub(super) fn new(count: u32) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            entries: KVBox::pin_slice(
                |_| try_pin_init!(Entry {
                    watched <- new_spinlock!(Watched {
                        state: State::Free,
                        awaited: false,
                    }, "rpcrdma_chunks"),
                    freed <- new_condvar!("rpcrdma_chunks_freed"),
                }? Error),
                usize::try_from(count)?,
                GFP_KERNEL,
            )?,
            free <- {
                let count = usize::try_from(count)?;
                let mut free = KVVec::with_capacity(count, GFP_KERNEL)?;
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

    /// Gives a reserved entry back that was not used.
    pub(super) fn unreserve(&self, index: usize) {
        // There is room: the list held all of them once.
        let _ = self.free.lock().push_within_capacity(index);
    }

    /// State 1 to 2, for a reserved entry: the Call `xid` offers regions.
    pub(super) fn offer(&self, index: usize, xid: u32, offer: Offer) {
        if let Some(entry) = self.entries.get(index) {
            entry.watched.lock().state = State::Offered(xid, offer);
        }
    }

    /// State 2 to 4: takes what the Call `xid` has offered, once; nothing if the entry is another
    /// Call's by now.
    pub(super) fn take(&self, index: usize, xid: u32) -> Option<Offer> {
        let mut watched = self.entries.get(index)?.watched.lock();
        match watched.state {
            State::Offered(owner, offer) if owner == xid => {
                watched.state = State::Abandoned(xid);
                Some(offer)
            }
            _ => None,
        }
    }

    /// State 4 to 3, before the invalidations are posted.
    pub(super) fn replied(&self, index: usize, xid: u32, settlement: Settlement) {
        if let Some(entry) = self.entries.get(index) {
            let old = entry.change(xid, State::Replied(xid, settlement));
            // Dropped outside the lock.
            drop(old);
        }
    }

    /// State 4 to 1: the Call's regions are all invalidated.
    pub(super) fn release(&self, index: usize, xid: u32) {
        if let Some(entry) = self.entries.get(index) {
            if let Some(old) = entry.change(xid, State::Free) {
                drop(old);
                self.unreserve(index);
            }
        }
    }

    /// To state 5, unless the connection has ended. The RPC is not completed; it is sent again on
    /// the next connection.
    pub(super) fn stick(&self, index: usize) {
        if let Some(entry) = self.entries.get(index) {
            let old = entry
                .xid()
                .and_then(|xid| entry.change(xid, State::Stuck(xid)));
            drop(old);
        }
    }

    /// Out of state 3 or 4 to 1, after the invalidations: what is to be settled then, if anything.
    pub(super) fn invalidated(&self, index: usize) -> Option<Settlement> {
        let entry = self.entries.get(index)?;
        let old = entry.change(entry.xid()?, State::Free)?;
        self.unreserve(index);
        match old {
            State::Replied(_, settlement) => Some(settlement),
            _ => None,
        }
    }

    /// Counts regions by the state of their entry; `regions` tells how many each entry has.
    pub(super) fn count(&self, regions: impl Fn(usize) -> usize) -> Counts {
        let mut counts = Counts::default();
        for (index, entry) in self.entries.iter().enumerate() {
            let count = match entry.watched.lock().state {
                State::Free => continue,
                State::Offered(..) => &mut counts.offered,
                State::Replied(..) | State::Abandoned(_) => &mut counts.invalidating,
                State::Stuck(_) => &mut counts.stuck,
            };
            *count = count.saturating_add(regions(index));
        }
        counts
    }

    /// Waits until the entry is not that of the Call `xid` any more. May sleep.
    pub(super) fn wait(&self, index: usize, xid: u32) {
        if let Some(entry) = self.entries.get(index) {
            let mut watched = entry.watched.lock();
            while watched.state.xid() == Some(xid) {
                watched.awaited = true;
                entry.freed.wait(&mut watched);
            }
        }
    }

    /// Frees all entries, whose regions are destroyed. What waits for a Reply goes on waiting, for
    /// the next connection.
    pub(super) fn revoke(&self) {
        for (index, entry) in self.entries.iter().enumerate() {
            if let Some(xid) = entry.xid() {
                self.release(index, xid);
            }
        }
    }
}
