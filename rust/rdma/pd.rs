// SPDX-License-Identifier: GPL-2.0

//! Protection domains.

use super::device::{Device, DeviceName};
use crate::bindings;
use core::ptr::NonNull;
use kernel::{
    error::from_err_ptr,
    prelude::*,
    str::CStrExt,
    sync::{
        atomic::{Atomic, Relaxed},
        Arc,
    },
};

/// A protection domain.
///
/// # Invariants
///
/// `ptr` is a protection domain of `device` that this object owns.
pub(crate) struct Pd {
    ptr: NonNull<bindings::ib_pd>,
    device: Arc<Device>,
    /// Whether the device has refused to stop the domain's queue pair.
    is_unstoppable: Atomic<bool>,
    /// Whether [`Self::log_lost`] was called.
    is_logged: Atomic<bool>,
}

// SAFETY: The RDMA core allows a protection domain to be used from any thread.
unsafe impl Send for Pd {}
// SAFETY: The RDMA core allows several threads to use a protection domain at a time, and no method
// changes the domain.
unsafe impl Sync for Pd {}

impl Pd {
    /// Allocates a protection domain. May sleep.
    ///
    /// # Errors
    ///
    /// Whatever the provider returns, usually `ENOMEM`.
    pub(crate) fn new(device: Arc<Device>) -> Result<Self> {
        // SAFETY: The device is registered, and `CALLER` is static.
        let ptr = from_err_ptr(unsafe {
            bindings::__ib_alloc_pd(device.as_raw(), 0, super::CALLER.as_char_ptr())
        })?;
        let ptr = NonNull::new(ptr).ok_or(ENOMEM)?;
        // INVARIANT: The domain was just allocated on the device.
        Ok(Self {
            ptr,
            device,
            is_unstoppable: Atomic::new(false),
            is_logged: Atomic::new(false),
        })
    }

    /// Records that the device has refused to stop the domain's queue pair, of which there is only
    /// one. Providers report that they have destroyed an object even if the device does not answer:
    /// memory that the device could reach is not freed from now on.
    pub(super) fn set_unstoppable(&self, error: Error) {
        self.is_unstoppable.store(true, Relaxed);
        self.log_lost("does not stop a queue pair", error);
    }

    /// Whether memory that the device could reach must not be freed.
    pub(super) fn is_unstoppable(&self) -> bool {
        self.is_unstoppable.load(Relaxed)
    }

    /// Logs, once, that memory is not freed, and why.
    pub(super) fn log_lost(&self, what: &str, error: Error) {
        if !self.is_logged.xchg(true, Relaxed) {
            // SAFETY: The device is registered as long as this object refers to it.
            let name = unsafe { DeviceName::of(NonNull::new_unchecked(self.device.as_raw())) };
            pr_warn!("device {name} {what} ({error:?}): memory that it may reach is lost\n");
        }
    }

    /// The device of this domain.
    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// The key for local access to any DMA-mapped memory.
    pub(super) fn local_key(&self) -> u32 {
        // SAFETY: The domain is valid, and the key never changes.
        unsafe { (*self.ptr.as_ptr()).local_dma_lkey }
    }

    /// The C pointer.
    pub(super) fn as_raw(&self) -> *mut bindings::ib_pd {
        self.ptr.as_ptr()
    }
}

impl Drop for Pd {
    fn drop(&mut self) {
        // SAFETY: This object owns the domain. Memory regions and queue pairs hold a counted
        // reference to it, so none is left, unless the provider has failed to destroy it.
        let rc = unsafe { bindings::ib_dealloc_pd_user(self.ptr.as_ptr(), core::ptr::null_mut()) };
        // As ib_dealloc_pd() does: providers must not refuse this to a kernel user.
        kernel::warn_on!(rc != 0);
    }
}
