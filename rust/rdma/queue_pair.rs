// SPDX-License-Identifier: GPL-2.0

//! A queue pair with the resources of its work requests: Receives, a ring of Sends, registered
//! regions.

use super::{
    client_send::{ReservedSend, SendOwner, SendQueue},
    cm::{Bound, CmId},
    cq::{is_send, RemoteInvalidation, WcStatus},
    cqe::{impl_has_cqe, Complete, CqRef, Cqe, HasCqe},
    mr::{Idle, MrList},
    old_cq::Cq,
    raw_qp::Qp,
    receive::{CompletedReceive, PostedReceives, Receive, ReceiveOwner, Receives},
    registered::{Invalidation, LockedSlot, RegisteredMrs, SlotOwner},
    sizes::QpSizes,
    Pd,
};
use crate::{
    bindings::{self, RelaxedCell},
    trace,
};
use core::{cell::UnsafeCell, ptr::NonNull};
use kernel::{prelude::*, sync::Arc};

/// The events that a queue pair reports to its user.
///
/// All methods run on the RDMA core's completion workqueue, never two at a time for one queue pair.
/// An implementation must not wait for another completion, nor allocate memory in a way that could
/// wait for NFS.
pub(crate) trait Completions: Send + Sync + Sized + 'static {
    /// What each slot of registered regions keeps for the user, under the slot's lock.
    type Slot: Default + Send + Unpin;

    /// A message arrived. Its buffer must be returned by [`Completion::recycle`] sooner or later.
    fn received(
        completion: &mut Completion<'_, Self>,
        message: ReceivedMessage<Self>,
        invalidated: Option<RemoteInvalidation<'_>>,
    );

    /// A Send completed, so there is room for another.
    fn send_space(&self);

    /// The local invalidation of slot `index` succeeded; these were its regions.
    fn invalidated(completion: &mut Completion<'_, Self>, index: usize, regions: MrList<Idle>);

    /// The local invalidation of slot `index` failed; [`Self::failed`] was called before. The
    /// regions stay registered until the connection ends.
    fn not_invalidated(&self, qp: &QueuePair<Self>, index: usize);

    /// A work request failed or was flushed. The connection is no longer usable.
    fn failed(&self, status: WcStatus);

    /// The peer has used up a Receive, but not by a Send. The connection has to end.
    fn not_a_send(&self);

    /// The provider has refused to post Receives. The connection is no longer usable.
    fn refused(&self);
}

/// A completion that is being handled. There is only one at a time for each queue pair, so it gives
/// access to what only completion handlers may do.
///
/// # Invariants
///
/// A completion of `qp` is being handled in this thread, and this is the only such object for `qp`.
pub(crate) struct Completion<'a, C: Completions> {
    qp: &'a QueuePair<C>,
}

impl<'a, C: Completions> Completion<'a, C> {
    /// Represents the completion of one of `qp`'s requests.
    ///
    /// # Safety
    ///
    /// The type's invariants hold.
    pub(super) unsafe fn new(qp: &'a QueuePair<C>) -> Self {
        // INVARIANT: A completion of `qp` is being handled in this thread, and this is the only
        // such object for `qp` (this function's contract).
        Self { qp }
    }

    /// The queue pair.
    pub(crate) fn qp(&self) -> &'a QueuePair<C> {
        self.qp
    }

    /// A send buffer outside the ring, for messages that cannot wait, unless all are in use.
    pub(crate) fn reserved_send(&mut self) -> Option<ReservedSend<'_, QueuePair<C>>> {
        self.qp.sends.reserved(&self.qp.qp)
    }

    /// Returns a message's buffer to the device. Does not sleep.
    pub(crate) fn recycle(&mut self, message: ReceivedMessage<C>) {
        // SAFETY: By the type's invariant a completion of the queue pair is being handled, and
        // nobody else recycles at the same time.
        unsafe { self.qp.recycle(message) };
    }
}

/// A message that arrived at a queue pair with this context.
pub(crate) type ReceivedMessage<C> = CompletedReceive<QueuePair<C>>;

/// A queue pair, the resources of its work requests, and the user's `context`.
///
/// # Invariants
///
/// The [`super::Sender`] posts Sends of the ring without a lock, and holds a reference to this
/// object. Everyone else posts through a gate of `qp`. Dropping the `Sender` closes the gates and
/// waits for all posted work requests, so no handler runs when this object is dropped.
///
/// `recycled` belongs to whoever creates the object, and from then on to its completion handlers,
/// of which only one runs at a time: both queues share one completion queue, which no other queue
/// pair uses.
#[pin_data]
pub(crate) struct QueuePair<C: Completions> {
    #[pin]
    qp: Qp,
    cq: Arc<Cq>,
    /// Completes unsignalled requests that fail.
    unsignaled: Cqe<Self>,
    #[pin]
    sends: SendQueue<Self>,
    registered: RegisteredMrs<Self>,
    /// Receives collected until a batch is complete.
    recycled: UnsafeCell<Receives<Self>>,
    posted: PostedReceives<Self>,
    /// How many Receives are in `recycled`, for diagnostics.
    recycled_count: RelaxedCell<u32>,
    /// How many Receives are posted together.
    batch: u32,
    sizes: QpSizes,
    #[pin]
    context: C,
}

impl_has_cqe! {
    impl{C: Completions} HasCqe<0> for QueuePair<C> { self.unsignaled }
}

// SAFETY: The queue pair and its queues are thread-safe; the recycled Receives belong to the
// completion handlers.
unsafe impl<C: Completions> Send for QueuePair<C> {}
// SAFETY: The queue pair and its queues are thread-safe, and only completion handlers, which run
// one at a time, use the recycled Receives (type invariant).
unsafe impl<C: Completions> Sync for QueuePair<C> {}

impl<C: Completions> QueuePair<C> {
    /// Creates the queue pair of `id`. May sleep.
    ///
    /// # Errors
    ///
    /// As for [`super::Sender::create`].
    pub(super) fn new(
        id: CmId<Bound>,
        pd: &Arc<Pd>,
        sizes: &QpSizes,
        context: impl PinInit<C, Error>,
    ) -> Result<Arc<Self>> {
        let cq = Arc::new(Cq::new(pd, sizes.completions())?, GFP_KERNEL)?;
        Arc::pin_init(
            try_pin_init!(&this in Self {
                context <- context,
                sizes: *sizes,
                batch: sizes.receive_batch(),
                recycled: UnsafeCell::new(Receives::new()),
                recycled_count: RelaxedCell::new(0),
                posted: PostedReceives::new(sizes.receive_buffers())?,
                // SAFETY: The slots are part of this object.
                registered: unsafe { RegisteredMrs::new(sizes.slots, this)? },
                // SAFETY: The ring is part of this object.
                sends <- unsafe { SendQueue::new(pd, sizes.sends, sizes.send_size, this) },
                unsignaled: Cqe::new(),
                qp <- Qp::new(id, pd, &cq, sizes.capacities()),
                cq,
            }? Error),
            GFP_KERNEL,
        )
    }

    /// Allocates all Receives, and posts those that fill whole batches.
    ///
    /// # Safety
    ///
    /// Called once, before connecting.
    ///
    /// # Errors
    ///
    /// As for [`super::Sender::create`].
    pub(super) unsafe fn post_first(&self, pd: &Arc<Pd>) -> Result {
        let size = usize::try_from(self.sizes.receive_size)?;
        let count = self.sizes.receive_buffers();
        let rest = count.checked_rem(self.batch).ok_or(EINVAL)?;
        let mut posted = Receives::new();
        for index in 0..count {
            let receive = Receive::new(pd, size, index, NonNull::from(self), GFP_KERNEL)?;
            trace::xprtrdma_post_recv(&self.qp, index);
            if index < rest {
                // SAFETY: Nothing was posted, so no completion can be handled.
                unsafe { (*self.recycled.get()).push(receive) };
                self.recycled_count.set(index.saturating_add(1));
            } else {
                posted.push(receive);
            }
        }
        // SAFETY: Nothing was posted before.
        unsafe { self.post_receives(posted) }
    }

    /// Posts Receives.
    ///
    /// # Safety
    ///
    /// A completion of the queue pair is being handled, or nothing was posted before.
    unsafe fn post_receives(&self, receives: Receives<Self>) -> Result {
        let qp = &self.qp;
        trace::xprtrdma_post_recvs(qp, receives.len());
        // SAFETY: The queue pair is this object's, and the Receives were allocated for it.
        let posted = unsafe { qp.post_receives(self, receives) };
        posted
            .map_err(|(error, _rest)| error)
            .inspect_err(|&error| trace::xprtrdma_post_recvs_err(qp, error))
    }

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

    /// How many Receives are posted or hold a message, and how many exist.
    pub(crate) fn receives(&self) -> (u32, u32) {
        let count = self.sizes.receive_buffers();
        (count.saturating_sub(self.recycled_count.get()), count)
    }

    /// How many Sends may be outstanding, and how many send buffers exist.
    pub(crate) fn sends(&self) -> (usize, usize) {
        self.sends.posted()
    }

    /// The send queue, for the sender.
    pub(super) fn send_queue(&self) -> &SendQueue<Self> {
        &self.sends
    }

    /// The registered regions, for the sender.
    pub(super) fn registered(&self) -> &RegisteredMrs<Self> {
        &self.registered
    }

    /// The handle that completes unsignalled requests that fail.
    pub(super) fn unsignaled(&self) -> *mut bindings::ib_cqe {
        Self::wr_cqe(self)
    }

    /// Locks slot `index` of the registered regions.
    pub(crate) fn slot(&self, index: usize) -> Option<LockedSlot<'_, C::Slot>> {
        // SAFETY: Both are parts of this object.
        unsafe { self.registered.slot(&self.qp, index) }
    }

    /// How many slots there are.
    pub(crate) fn slots(&self) -> usize {
        self.registered.len()
    }

    /// Posts the local invalidation of all regions in slot `index`. Does not sleep.
    pub(crate) fn invalidate(&self, index: usize) -> Invalidation {
        // SAFETY: All of these are parts of this object.
        unsafe {
            self.registered
                .invalidate(&self.qp, self.unsignaled(), index)
        }
    }

    /// Ends the connection, waits until every work request has completed, and destroys all regions
    /// that the peer could reach. May sleep; must not be called from a completion or CM event
    /// handler.
    ///
    /// # Safety
    ///
    /// The caller is the [`super::Sender`], which is being dropped.
    pub(super) unsafe fn drain(&self) {
        // SAFETY: The sender owns the send queue, and posts nothing after this.
        unsafe { self.qp.drain() };
        // Nobody posts registrations any longer, and requests of the peer find no working queue
        // pair.
        self.registered.destroy();
    }

    /// Collects a message's buffer for the next batch of Receives. Does not sleep.
    ///
    /// # Safety
    ///
    /// Called while a completion of the queue pair is being handled.
    pub(super) unsafe fn recycle(&self, message: ReceivedMessage<C>) {
        // A Receive of another queue pair is freed.
        let Some(receive) = message.into_receive(self) else {
            return;
        };
        // SAFETY: By the type's invariant the recycled Receives belong to the completion handler.
        let recycled = unsafe { &mut *self.recycled.get() };
        trace::xprtrdma_post_recv(&self.qp, receive.index());
        recycled.push(receive);
        let count = self.recycled_count.get().wrapping_add(1);
        if count < self.batch {
            return self.recycled_count.set(count);
        }
        self.recycled_count.set(0);
        let batch = core::mem::replace(recycled, Receives::new());
        // SAFETY: A completion is being handled.
        match unsafe { self.post_receives(batch) } {
            // The connection is ending.
            Ok(()) | Err(EPIPE) => {}
            Err(_) => self.context.refused(),
        }
    }
}

/// An unsignalled request has failed, or was signalled by mistake.
impl<C: Completions> Complete for QueuePair<C> {
    unsafe fn complete(this: NonNull<Self>, cq: &CqRef, wc: &bindings::ib_wc) {
        if let Some(status) = WcStatus::failure(wc) {
            trace::xprtrdma_wc_unsignaled(cq, wc);
            // SAFETY: The queue pair waits for the request that has just completed.
            unsafe { this.as_ref() }.context.failed(status);
        }
    }
}

// SAFETY: The table is always the same field, which is dropped after the queue pair. The object is
// pinned, and is not dropped before everything that is posted has completed (type invariant).
unsafe impl<C: Completions> ReceiveOwner for QueuePair<C> {
    type Note = ();

    unsafe fn received(&self, message: ReceivedMessage<C>, wc: &bindings::ib_wc) {
        if let Some(status) = WcStatus::failure(wc) {
            return self.context.failed(status);
        }
        if !is_send(wc) {
            return self.context.not_a_send();
        }
        // SAFETY: This is a successful Receive completion, which is being handled until the end of
        // this call.
        let invalidated =
            unsafe { RemoteInvalidation::from_completion(self.qp.as_raw().cast(), wc) };
        // SAFETY: The handlers of a completion queue run one after the other, and this is one of
        // them.
        C::received(&mut unsafe { Completion::new(self) }, message, invalidated);
    }

    fn trace(cq: &CqRef, index: u32, wc: &bindings::ib_wc) {
        trace::xprtrdma_wc_receive(cq, index, wc);
    }

    fn posted(&self) -> &PostedReceives<Self> {
        &self.posted
    }

    fn pd(&self) -> &Arc<Pd> {
        self.qp.pd()
    }
}

// SAFETY: The object is pinned, and is not dropped before everything that is posted has completed
// (type invariant).
unsafe impl<C: Completions> SlotOwner for QueuePair<C> {
    type User = C::Slot;

    unsafe fn invalidated(&self, index: usize, wc: &bindings::ib_wc) {
        if let Some(status) = WcStatus::failure(wc) {
            self.context.failed(status);
            return self.context.not_invalidated(self, index);
        }
        // SAFETY: This is the successful completion of the chain's last request.
        let regions = unsafe { self.registered.invalidated(index) };
        // SAFETY: The handlers of a completion queue run one after the other, and this is one of
        // them.
        C::invalidated(&mut unsafe { Completion::new(self) }, index, regions);
    }
}

// SAFETY: The object is pinned, and is not dropped before everything that is posted has completed
// (type invariant).
unsafe impl<C: Completions> SendOwner for QueuePair<C> {
    unsafe fn sent(&self, number: u32) {
        // SAFETY: The Send with this number has just completed: this is called by the handler of
        // that completion (contract of `SendOwner::sent`).
        unsafe { self.sends.complete(number) };
        self.context.send_space();
    }

    fn failed(&self, status: WcStatus) {
        self.context.failed(status);
    }
}
