// SPDX-License-Identifier: GPL-2.0

//! Words that several threads share, read and written as `READ_ONCE()` and `WRITE_ONCE()` do.

use kernel::sync::atomic::{Atomic, AtomicType, Relaxed};

/// A word whose accesses are all relaxed. No access both reads and writes, so whoever increments a
/// word must be its only writer.
pub(crate) struct RelaxedCell<T: AtomicType>(Atomic<T>);

impl<T: AtomicType> RelaxedCell<T> {
    /// A word with this initial value.
    pub(crate) const fn new(value: T) -> Self {
        Self(Atomic::new(value))
    }
}

macro_rules! relaxed_cells {
    ($($word:ty)*) => {$(
        impl RelaxedCell<$word> {
            /// The value.
            pub(crate) fn get(&self) -> $word {
                self.0.load(Relaxed)
            }

            /// Changes the value.
            pub(crate) fn set(&self, value: $word) {
                self.0.store(value, Relaxed);
            }
        }
    )*};
}

relaxed_cells! { bool u32 u64 usize }
