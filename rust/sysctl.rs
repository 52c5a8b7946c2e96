// SPDX-License-Identifier: GPL-2.0

//! The administrator's settings in `/proc/sys/sunrpc`, which later mounts and connections use.

use crate::bindings;
use kernel::{error::from_err_ptr, prelude::*};

/// The settings, as long as they can be changed.
///
/// # Invariants
///
/// The pointer came from `rpcrdma_sysctl_register`.
pub(crate) struct Settings(*mut bindings::ctl_table_header);

// SAFETY: Settings may be taken back from any thread.
unsafe impl Send for Settings {}
// SAFETY: No method takes `&self`.
unsafe impl Sync for Settings {}

impl Settings {
    /// Shows the settings. Without `CONFIG_SUNRPC_DEBUG` there are none, which is no error.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, also while there is another object of this type.
    pub(crate) fn new() -> Result<Self> {
        // SAFETY: May sleep.
        let header = from_err_ptr(unsafe { bindings::rpcrdma_sysctl_register() })?;
        // INVARIANT: Just registered.
        Ok(Self(header))
    }
}

impl Drop for Settings {
    fn drop(&mut self) {
        // SAFETY: By the type's invariant.
        unsafe { bindings::rpcrdma_sysctl_unregister(self.0) };
    }
}

/// Calls that a new mount can have outstanding, and the credits it asks for, 4 to 16384.
pub(crate) fn slot_table_entries() -> u32 {
    // SAFETY: Reads one word.
    unsafe { bindings::rpcrdma_slot_table_entries() }
}

/// The largest message that a new connection can receive, 1024 to 65536 bytes.
pub(crate) fn max_inline_read() -> u32 {
    // SAFETY: Reads one word.
    unsafe { bindings::rpcrdma_max_inline_read() }
}

/// Calls that a client of this machine's service can have outstanding, 4 to 16384.
pub(crate) fn max_requests() -> u32 {
    128
}

/// The largest message of a client of this machine's service, and of the Replies, 4096 to 65536 bytes.
pub(crate) fn max_request_size() -> u32 {
    4096
}

/// The largest message that a new connection can send, 1024 to 65536 bytes.
pub(crate) fn max_inline_write() -> u32 {
    // SAFETY: Reads one word.
    unsafe { bindings::rpcrdma_max_inline_write() }
}
