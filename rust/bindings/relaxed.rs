// SPDX-License-Identifier: GPL-2.0

//! Words that several threads share, read and written as `READ_ONCE()` and `WRITE_ONCE()` do.

use core::cell::UnsafeCell;
use kernel::sync::atomic::{Atomic, Relaxed};

/// A word whose accesses are all relaxed. No access both reads and writes, so whoever increments a
/// word must be its only writer.
///
/// An [`Atomic`] does the same, but by a function call on kernels that do not inline helpers into
/// Rust.
#[repr(transparent)]
pub(crate) struct RelaxedCell<T>(UnsafeCell<T>);

// SAFETY: Every access is to the whole word at once, see below.
unsafe impl<T: Send> Sync for RelaxedCell<T> {}

impl<T> RelaxedCell<T> {
    /// A word with this initial value.
    pub(crate) const fn new(value: T) -> Self {
        Self(UnsafeCell::new(value))
    }
}

/// Whether the CPU reads and writes a `T` by one access.
const fn is_native<T>() -> bool {
    size_of::<T>() <= size_of::<usize>()
}

/// An [`Atomic`] that is also read where the cost of a function call matters.
pub(crate) trait ReadOnce {
    /// The type of the value.
    type Value;

    /// Loads the value with relaxed ordering.
    fn read_once(&self) -> Self::Value;
}

macro_rules! read_once {
    ($($word:ty)*) => {$(
        impl ReadOnce for Atomic<$word> {
            type Value = $word;

            #[inline(always)]
            fn read_once(&self) -> $word {
                if !is_native::<$word>() {
                    return self.load(Relaxed);
                }
                // SAFETY: The pointer is valid. In the kernel's memory model volatile accesses to
                // native words are marked accesses, so concurrent ones are not a data race.
                unsafe { self.as_ptr().read_volatile() }
            }
        }
    )*};
}

read_once! { bool i32 u32 u64 }

macro_rules! relaxed_cells {
    ($($word:ty)*) => {$(
        impl RelaxedCell<$word> {
            /// The value.
            #[inline(always)]
            pub(crate) fn get(&self) -> $word {
                let ptr = self.0.get();
                // SAFETY: The pointer is valid, and the word is accessed only here and in `set`. In
                // the kernel's memory model volatile accesses to native words are marked accesses,
                // so concurrent ones are not a data race.
                unsafe {
                    if is_native::<$word>() {
                        ptr.read_volatile()
                    } else {
                        Atomic::from_ptr(ptr).load(Relaxed)
                    }
                }
            }

            /// Changes the value.
            #[inline(always)]
            pub(crate) fn set(&self, value: $word) {
                let ptr = self.0.get();
                // SAFETY: As in `get`.
                unsafe {
                    if is_native::<$word>() {
                        ptr.write_volatile(value);
                    } else {
                        Atomic::from_ptr(ptr).store(value, Relaxed);
                    }
                }
            }
        }
    )*};
}

relaxed_cells! { bool u32 u64 usize }
