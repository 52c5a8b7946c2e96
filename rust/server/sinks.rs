// SPDX-License-Identifier: GPL-2.0

//! Pages for RDMA Reads to fill, at hand before a Call needs them.
//!
//! A thread that takes a Call gives as many pages of its own for those with the data, so that for
//! Calls of some dozen pages nobody allocates any in the long run.

use crate::sunrpc::PageVec;
use kernel::{alloc::Flags, new_spinlock, prelude::*, sync::SpinLock};

/// The most pages that are kept: a connection that is idle is not to hold what its largest Calls
/// took.
const MAX_PAGES: usize = 32;

/// The pages of one connection.
#[pin_data]
pub(super) struct Sinks {
    #[pin]
    idle: SpinLock<Idle>,
}

struct Idle {
    pages: PageVec,
    /// Room for pages, without any.
    empty: Option<PageVec>,
}

impl Sinks {
    /// No pages.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new() -> impl PinInit<Self, Error> {
        pin_init::pin_init_scope(move || {
            let mut pages = PageVec::new();
            pages.reserve(MAX_PAGES, GFP_KERNEL)?;
            Ok(try_pin_init!(Self {
                idle <- new_spinlock!(Idle { pages, empty: None }, "rpcrdma_sinks"),
            }))
        })
    }

    /// Pages for `length` bytes, those that lack allocated.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn take(&self, length: usize, flags: Flags) -> Result<PageVec> {
        let count = length.div_ceil(kernel::page::PAGE_SIZE);
        let empty = self.idle.lock().empty.take();
        let mut pages = empty.unwrap_or_default();
        pages.reserve(count, flags)?;
        let mut idle = self.idle.lock();
        pages.take_from(&mut idle.pages, count);
        drop(idle);
        pages.fill(count, flags)?;
        Ok(pages)
    }

    /// How many pages are at hand.
    pub(super) fn len(&self) -> usize {
        self.idle.lock().pages.len()
    }

    /// Keeps pages for later, as many as there is room for.
    pub(super) fn give_back(&self, mut pages: PageVec) {
        let mut idle = self.idle.lock();
        idle.pages.take_from(&mut pages, MAX_PAGES);
        drop(idle);
        pages.clear();
        let mut idle = self.idle.lock();
        if idle.empty.is_none() {
            idle.empty = Some(pages);
        }
    }
}
