// SPDX-License-Identifier: GPL-2.0

//! The requester: an RPC client transport over one reliable connection.
//!
//! ```text
//! transport.rs       the rpc_xprt: the callbacks of sunrpc, and what outlives a connection
//! connect.rs         an attempt to connect
//! ep.rs, limits.rs   one connection, and how large its queues are
//! marshal.rs         from an RPC to a chain of work requests
//! frwr.rs            the MRs of a Call, and the fence
//! mr_pool.rs         the MRs that no Call uses
//! reply.rs           the completion handlers (QpUser): from a Receive to the end of an RPC
//! bad_reply.rs       messages that cannot be used as a Reply
//! v2.rs              Version Two: the negotiation of a connection
//! known_servers.rs   what is known of servers, which all transports share
//! show.rs            files under debugfs
//! ```
//!
//! [`transport::RpcrdmaXprt`] exists as long as the mount. [`ep::Ep`] exists only while a
//! connection does, and owns everything that is bound to a device.
//!
//! Documentation/architecture.rst follows a Call through these files; lifetimes.rst there has the
//! order of locks, and the contexts.

mod bad_reply;
mod connect;
mod ep;
mod frwr;
mod known_servers;
mod limits;
mod marshal;
mod mr_pool;
mod reply;
mod show;
mod transport;
mod v2;

pub(crate) use known_servers::KnownServers;
pub(crate) use transport::RpcrdmaXprt;
