// SPDX-License-Identifier: GPL-2.0

//! Whether the RDMA core registers memory for transfers with a device.
//!
//! The core asks for memory regions even where it may not use them: a device that only prefers them
//! for long scatter/gather lists needs none, but a parameter of the core, which no other module can
//! read, can force their use. So the first connection through a device finds out.

use super::{
    cm::{Bound, CmId},
    device::NeedsMr,
    Pd,
};
use crate::bindings;
use core::{mem::MaybeUninit, ptr::NonNull};
use kernel::{dma::DataDirection, error::to_result, page::Page, prelude::*};

/// Whether a queue pair of `id` is to have memory regions for transfers.
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
