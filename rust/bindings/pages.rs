// SPDX-License-Identifier: GPL-2.0

//! Pages that are passed between sunrpc and a device, and descriptions of the bytes in them.

use super::page;
use core::{mem::ManuallyDrop, ptr::NonNull};
use kernel::{alloc::Flags, page::Page, page::PAGE_SIZE, prelude::*};

/// Pages of memory that the machine has.
pub(crate) fn total_pages() -> u32 {
    // SAFETY: Always safe to call.
    unsafe { super::rpcrdma_total_pages() }
}

/// Pages, each with a counted reference that this object owns.
///
/// # Invariants
///
/// Each pointer is that of a page, and this object owns one reference to it.
#[derive(Default)]
pub(crate) struct PageVec(KVVec<NonNull<page>>);

// SAFETY: Any thread may own and drop references to pages.
unsafe impl Send for PageVec {}
// SAFETY: No method changes a page through `&self`.
unsafe impl Sync for PageVec {}

impl PageVec {
    /// An empty vector.
    pub(crate) const fn new() -> Self {
        Self(KVVec::new())
    }

    /// How many pages there are.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// How many bytes they hold.
    pub(crate) fn byte_len(&self) -> usize {
        self.len().saturating_mul(PAGE_SIZE)
    }

    /// Drops the references to all pages.
    pub(crate) fn clear(&mut self) {
        while let Some(page) = self.0.pop() {
            // SAFETY: By the type's invariant one reference belongs to this object.
            unsafe { super::rpcrdma_put_page(page.as_ptr()) };
        }
    }

    /// Makes room for `count` more pages, which [`Self::push`] can then add.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn reserve(&mut self, count: usize, flags: Flags) -> Result {
        Ok(self.0.reserve(count, flags)?)
    }

    /// Allocates pages until there are `count`.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; pages that were present or have been allocated stay.
    pub(crate) fn fill(&mut self, count: usize, flags: Flags) -> Result {
        self.reserve(count.saturating_sub(self.len()), flags)?;
        while self.len() < count {
            let page = ManuallyDrop::new(Page::alloc_page(flags)?);
            // INVARIANT: The page was just allocated, and its one reference is not dropped.
            self.0
                .push_within_capacity(NonNull::new(page.as_ptr()).ok_or(ENOMEM)?)
                .map_err(|_| ENOMEM)?;
        }
        Ok(())
    }

    /// Adds a page with the caller's reference, which is returned if there is no room for it.
    ///
    /// # Safety
    ///
    /// The caller owns a reference to the page, and passes it to this object.
    pub(crate) unsafe fn push(&mut self, page: NonNull<page>) -> Result<(), NonNull<page>> {
        // INVARIANT: Guaranteed by the caller.
        self.0.push_within_capacity(page).map_err(|_| page)
    }

    /// Moves pages from the end of `other` here until there are `count`, as far as `other` has
    /// pages and there is room.
    pub(crate) fn take_from(&mut self, other: &mut Self, count: usize) {
        while self.len() < count && self.0.len() < self.0.capacity() {
            let Some(page) = other.0.pop() else { return };
            // There is room, as just checked.
            let _ = self.0.push_within_capacity(page);
        }
    }

    /// Replaces the page at `index`, and returns the old one with its reference, or `page` if there
    /// is no such index.
    ///
    /// # Safety
    ///
    /// As for [`Self::push`].
    pub(crate) unsafe fn replace(
        &mut self,
        index: usize,
        page: NonNull<page>,
    ) -> Result<NonNull<page>, NonNull<page>> {
        match self.0.get_mut(index) {
            // INVARIANT: Guaranteed by the caller.
            Some(old) => Ok(core::mem::replace(old, page)),
            None => Err(page),
        }
    }

    /// The bytes of a range, if they are within these pages.
    pub(crate) fn part(&self, range: PageRange) -> Option<PagePart> {
        let end = range.offset.checked_add(range.length)?;
        let page = *self.0.get(range.index)?;
        (end <= PAGE_SIZE).then_some(PagePart {
            page,
            offset: range.offset,
            length: range.length,
        })
    }

    /// The `length` bytes from `offset` on, as if the pages were contiguous, page by page.
    pub(crate) fn parts(
        &self,
        offset: usize,
        length: usize,
    ) -> impl Iterator<Item = PagePart> + '_ {
        let first = offset / PAGE_SIZE;
        let mut start = offset % PAGE_SIZE;
        let mut left = length;
        self.0.iter().skip(first).map_while(move |&page| {
            let length = left.min(PAGE_SIZE.saturating_sub(start));
            let part = PagePart {
                page,
                offset: start,
                length,
            };
            start = 0;
            left = left.saturating_sub(length);
            (length != 0).then_some(part)
        })
    }

    /// Copies `from` to the bytes that begin at `offset`; returns whether these are within the
    /// pages.
    pub(crate) fn copy_in(&mut self, offset: usize, from: &[u8]) -> bool {
        let mut from = from;
        for part in self.parts(offset, from.len()) {
            let (now, later) = from.split_at(part.length.min(from.len()));
            // SAFETY: By the type's invariant the page is valid. It is in the linear map, as are
            // all pages of the kernel that were not requested from elsewhere; the part lies within
            // it.
            unsafe {
                let to: *mut u8 = super::rpcrdma_page_address(part.page.as_ptr()).cast();
                core::ptr::copy_nonoverlapping(now.as_ptr(), to.add(part.offset), now.len());
            }
            from = later;
        }
        from.is_empty()
    }

    /// Copies the bytes that begin at `offset` to `to`; returns whether they are within the pages.
    pub(crate) fn copy_out(&self, offset: usize, to: &mut [u8]) -> bool {
        let mut copied = 0usize;
        for part in self.parts(offset, to.len()) {
            let Some(to) = to.get_mut(copied..copied.saturating_add(part.length)) else {
                return false;
            };
            // SAFETY: As in `copy_in`.
            unsafe {
                let from: *const u8 = super::rpcrdma_page_address(part.page.as_ptr()).cast();
                core::ptr::copy_nonoverlapping(from.add(part.offset), to.as_mut_ptr(), to.len());
            }
            copied = copied.saturating_add(to.len());
        }
        copied == to.len()
    }
}

impl Drop for PageVec {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Bytes within one page of a [`PageVec`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageRange {
    /// The index of the page.
    pub(crate) index: usize,
    /// The offset of the bytes within the page.
    pub(crate) offset: usize,
    /// The number of bytes.
    pub(crate) length: usize,
}

/// Bytes within one page, or within physically contiguous pages.
#[derive(Clone, Copy)]
pub(crate) struct PagePart {
    /// The first page.
    pub(crate) page: NonNull<page>,
    /// The offset of the bytes within the first page.
    pub(crate) offset: usize,
    /// The number of bytes.
    pub(crate) length: usize,
}

impl PagePart {
    /// Whether `next` follows this part in physical memory.
    pub(crate) fn is_followed_by(&self, next: &Self) -> bool {
        // SAFETY: Only computes with the addresses of the page structures.
        let (mine, its) = unsafe {
            (
                super::rpcrdma_page_to_phys(self.page.as_ptr()),
                super::rpcrdma_page_to_phys(next.page.as_ptr()),
            )
        };
        let end = u64::try_from(self.offset.saturating_add(self.length)).ok();
        let start = u64::try_from(next.offset).ok();
        match (end, start) {
            (Some(end), Some(start)) => mine.checked_add(end) == its.checked_add(start),
            _ => false,
        }
    }
}
