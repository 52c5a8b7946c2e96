// SPDX-License-Identifier: GPL-2.0

//! The requester: an RPC client transport over one reliable connection.
//!
//! [`transport::RpcrdmaXprt`] exists as long as the mount. [`ep::Ep`] exists only while a
//! connection does, and owns everything that is bound to a device. Locks: those of a connection are
//! taken one at a time; a reader in debugfs takes them within `RpcrdmaXprt::current`, as it must
//! not hold a reference to the connection, which might be the last.

mod connect;
mod ends;
mod ep;
mod frwr;
mod limits;
mod marshal;
mod reply;
mod show;
mod transport;
mod v2;

pub(crate) use transport::Client;
pub(crate) use v2::KnownServers;
