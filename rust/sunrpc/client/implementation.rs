// SPDX-License-Identifier: GPL-2.0

//! The implementation of a transport: its interface, and its part of the transport's allocation.

use super::{
    backchannel::Backchannel,
    class::ClientClass,
    rqst::Rqst,
    xprt::{OwnedXprt, Xprt, XprtAllocation},
};
use crate::sunrpc::{send_error::SendError, SocketAddress, XdrBuf};
use core::mem::MaybeUninit;
use kernel::{
    prelude::*,
    seq_file::SeqFile,
    sync::{Arc, ArcBorrow},
};

/// A client transport.
///
/// The send lock (sunrpc's `XPRT_LOCKED` bit) serialises `connect`, `close`, `send` and
/// `send_backward`. All of them run in process context.
pub(crate) trait ClientTransport: Send + Sync + Sized + 'static {
    /// The class of these transports.
    fn class() -> &'static ClientClass<Self>;

    /// What all transports of the class have in common.
    type Shared: Send + Sync + 'static;

    /// What sends on a connection. The holder of the send lock has it.
    type Sender: Send;

    /// The most bytes of data that one RPC can carry.
    const MAX_PAYLOAD: usize;

    /// How many backward Calls can be in progress.
    const BACKWARD_SLOTS: u32;

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

    /// Establishes a connection. Runs on a worker of the queue of attempts, in a scope in which
    /// allocations do not wait for file systems; may sleep.
    ///
    /// # Errors
    ///
    /// One of those that sunrpc's `call_connect_status` knows. Nothing is left of the attempt.
    fn connect(this: ArcBorrow<'_, Self>) -> Result<Self::Sender>;

    /// Closes the connection of `sender`, and waits until all its resources are released.
    fn close(&self, sender: Self::Sender);

    /// Sends a Call, which has a credit.
    ///
    /// # Errors
    ///
    /// [`SendError`]; after [`SendError::NotConnected`] the connection is closed.
    fn send(&self, sender: &mut Self::Sender, rqst: &Rqst) -> Result<(), SendError>;

    /// Sends the Reply to a backward Call (RFC 8167), but only on the connection on which the Call
    /// arrived; `bc_cookie` is that of [`Backchannel::receive`]. On another one the peer has no
    /// Receive for it: it is dropped without an error.
    ///
    /// # Errors
    ///
    /// As [`Self::send`].
    fn send_backward(
        &self,
        sender: &mut Self::Sender,
        xid: u32,
        reply: &XdrBuf<'_>,
        bc_cookie: u64,
    ) -> Result<(), SendError>;

    /// Waits until the peer can no longer reach the memory of the request. Task context without the
    /// send lock; may sleep.
    fn fence(&self, rqst: &Rqst);

    /// Makes the connection end by itself if the peer is gone. Returns false if there is none, or
    /// if that would not be noticed. Does not sleep.
    fn check_peer(&self) -> bool;

    /// A request has timed out, or a killed one has had no Reply for as long: a new connection is
    /// to show whether the peer can be reached. If there is a connection, calls `is_due` while that
    /// cannot become another one, and does nothing if it returns false. Does not sleep.
    fn timed_out(&self, is_due: impl FnOnce() -> bool);

    /// Breaks the connection, for fault injection. Task context, possibly without the send lock;
    /// does not sleep.
    fn disconnect(&self);

    /// Prints the rest of the transport's line of `/proc/self/mountstats`, columns 11 to 27. Must
    /// not wait for the connection.
    fn print_stats(&self, seq: &SeqFile);

    /// The local address of the connection, if there is one.
    fn source(&self) -> Option<SocketAddress>;

    /// The largest backward message in bytes. Called under RCU: does not sleep.
    fn backward_payload(&self) -> usize;

    /// The requests that the transport has for backward Calls.
    fn backchannel(&self) -> &Backchannel;
}

/// The allocation of a transport that a `T` implements.
#[repr(C)]
pub(super) struct TypedAllocation<T: ClientTransport> {
    allocation: XprtAllocation,
    /// Initialised by setup, and dropped by the end of the transport.
    pub(super) transport: MaybeUninit<Arc<T>>,
    /// The sender of the connection. The send lock guards it.
    pub(super) sender: Option<T::Sender>,
}

impl Xprt {
    /// The allocation with the implementation.
    ///
    /// # Safety
    ///
    /// The transport was made for a `T`.
    pub(super) unsafe fn typed<T: ClientTransport>(&self) -> *mut TypedAllocation<T> {
        self.as_raw().cast()
    }

    /// The implementation.
    ///
    /// # Safety
    ///
    /// The transport was made for a `T`, and its setup has succeeded.
    pub(super) unsafe fn transport<T: ClientTransport>(&self) -> ArcBorrow<'_, T> {
        // SAFETY: Setup has initialised the field, which is dropped only when there are no other
        // callers.
        let transport = unsafe { (*self.typed::<T>()).transport.assume_init_ref() };
        transport.as_arc_borrow()
    }

    /// The sender of the connection, if there is one.
    ///
    /// # Safety
    ///
    /// The transport was made for a `T`. Its send lock (sunrpc's `XPRT_LOCKED` bit) is held for all
    /// of `'a`, and the holder has no other reference from this function.
    pub(super) unsafe fn sender<'a, T: ClientTransport>(&self) -> &'a mut Option<T::Sender> {
        // SAFETY: The send lock allows only its holder to access the field (this function's
        // contract).
        unsafe { &mut (*self.typed::<T>()).sender }
    }

    /// Closes the connection, if there is one. May sleep.
    ///
    /// # Safety
    ///
    /// As for [`Self::sender`], and the transport's setup has succeeded.
    pub(super) unsafe fn close<T: ClientTransport>(&self) {
        // SAFETY: The transport was made for a `T`, and its send lock is held (this function's
        // contract).
        if let Some(sender) = unsafe { self.sender::<T>() }.take() {
            // SAFETY: The transport was made for a `T`, and its setup has succeeded (this
            // function's contract).
            unsafe { self.transport::<T>() }.close(sender);
        }
    }
}
