// SPDX-License-Identifier: GPL-2.0

//! What a server transport is for sunrpc.

use super::{
    class::SvcClass,
    rqst::{Receiving, Replying, SvcCall},
    xprt::OwnedSvcXprt,
};
use crate::bindings::{OwnedMessage, PageVec, SocketAddress};
use kernel::{prelude::*, sync::Arc};

/// A listener or a connection.
pub(crate) trait SvcTransport: Send + Sync + Sized + 'static {
    /// Its object at sunrpc.
    fn xprt(&self) -> &OwnedSvcXprt;

    /// The transport is closed: stops its traffic, and wakes who waits in one of its methods. May
    /// sleep.
    fn detach(&self);

    /// sunrpc has given its last reference back. May sleep.
    fn end(this: Arc<Self>);
}

/// What waits for connections.
pub(crate) trait SvcListener: SvcTransport {
    /// What it accepts.
    type Connection: SvcConnection;

    /// The class that it is registered with.
    fn class() -> &'static SvcClass;

    /// Listens at `address`. May sleep.
    ///
    /// # Errors
    ///
    /// What the administrator is told.
    fn listen(xprt: OwnedSvcXprt, address: &SocketAddress) -> Result<Arc<Self>>;

    /// The address, with the port that was chosen. May sleep.
    fn address(&self) -> SocketAddress;

    /// Accepts a connection that a peer has asked for, if there is one. If another one waits,
    /// [`SvcXprt::connection_waits`] says so. May sleep.
    fn accept(&self) -> Option<Arc<Self::Connection>>;
}

/// A connection.
pub(crate) trait SvcConnection: SvcTransport {
    /// What a Call leaves behind for its Reply.
    type Call: OwnedMessage;

    /// Whether a Call can be started. Does not sleep, nor take a lock.
    fn has_room(&self) -> bool;

    /// The next Call that is complete. May sleep after [`Receiving::let_others_in`].
    fn receive(&self, rqst: &mut Receiving<'_>) -> Option<SvcCall<Self::Call>>;

    /// Takes pages that are not needed any more, in exchange for those of a Call.
    fn take_pages(&self, pages: PageVec);

    /// Takes note that `length` bytes from `at` on of the Reply are one result that may be placed
    /// directly. Results come in their order.
    ///
    /// # Errors
    ///
    /// `E2BIG` if the requester has not made enough room for it.
    fn place(&self, call: &mut Self::Call, at: u32, length: u32) -> Result;

    /// Sends a Reply. May sleep.
    ///
    /// # Errors
    ///
    /// Anything, after which the connection is closed.
    fn reply(&self, rqst: &mut Replying<'_>, call: &mut Self::Call) -> Result;

    /// Takes a Call back, which was answered, or is not going to be.
    fn release(&self, call: Self::Call);
}
