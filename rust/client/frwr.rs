// SPDX-License-Identifier: GPL-2.0

//! Memory registration by work requests (FRWR): the idle MRs of a connection, the mapping of a
//! Call's memory, and the fence.
//!
//! A Call with chunks has a slot of the queue pair, which holds its registered MRs and a [`Req`]
//! under one lock. A slot is in one of these states:
//!
//! 1. Free: no MRs.
//! 2. Offered: the peer may use the MRs. From the Send to the Reply.
//! 3. Replied: LOCAL_INVs are posted; their completion completes the RPC.
//! 4. Abandoned: the task is gone, or the Reply is being handled; in either case the MRs are being
//!    invalidated.
//! 5. Stuck: the MRs could not be invalidated. They wait for the connection to end, which is
//!    imminent.
//!
//! A Reply that invalidates all MRs leads from 2 to 1, and a completion from 3 or 4 to 1 or 5. The
//! end of the connection leads from any state to 1.

use super::{
    ep::{Ep, SentCall},
    limits::EpLimits,
    reply::PendingReply,
    transport::Client,
};
use crate::{
    error::Cause,
    proto::{
        requester::plan::{CallForm, Plan, ReplyForm, Segments},
        wire::header::Xid,
    },
    rdma::{
        Access, Exposable, Idle, OldInvalidation as Invalidation, Mapped, Mr, MrList, MrType, OldQueuePair as QueuePair, Pd,
        RegionSize, Registered, RemoteInvalidation, Sender,
    },
    sunrpc::{
        client::{Rqst, RqstBuf, SendError},
        ReclaimScope,
    },
    trace,
};
use core::{mem, num::NonZeroUsize};
use kernel::{
    impl_has_work, new_spinlock, new_work,
    page::PAGE_SIZE,
    prelude::*,
    sync::{Arc, SpinLock},
    time::{delay::fsleep, Delta},
    workqueue::{Work, WorkItem},
};

/// The fewest MRs that one run of the worker allocates. With fewer idle MRs than this, it is asked
/// for more.
const BATCH: usize = 8;

/// The most MRs that one run of the worker allocates, as Calls are waiting for it.
const MAX_BATCH: usize = 32;

/// How long the worker waits after a failure.
const PAUSE: Delta = Delta::from_millis(100);

/// The MRs and slots that no Call uses, and the worker that allocates more MRs.
#[pin_data]
pub(super) struct MrPool {
    pd: Arc<Pd>,
    pub(super) mr_type: MrType,
    /// Pages of one MR; with gaps, pieces.
    pub(super) pages: u32,
    size: RegionSize,
    #[pin]
    state: SpinLock<State>,
    #[pin]
    work: Work<MrPool>,
    /// Last: this may be the last reference to the transport, and to the module.
    transport: Arc<Client>,
}

struct State {
    idle: MrList<Idle>,
    /// How many are in `idle`.
    count: usize,
    /// How many exist, including those in use.
    made: usize,
    /// Whether the worker should allocate more.
    is_low: bool,
    /// The numbers of the free slots.
    slots: KVVec<usize>,
    /// Whether the connection has ended, so that MRs are no longer kept.
    is_closed: bool,
}

impl State {
    fn push(&mut self, mr: Mr<Idle>) {
        self.idle.push_front(mr);
        self.count = self.count.saturating_add(1);
    }
}

impl_has_work! {
    impl HasWork<Self> for MrPool { self.work }
}

impl MrPool {
    /// Allocates as many MRs as a Call can take. The queue pair has a slot for each request. May
    /// sleep.
    ///
    /// # Errors
    ///
    /// Those of [`Mr::new`].
    pub(super) fn new(
        transport: &Arc<Client>,
        pd: &Arc<Pd>,
        limits: &EpLimits,
    ) -> Result<Arc<Self>> {
        let (mr_type, pages) = (limits.mr_type, limits.mr_pages);
        // CAST: A u32 always fits the kernel's usize.
        let bytes = NonZeroUsize::new((pages as usize).saturating_mul(PAGE_SIZE)).ok_or(EINVAL)?;
        // CAST: As above.
        let slot_count = limits.sizes.slots as usize;
        let mut slots = KVVec::with_capacity(slot_count, GFP_KERNEL)?;
        for index in 0..slot_count {
            slots.push_within_capacity(index).map_err(|_| ENOMEM)?;
        }
        let mut state = State {
            idle: MrList::new(),
            count: 0,
            made: 0,
            is_low: false,
            slots,
            is_closed: false,
        };
        for _ in 0..limits.sizes.regions {
            state.push(Mr::new(pd, mr_type, pages)?);
            transport.stats.regions_allocated.increment();
        }
        state.made = state.count;
        trace::xprtrdma_createmrs(&transport.xprt, limits.sizes.regions);
        Arc::pin_init(
            try_pin_init!(Self {
                pd: pd.clone(),
                mr_type,
                pages,
                size: RegionSize {
                    bytes,
                    is_bounced: pd.device().is_bounced(),
                },
                state <- new_spinlock!(state, "rpcrdma_mrs"),
                work <- new_work!("rpcrdma_mrs"),
                transport: transport.clone(),
            }? Error),
            GFP_KERNEL,
        )
    }

    /// How many MRs no Call uses.
    pub(super) fn idle(&self) -> usize {
        self.state.lock().count
    }

    /// Takes a slot and `count` MRs for the Call `rqst`; returns `None` if there are not enough.
    /// The worker is asked for more before no MR is idle.
    pub(super) fn take(self: &Arc<Self>, rqst: &Rqst, count: usize) -> Option<CallMrs<'_>> {
        let mut state = self.state.lock();
        let is_enough = state.count >= count;
        let slot = if is_enough { state.slots.pop() } else { None };
        let mut idle = MrList::new();
        if slot.is_some() {
            for mr in (0..count).map_while(|_| state.idle.pop()) {
                idle.push_front(mr);
            }
            state.count = state.count.saturating_sub(count);
        }
        state.is_low |= !is_enough || state.count < BATCH;
        let is_low = state.is_low;
        drop(state);
        if is_low {
            // An error means that the worker is already queued.
            let _ = self.transport.xprt.queue().enqueue::<_, 0>(self.clone());
        }
        if slot.is_none() {
            self.transport.stats.regions_exhausted.increment();
            trace::xprtrdma_nomrs_err(&self.transport.xprt, rqst);
        }
        Some(CallMrs {
            pool: self,
            xid: rqst.xid(),
            slot: Some(slot?),
            idle,
            mapped: MrList::new(),
        })
    }

    /// Returns MRs, and a slot if given.
    fn put(&self, mut mrs: MrList<Idle>, slot: Option<usize>) {
        let mut state = self.state.lock();
        if let Some(slot) = slot {
            // There is room: the list once held all slots.
            let _ = state.slots.push_within_capacity(slot);
        }
        while !state.is_closed {
            let Some(mr) = mrs.pop() else {
                break;
            };
            state.push(mr);
        }
        // What is left is destroyed outside the lock.
        drop(state);
        drop(mrs);
    }

    /// Destroys all MRs for good. May sleep.
    fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        state.count = 0;
        let idle = mem::replace(&mut state.idle, MrList::new());
        drop(state);
        drop(idle);
    }

    /// Whether one MR can map all of these parts, which takes an MR with gaps. Parts whose memory
    /// is kept allocated in different ways cannot share an MR.
    fn holds(&self, parts: &[Option<Exposable<'_>>]) -> bool {
        if self.mr_type != MrType::SgGaps || parts.iter().flatten().any(Exposable::is_counted) {
            return false;
        }
        let pieces = parts.iter().flatten().fold(0, |sum: usize, part| {
            sum.saturating_add(part.element_count())
        });
        // CAST: A u32 always fits the kernel's usize.
        pieces <= self.pages as usize
    }
}

impl WorkItem for MrPool {
    type Pointer = Arc<Self>;

    /// Allocates as many MRs as exist, in one batch, so that many Calls soon find theirs.
    fn run(this: Arc<Self>) {
        let _scope = ReclaimScope::enter(this.transport.xprt.is_swapper());
        let mut state = this.state.lock();
        let batch = match mem::take(&mut state.is_low) {
            true => state.made.clamp(BATCH, MAX_BATCH),
            false => 0,
        };
        drop(state);
        let mut made = 0u32;
        for _ in 0..batch {
            // The next sender that needs MRs asks again, though not at once.
            let Ok(mr) = Mr::new(&this.pd, this.mr_type, this.pages) else {
                fsleep(PAUSE);
                break;
            };
            this.transport.stats.regions_allocated.increment();
            made = made.saturating_add(1);
            let mut state = this.state.lock();
            if state.is_closed {
                // Destroyed outside the lock.
                drop(state);
                drop(mr);
                break;
            }
            state.made = state.made.saturating_add(1);
            state.push(mr);
        }
        trace::xprtrdma_createmrs(&this.transport.xprt, made);
        this.transport.xprt.write_space();
    }
}

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
        if self.pool.holds(&parts) {
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
    slot: Option<usize>,
    idle: MrList<Idle>,
    /// In the order of the Call's lists.
    pub(super) mapped: MrList<Mapped>,
}

impl CallMrs<'_> {
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
            CallForm::ReadChunk { .. } => self.map_part(call.pages(), Access::RemoteRead)?,
            CallForm::PositionZero => self.map_whole(call, Access::RemoteRead)?,
        }
        match plan.reply {
            ReplyForm::Inline => Ok(()),
            ReplyForm::WriteChunk => self.map_part(reply.pages(), Access::RemoteWrite),
            ReplyForm::ReplyChunk => self.map_whole(reply, Access::RemoteWrite),
        }
    }

    /// Maps a message into one MR, if it can have gaps, or part by part.
    fn map_whole(&mut self, message: RqstBuf<'_>, access: Access) -> Result<(), SendError> {
        let parts = message.parts();
        if self.pool.holds(&parts) {
            let mr = self.idle.pop().ok_or(SendError::Failed)?;
            return self.keep(mr.map_all(parts.iter().flatten(), access, self.xid));
        }
        parts
            .into_iter()
            .try_for_each(|part| self.map_part(part, access))
    }

    /// Maps a part, if there is one, into as many MRs as it needs.
    fn map_part(
        &mut self,
        mut next: Option<Exposable<'_>>,
        access: Access,
    ) -> Result<(), SendError> {
        while let Some(mut part) = next {
            next = part.split_off(self.pool.size);
            // The MRs were counted from the same parts.
            let mr = self.idle.pop().ok_or(SendError::Failed)?;
            self.keep(mr.map(&part, access, self.xid))?;
        }
        Ok(())
    }

    /// Moves an MR to the list where it belongs after the attempt to map it.
    fn keep(&mut self, mr: Result<Mr<Mapped>, (Mr<Idle>, Error)>) -> Result<(), SendError> {
        let (mr, error) = match mr {
            Ok(mr) => {
                self.mapped.push_back(mr);
                return Ok(());
            }
            Err(failed) => failed,
        };
        self.idle.push_front(mr);
        Err(match error {
            ENOMEM => SendError::NoMemory,
            _ => SendError::Failed,
        })
    }

    /// The slot and the mapped MRs, which are about to be registered.
    pub(super) fn into_parts(mut self) -> Option<(usize, MrList<Mapped>)> {
        let mapped = mem::replace(&mut self.mapped, MrList::new());
        Some((self.slot.take()?, mapped))
    }
}

impl Drop for CallMrs<'_> {
    fn drop(&mut self) {
        let mapped = mem::replace(&mut self.mapped, MrList::new());
        let idle = mem::replace(&mut self.idle, MrList::new());
        if !idle.is_empty() {
            self.pool.put(idle, None);
        }
        if self.slot.is_some() {
            self.pool.put(mapped.unmap(), self.slot);
        }
    }
}

/// What a slot keeps of its Call.
#[derive(Default)]
pub(super) struct Req {
    xid: u32,
    state: ReqState,
}

#[derive(Default)]
enum ReqState {
    #[default]
    Free,
    Offered(Plan),
    Replied(PendingReply),
    Abandoned,
    Stuck,
}

impl Req {
    /// State 1 to 2: the Call `xid` offers MRs as planned.
    pub(super) fn offer(&mut self, xid: u32, plan: Plan) {
        self.xid = xid;
        self.state = ReqState::Offered(plan);
    }

    /// State 2 to 4: takes the plan of the Call `xid`; returns `None` if that was done before, or
    /// if the slot now belongs to another Call.
    fn abandon(&mut self, xid: u32) -> Option<Plan> {
        match self.state {
            ReqState::Offered(plan) if self.xid == xid => {
                self.state = ReqState::Abandoned;
                Some(plan)
            }
            _ => None,
        }
    }
}

/// Numbers of MRs, by the state of their slot.
#[derive(Default)]
pub(super) struct Counts {
    /// State 2.
    pub(super) offered: usize,
    /// States 3 and 4.
    pub(super) invalidating: usize,
    /// State 5.
    pub(super) stuck: usize,
}

/// Counts MRs by the state of their slot.
pub(super) fn count(qp: &QueuePair<Ep>) -> Counts {
    let mut counts = Counts::default();
    for mut slot in (0..qp.slots()).filter_map(|index| qp.slot(index)) {
        let len = slot.regions().len();
        let count = match slot.user().state {
            ReqState::Free => continue,
            ReqState::Offered(_) => &mut counts.offered,
            ReqState::Replied(_) | ReqState::Abandoned => &mut counts.invalidating,
            ReqState::Stuck => &mut counts.stuck,
        };
        *count = count.saturating_add(len);
    }
    counts
}

/// Changes the state of a slot that is not free; returns the old state, or `new` if the slot is
/// free. Neither may be dropped under the lock.
fn replace(qp: &QueuePair<Ep>, index: usize, new: ReqState) -> ReqState {
    let Some(mut slot) = qp.slot(index) else {
        return new;
    };
    let req = slot.user();
    if matches!(req.state, ReqState::Free) {
        drop(slot);
        return new;
    }
    let old = mem::replace(&mut req.state, new);
    let is_free = matches!(req.state, ReqState::Free);
    drop(slot);
    if is_free {
        qp.context().slots_freed.notify_all();
    }
    old
}

/// What a Reply has found of its Call's MRs.
pub(super) struct Taken<R> {
    pub(super) plan: Plan,
    /// The result of `look`.
    pub(super) seen: R,
    /// Whether the Reply has invalidated all MRs, so that the slot is free.
    pub(super) is_free: bool,
}

/// State 2 to 4, or to 1 if the Reply has invalidated all MRs: `look` compares the MRs with the
/// Reply to the Call `xid`, and the MR that `proof` is for returns to the pool. Returns `None` if
/// the Call already had a Reply, or is gone.
pub(super) fn reminv<R>(
    qp: &QueuePair<Ep>,
    (index, xid): (usize, u32),
    proof: Option<RemoteInvalidation<'_>>,
    look: impl FnOnce(&Plan, &MrList<Registered>) -> R,
) -> Option<Taken<R>> {
    let ep = qp.context();
    let mut slot = qp.slot(index)?;
    let plan = slot.user().abandon(xid)?;
    let seen = look(&plan, slot.regions());
    let mut idle = MrList::new();
    if let Some(mr) = proof.and_then(|proof| slot.take_invalidated(proof)) {
        ep.transport.stats.remote_invalidations.increment();
        idle.push_front(mr);
    }
    let is_free = slot.regions().is_empty();
    drop(slot);
    if is_free {
        drop(replace(qp, index, ReqState::Free));
    }
    if is_free || !idle.is_empty() {
        ep.mrs.put(idle, is_free.then_some(index));
    }
    Some(Taken {
        plan,
        seen,
        is_free,
    })
}

/// State 4 to 3: posts LOCAL_INVs for the MRs that the Reply has not invalidated. Their completion
/// completes the RPC. A `reply` of `None` has none to complete.
pub(super) fn unmap(qp: &QueuePair<Ep>, index: usize, reply: Option<PendingReply>) {
    let ep = qp.context();
    if let Some(reply) = reply {
        drop(replace(qp, index, ReqState::Replied(reply)));
    }
    let count = qp.slot(index).map_or(0, |slot| slot.regions().len());
    if qp.invalidate(index) == Invalidation::Posted {
        ep.transport.stats.local_invalidations.add_len(count);
    } else {
        keep_until_end(qp, index);
        ep.wait.close(Cause::PostFailed);
    }
}

/// State 3 or 4 to 1, after the LOCAL_INVs; returns the RPC to be completed now, if there is one.
pub(super) fn unmapped(
    qp: &QueuePair<Ep>,
    index: usize,
    mrs: MrList<Idle>,
) -> Option<PendingReply> {
    let old = replace(qp, index, ReqState::Free);
    let slot = (!matches!(old, ReqState::Free)).then_some(index);
    qp.context().mrs.put(mrs, slot);
    match old {
        ReqState::Replied(reply) => Some(reply),
        _ => None,
    }
}

/// To state 5, unless the connection has ended. The RPC is not completed; it is sent again on the
/// next connection.
pub(super) fn keep_until_end(qp: &QueuePair<Ep>, index: usize) {
    drop(replace(qp, index, ReqState::Stuck));
}

/// Waits until the peer has lost access to the memory of the Call `rqst`, whose task is gone. May
/// sleep.
pub(super) fn fence(qp: &QueuePair<Ep>, cookie: u64, rqst: &Rqst) {
    let (ep, xid) = (qp.context(), rqst.xid());
    let Some(SentCall::WithChunks(index)) = ep.sent(cookie) else {
        return;
    };
    let is_offered = qp
        .slot(index)
        .is_some_and(|mut slot| slot.user().abandon(xid).is_some());
    if is_offered {
        trace::xprtrdma_mrs_zap(&ep.transport.xprt, rqst);
        if let Some(v2) = &ep.v2 {
            v2.abandoned(Xid(xid));
        }
        unmap(qp, index, None);
    }
    if let Some(mut slot) = qp.slot(index) {
        while slot.user().xid == xid && !matches!(slot.user().state, ReqState::Free) {
            slot.wait(&ep.slots_freed);
        }
    }
}

/// Ends a connection, and waits until the peer has lost all access to this host's memory. Calls
/// that wait for a Reply continue to wait, for the next connection. May sleep.
pub(super) fn shut_down(sender: Sender<Ep>) {
    let qp = sender.qp().clone();
    let ep = qp.context();
    ep.wait.expect_end();
    drop(sender);
    ep.mrs.close();
    // Their MRs have been destroyed.
    for index in 0..qp.slots() {
        drop(replace(&qp, index, ReqState::Free));
    }
}
