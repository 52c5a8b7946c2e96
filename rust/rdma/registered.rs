// SPDX-License-Identifier: GPL-2.0

//! The regions that the peer can reach, one list for each Call that has some.
//!
//! A list is put into its slot together with the post of its registrations, and leaves only as
//! idle regions, after an invalidation, or by the regions' destruction after the drain. The user
//! of the queue pair keeps what belongs to the Call in the slot, under the same lock.

use super::{
    completion::{Cqe, Done, RemoteInvalidation},
    mr::{Idle, Mapped, Mr, MrList, Registered},
    send::{post, SendQueue},
};
use crate::{bindings, trace};
use kernel::{
    new_spinlock,
    prelude::*,
    sync::lock::{spinlock::SpinLockBackend, Guard},
    sync::{CondVar, SpinLock},
};

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

/// The list of one Call, and what the user keeps with it.
struct Held<U> {
    regions: MrList<Registered>,
    /// Whether the invalidation of all of them was asked for.
    invalidating: bool,
    user: U,
}

#[pin_data]
struct Slot<U> {
    /// Completes the chain of local invalidations.
    cqe: Cqe,
    #[pin]
    held: SpinLock<Held<U>>,
}

// SAFETY: The work request handles are only read after construction.
unsafe impl<U: Send> Sync for Slot<U> {}
// SAFETY: Nothing in a slot is tied to a thread.
unsafe impl<U: Send> Send for Slot<U> {}

/// A slot, locked. Nobody can register nor invalidate regions of its Call meanwhile.
pub(crate) struct LockedSlot<'a, U> {
    held: Guard<'a, Held<U>, SpinLockBackend>,
}

impl<U: Unpin> LockedSlot<'_, U> {
    /// The regions that the peer can reach.
    pub(crate) fn regions(&self) -> &MrList<Registered> {
        &self.held.regions
    }

    /// What the user keeps with them.
    pub(crate) fn user(&mut self) -> &mut U {
        &mut self.held.user
    }

    /// Takes the region out that the peer has invalidated, if it is one of them.
    pub(crate) fn take_invalidated(&mut self, proof: &RemoteInvalidation) -> Option<Mr<Idle>> {
        self.held.regions.take_invalidated(proof)
    }

    /// Unlocks the slot, sleeps until `changed` is notified, and locks it again.
    pub(crate) fn wait(&mut self, changed: &CondVar) {
        changed.wait(&mut self.held);
    }
}

/// The lists of a connection.
pub(super) struct RegisteredLists<U> {
    slots: Pin<KVBox<[Slot<U>]>>,
}

impl<U: Default + Send + Unpin> RegisteredLists<U> {
    /// Makes `count` slots, whose local invalidations are completed by `done`.
    pub(super) fn new(count: u32, done: Done) -> Result<Self> {
        let slots = KVBox::pin_slice(
            |index| {
                try_pin_init!(Slot {
                    cqe: Cqe::new(done, index),
                    held <- new_spinlock!(Held {
                        regions: MrList::new(),
                        invalidating: false,
                        user: U::default(),
                    }, "rpcrdma_registered"),
                }? Error)
            },
            usize::try_from(count)?,
            GFP_KERNEL,
        )?;
        Ok(Self { slots })
    }

    /// Posts a registration of each of `regions` and then `last`, as one chain. The regions are in
    /// slot `index` from then on, until they are invalidated; `publish` changes what the user keeps
    /// there before the post, and nobody can invalidate before that is over.
    ///
    /// # Safety
    ///
    /// As [`post`], for `last`. `qp` is the queue pair of this object and of `failed`, which
    /// completes the registrations if they fail.
    ///
    /// # Errors
    ///
    /// As [`post`]; `EBUSY` if the slot is in use.
    pub(super) unsafe fn post(
        &self,
        qp: *mut bindings::ib_qp,
        failed: &Cqe,
        index: usize,
        regions: MrList<Mapped>,
        last: &mut bindings::ib_send_wr,
        publish: impl FnOnce(&mut U),
    ) -> Result {
        let slot = self.slots.get(index).ok_or(EINVAL)?;
        let mut held = slot.held.lock();
        if !held.regions.is_empty() {
            drop(held);
            return Err(EBUSY);
        }
        // SAFETY: The chain is posted below, under the lock without which the list cannot leave
        // the slot.
        let (first, registered) = unsafe { regions.chain(failed.as_raw(), last) };
        held.regions = registered;
        held.invalidating = false;
        publish(&mut held.user);
        // SAFETY: The registrations live in the regions, which the lock keeps in the slot during
        // the call. `last` is the caller's promise.
        unsafe { post(qp, first) }
    }

    /// Locks slot `index`.
    pub(super) fn slot(&self, index: usize) -> Option<LockedSlot<'_, U>> {
        let held = self.slots.get(index)?.held.lock();
        Some(LockedSlot { held })
    }

    /// How many slots there are.
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Posts a local invalidation of every region in slot `index`, once.
    ///
    /// # Safety
    ///
    /// `qp` is the queue pair of this object and of `queue`.
    pub(super) unsafe fn invalidate(
        &self,
        qp: *mut bindings::ib_qp,
        queue: &SendQueue,
        index: usize,
    ) -> Invalidation {
        let Some(slot) = self.slots.get(index) else {
            return Invalidation::Empty;
        };
        let mut held = slot.held.lock();
        if held.regions.is_empty() {
            return Invalidation::Empty;
        }
        if core::mem::replace(&mut held.invalidating, true) {
            return Invalidation::Posted;
        }
        let first = held
            .regions
            .invalidations(queue.unsignaled().as_raw(), slot.cqe.as_raw());
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
        let regions = core::mem::replace(&mut slot.held.lock().regions, MrList::new());
        // SAFETY: Requests on one queue complete in order, and the last one succeeded.
        unsafe { regions.invalidated() }
    }

    /// Destroys all regions in all slots. May sleep.
    pub(super) fn destroy(&self) {
        for slot in self.slots.iter() {
            let regions = core::mem::replace(&mut slot.held.lock().regions, MrList::new());
            drop(regions);
        }
    }
}
