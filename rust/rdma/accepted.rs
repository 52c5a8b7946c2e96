// SPDX-License-Identifier: GPL-2.0

//! The queue pair of a connection that a peer requested, with the contexts of its work requests.
//!
//! Any thread may post on it. Receives are posted by whoever grants credits for them, not by their
//! completion handlers, which only pass messages on.

use super::{
    cm::{Bound, CmId},
    completion::{is_send, WcStatus},
    cq::Cq,
    cqe::CqRef,
    needs_mr::{may_need_mr, transfer_requests},
    outgoing::{Outgoing, OutgoingOwner, SendContext},
    pool::Pool,
    qp::{Capacities, ConnectParameters, Qp},
    reads::{ReadContext, ReadOwner, Reads},
    receive::{CompletedReceive, Note, PostedReceives, Receive, ReceiveOwner, Receives},
    send_slots::SendSlots,
    Pd,
};
use crate::{
    bindings::{self, PageVec, RelaxedCell},
    trace::{self, TraceQp},
};
use core::ptr::NonNull;
use kernel::{
    alloc::{flags::__GFP_NOWARN, Flags},
    bitmap::BitmapVec,
    new_spinlock,
    prelude::*,
    sync::{
        atomic::{Atomic, Relaxed, Release},
        Arc, SpinLock, SpinLockGuard,
    },
};

/// The events that an accepted queue pair reports to its user.
///
/// Unless they say otherwise, the methods run on the RDMA core's completion workqueue, never two at
/// a time for one queue pair. An implementation must not wait for another completion, nor for
/// memory whose reclaim could depend on write-back by the server's own clients.
pub(crate) trait AcceptedEvents: Send + Sync + Sized + 'static {
    /// State that the user keeps with each message.
    type Note: Note;

    /// The value that is passed to [`Self::sent`] when the Send completes.
    type Sent: Default + Send;

    /// A message has arrived.
    fn received(qp: &AcceptedQp<Self>, message: AcceptedMessage<Self>);

    /// The RDMA Reads that were posted for `message` have filled `pages`.
    fn read(qp: &AcceptedQp<Self>, message: AcceptedMessage<Self>, pages: PageVec);

    /// An RDMA Read for the message with this note has failed or was flushed. [`Self::failed`] is
    /// called next.
    fn not_read(&self, note: &Self::Note, status: WcStatus);

    /// The same for an RDMA Write before the Send to which `sent` belongs.
    fn not_written(&self, sent: &Self::Sent, status: WcStatus);

    /// A Send has completed, so that there is about to be room on the send queue.
    fn sent(&self, sent: &Self::Sent);

    /// The send queue is full; the caller waits for room or retries later. Called with a spinlock
    /// held.
    fn queue_is_full(&self);

    /// A work request failed or was flushed. The connection is no longer usable.
    fn failed(&self, status: WcStatus);

    /// The peer has used up a Receive, but not by a Send. The connection has to end.
    fn not_a_send(&self);

    /// A thread has waited for room on the send queue, but the peer has let too little complete.
    /// The connection has to end. Called in process context.
    fn timed_out(&self);

    /// The provider has refused to post Receives. The connection is no longer usable. Called in
    /// process context by those who post, who may be several; must not sleep.
    fn refused(&self);
}

/// A message that arrived at an accepted queue pair with this context.
pub(crate) type AcceptedMessage<C> = CompletedReceive<AcceptedQp<C>>;

/// The sizes of an accepted queue pair's queues.
#[derive(Clone, Copy)]
pub(crate) struct AcceptedSizes {
    /// The most Receives that can be posted.
    pub(crate) receives: u32,
    /// Bytes in each Receive.
    pub(crate) receive_size: u32,
    /// Bytes in each Send.
    pub(crate) send_size: u32,
    /// Work requests on the send queue, not counting those that the RDMA core adds for transfers.
    pub(crate) send_requests: u32,
    /// RDMA Reads and Writes that can be outstanding where memory has to be registered for each;
    /// more if one message takes more.
    pub(crate) transfers: u32,
    /// The most RDMA Reads or Writes for one message, each of no more pages than a region has. All
    /// are mapped before any is posted.
    pub(crate) message_transfers: u32,
    /// Elements in the scatter/gather list of each of them.
    pub(crate) transfer_sge: u32,
}

impl AcceptedSizes {
    /// The capacities of the queue pair of `id`, including one request in each queue for the drain.
    fn capacities(&self, id: &CmId<Bound>, pd: &Pd) -> Capacities {
        // Where nothing is registered, transfers are counted in `send_requests`.
        let transfers = match may_need_mr(id, pd) {
            true => self.transfers.max(self.message_transfers),
            false => 0,
        };
        Capacities {
            send_requests: self.send_requests.saturating_add(1),
            receive_requests: self.receives.saturating_add(1),
            transfers,
            send_sge: self.transfer_sge,
        }
    }

    /// The most work requests that the RDMA Reads or Writes for one message take where memory is
    /// registered for them; 0 elsewhere.
    pub(crate) fn registered_requests(&self, id: &CmId<Bound>, pd: &Pd) -> u32 {
        match may_need_mr(id, pd) {
            true => transfer_requests(id, self.message_transfers),
            false => 0,
        }
    }
}

/// An accepted queue pair, the contexts of its work requests, and the user's `context`.
///
/// # Invariants
///
/// [`AcceptedOwner`] closes the queues and waits for all posted work requests before this object is
/// dropped, so no handler runs by then.
#[pin_data]
pub(crate) struct AcceptedQp<C: AcceptedEvents> {
    // These are dropped before what work requests use.
    #[pin]
    qp: Qp,
    cq: Arc<Cq>,
    slots: Arc<SendSlots>,
    #[pin]
    sends: Pool<SendContext<Self>>,
    #[pin]
    reads: Pool<ReadContext<Self>>,
    #[pin]
    receives: SpinLock<IdleReceives<C>>,
    /// Receives that the device holds. A Receive is counted once it is posted, so that nobody
    /// grants it earlier; it may complete before it is counted, so the count can be negative for a
    /// moment.
    posted_count: Atomic<i32>,
    posted: PostedReceives<Self>,
    /// How many the user last wanted the device to hold.
    wanted: RelaxedCell<u32>,
    sizes: AcceptedSizes,
    #[pin]
    context: C,
}

/// Receives that the device does not hold.
struct IdleReceives<C: AcceptedEvents> {
    idle: Receives<AcceptedQp<C>>,
    /// How many have been allocated, whether idle or not.
    made: u32,
    /// The most that were with the user at once lately when a batch was posted, up to
    /// [`KEPT_RECEIVES`].
    most: usize,
    /// Which numbers are used.
    used: BitmapVec,
}

/// For how many Receives that are with the user at once idle ones are kept in their place. Twice as
/// many are kept at most while some are with the user, since these come back between two batches.
/// Receives that a burst needed beyond that are freed.
const KEPT_RECEIVES: usize = 8;

impl<C: AcceptedEvents> IdleReceives<C> {
    /// A number for one more Receive, unless all are used.
    fn number(&mut self) -> Option<u32> {
        let free = self.used.next_zero_bit(0)?;
        let index = u32::try_from(free).ok()?;
        self.used.set_bit(free);
        self.made = self.made.saturating_add(1);
        Some(index)
    }

    /// Takes back a Receive from the user, while the device holds `posted` and is to hold
    /// `wanted`. Returns how many are to be freed.
    fn put(&mut self, receive: KBox<Receive<AcceptedQp<C>>>, posted: u32, wanted: u32) -> usize {
        self.idle.push(receive);
        // CAST: A u32 always fits the kernel's usize.
        let missing = wanted.saturating_sub(posted) as usize;
        match self.idle.len() > missing {
            true => self.surplus(missing, posted),
            false => 0,
        }
    }

    /// How many of the idle Receives are to be freed, if the next batch takes `missing` of them.
    /// Once all are back, as many more are kept as are with the user when that is posted.
    fn surplus(&mut self, missing: usize, posted: u32) -> usize {
        if self.lent(posted) > 0 {
            return self.idle.len().saturating_sub(2 * KEPT_RECEIVES);
        }
        // One of these may be missing in a batch.
        self.most = self.most.saturating_sub(1);
        let kept = missing.saturating_add(self.most);
        self.idle.len().saturating_sub(kept)
    }

    /// How many idle ones a batch of `missing` Receives lacks.
    fn short(&mut self, missing: u32, posted: u32) -> usize {
        self.most = self.most.max(self.lent(posted)).min(KEPT_RECEIVES);
        // CAST: A u32 always fits the kernel's usize.
        (missing as usize).saturating_sub(self.idle.len())
    }

    /// How many are with the user, while the device holds `posted`.
    fn lent(&self, posted: u32) -> usize {
        // CAST: A u32 always fits the kernel's usize.
        let others = self.made.saturating_sub(posted) as usize;
        others.saturating_sub(self.idle.len())
    }

    /// Records that there is no Receive with this number any more.
    fn forget(&mut self, index: u32) {
        self.made = self.made.saturating_sub(1);
        // CAST: A u32 always fits the kernel's usize.
        self.used.clear_bit(index as usize);
    }
}

// SAFETY: The queue pair and the pools are thread-safe, and each Receive has one owner.
unsafe impl<C: AcceptedEvents> Send for AcceptedQp<C> {}
// SAFETY: The queue pair and the pools are thread-safe, and each Receive has one owner.
unsafe impl<C: AcceptedEvents> Sync for AcceptedQp<C> {}

impl<C: AcceptedEvents> AcceptedQp<C> {
    /// The user's context.
    pub(crate) fn context(&self) -> &C {
        &self.context
    }

    /// The underlying queue pair.
    pub(crate) fn qp(&self) -> &Qp {
        &self.qp
    }

    /// The number by which `rdma resource show cq` lists the completion queue.
    pub(crate) fn completion_queue(&self) -> u32 {
        self.cq.number()
    }

    /// Prepares a message to send. May sleep for memory.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn outgoing(&self) -> Result<Outgoing<'_, Self>> {
        Outgoing::new(self)
    }

    /// Prepares RDMA Reads. May sleep for memory; waits until no other thread maps transfers, if
    /// `may_wait`.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, or `EAGAIN` if it would have to wait.
    pub(crate) fn reading(&self, may_wait: bool) -> Result<Reads<'_, Self>> {
        Reads::new(self, may_wait)
    }

    /// Whether no thread is waiting for room on the send queue.
    pub(crate) fn has_room(&self) -> bool {
        !self.slots.is_awaited()
    }

    /// Tops up the posted Receives to `count`, or to as many as the queue holds, if at least
    /// `batch` of them are missing. When this returns, fewer than that are. Sleeps for memory if
    /// `may_wait`.
    ///
    /// # Errors
    ///
    /// `ENOMEM` if there is no memory for Receives. After any other error the connection is ending:
    /// `EPIPE` if it was before, or what the provider returns, but `EIO` for its `ENOMEM`.
    pub(crate) fn post_receives(&self, count: u32, batch: u32, may_wait: bool) -> Result {
        self.wanted.set(count.min(self.sizes.receives));
        match self.missing_receives(count, batch) {
            0 => Ok(()),
            _ => self.post_missing(count, batch, may_wait),
        }
    }

    /// How many Receives the device holds, counting completions that were not handled yet.
    pub(crate) fn posted_count(&self) -> u32 {
        self.posted_count.load(Relaxed).max(0).unsigned_abs()
    }

    /// How many Receives [`Self::post_receives`] has to post.
    fn missing_receives(&self, count: u32, batch: u32) -> u32 {
        let wanted = count.min(self.sizes.receives);
        let missing = wanted.saturating_sub(self.posted_count());
        if missing < batch {
            0
        } else {
            missing
        }
    }

    /// The slow path of [`Self::post_receives`]: some are missing.
    fn post_missing(&self, count: u32, batch: u32, may_wait: bool) -> Result {
        let flags = if may_wait {
            GFP_KERNEL
        } else {
            GFP_NOWAIT | __GFP_NOWARN
        };
        loop {
            let mut receives = self.receives.lock();
            // Completions only lower the count.
            let missing = self.missing_receives(count, batch);
            let short = receives.short(missing, self.posted_count());
            // The Receive of the Call that is being answered is about to be idle, and belongs to
            // the next batch.
            if short < usize::try_from(batch)?.min(2) {
                return self.post_idle(receives, missing);
            }
            let number = receives.number();
            drop(receives);
            let made = match number {
                Some(index) => self.make_receive(index, flags),
                None => Err(ENOMEM),
            };
            let mut receives = self.receives.lock();
            match made {
                Ok(receive) => receives.idle.push(receive),
                Err(error) => {
                    if let Some(index) = number {
                        receives.forget(index);
                    }
                    // Until there is memory, the ones that exist have to do.
                    let missing = self.missing_receives(count, 1);
                    self.post_idle(receives, missing)?;
                    return Err(error);
                }
            }
        }
    }

    /// Posts idle Receives, up to `most`.
    fn post_idle(&self, mut receives: SpinLockGuard<'_, IdleReceives<C>>, most: u32) -> Result {
        let mut chain = Receives::new();
        let mut taken = 0i32;
        for _ in 0..most {
            let Some(receive) = receives.idle.pop() else {
                break;
            };
            trace::svcrdma_post_recv(self, receive.index());
            chain.push(receive);
            taken = taken.saturating_add(1);
        }
        // SAFETY: Both the Receives and the queue pair belong to this object.
        let posted = unsafe { self.qp.post_receives(self, chain) };
        // All are counted even after an error: the connection is ending then, and nobody posts more
        // than the queue holds. Release: a Reply that relies on the count is sent after these
        // Receives were posted.
        self.posted_count.fetch_add(taken, Release);
        drop(receives);
        // Receives that were not posted are freed outside the lock.
        posted.map_err(|(error, _rest)| {
            if error == EPIPE {
                return error;
            }
            trace::svcrdma_rq_post_err(self, error);
            self.context.refused();
            match error {
                ENOMEM => EIO,
                error => error,
            }
        })
    }

    /// Allocates a Receive with this number.
    fn make_receive(&self, index: u32, flags: Flags) -> Result<KBox<Receive<Self>>> {
        let size = usize::try_from(self.sizes.receive_size)?;
        Receive::new(self.qp.pd(), size, index, NonNull::from(self), flags)
    }

    /// Takes back a message's buffer, and drops what was kept with the message. Does not sleep.
    pub(crate) fn recycle(&self, message: AcceptedMessage<C>) {
        let Some(receive) = message.into_receive(self) else {
            return;
        };
        receive.give_to_device();
        let mut receives = self.receives.lock();
        let surplus = receives.put(receive, self.posted_count(), self.wanted.get());
        if surplus != 0 {
            Self::trim(receives, surplus);
        }
    }

    /// Frees so many idle Receives.
    fn trim(mut receives: SpinLockGuard<'_, IdleReceives<C>>, count: usize) {
        let mut surplus = Receives::new();
        for _ in 0..count {
            if let Some(receive) = receives.idle.pop() {
                receives.forget(receive.index());
                surplus.push(receive);
            }
        }
        drop(receives);
        drop(surplus);
    }

    /// How many Receives are posted, and how many exist.
    pub(crate) fn receives(&self) -> (u32, u32) {
        (self.posted_count(), self.receives.lock().made)
    }

    /// Work requests on the send queue now, the most there ever were, and the queue's capacity.
    pub(crate) fn send_queue(&self) -> (u32, u32, u32) {
        self.slots.usage()
    }

    /// For the contexts of Sends, and of RDMA Reads: how many are in use, and how many exist.
    pub(crate) fn contexts(&self) -> [(u32, u32); 2] {
        [self.sends.len(), self.reads.len()]
    }

    /// Whether an [`Outgoing`] with RDMA Writes excludes all others from its first page until it is
    /// sent: no memory may be reclaimed meanwhile that waits for one of these.
    pub(crate) fn maps_in_turn(&self) -> bool {
        self.qp.registers_writes()
    }

    /// A message has arrived before the connection manager reports the connection as established:
    /// has it do so now. The datagram that it waits for may be lost. Does not sleep.
    pub(crate) fn notify_established(&self) {
        self.qp.notify_established();
    }

    /// Starts to disconnect, and wakes threads that wait for room on the send queue. May sleep.
    pub(crate) fn disconnect(&self) {
        self.slots.close();
        self.qp.disconnect();
    }
}

impl<C: AcceptedEvents> TraceQp for AcceptedQp<C> {
    fn queue(&self) -> u32 {
        self.completion_queue()
    }
}

// SAFETY: The table is always the same field, which is dropped after the queue pair. The object is
// pinned, and is not dropped before everything that is posted has completed (type invariant).
unsafe impl<C: AcceptedEvents> ReceiveOwner for AcceptedQp<C> {
    type Note = C::Note;

    unsafe fn received(&self, message: AcceptedMessage<C>, wc: &bindings::ib_wc) {
        self.posted_count.fetch_sub(1, Relaxed);
        // Others post as well, and whoever has the message may free it.
        self.qp.wait_for_posting_receives();
        match WcStatus::failure(wc) {
            Some(status) => {
                self.recycle(message);
                self.context.failed(status);
            }
            None if is_send(wc) => C::received(self, message),
            None => {
                self.recycle(message);
                self.context.not_a_send();
            }
        }
    }

    fn trace(cq: &CqRef, index: u32, wc: &bindings::ib_wc) {
        trace::svcrdma_wc_recv(cq, index, wc);
    }

    fn posted(&self) -> &PostedReceives<Self> {
        &self.posted
    }

    fn pd(&self) -> &Arc<Pd> {
        self.qp.pd()
    }
}

// SAFETY: Queue pair and pool are fields. The object is pinned, and is not dropped before all work
// requests have completed (type invariant).
unsafe impl<C: AcceptedEvents> OutgoingOwner for AcceptedQp<C> {
    type Sent = C::Sent;

    fn qp(&self) -> &Qp {
        &self.qp
    }

    fn slots(&self) -> &SendSlots {
        &self.slots
    }

    fn sends(&self) -> &Pool<SendContext<Self>> {
        &self.sends
    }

    fn send_size(&self) -> u32 {
        self.sizes.send_size
    }

    fn not_written(&self, sent: &C::Sent, status: WcStatus) {
        self.context.not_written(sent, status);
    }

    fn sent(&self, sent: &C::Sent) {
        self.context.sent(sent);
    }

    fn queue_is_full(&self) {
        self.context.queue_is_full();
    }

    fn failed(&self, status: WcStatus) {
        self.context.failed(status);
    }

    fn timed_out(&self) {
        self.context.timed_out();
    }
}

// SAFETY: The pool is a field. The object is pinned, and is not dropped before all work requests
// have completed (type invariant).
unsafe impl<C: AcceptedEvents> ReadOwner for AcceptedQp<C> {
    fn reads(&self) -> &Pool<ReadContext<Self>> {
        &self.reads
    }

    fn read(&self, message: AcceptedMessage<C>, pages: PageVec) {
        C::read(self, message, pages);
    }

    fn not_read(&self, message: AcceptedMessage<C>, status: WcStatus) {
        self.context.not_read(message.note(), status);
        self.recycle(message);
    }
}

/// The owner of an accepted queue pair, which ends it when dropped.
pub(crate) struct AcceptedOwner<C: AcceptedEvents>(Arc<AcceptedQp<C>>);

impl<C: AcceptedEvents> AcceptedOwner<C> {
    /// Creates the queue pair of `id`, with the user's `context`. `slots` accounts for its send
    /// queue; others may share it to close it. May sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, or whatever the provider returns, such as `EINVAL` for queues that are too large.
    pub(crate) fn new(
        id: CmId<Bound>,
        pd: &Arc<Pd>,
        sizes: &AcceptedSizes,
        slots: Arc<SendSlots>,
        context: impl PinInit<C, Error>,
    ) -> Result<Self> {
        let capacities = sizes.capacities(&id, pd);
        let send_queue = capacities.send_queue(&id, pd);
        let completions = capacities.receive_requests.saturating_add(send_queue);
        // One slot is reserved for the drain.
        slots.open(send_queue.saturating_sub(1));
        let cq = Arc::new(Cq::new(pd, completions)?, GFP_KERNEL)?;
        // Each Receive has a number: those that are posted, those that hold a Call within the
        // grant, which are fewer by more than the spare ones, and the idle ones that are kept
        // meanwhile. A requester with more Calls finds no more Receives.
        let numbers = sizes.receives.saturating_mul(2).saturating_add(4);
        let used = BitmapVec::new(usize::try_from(numbers)?, GFP_KERNEL)?;
        let qp = Arc::pin_init(
            try_pin_init!(AcceptedQp {
                context <- context,
                sizes: *sizes,
                posted: PostedReceives::new(numbers)?,
                posted_count: Atomic::new(0),
                wanted: RelaxedCell::new(0),
                receives <- new_spinlock!(IdleReceives {
                    idle: Receives::new(),
                    made: 0,
                    most: 0,
                    used,
                }, "rpcrdma_idle_receives"),
                reads <- Pool::new(),
                sends <- Pool::new(),
                slots,
                qp <- Qp::new(id, pd, &cq, capacities),
                cq,
            }? Error),
            GFP_KERNEL,
        )?;
        Ok(Self(qp))
    }

    /// Accepts the connection. May sleep.
    ///
    /// # Errors
    ///
    /// Whatever the connection manager returns, such as `EINVAL` if the peer is already gone.
    pub(crate) fn accept(&self, parameters: &ConnectParameters<'_>) -> Result {
        self.0.qp.accept(parameters)
    }
}

impl<C: AcceptedEvents> core::ops::Deref for AcceptedOwner<C> {
    type Target = AcceptedQp<C>;

    fn deref(&self) -> &AcceptedQp<C> {
        &self.0
    }
}

/// Ends the connection and waits until every work request has completed. May sleep; must not be
/// dropped in a completion or CM event handler.
impl<C: AcceptedEvents> Drop for AcceptedOwner<C> {
    fn drop(&mut self) {
        let qp = &*self.0;
        qp.slots.close();
        // SAFETY: Everyone who posts on the send queue goes through its gate, which the drain
        // closes.
        unsafe { qp.qp.drain() };
        // A device that does not even take the command to stop may still write: pages are lost.
        let is_lost = qp.qp.pd().is_unstoppable();
        // The RDMA core wants its memory regions back all the same.
        let unmaps = !is_lost || qp.qp.registers_transfers();
        // SAFETY: No completion is handled any more, and contexts are only handed out through this
        // object, which is being dropped.
        unsafe {
            if unmaps {
                qp.sends.end_all(|context| context.unmap(&qp.qp));
                qp.reads.end_all(|context| context.unmap(&qp.qp));
            }
            if is_lost {
                qp.sends.end_all(SendContext::lose_pages);
                qp.reads.end_all(ReadContext::lose_pages);
            }
        }
    }
}
