// SPDX-License-Identifier: GPL-2.0

//! Completion queues.

use super::Pd;
use crate::bindings;
use core::ptr::NonNull;
use kernel::{error::from_err_ptr, prelude::*, str::CStrExt, sync::Arc};

/// A completion queue that the RDMA core polls from its workqueue. Who is told of a completion
/// follows from the work request ([`super::cqe::Cqe`]), so that queue pairs can share the queue.
///
/// # Invariants
///
/// `ptr` is a completion queue on the device of `_pd`. If `share` is 0, this object owns it;
/// otherwise it is one of the RDMA core's pool, in which so many completions are this object's.
pub(super) struct Cq {
    ptr: NonNull<bindings::ib_cq>,
    share: u32,
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
        // SAFETY: The device is registered as long as the domain exists; the caller's name is
        // static.
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
            share: 0,
            _pd: pd.clone(),
        })
    }

    /// Room for `entries` completions, more than none, in a queue of the RDMA core's pool, which
    /// others use as well. May sleep.
    ///
    /// # Errors
    ///
    /// As for [`Self::new`].
    pub(super) fn shared(pd: &Arc<Pd>, entries: u32) -> Result<Self> {
        if entries == 0 {
            return Err(EINVAL);
        }
        // SAFETY: The device is registered as long as the domain exists. The core chooses the
        // vector.
        let ptr = from_err_ptr(unsafe {
            bindings::ib_cq_pool_get(
                pd.device().as_raw(),
                entries,
                -1,
                bindings::ib_poll_context_IB_POLL_WORKQUEUE,
            )
        })?;
        // INVARIANT: So many completions of the queue were just set aside.
        Ok(Self {
            ptr: NonNull::new(ptr).ok_or(ENOMEM)?,
            share: entries,
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
        // SAFETY: Queue pairs have a counted reference, so none of this object's users is left. Of
        // a queue that this object owns the call waits until no completion handler runs; in a
        // shared one those of our queue pairs ended with their drain.
        unsafe {
            match self.share {
                0 => bindings::ib_free_cq(self.ptr.as_ptr()),
                share => bindings::ib_cq_pool_put(self.ptr.as_ptr(), share),
            }
        }
    }
}
