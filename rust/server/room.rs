// SPDX-License-Identifier: GPL-2.0

//! Room for what RDMA Reads fetch: the pages of all connections that came through one listener.
//!
//! Connections for whose Calls there is none wait in line. Who gives room back hands it to the
//! first ones, so that nobody overtakes them.

use crate::{proto::responder::budget::PageBudget, sunrpc};
use kernel::{
    new_spinlock,
    prelude::*,
    sync::{Arc, SpinLock, SpinLockGuard},
};

/// What part of the machine's memory the Calls of one listener can have.
const PART: u32 = 16;

/// A connection that may have to wait.
pub(super) trait Waiter: Send + Sync {
    /// The pages that were waited for are there. Does not sleep, nor use the [`Room`].
    fn admit(&self, pages: u32);

    /// Has somebody look after [`Self::admit`]. Does not sleep.
    fn wake(&self);

    /// What tells it from others.
    fn number(&self) -> u32;
}

/// The room.
#[pin_data]
pub(super) struct Room {
    #[pin]
    state: SpinLock<State>,
}

struct State {
    budget: PageBudget,
    /// Who waits, for how many pages; the first one longest. There is space for `connections`.
    line: KVVec<(Arc<dyn Waiter>, u32)>,
    connections: usize,
}

impl Room {
    /// A part of the machine's memory.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new() -> Result<Arc<Self>> {
        Self::with_limit(sunrpc::total_pages() / PART)
    }

    fn with_limit(limit: u32) -> Result<Arc<Self>> {
        let room = pin_init!(Self {
            state <- new_spinlock!(State {
                budget: PageBudget::new(limit),
                line: KVVec::new(),
                connections: 0,
            }, "rpcrdma_room"),
        });
        Arc::pin_init(room, GFP_KERNEL)
    }

    /// There is another connection, which may wait once at a time. May sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn enter(&self) -> Result {
        let mut line = KVVec::new();
        loop {
            let mut state = self.state.lock();
            let connections = state.connections.saturating_add(1);
            if state.line.capacity() >= connections {
                state.connections = connections;
                return Ok(());
            }
            if line.capacity() >= connections {
                for waiter in state.line.drain_all() {
                    line.push_within_capacity(waiter).map_err(|_| ENOMEM)?;
                }
                core::mem::swap(&mut state.line, &mut line);
                continue;
            }
            drop(state);
            // Space for some more, so that not every one needs a larger list.
            line = KVVec::with_capacity(connections.saturating_mul(2), GFP_KERNEL)?;
        }
    }

    /// A connection has ended, and does not wait any more.
    pub(super) fn leave(&self, number: u32) {
        let mut state = self.state.lock();
        state.connections = state.connections.saturating_sub(1);
        let place = state
            .line
            .iter()
            .position(|(who, _)| who.number() == number);
        let waiter = place.and_then(|place| state.line.remove(place).ok());
        drop(state);
        drop(waiter);
        // Those behind it may need less.
        self.give_back(0);
    }

    /// Takes so many pages, or has `waiter`, which does not wait yet, wait for them.
    #[must_use]
    pub(super) fn take(&self, pages: u32, waiter: impl FnOnce() -> Arc<dyn Waiter>) -> bool {
        let mut state = self.state.lock();
        if state.line.is_empty() && state.budget.take(pages) {
            return true;
        }
        // There is space for each connection.
        let _ = state.line.push_within_capacity((waiter(), pages));
        false
    }

    /// Gives pages back. Does not sleep.
    #[inline]
    pub(super) fn give_back(&self, pages: u32) {
        let mut state = self.state.lock();
        state.budget.give_back(pages);
        if !state.line.is_empty() {
            self.admit(state);
        }
    }

    /// Admits waiting connections in order, as far as there is room.
    #[cold]
    fn admit<'a>(&'a self, mut state: SpinLockGuard<'a, State>) {
        while let Some(&(_, wanted)) = state.line.first() {
            if !state.budget.take(wanted) {
                return;
            }
            let Ok((waiter, _)) = state.line.remove(0) else {
                return;
            };
            waiter.admit(wanted);
            drop(state);
            waiter.wake();
            drop(waiter);
            state = self.state.lock();
        }
    }

    /// The pages that Calls have, and connections that wait.
    pub(super) fn usage(&self) -> (PageBudget, usize) {
        let state = self.state.lock();
        (state.budget, state.line.len())
    }
}

#[cfg(rpcrdma_kunit)]
#[kernel::macros::kunit_tests(rpcrdma_server_room)]
mod tests {
    use super::*;
    use kernel::sync::atomic::{Atomic, Relaxed};

    struct Tester {
        number: u32,
        admitted: Atomic<u32>,
        woken: Atomic<u32>,
    }

    impl Waiter for Tester {
        fn admit(&self, pages: u32) {
            self.admitted.store(pages, Relaxed);
        }

        fn wake(&self) {
            self.woken.store(1, Relaxed);
        }

        fn number(&self) -> u32 {
            self.number
        }
    }

    fn tester(number: u32) -> Arc<Tester> {
        let tester = Tester {
            number,
            admitted: Atomic::new(0),
            woken: Atomic::new(0),
        };
        Arc::new(tester, GFP_KERNEL).unwrap()
    }

    fn seen(tester: &Tester) -> (u32, u32) {
        (tester.admitted.load(Relaxed), tester.woken.load(Relaxed))
    }

    #[test]
    fn nobody_overtakes_who_waits() {
        let room = Room::with_limit(10).unwrap();
        let [first, second, third] = [1, 2, 3].map(tester);
        for _ in 0..3 {
            room.enter().unwrap();
        }
        assert!(room.take(8, || first.clone()));
        assert!(!room.take(6, || first.clone()));
        // This one would fit.
        assert!(!room.take(2, || second.clone()));
        assert!(!room.take(3, || third.clone()));
        assert_eq!(room.usage().1, 3);
        room.give_back(8);
        assert_eq!(
            [&first, &second, &third].map(|who| seen(who)),
            [(6, 1), (2, 1), (0, 0)]
        );
        // It goes, and nobody is left.
        room.leave(3);
        assert_eq!(room.usage().1, 0);
        room.give_back(8);
        assert_eq!((room.usage().0.used(), room.usage().0.most()), (0, 8));
        assert_eq!(seen(&third), (0, 0));
    }

    #[test]
    fn who_leaves_the_line_lets_others_in() {
        let room = Room::with_limit(10).unwrap();
        let [first, second] = [1, 2].map(tester);
        for _ in 0..2 {
            room.enter().unwrap();
        }
        assert!(room.take(5, || first.clone()));
        assert!(!room.take(10, || first.clone()));
        assert!(!room.take(5, || second.clone()));
        room.leave(1);
        assert_eq!([&first, &second].map(|who| seen(who)), [(0, 0), (5, 1)]);
    }
}
