// SPDX-License-Identifier: GPL-2.0

//! Why a request was not sent.

use crate::bindings;
use kernel::sync::atomic::{Atomic, Relaxed};

/// Why a request was not sent, in the terms that sunrpc acts on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendError {
    /// No credit: the sender waits for one.
    NoCredit,
    /// A resource is in use: the sender waits, if `xprt_wait_for_buffer_space` was called.
    Busy,
    /// Memory is short: again after a quarter of a second.
    NoMemory,
    /// No connection any more: again after a new one.
    NotConnected,
    /// The RPC does not fit this transport; it ends with an error.
    TooLarge,
    /// The RPC cannot be sent; it ends with an error.
    Failed,
}

impl SendError {
    /// What `send_request` returns for it.
    pub(crate) fn to_errno(self) -> i32 {
        let errno = match self {
            Self::NoCredit => bindings::EBADSLT,
            Self::Busy => bindings::EAGAIN,
            Self::NoMemory => bindings::ENOBUFS,
            Self::NotConnected => bindings::ENOTCONN,
            Self::TooLarge => bindings::EMSGSIZE,
            Self::Failed => bindings::EIO,
        };
        // CAST: Error numbers are below 4096.
        -(errno as i32)
    }
}

/// Has the task of a request end with this error number when it runs next.
///
/// # Safety
///
/// `rqst` is valid and has a task.
pub(super) unsafe fn end_task(rqst: *mut bindings::rpc_rqst, errno: i32) {
    // SAFETY: The caller's promise; the error is only changed atomically, and from 0, as here.
    let status = unsafe { Atomic::from_ptr(&raw mut (*(*rqst).rq_task).tk_rpc_status) };
    // An earlier error counts.
    let _ = status.cmpxchg(0, errno, Relaxed);
}
