// SPDX-License-Identifier: GPL-2.0

//! Why connections end, as text and as the errno that sunrpc's state machine understands.
//!
//! `call_connect_status` fails an RPC, even on a hard mount, for any errno that it does not know.
//! So a shortage, which may be temporary, must not leave this module as `ENOMEM`.

use crate::{
    bindings,
    rdma::{QpFailure, WcStatus},
};
use kernel::prelude::*;

macro_rules! causes {
    ($($(#[$doc:meta])* $name:ident = $text:literal;)*) => {
        /// Why a connection ended, or was never established.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Cause {
            $($(#[$doc])* $name,)*
        }

        impl Cause {
            /// All causes.
            pub(crate) const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The name of the cause in trace events and in debugfs.
            pub(crate) fn name(self) -> &'static CStr {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }
    };
}

causes! {
    /// The peer's address cannot be resolved to a local device.
    AddressError = c"address_error";
    /// There is no route to the peer.
    RouteError = c"route_error";
    /// The peer has no listener, or rejected the connection.
    Rejected = c"rejected";
    /// The peer still knows an earlier connection of ours.
    StaleConnection = c"stale_connection";
    /// The peer does not answer, or its path has changed.
    Unreachable = c"unreachable";
    /// The connection handshake failed.
    ConnectError = c"connect_error";
    /// The peer, or the fabric, ended the connection.
    Disconnected = c"disconnected";
    /// The device is being removed.
    DeviceRemoved = c"device_removed";
    /// The local address moved to another device.
    AddressChanged = c"address_changed";
    /// Nothing happened for too long.
    TimedOut = c"timed_out";
    /// The device cannot do what this transport needs.
    Incapable = c"incapable";
    /// Memory or another local resource is short.
    LocalResources = c"local_resources";
    /// sunrpc closed it: it was idle, or the administrator or an unmount requested it.
    Closed = c"closed";
    /// An RPC has timed out, and a new connection is to show whether the peer can be reached.
    RpcTimeout = c"rpc_timeout";
    /// A work request failed: the peer's adapter has not acknowledged it in time.
    RetriesExceeded = c"retries_exceeded";
    /// A Send failed: the peer had no Receive for it in time.
    NoReceive = c"no_receive";
    /// A work request failed: the peer's adapter does not allow access to this memory.
    RemoteAccess = c"remote_access";
    /// A work request failed: the peer's adapter takes it for invalid, or cannot carry it out, as a
    /// Send that is longer than the Receive.
    RemoteError = c"remote_error";
    /// A work request failed for another reason, as a Receive whose message is longer, or the
    /// device reports that the queue pair did.
    QueuePairError = c"queue_pair_error";
    /// The device has rejected a work request.
    PostFailed = c"post_failed";
    /// A Call would have been sent twice.
    Retransmission = c"retransmission";
    /// A Reply could not be built or sent. The requester sends its Call again on another
    /// connection.
    ReplyFailed = c"reply_failed";
    /// The peer speaks no version of the protocol that this end is set to.
    NoCommonVersion = c"no_common_version";
    /// The server requires a higher version than it was thought to speak.
    HigherVersion = c"higher_version";
    /// Fault injection.
    Injected = c"injected";
    /// The peer has used up a Receive without a message, by an RDMA Write With Immediate.
    NotASend = c"not_a_send";
}

impl Cause {
    /// The cause that a work request with this status is (`enum ib_wc_status`).
    fn of_status(status: WcStatus) -> Self {
        match status.0 {
            bindings::ib_wc_status_IB_WC_RETRY_EXC_ERR => Self::RetriesExceeded,
            bindings::ib_wc_status_IB_WC_RNR_RETRY_EXC_ERR => Self::NoReceive,
            bindings::ib_wc_status_IB_WC_REM_ACCESS_ERR => Self::RemoteAccess,
            bindings::ib_wc_status_IB_WC_REM_INV_REQ_ERR
            | bindings::ib_wc_status_IB_WC_REM_OP_ERR => Self::RemoteError,
            _ => Self::QueuePairError,
        }
    }

    /// The cause that an event of the connection manager ([`CmEvent::Other`]) is, if it ends a
    /// connection or an attempt.
    ///
    /// [`CmEvent::Other`]: crate::rdma::CmEvent::Other
    pub(crate) fn of_event(event: u32, status: i32) -> Option<Self> {
        let stale = i32::try_from(bindings::ib_cm_rej_reason_IB_CM_REJ_STALE_CONN);
        Some(match event {
            bindings::rdma_cm_event_type_RDMA_CM_EVENT_ADDR_ERROR => {
                cause_of_errno(status, Self::AddressError)
            }
            bindings::rdma_cm_event_type_RDMA_CM_EVENT_ROUTE_ERROR => Self::RouteError,
            bindings::rdma_cm_event_type_RDMA_CM_EVENT_REJECTED if stale == Ok(status) => {
                Self::StaleConnection
            }
            bindings::rdma_cm_event_type_RDMA_CM_EVENT_REJECTED => Self::Rejected,
            bindings::rdma_cm_event_type_RDMA_CM_EVENT_UNREACHABLE => Self::Unreachable,
            bindings::rdma_cm_event_type_RDMA_CM_EVENT_CONNECT_ERROR => {
                cause_of_errno(status, Self::ConnectError)
            }
            bindings::rdma_cm_event_type_RDMA_CM_EVENT_DISCONNECTED => Self::Disconnected,
            bindings::rdma_cm_event_type_RDMA_CM_EVENT_DEVICE_REMOVAL => Self::DeviceRemoved,
            bindings::rdma_cm_event_type_RDMA_CM_EVENT_ADDR_CHANGE => Self::AddressChanged,
            _ => return None,
        })
    }
}

impl From<QpFailure> for Cause {
    fn from(why: QpFailure) -> Self {
        match why {
            QpFailure::Flushed => Self::Disconnected,
            QpFailure::WorkRequest(status) => Self::of_status(status),
            QpFailure::CheckRefused => Self::RemoteError,
            QpFailure::NotASend => Self::NotASend,
            QpFailure::PostFailed => Self::PostFailed,
            QpFailure::Stalled => Self::TimedOut,
        }
    }
}

/// The error for a missing network at this end, if `errno` is one. A mount in a network namespace
/// of its own fails its RPCs for these, as the namespace may be gone
/// (`NFS_MOUNT_NETUNREACH_FATAL`); a peer that does not answer, or a device that may come back, is
/// no reason for that.
fn no_network(errno: i32) -> Option<Error> {
    match errno.checked_neg().map(u32::try_from) {
        Some(Ok(bindings::ENETUNREACH | bindings::ENETDOWN)) => Some(Error::from_errno(errno)),
        _ => None,
    }
}

/// The cause of a step that failed with `status`, or `otherwise`: no host has answered at the
/// address, or a provider of iWARP passes on the errno of a TCP connect.
pub(crate) fn cause_of_errno(status: i32, otherwise: Cause) -> Cause {
    match status.checked_neg().map(u32::try_from) {
        Some(Ok(bindings::ECONNREFUSED)) => Cause::Rejected,
        Some(Ok(bindings::EHOSTUNREACH | bindings::ETIMEDOUT)) => Cause::Unreachable,
        _ => otherwise,
    }
}

/// The errno of a failed attempt to connect; `first` says that the mount has never been connected,
/// and `status` is the errno of the step that failed, or 0.
pub(crate) fn connect_error(cause: Cause, first: bool, status: i32) -> Error {
    if let Some(error) = no_network(status) {
        return error;
    }
    let errno = match cause {
        Cause::Rejected => bindings::ECONNREFUSED,
        // Not ETIMEDOUT, with which even an RPC that should fail (SOFTCONN) goes on.
        Cause::AddressError | Cause::RouteError | Cause::Unreachable | Cause::TimedOut => {
            bindings::EHOSTUNREACH
        }
        Cause::Disconnected | Cause::DeviceRemoved | Cause::AddressChanged => {
            bindings::ECONNABORTED
        }
        Cause::LocalResources => bindings::ENOBUFS,
        // Waiting does not help: this is the one case that a mount should report immediately.
        // Later, the connection may have moved to another device, from which an application should
        // not suffer.
        Cause::Incapable if first && status != 0 => return Error::from_errno(status),
        Cause::Incapable if first => bindings::EOPNOTSUPP,
        Cause::Incapable => bindings::EHOSTUNREACH,
        // The handshake broke off, or the peer still knows an earlier connection.
        _ => bindings::ENOTCONN,
    };
    i32::try_from(errno).map_or(EIO, |errno| Error::from_errno(-errno))
}

/// Why there is no connection, or no longer one, as text for the log of either end.
pub(crate) fn describe(cause: Cause) -> &'static CStr {
    match cause {
        Cause::AddressError => c"no RDMA device reaches this address",
        Cause::RouteError => c"no route to the server",
        Cause::Rejected => c"the peer rejected the connection",
        Cause::StaleConnection => c"the peer still knows an earlier connection",
        Cause::Unreachable => c"the peer is down or unreachable",
        Cause::ConnectError => c"the handshake broke off",
        Cause::Disconnected => c"the connection was lost",
        Cause::DeviceRemoved => c"the device was removed",
        Cause::AddressChanged => c"the local address has moved",
        Cause::TimedOut => c"the peer let too little complete in time",
        Cause::Incapable => c"the device cannot carry this transport",
        Cause::LocalResources => c"memory or device resources are short",
        Cause::RetriesExceeded => c"no acknowledgment: the peer is down or unreachable",
        Cause::NoReceive => c"the peer had no Receive for a message",
        Cause::RemoteAccess => c"the peer's device denied access to memory",
        Cause::RemoteError => c"the peer's device took a request for invalid",
        Cause::QueuePairError => c"a work request or the queue pair failed",
        Cause::PostFailed => c"the device refused a work request",
        Cause::ReplyFailed => c"a Reply could not be made",
        Cause::NotASend => c"the peer used up a Receive without a message",
        _ => cause.name(),
    }
}

#[cfg(rpcrdma_kunit)]
#[kernel::macros::kunit_tests(rpcrdma_error)]
mod tests {
    use super::*;

    fn negative(errno: u32) -> i32 {
        -i32::try_from(errno).unwrap()
    }

    fn errno(cause: Cause, status: i32) -> i32 {
        connect_error(cause, false, status).to_errno()
    }

    #[test]
    fn a_network_that_is_gone_is_told_from_a_server_that_is() {
        let unreachable = negative(bindings::EHOSTUNREACH);
        for cause in [Cause::AddressError, Cause::RouteError, Cause::Unreachable] {
            for gone in [bindings::ENETUNREACH, bindings::ENETDOWN].map(negative) {
                assert_eq!(errno(cause, gone), gone);
            }
            for status in [0, negative(bindings::ENODEV), negative(bindings::ETIMEDOUT)] {
                assert_eq!(errno(cause, status), unreachable);
            }
        }
    }

    /// sunrpc retries an RPC for any other errno, whatever the mount wants.
    #[test]
    fn nobody_there_is_unreachable() {
        assert_eq!(errno(Cause::TimedOut, 0), negative(bindings::EHOSTUNREACH));
    }

    #[test]
    fn a_failed_handshake_has_the_reason_of_its_errno() {
        for (status, cause) in [
            (negative(bindings::ECONNREFUSED), Cause::Rejected),
            (negative(bindings::EHOSTUNREACH), Cause::Unreachable),
            (negative(bindings::ETIMEDOUT), Cause::Unreachable),
            (negative(bindings::EINVAL), Cause::ConnectError),
            (0, Cause::ConnectError),
            (28, Cause::ConnectError),
            (i32::MIN, Cause::ConnectError),
        ] {
            assert_eq!(cause_of_errno(status, Cause::ConnectError), cause);
        }
    }

    #[test]
    fn a_shortage_is_not_told_as_one() {
        let shortage = errno(Cause::LocalResources, negative(bindings::ENOMEM));
        assert_eq!(shortage, negative(bindings::ENOBUFS));
    }

    #[test]
    fn only_a_first_attempt_tells_what_the_device_refuses() {
        let refused = negative(bindings::EINVAL);
        let first = connect_error(Cause::Incapable, true, refused);
        assert_eq!(first.to_errno(), refused);
        let later = errno(Cause::Incapable, refused);
        assert_eq!(later, negative(bindings::EHOSTUNREACH));
    }

    /// A fabric's reason for a rejection is positive, and not mistaken for one of these.
    #[test]
    fn a_rejection_is_a_refusal() {
        for reason in [0, 8, i32::MAX, i32::MIN] {
            let refused = negative(bindings::ECONNREFUSED);
            assert_eq!(errno(Cause::Rejected, reason), refused);
        }
    }
}
