// SPDX-License-Identifier: GPL-2.0

//! The regions that the peer can reach, one list for each Call that has some.
//!
//! A list is put into its slot together with the post of its registrations, and leaves only as
//! idle regions, after an invalidation, or by the regions' destruction after the drain.

use super::{
    completion::{Cqe, Done, RemoteInvalidation},
    mr::{Idle, Mapped, Mr, MrList, Registered},
    send::SendQueue,
};
use crate::{bindings, trace};
use kernel::{new_spinlock, prelude::*, sync::SpinLock};

/// What became of a request to invalidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Invalidation {
    /// There is nothing to invalidate.
    Empty,
    /// It is under way; [`super::Completions::invalidated`] tells of its end.
    Posted,
    /// It could not be posted. The regions stay until the connection's end, which has to come.
    Failed,
}

/// The list of one Call.
#[pin_data]
struct Slot {
    /// Completes the chain of local invalidations.
    cqe: Cqe,
    #[pin]
    regions: SpinLock<MrList<Registered>>,
}

// SAFETY: The work request handles are only read after construction.
unsafe impl Sync for Slot {}
// SAFETY: Nothing in a slot is tied to a thread.
unsafe impl Send for Slot {}

/// The lists of a connection.
pub(super) struct RegisteredLists {
    slots: Pin<KVBox<[Slot]>>,
}

impl RegisteredLists {
    /// Makes `count` slots, whose local invalidations are completed by `done`.
    pub(super) fn new(count: u32, done: Done) -> Result<Self> {
        let slots = KVBox::pin_slice(
            |index| {
                try_pin_init!(Slot {
                    cqe: Cqe::new(done, index),
                    regions <- new_spinlock!(MrList::new(), "rpcrdma_registered"),
                }? Error)
            },
            usize::try_from(count)?,
            GFP_KERNEL,
        )?;
        Ok(Self { slots })
    }

    /// Posts a registration of each of `regions` and then `last`, as one chain. The regions are in
    /// slot `index` from then on, until they are invalidated; `publish` runs before the post, and
    /// nobody can invalidate before it is over.
    ///
    /// # Safety
    ///
    /// As [`SendQueue::post`], for `last`.
    ///
    /// # Errors
    ///
    /// As [`SendQueue::post`]; `EBUSY` if the slot is in use.
    pub(super) unsafe fn post(
        &self,
        qp: *mut bindings::ib_qp,
        queue: &SendQueue,
        index: usize,
        regions: MrList<Mapped>,
        last: &mut bindings::ib_send_wr,
        publish: impl FnOnce(),
    ) -> Result {
        let slot = self.slots.get(index).ok_or(EINVAL)?;
        let mut held = slot.regions.lock();
        if !held.is_empty() {
            drop(held);
            return Err(EBUSY);
        }
        // SAFETY: The chain is posted below, under the lock without which the list cannot leave
        // the slot.
        let (first, registered) = unsafe { regions.chain(queue.unsignaled().as_raw(), last) };
        *held = registered;
        publish();
        // SAFETY: The registrations live in the regions, which the lock keeps in the slot during
        // the call. `last` is the caller's promise.
        unsafe { queue.post(qp, first) }
    }

    /// Looks at the list in slot `index`.
    pub(super) fn inspect<R>(
        &self,
        index: usize,
        look: impl FnOnce(&MrList<Registered>) -> R,
    ) -> Option<R> {
        Some(look(&self.slots.get(index)?.regions.lock()))
    }

    /// Looks at the list in slot `index`, then takes the region out that the peer has invalidated,
    /// if it is one of them. Also says whether the slot is empty then.
    pub(super) fn withdraw<R>(
        &self,
        index: usize,
        proof: Option<&RemoteInvalidation>,
        look: impl FnOnce(&MrList<Registered>) -> R,
    ) -> Option<(R, Option<Mr<Idle>>, bool)> {
        let mut held = self.slots.get(index)?.regions.lock();
        let seen = look(&held);
        let region = proof.and_then(|proof| held.take_invalidated(proof));
        Some((seen, region, held.is_empty()))
    }

    /// Posts a local invalidation of every region in slot `index`.
    ///
    /// # Safety
    ///
    /// `qp` is the queue pair of this object and of `queue`. No local invalidation of the slot is
    /// under way.
    pub(super) unsafe fn invalidate(
        &self,
        qp: *mut bindings::ib_qp,
        queue: &SendQueue,
        index: usize,
    ) -> Invalidation {
        let Some(slot) = self.slots.get(index) else {
            return Invalidation::Empty;
        };
        let mut held = slot.regions.lock();
        if held.is_empty() {
            return Invalidation::Empty;
        }
        let first = held.invalidations(queue.unsignaled().as_raw(), slot.cqe.as_raw());
        // SAFETY: The requests live in the regions, which the lock keeps in the slot during the
        // call. They name no memory.
        match unsafe { queue.post(qp, first) } {
            Ok(()) => Invalidation::Posted,
            Err(error) => {
                // SAFETY: The queue pair is valid.
                trace::xprtrdma_post_linv_err(unsafe { &*qp.cast() }, error);
                Invalidation::Failed
            }
        }
    }

    /// Takes the regions of slot `index` out after their local invalidation.
    ///
    /// # Safety
    ///
    /// The last request of a chain posted by [`Self::invalidate`] for this slot has completed with
    /// success.
    pub(super) unsafe fn invalidated(&self, index: usize) -> MrList<Idle> {
        let Some(slot) = self.slots.get(index) else {
            return MrList::new();
        };
        let regions = core::mem::replace(&mut *slot.regions.lock(), MrList::new());
        // SAFETY: Requests on one queue complete in order, and the last one succeeded.
        unsafe { regions.invalidated() }
    }

    /// Destroys all regions in all slots. May sleep.
    pub(super) fn destroy(&self) {
        for slot in self.slots.iter() {
            let regions = core::mem::replace(&mut *slot.regions.lock(), MrList::new());
            drop(regions);
        }
    }
}
