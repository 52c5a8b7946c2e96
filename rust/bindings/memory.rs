// SPDX-License-Identifier: GPL-2.0

//! Memory that regions are mapped over, and what keeps it allocated while they are. The owner
//! of memory, such as an RPC, describes it; `rdma/` maps it, and knows nothing else of it.

use super::page;
use core::ptr::NonNull;
use kernel::{
    page::PAGE_SIZE,
    sync::atomic::{Acquire, Atomic, Relaxed, Release},
};

/// Counts the regions through which devices, and thus peers, can reach the memory of one owner.
///
/// The fence is built on this: the owner neither frees the memory nor relies on what is in it
/// before the count is zero, whatever became of the regions.
///
/// A region that may never lose its access counts as [`LOST`].
pub(crate) struct Exposure(Atomic<u32>);

/// More than an owner has regions.
const LOST: u32 = 1 << 16;

impl Exposure {
    /// For memory that no device can reach.
    pub(crate) fn new() -> Self {
        Self(Atomic::new(0))
    }

    /// Whether no device can reach the memory any longer.
    pub(crate) fn is_over(&self) -> bool {
        // Pairs with the release in `Exposed::drop`: what the device wrote is visible.
        self.0.load(Acquire) == 0
    }

    /// Whether a device may reach the memory for good.
    pub(crate) fn is_lost(&self) -> bool {
        self.0.load(Relaxed) >= LOST
    }
}

/// One region's contribution to an [`Exposure`], until it is dropped.
///
/// # Invariants
///
/// The pointer is valid: the owner keeps the count, as it does the memory, until it is zero, and
/// this object is counted.
pub(crate) struct Exposed(NonNull<Exposure>);

// SAFETY: The count is atomic.
unsafe impl Send for Exposed {}

impl Exposed {
    /// Whether this keeps `memory` too, because it has the same owner.
    pub(crate) fn covers(&self, memory: &Exposable<'_>) -> bool {
        core::ptr::eq(self.0.as_ptr(), memory.exposure)
    }

    /// Takes the memory from its owner for good.
    pub(crate) fn lose(self) {
        // SAFETY: By the type's invariant; the owner keeps the count from now on.
        unsafe { self.0.as_ref() }.0.fetch_add(LOST, Relaxed);
        core::mem::forget(self);
    }
}

impl Drop for Exposed {
    fn drop(&mut self) {
        // SAFETY: By the type's invariant; nothing uses the count after it has been lowered.
        unsafe { self.0.as_ref() }.0.fetch_sub(1, Release);
    }
}

/// The location of some bytes.
#[derive(Clone, Copy)]
pub(crate) enum Location {
    /// An array of pages, and the offset of the first byte from the start of the first page, which
    /// can exceed the page size.
    Pages(NonNull<*mut page>, usize),
    /// Physically contiguous memory.
    Linear(NonNull<u8>),
}

/// How much memory a region without gaps maps.
#[derive(Clone, Copy)]
pub(crate) struct RegionSize {
    /// Bytes in whole pages.
    pub(crate) bytes: usize,
    /// Whether each page is mapped as a bounce buffer, which begins anywhere in a page if it is
    /// smaller than one. So there is no other page in the region of one that is not used whole.
    pub(crate) is_bounced: bool,
}

/// Memory that a region can expose to the peer. Its owner lends it for `'a`; what outlives that is
/// an [`Exposed`].
///
/// # Invariants
///
/// `location` has `length` bytes, at least one. They and `exposure`, which is that of the owner,
/// stay allocated for all of `'a`, and afterwards until `exposure` is over; the bytes, if they are
/// `counted`, only as long as their pages are referenced, and all of these can be referenced.
#[derive(Clone, Copy)]
pub(crate) struct Exposable<'a> {
    location: Location,
    length: usize,
    exposure: &'a Exposure,
    counted: bool,
}

impl<'a> Exposable<'a> {
    /// Describes memory; returns `None` if there is none.
    ///
    /// # Safety
    ///
    /// The type's invariants hold.
    pub(crate) unsafe fn new(
        location: Location,
        length: usize,
        exposure: &'a Exposure,
        counted: bool,
    ) -> Option<Self> {
        // INVARIANT: `location` has `length` bytes, which stay allocated as the type requires (this
        // function's contract), and at least one, as checked here.
        (length != 0).then_some(Self {
            location,
            length,
            exposure,
            counted,
        })
    }

    /// Whether mapping the bytes takes references to their pages.
    pub(crate) fn is_counted(&self) -> bool {
        self.counted
    }

    /// Keeps the bytes allocated, and their owner waiting, until the returned object is dropped.
    pub(crate) fn expose(&self) -> Exposed {
        self.exposure.0.fetch_add(1, Relaxed);
        // INVARIANT: Just counted, while the borrow keeps the memory.
        Exposed(NonNull::from(self.exposure))
    }

    /// The location of the bytes.
    pub(crate) fn location(&self) -> Location {
        self.location
    }

    /// Length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// Offset of the first byte within its page.
    fn offset(&self) -> usize {
        match self.location {
            Location::Pages(_, base) => base % PAGE_SIZE,
            Location::Linear(start) => start.as_ptr().addr() % PAGE_SIZE,
        }
    }

    /// How many scatterlist elements are needed to describe the bytes.
    pub(crate) fn element_count(&self) -> usize {
        match self.location {
            Location::Linear(_) => 1,
            Location::Pages(..) => self
                .offset()
                .saturating_add(self.length)
                .div_ceil(PAGE_SIZE),
        }
    }

    /// How many regions of this size are needed for the bytes.
    pub(crate) fn region_count(&self, size: RegionSize) -> usize {
        let mut rest = *self;
        let more = core::iter::from_fn(|| rest.split_off(size).inspect(|next| rest = *next));
        more.count().saturating_add(1)
    }

    /// Splits off what does not fit the first region of this size; returns `None` if all does.
    pub(crate) fn split_off(&mut self, size: RegionSize) -> Option<Self> {
        let bytes = size.bytes;
        let offset = self.offset();
        let first = match self.location {
            Location::Pages(..) if size.is_bounced => match self.length / PAGE_SIZE {
                whole if offset == 0 && whole != 0 => bytes.min(whole.saturating_mul(PAGE_SIZE)),
                _ => PAGE_SIZE.saturating_sub(offset),
            },
            _ => bytes.saturating_sub(offset),
        };
        if first == 0 || self.length <= first {
            return None;
        }
        let location = match self.location {
            Location::Pages(array, base) => Location::Pages(array, base.saturating_add(first)),
            // SAFETY: `first` is less than the length, so the result is within the same memory.
            Location::Linear(start) => Location::Linear(unsafe { start.add(first) }),
        };
        // INVARIANT: Both pieces lie within the original memory, and neither is empty.
        let length = self.length.saturating_sub(first);
        self.length = first;
        Some(Self {
            location,
            length,
            ..*self
        })
    }
}
