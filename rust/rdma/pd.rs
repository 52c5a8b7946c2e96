// SPDX-License-Identifier: GPL-2.0

//! Protection domains.

use super::{device::Device, CmId};
use crate::bindings;
use core::ptr::NonNull;
use kernel::{error::from_err_ptr, prelude::*, str::CStrExt, sync::Arc};

/// A protection domain on the device of a connection identifier.
///
/// # Invariants
///
/// `ptr` is a protection domain that this object owns, on the device that `id` is bound to.
pub(crate) struct Pd {
    ptr: NonNull<bindings::ib_pd>,
    id: Arc<CmId>,
}

// SAFETY: The RDMA core allows a protection domain to be used from any thread.
unsafe impl Send for Pd {}
// SAFETY: As above; no method changes the domain.
unsafe impl Sync for Pd {}

impl Pd {
    /// Allocates a protection domain. May sleep.
    ///
    /// # Errors
    ///
    /// `ENODEV` if `id` is not bound to a device yet; otherwise what the provider answers,
    /// `ENOMEM` mostly.
    pub(crate) fn new(id: Arc<CmId>) -> Result<Self> {
        let device = id.device().ok_or(ENODEV)?;
        // SAFETY: The device is registered, since `id` is bound to it; the caller's name is static.
        let ptr = from_err_ptr(unsafe {
            bindings::__ib_alloc_pd(device.as_raw(), 0, super::CALLER.as_char_ptr())
        })?;
        let ptr = NonNull::new(ptr).ok_or(ENOMEM)?;
        // INVARIANT: The domain was just allocated on `id`'s device.
        Ok(Self { ptr, id })
    }

    /// The device of this domain.
    pub(crate) fn device(&self) -> &Device {
        // SAFETY: By the type's invariant the domain is on the device of `id`, which stays
        // registered as long as `id` exists.
        unsafe { Device::from_raw((*self.ptr.as_ptr()).device) }
    }

    /// The key that lets local work requests use any DMA-mapped memory.
    pub(super) fn local_key(&self) -> u32 {
        // SAFETY: The domain is valid, and the key never changes.
        unsafe { (*self.ptr.as_ptr()).local_dma_lkey }
    }

    /// The C pointer.
    pub(super) fn as_raw(&self) -> *mut bindings::ib_pd {
        self.ptr.as_ptr()
    }

    /// The identifier that holds the device.
    pub(super) fn id(&self) -> &Arc<CmId> {
        &self.id
    }
}

impl Drop for Pd {
    fn drop(&mut self) {
        // SAFETY: This object owns the domain. Memory regions and queue pairs hold a counted
        // reference to it, so none is left.
        unsafe { bindings::ib_dealloc_pd_user(self.ptr.as_ptr(), core::ptr::null_mut()) };
    }
}
