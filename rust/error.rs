// SPDX-License-Identifier: GPL-2.0

//! Why connections end, as text and as the errno that sunrpc's state machine understands.
//!
//! `call_connect_status` fails an RPC, even on a hard mount, for any errno that it does not know.
//! So a shortage, which may be temporary, must not leave this module as `ENOMEM`.

use crate::{bindings, proto::requester::connection::Reason};
use kernel::prelude::*;

macro_rules! causes {
    ($($(#[$doc:meta])* $name:ident = $value:ident, $text:literal;)*) => {
        /// Why a connection ended, or was never established.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Cause {
            // CAST: Small enumerators.
            $($(#[$doc])* $name = bindings::$value as isize,)*
        }

        impl Cause {
            /// All causes.
            pub(crate) const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The number of the cause in `enum rpcrdma_cause`.
            pub(crate) fn number(self) -> i32 {
                // CAST: A small enumerator.
                self as i32
            }

            /// The name of the cause in trace events and in debugfs.
            pub(crate) fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }
    };
}

causes! {
    /// [`Reason::AddressError`].
    AddressError = rpcrdma_cause_RPCRDMA_CAUSE_ADDRESS_ERROR, "address_error";
    /// [`Reason::RouteError`].
    RouteError = rpcrdma_cause_RPCRDMA_CAUSE_ROUTE_ERROR, "route_error";
    /// [`Reason::Rejected`].
    Rejected = rpcrdma_cause_RPCRDMA_CAUSE_REJECTED, "rejected";
    /// [`Reason::StaleConnection`].
    StaleConnection = rpcrdma_cause_RPCRDMA_CAUSE_STALE_CONNECTION, "stale_connection";
    /// [`Reason::Unreachable`].
    Unreachable = rpcrdma_cause_RPCRDMA_CAUSE_UNREACHABLE, "unreachable";
    /// [`Reason::ConnectError`].
    ConnectError = rpcrdma_cause_RPCRDMA_CAUSE_CONNECT_ERROR, "connect_error";
    /// [`Reason::Disconnected`].
    Disconnected = rpcrdma_cause_RPCRDMA_CAUSE_DISCONNECTED, "disconnected";
    /// [`Reason::DeviceRemoved`].
    DeviceRemoved = rpcrdma_cause_RPCRDMA_CAUSE_DEVICE_REMOVED, "device_removed";
    /// [`Reason::AddressChanged`].
    AddressChanged = rpcrdma_cause_RPCRDMA_CAUSE_ADDRESS_CHANGED, "address_changed";
    /// [`Reason::TimedOut`].
    TimedOut = rpcrdma_cause_RPCRDMA_CAUSE_TIMED_OUT, "timed_out";
    /// [`Reason::Incapable`].
    Incapable = rpcrdma_cause_RPCRDMA_CAUSE_INCAPABLE, "incapable";
    /// [`Reason::LocalResources`].
    LocalResources = rpcrdma_cause_RPCRDMA_CAUSE_LOCAL_RESOURCES, "local_resources";
    /// sunrpc closed it: it was idle, or the administrator or an unmount requested it.
    Closed = rpcrdma_cause_RPCRDMA_CAUSE_CLOSED, "closed";
    /// An RPC has timed out, and a new connection is to show whether the peer can be reached.
    RpcTimeout = rpcrdma_cause_RPCRDMA_CAUSE_RPC_TIMEOUT, "rpc_timeout";
    /// A work request failed, or was flushed before the connection manager reported why.
    WorkRequest = rpcrdma_cause_RPCRDMA_CAUSE_WORK_REQUEST, "work_request";
    /// The device has rejected a work request.
    PostFailed = rpcrdma_cause_RPCRDMA_CAUSE_POST_FAILED, "post_failed";
    /// A Call would have been sent twice.
    Retransmission = rpcrdma_cause_RPCRDMA_CAUSE_RETRANSMISSION, "retransmission";
    /// A Call that has no Reply was sent; its credit can only be recovered by reconnecting.
    OneWayCall = rpcrdma_cause_RPCRDMA_CAUSE_ONE_WAY_CALL, "one_way_call";
    /// A Reply could not be built or sent. The requester sends its Call again on another
    /// connection.
    ReplyFailed = rpcrdma_cause_RPCRDMA_CAUSE_REPLY_FAILED, "reply_failed";
    /// The peer speaks no version of the protocol that this end is set to.
    NoCommonVersion = rpcrdma_cause_RPCRDMA_CAUSE_NO_COMMON_VERSION, "no_common_version";
    /// The server requires a higher version than it was thought to speak.
    HigherVersion = rpcrdma_cause_RPCRDMA_CAUSE_HIGHER_VERSION, "higher_version";
    /// Fault injection.
    Injected = rpcrdma_cause_RPCRDMA_CAUSE_INJECTED, "injected";
    /// The peer has used up a Receive without a message, by an RDMA Write With Immediate.
    NotASend = rpcrdma_cause_RPCRDMA_CAUSE_NOT_A_SEND, "not_a_send";
}

impl From<Reason> for Cause {
    fn from(reason: Reason) -> Self {
        match reason {
            Reason::AddressError => Self::AddressError,
            Reason::RouteError => Self::RouteError,
            Reason::Rejected => Self::Rejected,
            Reason::StaleConnection => Self::StaleConnection,
            Reason::Unreachable => Self::Unreachable,
            Reason::ConnectError => Self::ConnectError,
            Reason::Disconnected => Self::Disconnected,
            Reason::DeviceRemoved => Self::DeviceRemoved,
            Reason::AddressChanged => Self::AddressChanged,
            Reason::TimedOut => Self::TimedOut,
            Reason::Incapable => Self::Incapable,
            Reason::LocalResources => Self::LocalResources,
        }
    }
}

/// The error for a missing network at this end, if `errno` is one. A mount in a network namespace
/// of its own fails its RPCs for these, as the namespace may be gone
/// (`NFS_MOUNT_NETUNREACH_FATAL`); a peer that does not answer, or a device that may come back, is
/// no reason for that.
fn no_network(errno: i32) -> Option<Error> {
    [bindings::ENETUNREACH, bindings::ENETDOWN]
        .into_iter()
        .any(|fatal| i32::try_from(fatal).is_ok_and(|fatal| fatal.checked_neg() == Some(errno)))
        .then(|| Error::from_errno(errno))
}

/// The reason of a handshake that failed with `status`. Providers of iWARP pass on the errno of a
/// TCP connect.
pub(crate) fn handshake_error(status: i32) -> Reason {
    match status.checked_neg().map(u32::try_from) {
        Some(Ok(bindings::ECONNREFUSED)) => Reason::Rejected,
        Some(Ok(bindings::EHOSTUNREACH | bindings::ETIMEDOUT)) => Reason::Unreachable,
        _ => Reason::ConnectError,
    }
}

/// The errno of a failed attempt to connect; `first` says that the mount has never been connected,
/// and `status` is the errno of the step that failed, or 0.
pub(crate) fn connect_error(reason: Reason, first: bool, status: i32) -> Error {
    if let Some(error) = no_network(status) {
        return error;
    }
    let errno = match reason {
        Reason::Rejected => bindings::ECONNREFUSED,
        // Not ETIMEDOUT, with which even an RPC that should fail (SOFTCONN) goes on.
        Reason::AddressError | Reason::RouteError | Reason::Unreachable | Reason::TimedOut => {
            bindings::EHOSTUNREACH
        }
        Reason::StaleConnection | Reason::ConnectError => bindings::ENOTCONN,
        Reason::Disconnected | Reason::DeviceRemoved | Reason::AddressChanged => {
            bindings::ECONNABORTED
        }
        Reason::LocalResources => bindings::ENOBUFS,
        // Waiting does not help: this is the one case that a mount should report at once. Later,
        // the connection may have moved to another device, from which an application should not
        // suffer.
        Reason::Incapable if first && status != 0 => return Error::from_errno(status),
        Reason::Incapable if first => bindings::EOPNOTSUPP,
        Reason::Incapable => bindings::EHOSTUNREACH,
    };
    i32::try_from(errno).map_or(EIO, |errno| Error::from_errno(-errno))
}

/// The reason as text, for the log.
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

#[cfg(rpcrdma_kunit)]
#[kernel::macros::kunit_tests(rpcrdma_error)]
mod tests {
    use super::*;

    fn negative(errno: u32) -> i32 {
        -i32::try_from(errno).unwrap()
    }

    fn errno(reason: Reason, status: i32) -> i32 {
        connect_error(reason, false, status).to_errno()
    }

    #[test]
    fn a_network_that_is_gone_is_told_from_a_server_that_is() {
        let unreachable = negative(bindings::EHOSTUNREACH);
        for reason in [
            Reason::AddressError,
            Reason::RouteError,
            Reason::Unreachable,
        ] {
            for gone in [bindings::ENETUNREACH, bindings::ENETDOWN].map(negative) {
                assert_eq!(errno(reason, gone), gone);
            }
            for status in [0, negative(bindings::ENODEV), negative(bindings::ETIMEDOUT)] {
                assert_eq!(errno(reason, status), unreachable);
            }
        }
    }

    /// sunrpc retries an RPC for any other errno, whatever the mount wants.
    #[test]
    fn nobody_there_is_unreachable() {
        assert_eq!(errno(Reason::TimedOut, 0), negative(bindings::EHOSTUNREACH));
    }

    #[test]
    fn a_failed_handshake_has_the_reason_of_its_errno() {
        for (status, reason) in [
            (negative(bindings::ECONNREFUSED), Reason::Rejected),
            (negative(bindings::EHOSTUNREACH), Reason::Unreachable),
            (negative(bindings::ETIMEDOUT), Reason::Unreachable),
            (negative(bindings::EINVAL), Reason::ConnectError),
            (0, Reason::ConnectError),
            (28, Reason::ConnectError),
            (i32::MIN, Reason::ConnectError),
        ] {
            assert_eq!(handshake_error(status), reason);
        }
    }

    #[test]
    fn a_shortage_is_not_told_as_one() {
        let shortage = errno(Reason::LocalResources, negative(bindings::ENOMEM));
        assert_eq!(shortage, negative(bindings::ENOBUFS));
    }

    #[test]
    fn only_a_first_attempt_tells_what_the_device_refuses() {
        let refused = negative(bindings::EINVAL);
        let first = connect_error(Reason::Incapable, true, refused);
        assert_eq!(first.to_errno(), refused);
        let later = errno(Reason::Incapable, refused);
        assert_eq!(later, negative(bindings::EHOSTUNREACH));
    }

    /// A fabric's reason for a rejection is positive, and not mistaken for one of these.
    #[test]
    fn a_rejection_is_a_refusal() {
        for reason in [0, 8, i32::MAX, i32::MIN] {
            let refused = negative(bindings::ECONNREFUSED);
            assert_eq!(errno(Reason::Rejected, reason), refused);
        }
    }
}
