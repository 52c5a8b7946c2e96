// SPDX-License-Identifier: GPL-2.0

//! Memory registration by work requests (FRWR): the mapping of a Call's memory, and the fence.
//!
//! A Call with chunks has a slot of the queue pair, which holds its registered MRs and a
//! [`SlotState`] under one lock:
//!
//! ```text
//! Free         -> Offered       the Send is posted
//! Offered      -> Free          the Reply has invalidated all MRs
//! Offered      -> Invalidating  the Reply has not, or the task was killed
//! Invalidating -> Replied       a Reply waits for the LOCAL_INVs, whose completion completes
//!                               the RPC
//! Invalidating, Replied -> Free the LOCAL_INVs have completed
//! any          -> Closed        the connection has ended
//! ```
//!
//! If LOCAL_INV cannot be posted, the MRs stay in the slot until [`shut_down`]. An RPC that waits
//! for them is then sent again.

use super::{ep::Ep, mr_pool::MrPool, reply::PendingReply};
use crate::{
    error::Cause,
    proto::{
        requester::plan::{CallForm, Plan, ReplyForm, Segments},
        v2::requester::RequesterEvent,
        wire::header::Xid,
    },
    rdma::{Exposable, Idle, Mapped, MrList, QpOwner, QueuePair, Registered, RemoteInvalidation},
    sunrpc::client::{ForwardRqst, Rqst, RqstBuf, SendError},
    trace,
};
use core::{iter::once, mem};
use kernel::{dma::DataDirection, prelude::*, sync::Arc};

/// A message whose chunks need MRs, one for each segment.
pub(super) struct Payload<'a> {
    pub(super) message: RqstBuf<'a>,
    pub(super) pool: &'a MrPool,
}

impl Payload<'_> {
    /// A count that does not fit makes the plan fail: no list has that many segments.
    fn count(&self, part: Option<Exposable<'_>>) -> u32 {
        part.map_or(0, |part| {
            u32::try_from(part.region_count(self.pool.size)).unwrap_or(u32::MAX)
        })
    }
}

impl Segments for Payload<'_> {
    fn pages(&self) -> u32 {
        self.count(self.message.pages())
    }

    fn all(&self) -> u64 {
        let parts = self.message.parts();
        if self.pool.fits_one_mr(&parts) {
            return 1;
        }
        let counts = parts.map(|part| u64::from(self.count(part)));
        counts.into_iter().fold(0, u64::saturating_add)
    }
}

/// The slot and the MRs of a Call that is about to be sent. They are returned to the pool if it is
/// not.
pub(super) struct CallMrs<'a> {
    pool: &'a MrPool,
    xid: u32,
    /// None for a Call without chunks.
    pub(super) slot: Option<usize>,
    idle: MrList<Idle>,
    /// In the order of the Call's lists.
    pub(super) mapped: MrList<Mapped>,
}

impl<'a> CallMrs<'a> {
    /// The slot and MRs that were acquired from `pool` for the Call `xid`.
    pub(super) fn new(pool: &'a MrPool, xid: u32, slot: Option<usize>, idle: MrList<Idle>) -> Self {
        Self {
            pool,
            xid,
            slot,
            idle,
            mapped: MrList::new(),
        }
    }

    /// Maps the parts of the Call, and of the buffer for its Reply, that the plan names.
    ///
    /// # Errors
    ///
    /// [`SendError::NoMemory`] or [`SendError::Failed`].
    pub(super) fn map(
        &mut self,
        call: RqstBuf<'_>,
        reply: RqstBuf<'_>,
        plan: &Plan,
    ) -> Result<(), SendError> {
        match plan.call {
            CallForm::Inline => {}
            CallForm::ReadChunk { .. } => self.map_part(call.pages(), DataDirection::ToDevice)?,
            CallForm::PositionZero => self.map_whole(call, DataDirection::ToDevice)?,
        }
        match plan.reply {
            ReplyForm::Inline => Ok(()),
            ReplyForm::WriteChunk => self.map_part(reply.pages(), DataDirection::FromDevice),
            ReplyForm::ReplyChunk => self.map_whole(reply, DataDirection::FromDevice),
        }
    }

    /// Maps a message into one MR, if it can have gaps, or part by part.
    fn map_whole(
        &mut self,
        message: RqstBuf<'_>,
        direction: DataDirection,
    ) -> Result<(), SendError> {
        let parts = message.parts();
        if self.pool.fits_one_mr(&parts) {
            return self.map_pieces(parts.iter().flatten(), direction);
        }
        parts
            .into_iter()
            .try_for_each(|part| self.map_part(part, direction))
    }

    /// Maps a part, if there is one, into as many MRs as it needs.
    fn map_part(
        &mut self,
        mut next: Option<Exposable<'_>>,
        direction: DataDirection,
    ) -> Result<(), SendError> {
        while let Some(mut part) = next {
            next = part.split_off(self.pool.size);
            self.map_pieces(once(&part), direction)?;
        }
        Ok(())
    }

    /// Maps pieces of memory into one MR. There is one: the MRs were counted from the same parts.
    fn map_pieces<'b>(
        &mut self,
        pieces: impl Iterator<Item = &'b Exposable<'b>> + Clone,
        direction: DataDirection,
    ) -> Result<(), SendError> {
        self.idle
            .map_first(&mut self.mapped, pieces, direction, self.xid)
            .map_err(|error| match error {
                ENOMEM => SendError::NoMemory,
                _ => SendError::Failed,
            })
    }
}

impl Drop for CallMrs<'_> {
    fn drop(&mut self) {
        if self.slot.is_some() || !self.idle.is_empty() {
            let mut mrs = self.mapped.take().unmap();
            mrs.append(&mut self.idle);
            self.pool.put(mrs, self.slot);
        }
    }
}

/// The state of a slot, and what it keeps of its Call.
#[derive(Default)]
pub(crate) enum SlotState {
    /// No Call has the slot, which is empty.
    #[default]
    Free,
    /// The peer may use the MRs, as planned.
    Offered(Plan),
    /// The MRs are being invalidated: the task is gone, or its Reply is being handled.
    Invalidating,
    /// The completion of the LOCAL_INVs completes the RPC.
    Replied(PendingReply),
    /// The connection has ended, and its MRs are destroyed.
    Closed,
}

impl SlotState {
    /// `Offered` to `Invalidating`: takes the plan; returns `None` in any other state.
    fn take_plan(&mut self) -> Option<Plan> {
        let Self::Offered(plan) = *self else {
            return None;
        };
        *self = Self::Invalidating;
        Some(plan)
    }
}

/// How many MRs the peer may use, and how many are being invalidated.
pub(super) fn count(qp: &QueuePair<Ep>) -> (u32, u32) {
    let (mut offered, mut invalidating) = (0u32, 0u32);
    for mut slot in (0..qp.slots()).filter_map(|index| qp.slot(index)) {
        let count = match slot.data() {
            SlotState::Offered(_) => &mut offered,
            SlotState::Invalidating | SlotState::Replied(_) => &mut invalidating,
            SlotState::Free | SlotState::Closed => continue,
        };
        *count = count.saturating_add(slot.mrs().len());
    }
    (offered, invalidating)
}

/// `Offered` to `Invalidating`, or to `Free` if the Reply has invalidated all MRs: `compare`
/// compares the MRs with the Reply, and the MR that `proof` is for returns to the pool. Returns
/// whether the slot is free; `None` if the Call already had a Reply, or is gone.
pub(super) fn reminv(
    qp: &QueuePair<Ep>,
    index: usize,
    proof: Option<RemoteInvalidation<'_, Ep>>,
    compare: impl FnOnce(&Plan, &MrList<Registered>),
) -> Option<bool> {
    let ep = qp.user();
    let mut slot = qp.slot(index)?;
    let plan = slot.data().take_plan()?;
    compare(&plan, slot.mrs());
    let idle = proof.map_or(MrList::new(), |proof| slot.take_invalidated(proof));
    let is_free = slot.mrs().is_empty();
    if is_free {
        *slot.data() = SlotState::Free;
    }
    drop(slot);
    if !idle.is_empty() {
        ep.transport.stats.remote_invalidations.increment();
        ep.mrs.put(idle, is_free.then_some(index));
    }
    Some(is_free)
}

/// Posts LOCAL_INVs for the MRs of an `Invalidating` slot. Their completion completes the RPC, if
/// there is a Reply, with which the slot is `Replied`.
pub(super) fn localinv(qp: &QueuePair<Ep>, index: usize, reply: Option<PendingReply>) {
    let ep = qp.user();
    let Some(mut slot) = qp.slot(index) else {
        return;
    };
    if let Some(reply) = reply {
        *slot.data() = SlotState::Replied(reply);
    }
    let count = slot.mrs().len();
    if slot.post_localinv() {
        ep.transport.stats.local_invalidations.add(count.into());
    } else {
        ep.state.force_disconnect(Cause::PostFailed);
    }
}

/// `Invalidating` or `Replied` to `Free`, after the LOCAL_INVs; returns the RPC to be completed
/// now, if there is one.
pub(super) fn localinv_done(
    qp: &QueuePair<Ep>,
    index: usize,
    mrs: MrList<Idle>,
) -> Option<PendingReply> {
    let state = qp.slot(index).map(|mut slot| mem::take(slot.data()));
    qp.wake_slots();
    qp.user().mrs.put(mrs, Some(index));
    match state? {
        SlotState::Replied(reply) => Some(reply),
        _ => None,
    }
}

/// Waits until the peer has lost access to the memory of the Call `rqst`, whose task is gone. May
/// sleep.
pub(super) fn fence(qp: &QueuePair<Ep>, rqst: &Rqst) {
    let ep = qp.user();
    let slot = ep.cookie_value(rqst.ep_cookie());
    let Some(index) = slot.and_then(|slot| slot.checked_sub(1)) else {
        return;
    };
    let plan = qp.slot(index).and_then(|mut slot| slot.data().take_plan());
    if plan.is_some() {
        trace::xprtrdma_mrs_zap(ep.transport.xprt.id(), rqst);
        if let Some(v2) = &ep.v2 {
            v2.handle(RequesterEvent::Abandoned(Xid(rqst.xid())));
        }
        localinv(qp, index, None);
    }
    if let Some(mut slot) = qp.slot(index) {
        // Memory that is lost stays exposed.
        while !rqst.exposure().is_over() && !matches!(slot.data(), SlotState::Closed) {
            slot.wait();
        }
    }
}

/// Ends a connection, and waits until the peer has lost all access to this host's memory. Calls
/// that wait for a Reply continue to wait, for the next connection. May sleep.
pub(super) fn shut_down(owner: QpOwner<Ep>) {
    let qp = Arc::clone(&owner);
    drop(owner);
    // The MRs have been destroyed. Each state is dropped after its slot is unlocked.
    for index in 0..qp.slots() {
        drop((qp.slot(index)).map(|mut slot| mem::replace(slot.data(), SlotState::Closed)));
    }
    qp.wake_slots();
}
