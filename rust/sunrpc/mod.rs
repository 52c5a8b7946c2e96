// SPDX-License-Identifier: GPL-2.0

//! Safe access to sunrpc for transport implementations: [`client`], [`server`], and what both roles
//! share.
//!
//! C headers: [`include/linux/sunrpc/xprt.h`](srctree/include/linux/sunrpc/xprt.h),
//! [`include/linux/sunrpc/xdr.h`](srctree/include/linux/sunrpc/xdr.h)

mod address;
mod address_strings;
pub(crate) mod client;
mod credits;
mod queue;
mod registration;
mod rpc_xprt;
mod send_error;
pub(crate) mod server;
mod xdr_buf;

pub(crate) use crate::bindings::{total_pages, Host, PageRange, PageVec, SocketAddress};
pub(crate) use queue::ReclaimScope;
pub(crate) use registration::{ClassRegistration, ClassUser, IDENT_RDMA};
pub(crate) use rpc_xprt::{jiffies, jiffies_to_ms};
pub(crate) use send_error::SendError;
pub(crate) use xdr_buf::XdrBuf;
