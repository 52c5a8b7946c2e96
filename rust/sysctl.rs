// SPDX-License-Identifier: GPL-2.0

//! The administrator's settings in `/proc/sys/sunrpc`, which later mounts and connections use, and
//! the counters of the server's side that are there.

use crate::bindings;
use kernel::{error::from_err_ptr, prelude::*};

/// A table of settings, as long as they can be changed.
///
/// # Invariants
///
/// The pointer came from one of the functions that register a table.
struct Table(*mut bindings::ctl_table_header);

// SAFETY: Settings may be taken back from any thread.
unsafe impl Send for Table {}
// SAFETY: No method takes `&self`.
unsafe impl Sync for Table {}

impl Drop for Table {
    fn drop(&mut self) {
        // SAFETY: By the type's invariant. Nothing happens for a null pointer.
        unsafe { bindings::rpcrdma_sysctl_unregister(self.0) };
    }
}

/// The settings, as long as they can be changed, and the counters beside them.
pub(crate) struct Settings {
    _client: Table,
    _server: Table,
}

impl Settings {
    /// Shows the settings. Those of the client's side exist with `CONFIG_SUNRPC_DEBUG` only; that
    /// there are none is no error.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, also while there is another object of this type.
    pub(crate) fn new() -> Result<Self> {
        // INVARIANT: Each was just registered.
        // SAFETY: May sleep.
        unsafe {
            Ok(Self {
                _client: Table(from_err_ptr(bindings::rpcrdma_sysctl_register())?),
                _server: Table(from_err_ptr(bindings::rpcrdma_svc_sysctl_register())?),
            })
        }
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

/// Calls that a client of this machine's service can have outstanding, 4 to 16384.
pub(crate) fn max_requests() -> u32 {
    // SAFETY: Reads one word.
    unsafe { bindings::rpcrdma_svc_max_requests() }
}

/// The largest message of a client of this machine's service, and of the Replies, 4096 to 65536
/// bytes.
pub(crate) fn max_request_size() -> u32 {
    // SAFETY: Reads one word.
    unsafe { bindings::rpcrdma_svc_max_req_size() }
}

/// What is counted for all connections of this machine's service, in `/proc/sys/sunrpc/svc_rdma`.
#[derive(Clone, Copy)]
pub(crate) enum ServerCounter {
    /// Segments read from requesters.
    Reads,
    /// Messages received.
    Receives,
    /// Segments written to requesters.
    Writes,
    /// Replies and RDMA Reads that found the send queue full.
    SendQueueFull,
}

impl ServerCounter {
    /// Adds `count`. Any context.
    pub(crate) fn add(self, count: u32) {
        let counter = match self {
            Self::Reads => bindings::rpcrdma_svc_counter_RPCRDMA_SVC_READ,
            Self::Receives => bindings::rpcrdma_svc_counter_RPCRDMA_SVC_RECV,
            Self::Writes => bindings::rpcrdma_svc_counter_RPCRDMA_SVC_WRITE,
            Self::SendQueueFull => bindings::rpcrdma_svc_counter_RPCRDMA_SVC_SQ_STARVE,
        };
        // CAST: A u32 always fits the kernel's usize.
        // SAFETY: The callee has a word for each of these.
        unsafe { bindings::rpcrdma_svc_count(counter, count as usize) };
    }
}
