// SPDX-License-Identifier: GPL-2.0

//! RDMA Reads from and RDMA Writes to the peer's memory, by means of the RDMA core
//! ([`include/rdma/rw.h`]), which registers local memory where the fabric requires it.
//!
//! [`include/rdma/rw.h`]: srctree/include/rdma/rw.h

use super::{
    cm::{Bound, CmId},
    owner::Hw,
};
use crate::bindings::{self, PageRange, PageVec};
use core::mem::MaybeUninit;
use kernel::{dma::DataDirection, error::to_result, page::Page, prelude::*, sync::SetOnce};

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
    pub(super) direction: DataDirection,
    /// The number of work requests in the chain.
    pub(super) requests: u32,
}

// SAFETY: The memory that the pointers lead to belongs to the user, which may be any thread.
unsafe impl Send for RwList {}

impl RwList {
    /// An empty list.
    pub(super) const fn new() -> Self {
        Self {
            vecs: KVVec::new(),
            ctxts: KVVec::new(),
            direction: DataDirection::ToDevice,
            requests: 0,
        }
    }

    /// How many ranges there are.
    pub(super) fn len(&self) -> usize {
        self.ctxts.len()
    }

    /// Whether they are RDMA Reads.
    pub(super) fn is_read(&self) -> bool {
        self.len() != 0 && self.direction == DataDirection::FromDevice
    }

    /// Reserves memory for `ranges` ranges with `elements` elements in all, of RDMA Reads or
    /// Writes. May sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, or `EBUSY` if there are ranges.
    pub(super) fn reserve(
        &mut self,
        direction: DataDirection,
        ranges: usize,
        elements: usize,
    ) -> Result {
        if self.len() != 0 {
            return Err(EBUSY);
        }
        self.direction = direction;
        self.vecs.reserve(elements, GFP_KERNEL)?;
        Ok(self.ctxts.reserve(ranges, GFP_KERNEL)?)
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
    /// `ENOMEM` if there is no room or no memory, or if the range cannot be mapped: an IOMMU,
    /// bounce buffers or the device's own tables may be exhausted for a moment. `EINVAL` if there
    /// are no bytes, or if the range is not within these pages.
    pub(super) unsafe fn add(
        &mut self,
        hw: &Hw,
        pages: &PageVec,
        range: PageRange,
        handle: u32,
        offset: u64,
    ) -> Result {
        let first = self.vecs.len();
        pages.append_to(&mut self.vecs, range)?;
        let vecs = self.vecs.get(first..).ok_or(EINVAL)?;
        let count = u32::try_from(vecs.len())?;
        let ctx = MaybeUninit::uninit();
        let ctxt = RwCtxt { ctx, first, count };
        self.ctxts.push_within_capacity(ctxt).map_err(|_| ENOMEM)?;
        // From here on it does not move.
        let ctxt = self.ctxts.last_mut().ok_or(EINVAL)?;
        let iter = bindings::bvec_iter {
            bi_size: range.length,
            ..pin_init::zeroed()
        };
        // SAFETY: The queue pair is valid. The vectors describe that many bytes of pages that stay,
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
        let Ok(requests @ 1..) = u32::try_from(status) else {
            self.ctxts.pop();
            self.vecs.truncate(first);
            // Whatever the error, it may be a shortage: dma_map_sg() says EIO if bounce buffers are
            // used up, and the RDMA core EINVAL for anything that a device says of an MR.
            return Err(ENOMEM);
        };
        self.requests = self.requests.saturating_add(requests);
        Ok(())
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
            // SAFETY: The context is mapped for this queue pair (type invariant), and is posted
            // before it changes (this function's contract).
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
                    hw.id.port(),
                    vecs.as_ptr(),
                    ctxt.count,
                    self.direction.into(),
                );
            }
        }
        // INVARIANT: What is mapped no longer is forgotten.
        self.ctxts.clear();
        self.vecs.clear();
        self.requests = 0;
        if self.vecs.capacity() > KEPT_ELEMENTS {
            *self = Self::new();
        }
    }
}

/// Whether the RDMA core registers memory for RDMA Reads and Writes alike, once that is known. This
/// is a parameter of the core (`force_mr`), which no other module can read.
static IS_FORCED: SetOnce<bool> = SetOnce::new();

/// Whether a queue pair of `id` is to have MRs of the RDMA core.
///
/// The core asks for MRs even where it may not use them: a device that only prefers them for long
/// scatter/gather lists needs none, unless their use is forced. So the first connection through
/// such a device finds out.
pub(super) fn may_need_mr(id: &CmId<Bound>) -> bool {
    // A transfer that may be registered takes further work requests for that.
    transfer_requests(id, 1) > 1 && (id.is_iwarp() || IS_FORCED.copy() != Some(false))
}

/// The most work requests that this many transfers take.
pub(super) fn transfer_requests(id: &CmId<Bound>, transfers: u32) -> u32 {
    let device = id.raw_device().as_ptr();
    // SAFETY: By the identifier's invariant the device is registered, and this is one of its ports.
    unsafe { bindings::rdma_rw_max_send_wr(device, id.port(), transfers, 0) }
}

/// Whether memory is registered for RDMA Writes on a queue pair, which has regions for them: maps
/// one byte to see. May sleep.
///
/// # Errors
///
/// `ENOMEM`, or `EAGAIN` if there is no region.
pub(super) fn registers_writes(hw: &Hw) -> Result<bool> {
    if let Some(is_forced) = IS_FORCED.copy() {
        return Ok(is_forced);
    }
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
    let (qp, port, vec) = (hw.qp.as_ptr(), hw.id.port(), &raw const vec);
    let direction = DataDirection::ToDevice.into();
    let mut ctx = MaybeUninit::uninit();
    let ctx = ctx.as_mut_ptr();
    // SAFETY: The queue pair is valid. The vector describes a byte of a page, and both stay until
    // the context is gone, which is initialised if the first call succeeds.
    let requests = unsafe {
        let requests =
            bindings::rdma_rw_ctx_init_bvec(ctx, qp, port, vec, 1, iter, 0, 0, direction);
        to_result(requests)?;
        bindings::rdma_rw_ctx_destroy_bvec(ctx, qp, port, vec, 1, direction);
        requests
    };
    // The transfer itself is one request. If another thread was faster, it has found the same.
    IS_FORCED.populate(requests > 1);
    Ok(requests > 1)
}
