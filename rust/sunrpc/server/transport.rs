// SPDX-License-Identifier: GPL-2.0

//! The interface of a server transport.

use super::{
    class::SvcClass,
    rqst::{KeptCall, Receiving, Replying, SvcCall},
    xprt::{Accepting, OwnedSvcXprt},
};
use crate::bindings::{OwnedMessage, PageVec, SocketAddress};
use kernel::{prelude::*, sync::Arc};

/// A listener or a connection.
pub(crate) trait SvcTransport: Send + Sync + Sized + 'static {
    /// Its object in sunrpc.
    fn xprt(&self) -> &OwnedSvcXprt;

    /// The transport is closed: stops its traffic, and wakes threads that wait in its methods. May
    /// sleep.
    fn detach(&self);

    /// sunrpc has dropped its last reference. May sleep.
    fn end(this: Arc<Self>);
}

/// A transport that accepts connections.
pub(crate) trait SvcListener: SvcTransport {
    /// The connections that it accepts.
    type Connection: SvcConnection;

    /// The class with which it is registered.
    fn class() -> &'static SvcClass<Self>;

    /// Listens at `address`. May sleep.
    ///
    /// # Errors
    ///
    /// The error reported to the administrator.
    fn listen(xprt: OwnedSvcXprt, address: &SocketAddress) -> Result<Arc<Self>>;

    /// The address, with the port that was chosen. May sleep.
    fn address(&self) -> SocketAddress;

    /// Accepts a connection that a peer requested, if there is one. If another one is waiting,
    /// calls [`SvcXprt::connection_waits`]. May sleep.
    fn accept(&self, accepting: &Accepting<'_>) -> Option<Arc<Self::Connection>>;
}

/// A connection.
pub(crate) trait SvcConnection: SvcTransport {
    /// The state of a Call that is kept for its Reply.
    type Call: OwnedMessage;

    /// Whether a Call can be started. Neither sleeps nor takes a lock.
    fn has_room(&self) -> bool;

    /// The next complete Call. May sleep after [`Receiving::let_others_in`].
    fn receive(&self, rqst: &mut Receiving<'_>) -> Option<SvcCall<Self::Call>>;

    /// Takes pages that are no longer needed, in exchange for those of a Call.
    fn take_pages(&self, pages: PageVec);

    /// Records that the `length` bytes of the Reply from `at` on are one result that may be placed
    /// directly. Results are passed in order. If there is no room for this one, the answer says so
    /// in place of the Reply.
    fn place(&self, call: KeptCall<'_, Self::Call>, at: u32, length: u32);

    /// Sends a Reply. May sleep.
    ///
    /// # Errors
    ///
    /// Any error, after which the connection is closed.
    fn reply(&self, rqst: Replying<'_>, call: KeptCall<'_, Self::Call>) -> Result;

    /// Takes back the state of a Call that was answered, or that will not be.
    fn release(&self, call: Self::Call);
}
