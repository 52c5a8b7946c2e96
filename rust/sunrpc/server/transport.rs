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

    /// `xpo_detach`: the transport is closed, and stops its traffic. May sleep.
    fn detach(&self);

    /// `xpo_free`: sunrpc has dropped its last reference. May sleep.
    fn free(this: Arc<Self>);
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
    /// The message of a Call, which is kept for its Reply.
    type Call: OwnedMessage;

    /// `xpo_recvfrom`: the next complete Call. May sleep after [`Receiving::let_others_in`].
    fn recvfrom(&self, rqst: &mut Receiving<'_>) -> Option<SvcCall<Self::Call>>;

    /// Takes the pages that a thread has given for those of a Call.
    fn put_pages(&self, pages: PageVec);

    /// `xpo_result_payload`: the `length` bytes of the Reply from `at` on are one result that may
    /// be placed directly. Results are passed in order. If there is no room for this one, the
    /// answer says so in place of the Reply.
    fn result_payload(&self, call: KeptCall<'_, Self::Call>, at: u32, length: u32);

    /// `xpo_sendto`: sends a Reply. May sleep.
    ///
    /// # Errors
    ///
    /// Any error, after which the connection is closed.
    fn sendto(&self, rqst: Replying<'_>, call: KeptCall<'_, Self::Call>) -> Result;

    /// `xpo_release_ctxt`: takes back the message of a Call that was answered, or that will not be.
    /// May sleep. Called by the thread that had the Call, or by whoever drops a deferred one.
    fn release_ctxt(&self, call: Self::Call);
}
