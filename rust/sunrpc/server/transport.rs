// SPDX-License-Identifier: GPL-2.0

//! The interface of a server transport.

use super::{
    class::SvcClass,
    rqst::{KeptCall, Receiving, Replying, SvcCall},
    xprt::{Accepting, NewXprt, Published},
};
use crate::bindings::{OwnedMessage, SocketAddress};
use kernel::{prelude::*, sync::Arc};

/// A listener or a connection.
pub(crate) trait SvcTransport: Send + Sync + Sized + 'static {
    /// `xpo_detach`: the transport is closed, and stops its traffic. May sleep.
    fn detach(&self);

    /// `xpo_free`: sunrpc has dropped its last reference. May sleep.
    fn free(_this: Arc<Self>) {}
}

/// A transport that accepts connections.
pub(crate) trait SvcListener: SvcTransport {
    /// The connections that it accepts.
    type Connection: SvcConnection;

    /// The class with which it is registered.
    fn class() -> &'static SvcClass<Self>;

    /// Listens at `address`, of which a port 0 stands for any. May sleep.
    ///
    /// # Errors
    ///
    /// The error reported to the administrator.
    fn listen<'a>(new: NewXprt<'a, Self>, address: &SocketAddress) -> Result<Published<'a>>;

    /// Accepts a connection that a peer requested, if there is one. If another one is waiting,
    /// calls [`SvcXprt::wake_for_connection`]. May sleep.
    ///
    /// [`SvcXprt::wake_for_connection`]: super::xprt::SvcXprt::wake_for_connection
    fn accept<'a>(&self, accepting: Accepting<'a, Self::Connection>) -> Option<Published<'a>>;
}

/// A connection.
pub(crate) trait SvcConnection: SvcTransport {
    /// The message of a Call, which is kept for its Reply.
    type Call: OwnedMessage;

    /// `xpo_recvfrom`: takes the next message, while the transport is marked as busy. Does not
    /// sleep.
    fn take(&self) -> Option<Self::Call>;

    /// `xpo_recvfrom`, after [`Self::take`]: the Call in the message, if it is complete. May sleep.
    fn recvfrom(&self, call: Self::Call, rqst: &mut Receiving<'_>) -> Option<SvcCall<Self::Call>>;

    /// `xpo_result_payload`: the `length` bytes of the Reply from `at` on are one result that may
    /// be placed directly. Results are passed in order. If this one does not fit its chunk, the
    /// answer says so in place of the Reply.
    fn result_payload(&self, call: KeptCall<'_, Self::Call>, at: u32, length: u32);

    /// `xpo_sendto`: sends a Reply. May sleep.
    ///
    /// # Errors
    ///
    /// Any error, after which the connection is closed.
    fn sendto(&self, rqst: Replying<'_>, call: KeptCall<'_, Self::Call>) -> Result;

    /// `xpo_release_ctxt`: takes back the message of a Call that was answered, or that will not be.
    /// May sleep. Called by the thread that had the Call, or by one that drops a deferred Call.
    fn release_ctxt(&self, call: Self::Call);
}
