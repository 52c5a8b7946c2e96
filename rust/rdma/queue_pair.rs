// SPDX-License-Identifier: GPL-2.0

//! A queue pair with what its work requests use: Receives, a ring of Sends, registered regions.

use super::{
    cm::{Bound, CmId},
    completion::{Completion, Completions, RemoteInvalidation, WcStatus},
    cq::Cq,
    cqe::{impl_has_cqe, Complete, Cqe, HasCqe},
    qp::{Capacities, Qp},
    receive::{Receive, ReceivedMessage, Receives},
    registered::{Invalidation, LockedSlot, RegisteredMrs},
    send::{ReservedSend, SendQueue, Sender, RESERVED},
    Pd,
};
use crate::{
    bindings::{self, Word},
    trace,
};
use core::{cell::UnsafeCell, ptr::NonNull};
use kernel::{prelude::*, sync::Arc, types::Opaque};

/// How large the queues of a queue pair are.
#[derive(Clone, Copy)]
pub(crate) struct QpSizes {
    /// The most send buffers.
    pub(crate) sends: u32,
    /// Bytes in each send buffer.
    pub(crate) send_size: u32,
    /// Receive buffers that are always posted or hold a message.
    pub(crate) receives: u32,
    /// Bytes in each receive buffer.
    pub(crate) receive_size: u32,
    /// Calls that can have regions registered, one slot each.
    pub(crate) slots: u32,
    /// Regions that one Call can have.
    pub(crate) regions: u32,
}

impl QpSizes {
    /// Work requests that the send queue can have to hold: registrations and Sends of the ring,
    /// invalidations, the reserved Sends, and one for the drain.
    pub(crate) fn send_requests(&self) -> u32 {
        let ring = self.sends.saturating_mul(self.regions.saturating_add(1));
        let invalidations = self.slots.saturating_mul(self.regions);
        // CAST: A few.
        let others = (RESERVED as u32).saturating_add(1);
        ring.saturating_add(invalidations).saturating_add(others)
    }

    /// Work requests that the receive queue can have to hold, one for the drain among them.
    pub(crate) fn receive_requests(&self) -> u32 {
        self.receive_buffers().saturating_add(1)
    }

    /// Completions that the completion queue can have to hold, which both queues share.
    pub(crate) fn completions(&self) -> u32 {
        self.send_requests().saturating_add(self.receive_requests())
    }

    /// Receive buffers with those beyond `receives`, because some wait for a batch to be complete.
    fn receive_buffers(&self) -> u32 {
        self.receives
            .saturating_add(self.receive_batch().saturating_sub(1))
    }

    /// How many Receives are posted together: what rings the doorbell costs as much for one.
    fn receive_batch(&self) -> u32 {
        (self.receives / 4).clamp(1, 32)
    }

    fn capacities(&self) -> Capacities {
        Capacities {
            send_requests: self.send_requests(),
            receive_requests: self.receive_requests(),
        }
    }
}

/// A queue pair, what its work requests use, and the user's `context`.
///
/// # Invariants
///
/// Only the [`Sender`] posts unless a gate of `qp` is open. It ends by a drain, and has a reference, so
/// that nothing is posted and no handler runs when this object goes.
///
/// `recycled` belongs to who makes the object, and from then on to its completions, of which one at a
/// time is handled: both queues have one completion queue, which is no other queue pair's.
#[pin_data]
pub(crate) struct QueuePair<C: Completions> {
    #[pin]
    qp: Qp,
    cq: Arc<Cq>,
    /// Completes what is not signalled, in case it fails.
    unsignaled: Cqe<Self>,
    #[pin]
    sends: SendQueue<C>,
    registered: RegisteredMrs<C>,
    /// Receives that wait for a batch to be complete.
    recycled: UnsafeCell<Receives<C>>,
    /// How many these are, for people.
    recycled_count: Word<u32>,
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
    /// Makes the queue pair of `id`, and posts all Receives. May sleep. The sender has the queue pair
    /// ([`Sender::qp`]).
    ///
    /// # Errors
    ///
    /// `ENOMEM`, or what the provider answers, such as `EINVAL` for queues that are too large.
    pub(crate) fn create(
        id: CmId<Bound>,
        pd: &Arc<Pd>,
        sizes: &QpSizes,
        context: impl PinInit<C, Error>,
    ) -> Result<Sender<C>> {
        let cq = Arc::new(Cq::new(pd, sizes.completions())?, GFP_KERNEL)?;
        let qp = Arc::pin_init(
            try_pin_init!(&this in Self {
                context <- context,
                sizes: *sizes,
                batch: sizes.receive_batch(),
                recycled: UnsafeCell::new(Receives::new()),
                recycled_count: Word::new(0),
                // SAFETY: The slots are part of this object.
                registered: unsafe { RegisteredMrs::new(sizes.slots, this)? },
                sends <- SendQueue::new(pd, sizes.sends, sizes.send_size, this),
                unsignaled: Cqe::new(),
                qp <- Qp::new(id, pd, &cq, sizes.capacities()),
                cq,
            }? Error),
            GFP_KERNEL,
        )?;
        // Its end waits for what is posted.
        let sender = Sender::new(qp);
        sender.qp().post_first(pd)?;
        Ok(sender)
    }

    /// Makes all Receives, and posts those that fill batches.
    fn post_first(&self, pd: &Arc<Pd>) -> Result {
        let size = usize::try_from(self.sizes.receive_size)?;
        let count = self.sizes.receive_buffers();
        let rest = count.checked_rem(self.batch).ok_or(EINVAL)?;
        let mut posted = Receives::new();
        for index in 0..count {
            let receive = Receive::new(pd, size, index, NonNull::from(self))?;
            if index < rest {
                // SAFETY: Nothing was posted, so that no completion can be handled.
                unsafe { (*self.recycled.get()).push(receive) };
                self.recycled_count.set(index.saturating_add(1));
            } else {
                trace::xprtrdma_post_recv(self.qp.as_opaque(), index);
                posted.push(receive);
            }
        }
        self.post_receives(posted)
    }

    fn post_receives(&self, receives: Receives<C>) -> Result {
        let qp = self.qp.as_opaque();
        trace::xprtrdma_post_recvs(qp, receives.len());
        self.qp
            .post_receives(receives)
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

    /// A buffer beside the sender's, for what cannot wait, unless all are in use.
    pub(crate) fn reserved_send(&self) -> Option<ReservedSend<'_, C>> {
        self.sends.reserved(&self.qp)
    }

    /// The send queue, for the sender.
    pub(super) fn send_queue(&self) -> &SendQueue<C> {
        &self.sends
    }

    /// The registered regions, for the sender.
    pub(super) fn registered(&self) -> &RegisteredMrs<C> {
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
    /// The caller is the [`Sender`], at its end.
    pub(super) unsafe fn drain(&self) {
        // SAFETY: The sender owns the send queue, and ends here.
        unsafe { self.qp.drain() };
        // Nothing posts registrations any more, and the peer's requests find no queue pair.
        self.registered.destroy();
    }

    /// A Receive has completed, with `message` in it if that was a success.
    ///
    /// # Safety
    ///
    /// Called by the handler of that completion.
    #[inline(always)]
    pub(super) unsafe fn received(&self, message: ReceivedMessage<C>, wc: &bindings::ib_wc) {
        if let Some(status) = WcStatus::failure(wc) {
            return self.context.failed(status);
        }
        // SAFETY: This is a successful Receive completion, which is handled until the end of this call.
        let invalidated = unsafe { RemoteInvalidation::from_completion(self.qp.as_opaque(), wc) };
        // SAFETY: The handlers of a queue run one after the other, and this is one of them.
        C::received(&mut unsafe { Completion::new(self) }, message, invalidated);
    }

    /// The last request of a chain of invalidations has completed, that of slot `index`.
    ///
    /// # Safety
    ///
    /// Called by the handler of that completion.
    pub(super) unsafe fn invalidated(&self, index: usize, wc: &bindings::ib_wc) {
        if let Some(status) = WcStatus::failure(wc) {
            self.context.failed(status);
            return self.context.not_invalidated(self, index);
        }
        // SAFETY: The completion is that of the chain's last request, with success.
        let regions = unsafe { self.registered.invalidated(index) };
        // SAFETY: The handlers of a queue run one after the other, and this is one of them.
        C::invalidated(&mut unsafe { Completion::new(self) }, index, regions);
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
        // An error says that the connection is at its end, or soon runs out of Receives and ends by
        // that.
        let _ = self.post_receives(core::mem::replace(recycled, Receives::new()));
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
