// SPDX-License-Identifier: GPL-2.0

//! The regions that the peer can reach, in one list for each Call that has any.
//!
//! A list is put into its slot when its registrations are posted, and leaves it only as idle
//! regions after an invalidation, or by destroying the regions after the drain. The user of the
//! queue pair keeps its state of the Call in the slot as well, under the same lock.

use super::{
    cq::RemoteInvalidation,
    cqe::{impl_has_cqe, Complete, CqRef, Cqe, HasCqe},
    mr::{Idle, Mapped, Mr, MrList, Registered},
    raw_qp::Qp,
};
use crate::{bindings, trace};
use core::ptr::NonNull;
use kernel::{
    new_spinlock,
    prelude::*,
    sync::lock::{spinlock::SpinLockBackend, Guard},
    sync::{CondVar, SpinLock},
};

/// An object that owns a queue pair, and the slots for the regions that its peer can reach.
///
/// # Safety
///
/// The object is pinned, and is not dropped before all work requests of its slots have completed.
pub(super) unsafe trait SlotOwner: Sized {
    /// What the user keeps in a slot.
    type User: Default + Send + Unpin;

    /// The last of the invalidations that were posted for slot `index` has completed.
    ///
    /// # Safety
    ///
    /// Called by the handler of that completion, `wc`.
    unsafe fn invalidated(&self, index: usize, wc: &bindings::ib_wc);
}

/// The outcome of a request to invalidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Invalidation {
    /// There is nothing to invalidate.
    Empty,
    /// It is in progress; [`super::Completions::invalidated`] reports success.
    Posted,
    /// It could not be posted. The regions stay registered, or mapped, until the end of the
    /// connection, which must follow.
    Failed,
}

/// The regions of one Call, and what the user keeps with them.
struct Contents<U> {
    regions: MrList<Registered>,
    /// Whether the invalidation of all of them was requested.
    is_invalidating: bool,
    /// Set once the regions are being destroyed. No others follow.
    is_destroyed: bool,
    user: U,
}

/// A slot. Its handle completes the chain of local invalidations.
///
/// # Invariants
///
/// `owner` contains the slot.
#[pin_data]
struct Slot<O: SlotOwner> {
    cqe: Cqe<Self>,
    index: usize,
    owner: NonNull<O>,
    #[pin]
    contents: SpinLock<Contents<O::User>>,
}

impl_has_cqe! {
    impl{O: SlotOwner} HasCqe<0> for Slot<O> { self.cqe }
}

impl<O: SlotOwner> Complete for Slot<O> {
    unsafe fn complete(this: NonNull<Self>, cq: &CqRef, wc: &bindings::ib_wc) {
        // SAFETY: The owner contains the slot (type invariant). It is pinned, and is not dropped
        // before the work requests of its slots have completed (contract of `SlotOwner`), of which
        // this is one.
        let (slot, owner) = unsafe { (this.as_ref(), this.as_ref().owner.as_ref()) };
        trace::xprtrdma_wc_li_done(cq, slot.index, wc);
        // SAFETY: This is the handler of that completion.
        unsafe { owner.invalidated(slot.index, wc) };
    }
}

/// A locked slot. Nobody else can register or invalidate regions of its Call until it is unlocked.
///
/// # Invariants
///
/// `qp` is the queue pair with which the regions were registered.
pub(crate) struct LockedSlot<'a, U> {
    qp: &'a Qp,
    contents: Guard<'a, Contents<U>, SpinLockBackend>,
}

impl<U: Unpin> LockedSlot<'_, U> {
    /// The regions that the peer can reach.
    pub(crate) fn regions(&self) -> &MrList<Registered> {
        &self.contents.regions
    }

    /// What the user keeps with them.
    pub(crate) fn user(&mut self) -> &mut U {
        &mut self.contents.user
    }

    /// Removes the region that the peer has invalidated, if it is one of these and no invalidation
    /// of them all is in progress.
    pub(crate) fn take_invalidated(&mut self, proof: RemoteInvalidation<'_>) -> Option<Mr<Idle>> {
        // With an empty slot other regions could be registered in it, and would be taken for those
        // whose invalidation completes.
        if self.contents.is_invalidating {
            return None;
        }
        let handle = proof.into_handle(self.qp.as_raw().cast())?;
        // SAFETY: By the type's invariant the queue pair of these regions has reported their handle
        // as invalid.
        unsafe { self.contents.regions.take_invalidated(handle) }
    }

    /// Unlocks the slot, sleeps until `changed` is notified, and locks it again.
    pub(crate) fn wait(&mut self, changed: &CondVar) {
        changed.wait(&mut self.contents);
    }
}

/// The registered regions of a connection.
pub(super) struct RegisteredMrs<O: SlotOwner> {
    slots: Pin<KVBox<[Slot<O>]>>,
}

impl<O: SlotOwner> RegisteredMrs<O> {
    /// Makes `count` slots.
    ///
    /// # Safety
    ///
    /// The result is part of `owner`.
    pub(super) unsafe fn new(count: u32, owner: NonNull<O>) -> Result<Self> {
        let slots = KVBox::pin_slice(
            |index| {
                // INVARIANT: The slots are part of `owner` (this function's contract).
                try_pin_init!(Slot {
                    cqe: Cqe::new(),
                    index,
                    owner,
                    contents <- new_spinlock!(Contents {
                        regions: MrList::new(),
                        is_invalidating: false,
                        is_destroyed: false,
                        user: O::User::default(),
                    }, "rpcrdma_registered"),
                }? Error)
            },
            usize::try_from(count)?,
            GFP_KERNEL,
        )?;
        Ok(Self { slots })
    }

    /// Posts a registration of each of `regions` and then `last`, as one chain. The regions are in
    /// slot `index` from then on, until they are invalidated. `publish` changes what the user keeps
    /// there before anything is posted; nobody can invalidate the regions until this returns.
    ///
    /// # Safety
    ///
    /// As for [`Qp::post_send`], with regard to `last`. `qp` is the queue pair of this object, and
    /// `failed` handles the completion of registrations that fail.
    ///
    /// # Errors
    ///
    /// As for [`Qp::post_send`]; `EBUSY` if the slot is in use, and `EINVAL` for regions of another
    /// protection domain than the queue pair's. In these two cases nothing was posted.
    pub(super) unsafe fn post(
        &self,
        qp: &Qp,
        failed: *mut bindings::ib_cqe,
        index: usize,
        regions: MrList<Mapped>,
        last: &mut bindings::ib_send_wr,
        publish: impl FnOnce(&mut O::User),
    ) -> Result {
        let slot = self.slots.get(index).ok_or(EINVAL)?;
        let mut contents = slot.contents.lock();
        if !contents.regions.is_empty() {
            drop(contents);
            return Err(EBUSY);
        }
        // SAFETY: The chain is posted below, under the lock without which the list cannot leave the
        // slot.
        let chain = unsafe { regions.chain(qp.pd(), failed, last) };
        let (first, registered) = match chain {
            Ok(chain) => chain,
            // A provider may mistake a region of another device for one of its own.
            Err(regions) => {
                drop(contents);
                drop(regions);
                return Err(EINVAL);
            }
        };
        contents.regions = registered;
        contents.is_invalidating = false;
        publish(&mut contents.user);
        // SAFETY: The registrations are part of the regions, which the lock keeps in the slot
        // during the call. `last` is guaranteed by the caller.
        unsafe { qp.post_send(first) }
    }

    /// Locks slot `index`.
    ///
    /// # Safety
    ///
    /// `qp` is the queue pair of this object.
    pub(super) unsafe fn slot<'a>(
        &'a self,
        qp: &'a Qp,
        index: usize,
    ) -> Option<LockedSlot<'a, O::User>> {
        let contents = self.slots.get(index)?.contents.lock();
        // INVARIANT: `qp` is the queue pair of this object (this function's contract), with which
        // `post` registers the regions of its slots.
        Some(LockedSlot { qp, contents })
    }

    /// How many slots there are.
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Posts a local invalidation of every region in slot `index`, unless that was done already.
    ///
    /// # Safety
    ///
    /// `qp` is the queue pair of this object, and `failed` handles the completion of unsignalled
    /// invalidations that fail.
    pub(super) unsafe fn invalidate(
        &self,
        qp: &Qp,
        failed: *mut bindings::ib_cqe,
        index: usize,
    ) -> Invalidation {
        let Some(slot) = self.slots.get(index) else {
            return Invalidation::Empty;
        };
        let mut contents = slot.contents.lock();
        // Whoever destroys them has taken them out, and may not have unmapped them yet.
        if contents.is_destroyed {
            return Invalidation::Failed;
        }
        if contents.regions.is_empty() {
            return Invalidation::Empty;
        }
        if core::mem::replace(&mut contents.is_invalidating, true) {
            return Invalidation::Posted;
        }
        let first = contents.regions.invalidations(failed, Slot::wr_cqe(slot));
        // SAFETY: The requests are part of the regions, which the lock keeps in the slot during the
        // call. They refer to no memory.
        match unsafe { qp.post_send_beside(first) } {
            Ok(()) => Invalidation::Posted,
            Err(error) => {
                trace::xprtrdma_post_linv_err(qp, error);
                Invalidation::Failed
            }
        }
    }

    /// Removes the regions of slot `index` after their local invalidation.
    ///
    /// # Safety
    ///
    /// The last request of a chain posted by [`Self::invalidate`] for this slot has completed
    /// successfully.
    pub(super) unsafe fn invalidated(&self, index: usize) -> MrList<Idle> {
        let Some(slot) = self.slots.get(index) else {
            return MrList::new();
        };
        let regions = core::mem::replace(&mut slot.contents.lock().regions, MrList::new());
        // SAFETY: The requests of one queue complete in order, and the last one succeeded.
        unsafe { regions.invalidated() }
    }

    /// Destroys all regions in all slots. May sleep.
    pub(super) fn destroy(&self) {
        for slot in self.slots.iter() {
            let mut contents = slot.contents.lock();
            contents.is_destroyed = true;
            let regions = core::mem::replace(&mut contents.regions, MrList::new());
            drop(contents);
            drop(regions);
        }
    }
}
