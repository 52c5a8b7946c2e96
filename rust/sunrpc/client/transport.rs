// SPDX-License-Identifier: GPL-2.0

//! What a client transport is for sunrpc.

use super::{
    backchannel::BackwardCalls,
    rqst::{BackwardReply, Rqst},
    send_lock::SendLock,
    xprt::OwnedXprt,
};
use crate::{
    bindings::SocketAddress,
    sunrpc::{registration::Class, send_error::SendError},
};
use kernel::{prelude::*, seq_file::SeqFile, sync::Arc};

/// A client transport.
///
/// sunrpc's send lock excludes `connect`, `close`, `send` and `send_backward` from one another. All
/// of them run in process context.
pub(crate) trait ClientTransport: Send + Sync + Sized + 'static {
    /// The class of these transports, and of no others.
    fn class() -> &'static Class;

    /// The most bytes of an RPC's data.
    const MAX_PAYLOAD: usize;

    /// How many requests a new transport can have outstanding.
    fn max_requests() -> u32;

    /// Makes a transport, which owns `xprt`. May sleep.
    ///
    /// # Errors
    ///
    /// The mount's error.
    fn setup(xprt: OwnedXprt) -> Result<Arc<Self>>;

    /// Makes a connection. On a worker of the module's queue, in a scope that lets allocations
    /// not wait for file systems; may sleep.
    ///
    /// # Errors
    ///
    /// One of those that sunrpc's `call_connect_status` knows. What was made is undone.
    fn connect(&self, lock: &mut SendLock<'_>) -> Result;

    /// Tears the connection down, if there is one, and waits until all of it is gone.
    fn close(&self, lock: &mut SendLock<'_>);

    /// Sends a Call.
    ///
    /// # Errors
    ///
    /// [`SendError`]; after [`SendError::NotConnected`] the connection is closed.
    fn send(&self, lock: &mut SendLock<'_>, rqst: &Rqst) -> Result<(), SendError>;

    /// Sends a backward Reply (RFC 8167), on the connection that its Call came on only. On another
    /// the peer has no Receive for it: it is dropped without an error.
    ///
    /// # Errors
    ///
    /// As [`Self::send`].
    fn send_backward(
        &self,
        lock: &mut SendLock<'_>,
        reply: &BackwardReply<'_>,
    ) -> Result<(), SendError>;

    /// Waits until the peer cannot reach the memory of the request any more. Task context without
    /// the send lock; may sleep.
    fn fence(&self, rqst: &Rqst);

    /// A request has timed out. There is no keepalive on a reliable connection, so the path and
    /// the peer are to be probed with a new connection. Does not sleep.
    fn timed_out(&self);

    /// Breaks the connection, for fault injection. Task context, maybe without the send lock; may
    /// sleep.
    fn disconnect(&self);

    /// Writes the rest of the transport's line of `/proc/self/mountstats`, columns 11 to 27. Must
    /// not wait for the connection.
    fn print_stats(&self, seq: &SeqFile);

    /// The address at this end of the connection, if there is one.
    fn source(&self) -> Option<SocketAddress>;

    /// The largest backward message in bytes. Called under RCU: does not sleep.
    #[cfg_attr(not(CONFIG_SUNRPC_BACKCHANNEL), expect(dead_code))]
    fn backward_payload(&self) -> usize;

    /// How many backward Calls can be under way.
    #[cfg_attr(not(CONFIG_SUNRPC_BACKCHANNEL), expect(dead_code))]
    fn backward_slots() -> u32;

    /// The backward requests of the transport.
    #[cfg_attr(not(CONFIG_SUNRPC_BACKCHANNEL), expect(dead_code))]
    fn backward(&self) -> &BackwardCalls;
}
