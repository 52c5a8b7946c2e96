// SPDX-License-Identifier: GPL-2.0

//! The memory regions and slots of a connection that no Call uses.

use super::{frwr::CallMrs, limits::EpLimits, transport::Client};
use crate::{
    rdma::{Exposable, Idle, Mr, MrList, MrType, Pd, RegionSize},
    sunrpc::{client::Rqst, ReclaimScope},
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
    pub(super) size: RegionSize,
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
    fn push(&mut self, mr: KBox<Mr<Idle>>) {
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
        let slot_count = limits.caps.slots as usize;
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
        for _ in 0..limits.mrs_per_call {
            state.push(Mr::new(pd, mr_type, pages)?);
            transport.stats.regions_allocated.increment();
        }
        state.made = state.count;
        trace::xprtrdma_createmrs(&transport.xprt, limits.mrs_per_call);
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

    /// Takes a slot and `count` MRs for the Call `rqst`. If there are not enough, the sender waits
    /// for space. The worker is asked for more before no MR is idle.
    pub(super) fn take(self: &Arc<Self>, rqst: &Rqst, count: usize) -> Option<CallMrs<'_>> {
        let mut state = self.state.lock();
        let is_enough = state.count >= count;
        let slot = if is_enough { state.slots.pop() } else { None };
        let mut idle = MrList::new();
        if slot.is_some() {
            for mr in (0..count).map_while(|_| state.idle.pop_front()) {
                idle.push_front(mr);
            }
            state.count = state.count.saturating_sub(count);
        }
        state.is_low |= !is_enough || state.count < BATCH;
        let is_low = state.is_low;
        if slot.is_none() {
            // Under the lock: whoever returns MRs or a slot after this wakes the sender.
            self.transport.xprt.wait_for_space();
        }
        drop(state);
        if is_low {
            // An error means that the worker is already queued.
            let _ = self.transport.xprt.queue().enqueue::<_, 0>(self.clone());
        }
        if slot.is_none() {
            self.transport.stats.regions_exhausted.increment();
            trace::xprtrdma_nomrs_err(&self.transport.xprt, rqst);
        }
        Some(CallMrs::new(self, rqst.xid(), slot?, idle))
    }

    /// Returns MRs, and a slot if given.
    pub(super) fn put(&self, mut mrs: MrList<Idle>, slot: Option<usize>) {
        let mut state = self.state.lock();
        if let Some(slot) = slot {
            // There is room: the list once held all slots.
            let _ = state.slots.push_within_capacity(slot);
        }
        while !state.is_closed {
            let Some(mr) = mrs.pop_front() else {
                break;
            };
            state.push(mr);
        }
        // What is left is destroyed outside the lock.
        drop(state);
        drop(mrs);
    }

    /// Destroys all MRs for good. May sleep.
    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        state.count = 0;
        let idle = state.idle.take();
        drop(state);
        drop(idle);
    }

    /// Whether one MR can map all of these parts, which takes an MR with gaps. Parts whose memory
    /// is kept allocated in different ways cannot share an MR.
    pub(super) fn holds(&self, parts: &[Option<Exposable<'_>>]) -> bool {
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
        let batch = if mem::take(&mut state.is_low) {
            state.made.clamp(BATCH, MAX_BATCH)
        } else {
            0
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
