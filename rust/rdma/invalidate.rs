// SPDX-License-Identifier: GPL-2.0

//! Local invalidations under way.

use super::{
    completion::{Cqe, Done},
    mr::{Idle, MrList, Registered},
    send::SendQueue,
};
use crate::bindings;
use kernel::{new_spinlock, prelude::*, sync::SpinLock};

/// One chain of invalidations. The regions stay here while it is with the device.
#[pin_data]
struct Slot {
    cqe: Cqe,
    #[pin]
    regions: SpinLock<MrList<Registered>>,
}

// SAFETY: The work request handles are only read after construction.
unsafe impl Sync for Slot {}
// SAFETY: Nothing in a slot is tied to a thread.
unsafe impl Send for Slot {}

/// The chains that can be under way at the same time.
pub(super) struct InvalidateQueue {
    slots: Pin<KBox<[Slot]>>,
}

impl InvalidateQueue {
    /// Makes room for `count` chains, completed by `done`.
    pub(super) fn new(count: u32, done: Done) -> Result<Self> {
        let slots = KBox::pin_slice(
            |index| {
                try_pin_init!(Slot {
                    cqe: Cqe::new(done, index),
                    regions <- new_spinlock!(MrList::new(), "rpcrdma_invalidate"),
                }? Error)
            },
            usize::try_from(count)?,
            GFP_KERNEL,
        )?;
        Ok(Self { slots })
    }

    /// Posts an invalidation of every one of `regions`, as chain `index`, on `queue`.
    ///
    /// # Safety
    ///
    /// `qp` is the queue pair of this object and of `queue`.
    ///
    /// # Errors
    ///
    /// The regions, unless all of the chain was posted: `index` is in use or out of range, the
    /// queue is closed, or the provider refused.
    pub(super) unsafe fn post(
        &self,
        qp: *mut bindings::ib_qp,
        queue: &SendQueue,
        index: usize,
        mut regions: MrList<Registered>,
    ) -> Result<(), MrList<Registered>> {
        let Some(slot) = self.slots.get(index) else {
            return Err(regions);
        };
        let mut guard = slot.regions.lock();
        if !guard.is_empty() {
            return Err(regions);
        }
        let first = regions.invalidations(queue.unsignaled().as_raw(), slot.cqe.as_raw());
        *guard = regions;
        // SAFETY: The requests live in the regions, which stay in the slot until the completion
        // or the drain; the lock keeps the completion away until the call has returned.
        match unsafe { queue.post(qp, first) } {
            Ok(()) => Ok(()),
            Err(_) => Err(core::mem::replace(&mut *guard, MrList::new())),
        }
    }

    /// Takes the regions of chain `index` after its last request has completed.
    ///
    /// # Safety
    ///
    /// `success` says how the last request of that chain has completed.
    pub(super) unsafe fn complete(
        &self,
        index: usize,
        success: bool,
    ) -> Result<MrList<Idle>, MrList<Registered>> {
        let regions = match self.slots.get(index) {
            Some(slot) => core::mem::replace(&mut *slot.regions.lock(), MrList::new()),
            None => MrList::new(),
        };
        if success {
            // SAFETY: Requests on one queue complete in order, and the last one succeeded.
            Ok(unsafe { regions.invalidated() })
        } else {
            Err(regions)
        }
    }
}
