// SPDX-License-Identifier: GPL-2.0

//! The memory regions and chunk entries of a connection that no Call uses.

use super::Client;
use crate::{
    rdma::{Idle, Mr, MrList, Pd},
    sunrpc::{ReclaimScope, Rqst},
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

/// Regions that one run of the worker makes.
const BATCH: usize = 8;

/// How long the worker waits after a failure.
const PAUSE: Delta = Delta::from_millis(100);

/// Idle regions, and the worker that makes more.
#[pin_data]
pub(super) struct Regions {
    pd: Arc<Pd>,
    pages: u32,
    bytes: NonZeroUsize,
    #[pin]
    shelf: SpinLock<Shelf>,
    #[pin]
    work: Work<Regions>,
    /// Last: it may be the last reference to the transport, and to the module.
    client: Arc<Client>,
}

struct Shelf {
    idle: MrList<Idle>,
    count: usize,
    /// The numbers of free entries.
    entries: KVVec<usize>,
    /// No more regions after the connection has ended.
    closed: bool,
}

impl Shelf {
    /// Puts a region there; it comes back from a shelf that is closed.
    fn put(&mut self, region: Mr<Idle>) -> Option<Mr<Idle>> {
        if self.closed {
            return Some(region);
        }
        self.idle.push_front(region);
        self.count = self.count.saturating_add(1);
        None
    }

    fn put_entry(&mut self, entry: Option<usize>) {
        if let Some(entry) = entry {
            // There is room: the list held all of them once.
            let _ = self.entries.push_within_capacity(entry);
        }
    }
}

impl_has_work! {
    impl HasWork<Self> for Regions { self.work }
}

impl Regions {
    /// Makes `count` regions of `pages` pages, beside `entries` chunk entries. May sleep.
    ///
    /// # Errors
    ///
    /// What [`Mr::new`] answers.
    pub(super) fn new(
        client: &Arc<Client>,
        pd: &Arc<Pd>,
        pages: u32,
        count: u32,
        entries: u32,
    ) -> Result<Arc<Self>> {
        // CAST: A u32 always fits the kernel's usize.
        let bytes = NonZeroUsize::new((pages as usize).saturating_mul(PAGE_SIZE)).ok_or(EINVAL)?;
        // CAST: As above.
        let entry_count = entries as usize;
        let mut entries = KVVec::with_capacity(entry_count, GFP_KERNEL)?;
        for index in 0..entry_count {
            entries.push_within_capacity(index).map_err(|_| ENOMEM)?;
        }
        let mut idle = MrList::new();
        for _ in 0..count {
            idle.push_front(Mr::new(pd, pages)?);
            client.stats.regions_allocated.increment();
        }
        trace::xprtrdma_createmrs(&client.xprt, count);
        // CAST: A u32 always fits the kernel's usize.
        let count = count as usize;
        Arc::pin_init(
            try_pin_init!(Self {
                pd: pd.clone(),
                pages,
                bytes,
                shelf <- new_spinlock!(Shelf {
                    idle,
                    count,
                    entries,
                    closed: false,
                }, "rpcrdma_regions"),
                work <- new_work!("rpcrdma_regions"),
                client: client.clone(),
            }? Error),
            GFP_KERNEL,
        )
    }

    /// Pages in each region.
    pub(super) fn pages(&self) -> u32 {
        self.pages
    }

    /// Bytes in the pages of each region.
    pub(super) fn bytes(&self) -> NonZeroUsize {
        self.bytes
    }

    /// How many no Call uses.
    pub(super) fn idle(&self) -> usize {
        self.shelf.lock().count
    }

    /// Takes a chunk entry and `count` regions for the Call `rqst`, or nothing if there are not so
    /// many. The worker makes more regions before the shelf is empty.
    #[inline(always)]
    pub(super) fn take(
        self: &Arc<Self>,
        rqst: &Rqst,
        count: usize,
    ) -> Option<(usize, MrList<Idle>)> {
        let mut taken = MrList::new();
        let mut shelf = self.shelf.lock();
        if shelf.count < count {
            drop(shelf);
            self.client.stats.regions_exhausted.increment();
            trace::xprtrdma_nomrs_err(&self.client.xprt, rqst);
            self.refill();
            return None;
        }
        let entry = shelf.entries.pop()?;
        for _ in 0..count {
            taken.push_front(shelf.idle.pop()?);
        }
        shelf.count = shelf.count.saturating_sub(count);
        let low = shelf.count < BATCH;
        drop(shelf);
        if low {
            self.refill();
        }
        Some((entry, taken))
    }

    /// Gives a region and a chunk entry back, whichever there is.
    pub(super) fn put(&self, region: Option<Mr<Idle>>, entry: Option<usize>) {
        let mut shelf = self.shelf.lock();
        shelf.put_entry(entry);
        let rest = region.and_then(|region| shelf.put(region));
        // Destroyed outside the lock.
        drop(shelf);
        drop(rest);
    }

    /// Gives regions and a chunk entry back, whichever there are.
    pub(super) fn put_all(&self, mut regions: MrList<Idle>, entry: Option<usize>) {
        let mut shelf = self.shelf.lock();
        shelf.put_entry(entry);
        let mut rest = None;
        while rest.is_none() {
            let Some(region) = regions.pop() else {
                break;
            };
            rest = shelf.put(region);
        }
        // What is left is destroyed outside the lock.
        drop(shelf);
        drop(rest);
    }

    /// Has the worker make more regions, and wake the sender.
    fn refill(self: &Arc<Self>) {
        // An error says that the worker is on its way already.
        let _ = self.client.xprt.queue().enqueue::<_, 0>(self.clone());
    }

    /// Destroys all regions, for good. May sleep.
    pub(super) fn close(&self) {
        let mut shelf = self.shelf.lock();
        shelf.closed = true;
        shelf.count = 0;
        let idle = core::mem::replace(&mut shelf.idle, MrList::new());
        drop(shelf);
        drop(idle);
    }
}

impl WorkItem for Regions {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        let _scope = ReclaimScope::enter(this.client.xprt.is_swapper());
        let mut made = 0u32;
        for _ in 0..BATCH {
            if this.shelf.lock().closed {
                break;
            }
            // The next sender in need asks again, but not at once.
            let Ok(region) = Mr::new(&this.pd, this.pages) else {
                fsleep(PAUSE);
                break;
            };
            this.client.stats.regions_allocated.increment();
            made = made.saturating_add(1);
            this.put(Some(region), None);
        }
        trace::xprtrdma_createmrs(&this.client.xprt, made);
        this.client.xprt.write_space();
    }
}
