// SPDX-License-Identifier: GPL-2.0

//! A queue pair with what its work requests use: Receives, a ring of Sends, registered regions.

use super::{
    cm::{Bound, CmId},
    completion::{RemoteInvalidation, WcStatus},
    cq::Cq,
    cqe::{impl_has_cqe, Complete, Cqe, HasCqe},
    mr::{Idle, MrList},
    qp::Qp,
    receive::{PostedReceives, Receive, ReceiveOwner, Received, Receives},
    registered::{Invalidation, LockedSlot, RegisteredMrs, SlotOwner},
    send::{ReservedSend, SendOwner, SendQueue},
    sizes::QpSizes,
    Pd,
};
use crate::{
    bindings::{self, RelaxedCell},
    trace,
};
use core::{cell::UnsafeCell, ptr::NonNull};
use kernel::{prelude::*, sync::Arc, types::Opaque};

/// What a queue pair tells its user.
///
/// All of it runs on the RDMA core's completion workqueue, never two at a time for one queue
/// pair. An implementation must not wait for another completion, nor allocate memory in a way
/// that could wait for NFS.
pub(crate) trait Completions: Send + Sync + Sized + 'static {
    /// What each slot of registered regions keeps beside them, under the slot's lock.
    type Slot: Default + Send + Unpin;

    /// A message arrived. Its buffer has to go back by [`Completion::recycle`], sooner or later.
    fn received(
        completion: &mut Completion<'_, Self>,
        message: ReceivedMessage<Self>,
        invalidated: Option<RemoteInvalidation<'_>>,
    );

    /// A Send completed, so that there is room for another.
    fn send_space(&self);

    /// The local invalidation of slot `index` has succeeded, with these regions.
    fn invalidated(completion: &mut Completion<'_, Self>, index: usize, regions: MrList<Idle>);

    /// The local invalidation of slot `index` has failed; [`Self::failed`] was called before. The
    /// regions stay until the connection's end.
    fn not_invalidated(&self, qp: &QueuePair<Self>, index: usize);

    /// A work request failed, or was flushed. The connection is of no use any more.
    fn failed(&self, status: WcStatus);

    /// The provider has refused Receives. The connection is of no use any more.
    fn refused(&self);
}

/// A completion that is being handled. There is one at a time for each queue pair, and what is only
/// for completions to do is done by it.
///
/// # Invariants
///
/// A completion of `qp` is being handled in this thread, and this is the only such object for it.
pub(crate) struct Completion<'a, C: Completions> {
    qp: &'a QueuePair<C>,
}

impl<'a, C: Completions> Completion<'a, C> {
    /// The completion of a request of `qp`.
    ///
    /// # Safety
    ///
    /// As the type's invariant says.
    pub(super) unsafe fn new(qp: &'a QueuePair<C>) -> Self {
        // INVARIANT: The caller's promise.
        Self { qp }
    }

    /// The queue pair.
    pub(crate) fn qp(&self) -> &'a QueuePair<C> {
        self.qp
    }

    /// A buffer beside the sender's, for what cannot wait, unless all are in use.
    pub(crate) fn reserved_send(&mut self) -> Option<ReservedSend<'_, QueuePair<C>>> {
        self.qp.sends.reserved(&self.qp.qp)
    }

    /// Gives a message's buffer back to the device. Does not sleep.
    #[inline(always)]
    pub(crate) fn recycle(&mut self, message: ReceivedMessage<C>) {
        // SAFETY: By the type's invariant a completion of the queue pair is being handled, in which
        // nobody else recycles.
        unsafe { self.qp.recycle(message) };
    }
}

/// A message that arrived at a queue pair with this context.
pub(crate) type ReceivedMessage<C> = Received<QueuePair<C>>;

/// A queue pair, what its work requests use, and the user's `context`.
///
/// # Invariants
///
/// The [`super::Sender`] posts Sends of the ring without a lock, and has a reference. All others
/// post through a gate of `qp`. The end of the `Sender` closes the gates and waits for what was
/// posted, so that no handler runs when this object goes.
///
/// `recycled` belongs to who makes the object, and from then on to its completions, of which one at
/// a time is handled: both queues have one completion queue, which is no other queue pair's.
#[pin_data]
pub(crate) struct QueuePair<C: Completions> {
    #[pin]
    qp: Qp,
    cq: Arc<Cq>,
    /// Completes what is not signalled, in case it fails.
    unsignaled: Cqe<Self>,
    #[pin]
    sends: SendQueue<Self>,
    registered: RegisteredMrs<Self>,
    /// Receives that wait for a batch to be complete.
    recycled: UnsafeCell<Receives<Self>>,
    posted: PostedReceives<Self>,
    /// How many are in `recycled`, for people.
    recycled_count: RelaxedCell<u32>,
    /// How many are posted together.
    batch: u32,
    sizes: QpSizes,
    #[pin]
    context: C,
}

impl_has_cqe! {
    impl{C: Completions} HasCqe<0> for QueuePair<C> { self.unsignaled }
}

// SAFETY: The queue pair is thread-safe, and so are the queues; the Receives are the completions'.
unsafe impl<C: Completions> Send for QueuePair<C> {}
// SAFETY: As above.
unsafe impl<C: Completions> Sync for QueuePair<C> {}

impl<C: Completions> QueuePair<C> {
    /// Makes the queue pair of `id`. May sleep.
    ///
    /// # Errors
    ///
    /// As [`super::Sender::create`].
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
                sends <- SendQueue::new(pd, sizes.sends, sizes.send_size, this),
                unsignaled: Cqe::new(),
                qp <- Qp::new(id, pd, &cq, sizes.capacities()),
                cq,
            }? Error),
            GFP_KERNEL,
        )
    }

    /// Makes all Receives, and posts those that fill batches.
    ///
    /// # Safety
    ///
    /// Called once, before the connection is asked for.
    ///
    /// # Errors
    ///
    /// As [`super::Sender::create`].
    pub(super) unsafe fn post_first(&self, pd: &Arc<Pd>) -> Result {
        let size = usize::try_from(self.sizes.receive_size)?;
        let count = self.sizes.receive_buffers();
        let rest = count.checked_rem(self.batch).ok_or(EINVAL)?;
        let mut posted = Receives::new();
        for index in 0..count {
            let receive = Receive::new(pd, size, index, NonNull::from(self), GFP_KERNEL)?;
            trace::xprtrdma_post_recv(self.qp.as_opaque(), index);
            if index < rest {
                // SAFETY: Nothing was posted, so that no completion can be handled.
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
        let qp = self.qp.as_opaque();
        trace::xprtrdma_post_recvs(qp, receives.len());
        // SAFETY: The queue pair is this object's, and the Receives were made for it.
        unsafe { self.qp.post_receives(self, receives) }
            .inspect_err(|&error| trace::xprtrdma_post_recvs_err(qp, error))
    }

    /// What the user of the queue pair keeps with it.
    pub(crate) fn context(&self) -> &C {
        &self.context
    }

    /// The queue pair proper.
    pub(crate) fn qp(&self) -> &Qp {
        &self.qp
    }

    /// The number that `rdma resource show cq` has for the completion queue.
    pub(crate) fn completion_queue(&self) -> u32 {
        self.cq.number()
    }

    /// How many Receives are posted, or hold a message, and how many there are.
    pub(crate) fn receives(&self) -> (u32, u32) {
        let count = self.sizes.receive_buffers();
        (count.saturating_sub(self.recycled_count.get()), count)
    }

    /// How many Sends may be with the device, and how many buffers there are for them.
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

    /// What completes a request that is not signalled, in case it fails.
    pub(super) fn unsignaled(&self) -> *mut bindings::ib_cqe {
        Self::wr_cqe(self)
    }

    /// Locks slot `index` of the registered regions.
    pub(crate) fn slot(&self, index: usize) -> Option<LockedSlot<'_, C::Slot>> {
        self.registered.slot(&self.qp, index)
    }

    /// How many slots there are.
    pub(crate) fn slots(&self) -> usize {
        self.registered.len()
    }

    /// Has all regions in slot `index` invalidated. Does not sleep.
    pub(crate) fn invalidate(&self, index: usize) -> Invalidation {
        // SAFETY: All of them are parts of this object.
        unsafe {
            self.registered
                .invalidate(&self.qp, self.unsignaled(), index)
        }
    }

    /// Ends the connection, waits until every work request has completed, and destroys all regions
    /// that the peer could reach. May sleep; not to be called from a completion or CM event.
    ///
    /// # Safety
    ///
    /// The caller is the [`super::Sender`], at its end.
    pub(super) unsafe fn drain(&self) {
        // SAFETY: The sender owns the send queue, and ends here.
        unsafe { self.qp.drain() };
        // Nothing posts registrations any more, and the peer's requests find no queue pair.
        self.registered.destroy();
    }

    /// Has a message's buffer posted with the next batch. Does not sleep.
    ///
    /// # Safety
    ///
    /// Called while a completion of the queue pair is handled.
    #[inline(always)]
    pub(super) unsafe fn recycle(&self, message: ReceivedMessage<C>) {
        // That of another queue pair is freed.
        let Some(receive) = message.into_receive(self) else {
            return;
        };
        // SAFETY: By the type's invariant the Receives are the completion's.
        let recycled = unsafe { &mut *self.recycled.get() };
        trace::xprtrdma_post_recv(self.qp.as_opaque(), receive.index());
        recycled.push(receive);
        let count = self.recycled_count.get().wrapping_add(1);
        if count < self.batch {
            return self.recycled_count.set(count);
        }
        self.recycled_count.set(0);
        let batch = core::mem::replace(recycled, Receives::new());
        // SAFETY: A completion is being handled.
        match unsafe { self.post_receives(batch) } {
            // The connection is at its end.
            Ok(()) | Err(EPIPE) => {}
            Err(_) => self.context.refused(),
        }
    }
}

/// A request that asks for no completion has failed, or was signalled by mistake.
impl<C: Completions> Complete for QueuePair<C> {
    unsafe fn complete(this: NonNull<Self>, cq: &Opaque<bindings::ib_cq>, wc: &bindings::ib_wc) {
        if let Some(status) = WcStatus::failure(wc) {
            trace::xprtrdma_wc_unsignaled(cq, wc);
            // SAFETY: The queue pair waits for the request that has just completed.
            unsafe { this.as_ref() }.context.failed(status);
        }
    }
}

impl<C: Completions> ReceiveOwner for QueuePair<C> {
    type Note = ();

    #[inline(always)]
    unsafe fn received(&self, message: ReceivedMessage<C>, wc: &bindings::ib_wc) {
        if let Some(status) = WcStatus::failure(wc) {
            return self.context.failed(status);
        }
        // SAFETY: This is a successful Receive completion, which is handled until the end of this
        // call.
        let invalidated = unsafe { RemoteInvalidation::from_completion(self.qp.as_opaque(), wc) };
        // SAFETY: The handlers of a queue run one after the other, and this is one of them.
        C::received(&mut unsafe { Completion::new(self) }, message, invalidated);
    }

    #[inline(always)]
    fn trace(cq: &Opaque<bindings::ib_cq>, index: u32, wc: &bindings::ib_wc) {
        trace::xprtrdma_wc_receive(cq, index, wc);
    }

    fn posted(&self) -> &PostedReceives<Self> {
        &self.posted
    }

    fn pd(&self) -> &Arc<Pd> {
        self.qp.pd()
    }
}

impl<C: Completions> SlotOwner for QueuePair<C> {
    type User = C::Slot;

    unsafe fn invalidated(&self, index: usize, wc: &bindings::ib_wc) {
        if let Some(status) = WcStatus::failure(wc) {
            self.context.failed(status);
            return self.context.not_invalidated(self, index);
        }
        // SAFETY: The completion is that of the chain's last request, with success.
        let regions = unsafe { self.registered.invalidated(index) };
        // SAFETY: The handlers of a queue run one after the other, and this is one of them.
        C::invalidated(&mut unsafe { Completion::new(self) }, index, regions);
    }
}

impl<C: Completions> SendOwner for QueuePair<C> {
    unsafe fn sent(&self, number: u32) {
        // SAFETY: The caller's promise.
        unsafe { self.sends.complete(number) };
        self.context.send_space();
    }

    fn failed(&self, status: WcStatus) {
        self.context.failed(status);
    }
}
