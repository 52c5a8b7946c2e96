// SPDX-License-Identifier: GPL-2.0

//! Room for the connections that came through one listener: for the pages that RDMA Reads fetch,
//! and for Receives.
//!
//! Connections for whose Calls there are no pages wait in line. Who gives some back hands them to
//! the first ones, so that nobody overtakes them.

use super::PAGE_SIZE;
use crate::{proto::responder::budget::PageBudget, sunrpc};
use kernel::{
    new_spinlock,
    prelude::*,
    sync::{
        atomic::{Atomic, Relaxed},
        Arc, SpinLock, SpinLockGuard,
    },
};

/// What part of the machine's memory the Calls of one listener can have.
const PART: u32 = 16;

/// What part its connections can have in Receives, beyond the first ones of each. Receives that
/// were posted cannot be taken back from a connection that has become idle.
const RECEIVE_PART: u32 = 1024;

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
    /// Bytes of Receives, and how many there may be.
    receives: Atomic<i64>,
    max_receives: i64,
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
        let pages = sunrpc::total_pages();
        let receives = i64::from(pages / RECEIVE_PART).saturating_mul(PAGE_SIZE.into());
        Self::with_limits(pages / PART, receives)
    }

    fn with_limits(limit: u32, max_receives: i64) -> Result<Arc<Self>> {
        let room = pin_init!(Self {
            state <- new_spinlock!(State {
                budget: PageBudget::new(limit),
                line: KVVec::new(),
                connections: 0,
            }, "rpcrdma_room"),
            receives: Atomic::new(0),
            max_receives,
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

    /// Bytes of Receives beyond the first ones of each connection, and the most that there may be.
    pub(super) fn receives(&self) -> (i64, i64) {
        (self.receives.load(Relaxed), self.max_receives)
    }

    /// The pages that Calls have, and connections that wait.
    pub(super) fn usage(&self) -> (PageBudget, usize) {
        let state = self.state.lock();
        (state.budget, state.line.len())
    }
}

/// What a connection has of the room for Receives. It goes back with this object.
pub(super) struct ReceiveShare {
    room: Arc<Room>,
    /// Bytes of each.
    size: u32,
    count: u32,
}

impl ReceiveShare {
    /// None yet of Receives of `size` bytes.
    pub(super) fn new(room: Arc<Room>, size: u32) -> Self {
        Self {
            room,
            size,
            count: 0,
        }
    }

    fn bytes(&self, count: u32) -> i64 {
        i64::from(count).saturating_mul(self.size.into())
    }

    /// Takes room for so many more Receives, if there is any. Does not sleep.
    #[cold]
    #[must_use]
    pub(super) fn take(&mut self, count: u32) -> bool {
        let (room, bytes) = (&self.room, self.bytes(count));
        let left = room.max_receives.saturating_sub(bytes);
        // Whoever finds none does not take the cache line from others.
        if room.receives.load(Relaxed) > left {
            return false;
        }
        if room.receives.fetch_add(bytes, Relaxed) > left {
            room.receives.fetch_sub(bytes, Relaxed);
            return false;
        }
        self.count = self.count.saturating_add(count);
        true
    }

    /// Gives back the room for so many.
    #[inline(always)]
    pub(super) fn give_back(&mut self, count: u32) {
        if count != 0 {
            self.give_some_back(count);
        }
    }

    /// [`Self::give_back`] of some, which is rare.
    #[cold]
    fn give_some_back(&mut self, count: u32) {
        let count = count.min(self.count);
        self.count = self.count.saturating_sub(count);
        self.room.receives.fetch_sub(self.bytes(count), Relaxed);
    }
}

impl Drop for ReceiveShare {
    fn drop(&mut self) {
        self.give_back(self.count);
    }
}

#[cfg(rpcrdma_kunit)]
#[kernel::macros::kunit_tests(rpcrdma_server_room)]
mod tests {
    use super::*;

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
        let room = Room::with_limits(10, 0).unwrap();
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
        let room = Room::with_limits(10, 0).unwrap();
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

    #[test]
    fn receives_are_shared_by_all() {
        let room = Room::with_limits(10, 10 * 4096).unwrap();
        let mut first = ReceiveShare::new(room.clone(), 4096);
        let mut second = ReceiveShare::new(room.clone(), 1024);
        assert!(first.take(8));
        assert!(!first.take(3));
        assert!(second.take(8));
        assert!(!second.take(1));
        // Others than it has are not its to give back.
        second.give_back(100);
        assert!(first.take(2));
        first.give_back(1);
        assert_eq!(room.receives(), (9 * 4096, 10 * 4096));
        drop((first, second));
        assert_eq!(room.receives().0, 0);
    }
}
