// SPDX-License-Identifier: GPL-2.0

//! Safe access to sunrpc's server side, for transport implementations.
//!
//! | C callback | implemented by |
//! | --- | --- |
//! | `xpo_create` | [`SvcListener::listen`], with a [`NewXprt`] |
//! | `xpo_accept` | [`SvcListener::accept`], with an [`Accepting`] |
//! | `xpo_recvfrom` | [`SvcConnection::take`], then [`SvcConnection::recvfrom`] |
//! | `xpo_sendto` | [`SvcConnection::sendto`], with a [`Replying`] |
//! | `xpo_result_payload` | [`SvcConnection::result_payload`] |
//! | `xpo_release_ctxt` | [`SvcConnection::release_ctxt`] |
//! | `xpo_detach` | [`SvcTransport::detach`] |
//! | `xpo_free` | [`SvcTransport::free`] |
//! | `send_request` of the backward direction | [`BcConnection::bc_sendto`] |
//!
//! Contexts: `accept`, `recvfrom`, `result_payload` and `sendto` run on threads of the service and
//! may sleep. Several of them may run for one connection at a time. `take` runs there too, does not
//! sleep, and is called by one thread at a time. `release_ctxt` runs there, and wherever a Call
//! that was deferred is dropped; it may sleep. `xpo_has_wspace` says yes for all transports: `take`
//! decides.
//!
//! C header: [`include/linux/sunrpc/svc_xprt.h`](srctree/include/linux/sunrpc/svc_xprt.h)

mod backchannel;
mod backchannel_class;
mod class;
mod ops;
mod rqst;
mod transport;
mod xprt;

pub(crate) use backchannel_class::{register_bc, BcClass, BcConnection};
pub(crate) use class::{SvcClass, SvcRegistration};
pub(crate) use rqst::{KeptCall, Receiving, Replying, SvcCall};
pub(crate) use transport::{SvcConnection, SvcListener, SvcTransport};
pub(crate) use xprt::{Accepting, NewXprt, OwnedSvcXprt, Published};
