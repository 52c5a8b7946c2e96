// SPDX-License-Identifier: GPL-2.0

//! The responder: the transport over which nfsd exports.
//!
//! ```text
//! listener.rs      waits for connects, and accepts them
//! connection.rs    one connection: what it is made of, and its end
//! not_accepted.rs  why a connection is not accepted
//! events.rs        what is reported to it, and what others use of it
//! incoming.rs      its Calls until a thread takes them, and its grants
//! note.rs          what is kept with a message
//! receive.rs       from a message to a Call that nfsd executes
//! reply.rs         from nfsd's Reply to what the requester gets
//! sinks.rs         pages for RDMA Reads
//! sizes.rs         how much of each resource a connection and a Call can have
//! room.rs          how many pages and Receives all connections may have
//! record.rs        what is known of a listener and of the connections that came through it
//! stats.rs         what is counted of one connection
//! show.rs          its files under debugfs
//! backchannel.rs   nfsd's Calls to its clients
//! ```
//!
//! A Call goes through these threads: the completion of its Receive decodes it, and posts RDMA
//! Reads for what is not inline; their completion puts it together; a thread of the service
//! executes it, and posts the Reply; the completion of that gives pages and room back, and wakes
//! only threads that wait for room.
//!
//! Lock order: the locks here are leaves, each taken alone, with three exceptions. The listener's
//! (`Listener::state`) is held while it begins and stops listening. That of the Calls that wait for
//! room (`IncomingCalls::waiting`) is held while those of the connection's and the listener's
//! budgets (`Events::pages`, `Room::state`) are taken, one at a time. That of the listener's budget
//! is held while another connection is enqueued, for which sunrpc asks whether it has room, and
//! while one that is stuck is ended, which takes the lock of its send queue's slots.

mod backchannel;
mod connection;
mod events;
mod incoming;
mod listener;
mod not_accepted;
mod note;
mod receive;
mod record;
mod reply;
mod room;
mod show;
mod sinks;
mod sizes;
mod stats;

pub(crate) use listener::Listener;

/// Bytes in a page.
// CAST: A page is far smaller.
const PAGE_SIZE: u32 = kernel::page::PAGE_SIZE as u32;
