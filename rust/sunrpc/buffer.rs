// SPDX-License-Identifier: GPL-2.0

//! The memory of one RPC: what the transport keeps with it, the Call, and the
//! first and last part of the Reply, in one allocation.

use super::{class::ClientTransport, rqst::Rqst, xprt::Xprt};
use crate::bindings::{self, Exposure};
use kernel::{ffi::c_int, prelude::*, sync::atomic::Atomic};

/// What precedes the Call's bytes. Its size keeps them aligned like kmalloc memory.
#[repr(C, align(16))]
struct Prefix {
    mark: Atomic<u32>,
    exposure: Exposure,
}

/// How the Reply's part is aligned: the device may write there, so that it shares no cache line
/// with what the CPU writes on machines whose DMA bypasses the caches.
const REPLY_ALIGN: usize = bindings::ARCH_KMALLOC_MINALIGN;

/// The transport's number of a request.
///
/// # Safety
///
/// `rqst` is a forward request between `buf_alloc` and `buf_free` for all of `'a`.
pub(super) unsafe fn mark<'a>(rqst: *mut bindings::rpc_rqst) -> &'a Atomic<u32> {
    // SAFETY: `buf_alloc` made `rq_buffer` point just behind a prefix.
    unsafe { &(*(*rqst).rq_buffer.cast::<Prefix>().sub(1)).mark }
}

/// What counts the regions over the request's memory.
///
/// # Safety
///
/// As for [`mark`].
pub(super) unsafe fn exposure<'a>(rqst: *mut bindings::rpc_rqst) -> &'a Exposure {
    // SAFETY: `buf_alloc` made `rq_buffer` point just behind a prefix.
    unsafe { &(*(*rqst).rq_buffer.cast::<Prefix>().sub(1)).exposure }
}

/// `buf_alloc`: sets the buffers for Call and Reply. Task context, may sleep within its flags.
///
/// Returns zero, or `-ENOMEM`, after which sunrpc tries again soon.
///
/// # Safety
///
/// Called by sunrpc only, as the contract of the callback says.
pub(super) unsafe extern "C" fn alloc(task: *mut bindings::rpc_task) -> c_int {
    // SAFETY: The task is valid and has a request, which is the callback's own.
    let rqst = unsafe { &mut *(*task).tk_rqstp };
    let Some(reply) = size_of::<Prefix>()
        .saturating_add(rqst.rq_callsize)
        .checked_next_multiple_of(REPLY_ALIGN)
    else {
        return ENOMEM.to_errno();
    };
    let size = reply.saturating_add(rqst.rq_rcvsize);
    // SAFETY: Always safe to call in task context.
    let prefix: *mut Prefix = unsafe { bindings::rpcrdma_rpc_buf_alloc(size) }.cast();
    if prefix.is_null() {
        return ENOMEM.to_errno();
    }
    // SAFETY: The memory is large enough for the prefix and what follows.
    unsafe {
        prefix.write(Prefix {
            mark: Atomic::new(0),
            exposure: Exposure::new(),
        });
        rqst.rq_buffer = prefix.add(1).cast();
        rqst.rq_rbuffer = prefix.cast::<u8>().add(reply).cast();
    }
    0
}

/// `buf_free`: gives the memory back, after the peer has lost its access to the RPC's memory.
/// Task context without locks; may sleep.
///
/// # Safety
///
/// Called by sunrpc only, as the contract of the callback says.
pub(super) unsafe extern "C" fn free<T: ClientTransport>(task: *mut bindings::rpc_task) {
    // SAFETY: The task is valid and has a request with buffers from `alloc`.
    let raw = unsafe { (*task).tk_rqstp };
    // SAFETY: The request is valid and the callback's own; so is its transport.
    let (rqst, transport) = unsafe {
        (
            Rqst::from_raw(raw),
            Xprt::from_raw((*raw).rq_xprt).transport::<T>(),
        )
    };
    transport.fence(rqst);
    // SAFETY: `alloc` made the buffer, and nobody uses it any more; rather than memory that the
    // peer can reach, none is given back.
    unsafe {
        if kernel::warn_on!(!exposure(raw).is_over()) {
            return;
        }
        bindings::kfree((*raw).rq_buffer.cast::<Prefix>().sub(1).cast());
        (*raw).rq_buffer = core::ptr::null_mut();
        (*raw).rq_rbuffer = core::ptr::null_mut();
    }
}
