// SPDX-License-Identifier: GPL-2.0

//! RDMA Reads from and RDMA Writes to the peer's memory, by means of the RDMA core
//! ([`include/rdma/rw.h`]), which registers local memory where the fabric requires it.
//!
//! [`include/rdma/rw.h`]: srctree/include/rdma/rw.h

use super::{
    cm::{Bound, CmId},
    device::NeedsMr,
    owner::Hw,
    Pd,
};
use crate::bindings::{self, PageRange, PageVec};
use core::{mem::MaybeUninit, ptr::NonNull};
use kernel::{dma::DataDirection, error::to_result, page::Page, prelude::*};

/// The number of elements for which an idle context keeps memory.
const KEPT_ELEMENTS: usize = 32;

/// A contiguous range of the peer's memory, and the local memory that its bytes are copied to or
/// from.
struct RwCtxt {
    /// Initialised by the RDMA core, as far as it uses it, when the memory is mapped.
    ctx: MaybeUninit<bindings::rdma_rw_ctx>,
    /// Its part of [`RwList::vecs`].
    first: usize,
    count: u32,
}

/// RDMA Reads or RDMA Writes that are posted as one chain.
///
/// # Invariants
///
/// Each of `ctxts` is mapped for the queue pair that it was added with, and posted at most once.
/// `vecs` and `ctxts` do not move while there are any.
pub(super) struct RwList {
    vecs: KVVec<bindings::bio_vec>,
    ctxts: KVVec<RwCtxt>,
    direction: DataDirection,
    /// The number of work requests in the chain, and of MRs that they use.
    requests: u32,
    mrs: u32,
}

// SAFETY: The memory that the pointers lead to belongs to the user, which may be any thread.
unsafe impl Send for RwList {}
// SAFETY: Nothing changes through `&self`.
unsafe impl Sync for RwList {}

impl RwList {
    /// An empty list.
    pub(super) const fn new() -> Self {
        Self {
            vecs: KVVec::new(),
            ctxts: KVVec::new(),
            direction: DataDirection::ToDevice,
            requests: 0,
            mrs: 0,
        }
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.ctxts.is_empty()
    }

    /// How many MRs of the RDMA core's pool they use.
    pub(super) fn mrs(&self) -> u32 {
        self.mrs
    }

    /// Whether they are RDMA Reads.
    pub(super) fn is_read(&self) -> bool {
        !self.ctxts.is_empty() && self.direction == DataDirection::FromDevice
    }

    /// The number of work requests in the chain.
    pub(super) fn requests(&self) -> u32 {
        self.requests
    }

    /// Reserves memory for `ranges` ranges with `elements` elements in all, of RDMA Reads or Writes
    /// on `hw`. May sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, or `EBUSY` if there are ranges.
    pub(super) fn reserve(
        &mut self,
        hw: &Hw,
        direction: DataDirection,
        ranges: usize,
        elements: usize,
    ) -> Result {
        if !self.ctxts.is_empty() {
            return Err(EBUSY);
        }
        self.direction = direction;
        // CAST: A u32 always fits the kernel's usize.
        let more = elements / hw.region_pages.get() as usize;
        let ctxts = ranges.saturating_add(more);
        if self.vecs.capacity() < elements || self.ctxts.capacity() < ctxts {
            self.vecs.reserve(elements, GFP_KERNEL)?;
            self.ctxts.reserve(ctxts, GFP_KERNEL)?;
        }
        Ok(())
    }

    /// Adds the transfer of `range` of `pages`, no more than `region_pages` of them, from or
    /// to the peer's memory at `offset` under `handle`. May sleep.
    ///
    /// # Safety
    ///
    /// The pages stay until [`Self::release`], which is called with the same `hw`.
    ///
    /// # Errors
    ///
    /// `ENOMEM` if there is no room or no memory, `EAGAIN` if there is no memory region, `EINVAL`
    /// if there are no bytes, or if the range is not within these pages.
    pub(super) unsafe fn add(
        &mut self,
        hw: &Hw,
        pages: &PageVec,
        range: PageRange,
        handle: u32,
        offset: u64,
    ) -> Result {
        let last = self.ctxts.last();
        // CAST: A u32 always fits the kernel's usize.
        let first = last.map_or(0, |ctxt| ctxt.first.saturating_add(ctxt.count as usize));
        // A range that could not be added may have left some.
        self.vecs.truncate(first);
        pages.append_to(&mut self.vecs, range)?;
        let length = u32::try_from(range.length)?;
        let vecs = self.vecs.get(first..).ok_or(EINVAL)?;
        let count = u32::try_from(vecs.len())?;
        let room = self.ctxts.spare_capacity_mut().first_mut();
        let ctxt = room.ok_or(ENOMEM)?.as_mut_ptr();
        // The core's context is not initialised, so there is nothing to copy here.
        // SAFETY: There is room for one more, and these are all fields that need be initialised.
        unsafe {
            (&raw mut (*ctxt).first).write(first);
            (&raw mut (*ctxt).count).write(count);
            self.ctxts.inc_len(1);
        }
        // From here on it does not move.
        let ctxt = self.ctxts.last_mut().ok_or(EINVAL)?;
        let iter = bindings::bvec_iter {
            bi_size: length,
            ..pin_init::zeroed()
        };
        // SAFETY: The queue pair is valid. The vectors describe `length` bytes of pages that stay,
        // and do not move themselves.
        let status = unsafe {
            bindings::rdma_rw_ctx_init_bvec(
                ctxt.ctx.as_mut_ptr(),
                hw.qp.as_ptr(),
                hw.id.port(),
                vecs.as_ptr(),
                count,
                iter,
                offset,
                handle,
                self.direction.into(),
            )
        };
        match u32::try_from(status) {
            Ok(requests) if requests > 0 => {
                self.requests = self.requests.saturating_add(requests);
                let is_registered = hw.registers(self.direction);
                self.mrs = self.mrs.saturating_add(u32::from(is_registered));
                Ok(())
            }
            _ => {
                self.ctxts.pop();
                Err(to_result(status).err().unwrap_or(EINVAL))
            }
        }
    }

    /// Chains all work requests in front of `last`, or, if that is null, lets the last of them
    /// complete to `cqe`; returns the first request.
    ///
    /// # Safety
    ///
    /// They were added with the same `hw`. The chain is posted before this object changes.
    pub(super) unsafe fn requests_before(
        &mut self,
        hw: &Hw,
        cqe: *mut bindings::ib_cqe,
        last: *mut bindings::ib_send_wr,
    ) -> *mut bindings::ib_send_wr {
        let port = hw.id.port();
        self.ctxts.iter_mut().rev().fold(last, |next, ctxt| {
            // SAFETY: It was mapped for this queue pair.
            unsafe {
                bindings::rdma_rw_ctx_wrs(ctxt.ctx.as_mut_ptr(), hw.qp.as_ptr(), port, cqe, next)
            }
        })
    }

    /// Unmaps all of them, and forgets them. Memory that only large messages need is freed.
    ///
    /// # Safety
    ///
    /// They were added with the same `hw`. They have completed, or were never posted.
    pub(super) unsafe fn release(&mut self, hw: &Hw) {
        if !self.ctxts.is_empty() || self.vecs.capacity() > KEPT_ELEMENTS {
            // SAFETY: `release_all` has the same contract.
            unsafe { self.release_all(hw) };
        }
    }

    /// [`Self::release`] if there is anything to release.
    ///
    /// # Safety
    ///
    /// As for [`Self::release`].
    unsafe fn release_all(&mut self, hw: &Hw) {
        let port = hw.id.port();
        for ctxt in &mut self.ctxts {
            // By the type's invariant the vectors exist.
            let Some(vecs) = self.vecs.get(ctxt.first..) else {
                continue;
            };
            // SAFETY: It was mapped for this queue pair, with these vectors, of which there are no
            // more than a device can address.
            unsafe {
                bindings::rdma_rw_ctx_destroy_bvec(
                    ctxt.ctx.as_mut_ptr(),
                    hw.qp.as_ptr(),
                    port,
                    vecs.as_ptr(),
                    ctxt.count,
                    self.direction.into(),
                );
            }
        }
        // INVARIANT: What is mapped no longer is forgotten.
        self.ctxts.clear();
        self.vecs.clear();
        (self.requests, self.mrs) = (0, 0);
        if self.vecs.capacity() > KEPT_ELEMENTS {
            self.vecs = KVVec::new();
            self.ctxts = KVVec::new();
        }
    }
}

/// Whether a queue pair of `id` is to have MRs of the RDMA core.
///
/// The core asks for MRs even where it may not use them: a device that only prefers them for long
/// scatter/gather lists needs none, but a parameter of the core, which no other module can read,
/// can force their use. So the first connection through a device finds out.
pub(super) fn may_need_mr(id: &CmId<Bound>, pd: &Pd) -> bool {
    // A transfer that may be registered takes further work requests for that.
    transfer_requests(id, 1) > 1 && pd.device().needs_mr.copy() != Some(NeedsMr::NONE)
}

/// The most work requests that this many transfers take.
pub(super) fn transfer_requests(id: &CmId<Bound>, transfers: u32) -> u32 {
    let device = id.raw_device().as_ptr();
    // SAFETY: By the identifier's invariant the device is registered, and this is one of its ports.
    unsafe { bindings::rdma_rw_max_send_wr(device, id.port(), transfers, 0) }
}

/// For which transfers memory is registered on `qp`, which has regions for them. May sleep.
///
/// # Safety
///
/// `qp` is the valid queue pair of `id`.
pub(super) unsafe fn needs_mr(qp: NonNull<bindings::ib_qp>, id: &CmId<Bound>, pd: &Pd) -> NeedsMr {
    let known = &pd.device().needs_mr;
    known.copy().unwrap_or_else(|| {
        // SAFETY: `qp` is the valid queue pair of `id` (this function's contract), whose port this
        // is.
        let registers = |direction| unsafe { registers(qp, id.port(), direction) };
        let reads = registers(DataDirection::FromDevice);
        let writes = registers(DataDirection::ToDevice);
        // A connection that registers memory works in any case.
        let found = NeedsMr {
            reads: reads.unwrap_or(true),
            writes: writes.unwrap_or(true),
        };
        if reads.and(writes).is_ok() {
            // If another thread was faster, it has found the same.
            known.populate(found);
        }
        found
    })
}

/// Maps a transfer of one byte, an RDMA Read if it comes from the device, to see whether the RDMA
/// core registers memory for it.
///
/// # Safety
///
/// `qp` is the valid queue pair of a connection on port `port`.
///
/// # Errors
///
/// `ENOMEM`, or `EAGAIN` if there is no region.
unsafe fn registers(
    qp: NonNull<bindings::ib_qp>,
    port: u32,
    direction: DataDirection,
) -> Result<bool> {
    let page = Page::alloc_page(GFP_KERNEL)?;
    let vec = bindings::bio_vec {
        bv_page: page.as_ptr(),
        bv_len: 1,
        bv_offset: 0,
    };
    let iter = bindings::bvec_iter {
        bi_size: vec.bv_len,
        ..pin_init::zeroed()
    };
    let (qp, vec) = (qp.as_ptr(), &raw const vec);
    let mut ctx = MaybeUninit::uninit();
    let ctx = ctx.as_mut_ptr();
    // SAFETY: The queue pair is valid. The vector describes a byte of a page, and both stay until
    // the context is gone, which is initialised if the first call succeeds.
    unsafe {
        let requests =
            bindings::rdma_rw_ctx_init_bvec(ctx, qp, port, vec, 1, iter, 0, 0, direction.into());
        to_result(requests)?;
        bindings::rdma_rw_ctx_destroy_bvec(ctx, qp, port, vec, 1, direction.into());
        // The transfer itself is one request.
        Ok(requests > 1)
    }
}
