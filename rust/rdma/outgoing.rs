// SPDX-License-Identifier: GPL-2.0

//! Sends of an accepted queue pair, with the RDMA Writes that precede them.

use super::{
    completion::WcStatus,
    cqe::{impl_has_cqe, Complete, CqRef, Cqe, HasCqe},
    dma::DmaBuffer,
    pool::{Links, Pool, Pooled},
    qp::Qp,
    rw::RwList,
    send_slots::{NoRoom, Patience, SendSlots, SlotWait, Turn},
};
use crate::{
    bindings::{self, PageRange, PageVec},
    trace::{self, TraceQp},
};
use core::{
    mem::ManuallyDrop,
    ptr::{self, NonNull},
};
use kernel::{dma::DataDirection, prelude::*};

// CAST: A small bit mask, in a signed word.
#[allow(clippy::unnecessary_cast)]
const SIGNALED: i32 = bindings::ib_send_flags_IB_SEND_SIGNALED as i32;

/// An object that owns a queue pair on which any thread may send.
///
/// # Safety
///
/// [`Self::qp`] and [`Self::sends`] always return the same objects, which are parts of this one. It
/// is pinned, and is not dropped before the Sends of its contexts have completed.
pub(crate) unsafe trait OutgoingOwner: TraceQp + Sized + 'static {
    /// The value that is passed to [`Self::sent`] when the Send completes.
    type Sent: Default + Send;

    /// The queue pair.
    fn qp(&self) -> &Qp;

    /// Accounting for its send queue.
    fn slots(&self) -> &SendSlots;

    /// The contexts of Sends.
    fn sends(&self) -> &Pool<SendContext<Self>>;

    /// Bytes in each Send.
    fn send_size(&self) -> u32;

    /// An RDMA Write before a Send has failed; [`Self::failed`] is called next.
    fn not_written(&self, sent: &Self::Sent, status: WcStatus);

    /// A Send has completed.
    fn sent(&self, sent: &Self::Sent);

    /// The send queue is full; the caller waits for room or retries later. Called with a spinlock
    /// held.
    fn queue_is_full(&self);

    /// A work request failed or was flushed.
    fn failed(&self, status: WcStatus);

    /// The caller has waited for the send queue as long as it may: the peer has let too little
    /// complete.
    fn timed_out(&self);
}

/// Takes the turn to map transfers that take memory regions; see [`SendSlots::turn`].
///
/// # Errors
///
/// `EAGAIN` if there is no turn to be had.
pub(super) fn take_turn<'a, O: OutgoingOwner>(
    owner: &'a O,
    wait: Option<&mut SlotWait>,
) -> Result<Turn<'a>> {
    let turn = owner.slots().turn(wait);
    turn.map_err(|reason| {
        if reason == NoRoom::TimedOut {
            owner.timed_out();
        }
        EAGAIN
    })
}

/// Takes slots of the send queue; see [`SendSlots::take`].
pub(super) fn take_slots<O: OutgoingOwner>(
    owner: &O,
    count: u32,
    patience: Patience,
    wait: &mut SlotWait,
) -> Result<(), NoRoom> {
    if owner.slots().try_take(count, patience) {
        return Ok(());
    }
    take_slots_later(owner, count, patience, wait)
}

/// [`take_slots`] if they are not free at first.
fn take_slots_later<O: OutgoingOwner>(
    owner: &O,
    count: u32,
    patience: Patience,
    wait: &mut SlotWait,
) -> Result<(), NoRoom> {
    let told = |used, total| {
        trace::svcrdma_sq_full(owner, count, used, total);
        owner.queue_is_full();
    };
    let taken = owner.slots().take(count, patience, wait, told);
    if taken == Err(NoRoom::TimedOut) {
        owner.timed_out();
    }
    taken
}

/// Waits until others have returned slots; see [`SendSlots::wait`].
pub(super) fn wait_for_slots<O: OutgoingOwner>(
    owner: &O,
    wait: &mut SlotWait,
) -> Result<(), NoRoom> {
    let waited = owner.slots().wait(wait);
    if waited == Err(NoRoom::TimedOut) {
        owner.timed_out();
    }
    waited
}

/// Adds the transfer of `range` of `pages` from or to the peer's memory at `offset` under `handle`.
/// May sleep for memory, and with `wait` for memory regions.
///
/// # Safety
///
/// As for [`RwList::add`] with the owner's queue pair.
///
/// # Errors
///
/// As for [`RwList::add`].
pub(super) unsafe fn add_range<O: OutgoingOwner>(
    owner: &O,
    list: &mut RwList,
    pages: &PageVec,
    range: PageRange,
    (handle, mut offset): (u32, u64),
    mut wait: Option<&mut SlotWait>,
) -> Result {
    for range in range.split(owner.qp().region_pages()) {
        // SAFETY: The caller keeps the pages as `RwList::add` wants it (this function's contract).
        while let Err(error) = unsafe { list.add(owner.qp(), pages, range, handle, offset) } {
            let wait = wait.as_deref_mut().filter(|_| error == EAGAIN);
            if wait.is_none_or(|wait| wait_for_slots(owner, wait).is_err()) {
                return Err(error);
            }
        }
        offset = offset.wrapping_add(u64::try_from(range.length)?);
    }
    Ok(())
}

/// The resources of one Send, from the time it is built until it completes.
///
/// # Invariants
///
/// `owner` holds the context in its pool. If the context is posted, `slots` of its work requests
/// are outstanding.
pub(crate) struct SendContext<O: OutgoingOwner> {
    cqe: Cqe<Self>,
    /// For the Writes, which complete only if they fail.
    write_cqe: Cqe<Self, 1>,
    links: Links<Self>,
    owner: NonNull<O>,
    /// Distinguishes the owner's contexts in trace events.
    number: u32,
    buffer: DmaBuffer,
    request: bindings::ib_send_wr,
    sge: bindings::ib_sge,
    writes: RwList,
    /// The source of the RDMA Writes.
    pages: PageVec,
    slots: u32,
    /// The value that the owner is passed when the Send completes.
    sent: O::Sent,
}

impl_has_cqe! {
    impl{O: OutgoingOwner} HasCqe<0> for SendContext<O> { self.cqe }
    impl{O: OutgoingOwner} HasCqe<1> for SendContext<O> { self.write_cqe }
}

// SAFETY: The context belongs to the pool, or to one borrower. Nothing in it is tied to a thread.
unsafe impl<O: OutgoingOwner> Send for SendContext<O> {}

// SAFETY: Nobody else uses the links.
unsafe impl<O: OutgoingOwner> Pooled for SendContext<O> {
    fn links(&self) -> &Links<Self> {
        &self.links
    }
}

impl<O: OutgoingOwner> SendContext<O> {
    /// Allocates a context of `owner`.
    fn new(owner: &O) -> Result<KBox<Self>> {
        let size = usize::try_from(owner.send_size())?;
        let buffer = DmaBuffer::new(owner.qp().pd(), size, DataDirection::ToDevice, GFP_KERNEL)?;
        let sge = buffer.sge(0, size).ok_or(EINVAL)?;
        let mut context = KBox::new(
            Self {
                cqe: Cqe::new(),
                write_cqe: Cqe::new(),
                links: Links::new(),
                owner: NonNull::from(owner),
                number: owner.sends().number(),
                buffer,
                request: bindings::ib_send_wr::default(),
                sge,
                writes: RwList::writes(),
                pages: PageVec::new(),
                slots: 0,
                sent: O::Sent::default(),
            },
            GFP_KERNEL,
        )?;
        // From here on the context does not move.
        let this: *mut Self = &mut *context;
        context.request = bindings::ib_send_wr {
            __bindgen_anon_1: bindings::ib_send_wr__bindgen_ty_1 {
                wr_cqe: ManuallyDrop::new(HasCqe::<0>::wr_cqe(this)),
            },
            // SAFETY: Only takes the address of a field.
            sg_list: unsafe { &raw mut (*this).sge },
            num_sge: 1,
            send_flags: SIGNALED,
            ..Default::default()
        };
        Ok(context)
    }

    /// Adds a context to the pool of `owner`, and borrows it.
    fn add(owner: &O) -> Result<NonNull<Self>> {
        Ok(owner.sends().add(Self::new(owner)?))
    }

    /// Releases what was mapped. None of the context's work requests is outstanding.
    pub(super) fn unmap(&mut self, qp: &Qp) {
        // SAFETY: The Writes were added with the owner's queue pair, and have completed or were
        // never posted.
        unsafe { self.writes.release(qp) };
    }

    /// Leaks the pages, which the device may still use.
    pub(super) fn lose_pages(&mut self) {
        core::mem::forget(core::mem::take(&mut self.pages));
    }

    /// Releases what the context holds. None of its work requests is outstanding.
    fn end(&mut self, qp: &Qp) {
        self.unmap(qp);
        self.pages.clear();
    }
}

impl<O: OutgoingOwner> Complete for SendContext<O> {
    unsafe fn complete(this: NonNull<Self>, cq: &CqRef, wc: &bindings::ib_wc) {
        // SAFETY: The owner, whose pool holds the context, waits for the request that has just
        // completed, and for all requests before it, as they complete in order.
        let (owner, context) = unsafe { ((*this.as_ptr()).owner.as_ref(), &mut *this.as_ptr()) };
        trace::svcrdma_wc_send(cq, context.number, wc);
        let failure = WcStatus::failure(wc);
        if failure.is_none() {
            owner.sent(&context.sent);
        }
        let slots = core::mem::replace(&mut context.slots, 0);
        context.end(owner.qp());
        // SAFETY: The context is the owner's, and was lent out until now.
        unsafe { owner.sends().put(this, owner.qp()) };
        owner.slots().give_back(slots);
        if let Some(status) = failure {
            owner.failed(status);
        }
    }
}

impl<O: OutgoingOwner> Complete<1> for SendContext<O> {
    unsafe fn complete(this: NonNull<Self>, cq: &CqRef, wc: &bindings::ib_wc) {
        if let Some(status) = WcStatus::failure(wc) {
            // SAFETY: The owner has the context, and waits for its Send, which completes later.
            let (owner, context) = unsafe { ((*this.as_ptr()).owner.as_ref(), this.as_ref()) };
            trace::svcrdma_wc_write_failed(cq, context.number, wc);
            owner.not_written(&context.sent, status);
            owner.failed(status);
        }
    }
}

/// A message to be sent. Its context is returned to the owner if it is not sent.
///
/// # Invariants
///
/// `context` is one of `owner`'s, and lent to this object.
pub(crate) struct Outgoing<'a, O: OutgoingOwner> {
    owner: &'a O,
    context: NonNull<SendContext<O>>,
    turn: Option<Turn<'a>>,
    wait: SlotWait,
}

impl<'a, O: OutgoingOwner> Outgoing<'a, O> {
    /// Borrows a context from `owner`, or allocates one.
    pub(super) fn new(owner: &'a O) -> Result<Self> {
        let context = match owner.sends().take() {
            Some(context) => context,
            None => SendContext::add(owner)?,
        };
        // INVARIANT: Just borrowed.
        Ok(Self {
            owner,
            context,
            turn: None,
            wait: SlotWait::default(),
        })
    }

    fn context(&mut self) -> &mut SendContext<O> {
        // SAFETY: By the type's invariant nobody else uses the context.
        unsafe { self.context.as_mut() }
    }

    /// The buffer for the message, which begins at its start.
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        self.context().buffer.bytes()
    }

    /// The pages that [`Self::write`] takes its data from, to which the caller adds them. They are
    /// kept until the Send has completed. May sleep, and wait for another thread that maps
    /// transfers.
    ///
    /// # Errors
    ///
    /// `EBUSY` if Writes were added already; `EAGAIN` if there is no turn to map them.
    pub(crate) fn kept_pages(&mut self) -> Result<&mut PageVec> {
        if self.owner.qp().registers_writes() && self.turn.is_none() {
            self.turn = Some(take_turn(self.owner, Some(&mut self.wait))?);
        }
        let context = self.context();
        match context.writes.requests() {
            0 => Ok(&mut context.pages),
            _ => Err(EBUSY),
        }
    }

    /// Reserves memory for Writes of `ranges` ranges with `elements` elements in all. May sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn reserve_writes(&mut self, ranges: usize, elements: usize) -> Result {
        let qp = self.owner.qp();
        self.context().writes.reserve(qp, ranges, elements)
    }

    /// Adds an RDMA Write of `range` of the kept pages to the peer's memory at `offset` under
    /// `handle`, to be done before the message is sent. May sleep for memory, and for a memory
    /// region.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the range is not within these pages; `ENOMEM`, or `EAGAIN` if there is no memory
    /// region.
    pub(crate) fn write(&mut self, range: PageRange, handle: u32, offset: u64) -> Result {
        // SAFETY: By the type's invariant nobody else uses the context.
        let SendContext { writes, pages, .. } = unsafe { self.context.as_mut() };
        let wait = Some(&mut self.wait);
        // SAFETY: The pages stay with the context until `end`, which is called with the same queue
        // pair.
        unsafe { add_range(self.owner, writes, pages, range, (handle, offset), wait) }
    }

    /// Sends the first `length` bytes after the Writes, and asks the peer to invalidate `handle`.
    /// `patience` is for room on the send queue. `sent` is passed to [`OutgoingOwner::sent`].
    ///
    /// # Errors
    ///
    /// Why there is no room; after [`NoRoom::Closed`] the connection is unusable.
    pub(crate) fn send(
        self,
        length: usize,
        invalidate: Option<u32>,
        patience: Patience,
        sent: O::Sent,
    ) -> Result<(), NoRoom> {
        let mut this = ManuallyDrop::new(self);
        // Other threads may map transfers when this returns.
        let _turn = this.turn.take();
        let (owner, pointer) = (this.owner, this.context);
        let context = this.context();
        let slots = context.writes.requests().saturating_add(1);
        let Ok(bytes) = u32::try_from(length.min(context.buffer.len())) else {
            drop(ManuallyDrop::into_inner(this));
            return Err(NoRoom::TooMany);
        };
        if let Err(reason) = take_slots(owner, slots, patience, &mut this.wait) {
            drop(ManuallyDrop::into_inner(this));
            return Err(reason);
        }
        let context = this.context();
        context.slots = slots;
        context.sent = sent;
        context.buffer.sync_for_device(length);
        context.sge.length = bytes;
        context.request.opcode = bindings::ib_wr_opcode_IB_WR_SEND;
        if let Some(handle) = invalidate {
            context.request.opcode = bindings::ib_wr_opcode_IB_WR_SEND_WITH_INV;
            context.request.ex.invalidate_rkey = ManuallyDrop::new(handle);
        }
        if slots > 1 {
            trace::svcrdma_post_write_chunk(owner, context.number, slots.saturating_sub(1));
        }
        trace::svcrdma_post_send(owner, context.number, invalidate);
        let last = &raw mut context.request;
        // SAFETY: The Writes were added with this queue pair. The context, with everything that the
        // chain refers to, stays until the Send has completed.
        let posted = unsafe {
            let first = context
                .writes
                .requests_before(owner.qp(), ptr::null_mut(), last);
            let mut write = first;
            while write != last {
                let cqe = HasCqe::<1>::wr_cqe(pointer.as_ptr());
                (*write).__bindgen_anon_1.wr_cqe = ManuallyDrop::new(cqe);
                write = (*write).next;
            }
            owner.qp().post_send_gated(first)
        };
        match posted {
            Ok(()) => Ok(()),
            Err(EPIPE) => {
                // Nothing was posted.
                owner.slots().give_back(slots);
                drop(ManuallyDrop::into_inner(this));
                Err(NoRoom::Closed)
            }
            // Part of the chain may be posted: the context is freed with the queue pair.
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
        // SAFETY: By the type's invariant; this object does not use the context any longer.
        unsafe { owner.sends().put(self.context, owner.qp()) };
    }
}
