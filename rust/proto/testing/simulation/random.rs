// SPDX-License-Identifier: GPL-2.0

//! Numbers that a seed decides, or an input.

/// The sequence of one seed (SplitMix64), in which an input may have made the first choices.
#[derive(Clone, Debug)]
pub(crate) struct Random<'a> {
    state: u64,
    /// What is left of the input.
    input: &'a [u8],
}

impl<'a> Random<'a> {
    /// Starts the sequence of `seed`.
    pub(crate) const fn new(seed: u64) -> Self {
        Self {
            state: seed,
            input: &[],
        }
    }

    /// Has `input` choose, as far as it goes, and one seed behind it, with which every run ends.
    #[cfg(not(rpcrdma_kunit))]
    pub(crate) const fn with_input(input: &'a [u8]) -> Self {
        Self { state: 0, input }
    }

    /// The next 64 bits, which the input does not decide.
    pub(crate) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// The next 32 bits, which the input does not decide.
    pub(crate) fn word(&mut self) -> u32 {
        let [a, b, c, d, ..] = self.next().to_le_bytes();
        u32::from_le_bytes([a, b, c, d])
    }

    /// A number below `bound` by the input, which gives as many octets as that takes.
    fn chosen(&mut self, bound: u32) -> Option<u32> {
        let mut number = 0u32;
        let mut range = 1u64;
        while range < u64::from(bound) {
            let (octet, rest) = self.input.split_first()?;
            self.input = rest;
            number = number.wrapping_shl(8) | u32::from(*octet);
            range <<= 8;
        }
        number.checked_rem(bound)
    }

    /// A number below `bound`, or 0 if that is 0.
    pub(crate) fn below(&mut self, bound: u32) -> u32 {
        if let Some(number) = self.chosen(bound) {
            return number;
        }
        let scaled = u64::from(self.word()).wrapping_mul(u64::from(bound)) >> 32;
        u32::try_from(scaled).unwrap_or(0)
    }

    /// A number from `low` to `high`, both included.
    pub(crate) fn between(&mut self, low: u32, high: u32) -> u32 {
        let span = high.saturating_sub(low).saturating_add(1);
        low.saturating_add(self.below(span))
    }

    /// True once in `count` times.
    pub(crate) fn one_in(&mut self, count: u32) -> bool {
        self.below(count) == 0
    }

    /// One of the given values.
    pub(crate) fn pick<T: Copy>(&mut self, first: T, others: &[T]) -> T {
        let count = u32::try_from(others.len()).unwrap_or(0).saturating_add(1);
        let index = usize::try_from(self.below(count)).unwrap_or(0);
        let other = index.checked_sub(1).and_then(|index| others.get(index));
        other.copied().unwrap_or(first)
    }
}
