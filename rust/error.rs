// SPDX-License-Identifier: GPL-2.0

//! From a connection's end to the errno that sunrpc's state machine understands.
//!
//! `call_connect_status` ends an RPC, even on a hard mount, for any errno that it does not know.
//! So a shortage that may pass must not leave this module as `ENOMEM`.

use crate::proto::conn::Reason;
use kernel::{bindings, prelude::*};

/// The errno of a failed connect; `first` says that the mount was never connected before.
pub(crate) fn connect_error(reason: Reason, first: bool) -> Error {
    let errno = match reason {
        Reason::Rejected => bindings::ECONNREFUSED,
        Reason::AddressError | Reason::RouteError | Reason::Unreachable => bindings::EHOSTUNREACH,
        Reason::StaleConnection | Reason::ConnectError => bindings::ENOTCONN,
        Reason::Disconnected | Reason::DeviceRemoved | Reason::AddressChanged => {
            bindings::ECONNABORTED
        }
        Reason::TimedOut => bindings::ETIMEDOUT,
        Reason::LocalResources => bindings::ENOBUFS,
        // Waiting does not help: the one case that a mount should hear of at once. Later on the
        // connection may be on another device, which an application is not to suffer from.
        Reason::Incapable if first => bindings::EOPNOTSUPP,
        Reason::Incapable => bindings::EHOSTUNREACH,
    };
    i32::try_from(errno).map_or(EIO, |errno| Error::from_errno(-errno))
}

/// The reason in words, for the log.
pub(crate) fn describe(reason: Reason) -> &'static str {
    match reason {
        Reason::AddressError => "no RDMA device reaches this address",
        Reason::RouteError => "no route to the server",
        Reason::Rejected => "the server rejected the connection",
        Reason::StaleConnection => "the server still knows an earlier connection",
        Reason::Unreachable => "the server does not answer",
        Reason::ConnectError => "the handshake broke off",
        Reason::Disconnected => "the connection was lost",
        Reason::DeviceRemoved => "the device was removed",
        Reason::AddressChanged => "the local address has moved",
        Reason::TimedOut => "no answer in time",
        Reason::Incapable => "the device cannot carry this transport",
        Reason::LocalResources => "memory or device resources are short",
    }
}
