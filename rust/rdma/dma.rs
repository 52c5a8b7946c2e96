// SPDX-License-Identifier: GPL-2.0

//! Buffers that stay mapped for DMA.

use super::Pd;
use crate::bindings;
use kernel::{alloc::Flags, dma::DataDirection, error::to_result, prelude::*, sync::Arc};

/// A buffer of fixed size that is mapped for DMA for as long as it exists.
///
/// # Invariants
///
/// `address` maps the whole of `data`, `size` bytes, on the device of `pd`, in `direction`.
pub(super) struct DmaBuffer {
    data: KVec<u8>,
    size: u32,
    address: u64,
    direction: DataDirection,
    pd: Arc<Pd>,
}

impl DmaBuffer {
    /// Allocates and maps `size` zeroed bytes. May sleep if the flags allow it.
    ///
    /// # Errors
    ///
    /// `EINVAL` for no bytes, or `ENOMEM` if memory cannot be allocated or mapped.
    pub(super) fn new(
        pd: &Arc<Pd>,
        size: u32,
        direction: DataDirection,
        flags: Flags,
    ) -> Result<Self> {
        let length = usize::try_from(size)?;
        if length == 0 {
            return Err(EINVAL);
        }
        let mut data = KVec::from_elem(0, length, flags)?;
        let mut address = 0;
        // SAFETY: The device is registered as long as `pd` exists, and `data` is `length` bytes of
        // kmalloc memory that does not move before it is unmapped in `drop`.
        to_result(unsafe {
            bindings::rpcrdma_ib_dma_map_single(
                pd.device().as_raw(),
                data.as_mut_ptr().cast(),
                length,
                direction.into(),
                &mut address,
            )
        })?;
        // INVARIANT: The mapping succeeded.
        Ok(Self {
            data,
            size,
            address,
            direction,
            pd: pd.clone(),
        })
    }

    /// The protection domain of the buffer.
    pub(super) fn pd(&self) -> &Arc<Pd> {
        &self.pd
    }

    /// The size in bytes.
    pub(super) fn len(&self) -> usize {
        self.data.len()
    }

    /// The scatter/gather element for all of it.
    pub(super) fn sge(&self) -> bindings::ib_sge {
        bindings::ib_sge {
            addr: self.address,
            length: self.size,
            lkey: self.pd.local_key(),
        }
    }

    /// The bytes, which must belong to the CPU at present.
    pub(super) fn bytes(&mut self) -> &mut [u8] {
        &mut self.data
    }

    /// The first `length` bytes, or all if there are fewer; they must belong to the CPU at present.
    pub(super) fn prefix(&self, length: usize) -> &[u8] {
        self.data.get(..length).unwrap_or(&self.data)
    }

    /// Passes the first `length` bytes from the device to the CPU.
    pub(super) fn sync_for_cpu(&self, length: usize) {
        let (device, length) = (self.pd.device().as_raw(), length.min(self.data.len()));
        let direction = self.direction.into();
        // SAFETY: By the type's invariant the range is mapped on the device.
        unsafe {
            bindings::rpcrdma_ib_dma_sync_single_for_cpu(device, self.address, length, direction)
        };
    }

    /// Passes the first `length` bytes from the CPU to the device.
    pub(super) fn sync_for_device(&self, length: usize) {
        let (device, length) = (self.pd.device().as_raw(), length.min(self.data.len()));
        let direction = self.direction.into();
        // SAFETY: By the type's invariant the range is mapped on the device.
        unsafe {
            bindings::rpcrdma_ib_dma_sync_single_for_device(device, self.address, length, direction)
        };
    }
}

impl Drop for DmaBuffer {
    fn drop(&mut self) {
        if self.pd.is_unstoppable() {
            // SAFETY: The memory is allocated.
            unsafe { bindings::rpcrdma_kmemleak_ignore(self.data.as_ptr().cast()) };
            return core::mem::forget(core::mem::take(&mut self.data));
        }
        // SAFETY: By the type's invariant exactly this range is mapped. No work request refers to
        // it any longer: its poster keeps the buffer until that has completed, or until its
        // queue pair was drained or destroyed.
        unsafe {
            bindings::rpcrdma_ib_dma_unmap_single(
                self.pd.device().as_raw(),
                self.address,
                self.data.len(),
                self.direction.into(),
            )
        };
    }
}
