// SPDX-License-Identifier: GPL-2.0

//! What the connection manager, the device and the other connections of the room report to a
//! connection, and what they use of it.

use super::{
    record::SharedRecord,
    room::{Room, Waiter},
    stats::Stats,
};
use crate::{
    error::Cause,
    proto::{responder::budget::PageBudget, wire::header::Xid},
    rdma::{AcceptedHandler, CmEvent, CmHandler, CmReport, Removal, SendSlots},
    sunrpc::server::OwnedSvcXprt,
    trace,
};
use kernel::{
    new_spinlock,
    prelude::*,
    sync::{
        atomic::{Acquire, Atomic, Relaxed, Release},
        Arc, SpinLock,
    },
    time::{BootTime, Instant},
};

/// The number of the next connection.
static NEXT: Atomic<u32> = Atomic::new(1);

/// No cause of this module's own: sunrpc ends the connection.
const NO_CAUSE: i32 = -1;

/// A connection, without its queue pair.
#[pin_data]
pub(super) struct Events {
    pub(super) xprt: OwnedSvcXprt,
    /// The slots of the send queue, for which nobody waits once the connection is to be closed.
    pub(super) slots: Arc<SendSlots>,
    /// Whether the handshake is over. Messages that arrive earlier wait for that.
    is_established: Atomic<bool>,
    /// The number of the first cause for which the connection ends, or [`NO_CAUSE`].
    cause: Atomic<i32>,
    /// Whether the device has flushed a work request.
    is_flushed: Atomic<bool>,
    /// Distinguishes the connection in debugfs and in trace events.
    pub(super) number: u32,
    pub(super) since: Instant<BootTime>,
    pub(super) stats: Stats,
    /// The listener's record.
    pub(super) record: SharedRecord,
    /// The listener's room, of which the connection has a part.
    pub(super) room: Arc<Room>,
    #[pin]
    pages: SpinLock<Pages>,
}

/// Pages of a connection's Calls.
struct Pages {
    budget: PageBudget,
    /// Whether a Call waits until some are given back.
    is_awaited: bool,
    /// The pages for a Call that is in the room's line, or was admitted and has not taken them yet.
    /// If a thread that waits for the send queue keeps it from taking them, that thread ends the
    /// connection in time.
    in_line: u32,
}

/// Why a Call waits.
pub(super) enum Shortage {
    /// For pages of the connection's other Calls.
    Connection,
    /// In the line for the room of all connections.
    Room,
}

impl Events {
    /// The events of a connection whose handshake is under way, with up to `max_pages` pages for
    /// its Calls.
    pub(super) fn new(
        xprt: OwnedSvcXprt,
        record: SharedRecord,
        max_pages: u32,
    ) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            xprt,
            slots: Arc::pin_init(SendSlots::new(), GFP_KERNEL)?,
            is_established: Atomic::new(false),
            cause: Atomic::new(NO_CAUSE),
            is_flushed: Atomic::new(false),
            number: NEXT.fetch_add(1, Relaxed),
            since: Instant::now(),
            stats: Stats::new(),
            room: record.room().clone(),
            pages <- new_spinlock!(Pages {
                budget: PageBudget::new(max_pages),
                is_awaited: false,
                in_line: 0,
            }, "rpcrdma_pages"),
            record,
        }? Error)
    }

    /// Adds the connection to those that may wait for the room. May sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn enter(this: &Arc<Self>) -> Result {
        this.room.enter(this.number, this.clone())
    }

    /// Undoes [`Self::enter`], once no Call is left.
    pub(super) fn leave(&self) {
        self.room.leave(self.number);
    }

    /// The pages of the connection's Calls.
    pub(super) fn page_budget(&self) -> PageBudget {
        self.pages.lock().budget
    }

    /// Takes room for `pages` pages, if there is some; otherwise nobody is told later.
    pub(super) fn try_reserve(this: &Arc<Self>, pages: u32) -> Option<Reserved> {
        if !this.pages.lock().budget.take(pages) {
            return None;
        }
        if !this.room.try_take(pages) {
            this.give_back(pages);
            return None;
        }
        Some(Reserved::new(this, pages))
    }

    /// Gives room back to the connection's own budget.
    fn give_back(&self, pages: u32) {
        let mut own = self.pages.lock();
        own.budget.give_back(pages);
        let is_awaited = core::mem::replace(&mut own.is_awaited, false);
        drop(own);
        if is_awaited {
            self.wake();
        }
    }

    /// Takes room for `pages` pages, or has the connection woken when there may be some.
    pub(super) fn reserve(this: &Arc<Self>, pages: u32) -> Result<Reserved, Shortage> {
        let mut own = this.pages.lock();
        if !own.budget.take(pages) {
            own.is_awaited = true;
            return Err(Shortage::Connection);
        }
        own.in_line = pages;
        drop(own);
        if Room::take(&this.room, this.number, pages) {
            Ok(Self::admitted(this, pages))
        } else {
            Err(Shortage::Room)
        }
    }

    /// Takes room for the `pages` pages that the connection waited for in the room's line, if it
    /// was admitted.
    pub(super) fn take_admitted(this: &Arc<Self>, pages: u32) -> Option<Reserved> {
        let is_there = this.room.take_admitted(this.number);
        is_there.then(|| Self::admitted(this, pages))
    }

    /// The pages have been taken from the room as well as from the connection's own budget.
    fn admitted(this: &Arc<Self>, pages: u32) -> Reserved {
        this.pages.lock().in_line = 0;
        Reserved::new(this, pages)
    }

    /// Takes the connection out of the room's line, and gives back what its Call there has.
    pub(super) fn withdraw(&self) {
        self.room.withdraw(self.number);
        let mut own = self.pages.lock();
        let pages = core::mem::take(&mut own.in_line);
        own.budget.give_back(pages);
    }

    /// Records the cause for which the connection is going to be closed.
    pub(super) fn note(&self, cause: Cause) {
        // The first one stays.
        let _ = self.cause.cmpxchg(NO_CAUSE, cause.number(), Relaxed);
    }

    /// Has the connection closed, as the device has flushed a work request. As [`Self::close`].
    ///
    /// With iWARP that may come before the connection manager tells that the client has
    /// disconnected, which is what it means unless another cause is noted.
    pub(super) fn flushed(&self) {
        self.is_flushed.store(true, Relaxed);
        self.end();
    }

    /// Why the connection ends.
    pub(super) fn cause(&self) -> Cause {
        let number = self.cause.load(Relaxed);
        let mut causes = Cause::ALL.iter().copied();
        match causes.find(|cause| cause.number() == number) {
            Some(cause) => cause,
            None if self.is_flushed.load(Relaxed) => Cause::Disconnected,
            None => Cause::Closed,
        }
    }

    /// Has the connection closed for this cause. Wakes threads that wait for the send queue: they
    /// may be all that could close it. Does not sleep.
    pub(super) fn close(&self, cause: Cause) {
        self.note(cause);
        self.end();
    }

    fn end(&self) {
        // First, so that whoever is woken finds that no new cause counts.
        self.xprt.close();
        self.slots.close();
    }

    /// Ends the connection if the peer lets next to nothing complete. Calls keep sunrpc from
    /// closing it as idle, and what was sent keeps pages until it has completed.
    pub(super) fn check_sends(&self) {
        if self.slots.is_late(self.room.now()) {
            self.close(Cause::TimedOut);
        }
    }

    /// Records that a Call's chunks cannot be used, which costs the connection.
    pub(super) fn cannot_answer(&self, xid: Xid) {
        self.record.cannot_answer(&self.xprt.peer_address(), xid);
    }

    /// Whether a Call like this one has cost earlier connections, so that it is to be refused.
    pub(super) fn is_unanswerable(&self, xid: Xid) -> bool {
        let record = &self.record;
        record.has_unanswerable() && record.is_unanswerable(&self.xprt.peer_address(), xid)
    }

    /// Forgets that such a Call has cost connections, as it was refused.
    pub(super) fn refused(&self, xid: Xid) {
        let record = &self.record;
        if record.has_unanswerable() {
            record.refused(&self.xprt.peer_address(), xid);
        }
    }

    /// Whether messages can be answered.
    pub(super) fn is_established(&self) -> bool {
        self.is_established.load(Acquire)
    }
}

impl CmHandler for Events {
    fn event(&self, event: CmEvent<'_>, _report: CmReport) {
        match event {
            CmEvent::Established(_) => {
                self.is_established.store(true, Release);
                // No thread has been told of the messages that wait.
                self.xprt.enqueue();
            }
            CmEvent::Disconnected => self.close(Cause::Disconnected),
            CmEvent::DeviceRemoval => self.close(Cause::DeviceRemoved),
            CmEvent::Rejected { .. } => self.close(Cause::Rejected),
            CmEvent::Unreachable => self.close(Cause::Unreachable),
            CmEvent::ConnectError => self.close(Cause::ConnectError),
            _ => {}
        }
    }
}

impl AcceptedHandler for Events {
    fn queue_pair_failed(&self, event: u32) {
        trace::svcrdma_qp_error(self.number, event);
        self.note(Cause::WorkRequest);
        self.xprt.close();
    }
}

impl Removal for Events {
    fn removed(&self) {
        trace::svcrdma_device_removal(self.number);
        self.note(Cause::DeviceRemoved);
        self.slots.close();
        // The removal waits, and there may be no thread of the service.
        self.xprt.close_now();
    }
}

impl Waiter for Events {
    fn wake(&self) {
        self.xprt.call_waits();
        self.xprt.enqueue_recorded();
    }

    fn is_stuck(&self, now: u64, others_wait: bool) -> bool {
        let (is_quiet, is_late) = (self.slots.is_quiet(now), self.slots.is_late(now));
        is_late
            || (is_quiet && others_wait && {
                let own = self.pages.lock();
                own.budget.used() > own.in_line
            })
    }

    fn is_sending(&self) -> bool {
        self.slots.is_in_use()
    }

    fn end(&self) {
        self.close(Cause::TimedOut);
    }
}

/// Room for the pages of a Call, which is given back when this object is dropped.
pub(super) struct Reserved {
    events: Arc<Events>,
    pages: u32,
}

impl Reserved {
    /// The room that `events` has taken.
    fn new(events: &Arc<Events>, pages: u32) -> Self {
        Self {
            events: events.clone(),
            pages,
        }
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.events.give_back(self.pages);
        self.events.room.give_back(self.pages);
    }
}
