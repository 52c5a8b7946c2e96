// SPDX-License-Identifier: GPL-2.0

//! Safe access to the RDMA core: connection identifiers, queue pairs, memory
//! regions and work requests.
//!
//! Ownership follows from what the hardware needs:
//!
//! ```text
//! Device ◄── Pd ◄── Mr, DmaBuffer     a counted reference each: a device's removal
//!            ▲ ▲                      waits for the last of them
//!            │ └── Cq ◄── Qp ──► CmId
//!            │            ▲
//!            └── QueuePair┴──► SendQueue, RegisteredMrs, the user's context
//! ```
//!
//! A Receive is owned by its poster, then by the device until it completes, and then by the handler
//! of its completion. The buffers of Sends belong to the queue pair until it is drained. A memory
//! region changes its type with its state: [`mr::Idle`] while it is unused, [`mr::Mapped`] once
//! pages are mapped, [`mr::Registered`] once the peer can reach it. Only an invalidation, or
//! destroying the region, releases the pages.
//!
//! Contexts: everything that creates or destroys objects may sleep. Completion handlers run on the
//! RDMA core's workqueue, one at a time for each queue pair. CM event handlers run on the CM's
//! workqueues with the identifier's mutex held.
//!
//! Lock order: a slot of the `RegisteredMrs`, then the send gate of the `Qp`. Its receive gate and
//! the list of devices are leaf locks. A device's list of users is locked before any lock taken by
//! those that are notified of its removal.
//!
//! C headers: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h),
//! [`include/rdma/rdma_cm.h`](srctree/include/rdma/rdma_cm.h)

// TODO: goes with the types that QueuePair replaces.
#![allow(dead_code, unused_imports)]

mod access;
mod client_send;
mod cqe;
mod ib_client;
mod list;
mod listener;
mod look;
mod mr_slots;
mod needs_mr;
mod old_cq;
mod owner;
mod queue_pair;
mod raw_qp;
mod receive;
mod recv;
mod registered;
mod ring;
mod rw;
mod send;
mod send_ctxt;
mod sender;
mod sizes;

pub(crate) mod cm;
pub(crate) mod cq;
pub(crate) mod device;
pub(crate) mod dma;
pub(crate) mod mr;
pub(crate) mod pd;
pub(crate) mod qp;

pub(crate) use crate::bindings::{Exposable, RegionSize};
pub(crate) use access::Access;
pub(crate) use cm::{AcceptedHandler, Bound, CmEvent, CmHandler, CmId, CmReport};
pub(crate) use cq::{CqContext, RemoteInvalidation, WcStatus};
pub(crate) use device::{Device, DeviceName, Removal, RemovalNotice};
pub(crate) use ib_client::IbClient;
pub(crate) use list::List;
pub(crate) use listener::{ConnectRequest, ListenHandler, Listener};
pub(crate) use mr::{Idle, Mapped, Mr, MrList, MrType, Registered};
pub(crate) use mr_slots::{Invalidation, SlotGuard};
pub(crate) use owner::{ConnectParam, QpOwner};
pub(crate) use pd::Pd;
pub(crate) use qp::{QpCaps, QpFailure, QpUser, QueuePair};
pub(crate) use queue_pair::{Completion, Completions, QueuePair as OldQueuePair, ReceivedMessage};
pub(crate) use raw_qp::ConnectParameters;
pub(crate) use receive::Note;
pub(crate) use recv::{RecvBox, RecvCtxt, RECV_BATCH};
pub(crate) use registered::{Invalidation as OldInvalidation, LockedSlot};
pub(crate) use ring::MAX_UNSIGNALED;
pub(crate) use send::{QpView, SqError};
pub(crate) use send_ctxt::SendBox;
pub(crate) use sender::{SendBuffer, Sender};
pub(crate) use sizes::QpSizes;

/// The name under which the RDMA core lists this module's resources.
const CALLER: &kernel::str::CStr = c"rpcrdma";
