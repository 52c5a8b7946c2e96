// SPDX-License-Identifier: GPL-2.0

//! The memory of one RPC: the transport's own state, the Call, and the head and tail of the Reply,
//! in one allocation.

use crate::bindings::{self, Exposure};
use core::ptr::NonNull;
use kernel::{prelude::*, sync::atomic::Atomic};

/// The transport's state, in front of the Call's bytes. Its size keeps them aligned like kmalloc
/// memory.
#[repr(C, align(16))]
pub(super) struct Prefix {
    /// The implementation's word for the connection and slot of the Call, 0 before it is sent.
    pub(super) ep_cookie: Atomic<u64>,
    /// Whether a thread handles a Reply. The lock of the requests that wait for a Reply guards it.
    pub(super) is_taken: Atomic<bool>,
    /// The exposure of all memory of the RPC, which neither completes nor is freed before that is
    /// over.
    pub(super) exposure: Exposure,
    /// Whether the allocation belongs to the transport's reserve.
    is_reserve: bool,
}

/// The alignment of the Reply's part: the device may write there, so on machines whose DMA is not
/// cache-coherent it must not share a cache line with what the CPU writes.
const REPLY_ALIGN: usize = bindings::RPCRDMA_DMA_MINALIGN;

/// The transport's state of a request.
///
/// # Safety
///
/// `rqst` is a forward request between `buf_alloc` and `buf_free` for all of `'a`.
pub(super) unsafe fn prefix<'a>(rqst: *const bindings::rpc_rqst) -> &'a Prefix {
    // SAFETY: `buf_alloc` made `rq_buffer` point to the byte after a prefix.
    unsafe { &*(*rqst).rq_buffer.cast::<Prefix>().sub(1) }
}

/// Attaches the buffers for a request's Call and Reply: one of `reserve`, unless that has
/// none that is large enough.
///
/// # Safety
///
/// `reserve` is from `rpcrdma_rpc_reserve_create`, and exists until [`detach`].
///
/// # Errors
///
/// `ENOMEM`.
pub(super) unsafe fn attach(
    rqst: &mut bindings::rpc_rqst,
    reserve: *mut bindings::mempool_t,
) -> Result {
    let reply = size_of::<Prefix>()
        .saturating_add(rqst.rq_callsize)
        .checked_next_multiple_of(REPLY_ALIGN)
        .ok_or(ENOMEM)?;
    let size = reply.saturating_add(rqst.rq_rcvsize);
    // SAFETY: `reserve` is a mempool that exists until `detach` (this function's contract).
    let mut ptr = unsafe { bindings::rpcrdma_rpc_reserve_alloc(reserve, size) };
    let is_reserve = !ptr.is_null();
    if !is_reserve {
        // SAFETY: Always safe to call in task context.
        ptr = unsafe { bindings::rpcrdma_rpc_buf_alloc(size) };
    }
    let prefix = NonNull::new(ptr.cast::<Prefix>()).ok_or(ENOMEM)?;
    // SAFETY: The memory is new, and large enough for the prefix and for what follows it.
    unsafe {
        prefix.write(Prefix {
            ep_cookie: Atomic::new(0),
            is_taken: Atomic::new(false),
            exposure: Exposure::new(),
            is_reserve,
        });
        rqst.rq_buffer = prefix.add(1).as_ptr().cast();
        rqst.rq_rbuffer = prefix.cast::<u8>().add(reply).as_ptr().cast();
    }
    Ok(())
}

/// Frees a request's buffers. Memory that the peer can still reach is leaked instead.
///
/// # Safety
///
/// The request has buffers from [`attach`] with this `reserve`, which are not used after this call.
pub(super) unsafe fn detach(rqst: &mut bindings::rpc_rqst, reserve: *mut bindings::mempool_t) {
    // SAFETY: `attach` made `rq_buffer` point to the byte after the prefix, which is initialised.
    let prefix = unsafe { rqst.rq_buffer.cast::<Prefix>().sub(1) };
    // SAFETY: The prefix is initialised, and stays until it is freed below.
    let exposure = unsafe { &(*prefix).exposure };
    if exposure.is_lost() || kernel::warn_on!(!exposure.is_over()) {
        // SAFETY: The memory is allocated.
        unsafe { bindings::rpcrdma_kmemleak_ignore(prefix.cast()) };
        return;
    }
    rqst.rq_buffer = core::ptr::null_mut();
    rqst.rq_rbuffer = core::ptr::null_mut();
    // SAFETY: `attach` allocated the memory, and no device can reach it.
    unsafe {
        if (*prefix).is_reserve {
            bindings::mempool_free(prefix.cast(), reserve);
        } else {
            bindings::kfree(prefix.cast());
        }
    }
}
