// SPDX-License-Identifier: GPL-2.0

//! Completion queues.

use super::Pd;
use crate::bindings;
use core::ptr::NonNull;
use kernel::{error::from_err_ptr, prelude::*, str::CStrExt, sync::Arc};

/// A completion queue that the RDMA core polls from its workqueue. Who is told of a completion follows
/// from the work request ([`super::cqe::Cqe`]), so that queue pairs can share the queue.
///
/// # Invariants
///
/// `ptr` is a completion queue that this object owns, on the device of `_pd`.
pub(super) struct Cq {
    ptr: NonNull<bindings::ib_cq>,
    _pd: Arc<Pd>,
}

impl Cq {
    /// Allocates a queue for `entries` completions on the device of `pd`. May sleep.
    ///
    /// # Errors
    ///
    /// What the provider answers, such as `EINVAL` for more entries than the device has.
    pub(super) fn new(pd: &Arc<Pd>, entries: u32) -> Result<Self> {
        let entries = i32::try_from(entries).map_err(|_| EINVAL)?;
        // SAFETY: The device is registered as long as the domain exists; the caller's name is static.
        let ptr = from_err_ptr(unsafe {
            bindings::__ib_alloc_cq_any(
                pd.device().as_raw(),
                core::ptr::null_mut(),
                entries,
                bindings::ib_poll_context_IB_POLL_WORKQUEUE,
                super::CALLER.as_char_ptr(),
            )
        })?;
        // INVARIANT: The queue was just allocated.
        Ok(Self {
            ptr: NonNull::new(ptr).ok_or(ENOMEM)?,
            _pd: pd.clone(),
        })
    }

    /// The number of the queue among the resources of the RDMA core.
    pub(super) fn number(&self) -> u32 {
        // SAFETY: By the type's invariant; the number does not change.
        unsafe { (*self.as_raw()).res.id }
    }

    /// The C pointer.
    pub(super) fn as_raw(&self) -> *mut bindings::ib_cq {
        self.ptr.as_ptr()
    }
}

impl Drop for Cq {
    fn drop(&mut self) {
        // SAFETY: This object owns the queue. Queue pairs have a counted reference, so none is left. The
        // call waits until no completion handler runs.
        unsafe { bindings::ib_free_cq(self.ptr.as_ptr()) };
    }
}
