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
//! A Call goes through these threads: the completion of its Receive decodes and queues it; a thread
//! of nfsd takes it, and posts RDMA Reads for what is not inline; their completion queues it again;
//! another thread executes it, and hands over the Reply; the completion of that gives pages and
//! entries of the send queue back. Completions neither sleep nor allocate memory. No thread of nfsd
//! waits for the peer: a chain that the send queue has too few free entries for is pending, and the
//! completion that frees entries posts it.
//!
//! Lock order: `SvcxprtRdma::incoming`, then the lock of the send queue, that of the receive queue,
//! or those of svc_xprt_enqueue(). `Bc`, then sunrpc's `queue_lock`, then its `transport_lock`. The
//! listener's (`SvcRdmaListener::state`) is held while it begins and stops listening. All others
//! are leaves.

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
