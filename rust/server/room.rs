// SPDX-License-Identifier: GPL-2.0

//! Room for the pages that RDMA Reads fetch for the connections that came through one listener.
//!
//! Connections for whose Calls there are no pages wait in line. Pages that are given back go to the
//! first ones, so that nobody overtakes them.

use crate::{
    proto::responder::budget::PageBudget,
    sunrpc::{self, server::Moment, ClassUser},
};
use kernel::{
    new_condvar, new_spinlock, new_work,
    prelude::*,
    rbtree::{RBTree, RBTreeNode, RBTreeNodeReservation},
    sync::{
        atomic::{Atomic, Full, Relaxed},
        Arc, CondVar, SpinLock, SpinLockGuard,
    },
    time::msecs_to_jiffies,
    workqueue::{impl_has_work, Work, WorkItem},
};

/// The part of the machine's memory that the Calls of one listener can have: one in this many.
const PART: u32 = 16;

/// Milliseconds between two checks for connections whose work requests hang.
const LOOK_PAUSE_MS: u32 = 10_000;

/// A connection that may have to wait.
///
/// Whoever wakes or ends one uses it without a reference to its transport, so it does that with the
/// room's lock held, which the connection takes once ([`Room::withdraw`]) between its closing, from
/// which on neither does anything, and its being freed.
pub(super) trait Waiter: Send + Sync {
    /// The pages that it waits for are there: has a thread take them ([`Room::take_admitted`]).
    /// With the room's lock held.
    fn wake(&self);

    /// Whether too few of its work requests have completed for too long, at `now` nanoseconds; or
    /// none, while it has pages for which others wait. Does not sleep.
    fn is_stuck(&self, now: u64, others_wait: bool) -> bool;

    /// Whether it has work requests that have not completed. Does not sleep.
    fn is_sending(&self) -> bool;

    /// Ends the connection, as it keeps others from having room. With the room's lock held.
    fn end(&self);
}

/// The room that all connections of a listener share.
#[pin_data]
pub(super) struct Room {
    #[pin]
    state: SpinLock<State>,
    /// Notified when there is no connection any more.
    #[pin]
    is_empty: CondVar,
    /// Looks for connections that are stuck, as long as others wait, or any has work requests.
    #[pin]
    work: Work<Self>,
    /// Whether the work looks for them.
    is_watched: Atomic<bool>,
    /// The origin of the times that are kept.
    began: Moment,
    /// For the work; `None` in tests.
    user: Option<ClassUser>,
}

struct State {
    budget: PageBudget,
    /// All connections, by their numbers.
    connections: RBTree<u32, Place>,
    /// The connections that wait, by the order in which they came.
    line: RBTree<u64, u32>,
    /// The key of the last one in the line. No machine runs long enough for it to wrap.
    last: u64,
    /// How many wait.
    waiting: usize,
}

/// A connection's place in the room.
struct Place {
    connection: Arc<dyn Waiter>,
    /// For its entry in the line; `None` while that is in use.
    node: Option<RBTreeNodeReservation<u64, u32>>,
    /// Its key in the line while it waits.
    key: u64,
    /// The pages that it waits for, or was admitted for and has not taken yet.
    pages: u32,
}

impl State {
    /// Takes `pages` pages, if they are there and nobody waits.
    fn take(&mut self, pages: u32) -> bool {
        self.waiting == 0 && self.budget.take(pages)
    }

    /// Puts a connection at the end of the line, for `pages` pages, unless it is not in the room or
    /// already waits.
    fn queue(&mut self, number: u32, pages: u32) {
        let Some(place) = self.connections.get_mut(&number) else {
            return;
        };
        let Some(node) = place.node.take() else {
            return;
        };
        self.last = self.last.wrapping_add(1);
        (place.key, place.pages) = (self.last, pages);
        self.line.insert(node.into_node(self.last, number));
        self.waiting = self.waiting.saturating_add(1);
    }

    /// Admits the first connection in the line, if there are pages for it.
    fn admit(&mut self) -> Option<Arc<dyn Waiter>> {
        let (_, &number) = self.line.cursor_front()?.current();
        let place = self.connections.get_mut(&number)?;
        if !self.budget.take(place.pages) {
            return None;
        }
        let node = self.line.remove_node(&place.key)?;
        place.node = Some(node.into_reservation());
        self.waiting = self.waiting.saturating_sub(1);
        Some(place.connection.clone())
    }

    /// Takes a connection out of the line, or takes back the pages for which it was admitted.
    fn withdraw(&mut self, number: u32) {
        let Some(place) = self.connections.get_mut(&number) else {
            return;
        };
        let pages = core::mem::take(&mut place.pages);
        if place.node.is_some() {
            self.budget.give_back(pages);
        } else if let Some(node) = self.line.remove_node(&place.key) {
            place.node = Some(node.into_reservation());
            self.waiting = self.waiting.saturating_sub(1);
        }
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
    /// Room of a part of the machine's memory. `user` is for its work.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new(user: ClassUser) -> Result<Arc<Self>> {
        Self::with_limit(Some(user), sunrpc::total_pages() / PART)
    }

    fn with_limit(user: Option<ClassUser>, limit: u32) -> Result<Arc<Self>> {
        let room = pin_init!(Self {
            state <- new_spinlock!(State {
                budget: PageBudget::new(limit),
                connections: RBTree::new(),
                line: RBTree::new(),
                last: 0,
                waiting: 0,
            }, "rpcrdma_room"),
            is_empty <- new_condvar!("rpcrdma_room"),
            work <- new_work!("rpcrdma_room"),
            is_watched: Atomic::new(false),
            began: Moment::now(),
            user,
        });
        Arc::pin_init(room, GFP_KERNEL)
    }

    /// Adds a connection, with a number that no other one in the room has. It can wait for pages
    /// once at a time. May sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, or `EEXIST` if there is one with that number.
    pub(super) fn enter(&self, number: u32, connection: Arc<dyn Waiter>) -> Result {
        let place = Place {
            connection,
            node: Some(RBTreeNodeReservation::new(GFP_KERNEL)?),
            key: 0,
            pages: 0,
        };
        let node = RBTreeNode::new(number, place, GFP_KERNEL)?;
        let mut state = self.state.lock();
        if state.connections.get(&number).is_some() {
            // `node` may have the last reference.
            drop(state);
            return Err(EEXIST);
        }
        state.connections.insert(node);
        Ok(())
    }

    /// Removes a connection that has ended.
    pub(super) fn leave(&self, number: u32) {
        self.withdraw(number);
        let mut state = self.state.lock();
        let place = state.connections.remove_node(&number);
        let is_empty = state.connections.is_empty();
        drop(state);
        drop(place);
        if is_empty {
            self.is_empty.notify_all();
        }
    }

    /// Ends the wait of a connection, if it waits, which does not take the pages even if it was
    /// admitted. When this returns nobody is still waking or ending it. Does not sleep.
    pub(super) fn withdraw(&self, number: u32) {
        let mut state = self.state.lock();
        state.withdraw(number);
        // Those behind it may need less.
        self.admit(state);
    }

    /// Looks for stuck connections, repeatedly as long as others wait, or any has work requests.
    fn watch(&self) {
        // Not to be begun anew with every Reply.
        let mut is_needed = true;
        loop {
            is_needed |= self.end_stuck();
            let mut state = self.state.lock();
            is_needed |= state.waiting != 0;
            if is_needed && !state.connections.is_empty() {
                let pause = msecs_to_jiffies(LOOK_PAUSE_MS);
                // It does not matter what ends the wait.
                let _ = self.is_empty.wait_interruptible_timeout(&mut state, pause);
                is_needed = false;
                continue;
            }
            self.is_watched.store(false, Relaxed);
            drop(state);
            // Whoever has taken slots since the last look may have found the work still there. Who
            // takes some behind this one, and the lock that is taken for it, finds it gone.
            let is_sending = self.all().any(|connection| connection.is_sending());
            if !is_sending || self.is_watched.xchg(true, Full) {
                return;
            }
        }
    }

    /// Has the work look for stuck connections, if it does not. Behind what it is to see.
    pub(super) fn look_later(this: &Arc<Self>) {
        if !this.is_watched.load(Relaxed) {
            Self::begin_to_look(this);
        }
    }

    fn begin_to_look(this: &Arc<Self>) {
        if let (Some(user), false) = (&this.user, this.is_watched.xchg(true, Full)) {
            // `is_watched` says that the work is not queued yet.
            let _ = user.enqueue(this.clone());
        }
    }

    /// Nanoseconds since the room began.
    pub(super) fn now(&self) -> u64 {
        Moment::now().since(self.began)
    }

    /// Ends connections that are stuck. Returns whether any connection has work requests that have
    /// not completed.
    fn end_stuck(&self) -> bool {
        let now = self.now();
        let others_wait = self.state.lock().waiting != 0;
        let mut is_sending = false;
        for connection in self.all() {
            is_sending |= connection.is_sending();
            if connection.is_stuck(now, others_wait) {
                let _state = self.state.lock();
                connection.end();
            }
        }
        is_sending
    }

    /// All connections, which are used and dropped without the lock: each may be the last
    /// reference, also to the listener's files.
    fn all(&self) -> impl Iterator<Item = Arc<dyn Waiter>> + '_ {
        let mut next = Some(0);
        core::iter::from_fn(move || {
            let (number, connection) = self.from(next?)?;
            next = number.checked_add(1);
            Some(connection)
        })
    }

    /// The first connection with this number or a higher one.
    fn from(&self, number: u32) -> Option<(u32, Arc<dyn Waiter>)> {
        let state = self.state.lock();
        let cursor = state.connections.cursor_lower_bound(&number)?;
        let (number, place) = cursor.current();
        Some((*number, place.connection.clone()))
    }

    /// Takes `pages` pages, if they are there and nobody waits.
    #[must_use]
    pub(super) fn try_take(&self, pages: u32) -> bool {
        self.state.lock().take(pages)
    }

    /// Takes `pages` pages, or has the connection, which does not wait yet, wait for them.
    #[must_use]
    pub(super) fn take(this: &Arc<Self>, number: u32, pages: u32) -> bool {
        let mut state = this.state.lock();
        if state.take(pages) {
            return true;
        }
        state.queue(number, pages);
        drop(state);
        Self::look_later(this);
        false
    }

    /// Takes the pages that a connection has waited for; returns whether they are there.
    #[must_use]
    pub(super) fn take_admitted(&self, number: u32) -> bool {
        let mut state = self.state.lock();
        let place = state.connections.get_mut(&number);
        let admitted = place.filter(|place| place.node.is_some());
        admitted.is_some_and(|place| core::mem::take(&mut place.pages) != 0)
    }

    /// Gives pages back. Does not sleep.
    pub(super) fn give_back(&self, pages: u32) {
        let mut state = self.state.lock();
        state.budget.give_back(pages);
        if state.waiting != 0 {
            self.admit(state);
        }
    }

    /// Admits waiting connections in order, as far as there is room.
    fn admit<'a>(&'a self, mut state: SpinLockGuard<'a, State>) {
        while let Some(connection) = state.admit() {
            connection.wake();
            drop(state);
            drop(connection);
            state = self.state.lock();
        }
    }

    /// The pages that Calls have, and how many connections wait.
    pub(super) fn usage(&self) -> (PageBudget, usize) {
        let state = self.state.lock();
        (state.budget, state.waiting)
    }
}

#[cfg(rpcrdma_kunit)]
#[kernel::macros::kunit_tests(rpcrdma_server_room)]
mod tests {
    use super::*;

    struct Tester {
        woken: Atomic<u32>,
        is_stuck: Atomic<bool>,
        has_ended: Atomic<bool>,
    }

    impl Waiter for Tester {
        fn wake(&self) {
            self.woken.fetch_add(1, Relaxed);
        }

        fn is_stuck(&self, _now: u64, _others_wait: bool) -> bool {
            self.is_stuck.load(Relaxed)
        }

        fn is_sending(&self) -> bool {
            self.is_stuck.load(Relaxed)
        }

        fn end(&self) {
            self.has_ended.store(true, Relaxed);
        }
    }

    /// Adds three connections, with the numbers 0 to 2.
    fn testers(room: &Room) -> [Arc<Tester>; 3] {
        [0, 1, 2].map(|number| {
            let tester = Tester {
                woken: Atomic::new(0),
                is_stuck: Atomic::new(false),
                has_ended: Atomic::new(false),
            };
            let tester = Arc::new(tester, GFP_KERNEL).unwrap();
            room.enter(number, tester.clone()).unwrap();
            tester
        })
    }

    fn woken(testers: &[Arc<Tester>; 3]) -> [u32; 3] {
        testers.each_ref().map(|who| who.woken.load(Relaxed))
    }

    #[test]
    fn nobody_overtakes_who_waits() {
        let room = Room::with_limit(None, 10).unwrap();
        let all = testers(&room);
        assert!(Room::take(&room, 0, 8));
        assert!(!Room::take(&room, 0, 6));
        // This one would fit.
        assert!(!Room::take(&room, 1, 2));
        assert!(!room.try_take(1));
        assert!(!Room::take(&room, 2, 3));
        assert_eq!(room.usage().1, 3);
        room.give_back(8);
        assert_eq!(woken(&all), [1, 1, 0]);
        assert_eq!(
            [0, 0, 1, 2].map(|who| room.take_admitted(who)),
            [true, false, true, false]
        );
        // It leaves, and nobody waits any more.
        room.leave(2);
        assert_eq!(room.usage().1, 0);
        room.give_back(8);
        assert_eq!((room.usage().0.used(), room.usage().0.most()), (0, 8));
        assert_eq!(woken(&all), [1, 1, 0]);
    }

    #[test]
    fn who_leaves_the_line_lets_others_in() {
        let room = Room::with_limit(None, 10).unwrap();
        let all = testers(&room);
        assert!(Room::take(&room, 0, 5));
        assert!(!Room::take(&room, 0, 10));
        assert!(!Room::take(&room, 1, 5));
        room.leave(0);
        assert_eq!(woken(&all), [0, 1, 0]);
        assert!(room.take_admitted(1));
        assert!(!room.take_admitted(0));
    }

    #[test]
    fn what_was_waited_for_goes_back() {
        let room = Room::with_limit(None, 10).unwrap();
        let all = testers(&room);
        assert!(Room::take(&room, 0, 10));
        assert!(!Room::take(&room, 1, 6));
        assert!(!Room::take(&room, 2, 7));
        room.give_back(10);
        // It was admitted, but does not take the pages.
        assert_eq!((woken(&all), room.usage().0.used()), ([0, 1, 0], 6));
        room.withdraw(1);
        assert_eq!((woken(&all), room.usage().0.used()), ([0, 1, 1], 7));
        room.withdraw(1);
        assert!(!room.take_admitted(1) && room.take_admitted(2));
        // It may wait again.
        assert!(!Room::take(&room, 1, 4));
        room.give_back(7);
        assert!(room.take_admitted(1));
        assert_eq!(room.usage().0.used(), 4);
    }

    #[test]
    fn all_that_are_stuck_end() {
        let room = Room::with_limit(None, 10).unwrap();
        let all = testers(&room);
        let ended = || all.each_ref().map(|who| who.has_ended.load(Relaxed));
        for who in &all[1..] {
            who.is_stuck.store(true, Relaxed);
        }
        assert_eq!(ended(), [false; 3]);
        assert!(room.end_stuck());
        assert_eq!(ended(), [false, true, true]);
        for who in &all {
            who.is_stuck.store(false, Relaxed);
        }
        assert!(!room.end_stuck());
        assert!(room.enter(1, all[0].clone()) == Err(EEXIST));
        room.leave(1);
        assert!(room.enter(1, all[0].clone()) == Ok(()));
    }
}
