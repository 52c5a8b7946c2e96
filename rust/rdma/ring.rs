// SPDX-License-Identifier: GPL-2.0

//! Which slot of the send ring the next Send takes.

/// The interval of signalled Sends: one Send in this many requests a completion.
pub(crate) const MAX_UNSIGNALED: u32 = 16;

/// The number of Sends after which a ring with this many slots reaches the same slot again.
pub(super) fn span(slots: u32) -> u32 {
    slots.checked_next_power_of_two().unwrap_or(1 << 31)
}

/// The order in which Sends take the slots of a ring.
///
/// Sends are numbered, and Send `number` takes slot `number % span`. The first slots have a buffer
/// from the start; others are given one when few of those before them are free. Numbers whose slot
/// has no buffer are skipped.
///
/// # Invariants
///
/// `span` is a power of two, and no smaller than `max`. The slots of the numbers from `next` up to,
/// but not including, `limit` have a buffer, and every earlier Send from them has completed.
pub(super) struct Ring {
    span: u32,
    /// How many slots can have a buffer.
    max: u32,
    /// How many slots have a buffer, counted from the first; at least one.
    buffers: u32,
    /// How many slots should have a buffer.
    wanted: u32,
    next: u32,
    limit: u32,
}

impl Ring {
    /// A ring of `max` slots from which nothing was sent. The first `buffers` have a buffer.
    pub(super) fn new(max: u32, buffers: u32) -> Self {
        // INVARIANT: The range from `next` to `limit` is empty.
        Self {
            span: span(max),
            max,
            buffers,
            wanted: buffers,
            next: 0,
            limit: 0,
        }
    }

    /// The number of the next Send.
    pub(super) fn next(&self) -> u32 {
        self.next
    }

    /// The slot of the next Send. There must be room for it.
    pub(super) fn slot(&self) -> u32 {
        self.next & self.span.wrapping_sub(1)
    }

    /// Advances to the next number. There must be room for the present one.
    pub(super) fn advance(&mut self) {
        // INVARIANT: `next` is below `limit`, so fewer numbers are left.
        self.next = self.next.wrapping_add(1);
    }

    /// Whether there is a buffer for the next Send. `completed` returns the number of the first
    /// Send that is not known to have completed; `add` allocates a buffer for a slot, if it can.
    pub(super) fn has_room(
        &mut self,
        completed: impl FnOnce() -> u32,
        add: impl FnOnce(u32) -> bool,
    ) -> bool {
        if self.next == self.limit {
            self.look(completed(), add);
        }
        self.next != self.limit
    }

    /// Takes account of the Sends that have completed, and adds a buffer if the next slot needs
    /// one.
    fn look(&mut self, completed: u32, add: impl FnOnce(u32) -> bool) {
        let mut index = self.slot();
        if index == self.buffers {
            let first = self.next.wrapping_add(self.span.wrapping_sub(index));
            let free = self.span.saturating_sub(first.wrapping_sub(completed));
            // A burst of Calls should not have to wait for completions.
            let is_short = free < MAX_UNSIGNALED || self.buffers < self.wanted;
            if is_short && self.buffers < self.max && add(index) {
                self.buffers = self.buffers.saturating_add(1);
            } else if free != 0 {
                self.next = first;
                index = 0;
            }
        }
        let free = completed.wrapping_add(self.span).wrapping_sub(self.next);
        let with_buffer = self.buffers.saturating_sub(index);
        // INVARIANT: For the numbers below `completed + span`, the previous Send from the slot has
        // completed.
        self.limit = self.next.wrapping_add(free.min(with_buffer));
        if self.limit == self.next {
            // Sends are waiting, so twice as many buffers are wanted once the last one is reached.
            self.wanted = self.buffers.saturating_mul(2);
        }
    }
}

#[cfg(rpcrdma_kunit)]
#[kernel::macros::kunit_tests(rpcrdma_ring)]
mod tests {
    use super::*;

    /// The largest number of slots in a test.
    const SLOTS: usize = 64;

    /// A ring in use.
    struct Work {
        ring: Ring,
        /// The Send for which the device holds each slot's buffer.
        slots: [Option<u32>; SLOTS],
        /// The outstanding Sends, the oldest first.
        posted: [u32; SLOTS],
        count: usize,
        completed: u32,
        /// Whether there is memory for more buffers.
        memory: bool,
        buffers: u32,
    }

    impl Work {
        /// A ring whose next number is `start`, a multiple of its span.
        fn new(max: u32, buffers: u32, start: u32) -> Self {
            let mut ring = Ring::new(max, buffers);
            ring.next = start;
            ring.limit = start;
            Self {
                ring,
                slots: [None; SLOTS],
                posted: [0; SLOTS],
                count: 0,
                completed: start,
                memory: true,
                buffers,
            }
        }

        fn slot(&mut self, number: u32) -> &mut Option<u32> {
            // A power of two; the kernel's objtool does not know the panic of a division by zero.
            let index = number & self.ring.span.wrapping_sub(1);
            let index = usize::try_from(index).unwrap();
            self.slots.get_mut(index).unwrap()
        }

        /// Sends, if there is room.
        fn send(&mut self) -> bool {
            let (completed, memory, buffers) = (self.completed, self.memory, &mut self.buffers);
            let has_room = self.ring.has_room(
                || completed,
                |index| {
                    assert_eq!(index, *buffers);
                    *buffers += u32::from(memory);
                    memory
                },
            );
            if has_room {
                let number = self.ring.next();
                assert!(self.ring.slot() < self.buffers);
                assert_eq!(self.slot(number).replace(number), None);
                *self.posted.get_mut(self.count).unwrap() = number;
                self.count += 1;
                self.ring.advance();
            }
            has_room
        }

        /// Completes the `count` oldest Sends.
        fn complete(&mut self, count: usize) {
            let count = count.min(self.count);
            for index in 0..count {
                let number = *self.posted.get(index).unwrap();
                assert_eq!(self.slot(number).take(), Some(number));
                self.completed = number.wrapping_add(1);
            }
            self.posted.copy_within(count.., 0);
            self.count -= count;
        }

        /// Sends as long as there is room; returns how many Sends are then outstanding.
        fn fill(&mut self) -> usize {
            while self.send() {}
            self.count
        }
    }

    /// Shortly before the numbers wrap around.
    const LATE: u32 = 0u32.wrapping_sub(256);

    #[test]
    fn all_slots_are_used_before_sends_wait() {
        let mut work = Work::new(64, 32, LATE);
        assert_eq!(work.fill(), 64);
        work.complete(5);
        assert_eq!(work.fill(), 64);
        assert_eq!(work.buffers, 64);
    }

    #[test]
    fn few_sends_need_no_more_buffers() {
        let mut work = Work::new(64, 32, LATE);
        for _ in 0..1000 {
            for _ in 0..8 {
                assert!(work.send());
            }
            // The completion of the others is not known yet.
            work.complete(work.count.saturating_sub(8));
        }
        assert_eq!(work.buffers, 32);
    }

    #[test]
    fn a_burst_on_a_new_connection_does_not_wait() {
        for before in 0..16 {
            let mut work = Work::new(64, 32, LATE);
            for _ in 0..before {
                assert!(work.send());
            }
            work.complete(before);
            for _ in 0..48 {
                assert!(work.send());
            }
        }
    }

    #[test]
    fn without_memory_the_first_buffers_go_round() {
        let mut work = Work::new(64, 32, LATE);
        work.memory = false;
        for _ in 0..100 {
            assert_eq!(work.fill(), 32);
            work.complete(3);
        }
        // Once there is memory, each completion makes room for one Send.
        work.memory = true;
        for _ in 0..200 {
            work.fill();
            work.complete(1);
        }
        assert_eq!(work.buffers, 64);
    }

    #[test]
    fn there_are_no_more_buffers_than_slots() {
        let mut work = Work::new(40, 32, LATE);
        for _ in 0..100 {
            work.fill();
            work.complete(3);
        }
        assert_eq!(work.fill(), 40);
        assert_eq!(work.buffers, 40);
    }

    #[test]
    fn a_small_ring_has_all_buffers() {
        let mut work = Work::new(4, 4, LATE);
        for _ in 0..100 {
            assert_eq!(work.fill(), 4);
            work.complete(3);
        }
        assert_eq!(work.buffers, 4);
    }

    #[test]
    fn no_slot_is_taken_twice() {
        let mut random = 12345u32;
        for _ in 0..100 {
            let mut work = Work::new(64, 8, LATE);
            for _ in 0..100 {
                // Marsaglia's xorshift.
                random ^= random << 13;
                random ^= random >> 17;
                random ^= random << 5;
                work.memory = random % 7 == 0;
                for _ in 0..random % 23 {
                    assert!(work.send() || work.count >= 8);
                }
                work.complete(usize::try_from((random >> 8) % 23).unwrap());
            }
            assert!(work.buffers > 8);
        }
    }
}
