// SPDX-License-Identifier: GPL-2.0

//! What a client transport implements, and what it can request from sunrpc.
//!
//! | C callback | implemented by |
//! | --- | --- |
//! | `setup` | [`ClientTransport::setup`], around [`OwnedXprt`] |
//! | `connect` | [`connect`], which runs [`ClientTransport::connect`] on a worker |
//! | `close`, `destroy` | [`ClientTransport::close`] |
//! | `send_request` | [`ClientTransport::send`], or [`ClientTransport::send_backward`] |
//! | `buf_alloc`, `buf_free` | [`ops`] and [`buffer`], with [`ClientTransport::fence`] |
//! | `print_stats` | [`ClientTransport::print_stats`] |
//! | `wait_for_reply_request` | [`timer`] |
//! | `timer` | [`timer`], [`ClientTransport::check_peer`], [`ClientTransport::timed_out`] |
//! | `prepare_request`, `release_request` | [`credits`], with [`ClientTransport::timed_out`] |
//! | `inject_disconnect` | [`ClientTransport::disconnect`] |
//! | `bc_*` | [`ops`], with [`Backchannel`] and [`ClientTransport::backward_payload`] |
//! | all others | sunrpc's own functions, or this folder without the transport's help |

mod backchannel;
mod buffer;
mod class;
mod connect;
mod credits;
mod implementation;
mod ops;
mod pinned;
mod rqst;
mod rqst_buf;
mod timer;
mod xprt;

pub(crate) use super::send_error::SendError;
pub(crate) use backchannel::Backchannel;
pub(crate) use class::{register, ClientClass, ClientRegistration};
pub(crate) use implementation::ClientTransport;
pub(crate) use pinned::{NotPinned, PinnedRqst};
pub(crate) use rqst::{ForwardRqst, Rqst};
pub(crate) use rqst_buf::RqstBuf;
pub(crate) use xprt::OwnedXprt;
