// SPDX-License-Identifier: GPL-2.0

//! What surrounds the C object of a transport.

use super::buffer::SpareBuffers;
use crate::bindings;
use core::ffi::c_void;

/// What one transport is allocated as.
#[repr(C)]
pub(super) struct Allocation {
    /// First, because sunrpc frees the whole by this pointer.
    pub(super) xprt: bindings::rpc_xprt,
    /// An `Arc<T>` of the [`ClientTransport`](super::ClientTransport), from setup to destroy.
    pub(super) transport: *const c_void,
    /// An attempt to connect, or the transport's end.
    pub(super) work: bindings::delayed_work,
    /// Gives the last reference back ([`CountedXprt`](super::xprt::CountedXprt)).
    pub(super) put: bindings::delayed_work,
    /// Where both run.
    pub(super) queue: *mut bindings::workqueue_struct,
    /// The timeouts that `xprt.timeout` points to.
    pub(super) timeout: bindings::rpc_timeout,
    pub(super) spare_buffers: SpareBuffers,
    /// What the credits are shared with.
    pub(super) shares: Shares,
}

/// What sunrpc's window and its part that is taken include, beside requests of this connection: see
/// `credits.rs`. The transport
/// lock guards it.
pub(super) struct Shares {
    /// The part of stale requests, in units of the window.
    pub(super) stale: usize,
    /// Orphaned Calls.
    pub(super) orphaned: u32,
    /// Replies that no request waited for, and for which there was no orphaned Call either. Such a
    /// Reply comes between the moment that its request leaves the queue of those that wait, and
    /// that of its release.
    pub(super) unclaimed: u32,
    /// When the first Call was orphaned, or the last Reply to such a one came, in jiffies.
    pub(super) since: usize,
    /// Looks for orphaned Calls whose Replies are overdue.
    pub(super) overdue: bindings::delayed_work,
}
