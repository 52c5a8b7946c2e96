// SPDX-License-Identifier: GPL-2.0

//! Accounting for a send queue on which several threads post.

use kernel::{
    new_condvar, new_spinlock,
    prelude::*,
    sync::{
        atomic::{Atomic, Relaxed},
        CondVar, CondVarTimeoutResult, SpinLock, SpinLockGuard,
    },
    time::{msecs_to_jiffies, Jiffies},
};

/// Why there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoRoom {
    /// That is more than the queue holds.
    TooMany,
    /// There is no room at present.
    Full,
    /// Nothing has completed for [`TIME_LIMIT`], or too little for [`WHOLE_TIME_LIMIT`].
    TimedOut,
    /// The connection is ending.
    Closed,
}

/// What is done where there is no room.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Sleep until there is.
    Wait,
    /// Fail, also where there is room for which others wait.
    Yield,
    /// Fail, but do not leave room to those who wait: they could take all of it for ever.
    Overtake,
}

impl Patience {
    /// That of messages which leave room to those who wait.
    pub(crate) fn of(may_wait: bool) -> Self {
        if may_wait {
            Self::Wait
        } else {
            Self::Yield
        }
    }
}

/// How long a thread waits while nothing on the queue completes, in milliseconds. Sends to a peer
/// that posts no Receives can be repeated for ever; it must not tie up threads that serve others.
const TIME_LIMIT: u32 = 10_000;

/// How long it waits in all, in milliseconds: a peer may let something complete now and then.
const WHOLE_TIME_LIMIT: u32 = 60_000;

/// What one message waits for, time and again.
#[derive(Default)]
pub(super) struct SlotWait {
    /// [`State::returned`] at the last call of [`SendSlots::wait`].
    seen: Option<u32>,
    /// What is left of [`WHOLE_TIME_LIMIT`], in jiffies; `None` before the first sleep.
    left: Option<Jiffies>,
    /// What is left of [`TIME_LIMIT`], in jiffies, unless something has completed, and what
    /// [`State::returned`] was then; `None` if something has.
    quiet: Option<(Jiffies, u32)>,
}

/// The right to map transfers that take memory regions: two threads that both need more regions
/// would wait for each other.
pub(super) struct Turn<'a>(&'a SendSlots);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.state.lock().is_mapping = false;
        self.0.notify();
    }
}

/// The free and used slots of a send queue, one for each work request.
#[pin_data]
pub(crate) struct SendSlots {
    #[pin]
    state: SpinLock<State>,
    #[pin]
    changed: CondVar,
    /// Threads that are waiting for room, and those that are waiting for their [`Turn`].
    waiting: Atomic<u32>,
    waiting_turns: Atomic<u32>,
}

struct State {
    /// The capacity of the queue.
    total: u32,
    free: u32,
    /// The lowest number of slots that were ever free.
    least: u32,
    /// Counts the slots that were returned.
    returned: u32,
    /// A value of `returned` and when [`Self::is_quiet`] first saw it; `None` if no slots were in
    /// use.
    seen: Option<(u32, u64)>,
    /// What `returned` will be when all slots are returned that were in use at a call of
    /// [`Self::is_late`], and when that was; `None` if none were.
    expected: Option<(u32, u64)>,
    /// Whether somebody has the [`Turn`].
    is_mapping: bool,
    is_closed: bool,
}

impl State {
    /// Slots in use.
    fn used(&self) -> u32 {
        self.total.saturating_sub(self.free)
    }

    /// Takes `count` slots, if they are free.
    fn take(&mut self, count: u32) -> bool {
        let Some(free) = self.free.checked_sub(count) else {
            return false;
        };
        self.free = free;
        self.least = self.least.min(free);
        true
    }

    /// Whether slots are in use, and none was returned between calls that were at least
    /// [`TIME_LIMIT`] apart; `now` is in nanoseconds.
    fn is_quiet(&mut self, now: u64) -> bool {
        let seen = self.seen.filter(|(seen, _)| *seen == self.returned);
        let seen = seen.unwrap_or((self.returned, now));
        self.seen = (self.used() != 0).then_some(seen);
        self.seen
            .is_some_and(|(_, since)| is_over(since, now, TIME_LIMIT))
    }

    /// The same of slots that were in use at a call and were not all returned at another one,
    /// [`WHOLE_TIME_LIMIT`] later. Requests of a queue are executed in order: if one hangs, so do
    /// those behind it.
    fn is_late(&mut self, now: u64) -> bool {
        let used = self.used();
        // Those in use then are at most as many as are in use now, unless all were returned.
        let is_left = |expected: u32| (1..=used).contains(&expected.wrapping_sub(self.returned));
        let expected = self.expected.filter(|(expected, _)| is_left(*expected));
        let expected = expected.unwrap_or((self.returned.wrapping_add(used), now));
        self.expected = (used != 0).then_some(expected);
        self.expected
            .is_some_and(|(_, since)| is_over(since, now, WHOLE_TIME_LIMIT))
    }
}

/// Whether `limit` milliseconds have passed since a time; both times are in nanoseconds.
fn is_over(since: u64, now: u64, limit: u32) -> bool {
    now.saturating_sub(since) >= u64::from(limit).saturating_mul(1_000_000)
}

impl SendSlots {
    /// Slots of which none can be taken before [`Self::open`].
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            state <- new_spinlock!(State {
                total: 0,
                free: 0,
                least: 0,
                returned: 0,
                seen: None,
                expected: None,
                is_mapping: false,
                is_closed: false,
            }, "rpcrdma_send_slots"),
            changed <- new_condvar!("rpcrdma_send_slots"),
            waiting: Atomic::new(0),
            waiting_turns: Atomic::new(0),
        })
    }

    /// Sets the capacity to `total` work requests, now that there is a queue.
    pub(super) fn open(&self, total: u32) {
        let mut state = self.state.lock();
        (state.total, state.free, state.least) = (total, total, total);
    }

    /// Takes slots for `count` work requests if they are free, and not left to others.
    #[must_use]
    pub(super) fn try_take(&self, count: u32, patience: Patience) -> bool {
        let mut state = self.state.lock();
        !state.is_closed && (patience != Patience::Yield || !self.is_awaited()) && state.take(count)
    }

    /// Takes slots for `count` work requests. If they are not free at first, `is_full` is called,
    /// under the lock, with the number of slots in use and the capacity.
    ///
    /// # Errors
    ///
    /// [`NoRoom::TimedOut`] only with [`Patience::Wait`], [`NoRoom::Full`] only without.
    pub(super) fn take(
        &self,
        count: u32,
        patience: Patience,
        wait: &mut SlotWait,
        is_full: impl FnOnce(u32, u32),
    ) -> Result<(), NoRoom> {
        if self.try_take(count, patience) {
            return Ok(());
        }
        let mut state = self.state.lock();
        if count > state.total {
            return Err(NoRoom::TooMany);
        }
        if patience != Patience::Wait {
            if state.is_closed {
                return Err(NoRoom::Closed);
            }
            is_full(state.used(), state.total);
            return Err(NoRoom::Full);
        }
        let mut is_full = Some(is_full);
        while !state.is_closed {
            if state.take(count) {
                return Ok(());
            }
            if let Some(is_full) = is_full.take() {
                is_full(state.used(), state.total);
            }
            self.sleep(&mut state, wait, &self.waiting)?;
        }
        Err(NoRoom::Closed)
    }

    /// Takes the turn to map transfers; with `wait`, sleeps until nobody has it.
    ///
    /// # Errors
    ///
    /// As [`Self::take`], but for [`NoRoom::TooMany`].
    pub(super) fn turn(&self, mut wait: Option<&mut SlotWait>) -> Result<Turn<'_>, NoRoom> {
        let mut state = self.state.lock();
        while !state.is_closed {
            if !core::mem::replace(&mut state.is_mapping, true) {
                return Ok(Turn(self));
            }
            let wait = wait.as_mut().ok_or(NoRoom::Full)?;
            self.sleep(&mut state, wait, &self.waiting_turns)?;
        }
        Err(NoRoom::Closed)
    }

    /// Waits until others have returned slots, and with them the other resources that they used,
    /// since the last call with the same `wait`. The first call does not wait: what is lacking may
    /// have been returned since the caller looked. Sleeps.
    ///
    /// # Errors
    ///
    /// [`NoRoom::TooMany`] if nobody will return any, as no slot is in use; [`NoRoom::TimedOut`];
    /// [`NoRoom::Closed`].
    pub(super) fn wait(&self, wait: &mut SlotWait) -> Result<(), NoRoom> {
        let mut state = self.state.lock();
        while !state.is_closed {
            if wait.seen != Some(state.returned) {
                wait.seen = Some(state.returned);
                return Ok(());
            }
            if state.free == state.total {
                return Err(NoRoom::TooMany);
            }
            self.sleep(&mut state, wait, &self.waiting)?;
        }
        Err(NoRoom::Closed)
    }

    /// Sleeps until something has changed, for as long as `wait` allows, as one of those that
    /// `waiting` counts.
    ///
    /// # Errors
    ///
    /// [`NoRoom::TimedOut`].
    fn sleep(
        &self,
        state: &mut SpinLockGuard<'_, State>,
        wait: &mut SlotWait,
        waiting: &Atomic<u32>,
    ) -> Result<(), NoRoom> {
        let before = state.returned;
        let left = (wait.left).unwrap_or_else(|| msecs_to_jiffies(WHOLE_TIME_LIMIT));
        // Something may have completed since the last sleep as well.
        let quiet = wait.quiet.filter(|&(_, returned)| returned == before);
        let quiet = quiet.map_or_else(|| msecs_to_jiffies(TIME_LIMIT), |(quiet, _)| quiet);
        let limit = quiet.min(left);
        waiting.fetch_add(1, Relaxed);
        let woken = self.changed.wait_interruptible_timeout(state, limit);
        waiting.fetch_sub(1, Relaxed);
        let rest = match woken {
            CondVarTimeoutResult::Woken { jiffies } => jiffies,
            // Threads of a service take no signals. One with a pending signal could not sleep any
            // more.
            CondVarTimeoutResult::Timeout | CondVarTimeoutResult::Signal { .. } => 0,
        };
        let slept = limit.saturating_sub(rest);
        let (left, quiet) = (left.saturating_sub(slept), quiet.saturating_sub(slept));
        // Nothing can complete if nothing is outstanding.
        let has_changed = state.is_closed || state.returned != before || state.used() == 0;
        wait.left = Some(left);
        wait.quiet = (!has_changed).then_some((quiet, before));
        match left == 0 || (quiet == 0 && !has_changed) {
            true => Err(NoRoom::TimedOut),
            false => Ok(()),
        }
    }

    /// Returns slots. Does not sleep.
    pub(super) fn give_back(&self, count: u32) {
        let mut state = self.state.lock();
        state.free = state.free.saturating_add(count);
        state.returned = state.returned.wrapping_add(count);
        drop(state);
        self.notify();
    }

    /// Wakes those who wait, if there are any.
    fn notify(&self) {
        if self.is_awaited() || self.waiting_turns.load(Relaxed) != 0 {
            self.changed.notify_all();
        }
    }

    /// Whether slots are in use, and none was returned between calls that were at least
    /// [`TIME_LIMIT`] apart; `now` is in nanoseconds.
    pub(crate) fn is_quiet(&self, now: u64) -> bool {
        self.state.lock().is_quiet(now)
    }

    /// Whether slots are in use.
    pub(crate) fn is_in_use(&self) -> bool {
        self.state.lock().used() != 0
    }

    /// Whether slots were in use at an earlier call, and not all are returned
    /// [`WHOLE_TIME_LIMIT`] later: whether the peer lets next to nothing complete, though no thread
    /// waits for that. `now` is in nanoseconds.
    pub(crate) fn is_late(&self, now: u64) -> bool {
        self.state.lock().is_late(now)
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
        let most = state.total.saturating_sub(state.least);
        (state.used(), most, state.total)
    }
}

#[cfg(rpcrdma_kunit)]
#[kernel::macros::kunit_tests(rpcrdma_send_slots)]
mod tests {
    use super::*;
    use kernel::sync::Arc;

    fn take(slots: &SendSlots, count: u32, patience: Patience) -> Result<(), NoRoom> {
        slots.take(count, patience, &mut SlotWait::default(), |_, _| {})
    }

    #[test]
    fn a_queue_without_progress_is_stuck() {
        const LIMIT: u64 = 10_000_000_000;
        let slots = Arc::pin_init(SendSlots::new(), GFP_KERNEL).unwrap();
        slots.open(4);
        let stuck = |times: [u64; 3]| times.map(|now| slots.is_quiet(now));
        assert_eq!(stuck([0, LIMIT, 2 * LIMIT]), [false; 3]);
        assert_eq!(take(&slots, 2, Patience::Yield), Ok(()));
        assert_eq!(stuck([5, LIMIT, LIMIT + 5]), [false, false, true]);
        slots.give_back(1);
        assert_eq!(
            stuck([LIMIT + 6, LIMIT + 7, 2 * LIMIT + 6]),
            [false, false, true]
        );
        slots.give_back(1);
        assert_eq!(stuck([3 * LIMIT; 3]), [false; 3]);
        // What was seen before does not count for later requests.
        assert_eq!(take(&slots, 1, Patience::Yield), Ok(()));
        assert_eq!(
            stuck([4 * LIMIT, 4 * LIMIT + 1, 5 * LIMIT]),
            [false, false, true]
        );
    }

    #[test]
    fn a_queue_with_too_little_progress_is_stuck() {
        const SECOND: u64 = 1_000_000_000;
        let slots = Arc::pin_init(SendSlots::new(), GFP_KERNEL).unwrap();
        slots.open(8);
        // After how many looks, nine seconds apart, a queue with `used` slots in use is stuck, if
        // one is returned after every `pause` looks, and another one taken.
        let ends = |used: u32, pause: u64| {
            assert_eq!(take(&slots, used, Patience::Yield), Ok(()));
            let end = (0..60u64).find(|round| {
                let now = round * 9 * SECOND;
                let is_stuck = slots.is_quiet(now) || slots.is_late(now);
                if round % pause == 0 {
                    slots.give_back(1);
                    assert_eq!(take(&slots, 1, Patience::Yield), Ok(()));
                }
                is_stuck
            });
            slots.give_back(used);
            assert!(!slots.is_quiet(600 * SECOND) && !slots.is_late(600 * SECOND));
            end
        };
        assert_eq!(ends(1, 1), None);
        assert_eq!(ends(6, 1), None);
        assert_eq!(ends(8, 1), Some(7));
        assert_eq!(ends(1, 3), Some(3));
        // Who only looks now and then is not misled by a moment without progress.
        assert_eq!(take(&slots, 2, Patience::Yield), Ok(()));
        let late = [600, 659].map(|time| slots.is_late(time * SECOND));
        slots.give_back(1);
        assert_eq!(take(&slots, 1, Patience::Yield), Ok(()));
        assert_eq!((late, slots.is_late(660 * SECOND)), ([false; 2], true));
        slots.give_back(1);
        assert!(!slots.is_late(661 * SECOND));
    }

    #[test]
    fn what_completed_between_two_sleeps_renews_the_time() {
        let slots = Arc::pin_init(SendSlots::new(), GFP_KERNEL).unwrap();
        slots.open(2);
        assert_eq!(take(&slots, 2, Patience::Yield), Ok(()));
        // Of the time in which nothing has completed one jiffy is left, and of the whole `left`.
        // Returns what is left of that in the end.
        let left = |left| {
            let mut wait = SlotWait {
                left: Some(left),
                quiet: Some((1, 0)),
                ..SlotWait::default()
            };
            let taken = slots.take(1, Patience::Wait, &mut wait, |_, _| {});
            assert_eq!(taken, Err(NoRoom::TimedOut));
            wait.left
        };
        assert_eq!(left(5), Some(4));
        slots.give_back(1);
        assert_eq!(take(&slots, 1, Patience::Yield), Ok(()));
        assert_eq!(left(5), Some(0));
    }

    #[test]
    fn one_at_a_time_maps() {
        let slots = Arc::pin_init(SendSlots::new(), GFP_KERNEL).unwrap();
        slots.open(4);
        let turn = slots.turn(None);
        assert!(turn.is_ok());
        assert!(matches!(slots.turn(None), Err(NoRoom::Full)));
        drop(turn);
        assert!(slots.turn(None).is_ok());
        slots.close();
        assert!(matches!(slots.turn(None), Err(NoRoom::Closed)));
    }

    #[test]
    fn who_cannot_wait_does_not_overtake() {
        let slots = Arc::pin_init(SendSlots::new(), GFP_KERNEL).unwrap();
        slots.open(4);
        slots.waiting.store(1, Relaxed);
        assert_eq!(take(&slots, 1, Patience::Yield), Err(NoRoom::Full));
        assert_eq!(take(&slots, 1, Patience::Wait), Ok(()));
        assert_eq!(take(&slots, 1, Patience::Overtake), Ok(()));
        slots.waiting.store(0, Relaxed);
        assert_eq!(take(&slots, 1, Patience::Yield), Ok(()));
    }

    #[test]
    fn what_was_returned_while_nobody_waited_is_seen() {
        let slots = Arc::pin_init(SendSlots::new(), GFP_KERNEL).unwrap();
        slots.open(4);
        assert_eq!(take(&slots, 3, Patience::Yield), Ok(()));
        let mut wait = SlotWait::default();
        assert_eq!(slots.wait(&mut wait), Ok(()));
        // Another caller takes as many as come back.
        slots.give_back(1);
        assert_eq!(take(&slots, 1, Patience::Yield), Ok(()));
        assert_eq!(slots.wait(&mut wait), Ok(()));
        // The last ones come back before the next look.
        slots.give_back(3);
        assert_eq!(slots.wait(&mut wait), Ok(()));
        assert_eq!(slots.wait(&mut wait), Err(NoRoom::TooMany));
        slots.close();
        assert_eq!(slots.wait(&mut wait), Err(NoRoom::Closed));
    }
}
