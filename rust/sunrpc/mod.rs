// SPDX-License-Identifier: GPL-2.0

//! Safe access to sunrpc's client side, for a transport to implement.
//!
//! | C callback | who answers |
//! | --- | --- |
//! | `setup` | [`ClientTransport::setup`], around [`OwnedXprt`] |
//! | `connect` | [`connect`], which runs [`ClientTransport::connect`] on a worker |
//! | `close`, `destroy` | [`ClientTransport::close`] |
//! | `send_request` | [`ClientTransport::send`], or [`ClientTransport::send_backward`] |
//! | `buf_alloc`, `buf_free` | [`buffer`], with [`ClientTransport::fence`] |
//! | `print_stats` | [`ClientTransport::print_stats`] |
//! | `timer` | [`ClientTransport::timed_out`] |
//! | `inject_disconnect` | [`ClientTransport::disconnect`] |
//! | `bc_*` | [`backchannel`], with [`ClientTransport::backward_payload`] |
//! | all others | sunrpc's own functions, or [`ops`] without the transport's help |
//!
//! Lock order: the send lock (sunrpc's `XPRT_LOCKED` bit), then `queue_lock`,
//! then `transport_lock`; `bc_pa_lock` is a leaf.
//!
//! C headers: [`include/linux/sunrpc/xprt.h`](srctree/include/linux/sunrpc/xprt.h),
//! [`include/linux/sunrpc/xdr.h`](srctree/include/linux/sunrpc/xdr.h)

mod address;
#[cfg_attr(not(CONFIG_SUNRPC_BACKCHANNEL), path = "no_backchannel.rs")]
mod backchannel;
mod buffer;
mod class;
mod connect;
mod credits;
mod ops;
mod queue;
mod registration;
mod rqst;
mod send_lock;
mod xdr_buf;
mod xprt;

pub(crate) use crate::bindings::{MessagePart, SocketAddress, Word};
pub(crate) use backchannel::BackwardCalls;
pub(crate) use class::{ClientTransport, SendError};
pub(crate) use queue::{OwnedQueue, ReclaimScope};
pub(crate) use registration::{Class, ClassRegistration, IDENT_RDMA};
pub(crate) use rqst::{BackwardReply, PinnedRqst, Rqst};
pub(crate) use send_lock::{SendLock, SendLocked, SendOwned};
pub(crate) use xdr_buf::XdrBuf;
pub(crate) use xprt::{OwnedXprt, Xprt};
