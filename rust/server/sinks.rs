// SPDX-License-Identifier: GPL-2.0

//! Pages for RDMA Reads to fill, at hand before a Call needs them.
//!
//! A thread that takes a Call gives as many pages of its own for those with the data, so that in
//! the long run none is allocated. All connections of a listener share the pages: an idle
//! connection has none.

use crate::sunrpc::PageVec;
use kernel::{alloc::Flags, new_spinlock, prelude::*, sync::SpinLock};

/// The most pages that are kept.
const MAX_PAGES: usize = 512;

/// The most arrays for pages that are kept.
const MAX_EMPTY: usize = 16;

/// The pages of all connections that came through one listener.
#[pin_data]
pub(super) struct Sinks {
    #[pin]
    idle: SpinLock<Idle>,
}

struct Idle {
    /// There is room for [`MAX_PAGES`].
    pages: PageVec,
    /// Arrays without any pages; there is room for [`MAX_EMPTY`].
    empty: KVVec<PageVec>,
}

impl Sinks {
    /// No pages.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new() -> Result<impl PinInit<Self>> {
        let mut pages = PageVec::new();
        pages.reserve(MAX_PAGES, GFP_KERNEL)?;
        let empty = KVVec::with_capacity(MAX_EMPTY, GFP_KERNEL)?;
        Ok(pin_init!(Self {
            idle <- new_spinlock!(Idle { pages, empty }, "rpcrdma_sinks"),
        }))
    }

    /// Pages for `length` bytes. Allocates those that are missing.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn take(&self, length: usize, flags: Flags) -> Result<PageVec> {
        let count = length.div_ceil(kernel::page::PAGE_SIZE);
        let mut idle = self.idle.lock();
        let mut pages = idle.empty.pop().unwrap_or_else(PageVec::new);
        if !pages.has_space(count) {
            drop(idle);
            pages.reserve(count, flags)?;
            idle = self.idle.lock();
        }
        pages.take_from(&mut idle.pages, count);
        drop(idle);
        pages.fill(count, flags)?;
        Ok(pages)
    }

    /// How many pages are at hand.
    pub(super) fn len(&self) -> usize {
        self.idle.lock().pages.len()
    }

    /// Keeps pages for later. Does not sleep.
    pub(super) fn give_back(&self, mut pages: PageVec) {
        let mut idle = self.idle.lock();
        idle.pages.take_from(&mut pages, MAX_PAGES);
        if pages.len() > 0 {
            drop(idle);
            pages.clear();
            idle = self.idle.lock();
        }
        if idle.empty.len() < MAX_EMPTY {
            // There is room.
            let _ = idle.empty.push_within_capacity(pages);
        }
    }
}
