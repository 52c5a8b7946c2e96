// SPDX-License-Identifier: GPL-2.0

//! The responder: the transport over which nfsd exports.
//!
//! ```text
//! listener.rs      waits for connects, and accepts them
//! accept.rs        how a connection is accepted
//! transport.rs     one connection: what it is made of, what is reported to it, its end
//! incoming.rs      its Calls until a thread takes them, and its grants
//! recvfrom.rs      from a message to a Call that nfsd executes
//! rw.rs            RDMA Reads of a Call, and RDMA Writes of a Reply
//! sendto.rs        from nfsd's Reply to what the requester gets
//! backchannel.rs   nfsd's Calls to its clients
//! v2.rs            Version Two
//! sizes.rs         how much of each resource a connection and a Call can have
//! record.rs        what the connections of a listener share, and what is known of them
//! stats.rs         what is counted of one connection
//! show.rs          its files under debugfs
//! ```
//!
//! Documentation/architecture.rst follows a Call through these files; lifetimes.rst there has the
//! order of locks, and the contexts.

mod accept;
mod backchannel;
mod incoming;
mod listener;
mod record;
mod recvfrom;
mod rw;
mod sendto;
mod show;
mod sizes;
mod stats;
mod transport;
mod v2;

pub(crate) use listener::{SvcRdmaListener, CLASS};

/// Bytes in a page.
// CAST: A page is far smaller.
const PAGE_SIZE: u32 = kernel::page::PAGE_SIZE as u32;
