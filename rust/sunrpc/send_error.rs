// SPDX-License-Identifier: GPL-2.0

//! Why a request was not sent.

use crate::bindings;
use kernel::sync::atomic::{Atomic, Relaxed};

/// Why a request was not sent, in the terms that sunrpc acts on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendError {
    /// There is no credit: the sender waits for one.
    NoCredit,
    /// A resource is in use: the sender waits, if `xprt_wait_for_buffer_space` was called.
    Busy,
    /// Memory is short: sunrpc retries after a quarter of a second.
    NoMemory,
    /// The connection is gone: sunrpc retries after reconnecting.
    NotConnected,
    /// The RPC does not fit this transport, and fails.
    TooLarge,
    /// The RPC cannot be sent, and fails.
    Failed,
}

impl SendError {
    /// The error number that `send_request` returns.
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

/// Makes the task of a request fail with this error number when it next runs.
///
/// # Safety
///
/// `rqst` is valid and has a task.
pub(super) unsafe fn end_task(rqst: *mut bindings::rpc_rqst, errno: i32) {
    // SAFETY: `rqst` is valid and has a task (this function's contract). Others change the error
    // atomically, too, but for `rpc_restart_call()`: an RPC that starts again may fail for what its
    // earlier Call met.
    let status = unsafe { Atomic::from_ptr(&raw mut (*(*rqst).rq_task).tk_rpc_status) };
    // An earlier error takes precedence.
    let _ = status.cmpxchg(0, errno, Relaxed);
}
