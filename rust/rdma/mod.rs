// SPDX-License-Identifier: GPL-2.0

//! Safe access to the RDMA core: connection identifiers, queue pairs, memory regions and work
//! requests.
//!
//! Ownership follows from what the hardware needs:
//!
//! ```text
//! Device ◄── Pd ◄── Mr, DmaBuffer     a counted reference each: a device's removal
//!            ▲                        waits for the last of them
//!            └── QpOwner ──► QueuePair ──► SendQueue, RecvQueue, MrSlots, user
//! ```
//!
//! ```text
//! device.rs, ib_client.rs  the devices, their protection domains, the notice of their removal
//! cm.rs, listener.rs       connection identifiers, by state; listening addresses
//! cq.rs, dma.rs, list.rs   completion queues, buffers mapped for DMA, a list of boxes
//! mr.rs, sg.rs             memory regions, by state, and the memory that they are mapped over
//! mr_slots.rs              the registered MRs of each Call
//! rw.rs                    RDMA Reads and Writes, by means of the RDMA core
//! qp.rs, owner.rs          the queue pair of either role; its hardware objects, and its end
//! send.rs, send_ctxt.rs    its send queue, and the chains of work requests
//! recv.rs                  its receive queue
//! check.rs, watchdog.rs    the check of a silent peer, the watchdog of a server's send queue
//! ```
//!
//! Each connection has one [`QueuePair`], in both roles; its [`QpUser`] is the connection. A
//! Receive ([`RecvCtxt`]) and the context of a chain ([`SendBox`]) have one owner at a time: who
//! builds or handles a message, or one list of the queue pair. What is posted is on a list that
//! only its completion takes it from. A memory region changes its type with its state:
//! [`mr::Idle`] while it is unused, [`mr::Mapped`] once pages are mapped, [`mr::Registered`] once
//! the peer can reach it. Only an invalidation, or destroying the region, releases the pages.
//!
//! Contexts: what creates or destroys objects of the RDMA core may sleep. Completion handlers run
//! on the RDMA core's workqueue, one at a time for each queue pair. CM event handlers run on the
//! CM's workqueues with the identifier's mutex held.
//!
//! C headers: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h),
//! [`include/rdma/rdma_cm.h`](srctree/include/rdma/rdma_cm.h)

mod check;
mod cm;
mod cq;
mod device;
mod dma;
mod ib_client;
mod list;
mod listener;
mod mr;
mod mr_slots;
mod owner;
mod qp;
mod recv;
mod rw;
mod send;
mod send_ctxt;
mod sg;
mod watchdog;

pub(crate) use crate::bindings::{Exposable, RegionSize};
pub(crate) use cm::{Bound, CmEvent, CmHandler, CmId};
pub(crate) use cq::{CqContext, RemoteInvalidation, WcStatus};
pub(crate) use device::{Attributes, Device, DeviceName, Pd, Removal, RemovalNotice};
pub(crate) use ib_client::IbClient;
pub(crate) use list::List;
pub(crate) use listener::{ConnectRequest, ListenHandler, Listener};
pub(crate) use mr::{Idle, Mapped, Mr, MrList, MrType, Registered};
pub(crate) use owner::QpOwner;
pub(crate) use qp::{QpCaps, QpFailure, QpUser, QueuePair};
pub(crate) use recv::{RecvBox, RecvCtxt, RECV_BATCH};
pub(crate) use send::{SqError, MAX_UNSIGNALED};
pub(crate) use send_ctxt::SendBox;

/// The name under which the RDMA core lists this module's resources.
const CALLER: &kernel::str::CStr = c"rpcrdma";
