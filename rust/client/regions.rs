// SPDX-License-Identifier: GPL-2.0

//! The memory regions and chunk entries of a connection that no Call uses.

use super::{limits::Limits, transport::Transport};
use crate::{
    rdma::{Exposable, Idle, Mr, MrList, MrType, Pd, RegionSize},
    sunrpc::{client::Rqst, ReclaimScope},
    trace,
};
use core::num::NonZeroUsize;
use kernel::{
    impl_has_work, new_spinlock, new_work,
    page::PAGE_SIZE,
    prelude::*,
    sync::{Arc, SpinLock},
    time::{delay::fsleep, Delta},
    workqueue::{Work, WorkItem},
};

/// The fewest regions that one run of the worker allocates. With fewer idle regions than this, it
/// is asked for more.
const BATCH: usize = 8;

/// The most regions that one run of the worker allocates, as Calls are waiting for it.
const MAX_BATCH: usize = 32;

/// How long the worker waits after a failure.
const PAUSE: Delta = Delta::from_millis(100);

/// How much memory one region can map.
pub(super) struct Capacity {
    /// Without gaps.
    pub(super) size: RegionSize,
    /// Pages and other pieces, with gaps; 0 if there are no such regions.
    pieces: u32,
}

impl Capacity {
    /// Whether there are regions with gaps.
    pub(super) fn has_gaps(&self) -> bool {
        self.pieces != 0
    }

    /// Whether one region with gaps can map what would need several without. Parts whose memory is
    /// kept allocated in different ways cannot share a region.
    pub(super) fn holds_whole(&self, parts: &[Option<Exposable<'_>>]) -> bool {
        if !self.has_gaps() || parts.iter().flatten().any(Exposable::is_counted) {
            return false;
        }
        let pieces = parts.iter().flatten().fold(0, |sum: usize, part| {
            sum.saturating_add(part.element_count())
        });
        // CAST: A u32 always fits the kernel's usize.
        parts.iter().flatten().count() > 1 && pieces <= self.pieces as usize
    }
}

/// Which regions of a Call have gaps.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum WithGaps {
    /// None.
    Neither,
    /// The first one.
    First,
    /// The last one.
    Last,
    /// The first and the last one, of at least two.
    Both,
}

/// How many regions with gaps a Call takes at most, see [`WithGaps::Both`].
const MOST_WITH_GAPS: u32 = 2;

/// Idle regions, and the worker that allocates more.
#[pin_data]
pub(super) struct Regions {
    pd: Arc<Pd>,
    pages: u32,
    capacity: Capacity,
    #[pin]
    idle: SpinLock<IdleMrs>,
    #[pin]
    work: Work<Regions>,
    /// Last: this may be the last reference to the transport, and to the module.
    transport: Arc<Transport>,
}

/// Idle regions of one type.
struct Stock {
    idle: MrList<Idle>,
    count: usize,
    /// How many exist, including those in use.
    made: usize,
    /// How many should exist in any case.
    wanted: usize,
    /// Whether the worker should allocate more.
    is_low: bool,
}

impl Stock {
    /// Without regions.
    fn new() -> Self {
        Self {
            idle: MrList::new(),
            count: 0,
            made: 0,
            wanted: 0,
            is_low: false,
        }
    }

    /// How many the worker has to allocate in any case.
    fn missing(&self) -> usize {
        self.wanted.saturating_sub(self.made)
    }

    fn put(&mut self, region: Mr<Idle>) {
        self.idle.push_front(region);
        self.count = self.count.saturating_add(1);
    }

    /// Adds a region that was just allocated.
    fn add(&mut self, region: Mr<Idle>) {
        self.made = self.made.saturating_add(1);
        self.put(region);
    }

    /// Adds `count` regions to `taken`, if there are as many, and asks for more before none is
    /// left.
    fn take(&mut self, count: usize, taken: &mut MrList<Idle>) -> Option<()> {
        if self.count < count {
            self.is_low = true;
            return None;
        }
        for _ in 0..count {
            taken.push_front(self.idle.pop()?);
        }
        self.count = self.count.saturating_sub(count);
        if self.count < BATCH {
            self.is_low = true;
        }
        Some(())
    }
}

struct IdleMrs {
    contiguous: Stock,
    with_gaps: Stock,
    /// The numbers of the free chunk entries.
    entries: KVVec<usize>,
    /// Whether the connection has ended, so that regions are no longer kept.
    closed: bool,
}

impl IdleMrs {
    fn stock(&mut self, mr_type: MrType) -> &mut Stock {
        match mr_type {
            MrType::MemReg => &mut self.contiguous,
            MrType::SgGaps => &mut self.with_gaps,
        }
    }

    /// Puts a region into the list; returns it if the list is closed.
    fn put(&mut self, region: Mr<Idle>) -> Option<Mr<Idle>> {
        if self.closed {
            return Some(region);
        }
        self.stock(region.mr_type()).put(region);
        None
    }

    /// Adds regions to `taken`, in the order of the Call's lists.
    fn take(&mut self, count: usize, which: WithGaps, taken: &mut MrList<Idle>) -> Option<()> {
        if which == WithGaps::Neither {
            self.contiguous.take(count, taken)
        } else {
            self.take_some_with_gaps(count, which, taken)
        }
    }

    fn take_some_with_gaps(
        &mut self,
        count: usize,
        which: WithGaps,
        taken: &mut MrList<Idle>,
    ) -> Option<()> {
        let is_first = matches!(which, WithGaps::First | WithGaps::Both);
        let is_last = matches!(which, WithGaps::Last | WithGaps::Both);
        let some = usize::from(is_first).saturating_add(is_last.into());
        let mut with_gaps = MrList::new();
        self.with_gaps.take(some, &mut with_gaps)?;
        let rest = count.saturating_sub(some);
        if self.contiguous.take(rest, taken).is_none() {
            while let Some(region) = with_gaps.pop() {
                self.with_gaps.put(region);
            }
            return None;
        }
        if is_first {
            taken.push_front(with_gaps.pop()?);
        }
        if is_last {
            taken.push_back(with_gaps.pop()?);
        }
        Some(())
    }

    /// Whether the worker should allocate more.
    fn is_low(&self) -> bool {
        self.contiguous.is_low || self.with_gaps.is_low
    }

    fn put_entry(&mut self, entry: Option<usize>) {
        if let Some(entry) = entry {
            // There is room: the list once held all entries.
            let _ = self.entries.push_within_capacity(entry);
        }
    }
}

impl_has_work! {
    impl HasWork<Self> for Regions { self.work }
}

impl Regions {
    /// Creates as many chunk entries as the queue pair has slots, and the initial regions. With
    /// gaps these are as many as a Call can take, so that none waits for memory that is only freed
    /// behind it. May sleep.
    ///
    /// # Errors
    ///
    /// Those of [`Mr::new`].
    pub(super) fn new(
        transport: &Arc<Transport>,
        pd: &Arc<Pd>,
        limits: &Limits,
    ) -> Result<Arc<Self>> {
        let pages = limits.pages_per_region;
        // CAST: A u32 always fits the kernel's usize.
        let bytes = NonZeroUsize::new((pages as usize).saturating_mul(PAGE_SIZE)).ok_or(EINVAL)?;
        let capacity = Capacity {
            size: RegionSize {
                bytes,
                is_bounced: pd.device().is_bounced(),
            },
            pieces: limits.pages_with_gaps,
        };
        // CAST: As above.
        let entry_count = limits.sizes.slots as usize;
        let mut entries = KVVec::with_capacity(entry_count, GFP_KERNEL)?;
        for index in 0..entry_count {
            entries.push_within_capacity(index).map_err(|_| ENOMEM)?;
        }
        let mut contiguous = Stock::new();
        for _ in 0..limits.initial_regions {
            contiguous.add(Mr::new(pd, MrType::MemReg, pages)?);
            transport.stats.regions_allocated.increment();
        }
        let mut with_gaps = Stock::new();
        let most_with_gaps = match capacity.has_gaps() {
            true => MOST_WITH_GAPS,
            false => 0,
        };
        for _ in 0..most_with_gaps {
            with_gaps.add(Mr::new(pd, MrType::SgGaps, capacity.pieces)?);
            transport.stats.regions_allocated.increment();
        }
        let made = limits.initial_regions.saturating_add(most_with_gaps);
        trace::xprtrdma_createmrs(&transport.xprt, made);
        Arc::pin_init(
            try_pin_init!(Self {
                pd: pd.clone(),
                pages,
                capacity,
                idle <- new_spinlock!(IdleMrs {
                    contiguous,
                    with_gaps,
                    entries,
                    closed: false,
                }, "rpcrdma_regions"),
                work <- new_work!("rpcrdma_regions"),
                transport: transport.clone(),
            }? Error),
            GFP_KERNEL,
        )
    }

    /// Pages in each region without gaps.
    pub(super) fn pages(&self) -> u32 {
        self.pages
    }

    /// How much memory one region can map.
    pub(super) fn capacity(&self) -> &Capacity {
        &self.capacity
    }

    /// How many regions no Call uses.
    pub(super) fn idle(&self) -> usize {
        let idle = self.idle.lock();
        idle.contiguous.count.saturating_add(idle.with_gaps.count)
    }

    /// How many regions without gaps are used by Calls.
    pub(super) fn in_use(&self) -> usize {
        let idle = self.idle.lock();
        idle.contiguous.made.saturating_sub(idle.contiguous.count)
    }

    /// Asks the worker for enough regions without gaps for Calls that use `count` of them.
    pub(super) fn prepare(self: &Arc<Self>, count: usize) {
        if count != 0 {
            self.idle.lock().contiguous.wanted = count.saturating_add(BATCH);
            self.refill();
        }
    }

    /// Takes a chunk entry for the Call `rqst`, and `count` regions, which are added to `taken`;
    /// returns `None` if there are not enough. The worker is asked for more regions before none is
    /// idle.
    pub(super) fn take(
        self: &Arc<Self>,
        rqst: &Rqst,
        (count, which): (usize, WithGaps),
        taken: &mut MrList<Idle>,
    ) -> Option<usize> {
        let mut idle = self.idle.lock();
        // The entry first: a region that was taken must not be dropped under the lock, as that
        // destroys it.
        let entry = idle.entries.pop()?;
        if idle.take(count, which, taken).is_none() {
            idle.put_entry(Some(entry));
            drop(idle);
            self.transport.stats.regions_exhausted.increment();
            trace::xprtrdma_nomrs_err(&self.transport.xprt, rqst);
            self.refill();
            return None;
        }
        let is_low = idle.is_low();
        drop(idle);
        if is_low {
            self.refill();
        }
        Some(entry)
    }

    /// Returns a region and a chunk entry, if given.
    pub(super) fn put(&self, region: Option<Mr<Idle>>, entry: Option<usize>) {
        let mut idle = self.idle.lock();
        idle.put_entry(entry);
        let rest = region.and_then(|region| idle.put(region));
        // Destroyed outside the lock.
        drop(idle);
        drop(rest);
    }

    /// Returns regions and a chunk entry, if given.
    pub(super) fn put_all(&self, mut regions: MrList<Idle>, entry: Option<usize>) {
        let mut idle = self.idle.lock();
        idle.put_entry(entry);
        let mut rest = None;
        while rest.is_none() {
            let Some(region) = regions.pop() else {
                break;
            };
            rest = idle.put(region);
        }
        // The rest is destroyed outside the lock.
        drop(idle);
        drop(rest);
    }

    /// Asks the worker to allocate more regions, and to wake the sender.
    fn refill(self: &Arc<Self>) {
        // An error means that the worker is already queued.
        let _ = self.transport.xprt.queue().enqueue::<_, 0>(self.clone());
    }

    /// Destroys all regions for good. May sleep.
    pub(super) fn close(&self) {
        let mut idle = self.idle.lock();
        idle.closed = true;
        let stocks = [MrType::MemReg, MrType::SgGaps]
            .map(|mr_type| core::mem::replace(idle.stock(mr_type), Stock::new()));
        drop(idle);
        drop(stocks);
    }

    /// If there are too few regions, allocates as many as exist or are missing, in one batch, so
    /// that many Calls soon find theirs; returns how many were allocated. May sleep.
    fn make(&self, mr_type: MrType, pages: u32) -> u32 {
        let mut made = 0u32;
        let mut idle = self.idle.lock();
        let stock = idle.stock(mr_type);
        let missing = stock.missing();
        if !core::mem::take(&mut stock.is_low) && missing == 0 {
            return made;
        }
        let batch = stock.made.max(missing).clamp(BATCH, MAX_BATCH);
        drop(idle);
        for _ in 0..batch {
            // The next sender that needs regions asks again, though not at once.
            let Ok(region) = Mr::new(&self.pd, mr_type, pages) else {
                self.idle.lock().stock(mr_type).wanted = 0;
                fsleep(PAUSE);
                break;
            };
            self.transport.stats.regions_allocated.increment();
            made = made.saturating_add(1);
            let mut idle = self.idle.lock();
            if idle.closed {
                // Destroyed outside the lock.
                drop(idle);
                drop(region);
                break;
            }
            idle.stock(mr_type).add(region);
        }
        made
    }
}

impl WorkItem for Regions {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        let _scope = ReclaimScope::enter(this.transport.xprt.is_swapper());
        let made = this
            .make(MrType::MemReg, this.pages)
            .saturating_add(this.make(MrType::SgGaps, this.capacity.pieces));
        trace::xprtrdma_createmrs(&this.transport.xprt, made);
        this.transport.xprt.write_space();
        let idle = this.idle.lock();
        let is_done = idle.closed || idle.contiguous.missing() == 0;
        drop(idle);
        if !is_done {
            this.refill();
        }
    }
}
