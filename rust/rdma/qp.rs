// SPDX-License-Identifier: GPL-2.0

//! Queue pairs: the two queues of a connection, and what they hold.

use super::{
    completion::{Completion, Completions, Cqe, RemoteInvalidation, WcStatus},
    cq::Cq,
    receive::{spare, ReceiveQueue, ReceivedMessage},
    registered::{Invalidation, LockedSlot, RegisteredLists},
    send::{LastSendBuffer, SendQueue, Sender, BESIDE},
    CmId, Pd,
};
use crate::{bindings, trace};
use kernel::{error::to_result, prelude::*, sync::Arc, types::Opaque};

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
    /// invalidations, the Sends beside the ring, and one for the drain.
    pub(crate) fn send_requests(&self) -> u32 {
        let ring = self.sends.saturating_mul(self.regions.saturating_add(1));
        let invalidations = self.slots.saturating_mul(self.regions);
        // CAST: A few.
        let beside = (BESIDE as u32).saturating_add(1);
        ring.saturating_add(invalidations).saturating_add(beside)
    }

    /// Work requests that the receive queue can have to hold, one for the drain among them.
    pub(crate) fn receive_requests(&self) -> u32 {
        self.receives
            .saturating_add(spare(self.receives))
            .saturating_add(1)
    }

    /// Completions that the completion queue can have to hold, which both queues share.
    pub(crate) fn completions(&self) -> u32 {
        self.send_requests().saturating_add(self.receive_requests())
    }
}

/// The queue pair of `id`, nothing else.
///
/// # Invariants
///
/// `id` has a queue pair.
struct Attached {
    id: Arc<CmId>,
}

impl Drop for Attached {
    fn drop(&mut self) {
        // SAFETY: By the type's invariant the identifier has a queue pair. Destroying it ends what
        // its queues still hold; their memory is dropped later.
        unsafe { bindings::rdma_destroy_qp(self.id.as_raw()) };
    }
}

/// A reliable connected queue pair with its queues, and the user's `context`.
///
/// # Invariants
///
/// The order of the fields is the order of teardown: no completion handler runs after `cq`, so
/// that the queues' memory can go.
#[pin_data]
pub(crate) struct QueuePair<C: Completions> {
    attached: Attached,
    cq: Cq,
    receives: ReceiveQueue,
    #[pin]
    sends: SendQueue,
    registered: RegisteredLists<C::Slot>,
    pd: Arc<Pd>,
    id: Arc<CmId>,
    #[pin]
    context: C,
}

// SAFETY: The RDMA core locks its objects; the queues lock theirs.
unsafe impl<C: Completions> Send for QueuePair<C> {}
// SAFETY: As above.
unsafe impl<C: Completions> Sync for QueuePair<C> {}

impl<C: Completions> QueuePair<C> {
    /// Makes the queue pair of `pd`'s connection identifier, and posts all Receives. May sleep. The
    /// sender has the queue pair ([`Sender::qp`]).
    ///
    /// # Errors
    ///
    /// `ENOMEM`, or what the provider answers, such as `EINVAL` for queues that are too large.
    pub(crate) fn create(
        pd: &Arc<Pd>,
        sizes: &QpSizes,
        context: impl PinInit<C, Error>,
    ) -> Result<Sender<C>> {
        let id = pd.id();
        let qp = Arc::pin_init(
            try_pin_init!(&this in Self {
                context <- context,
                id: id.clone(),
                pd: pd.clone(),
                receives: ReceiveQueue::new(
                    pd, sizes.receives, sizes.receive_size, receive_done::<C>)?,
                sends <- SendQueue::new(
                    pd, sizes.sends, sizes.send_size, send_done::<C>, last_send_done::<C>,
                    unsignaled_done::<C>),
                registered: RegisteredLists::new(
                    sizes.slots, invalidate_done::<C>)?,
                // SAFETY: The context is this object, pinned, whose fields are initialised above
                // and dropped after `cq`. No request is posted before all of it is.
                cq: unsafe { Cq::new(id, this.as_ptr().cast(), sizes.completions())? },
                attached: attach(id, pd, cq, sizes)?,
            }? Error),
            GFP_KERNEL,
        )?;
        // SAFETY: The queue pair is this queue's, and no buffer was posted yet.
        unsafe { qp.receives.post_all(qp.as_raw())? };
        Ok(Sender::new(qp))
    }

    /// The bytes of a message that arrived on this queue pair.
    pub(crate) fn bytes<'a>(&'a self, message: &'a ReceivedMessage) -> &'a [u8] {
        self.receives.bytes(message)
    }

    /// What the user of the queue pair keeps with it.
    pub(crate) fn context(&self) -> &C {
        &self.context
    }

    /// The identifier of the connection.
    pub(crate) fn id(&self) -> &CmId {
        &self.id
    }

    /// The number of the queue pair.
    pub(crate) fn number(&self) -> u32 {
        // SAFETY: The queue pair is valid, and its number does not change.
        unsafe { (*self.as_raw()).qp_num }
    }

    /// The number that `rdma resource show cq` has for the completion queue.
    pub(crate) fn completion_queue(&self) -> u32 {
        self.cq.number()
    }

    /// How many Receives are posted, and how many buffers there are for them.
    pub(crate) fn receives(&self) -> (usize, usize) {
        self.receives.posted()
    }

    /// How many Sends may be with the device, and how many buffers there are for them.
    pub(crate) fn sends(&self) -> (usize, usize) {
        self.sends.posted()
    }

    /// A buffer beside the sender's, for what cannot wait, unless all are in use.
    pub(crate) fn last_send_buffer(&self) -> Option<LastSendBuffer<'_>> {
        self.sends.last_buffer(self.as_raw())
    }

    /// The protection domain, for the sender.
    pub(super) fn pd(&self) -> &Arc<Pd> {
        &self.pd
    }

    /// The receive queue, for completions.
    pub(super) fn receive_queue(&self) -> &ReceiveQueue {
        &self.receives
    }

    /// The send queue, for the sender.
    pub(super) fn send_queue(&self) -> &SendQueue {
        &self.sends
    }

    /// The lists of registered regions, for the sender.
    pub(super) fn registered(&self) -> &RegisteredLists<C::Slot> {
        &self.registered
    }

    /// Locks slot `index` of the registered regions.
    pub(crate) fn slot(&self, index: usize) -> Option<LockedSlot<'_, C::Slot>> {
        self.registered.slot(index)
    }

    /// How many slots there are.
    pub(crate) fn slots(&self) -> usize {
        self.registered.len()
    }

    /// Has all regions in slot `index` invalidated. Does not sleep.
    pub(crate) fn invalidate(&self, index: usize) -> Invalidation {
        // SAFETY: Both queues are this queue pair's.
        unsafe {
            self.registered
                .invalidate(self.as_raw(), &self.sends, index)
        }
    }

    /// Ends the connection, waits until every work request has completed, and destroys all regions
    /// that the peer could reach. May sleep; not to be called from a completion or CM event.
    ///
    /// # Safety
    ///
    /// Nobody sends from the ring during the call, nor after it.
    pub(super) unsafe fn drain(&self) {
        self.id.disconnect();
        self.sends.close();
        // SAFETY: The queue pair is valid, and its queues have room for the drain's requests. No
        // Send comes after the drain's. A Receive may, from a message that came before the end; it
        // is flushed, at the latest when the queue pair is destroyed.
        unsafe {
            bindings::ib_drain_rq(self.as_raw());
            bindings::ib_drain_sq(self.as_raw());
        }
        // Nothing posts registrations any more, and the peer's requests find no queue pair.
        self.registered.destroy();
    }

    /// The C pointer.
    pub(super) fn as_raw(&self) -> *mut bindings::ib_qp {
        // SAFETY: By the invariant of `attached` the identifier has a queue pair.
        unsafe { (*self.id.as_raw()).qp }
    }
}

/// Creates the queue pair proper.
fn attach(id: &Arc<CmId>, pd: &Pd, cq: &Cq, sizes: &QpSizes) -> Result<Attached> {
    let mut attr = bindings::ib_qp_init_attr {
        send_cq: cq.as_raw(),
        recv_cq: cq.as_raw(),
        cap: bindings::ib_qp_cap {
            max_send_wr: sizes.send_requests(),
            max_recv_wr: sizes.receive_requests(),
            max_send_sge: 1,
            max_recv_sge: 1,
            ..Default::default()
        },
        sq_sig_type: bindings::ib_sig_type_IB_SIGNAL_REQ_WR,
        qp_type: bindings::ib_qp_type_IB_QPT_RC,
        port_num: u32::MAX,
        ..Default::default()
    };
    // SAFETY: The identifier is valid, and only this module gives it a queue pair.
    if !unsafe { (*id.as_raw()).qp }.is_null() {
        return Err(EBUSY);
    }
    // SAFETY: Identifier, domain and queue are valid and on the same device; the attributes are
    // only used during the call.
    to_result(unsafe { bindings::rdma_create_qp(id.as_raw(), pd.as_raw(), &mut attr) })?;
    // INVARIANT: The call has attached a queue pair.
    Ok(Attached { id: id.clone() })
}

/// The queue pair and the completion that a handler was called for.
///
/// # Safety
///
/// `cq` and `wc` are the arguments of a completion handler of a `QueuePair<C>`.
unsafe fn arguments<'a, C: Completions>(
    cq: *mut bindings::ib_cq,
    wc: *mut bindings::ib_wc,
) -> (
    &'a QueuePair<C>,
    &'a Opaque<bindings::ib_cq>,
    &'a bindings::ib_wc,
) {
    // SAFETY: The queue's context is its queue pair, which waits for the handlers before it goes;
    // the queue and the completion are valid during the call.
    unsafe { (&*(*cq).cq_context.cast(), &*cq.cast(), &*wc) }
}

/// A Receive has completed.
///
/// # Safety
///
/// Called by the RDMA core only, for a completion on the queue of a `QueuePair<C>`.
unsafe extern "C" fn receive_done<C: Completions>(
    cq: *mut bindings::ib_cq,
    wc: *mut bindings::ib_wc,
) {
    // SAFETY: Only receive requests of a `QueuePair<C>` name this handler.
    let (qp, cq, wc) = unsafe { arguments::<C>(cq, wc) };
    // SAFETY: The handle belongs to the queue pair's receive queue.
    let index = unsafe { Cqe::index_of(wc) };
    trace::xprtrdma_wc_receive(cq, index, wc);
    if let Some(status) = WcStatus::failure(wc) {
        return qp.context.failed(status);
    }
    // SAFETY: This is a successful Receive completion.
    let invalidated = unsafe { RemoteInvalidation::from_completion(wc) };
    // SAFETY: The request of this buffer has completed, just now.
    if let Some(message) = unsafe { qp.receives.take(index, wc.byte_len) } {
        // SAFETY: The handlers of a queue run one after the other, and this is one of them.
        C::received(&mut unsafe { Completion::new(qp) }, message, invalidated);
    }
}

/// A signalled Send has completed.
///
/// # Safety
///
/// Called by the RDMA core only, for a completion on the queue of a `QueuePair<C>`.
unsafe extern "C" fn send_done<C: Completions>(cq: *mut bindings::ib_cq, wc: *mut bindings::ib_wc) {
    // SAFETY: Only Sends of a `QueuePair<C>` name this handler.
    let (qp, cq, wc) = unsafe { arguments::<C>(cq, wc) };
    // SAFETY: The handle belongs to the queue pair's send queue.
    let index = unsafe { Cqe::index_of(wc) };
    trace::xprtrdma_wc_send(cq, index, wc);
    if let Some(status) = WcStatus::failure(wc) {
        return qp.context.failed(status);
    }
    qp.sends.complete(index);
    qp.context.send_space();
}

/// A Send from a buffer beside the ring has completed.
///
/// # Safety
///
/// Called by the RDMA core only, for a completion on the queue of a `QueuePair<C>`.
unsafe extern "C" fn last_send_done<C: Completions>(
    cq: *mut bindings::ib_cq,
    wc: *mut bindings::ib_wc,
) {
    // SAFETY: Only the Sends beside the ring of a `QueuePair<C>` name this handler.
    let (qp, cq, wc) = unsafe { arguments::<C>(cq, wc) };
    // SAFETY: The handle belongs to a buffer beside the ring.
    let index = unsafe { Cqe::index_of(wc) };
    trace::xprtrdma_wc_send(cq, index, wc);
    qp.sends.complete_last(index);
    if let Some(status) = WcStatus::failure(wc) {
        qp.context.failed(status);
    }
}

/// A request that asks for no completion has failed, or was signalled by mistake.
///
/// # Safety
///
/// Called by the RDMA core only, for a completion on the queue of a `QueuePair<C>`.
unsafe extern "C" fn unsignaled_done<C: Completions>(
    cq: *mut bindings::ib_cq,
    wc: *mut bindings::ib_wc,
) {
    // SAFETY: Only requests of a `QueuePair<C>` name this handler.
    let (qp, cq, wc) = unsafe { arguments::<C>(cq, wc) };
    if let Some(status) = WcStatus::failure(wc) {
        trace::xprtrdma_wc_unsignaled(cq, wc);
        qp.context.failed(status);
    }
}

/// The last request of a chain of invalidations has completed.
///
/// # Safety
///
/// Called by the RDMA core only, for a completion on the queue of a `QueuePair<C>`.
unsafe extern "C" fn invalidate_done<C: Completions>(
    cq: *mut bindings::ib_cq,
    wc: *mut bindings::ib_wc,
) {
    // SAFETY: Only invalidations of a `QueuePair<C>` name this handler.
    let (qp, cq, wc) = unsafe { arguments::<C>(cq, wc) };
    let failure = WcStatus::failure(wc);
    // SAFETY: The handle belongs to a slot of the queue pair's registered lists.
    let index = unsafe { Cqe::index_of(wc) };
    trace::xprtrdma_wc_li_done(cq, index, wc);
    match failure {
        None => {
            // SAFETY: The completion is that of the chain's last request, with success.
            let regions = unsafe { qp.registered.invalidated(index) };
            // SAFETY: The handlers of a queue run one after the other, and this is one of them.
            C::invalidated(&mut unsafe { Completion::new(qp) }, index, regions);
        }
        Some(status) => {
            qp.context.failed(status);
            qp.context.not_invalidated(qp, index);
        }
    }
}
