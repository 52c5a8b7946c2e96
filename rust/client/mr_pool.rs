// SPDX-License-Identifier: GPL-2.0

//! The MRs and slots of a connection that no Call uses.

use super::{frwr::CallMrs, limits::EpLimits, transport::RpcrdmaXprt};
use crate::{
    rdma::{Exposable, Idle, Mr, MrList, MrType, Pd, RegionSize},
    sunrpc::client::{ForwardRqst, Rqst},
    trace,
};
use kernel::{
    impl_has_work, new_spinlock, new_work,
    page::PAGE_SIZE,
    prelude::*,
    sync::{Arc, SpinLock},
    time::{delay::fsleep, Delta},
    workqueue::{Work, WorkItem},
};

/// The worker runs when fewer MRs than this are idle.
const LOW: u32 = 8;

/// The worker allocates MRs until this many are idle, or as many as a Call can take.
const FULL: u32 = 16;

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
    /// MRs that a Call can take.
    mrs_per_call: u32,
    #[pin]
    free: SpinLock<Free>,
    #[pin]
    work: Work<MrPool>,
    /// Last: this may be the last reference to the transport, and to the module.
    transport: Arc<RpcrdmaXprt>,
}

struct Free {
    mrs: MrList<Idle>,
    /// Numbers of slots.
    slots: KVVec<usize>,
}

impl_has_work! {
    impl HasWork<Self> for MrPool { self.work }
}

impl MrPool {
    /// Allocates as many MRs as a Call can take. May sleep.
    ///
    /// # Errors
    ///
    /// Those of [`Mr::new`], or `ENOMEM`.
    pub(super) fn new(
        transport: &Arc<RpcrdmaXprt>,
        pd: &Arc<Pd>,
        limits: &EpLimits,
    ) -> Result<Arc<Self>> {
        // CAST: A u32 always fits the kernel's usize.
        let bytes = (limits.mr_pages as usize).saturating_mul(PAGE_SIZE);
        let mut slots = KVVec::new();
        // CAST: A u32 always fits the kernel's usize.
        for slot in 0..limits.caps.slots as usize {
            slots.push(slot, GFP_KERNEL)?;
        }
        let free = Free {
            mrs: MrList::new(),
            slots,
        };
        let pool = Arc::pin_init(
            try_pin_init!(Self {
                pd: pd.clone(),
                mr_type: limits.mr_type,
                pages: limits.mr_pages,
                size: RegionSize {
                    bytes,
                    is_bounced: limits.mr_type == MrType::MemReg && pd.device().is_bounced(),
                },
                mrs_per_call: limits.mrs_per_call,
                free <- new_spinlock!(free, "rpcrdma_mrs"),
                work <- new_work!("rpcrdma_mrs"),
                transport: transport.clone(),
            }? Error),
            GFP_KERNEL,
        )?;
        pool.fill(pool.mrs_per_call)?;
        Ok(pool)
    }

    /// How many MRs no Call uses.
    pub(super) fn idle(&self) -> u32 {
        self.free.lock().mrs.len()
    }

    /// Allocates MRs until `count` are idle. Wakes the sender for each of them.
    fn fill(&self, count: u32) -> Result {
        let mut made = 0u32;
        let mut filled = Ok(());
        while filled.is_ok() && self.idle() < count {
            filled = Mr::new(&self.pd, self.mr_type, self.pages).map(|mr| {
                let mut mrs = MrList::new();
                mrs.push_front(mr);
                self.transport.stats.regions_allocated.increment();
                self.put(mrs, None);
                self.transport.xprt.write_space();
                made = made.saturating_add(1);
            });
        }
        trace::xprtrdma_createmrs(self.transport.xprt.id(), made);
        filled
    }

    /// Acquires a slot and `count` MRs for the Call `rqst`. If there are not enough, the sender
    /// waits for space. Queues the worker when fewer than [`LOW`] are left.
    pub(super) fn acquire(self: &Arc<Self>, rqst: &Rqst, count: u32) -> Option<CallMrs<'_>> {
        let mut free = self.free.lock();
        let is_enough = free.mrs.len() >= count;
        let slot = if is_enough { free.slots.pop() } else { None };
        let mut mrs = MrList::new();
        if slot.is_some() {
            for mr in (0..count).map_while(|_| free.mrs.pop_front()) {
                mrs.push_front(mr);
            }
        } else {
            // Under the lock: what is put after this wakes the sender.
            self.transport.xprt.wait_for_space();
        }
        let is_low = !is_enough || free.mrs.len() < LOW;
        drop(free);
        if is_low {
            // An error means that the worker is already queued.
            let _ = self.transport.xprt.user().enqueue(self.clone());
        }
        if slot.is_none() {
            self.transport.stats.regions_exhausted.increment();
            trace::xprtrdma_nomrs_err(self.transport.xprt.id(), rqst);
        }
        Some(CallMrs::new(self, rqst.xid(), Some(slot?), mrs))
    }

    /// Returns MRs and, if there is one, a slot.
    pub(super) fn put(&self, mut mrs: MrList<Idle>, slot: Option<usize>) {
        let mut free = self.free.lock();
        if let Some(slot) = slot {
            // The capacity suffices: the list once held all slots.
            let _ = free.slots.push_within_capacity(slot);
        }
        // The last ones are used again first.
        mrs.append(&mut free.mrs);
        free.mrs = mrs;
    }

    /// Whether one MR can map all of these parts, which takes an MR with gaps. Parts whose memory
    /// is kept allocated in different ways cannot share an MR.
    pub(super) fn fits_one_mr(&self, parts: &[Option<Exposable<'_>>]) -> bool {
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

    fn run(this: Arc<Self>) {
        let _scope = this.transport.xprt.reclaim_scope();
        // The next sender that needs MRs queues this again, after the pause.
        if this.fill(this.mrs_per_call.max(FULL)).is_err() {
            fsleep(PAUSE);
        }
        this.transport.xprt.write_space();
        // Within the scope: destroying MRs may allocate.
        drop(this);
    }
}
