// SPDX-License-Identifier: GPL-2.0

//! The clock of sunrpc's requests.

use crate::bindings;

/// A `ktime_t` of the clock with which sunrpc times requests (`ktime_get()`).
#[derive(Clone, Copy)]
pub(crate) struct Ktime(i64);

impl Ktime {
    /// The present time.
    pub(crate) fn now() -> Self {
        // SAFETY: Always safe to call.
        Self::from_ktime(unsafe { bindings::ktime_get() })
    }

    /// From a `ktime_t` in C.
    pub(super) const fn from_ktime(ktime: i64) -> Self {
        Self(ktime)
    }

    /// Nanoseconds since `earlier`, 0 if that is later.
    pub(crate) fn since(self, earlier: Self) -> u64 {
        // Both are within 292 years from the start.
        u64::try_from(self.0.wrapping_sub(earlier.0)).unwrap_or(0)
    }
}
