// SPDX-License-Identifier: GPL-2.0

//! Sends of an accepted queue pair, with the RDMA Writes that go before them.

use super::{
    completion::WcStatus,
    cqe::{impl_has_cqe, Complete, Cqe, HasCqe},
    dma::DmaBuffer,
    pool::{Links, Pool, Pooled},
    qp::Qp,
    send_slots::{NoRoom, SendSlots},
    transfer::Transfers,
};
use crate::{
    bindings::{self, PageRange, PageVec},
    trace::server as trace,
};
use core::{
    mem::ManuallyDrop,
    ptr::{self, NonNull},
};
use kernel::{dma::DataDirection, prelude::*, types::Opaque};

// CAST: A bit of a small number, in a signed word.
#[allow(clippy::unnecessary_cast)]
const SIGNALED: i32 = bindings::ib_send_flags_IB_SEND_SIGNALED as i32;

/// What has a queue pair on which any thread sends.
pub(crate) trait OutgoingOwner: trace::TraceQp + Sized + 'static {
    /// What is told of each Send when it has completed.
    type Sent: Default + Send;

    /// The queue pair.
    fn qp(&self) -> &Qp;

    /// The room on its send queue.
    fn slots(&self) -> &SendSlots;

    /// Contexts for Sends.
    fn sends(&self) -> &Pool<SendContext<Self>>;

    /// Bytes in each Send.
    fn send_size(&self) -> u32;

    /// A Send has completed.
    fn sent(&self, sent: Self::Sent);

    /// There is no room on the send queue, for which somebody waits or comes back later. With a
    /// spinlock held.
    fn queue_is_full(&self);

    /// A work request has failed, or was flushed.
    fn failed(&self, status: WcStatus);
}

/// Takes room on the send queue, as [`SendSlots::take`].
pub(super) fn take_slots<O: OutgoingOwner>(
    owner: &O,
    count: u32,
    may_wait: bool,
) -> Result<(), NoRoom> {
    let told = |used, total| {
        trace::svcrdma_sq_full(owner, count, used, total);
        owner.queue_is_full();
    };
    owner.slots().take(count, may_wait, told)
}

/// What one Send uses, from the moment it is built until it has completed.
///
/// # Invariants
///
/// `owner` has the context. Of one that is posted, `slots` work requests are with the device.
pub(crate) struct SendContext<O: OutgoingOwner> {
    cqe: Cqe<Self>,
    links: Links<Self>,
    owner: NonNull<O>,
    /// Tells it from others of the owner, in trace events.
    number: u32,
    buffer: DmaBuffer,
    request: bindings::ib_send_wr,
    sge: bindings::ib_sge,
    writes: Transfers,
    /// What the RDMA Writes read.
    pages: PageVec,
    slots: u32,
    /// What the owner is told of the Send.
    sent: O::Sent,
}

impl_has_cqe! {
    impl{O: OutgoingOwner} HasCqe<0> for SendContext<O> { self.cqe }
}

impl<O: OutgoingOwner> Pooled for SendContext<O> {
    fn links(&self) -> &Links<Self> {
        &self.links
    }
}

impl<O: OutgoingOwner> SendContext<O> {
    /// A context of `owner`.
    fn new(owner: &O) -> Result<KBox<Self>> {
        let size = usize::try_from(owner.send_size())?;
        let buffer = DmaBuffer::new(owner.qp().pd(), size, DataDirection::ToDevice, GFP_KERNEL)?;
        let sge = buffer.sge(0, size).ok_or(EINVAL)?;
        Ok(KBox::new(
            Self {
                cqe: Cqe::new(),
                links: Links::new(),
                owner: NonNull::from(owner),
                number: owner.sends().len().1,
                buffer,
                request: bindings::ib_send_wr::default(),
                sge,
                writes: Transfers::writes(),
                pages: PageVec::new(),
                slots: 0,
                sent: O::Sent::default(),
            },
            GFP_KERNEL,
        )?)
    }

    /// Lets go of what the context holds. None of its work requests is with the device.
    pub(super) fn end(&mut self, qp: &Qp) {
        // SAFETY: The Writes were added with the owner's queue pair, and have completed, or were
        // not posted.
        unsafe { self.writes.release(qp) };
        self.pages.clear();
    }
}

impl<O: OutgoingOwner> Complete for SendContext<O> {
    unsafe fn complete(this: NonNull<Self>, cq: &Opaque<bindings::ib_cq>, wc: &bindings::ib_wc) {
        // SAFETY: The owner, which has the context, waits for the request that has just completed,
        // and with it all before, as they complete in order.
        let (owner, context) = unsafe { ((*this.as_ptr()).owner.as_ref(), &mut *this.as_ptr()) };
        trace::svcrdma_wc_send(cq, context.number, wc);
        let slots = core::mem::replace(&mut context.slots, 0);
        let sent = core::mem::take(&mut context.sent);
        context.end(owner.qp());
        // SAFETY: The context is the owner's, and was lent out until now.
        unsafe { owner.sends().put(this) };
        owner.slots().give_back(slots);
        match WcStatus::failure(wc) {
            None => owner.sent(sent),
            Some(status) => owner.failed(status),
        }
    }
}

/// A message to be sent, which goes back to its queue pair if it is not.
///
/// # Invariants
///
/// `context` is one of `owner`, lent to this object.
pub(crate) struct Outgoing<'a, O: OutgoingOwner> {
    owner: &'a O,
    context: NonNull<SendContext<O>>,
}

impl<'a, O: OutgoingOwner> Outgoing<'a, O> {
    /// One of `owner`.
    pub(super) fn new(owner: &'a O) -> Result<Self> {
        let context = match owner.sends().take() {
            Some(context) => context,
            None => owner.sends().add(SendContext::new(owner)?),
        };
        // INVARIANT: Just lent.
        Ok(Self { owner, context })
    }

    fn context(&mut self) -> &mut SendContext<O> {
        // SAFETY: By the type's invariant nobody else uses the context.
        unsafe { self.context.as_mut() }
    }

    /// The bytes of the message, to be filled from the start.
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        self.context().buffer.bytes()
    }

    /// Has `add` add the pages that [`Self::write`] is to read, which are kept until the Send has
    /// completed, and makes room for so many Writes, with as many parts in all as `add` says. May
    /// sleep.
    ///
    /// # Errors
    ///
    /// That of `add`, `ENOMEM`, or `EBUSY` the second time.
    pub(crate) fn keep<T>(
        &mut self,
        writes: usize,
        add: impl FnOnce(&mut PageVec) -> Result<(T, usize)>,
    ) -> Result<T> {
        let SendContext {
            writes: transfers,
            pages,
            ..
        } = self.context();
        transfers.reserve(0, 0)?;
        let (result, parts) = add(pages)?;
        transfers.reserve(writes, parts)?;
        Ok(result)
    }

    /// Has `ranges` of the pages that are kept written to the peer's memory at `offset` under
    /// `handle`, before the message. May sleep for memory, and for a memory region.
    ///
    /// # Errors
    ///
    /// `EINVAL` if a range is not of these pages; `ENOMEM`, or `EAGAIN` if there is no memory
    /// region.
    pub(crate) fn write(
        &mut self,
        ranges: impl Iterator<Item = PageRange> + Clone,
        handle: u32,
        offset: u64,
    ) -> Result {
        let (qp, slots) = (self.owner.qp(), self.owner.slots());
        let SendContext { writes, pages, .. } = self.context();
        if ranges.clone().any(|range| pages.part(range).is_none()) {
            return Err(EINVAL);
        }
        loop {
            let parts = ranges.clone().filter_map(|range| pages.part(range));
            // SAFETY: The pages stay with the context until `end`, which has the same queue pair.
            match unsafe { writes.add(qp, parts, handle, offset) } {
                Err(EAGAIN) if slots.wait().is_ok() => {}
                added => return added,
            }
        }
    }

    /// Sends the first `length` bytes, behind the Writes; has the peer invalidate `handle`. Waits
    /// for room on the send queue, if `may_wait`. [`OutgoingOwner::sent`] is told `sent`.
    ///
    /// # Errors
    ///
    /// Why there is no room; after [`NoRoom::Closed`] the connection is of no use.
    pub(crate) fn send(
        self,
        length: usize,
        invalidate: Option<u32>,
        may_wait: bool,
        sent: O::Sent,
    ) -> Result<(), NoRoom> {
        let mut this = ManuallyDrop::new(self);
        let (owner, pointer) = (this.owner, this.context);
        let context = this.context();
        let slots = context.writes.requests().saturating_add(1);
        let Ok(bytes) = u32::try_from(length.min(context.buffer.len())) else {
            drop(ManuallyDrop::into_inner(this));
            return Err(NoRoom::TooMany);
        };
        if let Err(reason) = take_slots(owner, slots, may_wait) {
            drop(ManuallyDrop::into_inner(this));
            return Err(reason);
        }
        context.slots = slots;
        context.sent = sent;
        context.buffer.sync_for_device(length);
        context.sge.length = bytes;
        context.request = bindings::ib_send_wr {
            __bindgen_anon_1: bindings::ib_send_wr__bindgen_ty_1 {
                wr_cqe: ManuallyDrop::new(SendContext::wr_cqe(pointer.as_ptr())),
            },
            sg_list: &raw mut context.sge,
            num_sge: 1,
            opcode: bindings::ib_wr_opcode_IB_WR_SEND,
            send_flags: SIGNALED,
            ..Default::default()
        };
        if let Some(handle) = invalidate {
            context.request.opcode = bindings::ib_wr_opcode_IB_WR_SEND_WITH_INV;
            context.request.ex.invalidate_rkey = ManuallyDrop::new(handle);
        }
        if slots > 1 {
            trace::svcrdma_post_write_chunk(owner, context.number, slots.saturating_sub(1));
        }
        trace::svcrdma_post_send(owner, context.number, invalidate);
        let last = &raw mut context.request;
        // SAFETY: The Writes were added with this queue pair. The context, with all that the chain
        // names, stays until the Send has completed.
        let posted = unsafe {
            let first = context
                .writes
                .requests_before(owner.qp(), ptr::null_mut(), last);
            owner.qp().post_send_beside(first)
        };
        match posted {
            Ok(()) => Ok(()),
            Err(EPIPE) => {
                // Nothing was posted.
                owner.slots().give_back(slots);
                drop(ManuallyDrop::into_inner(this));
                Err(NoRoom::Closed)
            }
            // Some of the chain may be with the device: the context goes with the queue pair.
            Err(error) => {
                trace::svcrdma_sq_post_err(owner, error);
                Err(NoRoom::Closed)
            }
        }
    }
}

impl<O: OutgoingOwner> Drop for Outgoing<'_, O> {
    fn drop(&mut self) {
        let owner = self.owner;
        self.context().end(owner.qp());
        // SAFETY: By the type's invariant; the object ends here.
        unsafe { owner.sends().put(self.context) };
    }
}
