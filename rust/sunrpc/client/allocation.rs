// SPDX-License-Identifier: GPL-2.0

//! The allocation that contains the C object of a transport.

use crate::{bindings, sunrpc::orphans::Orphans};
use core::ffi::c_void;

/// The allocation of one transport.
#[repr(C)]
pub(super) struct Allocation {
    /// First, because sunrpc frees the allocation by this pointer.
    pub(super) xprt: bindings::rpc_xprt,
    /// An `Arc<T>` of the [`ClientTransport`](super::ClientTransport), from setup to destroy.
    pub(super) transport: *const c_void,
    /// Runs an attempt to connect, and later the end of the transport.
    pub(super) work: bindings::delayed_work,
    /// Drops the last reference ([`CountedXprt`](super::xprt::CountedXprt)).
    pub(super) put: bindings::delayed_work,
    /// The queue that these run on, but for attempts.
    pub(super) queue: *mut bindings::workqueue_struct,
    /// The queue of attempts to connect.
    pub(super) attempts: *mut bindings::workqueue_struct,
    /// The timeouts that `xprt.timeout` points to.
    pub(super) timeout: bindings::rpc_timeout,
    /// Buffers for RPCs that find no other memory, from the transport's creation to its end.
    pub(super) reserve: *mut bindings::mempool_t,
    /// Credits that do not belong to a living request.
    pub(super) shares: Shares,
}

/// What the part of sunrpc's congestion window that is in use includes besides living requests; see
/// `credits.rs`. Guarded by the transport lock.
pub(super) struct Shares {
    /// The credits of stale requests, in the unit of the congestion window.
    pub(super) stale: usize,
    pub(super) orphans: Orphans,
    /// Checks whether the responder has owed their Replies for too long.
    pub(super) overdue: bindings::delayed_work,
}
