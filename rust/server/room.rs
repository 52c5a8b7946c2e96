// SPDX-License-Identifier: GPL-2.0

//! Room for the connections that came through one listener: for the pages that RDMA Reads fetch,
//! and for Receives.
//!
//! Connections for whose Calls there are no pages wait in line. Who gives some back hands them to
//! the first ones, so that nobody overtakes them.

use super::PAGE_SIZE;
use crate::{
    proto::responder::budget::PageBudget,
    sunrpc::{self, server::Moment, ClassUser},
};
use kernel::{
    new_condvar, new_spinlock, new_work,
    prelude::*,
    sync::{
        atomic::{Atomic, Relaxed},
        Arc, CondVar, SpinLock, SpinLockGuard,
    },
    time::msecs_to_jiffies,
    workqueue::{impl_has_work, Work, WorkItem},
};

/// What part of the machine's memory the Calls of one listener can have.
const PART: u32 = 16;

/// What part its connections can have in Receives, beyond the first ones of each. Receives that
/// were posted cannot be taken back from a connection that has become idle.
const RECEIVE_PART: u32 = 1024;

/// Milliseconds between two looks for connections whose RDMA Reads hang, while others wait.
const LOOK_PAUSE_MS: u32 = 10_000;

/// A connection that may have to wait.
pub(super) trait Waiter: Send + Sync {
    /// The pages that were waited for are there. Does not sleep, nor use the [`Room`].
    fn admit(&self, pages: u32);

    /// Has somebody look after [`Self::admit`]. Does not sleep.
    fn wake(&self);

    /// What tells it from others.
    fn number(&self) -> u32;

    /// Whether it has pages, and nothing of it has completed for too long, at `now` nanoseconds.
    /// Does not sleep, nor use the [`Room`].
    fn is_stuck(&self, now: u64) -> bool;

    /// Ends the connection, as it keeps room from others. Does not sleep.
    fn end(&self);
}

/// The room.
#[pin_data]
pub(super) struct Room {
    #[pin]
    state: SpinLock<State>,
    /// Nobody waits any more.
    #[pin]
    is_empty: CondVar,
    /// Watches.
    #[pin]
    work: Work<Self>,
    /// From here on time is counted.
    began: Moment,
    /// Where the work is done; nowhere in tests.
    user: Option<ClassUser>,
    /// Bytes of Receives, and how many there may be.
    receives: Atomic<i64>,
    max_receives: i64,
}

struct State {
    budget: PageBudget,
    connections: KVVec<Arc<dyn Waiter>>,
    /// Who waits, for how many pages; the first one longest. There is space for all connections.
    line: KVVec<(Arc<dyn Waiter>, u32)>,
    /// Whether the work looks for connections that are stuck.
    is_watched: bool,
}

impl State {
    /// Takes so many pages, if they are there and nobody waits.
    fn take(&mut self, pages: u32) -> bool {
        self.line.is_empty() && self.budget.take(pages)
    }
}

impl_has_work! {
    impl HasWork<Self> for Room { self.work }
}

impl WorkItem for Room {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.watch();
    }
}

impl Room {
    /// A part of the machine's memory. `user` is for its work.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new(user: ClassUser) -> Result<Arc<Self>> {
        let pages = sunrpc::total_pages();
        let receives = i64::from(pages / RECEIVE_PART).saturating_mul(PAGE_SIZE.into());
        Self::with_limits(Some(user), pages / PART, receives)
    }

    fn with_limits(user: Option<ClassUser>, limit: u32, max_receives: i64) -> Result<Arc<Self>> {
        let room = pin_init!(Self {
            state <- new_spinlock!(State {
                budget: PageBudget::new(limit),
                connections: KVVec::new(),
                line: KVVec::new(),
                is_watched: false,
            }, "rpcrdma_room"),
            is_empty <- new_condvar!("rpcrdma_room"),
            work <- new_work!("rpcrdma_room"),
            began: Moment::now(),
            user,
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
    pub(super) fn enter(&self, connection: &Arc<impl Waiter + 'static>) -> Result {
        let (mut connections, mut line) = (KVVec::new(), KVVec::new());
        loop {
            let mut state = self.state.lock();
            let count = state.connections.len().saturating_add(1);
            if state.line.capacity() >= count && state.connections.capacity() >= count {
                let pushed = state.connections.push_within_capacity(connection.clone());
                return pushed.map_err(|_| ENOMEM);
            }
            if line.capacity() >= count && connections.capacity() >= count {
                replace(&mut state.line, &mut line)?;
                replace(&mut state.connections, &mut connections)?;
                continue;
            }
            drop(state);
            // Space for some more, so that not every one needs larger lists.
            let space = count.saturating_mul(2);
            line = KVVec::with_capacity(space, GFP_KERNEL)?;
            connections = KVVec::with_capacity(space, GFP_KERNEL)?;
        }
    }

    /// A connection has ended, and does not wait any more.
    pub(super) fn leave(&self, number: u32) {
        let mut state = self.state.lock();
        let mut connections = state.connections.iter();
        let place = connections.position(|who| who.number() == number);
        let connection = place.and_then(|place| state.connections.remove(place).ok());
        let mut line = state.line.iter();
        let place = line.position(|(who, _)| who.number() == number);
        let waiter = place.and_then(|place| state.line.remove(place).ok());
        let is_empty = state.line.is_empty();
        drop(state);
        drop((connection, waiter));
        if is_empty {
            self.is_empty.notify_all();
        }
        // Those behind it may need less.
        self.give_back(0);
    }

    /// Looks for connections that are stuck, again and again while others wait.
    fn watch(&self) {
        self.end_stuck();
        loop {
            let mut state = self.state.lock();
            if state.line.is_empty() {
                state.is_watched = false;
                return;
            }
            let pause = msecs_to_jiffies(LOOK_PAUSE_MS);
            // Which of them ends it does not matter.
            let _ = self.is_empty.wait_interruptible_timeout(&mut state, pause);
            drop(state);
            self.end_stuck();
        }
    }

    /// Ends connections that are stuck.
    fn end_stuck(&self) {
        let now = Moment::now().since(self.began);
        let mut state = self.state.lock();
        let mut next = 0;
        loop {
            let mut rest = state.connections.iter().skip(next);
            let stuck = rest.find(|who| {
                next = next.saturating_add(1);
                who.is_stuck(now)
            });
            let Some(stuck) = stuck.cloned() else {
                return;
            };
            drop(state);
            stuck.end();
            // It may be the last reference, and that of the listener's files.
            drop(stuck);
            state = self.state.lock();
        }
    }

    /// Takes so many pages, if they are there and nobody waits.
    #[inline]
    #[must_use]
    pub(super) fn try_take(&self, pages: u32) -> bool {
        self.state.lock().take(pages)
    }

    /// Takes so many pages, or has `waiter`, which does not wait yet, wait for them.
    #[must_use]
    pub(super) fn take(
        this: &Arc<Self>,
        pages: u32,
        waiter: impl FnOnce() -> Arc<dyn Waiter>,
    ) -> bool {
        let mut state = this.state.lock();
        if state.take(pages) {
            return true;
        }
        // There is space for each connection.
        let _ = state.line.push_within_capacity((waiter(), pages));
        let is_watched = core::mem::replace(&mut state.is_watched, true);
        drop(state);
        if let (Some(user), false) = (&this.user, is_watched) {
            // It is not queued: whoever watches says so.
            let _ = user.enqueue(this.clone());
        }
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
        drop(state);
        self.is_empty.notify_all();
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

/// Moves what `list` has to `larger`, which takes its place, and the other way round.
fn replace<T>(list: &mut KVVec<T>, larger: &mut KVVec<T>) -> Result {
    for element in list.drain_all() {
        larger.push_within_capacity(element).map_err(|_| ENOMEM)?;
    }
    core::mem::swap(list, larger);
    Ok(())
}

/// What a connection has of the room for Receives. It goes back with this object.
pub(super) struct ReceiveShare {
    room: Arc<Room>,
    /// Bytes of each.
    size: u32,
    /// How many it has, and how many of these its grants may use. The others were posted, and go
    /// back as Calls use them up.
    count: u32,
    wanted: u32,
}

impl ReceiveShare {
    /// None yet of Receives of `size` bytes.
    pub(super) fn new(room: Arc<Room>, size: u32) -> Self {
        Self {
            room,
            size,
            count: 0,
            wanted: 0,
        }
    }

    fn bytes(&self, count: u32) -> i64 {
        i64::from(count).saturating_mul(self.size.into())
    }

    /// Takes room for so many more Receives, if that is no more than half of what is left: others
    /// want some, too. Does not sleep.
    #[cold]
    #[must_use]
    pub(super) fn take(&mut self, more: u32) -> bool {
        let wanted = self.wanted.saturating_add(more);
        let new = wanted.saturating_sub(self.count);
        let (room, bytes) = (&self.room, self.bytes(new));
        let limit = room.max_receives.saturating_sub(bytes.saturating_mul(2));
        // Whoever finds none does not take the cache line from others.
        if room.receives.load(Relaxed) > limit {
            return false;
        }
        if room.receives.fetch_add(bytes, Relaxed) > limit {
            room.receives.fetch_sub(bytes, Relaxed);
            return false;
        }
        self.count = self.count.saturating_add(new);
        self.wanted = wanted;
        true
    }

    /// Grants use so many fewer.
    #[inline(always)]
    pub(super) fn lower(&mut self, less: u32) {
        if less != 0 {
            self.wanted = self.wanted.saturating_sub(less);
        }
    }

    /// Whether there are some that grants do not use.
    #[inline(always)]
    pub(super) fn has_surplus(&self) -> bool {
        self.count > self.wanted
    }

    /// Gives back the room for those that grants do not use, but for `posted` in all.
    #[cold]
    pub(super) fn give_back_surplus(&mut self, posted: u32) {
        let kept = self.wanted.max(posted).min(self.count);
        let surplus = self.bytes(self.count.saturating_sub(kept));
        self.count = kept;
        self.room.receives.fetch_sub(surplus, Relaxed);
    }
}

impl Drop for ReceiveShare {
    fn drop(&mut self) {
        self.wanted = 0;
        self.give_back_surplus(0);
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

        fn is_stuck(&self, _now: u64) -> bool {
            self.admitted.load(Relaxed) == STUCK
        }

        fn end(&self) {
            self.woken.store(STUCK, Relaxed);
        }
    }

    /// Marks a tester as stuck, and as ended.
    const STUCK: u32 = 1000;

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
        let room = Room::with_limits(None, 10, 0).unwrap();
        let [first, second, third] = [1, 2, 3].map(tester);
        for who in [&first, &second, &third] {
            room.enter(who).unwrap();
        }
        assert!(Room::take(&room, 8, || first.clone()));
        assert!(!Room::take(&room, 6, || first.clone()));
        // This one would fit.
        assert!(!Room::take(&room, 2, || second.clone()));
        assert!(!Room::take(&room, 3, || third.clone()));
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
        let room = Room::with_limits(None, 10, 0).unwrap();
        let [first, second] = [1, 2].map(tester);
        for who in [&first, &second] {
            room.enter(who).unwrap();
        }
        assert!(Room::take(&room, 5, || first.clone()));
        assert!(!Room::take(&room, 10, || first.clone()));
        assert!(!Room::take(&room, 5, || second.clone()));
        room.leave(1);
        assert_eq!([&first, &second].map(|who| seen(who)), [(0, 0), (5, 1)]);
    }

    #[test]
    fn all_that_are_stuck_end() {
        let room = Room::with_limits(None, 10, 0).unwrap();
        let all = [1, 2, 3].map(tester);
        for who in &all {
            room.enter(who).unwrap();
        }
        let ended = || all.each_ref().map(|who| seen(who).1 == STUCK);
        for who in &all[1..] {
            who.admitted.store(STUCK, Relaxed);
        }
        assert!(Room::take(&room, 10, || all[1].clone()));
        assert!(!Room::take(&room, 1, || all[0].clone()));
        assert_eq!(ended(), [false; 3]);
        room.end_stuck();
        assert_eq!(ended(), [false, true, true]);
        for who in &all {
            room.leave(who.number);
        }
    }

    #[test]
    fn receives_are_shared_by_all() {
        let room = Room::with_limits(None, 10, 20 * 4096).unwrap();
        let mut first = ReceiveShare::new(room.clone(), 4096);
        let mut second = ReceiveShare::new(room.clone(), 1024);
        assert!(first.take(10));
        // No one takes more than half of what is left.
        assert!(!first.take(6));
        assert!(first.take(5));
        assert!(!second.take(11));
        assert!(second.take(10));
        assert_eq!(room.receives(), (17 * 4096 + 2048, 20 * 4096));
        drop((first, second));
        assert_eq!(room.receives().0, 0);
    }

    #[test]
    fn receives_that_are_posted_still_take_room() {
        let room = Room::with_limits(None, 10, 100).unwrap();
        let mut share = ReceiveShare::new(room.clone(), 1);
        assert!(share.take(40));
        assert!(!share.has_surplus());
        share.lower(30);
        assert!(share.has_surplus());
        share.give_back_surplus(35);
        assert_eq!(room.receives().0, 35);
        // What it has serves again before any is taken.
        assert!(share.take(20));
        assert_eq!(room.receives().0, 35);
        assert!(share.take(10));
        assert_eq!(room.receives().0, 40);
        share.lower(100);
        share.give_back_surplus(7);
        assert!(share.has_surplus());
        share.give_back_surplus(0);
        assert!(!share.has_surplus());
        assert_eq!(room.receives().0, 0);
    }
}
