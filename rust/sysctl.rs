// SPDX-License-Identifier: GPL-2.0

//! The administrator's settings in `/proc/sys/sunrpc`, which take effect for later mounts and
//! connections: those of the client.

pub(crate) mod server;

use crate::{bindings, proto::wire::header::Versions};
use kernel::{
    error::from_err_ptr,
    prelude::*,
    sync::atomic::{Atomic, Relaxed},
};

/// The settings of one end, registered until this object is dropped.
///
/// # Invariants
///
/// The header came from the only call of the function that registers the table.
pub(crate) struct Settings(*mut bindings::ctl_table_header);

// SAFETY: Any thread may unregister the settings.
unsafe impl Send for Settings {}
// SAFETY: No method takes `&self`.
unsafe impl Sync for Settings {}

impl Settings {
    /// Registers a table with `register`, but only the first time, as `was_registered` tells: /proc
    /// loses the first registration's files when it refuses a second one.
    ///
    /// # Safety
    ///
    /// `register` returns what it registered, or null for nothing, or an error. `was_registered`
    /// belongs to that table alone.
    unsafe fn new(
        register: unsafe extern "C" fn() -> *mut bindings::ctl_table_header,
        was_registered: &Atomic<bool>,
    ) -> Result<Self> {
        if was_registered.xchg(true, Relaxed) {
            return Err(EBUSY);
        }
        // SAFETY: As the flag was not set, the table is not registered. May sleep.
        let header = from_err_ptr(unsafe { register() })?;
        // INVARIANT: This is the only call.
        Ok(Self(header))
    }
}

impl Drop for Settings {
    fn drop(&mut self) {
        // SAFETY: By the type's invariant. Nothing is done for a null pointer.
        unsafe { bindings::rpcrdma_sysctl_unregister(self.0) };
    }
}

/// Registers the client's settings. They exist with `CONFIG_SUNRPC_DEBUG` only; without it there
/// are none, which is not an error.
///
/// # Errors
///
/// `EBUSY` the second time; `ENOMEM`.
pub(crate) fn register() -> Result<Settings> {
    static WAS_REGISTERED: Atomic<bool> = Atomic::new(false);
    // SAFETY: The function registers the client's table, and the flag is its own.
    unsafe { Settings::new(bindings::rpcrdma_sysctl_register, &WAS_REGISTERED) }
}

/// The number of Calls that a new mount can have outstanding, and of credits that it requests, 4 to
/// 16384.
pub(crate) fn slot_table_entries() -> u32 {
    // SAFETY: Reads one word.
    unsafe { bindings::rpcrdma_slot_table_entries() }
}

/// The largest message that a new connection can receive, 1024 to 65536 bytes.
pub(crate) fn max_inline_read() -> u32 {
    // SAFETY: Reads one word.
    unsafe { bindings::rpcrdma_max_inline_read() }
}

/// The largest message that a new connection can send, 1024 to 65536 bytes.
pub(crate) fn max_inline_write() -> u32 {
    // SAFETY: Reads one word.
    unsafe { bindings::rpcrdma_max_inline_write() }
}

/// Whether a new connection speaks Version Two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VersionTwo {
    /// It does not.
    Off,
    /// It does if the other end does.
    Offered,
    /// It speaks nothing else.
    Required,
}

impl VersionTwo {
    /// The versions that a connection may speak then.
    pub(crate) const fn versions(self) -> Versions {
        match self {
            Self::Off => Versions::ONE,
            Self::Offered => Versions::ONE_AND_TWO,
            Self::Required => Versions::TWO,
        }
    }
}

impl From<bindings::rpcrdma_version_two> for VersionTwo {
    fn from(setting: bindings::rpcrdma_version_two) -> Self {
        match setting {
            bindings::rpcrdma_version_two_RPCRDMA_VERSION_TWO_OFFERED => Self::Offered,
            bindings::rpcrdma_version_two_RPCRDMA_VERSION_TWO_REQUIRED => Self::Required,
            _ => Self::Off,
        }
    }
}

/// Whether a new connection speaks Version Two, and a number that changes with each write of the
/// setting.
pub(crate) fn version_two() -> (VersionTwo, u32) {
    // SAFETY: Each reads one word.
    let (setting, writes) = unsafe {
        (
            bindings::rpcrdma_version_two(),
            bindings::rpcrdma_version_two_writes(),
        )
    };
    (setting.into(), writes)
}

#[cfg(rpcrdma_kunit)]
#[kernel::macros::kunit_tests(rpcrdma_settings)]
mod tests {
    use super::*;

    // The module itself has registered its settings when its tests run.
    #[test]
    fn a_second_registration_is_refused() {
        assert_eq!(register().err(), Some(EBUSY));
    }
}
