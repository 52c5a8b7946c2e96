// SPDX-License-Identifier: GPL-2.0

//! RDMA Reads from and RDMA Writes to the peer's memory, by means of the RDMA core
//! ([`include/rdma/rw.h`]), which registers local memory where the fabric requires it.
//!
//! [`include/rdma/rw.h`]: srctree/include/rdma/rw.h

use super::qp::Qp;
use crate::bindings::{self, PageRange, PageVec};
use core::mem::MaybeUninit;
use kernel::{dma::DataDirection, prelude::*};

/// The number of elements for which an idle context keeps memory.
const KEPT_ELEMENTS: usize = 32;

/// One segment of the peer's memory, and the local memory that its bytes are copied to or from.
struct Transfer {
    /// Initialised by the RDMA core, as far as it uses it, when the transfer is mapped.
    ctx: MaybeUninit<bindings::rdma_rw_ctx>,
    /// Its part of [`Transfers::vecs`].
    first: usize,
    count: u32,
}

/// Transfers in one direction that are posted as one chain.
///
/// # Invariants
///
/// Each of `transfers` is mapped for the queue pair that it was added with, and posted at most
/// once. `vecs` and `transfers` do not move while there are transfers.
pub(super) struct Transfers {
    vecs: KVVec<bindings::bio_vec>,
    transfers: KVVec<Transfer>,
    direction: DataDirection,
    /// The number of work requests in the chain.
    requests: u32,
}

// SAFETY: The memory that the pointers lead to belongs to the user, which may be any thread.
unsafe impl Send for Transfers {}
// SAFETY: Nothing changes through `&self`.
unsafe impl Sync for Transfers {}

impl Transfers {
    /// No transfers; for RDMA Reads from the peer.
    pub(super) const fn reads() -> Self {
        Self::new(DataDirection::FromDevice)
    }

    /// No transfers; for RDMA Writes to the peer.
    pub(super) const fn writes() -> Self {
        Self::new(DataDirection::ToDevice)
    }

    const fn new(direction: DataDirection) -> Self {
        Self {
            vecs: KVVec::new(),
            transfers: KVVec::new(),
            direction,
            requests: 0,
        }
    }

    /// The number of work requests in the chain.
    pub(super) fn requests(&self) -> u32 {
        self.requests
    }

    /// Reserves memory for `transfers` transfers with `elements` elements in all, if there are no
    /// transfers yet. May sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, or `EBUSY` if there are transfers.
    pub(super) fn reserve(&mut self, transfers: usize, elements: usize) -> Result {
        if !self.transfers.is_empty() {
            return Err(EBUSY);
        }
        if self.vecs.capacity() >= elements && self.transfers.capacity() >= transfers {
            return Ok(());
        }
        self.reserve_more(transfers, elements)
    }

    /// The slow path of [`Self::reserve`]: there is not enough memory yet.
    fn reserve_more(&mut self, transfers: usize, elements: usize) -> Result {
        self.vecs.reserve(elements, GFP_KERNEL)?;
        Ok(self.transfers.reserve(transfers, GFP_KERNEL)?)
    }

    /// Adds a transfer between `ranges` of `pages` and the peer's memory at `offset` under
    /// `handle`, of the length of the ranges. May sleep. There may be several ranges only if
    /// [`Qp::joins_ranges`].
    ///
    /// # Safety
    ///
    /// The pages stay until [`Self::release`], and `qp` is the queue pair that it is called with.
    ///
    /// # Errors
    ///
    /// `ENOMEM` if there is no room or no memory, `EAGAIN` if there is no memory region, `EINVAL`
    /// if there are no bytes, or if a range is not within these pages.
    pub(super) unsafe fn add(
        &mut self,
        qp: &Qp,
        pages: &PageVec,
        ranges: &[PageRange],
        handle: u32,
        offset: u64,
    ) -> Result {
        let first = self.vecs.len();
        // SAFETY: The pages stay until `release`, which is called with `qp` (this function's
        // contract).
        let added = unsafe { self.add_behind(first, qp, pages, ranges, handle, offset) };
        if added.is_err() {
            self.vecs.truncate(first);
        }
        added
    }

    /// Adds a transfer whose elements are those from `first` on. If it fails, it may leave some of
    /// them in `vecs`.
    ///
    /// # Safety
    ///
    /// As for [`Self::add`].
    unsafe fn add_behind(
        &mut self,
        first: usize,
        qp: &Qp,
        pages: &PageVec,
        ranges: &[PageRange],
        handle: u32,
        offset: u64,
    ) -> Result {
        let mut length = 0u32;
        for range in ranges {
            pages.append_to(&mut self.vecs, *range, qp.max_element())?;
            length = length
                .checked_add(u32::try_from(range.length)?)
                .ok_or(EINVAL)?;
        }
        let vecs = self.vecs.get(first..).ok_or(EINVAL)?;
        let count = u32::try_from(vecs.len())?;
        let room = self.transfers.spare_capacity_mut().first_mut();
        let transfer = room.ok_or(ENOMEM)?.as_mut_ptr();
        // The context is not initialised, so there is nothing to copy here.
        // SAFETY: There is room for one more, and these are all fields that need be initialised.
        unsafe {
            (&raw mut (*transfer).first).write(first);
            (&raw mut (*transfer).count).write(count);
            self.transfers.inc_len(1);
        }
        // From here on it does not move.
        let transfer = self.transfers.last_mut().ok_or(EINVAL)?;
        let iter = bindings::bvec_iter {
            bi_size: length,
            ..pin_init::zeroed()
        };
        // SAFETY: The queue pair is valid. The vectors describe `length` bytes of pages that stay,
        // and do not move themselves.
        let status = unsafe {
            bindings::rdma_rw_ctx_init_bvec(
                transfer.ctx.as_mut_ptr(),
                qp.as_raw(),
                qp.id().port(),
                vecs.as_ptr(),
                count,
                iter,
                offset,
                handle,
                self.direction.into(),
            )
        };
        match u32::try_from(status) {
            Ok(requests) if requests > 0 => {
                self.requests = self.requests.saturating_add(requests);
                Ok(())
            }
            _ => {
                self.transfers.pop();
                Err(kernel::error::to_result(status).err().unwrap_or(EINVAL))
            }
        }
    }

    /// Chains the work requests of all transfers in front of `last`, or, if that is null, lets the
    /// last of them complete to `cqe`; returns the first request.
    ///
    /// # Safety
    ///
    /// `qp` is the queue pair that the transfers were added with. The chain is posted before this
    /// object changes.
    pub(super) unsafe fn requests_before(
        &mut self,
        qp: &Qp,
        cqe: *mut bindings::ib_cqe,
        last: *mut bindings::ib_send_wr,
    ) -> *mut bindings::ib_send_wr {
        let port = qp.id().port();
        self.transfers
            .iter_mut()
            .rev()
            .fold(last, |next, transfer| {
                // SAFETY: The transfer was mapped for this queue pair.
                unsafe {
                    bindings::rdma_rw_ctx_wrs(
                        transfer.ctx.as_mut_ptr(),
                        qp.as_raw(),
                        port,
                        cqe,
                        next,
                    )
                }
            })
    }

    /// Unmaps all transfers, and forgets them. Memory that only large messages need is freed.
    ///
    /// # Safety
    ///
    /// `qp` is the queue pair that the transfers were added with. They have completed, or were
    /// never posted.
    pub(super) unsafe fn release(&mut self, qp: &Qp) {
        if !self.transfers.is_empty() || self.vecs.capacity() > KEPT_ELEMENTS {
            // SAFETY: `qp` is the queue pair that the transfers were added with, and the device no
            // longer uses them (this function's contract).
            unsafe { self.release_all(qp) };
        }
    }

    /// [`Self::release`] if there is anything to release.
    ///
    /// # Safety
    ///
    /// As for [`Self::release`].
    unsafe fn release_all(&mut self, qp: &Qp) {
        let port = qp.id().port();
        for transfer in &mut self.transfers {
            // By the type's invariant the vectors exist.
            let Some(vecs) = self.vecs.get(transfer.first..) else {
                continue;
            };
            // SAFETY: The transfer was mapped for this queue pair, with these vectors, of which
            // there are no more than a device can address.
            unsafe {
                bindings::rdma_rw_ctx_destroy_bvec(
                    transfer.ctx.as_mut_ptr(),
                    qp.as_raw(),
                    port,
                    vecs.as_ptr(),
                    transfer.count,
                    self.direction.into(),
                );
            }
        }
        // INVARIANT: What is mapped no longer is forgotten.
        self.transfers.clear();
        self.vecs.clear();
        self.requests = 0;
        if self.vecs.capacity() > KEPT_ELEMENTS {
            self.vecs = KVVec::new();
            self.transfers = KVVec::new();
        }
    }
}
