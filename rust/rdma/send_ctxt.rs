// SPDX-License-Identifier: GPL-2.0

//! The contexts of a send queue: one is acquired for each chain of work requests, and the chain is
//! built in it.
//!
//! RDMA Writes or registrations of MRs may come before the Send of a chain, and other RDMA Reads
//! before its last one.

use super::{
    cq::{Complete, CqContext, Cqe},
    dma::DmaBuffer,
    list::{Link, Linked, List},
    mr::{Mapped, MrList},
    owner::QpOwner,
    qp::{QpUser, QueuePair},
    rw::RwList,
    send::SqError,
    Pd,
};
use crate::{
    bindings::{self, PageRange, PageVec},
    trace,
};
use core::{mem::ManuallyDrop, ptr::null_mut};
use kernel::{alloc::Flags, dma::DataDirection, prelude::*, sync::Arc};

/// The resources of one chain. Owned by a [`SendBox`], or by one list of the send queue.
pub(super) struct SendCtxt<U: QpUser> {
    link: Link<Self>,
    /// Of the last request, if that is signalled.
    pub(super) signalled: Cqe<Self>,
    /// Of all other requests. It reports errors, and frees nothing: not every device completes
    /// unsignalled requests that it flushes.
    pub(super) unsignalled: Cqe<Self, 1>,
    header: DmaBuffer,
    wr: bindings::ib_send_wr,
    sge: bindings::ib_sge,
    pub(super) rw: RwList,
    /// The memory of `rw`.
    pub(super) pages: PageVec,
    /// The first request of the chain.
    pub(super) first: *mut bindings::ib_send_wr,
    /// Contexts whose unsignalled Sends were posted before this one's.
    pub(super) covers: List<Self>,
    /// Identifies the chain in trace events.
    pub(super) cid: u32,
    /// How often the watchdog had run when the chain was handed over.
    pub(super) handed: u32,
    pub(super) data: U::Send,
}

// SAFETY: A context belongs to one owner at a time, a `SendBox` or a list (see `SendQueue`). Its
// pointers lead into itself, or to its `rw`.
unsafe impl<U: QpUser> Send for SendCtxt<U> {}

// SAFETY: Always the field `link`.
unsafe impl<U: QpUser> Linked for SendCtxt<U> {
    fn link(&self) -> &Link<Self> {
        &self.link
    }
}

impl<U: QpUser> SendCtxt<U> {
    /// Allocates a context with a buffer for `size` bytes.
    pub(super) fn new(pd: &Arc<Pd>, size: u32, flags: Flags) -> Result<KBox<Self>> {
        let header = DmaBuffer::new(pd, size, DataDirection::ToDevice, flags)?;
        let ctxt = Self {
            link: Link::new(),
            signalled: Cqe::new(),
            unsignalled: Cqe::new(),
            sge: header.sge(),
            header,
            wr: bindings::ib_send_wr::default(),
            rw: RwList::new(),
            pages: PageVec::default(),
            first: null_mut(),
            covers: List::new(),
            cid: 0,
            handed: 0,
            data: U::Send::default(),
        };
        Ok(KBox::new(ctxt, flags)?)
    }

    /// The bytes of the Send.
    pub(super) fn message(&self) -> &[u8] {
        // CAST: A u32 always fits the kernel's usize.
        self.header.prefix(self.sge.length as usize)
    }

    /// Entries of the send queue; 0 on a client, whose queue has enough for all contexts.
    pub(super) fn entries(&self) -> u32 {
        if U::IS_CLIENT {
            return 0;
        }
        let send = u32::from(!self.rw.is_read());
        self.rw.requests.saturating_add(send)
    }

    /// Unmaps the memory of `rw`, and puts the pages.
    ///
    /// # Safety
    ///
    /// The chain has completed, or was never posted. It belongs to `qp`, whose hardware objects
    /// exist.
    pub(super) unsafe fn release(&mut self, qp: &QueuePair<U>) {
        // SAFETY: The ranges were added with these objects, and are not used by the device (this
        // function's contract).
        unsafe { self.rw.release(qp.hw()) };
        let count = self.pages.len();
        if count != 0 {
            self.pages.clear();
            qp.user.pages_put(&self.data, count);
        }
    }

    /// Sets or clears `IB_SEND_SIGNALED`, and chooses the cqe.
    pub(super) fn set_signalled(&mut self, is_signalled: bool) {
        let (cqe, flags) = if is_signalled {
            (
                <Self as Complete<0>>::wr_cqe(self),
                bindings::ib_send_flags_IB_SEND_SIGNALED,
            )
        } else {
            (<Self as Complete<1>>::wr_cqe(self), 0)
        };
        self.wr.__bindgen_anon_1.wr_cqe = ManuallyDrop::new(cqe);
        self.wr.send_flags = flags;
    }
}

/// A context in which a chain is built. It is put back when it is dropped.
///
/// # Invariants
///
/// The hardware objects of `qp` exist for all of `'a`.
pub(crate) struct SendBox<'a, U: QpUser> {
    pub(super) qp: &'a QueuePair<U>,
    /// Taken out when the chain is handed over, or in `drop`.
    pub(super) ctxt: ManuallyDrop<KBox<SendCtxt<U>>>,
}

impl<U: QpUser> QpOwner<U> {
    /// A context for one chain. May sleep if `flags` allow it.
    ///
    /// # Errors
    ///
    /// [`SqError::Full`] on a client only; then [`QpUser::sq_full`] was called under the lock, and
    /// [`QpUser::sq_available`] will be. [`SqError::NoMem`] on a server only. [`SqError::Closed`].
    pub(crate) fn get_send_ctxt(&self, flags: Flags) -> Result<SendBox<'_, U>, SqError> {
        // SAFETY: The owner exists while it is borrowed.
        unsafe { self.get_ctxt(flags) }
    }
}

impl<'a, U: QpUser> CqContext<'a, U> {
    /// A context for one chain. Does not sleep.
    ///
    /// # Errors
    ///
    /// As [`QpOwner::get_send_ctxt`].
    pub(crate) fn get_send_ctxt(&self) -> Result<SendBox<'a, U>, SqError> {
        // SAFETY: A completion is being handled.
        unsafe { self.qp().get_ctxt(GFP_NOWAIT) }
    }
}

impl<U: QpUser> QueuePair<U> {
    /// A context for one chain.
    ///
    /// # Safety
    ///
    /// The hardware objects exist for all of the lifetime.
    unsafe fn get_ctxt(&self, flags: Flags) -> Result<SendBox<'_, U>, SqError> {
        let mut sq = self.lock_open()?;
        let mut ctxt = sq.idle.pop_front();
        if ctxt.is_none() && sq.made < self.caps.max_sends {
            // Under the lock, so that several threads make no more than that.
            sq.made = sq.made.saturating_add(1);
            drop(sq);
            // SAFETY: The hardware objects exist (this function's contract).
            let pd = unsafe { &self.hw().pd };
            let made = SendCtxt::new(pd, self.caps.send_size, flags).ok();
            sq = self.send.lock();
            sq.made = sq.made.saturating_sub(made.is_none().into());
            // Without memory one that has become idle meanwhile.
            ctxt = made.or_else(|| sq.idle.pop_front());
        }
        let mut error = SqError::NoMem;
        if ctxt.is_none() && U::IS_CLIENT {
            // The last idle context is posted signalled, or put back by `SendBox::drop`; either
            // calls `unlock`, or the connection ends.
            sq.wants_sq = true;
            self.user.sq_full();
            error = SqError::Full;
        }
        drop(sq);
        let ctxt = ManuallyDrop::new(ctxt.ok_or(error)?);
        // INVARIANT: The hardware objects exist (this function's contract).
        Ok(SendBox { qp: self, ctxt })
    }
}

impl<U: QpUser> SendBox<'_, U> {
    /// The buffer for the message, which begins at its start.
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        self.ctxt.header.bytes()
    }

    /// What the user keeps with the chain.
    pub(crate) fn data(&mut self) -> &mut U::Send {
        &mut self.ctxt.data
    }

    /// The memory of RDMA Reads or Writes, which is kept until the chain has completed.
    ///
    /// # Errors
    ///
    /// `EBUSY` if a range of it was added already.
    pub(crate) fn pages(&mut self) -> Result<&mut PageVec> {
        if self.ctxt.rw.len() != 0 {
            return Err(EBUSY);
        }
        Ok(&mut self.ctxt.pages)
    }

    /// Reserves memory for `ranges` ranges with `elements` elements in all: RDMA Writes, or RDMA
    /// Reads if the direction is `FromDevice`. May sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; `EBUSY` if a range was added already; `EINVAL` on a client, whose contexts become
    /// idle with a later Send.
    pub(crate) fn reserve_rw(
        &mut self,
        direction: DataDirection,
        ranges: usize,
        elements: usize,
    ) -> Result {
        if U::IS_CLIENT {
            return Err(EINVAL);
        }
        // Each range may be split once more.
        let more = elements / self.qp.region_pages.get() as usize;
        let ranges = ranges.saturating_add(more);
        self.ctxt.rw.reserve(direction, ranges, elements)
    }

    /// Adds the transfer of `range` of the pages, no more than [`QueuePair::region_pages`] of them,
    /// from or to the peer's memory at `offset` under `handle`. May sleep.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the range is not within the pages; `ENOMEM`, also if the device does not map the
    /// pages.
    pub(crate) fn add(&mut self, range: PageRange, handle: u32, offset: u64) -> Result {
        let SendCtxt { rw, pages, .. } = &mut **self.ctxt;
        // SAFETY: The hardware objects exist (type invariant). The pages stay with the context, or
        // with its completion, and do not change until the ranges are released.
        unsafe { rw.add(self.qp.hw(), pages, range, handle, offset) }
    }

    /// MRs of the RDMA core's pool that the ranges have taken. They are given back when the chain
    /// has completed, if it is handed over; until then they are reserved by the caller.
    pub(crate) fn mrs(&self) -> u32 {
        self.qp.mrs_of(&self.ctxt.rw)
    }

    /// Hands over the RDMA Reads, of which there are some. `cid` identifies the message for which
    /// they are done in trace events.
    ///
    /// # Errors
    ///
    /// [`SqError::Closed`], also if the chain does not fit an empty queue. The data is dropped, or,
    /// if the provider has refused the chain, kept until the queue pair is gone.
    pub(crate) fn post_reads(mut self, cid: u32) -> Result<(), SqError> {
        let requests = self.ctxt.rw.requests;
        if !self.ctxt.rw.is_read() {
            return Err(SqError::Closed);
        }
        self.ctxt.cid = cid;
        trace::svcrdma_post_read_chunk(self.qp.cq_number, cid, requests);
        self.chain_rw(null_mut());
        let sq = self.qp.lock_open()?;
        self.post(sq, None)
    }

    /// Hands over the RDMA Writes, if there are any, and the Send of the first `length` bytes of
    /// the buffer. Asks the peer to invalidate `handle`, if there is one.
    ///
    /// # Errors
    ///
    /// [`SqError::Closed`], also if the chain does not fit an empty queue. The data is dropped, or,
    /// if the provider has refused the chain, kept until the queue pair is gone.
    pub(crate) fn post_send(mut self, length: usize, handle: Option<u32>) -> Result<(), SqError> {
        let last = self.prepare_send(length, handle)?;
        if !U::IS_CLIENT {
            let writes = self.ctxt.rw.requests;
            if writes != 0 {
                trace::svcrdma_post_write_chunk(self.qp.cq_number, self.ctxt.cid, writes);
            }
            trace::svcrdma_post_send(self.qp.cq_number, self.ctxt.cid, handle);
        }
        self.chain_rw(last);
        let sq = self.qp.lock_open()?;
        self.post(sq, None)
    }

    /// Registers `mrs` in slot `index` and sends the first `length` bytes of the buffer, in one
    /// chain. `publish` changes what the slot keeps for the user, before the peer can reach the
    /// MRs.
    ///
    /// # Errors
    ///
    /// [`SqError::Closed`], also if the slot is in use, or for MRs of another PD: the connection
    /// has to end. The MRs may be in the slot until then.
    pub(crate) fn post_with_mrs(
        mut self,
        length: usize,
        index: usize,
        mrs: MrList<Mapped>,
        publish: impl FnOnce(&mut U::Slot),
    ) -> Result<(), SqError> {
        let qp = self.qp;
        let last = self.prepare_send(length, None)?;
        let unsignalled = <SendCtxt<U> as Complete<1>>::wr_cqe(&**self.ctxt);
        let mut slot = qp.slot(index).ok_or(SqError::Closed)?;
        let sq = qp.lock_open()?;
        let state = &mut *slot.state;
        // SAFETY: The hardware objects exist (type invariant).
        let pd = unsafe { &qp.hw().pd };
        if !U::IS_CLIENT || !state.mrs.is_empty() || state.is_invalidating || !mrs.are_of(pd) {
            return Err(SqError::Closed);
        }
        // SAFETY: The chain is posted next, as a client's are never pending, under the lock without
        // which the MRs cannot leave the slot.
        let (first, registered) = unsafe { mrs.register(unsignalled, last) };
        self.ctxt.first = first;
        state.mrs = registered;
        publish(&mut state.data);
        self.post(sq, Some(slot))
    }

    /// Prepares the Send of the first `length` bytes of the buffer, the last request of the chain.
    ///
    /// # Errors
    ///
    /// [`SqError::Closed`] if the buffer is shorter, or if there are RDMA Reads, which may complete
    /// after a later Send.
    fn prepare_send(
        &mut self,
        length: usize,
        handle: Option<u32>,
    ) -> Result<*mut bindings::ib_send_wr, SqError> {
        if self.ctxt.rw.is_read() || length > self.ctxt.header.len() {
            return Err(SqError::Closed);
        }
        let ctxt = &mut **self.ctxt;
        ctxt.sge.length = u32::try_from(length).map_err(|_| SqError::Closed)?;
        ctxt.header.sync_for_device(length);
        ctxt.cid = self.qp.next_cid();
        ctxt.wr.sg_list = &raw mut ctxt.sge;
        ctxt.wr.num_sge = 1;
        ctxt.wr.opcode = bindings::ib_wr_opcode_IB_WR_SEND;
        if let Some(handle) = handle {
            ctxt.wr.opcode = bindings::ib_wr_opcode_IB_WR_SEND_WITH_INV;
            ctxt.wr.ex.invalidate_rkey = ManuallyDrop::new(handle);
        }
        Ok(&raw mut ctxt.wr)
    }

    /// Chains the ranges in front of `last`, or, if that is null, has the last of them signalled.
    /// The chain has to be posted, or the connection ends.
    fn chain_rw(&mut self, last: *mut bindings::ib_send_wr) {
        let ctxt = &mut **self.ctxt;
        let signalled = <SendCtxt<U> as Complete<0>>::wr_cqe(ctxt);
        let unsignalled = <SendCtxt<U> as Complete<1>>::wr_cqe(ctxt);
        // SAFETY: The hardware objects exist (type invariant), and the ranges were added with them.
        // They do not change until the chain has completed. Each request of the chain but `last` is
        // one of theirs.
        unsafe {
            ctxt.first = ctxt.rw.requests_before(self.qp.hw(), signalled, last);
            let mut wr = ctxt.first;
            while wr != last && !(*wr).next.is_null() {
                (*wr).__bindgen_anon_1.wr_cqe = ManuallyDrop::new(unsignalled);
                wr = (*wr).next;
            }
        }
    }
}

impl<U: QpUser> Drop for SendBox<'_, U> {
    fn drop(&mut self) {
        // SAFETY: The context is not used any more by this object.
        let mut ctxt = unsafe { ManuallyDrop::take(&mut self.ctxt) };
        // SAFETY: The chain was not posted. The hardware objects exist (type invariant).
        unsafe { ctxt.release(self.qp) };
        ctxt.data = U::Send::default();
        let mut sq = self.qp.send.lock();
        sq.idle.push_front(ctxt);
        self.qp.unlock(sq);
    }
}
