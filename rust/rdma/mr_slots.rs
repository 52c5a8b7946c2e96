// SPDX-License-Identifier: GPL-2.0

//! The MRs that the peer can reach, in one slot for each Call that has any.
//!
//! A list of MRs is put into its slot when its registrations are posted, and leaves it only as idle
//! MRs after an invalidation, or by destroying the MRs after the drain. The user of the queue pair
//! keeps its state of the Call in the slot as well, under the same lock.

use super::{
    cq::{Complete, CqContext, Cqe, RemoteInvalidation, WcStatus},
    mr::{Idle, MrList, Registered},
    qp::{QpUser, QueuePair},
};
use crate::{bindings, trace};
use core::{mem::offset_of, ptr::NonNull};
use kernel::{
    new_condvar, new_spinlock,
    prelude::*,
    sync::lock::{spinlock::SpinLockBackend, Guard},
    sync::{CondVar, SpinLock},
};

/// The MRs of one Call, and what the user keeps with them.
pub(super) struct MrSlotState<S> {
    pub(super) mrs: MrList<Registered>,
    /// Whether the invalidation of all of them was posted.
    pub(super) is_invalidating: bool,
    pub(super) data: S,
}

/// A slot. Its cqes complete the local invalidations of its MRs.
#[pin_data]
struct MrSlot<U: QpUser> {
    /// Of the last one of a chain.
    signalled: Cqe<Self>,
    /// Of the others. It reports errors.
    unsignalled: Cqe<Self, 1>,
    index: usize,
    #[pin]
    state: SpinLock<MrSlotState<U::Slot>>,
}

/// A locked slot. No MRs of its Call are registered or invalidated until it is unlocked.
///
/// # Invariants
///
/// The MRs of `state` were registered on `qp`. `state` is that of `slot`.
pub(crate) struct SlotGuard<'a, U: QpUser> {
    qp: &'a QueuePair<U>,
    slot: &'a MrSlot<U>,
    pub(super) state: Guard<'a, MrSlotState<U::Slot>, SpinLockBackend>,
}

impl<U: QpUser> SlotGuard<'_, U> {
    /// The MRs that the peer can reach.
    pub(crate) fn mrs(&self) -> &MrList<Registered> {
        &self.state.mrs
    }

    /// What the user keeps with them.
    pub(crate) fn data(&mut self) -> &mut U::Slot {
        &mut self.state.data
    }

    /// Removes the MR that the peer has invalidated, if it is one of these and no invalidation of
    /// them all is in progress.
    pub(crate) fn take_invalidated(&mut self, proof: RemoteInvalidation<'_, U>) -> MrList<Idle> {
        // A LOCAL_INV chain is posted: an emptied slot could be reused, and its completion would
        // take the new MRs.
        match proof.into_rkey(self.qp) {
            // SAFETY: `qp`, with which these MRs were registered (type invariant), has reported
            // their rkey as invalid.
            Some(rkey) if !self.state.is_invalidating => unsafe {
                self.state.mrs.take_invalidated(rkey)
            },
            _ => MrList::new(),
        }
    }

    /// Posts a local invalidation of every MR, unless that was done already, and unlocks the slot.
    /// Does not sleep. [`QpUser::localinv_done`] reports its end, if true is returned. Otherwise
    /// there are none, or they stay registered until the end of the connection, which must follow.
    pub(crate) fn post_localinv(mut self) -> bool {
        let state = &mut *self.state;
        if state.mrs.is_empty() || state.is_invalidating {
            return state.is_invalidating;
        }
        let unsignalled = <MrSlot<U> as Complete<1>>::wr_cqe(self.slot);
        let signalled = <MrSlot<U> as Complete<0>>::wr_cqe(self.slot);
        let first = state.mrs.localinvs(unsignalled, signalled);
        // SAFETY: The requests are part of the MRs, which the lock keeps in the slot during the
        // call. They refer to no memory.
        let posted = unsafe { self.qp.post_wrs(&mut self.qp.send.lock(), first) };
        state.is_invalidating = posted.is_ok();
        if let Err(error) = posted {
            trace::xprtrdma_post_linv_err(self.qp.cq_number, error);
        }
        posted.is_ok()
    }

    /// Unlocks the slot, sleeps until [`QueuePair::wake_slots`] is called, and locks it again.
    pub(crate) fn wait(&mut self) {
        self.qp.mrs.changed.wait(&mut self.state);
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
                        signalled: Cqe::new(),
                        unsignalled: Cqe::new(),
                        index,
                        state <- new_spinlock!(MrSlotState {
                            mrs: MrList::new(),
                            is_invalidating: false,
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

    /// Destroys all MRs in all slots. The send queue is closed, so no others follow. May sleep.
    pub(super) fn destroy(&self) {
        for slot in self.slots.iter() {
            let mrs = slot.state.lock().mrs.take();
            drop(mrs);
        }
    }
}

impl<U: QpUser> QueuePair<U> {
    /// Locks slot `index`.
    pub(crate) fn slot(&self, index: usize) -> Option<SlotGuard<'_, U>> {
        let slot = self.mrs.slots.get(index)?;
        // INVARIANT: `SendBox::post_with_mrs` puts MRs into the slots of their queue pair.
        Some(SlotGuard {
            qp: self,
            slot,
            state: slot.state.lock(),
        })
    }

    /// How many slots there are.
    pub(crate) fn slots(&self) -> usize {
        self.mrs.slots.len()
    }

    /// Wakes those who wait for a slot ([`SlotGuard::wait`]).
    pub(crate) fn wake_slots(&self) {
        self.mrs.changed.notify_all();
    }
}

// SAFETY: The field has this type. The invalidations of a slot are posted on its queue pair.
unsafe impl<U: QpUser> Complete for MrSlot<U> {
    type User = U;

    const OFFSET: usize = offset_of!(Self, signalled);

    unsafe fn complete(this: NonNull<Self>, cx: &mut CqContext<'_, U>, wc: &bindings::ib_wc) {
        // SAFETY: The slot is part of the queue pair, which exists.
        let slot = unsafe { this.as_ref() };
        trace::xprtrdma_wc_li_done(cx.qp().cq_number, trace::clip(slot.index), wc);
        if let Some(status) = WcStatus::failure(wc) {
            return cx.user().qp_failed(status.into());
        }
        let mut state = slot.state.lock();
        let mrs = state.mrs.take();
        state.is_invalidating = false;
        drop(state);
        // SAFETY: LOCAL_INVs are executed in order, and one that fails ends the queue pair; the
        // last one succeeded.
        let mrs = unsafe { mrs.invalidated() };
        U::localinv_done(cx, slot.index, mrs);
    }
}

// SAFETY: The field has this type. The invalidations of a slot are posted on its queue pair.
unsafe impl<U: QpUser> Complete<1> for MrSlot<U> {
    type User = U;

    const OFFSET: usize = offset_of!(Self, unsignalled);

    unsafe fn complete(this: NonNull<Self>, cx: &mut CqContext<'_, U>, wc: &bindings::ib_wc) {
        if let Some(status) = WcStatus::failure(wc) {
            // SAFETY: The slot is part of the queue pair, which exists.
            let slot = unsafe { this.as_ref() };
            trace::xprtrdma_wc_unsignaled(cx.qp().cq_number, trace::clip(slot.index), wc);
            cx.user().qp_failed(status.into());
        }
    }
}
