// SPDX-License-Identifier: GPL-2.0

//! Completion queues.

use super::CmId;
use crate::bindings;
use core::{ffi::c_void, ptr::NonNull};
use kernel::{error::from_err_ptr, prelude::*, str::CStrExt};

/// A completion queue that the RDMA core polls from its workqueue.
///
/// # Invariants
///
/// `ptr` is a completion queue that this object owns.
pub(super) struct Cq {
    ptr: NonNull<bindings::ib_cq>,
}

impl Cq {
    /// Allocates a queue for `entries` completions. May sleep.
    ///
    /// # Safety
    ///
    /// `context` stays what the completion handlers of the queue's work requests expect until
    /// the `Cq` is dropped, and `id` outlives it.
    ///
    /// # Errors
    ///
    /// `ENODEV` without a device; otherwise what the provider answers.
    pub(super) unsafe fn new(id: &CmId, context: *mut c_void, entries: u32) -> Result<Self> {
        let device = id.device().ok_or(ENODEV)?;
        let entries = i32::try_from(entries).map_err(|_| EINVAL)?;
        // SAFETY: The device is registered, since `id` is bound to it; the caller's name is
        // static; the context is the caller's promise.
        let ptr = from_err_ptr(unsafe {
            bindings::__ib_alloc_cq_any(
                device.as_raw(),
                context,
                entries,
                bindings::ib_poll_context_IB_POLL_WORKQUEUE,
                super::CALLER.as_char_ptr(),
            )
        })?;
        // INVARIANT: The queue was just allocated.
        Ok(Self {
            ptr: NonNull::new(ptr).ok_or(ENOMEM)?,
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
        // SAFETY: This object owns the queue. Its queue pair is gone, since `QueuePair` drops
        // the queue pair first. The call waits until no completion handler runs.
        unsafe { bindings::ib_free_cq(self.ptr.as_ptr()) };
    }
}
