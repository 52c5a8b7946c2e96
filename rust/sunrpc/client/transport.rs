// SPDX-License-Identifier: GPL-2.0

//! The interface of a client transport.

use super::{
    backchannel::Backchannel,
    rqst::{BackwardReply, Rqst},
    send_lock::SendLock,
    xprt::OwnedXprt,
};
use crate::{
    bindings::SocketAddress,
    sunrpc::{registration::Class, send_error::SendError},
};
use core::marker::PhantomData;
use kernel::{prelude::*, seq_file::SeqFile, str::CStr, sync::Arc};

/// The class of the transports `T`, and of no others. It is a static because they point to it.
pub(crate) struct ClientClass<T>(Class, PhantomData<fn(T)>);

impl<T> ClientClass<T> {
    /// As for [`Class::new`].
    pub(crate) const fn new(name: &'static CStr, ident: i32, netids: &[&'static CStr]) -> Self {
        Self(Class::new(name, ident, netids), PhantomData)
    }

    /// The class, whatever its transports are.
    pub(super) fn class(&'static self) -> &'static Class {
        &self.0
    }
}

/// A client transport.
///
/// sunrpc's send lock serialises `connect`, `close`, `send` and `send_backward`. All of them run in
/// process context.
pub(crate) trait ClientTransport: Send + Sync + Sized + 'static {
    /// The class of these transports.
    fn class() -> &'static ClientClass<Self>;

    /// What all transports of the class have in common.
    type Shared: Send + Sync + 'static;

    /// The most bytes of data that one RPC can carry.
    const MAX_PAYLOAD: usize;

    /// How many requests a new transport can have outstanding.
    fn max_requests() -> u32;

    /// Creates a transport, which owns `xprt`. May sleep.
    ///
    /// # Errors
    ///
    /// The error of the mount.
    fn setup(xprt: OwnedXprt, shared: Arc<Self::Shared>) -> Result<Arc<Self>>;

    /// The object that [`Self::setup`] was given.
    fn xprt(&self) -> &OwnedXprt;

    /// Establishes a connection. Runs on a worker of the class's queue, in a scope in which
    /// allocations do not wait for file systems; may sleep.
    ///
    /// # Errors
    ///
    /// One of those that sunrpc's `call_connect_status` knows. Nothing is left of the attempt.
    fn connect(&self, lock: &mut SendLock<'_>) -> Result;

    /// Closes the connection, if there is one, and waits until all its resources are released.
    fn close(&self, lock: &mut SendLock<'_>);

    /// Sends a Call.
    ///
    /// # Errors
    ///
    /// [`SendError`]; after [`SendError::NotConnected`] the connection is closed.
    fn send(&self, lock: &mut SendLock<'_>, rqst: &Rqst) -> Result<(), SendError>;

    /// Sends a backward Reply (RFC 8167), but only on the connection on which its Call arrived. On
    /// another one the peer has no Receive for it: it is dropped without an error.
    ///
    /// # Errors
    ///
    /// As [`Self::send`].
    fn send_backward(
        &self,
        lock: &mut SendLock<'_>,
        reply: &BackwardReply<'_>,
    ) -> Result<(), SendError>;

    /// Waits until the peer can no longer reach the memory of the request. Task context without the
    /// send lock; may sleep.
    fn fence(&self, rqst: &Rqst);

    /// A request has timed out. A reliable connection has no keepalive, so a new connection is to
    /// show whether the peer can be reached. Does not sleep.
    fn timed_out(&self);

    /// Breaks the connection, for fault injection. Task context, possibly without the send lock;
    /// may sleep.
    fn disconnect(&self);

    /// Prints the rest of the transport's line of `/proc/self/mountstats`, columns 11 to 27. Must
    /// not wait for the connection.
    fn print_stats(&self, seq: &SeqFile);

    /// The local address of the connection, if there is one.
    fn source(&self) -> Option<SocketAddress>;

    /// The largest backward message in bytes. Called under RCU: does not sleep.
    #[cfg_attr(not(CONFIG_SUNRPC_BACKCHANNEL), expect(dead_code))]
    fn backward_payload(&self) -> usize;

    /// How many backward Calls can be in progress.
    #[cfg_attr(not(CONFIG_SUNRPC_BACKCHANNEL), expect(dead_code))]
    fn backward_slots() -> u32;

    /// The requests that the transport has for backward Calls.
    #[cfg_attr(not(CONFIG_SUNRPC_BACKCHANNEL), expect(dead_code))]
    fn backchannel(&self) -> &Backchannel;
}
