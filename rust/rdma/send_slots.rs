// SPDX-License-Identifier: GPL-2.0

//! The room of a send queue that several threads post on.

use kernel::{
    new_condvar, new_spinlock,
    prelude::*,
    sync::{
        atomic::{Atomic, Relaxed},
        CondVar, SpinLock,
    },
};

/// Why there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoRoom {
    /// The queue has never so much.
    TooMany,
    /// There is none at the moment.
    Full,
    /// The connection is at its end.
    Closed,
}

/// The room, in work requests.
#[pin_data]
pub(crate) struct SendSlots {
    #[pin]
    state: SpinLock<State>,
    #[pin]
    changed: CondVar,
    /// Threads that wait for room.
    waiting: Atomic<u32>,
}

struct State {
    /// All there is.
    total: u32,
    free: u32,
    /// The least that was ever free.
    least: u32,
    is_closed: bool,
}

impl SendSlots {
    /// No room, until there is a queue.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            state <- new_spinlock!(State {
                total: 0,
                free: 0,
                least: 0,
                is_closed: false,
            }, "rpcrdma_send_slots"),
            changed <- new_condvar!("rpcrdma_send_slots"),
            waiting: Atomic::new(0),
        })
    }

    /// There is a queue, with room for `total` work requests.
    pub(super) fn open(&self, total: u32) {
        let mut state = self.state.lock();
        (state.total, state.free, state.least) = (total, total, total);
    }

    /// Takes room for `count` work requests; waits for it if `may_wait`, and sleeps then. If there
    /// is none at first `is_full` is told, under the lock, what is in use and what there is.
    ///
    /// # Errors
    ///
    /// [`NoRoom::Full`] only if the caller may not wait.
    pub(super) fn take(
        &self,
        count: u32,
        may_wait: bool,
        is_full: impl FnOnce(u32, u32),
    ) -> Result<(), NoRoom> {
        let mut is_full = Some(is_full);
        let mut state = self.state.lock();
        if count > state.total {
            return Err(NoRoom::TooMany);
        }
        // Who cannot wait does not overtake those who do.
        if !may_wait && self.is_awaited() {
            if let Some(is_full) = is_full.take() {
                is_full(state.total.saturating_sub(state.free), state.total);
            }
            return Err(NoRoom::Full);
        }
        while !state.is_closed {
            if let Some(free) = state.free.checked_sub(count) {
                state.free = free;
                state.least = state.least.min(free);
                return Ok(());
            }
            if let Some(is_full) = is_full.take() {
                is_full(state.total.saturating_sub(state.free), state.total);
            }
            if !may_wait {
                return Err(NoRoom::Full);
            }
            self.waiting.fetch_add(1, Relaxed);
            self.changed.wait(&mut state);
            self.waiting.fetch_sub(1, Relaxed);
        }
        Err(NoRoom::Closed)
    }

    /// Waits until others give room back, and with it what else they use. Sleeps.
    ///
    /// # Errors
    ///
    /// [`NoRoom::TooMany`] if nobody has any, [`NoRoom::Closed`].
    pub(super) fn wait(&self) -> Result<(), NoRoom> {
        let mut state = self.state.lock();
        let free = state.free;
        if free == state.total {
            return Err(NoRoom::TooMany);
        }
        while !state.is_closed {
            if state.free > free {
                return Ok(());
            }
            self.waiting.fetch_add(1, Relaxed);
            self.changed.wait(&mut state);
            self.waiting.fetch_sub(1, Relaxed);
        }
        Err(NoRoom::Closed)
    }

    /// Gives room back. Does not sleep.
    pub(super) fn give_back(&self, count: u32) {
        let mut state = self.state.lock();
        state.free = state.free.saturating_add(count);
        drop(state);
        if self.is_awaited() {
            self.changed.notify_all();
        }
    }

    /// Lets nobody in any more, and wakes who waits.
    pub(crate) fn close(&self) {
        self.state.lock().is_closed = true;
        self.changed.notify_all();
    }

    /// Whether a thread waits for room.
    pub(super) fn is_awaited(&self) -> bool {
        self.waiting.load(Relaxed) != 0
    }

    /// Work requests in use, the most there ever were, and all there can be.
    pub(super) fn usage(&self) -> (u32, u32, u32) {
        let state = self.state.lock();
        let used = |free| state.total.saturating_sub(free);
        (used(state.free), used(state.least), state.total)
    }
}
