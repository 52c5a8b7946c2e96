// SPDX-License-Identifier: GPL-2.0

//! Whether the peer of a queue pair lives, while it sends nothing.

use super::{
    cq::{Complete, CqContext, WcStatus},
    qp::{QpFailure, QpUser, QueuePair},
};
use crate::bindings;
use core::{
    mem::{offset_of, replace, ManuallyDrop},
    ptr::NonNull,
};

impl<U: QpUser> QueuePair<U> {
    /// Makes the peer's adapter acknowledge an RDMA Write of no bytes, unless one is under way. It
    /// uses no Receive and touches no memory. If nothing is acknowledged, the device's retries are
    /// used up, and the connection ends ([`QpFailure::WorkRequest`]). Returns false on iWARP, where
    /// a Write completes when TCP has its bytes, and TCP's own retries end the connection. Does not
    /// sleep.
    ///
    /// The peer does not look at the handle: "for each zero-length RDMA READ or WRITE request, the
    /// R_Key shall not be validated" (InfiniBand Architecture Specification, volume 1, section 9.7,
    /// C9-88). Its queue pair has to allow Writes at all, as the connection manager has it. The
    /// kernel's SRP target posts the same on its connections (`srpt_zerolength_write()`). rxe
    /// acknowledges it without a region (`check_rkey()`, `rxe_mr_copy()`).
    pub(crate) fn check_peer(&self) -> bool {
        let mut sq = self.send.lock();
        // SAFETY: The queue is open, so the hardware objects exist (type invariant).
        if !sq.is_open || unsafe { self.hw() }.id.is_iwarp() {
            return false;
        }
        if replace(&mut sq.is_checking, true) {
            return true;
        }
        let mut wr = bindings::ib_rdma_wr::default();
        wr.wr.__bindgen_anon_1.wr_cqe = ManuallyDrop::new(<Self as Complete>::wr_cqe(self));
        wr.wr.opcode = bindings::ib_wr_opcode_IB_WR_RDMA_WRITE;
        wr.wr.send_flags = bindings::ib_send_flags_IB_SEND_SIGNALED;
        // SAFETY: The request is valid during the call, as the RDMA Write that it says it is, and
        // refers to no memory.
        let posted = unsafe { self.post_wrs(&mut sq, (&raw const wr).cast()) };
        drop(sq);
        posted.map_err(|error| self.post_failed(error)).is_ok()
    }
}

// SAFETY: The field has this type. `check_peer` posts on its own queue pair.
unsafe impl<U: QpUser> Complete for QueuePair<U> {
    type User = U;

    const OFFSET: usize = offset_of!(Self, check);

    unsafe fn complete(_this: NonNull<Self>, cx: &mut CqContext<'_, U>, wc: &bindings::ib_wc) {
        match WcStatus::failure(wc) {
            Some(status) if status.is_remote_error() => {
                cx.user().qp_failed(QpFailure::CheckRefused)
            }
            Some(status) => cx.user().qp_failed(status.into()),
            None => cx.qp().send.lock().is_checking = false,
        }
    }
}
