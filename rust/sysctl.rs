// SPDX-License-Identifier: GPL-2.0

//! The administrator's settings in `/proc/sys/sunrpc`, which later mounts and connections use.

use crate::bindings;
use kernel::{error::to_result, prelude::*};

/// The settings, as long as they can be changed.
pub(crate) struct Settings(());

impl Settings {
    /// Shows the settings. Without `CONFIG_SUNRPC_DEBUG` there are none, which is no error.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new() -> Result<Self> {
        // SAFETY: Called once, when the module is loaded.
        to_result(unsafe { bindings::rpcrdma_sysctl_register() })?;
        Ok(Self(()))
    }
}

impl Drop for Settings {
    fn drop(&mut self) {
        // SAFETY: `new` has registered them.
        unsafe { bindings::rpcrdma_sysctl_unregister() };
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

/// The largest message that a new connection can send, 1024 to 65536 bytes.
pub(crate) fn max_inline_write() -> u32 {
    // SAFETY: Reads one word.
    unsafe { bindings::rpcrdma_max_inline_write() }
}
