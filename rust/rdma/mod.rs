// SPDX-License-Identifier: GPL-2.0

//! Safe access to the RDMA core: connection identifiers, queue pairs, memory
//! regions and work requests.
//!
//! Ownership follows what the hardware needs:
//!
//! ```text
//! CmId ◄── Pd ◄── Mr            a counted reference each: the device stays
//!   ▲      ▲                    until the last of them is gone
//!   └──────┴── QueuePair ──► Cq, ReceiveQueue, SendQueue, RegisteredLists
//! ```
//!
//! A work request's memory lives in the queue that posts it. It leaves only
//! through a completion, or through the queue pair's end, after the drain. A
//! memory region changes its type with its state: [`mr::Idle`] on the shelf,
//! [`mr::Mapped`] with pages, [`mr::Registered`] once the peer can reach it.
//! Only an invalidation, or the region's destruction, lets the pages go.
//!
//! Contexts: everything that creates or destroys may sleep. Completions run
//! on the RDMA core's workqueue, one at a time for each queue pair. CM events
//! run on the CM's workqueues with the identifier's mutex held.
//!
//! Lock order: a slot of the `RegisteredLists`, then `SendQueue::gate`.
//!
//! C headers: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h),
//! [`include/rdma/rdma_cm.h`](srctree/include/rdma/rdma_cm.h)

mod access;
mod completion;
mod receive;
mod registered;
mod ring;
mod send;

pub(crate) mod cm;
pub(crate) mod cq;
pub(crate) mod device;
pub(crate) mod dma;
pub(crate) mod mr;
pub(crate) mod pd;
pub(crate) mod qp;

pub(crate) use access::Access;
pub(crate) use cm::{CmEvent, CmHandler, CmId, CmReport};
pub(crate) use completion::{Completion, Completions, RemoteInvalidation, WcStatus};
pub(crate) use mr::{Idle, Mapped, Mr, MrList, MrType, Registered};
pub(crate) use pd::Pd;
pub(crate) use qp::{QpSizes, QueuePair};
pub(crate) use receive::ReceivedMessage;
pub(crate) use registered::{Invalidation, LockedSlot};
pub(crate) use send::{SendBuffer, Sender, MAX_UNSIGNALED};

/// The name under which the RDMA core lists this module's resources.
const CALLER: &kernel::str::CStr = c"rpcrdma";
