// SPDX-License-Identifier: GPL-2.0

//! Why a request was not sent.

use crate::bindings;

/// Why a request was not sent, in the terms that sunrpc acts on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendError {
    /// No credit: the sender waits for one.
    NoCredit,
    /// A resource is in use: the sender waits, if [`Xprt::wait_for_space`](super::xprt::Xprt::wait_for_space) was called.
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
