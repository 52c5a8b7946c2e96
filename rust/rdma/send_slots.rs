// SPDX-License-Identifier: GPL-2.0

//! Accounting for a send queue on which several threads post.

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
    /// The queue is smaller than that.
    TooMany,
    /// There is no room at present.
    Full,
    /// The connection is ending.
    Closed,
}

/// The free and used slots of a send queue, one for each work request.
#[pin_data]
pub(crate) struct SendSlots {
    #[pin]
    state: SpinLock<State>,
    #[pin]
    changed: CondVar,
    /// Threads that are waiting for room.
    waiting: Atomic<u32>,
}

struct State {
    /// The capacity of the queue.
    total: u32,
    free: u32,
    /// The lowest number of slots that were ever free.
    least: u32,
    is_closed: bool,
}

impl SendSlots {
    /// Without room, until there is a queue.
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

    /// Sets the capacity to `total` work requests, now that there is a queue.
    pub(super) fn open(&self, total: u32) {
        let mut state = self.state.lock();
        (state.total, state.free, state.least) = (total, total, total);
    }

    /// Takes slots for `count` work requests; sleeps until they are free if `may_wait`. If they are
    /// not free at first, `is_full` is called, under the lock, with the number of slots in use and
    /// the capacity.
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
        // Callers that cannot wait do not overtake those that do.
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

    /// Waits until others return slots, and with them the other resources that they used. Sleeps.
    ///
    /// # Errors
    ///
    /// [`NoRoom::TooMany`] if no slot is in use, [`NoRoom::Closed`].
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

    /// Returns slots. Does not sleep.
    pub(super) fn give_back(&self, count: u32) {
        let mut state = self.state.lock();
        state.free = state.free.saturating_add(count);
        drop(state);
        if self.is_awaited() {
            self.changed.notify_all();
        }
    }

    /// Refuses further slots, and wakes all waiting threads.
    pub(crate) fn close(&self) {
        self.state.lock().is_closed = true;
        self.changed.notify_all();
    }

    /// Whether a thread is waiting for room.
    pub(super) fn is_awaited(&self) -> bool {
        self.waiting.load(Relaxed) != 0
    }

    /// Slots in use, the most that ever were, and the capacity.
    pub(super) fn usage(&self) -> (u32, u32, u32) {
        let state = self.state.lock();
        let used = |free| state.total.saturating_sub(free);
        (used(state.free), used(state.least), state.total)
    }
}
