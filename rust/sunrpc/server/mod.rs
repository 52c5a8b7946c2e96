// SPDX-License-Identifier: GPL-2.0

//! Safe access to sunrpc's server side, for transport implementations.
//!
//! | C callback | implemented by |
//! | --- | --- |
//! | `xpo_create` | [`SvcListener::listen`], around an [`OwnedSvcXprt`] |
//! | `xpo_accept` | [`SvcListener::accept`] |
//! | `xpo_has_wspace` | [`SvcConnection::has_room`] |
//! | `xpo_recvfrom` | [`SvcConnection::receive`], with a [`Receiving`] |
//! | `xpo_sendto` | [`SvcConnection::reply`], with a [`Replying`] |
//! | `xpo_result_payload` | [`SvcConnection::place`] |
//! | `xpo_release_ctxt` | [`SvcConnection::release`] |
//! | `xpo_detach` | [`SvcTransport::detach`] |
//! | `xpo_free` | [`SvcTransport::end`] |
//! | `send_request` of the backward direction | [`BcConnection::bc_sendto`], with a [`BcRqst`] |
//!
//! Contexts: `accept`, `receive`, `place` and `reply` run on threads of the service and may sleep.
//! Several of them may run for one connection at a time, except that `receive` runs alone until
//! [`Receiving::let_others_in`]. `release` runs there too, and wherever a Call that was deferred is
//! dropped; it does not sleep. `has_room` runs wherever a transport is enqueued,
//! including in completion handlers.
//!
//! C header: [`include/linux/sunrpc/svc_xprt.h`](srctree/include/linux/sunrpc/svc_xprt.h)

mod backchannel;
mod backchannel_class;
mod class;
mod moment;
mod ops;
mod rqst;
mod transport;
mod xprt;

pub(crate) use super::BcRqst;
pub(crate) use backchannel::Bc;
pub(crate) use backchannel_class::{register_bc, BcClass, BcConnection};
pub(crate) use class::{SvcClass, SvcRegistration};
pub(crate) use moment::Moment;
pub(crate) use ops::register;
pub(crate) use rqst::{KeptCall, Receiving, Replying, ResultLayout, SvcCall};
pub(crate) use transport::{SvcConnection, SvcListener, SvcTransport};
pub(crate) use xprt::{Accepting, OwnedSvcXprt, SvcXprt};
