// SPDX-License-Identifier: GPL-2.0

//! The queue pair of a connection, and what it reports to its user.

use super::{
    cm::{Bound, CmId},
    cq::{CqContext, Cqe, RemoteInvalidation, WcStatus},
    list::List,
    mr::{Idle, MrList},
    mr_slots::MrSlots,
    owner::Hw,
    recv::{RecvBox, RecvQueue},
    rw::{may_need_mr, transfer_requests, RwList},
    send::SendQueue,
};
use crate::bindings::PageVec;
use core::{cell::UnsafeCell, mem::ManuallyDrop, num::NonZeroU32};
use kernel::{
    dma::DataDirection,
    prelude::*,
    sync::{
        atomic::{Atomic, Relaxed},
        Arc, SpinLock,
    },
    time::msecs_to_jiffies,
    workqueue::{impl_has_delayed_work, DelayedWork, WorkItem},
};

/// Milliseconds between two runs of the watchdog.
const WATCHDOG_PERIOD: u32 = 10_000;

/// The user of a queue pair: a connection of the client or of the server.
///
/// Unless they say otherwise, the functions are called by completion handlers, in process context,
/// one at a time for each queue pair, with no lock held. They must not sleep or wait for another
/// completion.
pub(crate) trait QpUser: Sized + Send + Sync + 'static {
    /// Whether this is a client: it has a limited number of Send contexts, few of them are
    /// signalled, and nothing is ever pending.
    const IS_CLIENT: bool;

    /// What the user keeps with each Receive.
    type Recv: Default + Send;

    /// What the user keeps with each chain.
    type Send: Default + Send;

    /// What the user keeps with the MRs of a Call, under the slot's lock.
    type Slot: Default + Send + Unpin;

    /// A message has arrived.
    fn received(
        cx: &mut CqContext<'_, Self>,
        ctxt: RecvBox<Self>,
        proof: Option<RemoteInvalidation<'_, Self>>,
    );

    /// A signalled chain has succeeded; its context and its entries of the send queue are free, or
    /// taken by pending chains. `pages` are those that RDMA Reads have filled, if it had any.
    fn sent(_cx: &mut CqContext<'_, Self>, _data: Self::Send, _pages: Option<PageVec>) {}

    /// `pages` pages of a chain were put, or leaked. Called before its entries of the send queue
    /// are free, by a completion handler or a thread.
    fn pages_put(&self, _data: &Self::Send, _pages: usize) {}

    /// The local invalidation of slot `index` has succeeded; these were its MRs. If it fails they
    /// stay until the connection ends.
    fn localinv_done(_cx: &mut CqContext<'_, Self>, _index: usize, _mrs: MrList<Idle>) {}

    /// A request other than the signalled one has failed, or the last RDMA Read;
    /// [`Self::qp_failed`] is called next.
    fn part_failed(&self, _data: &Self::Send, _status: WcStatus) {}

    /// No Send context is idle (client), or a chain becomes pending (server). Called with the lock
    /// of the send queue held, by any thread.
    fn sq_full(&self);

    /// What lacked when [`SqError::Full`] was returned, or [`QueuePair::reserve`] failed, may be
    /// there now. Also called by threads.
    ///
    /// [`SqError::Full`]: super::SqError::Full
    fn sq_available(&self);

    /// The queue pair has failed, as the event with this number says (`enum ib_event_type`). Called
    /// in any context; must not sleep, nor take a lock that is taken elsewhere with interrupts
    /// enabled.
    fn qp_event(&self, _event: u32) {}

    /// Queues the watchdog of `qp` to run after `delay` jiffies, unless it is disabled. A client
    /// has none. Called by a thread, or by the watchdog.
    fn enqueue_watchdog(_qp: &Arc<QueuePair<Self>>, _delay: usize) {}

    /// The connection is not usable any more. Called in any thread, perhaps more than once.
    fn qp_failed(&self, why: QpFailure);
}

/// Why a queue pair is not usable any more.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum QpFailure {
    /// A work request was flushed, which is a consequence of something else.
    Flushed,
    /// A work request has failed.
    WorkRequest(WcStatus),
    /// The peer refuses to acknowledge the Write of [`QueuePair::check_peer`].
    CheckRefused,
    /// The peer has used up a Receive, but not by a Send.
    NotASend,
    /// The provider has refused to post.
    PostFailed,
    /// The peer lets too little complete.
    Stalled,
}

impl From<WcStatus> for QpFailure {
    fn from(status: WcStatus) -> Self {
        if status.is_flush() {
            Self::Flushed
        } else {
            Self::WorkRequest(status)
        }
    }
}

/// What a queue pair is made for.
#[derive(Clone, Copy)]
pub(crate) struct QpCaps {
    /// Bytes of the message in a Send.
    pub(crate) send_size: u32,
    /// Bytes of the message in a Receive.
    pub(crate) recv_size: u32,
    /// The most Receives that are posted, without that for the drain.
    pub(crate) max_recv_wr: u32,
    /// Entries of the send queue, without that for the drain and those that the RDMA core adds for
    /// `ranges_per_msg`. On a client enough for `max_sends` with their MRs, and for the local
    /// invalidations of all slots.
    pub(crate) max_send_wr: u32,
    /// Elements in the gather list of one work request of the send queue.
    pub(crate) max_send_sge: u32,
    /// Send contexts that are made at first, and the most that are made when none is idle.
    pub(crate) first_sends: u32,
    pub(crate) max_sends: u32,
    /// Ranges that one message takes at most, where memory is registered for RDMA Reads or Writes.
    pub(crate) ranges_per_msg: u32,
    /// Slots for the MRs of Calls.
    pub(crate) slots: u32,
}

impl QpCaps {
    /// The `max_rdma_ctxs` of the queue pair: 0 where the RDMA core registers no memory.
    pub(super) fn max_rdma_ctxs(&self, id: &CmId<Bound>) -> u32 {
        if may_need_mr(id) {
            self.ranges_per_msg
        } else {
            0
        }
    }

    /// The most entries that the ranges of one message take where memory is registered for them; 0
    /// elsewhere.
    pub(crate) fn registered_requests(&self, id: &CmId<Bound>) -> u32 {
        transfer_requests(id, self.max_rdma_ctxs(id))
    }
}

/// A queue pair, the contexts of its work requests, and its user.
///
/// # Invariants
///
/// `hw` is valid while the [`QpOwner`] exists; that is, while the owner is borrowed, while a
/// completion is being handled, and while a queue is open (under its lock).
#[pin_data]
pub(crate) struct QueuePair<U: QpUser> {
    #[pin]
    pub(super) send: SpinLock<SendQueue<U>>,
    #[pin]
    pub(super) recv: SpinLock<RecvQueue<U>>,
    #[pin]
    pub(super) mrs: MrSlots<U>,
    /// The next `cid` of a Send or Receive.
    pub(super) cid: Atomic<u32>,
    #[pin]
    pub(super) watchdog: DelayedWork<Self>,
    /// Completes the check of the peer.
    pub(super) check: Cqe<Self>,
    pub(super) caps: QpCaps,
    /// Entries of the send queue, without that for the drain.
    pub(super) sq_entries: u32,
    /// The most MRs of the RDMA core's pool that RDMA Reads, and RDMA Writes, of one message take:
    /// all of them, or 0 where the core registers no memory.
    pub(super) read_mrs: u32,
    pub(crate) write_mrs: u32,
    /// The most pages in a range ([`super::device::Attributes::region_pages`]).
    pub(crate) region_pages: NonZeroU32,
    /// The numbers by which `rdma resource show` lists the QP and the CQ.
    pub(crate) number: u32,
    pub(crate) cq_number: u32,
    pub(super) user: Arc<U>,
    pub(super) hw: UnsafeCell<ManuallyDrop<Hw>>,
}

// SAFETY: The RDMA core does its own locking, and everything else is locked, atomic, or not changed
// before the owner ends it.
unsafe impl<U: QpUser> Send for QueuePair<U> {}
// SAFETY: The RDMA core does its own locking, and everything else is locked, atomic, or not changed
// before the owner ends it.
unsafe impl<U: QpUser> Sync for QueuePair<U> {}

impl_has_delayed_work! {
    impl{U: QpUser} HasDelayedWork<Self> for QueuePair<U> { self.watchdog }
}

impl<U: QpUser> QueuePair<U> {
    /// The hardware objects.
    ///
    /// # Safety
    ///
    /// They exist for all of the lifetime (type invariant).
    pub(super) unsafe fn hw(&self) -> &Hw {
        // SAFETY: They are changed only when the owner destroys them (this function's contract).
        unsafe { &*self.hw.get() }
    }

    /// The user.
    pub(crate) fn user(&self) -> &Arc<U> {
        &self.user
    }

    /// The next number for trace events.
    pub(super) fn next_cid(&self) -> u32 {
        self.cid.fetch_add(1, Relaxed)
    }

    /// The most MRs of the RDMA core's pool that RDMA Reads of so many ranges, with so many pages
    /// in all, take.
    pub(crate) fn mrs_of_reads(&self, ranges: u32, pages: u32) -> u32 {
        let more = pages / self.region_pages;
        ranges.saturating_add(more).min(self.read_mrs)
    }

    /// MRs of the pool that `rw` holds: one for each range, where memory is registered.
    pub(super) fn mrs_of(&self, rw: &RwList) -> u32 {
        let most = match rw.direction {
            DataDirection::FromDevice => self.read_mrs,
            _ => self.write_mrs,
        };
        u32::try_from(rw.len()).map_or(most, |ranges| ranges.min(most))
    }

    /// Queues the watchdog to run in 10 s.
    pub(super) fn start_watchdog(this: &Arc<Self>) {
        U::enqueue_watchdog(this, msecs_to_jiffies(WATCHDOG_PERIOD));
    }
}

/// The watchdog of a server: ends the connection if the peer lets too little complete.
impl<U: QpUser> WorkItem for QueuePair<U> {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        let mut sq = this.send.lock();
        let oldest = sq.oldest();
        let is_stalled = sq.watchdog.run(oldest);
        // A server makes others when it needs them.
        let idle = match oldest {
            Some(_) => List::new(),
            None => sq.idle.take(),
        };
        sq.made = sq.made.saturating_sub(idle.len());
        // Another connection may have freed what the user waits for, and only this tells.
        this.unlock(sq);
        drop(idle);
        if is_stalled {
            return this.user.qp_failed(QpFailure::Stalled);
        }
        Self::start_watchdog(&this);
    }
}
