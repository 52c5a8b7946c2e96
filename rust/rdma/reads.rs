// SPDX-License-Identifier: GPL-2.0

//! RDMA Reads that an accepted queue pair posts on behalf of a message.

use super::{
    completion::WcStatus,
    cqe::{impl_has_cqe, Complete, CqRef, Cqe, HasCqe},
    outgoing::{add_range, take_slots, take_turn, OutgoingOwner},
    pool::{Links, Pool, Pooled},
    qp::Qp,
    receive::{CompletedReceive, ReceiveOwner},
    rw::RwList,
    send_slots::{NoRoom, Patience, SlotWait, Turn},
};
use crate::{
    bindings::{self, PageRange, PageVec},
    trace,
};
use core::{
    mem::ManuallyDrop,
    ptr::{self, NonNull},
};
use kernel::prelude::*;

/// An object that owns a queue pair on which RDMA Reads are posted for messages.
///
/// # Safety
///
/// As for [`OutgoingOwner`], with [`Self::reads`] and RDMA Reads.
pub(crate) unsafe trait ReadOwner: ReceiveOwner + OutgoingOwner {
    /// The contexts of RDMA Reads.
    fn reads(&self) -> &Pool<ReadContext<Self>>;

    /// The RDMA Reads that were posted for `message` have filled `pages`.
    fn read(&self, message: CompletedReceive<Self>, pages: PageVec);

    /// The RDMA Reads for `message` failed; [`OutgoingOwner::failed`] is called next.
    fn not_read(&self, message: CompletedReceive<Self>, status: WcStatus);
}

/// The resources of the RDMA Reads for one message.
///
/// # Invariants
///
/// `owner` holds the context in its pool. If the context is posted, `slots` of its work requests
/// are outstanding, and `message` is the one that they were posted for.
pub(crate) struct ReadContext<O: ReadOwner> {
    cqe: Cqe<Self>,
    /// For all Reads but the last, which complete only if they fail.
    first_cqe: Cqe<Self, 1>,
    links: Links<Self>,
    owner: NonNull<O>,
    reads: RwList,
    /// The destination of the Reads.
    pages: PageVec,
    message: Option<CompletedReceive<O>>,
    /// The status of the first Read that failed.
    failure: Option<WcStatus>,
    slots: u32,
}

impl_has_cqe! {
    impl{O: ReadOwner} HasCqe<0> for ReadContext<O> { self.cqe }
    impl{O: ReadOwner} HasCqe<1> for ReadContext<O> { self.first_cqe }
}

// SAFETY: The context belongs to the pool, or to one borrower. Nothing in it is tied to a thread.
unsafe impl<O: ReadOwner> Send for ReadContext<O> {}

// SAFETY: Nobody else uses the links.
unsafe impl<O: ReadOwner> Pooled for ReadContext<O> {
    fn links(&self) -> &Links<Self> {
        &self.links
    }
}

impl<O: ReadOwner> ReadContext<O> {
    /// Allocates a context of `owner`.
    fn new(owner: &O) -> Result<KBox<Self>> {
        Ok(KBox::new(
            Self {
                cqe: Cqe::new(),
                first_cqe: Cqe::new(),
                links: Links::new(),
                owner: NonNull::from(owner),
                reads: RwList::reads(),
                pages: PageVec::new(),
                message: None,
                failure: None,
                slots: 0,
            },
            GFP_KERNEL,
        )?)
    }

    /// Releases what was mapped. None of the context's work requests is outstanding.
    pub(super) fn unmap(&mut self, qp: &Qp) {
        // SAFETY: The Reads were added with the owner's queue pair, and have completed or were
        // never posted.
        unsafe { self.reads.release(qp) };
    }

    /// Leaks the pages, which the device may still use.
    pub(super) fn lose_pages(&mut self) {
        core::mem::forget(core::mem::take(&mut self.pages));
    }

    /// Releases what the context holds. None of its work requests is outstanding.
    fn end(&mut self, qp: &Qp) -> (Option<CompletedReceive<O>>, PageVec) {
        self.unmap(qp);
        (self.message.take(), core::mem::take(&mut self.pages))
    }
}

impl<O: ReadOwner> Complete for ReadContext<O> {
    unsafe fn complete(this: NonNull<Self>, cq: &CqRef, wc: &bindings::ib_wc) {
        // SAFETY: The owner, whose pool holds the context, waits for the request that has just
        // completed, and for all requests before it, as they complete in order.
        let (owner, context) = unsafe { ((*this.as_ptr()).owner.as_ref(), &mut *this.as_ptr()) };
        let slots = core::mem::replace(&mut context.slots, 0);
        let failure = WcStatus::failure(wc);
        // An earlier Read may have recorded why.
        let failure = failure.map(|status| context.failure.take().unwrap_or(status));
        // The last Read may complete while the provider has yet to look for a request behind it.
        owner.qp().wait_for_posting_beside();
        let (message, pages) = context.end(owner.qp());
        // SAFETY: The context is the owner's, and was lent out until now. Its requests have been
        // posted.
        unsafe { owner.reads().put(this, owner.qp()) };
        owner.slots().give_back(slots);
        match (failure, message) {
            (None, Some(message)) => owner.read(message, pages),
            (None, None) => {}
            (Some(status), message) => {
                if let Some(message) = message {
                    trace::svcrdma_wc_read_failed(cq, message.number(), wc);
                    owner.not_read(message, status);
                }
                owner.failed(status);
            }
        }
    }
}

impl<O: ReadOwner> Complete<1> for ReadContext<O> {
    unsafe fn complete(this: NonNull<Self>, cq: &CqRef, wc: &bindings::ib_wc) {
        if let Some(status) = WcStatus::failure(wc) {
            // SAFETY: The owner has the context, and waits for its last Read, which completes
            // later. The completions of a queue are handled one after the other.
            let (owner, context) =
                unsafe { ((*this.as_ptr()).owner.as_ref(), &mut *this.as_ptr()) };
            if let Some(message) = &context.message {
                trace::svcrdma_wc_read_failed(cq, message.number(), wc);
            }
            context.failure.get_or_insert(status);
            owner.failed(status);
        }
    }
}

/// Why Reads were not posted, with the message and the pages, unless those are freed with the
/// connection.
pub(crate) type NotPosted<O> = (NoRoom, Option<(CompletedReceive<O>, PageVec)>);

/// RDMA Reads to be posted. Their context is returned to the owner if they are not.
///
/// # Invariants
///
/// `context` is one of `owner`'s, and lent to this object.
pub(crate) struct Reads<'a, O: ReadOwner> {
    owner: &'a O,
    context: NonNull<ReadContext<O>>,
    turn: Option<Turn<'a>>,
    wait: SlotWait,
}

impl<'a, O: ReadOwner> Reads<'a, O> {
    /// Borrows a context from `owner`, or allocates one. Waits until no other thread maps
    /// transfers, if `may_wait`.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, or `EAGAIN` if it would have to wait.
    pub(super) fn new(owner: &'a O, may_wait: bool) -> Result<Self> {
        let mut wait = SlotWait::default();
        let turn = match owner.qp().registers_transfers() {
            true => Some(take_turn(owner, may_wait.then_some(&mut wait))?),
            false => None,
        };
        let context = match owner.reads().take() {
            Some(context) => context,
            None => owner.reads().add(ReadContext::new(owner)?),
        };
        // INVARIANT: Just borrowed.
        Ok(Self {
            owner,
            context,
            turn,
            wait,
        })
    }

    fn context(&mut self) -> &mut ReadContext<O> {
        // SAFETY: By the type's invariant nobody else uses the context.
        unsafe { self.context.as_mut() }
    }

    /// Sets the pages that the Reads are to fill, and reserves memory for `reads` Reads. May sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, or `EBUSY` if Reads were added already.
    pub(crate) fn fill(&mut self, pages: PageVec, reads: usize) -> Result {
        let qp = self.owner.qp();
        let context = self.context();
        if context.reads.requests() != 0 {
            return Err(EBUSY);
        }
        // A Read that begins within a page shares that page with the Read before it.
        let elements = pages.len().saturating_add(reads);
        context.pages = pages;
        context.reads.reserve(qp, reads, elements)
    }

    /// Adds an RDMA Read of `length` bytes of the peer's memory, at `offset` under `handle`, to the
    /// pages from byte `start` on. May sleep for memory, and for a memory region if `may_wait`.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the pages have no such bytes; `ENOMEM`, or `EAGAIN` if there is no memory
    /// region.
    pub(crate) fn read(
        &mut self,
        (start, length): (usize, u32),
        (handle, offset): (u32, u64),
        may_wait: bool,
    ) -> Result {
        let range = PageRange::at(start, usize::try_from(length)?);
        // SAFETY: By the type's invariant nobody else uses the context.
        let ReadContext { reads, pages, .. } = unsafe { self.context.as_mut() };
        let wait = may_wait.then_some(&mut self.wait);
        // SAFETY: The pages stay with the context until `end`, which is called with the same queue
        // pair.
        unsafe { add_range(self.owner, reads, pages, range, (handle, offset), wait) }
    }

    /// Posts the Reads for `message`, which is passed to [`ReadOwner::read`] with the pages when
    /// they complete. Waits for room on the send queue if `may_wait`.
    ///
    /// # Errors
    ///
    /// [`NoRoom::Closed`] if there are no Reads; otherwise why there is no room. The message and
    /// its pages are returned with it, unless they are freed with the connection.
    pub(crate) fn post(
        self,
        message: CompletedReceive<O>,
        may_wait: bool,
    ) -> Result<(), NotPosted<O>> {
        let mut this = ManuallyDrop::new(self);
        // Other threads may map transfers when this returns.
        let _turn = this.turn.take();
        let (owner, pointer) = (this.owner, this.context);
        let slots = this.context().reads.requests();
        // Without Reads nothing would complete.
        let taken = match slots {
            0 => Err(NoRoom::Closed),
            _ => take_slots(owner, slots, Patience::of(may_wait), &mut this.wait),
        };
        let context = this.context();
        if let Err(reason) = taken {
            let (_, pages) = context.end(owner.qp());
            drop(ManuallyDrop::into_inner(this));
            return Err((reason, Some((message, pages))));
        }
        trace::svcrdma_post_read_chunk(owner, message.number(), slots);
        context.slots = slots;
        context.message = Some(message);
        let cqe = HasCqe::<0>::wr_cqe(pointer.as_ptr());
        let first_cqe = HasCqe::<1>::wr_cqe(pointer.as_ptr());
        // SAFETY: The Reads were added with this queue pair. The context, with everything that the
        // chain refers to, stays until the last Read has completed.
        let posted = unsafe {
            let first = context
                .reads
                .requests_before(owner.qp(), cqe, ptr::null_mut());
            let mut read = first;
            while !(*read).next.is_null() {
                (*read).__bindgen_anon_1.wr_cqe = ManuallyDrop::new(first_cqe);
                read = (*read).next;
            }
            owner.qp().post_send_beside(first)
        };
        match posted {
            Ok(()) => Ok(()),
            Err(EPIPE) => {
                // Nothing was posted.
                owner.slots().give_back(slots);
                let (message, pages) = context.end(owner.qp());
                drop(ManuallyDrop::into_inner(this));
                Err((NoRoom::Closed, message.map(|message| (message, pages))))
            }
            // Part of the chain may be posted: the context is freed with the queue pair.
            Err(error) => {
                trace::svcrdma_sq_post_err(owner, error);
                Err((NoRoom::Closed, None))
            }
        }
    }
}

impl<O: ReadOwner> Drop for Reads<'_, O> {
    fn drop(&mut self) {
        let owner = self.owner;
        drop(self.context().end(owner.qp()));
        // SAFETY: By the type's invariant; this object does not use the context any longer.
        unsafe { owner.reads().put(self.context, owner.qp()) };
    }
}
