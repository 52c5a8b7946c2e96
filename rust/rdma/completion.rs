// SPDX-License-Identifier: GPL-2.0

//! The results of work requests.

use crate::bindings;
use core::marker::PhantomData;
use kernel::types::Opaque;

/// The handle that the peer's Send With Invalidate has invalidated; it exists only while that
/// completion is handled.
///
/// # Invariants
///
/// A successful Receive completion of the queue pair `qp` reported the handle, so the handle is
/// invalid there.
pub(crate) struct RemoteInvalidation<'a> {
    handle: u32,
    qp: *const Opaque<bindings::ib_qp>,
    completion: PhantomData<&'a ()>,
}

// CAST: A small bit mask, in a signed word.
const WITH_INVALIDATE: i32 = bindings::ib_wc_flags_IB_WC_WITH_INVALIDATE as i32;

impl RemoteInvalidation<'_> {
    /// Reads the handle from a Receive completion.
    ///
    /// # Safety
    ///
    /// `wc` is a successful Receive completion of `qp`, and is being handled for all of the
    /// lifetime.
    pub(super) unsafe fn from_completion(
        qp: &Opaque<bindings::ib_qp>,
        wc: &bindings::ib_wc,
    ) -> Option<Self> {
        if wc.wc_flags & WITH_INVALIDATE == 0 {
            return None;
        }
        // SAFETY: The flag says that the union holds the handle.
        let handle = unsafe { &wc.ex.invalidate_rkey };
        // INVARIANT: A successful Receive completion reported the handle.
        Some(Self {
            handle: **handle,
            qp,
            completion: PhantomData,
        })
    }

    /// The handle, if it was reported by `qp`.
    pub(super) fn into_handle(self, qp: &Opaque<bindings::ib_qp>) -> Option<u32> {
        core::ptr::eq(self.qp, qp).then_some(self.handle)
    }
}

/// Whether a successful Receive completion is that of a Send. An RDMA Write With Immediate has
/// written nothing to the Receive's buffer.
pub(super) fn is_send(wc: &bindings::ib_wc) -> bool {
    wc.opcode == bindings::ib_wc_opcode_IB_WC_RECV
}

/// Why a work request failed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct WcStatus(bindings::ib_wc_status);

impl WcStatus {
    /// The status of a completion, if the request failed.
    pub(super) fn failure(wc: &bindings::ib_wc) -> Option<Self> {
        (wc.status != bindings::ib_wc_status_IB_WC_SUCCESS).then_some(Self(wc.status))
    }

    /// Whether the request was merely flushed after the connection had ended.
    pub(crate) fn is_flush(self) -> bool {
        self.0 == bindings::ib_wc_status_IB_WC_WR_FLUSH_ERR
    }

    /// Whether the peer refused the request, for instance because it has not registered the memory.
    /// A peer that does not answer has not refused it.
    pub(crate) fn is_refusal(self) -> bool {
        matches!(
            self.0,
            bindings::ib_wc_status_IB_WC_REM_INV_REQ_ERR
                | bindings::ib_wc_status_IB_WC_REM_ACCESS_ERR
                | bindings::ib_wc_status_IB_WC_REM_OP_ERR
        )
    }
}
