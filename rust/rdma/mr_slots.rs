// SPDX-License-Identifier: GPL-2.0

//! The MRs that the peer can reach, in one slot for each Call that has any.
//!
//! A list of MRs is put into its slot when its registrations are posted, and leaves it only as idle
//! MRs after an invalidation, or by destroying the MRs after the drain. The user of the queue pair
//! keeps its state of the Call in the slot as well, under the same lock.

use super::{
    cq::{Complete, CqContext, Cqe, RemoteInvalidation, WcStatus},
    mr::{Idle, Mapped, Mr, MrList, Registered},
    qp::{QpUser, QueuePair},
    send::SqError,
};
use crate::{bindings, trace};
use core::{mem::offset_of, ptr::NonNull};
use kernel::{
    new_condvar, new_spinlock,
    prelude::*,
    sync::lock::{spinlock::SpinLockBackend, Guard},
    sync::{CondVar, SpinLock},
};

/// The outcome of a request to invalidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Invalidation {
    /// There is nothing to invalidate.
    Empty,
    /// It is in progress; [`QpUser::invalidated`] reports its end.
    Posted,
    /// It could not be posted. The MRs stay registered until the end of the connection, which must
    /// follow.
    Failed,
}

/// The MRs of one Call, and what the user keeps with them.
struct Contents<S> {
    mrs: MrList<Registered>,
    /// Whether the invalidation of all of them was requested.
    is_invalidating: bool,
    /// Set once the MRs are being destroyed. No others follow.
    is_destroyed: bool,
    data: S,
}

/// A slot. Its handles complete the local invalidations of its MRs.
#[pin_data]
struct MrSlot<U: QpUser> {
    /// Of the last one of a chain.
    cqe: Cqe<Self>,
    /// Of the others. It reports errors.
    part: Cqe<Self, 1>,
    index: usize,
    #[pin]
    contents: SpinLock<Contents<U::Slot>>,
}

/// A locked slot. Nobody else can register or invalidate MRs of its Call until it is unlocked.
///
/// # Invariants
///
/// The MRs of `contents` were registered on `qp`.
pub(crate) struct SlotGuard<'a, U: QpUser> {
    qp: &'a QueuePair<U>,
    contents: Guard<'a, Contents<U::Slot>, SpinLockBackend>,
}

impl<U: QpUser> SlotGuard<'_, U> {
    /// The MRs that the peer can reach.
    pub(crate) fn mrs(&self) -> &MrList<Registered> {
        &self.contents.mrs
    }

    /// What the user keeps with them.
    pub(crate) fn data(&mut self) -> &mut U::Slot {
        &mut self.contents.data
    }

    /// Removes the MR that the peer has invalidated, if it is one of these and no invalidation of
    /// them all is in progress.
    pub(crate) fn take_invalidated(&mut self, proof: RemoteInvalidation<'_>) -> Option<Mr<Idle>> {
        // With an empty slot other MRs could be registered in it, and would be taken for those
        // whose invalidation completes.
        if self.contents.is_invalidating {
            return None;
        }
        let handle = proof.into_handle(self.qp.address())?;
        // SAFETY: `qp`, with which these MRs were registered (type invariant), has reported their
        // handle as invalid.
        unsafe { self.contents.mrs.take_invalidated(handle) }
    }

    /// Unlocks the slot, sleeps until [`QueuePair::wake_slots`] is called, and locks it again.
    pub(crate) fn wait(&mut self) {
        self.qp.mrs.changed.wait(&mut self.contents);
    }
}

/// The slots of a connection.
#[pin_data]
pub(super) struct MrSlots<U: QpUser> {
    slots: Pin<KVBox<[MrSlot<U>]>>,
    #[pin]
    changed: CondVar,
}

impl<U: QpUser> MrSlots<U> {
    /// Makes `count` slots.
    pub(super) fn new(count: u32) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            slots: KVBox::pin_slice(
                |index| {
                    try_pin_init!(MrSlot {
                        cqe: Cqe::new(),
                        part: Cqe::new(),
                        index,
                        contents <- new_spinlock!(Contents {
                            mrs: MrList::new(),
                            is_invalidating: false,
                            is_destroyed: false,
                            data: U::Slot::default(),
                        }, "rpcrdma_mr_slot"),
                    }? Error)
                },
                usize::try_from(count)?,
                GFP_KERNEL,
            )?,
            changed <- new_condvar!("rpcrdma_mr_slots"),
        }? Error)
    }

    /// Chains a registration of each of `mrs` in front of `last`, and returns the first request.
    /// The MRs are in slot `index` from then on, until they are invalidated; nobody can do that
    /// until the guard is dropped. `publish` changes what the user keeps there.
    ///
    /// # Safety
    ///
    /// `qp` is the queue pair of this object, and its hardware objects exist. The chain is posted
    /// there before the guard is dropped, or never. `part` handles the completion of registrations
    /// that fail.
    ///
    /// # Errors
    ///
    /// [`SqError::Closed`] if the slot is in use, or gone with the connection, or for MRs of
    /// another PD.
    pub(super) unsafe fn register<'a>(
        &'a self,
        qp: &'a QueuePair<U>,
        index: usize,
        mrs: MrList<Mapped>,
        (part, last): (*mut bindings::ib_cqe, *mut bindings::ib_send_wr),
        publish: impl FnOnce(&mut U::Slot),
    ) -> Result<(SlotGuard<'a, U>, *mut bindings::ib_send_wr), SqError> {
        let mut slot = qp.slot(index).ok_or(SqError::Closed)?;
        let contents = &mut *slot.contents;
        if !contents.mrs.is_empty() || contents.is_destroyed {
            drop(slot);
            drop(mrs);
            return Err(SqError::Closed);
        }
        // SAFETY: The hardware objects exist, and the chain is posted under the lock without which
        // the list cannot leave the slot, or never (this function's contract).
        match unsafe { mrs.chain(&qp.hw().pd, part, last) } {
            Ok((first, registered)) => {
                contents.mrs = registered;
                contents.is_invalidating = false;
                publish(&mut contents.data);
                Ok((slot, first))
            }
            // A provider may mistake an MR of another device for one of its own.
            Err(mrs) => {
                drop(slot);
                drop(mrs);
                Err(SqError::Closed)
            }
        }
    }

    /// Destroys all MRs in all slots. May sleep.
    pub(super) fn destroy(&self) {
        for slot in self.slots.iter() {
            let mut contents = slot.contents.lock();
            contents.is_destroyed = true;
            let mrs = core::mem::replace(&mut contents.mrs, MrList::new());
            drop(contents);
            drop(mrs);
        }
    }
}

impl<U: QpUser> QueuePair<U> {
    /// Locks slot `index`.
    pub(crate) fn slot(&self, index: usize) -> Option<SlotGuard<'_, U>> {
        let contents = self.mrs.slots.get(index)?.contents.lock();
        // INVARIANT: `MrSlots::register` puts MRs into the slots of their queue pair.
        Some(SlotGuard { qp: self, contents })
    }

    /// How many slots there are.
    pub(crate) fn slots(&self) -> usize {
        self.mrs.slots.len()
    }

    /// Wakes those who wait for a slot ([`SlotGuard::wait`]).
    pub(crate) fn wake_slots(&self) {
        self.mrs.changed.notify_all();
    }

    /// Posts a local invalidation of every MR in slot `index`, unless that was done already. Does
    /// not sleep.
    pub(crate) fn invalidate(&self, index: usize) -> Invalidation {
        let Some(slot) = self.mrs.slots.get(index) else {
            return Invalidation::Empty;
        };
        let mut contents = slot.contents.lock();
        // Whoever destroys them has taken them out, and may not have unmapped them yet.
        if contents.is_destroyed {
            return Invalidation::Failed;
        }
        if contents.mrs.is_empty() {
            return Invalidation::Empty;
        }
        if core::mem::replace(&mut contents.is_invalidating, true) {
            return Invalidation::Posted;
        }
        let part = <MrSlot<U> as Complete<1>>::wr_cqe(slot);
        let last = <MrSlot<U> as Complete<0>>::wr_cqe(slot);
        let first = contents.mrs.invalidations(part, last);
        // SAFETY: The requests are part of the MRs, which the lock keeps in the slot during the
        // call. They refer to no memory.
        match unsafe { self.post_wrs(&self.send.lock(), first) } {
            Ok(()) => Invalidation::Posted,
            Err(error) => {
                trace::xprtrdma_post_linv_err(self, error);
                Invalidation::Failed
            }
        }
    }
}

// SAFETY: The field has this type. The invalidations of a slot are posted on its queue pair.
unsafe impl<U: QpUser> Complete for MrSlot<U> {
    type User = U;

    const OFFSET: usize = offset_of!(Self, cqe);

    unsafe fn complete(this: NonNull<Self>, cx: &mut CqContext<'_, U>, wc: &bindings::ib_wc) {
        // SAFETY: The slot is part of the queue pair, which exists.
        let slot = unsafe { this.as_ref() };
        trace::xprtrdma_wc_li_done(cx.qp(), trace::clip(slot.index), wc);
        if let Some(status) = WcStatus::failure(wc) {
            return cx.user().failed(status.into());
        }
        let mrs = core::mem::replace(&mut slot.contents.lock().mrs, MrList::new());
        // SAFETY: The requests of one queue complete in order, and the last one succeeded.
        let mrs = unsafe { mrs.invalidated() };
        U::invalidated(cx, slot.index, mrs);
    }
}

// SAFETY: The field has this type. The invalidations of a slot are posted on its queue pair.
unsafe impl<U: QpUser> Complete<1> for MrSlot<U> {
    type User = U;

    const OFFSET: usize = offset_of!(Self, part);

    unsafe fn complete(this: NonNull<Self>, cx: &mut CqContext<'_, U>, wc: &bindings::ib_wc) {
        if let Some(status) = WcStatus::failure(wc) {
            // SAFETY: The slot is part of the queue pair, which exists.
            let slot = unsafe { this.as_ref() };
            trace::xprtrdma_wc_unsignaled(cx.qp(), trace::clip(slot.index), wc);
            cx.user().failed(status.into());
        }
    }
}
