// SPDX-License-Identifier: GPL-2.0

//! Pages that travel between sunrpc and a device, with what refers to them.

use super::page;
use core::{mem::ManuallyDrop, ptr::NonNull};
use kernel::{alloc::Flags, page::Page, page::PAGE_SIZE, prelude::*};

/// Pages, each with a counted reference of this object's.
///
/// # Invariants
///
/// Each pointer is that of a page, with a reference that this object owns.
#[derive(Default)]
pub(crate) struct PageVec(KVVec<NonNull<page>>);

// SAFETY: References to pages may be owned, and given back, by any thread.
unsafe impl Send for PageVec {}
// SAFETY: No method changes a page through `&self`.
unsafe impl Sync for PageVec {}

impl PageVec {
    /// None.
    pub(crate) const fn new() -> Self {
        Self(KVVec::new())
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// How many bytes they hold.
    pub(crate) fn byte_len(&self) -> usize {
        self.len().saturating_mul(PAGE_SIZE)
    }

    /// Gives all of them back.
    pub(crate) fn clear(&mut self) {
        while let Some(page) = self.0.pop() {
            // SAFETY: By the type's invariant one reference is this object's.
            unsafe { super::rpcrdma_put_page(page.as_ptr()) };
        }
    }

    /// Makes room for so many more, which [`Self::push`] then takes.
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
    /// `ENOMEM`; those that were there, and those that were allocated, stay.
    pub(crate) fn fill(&mut self, count: usize, flags: Flags) -> Result {
        self.reserve(count.saturating_sub(self.len()), flags)?;
        while self.len() < count {
            let page = ManuallyDrop::new(Page::alloc_page(flags)?);
            // INVARIANT: The page was just allocated, with one reference, which is not dropped.
            self.0
                .push_within_capacity(NonNull::new(page.as_ptr()).ok_or(ENOMEM)?)
                .map_err(|_| ENOMEM)?;
        }
        Ok(())
    }

    /// Takes a reference over; gives it back if there is no room for it.
    ///
    /// # Safety
    ///
    /// The caller owns a reference to the page, and leaves it to this object.
    pub(crate) unsafe fn push(&mut self, page: NonNull<page>) -> Result<(), NonNull<page>> {
        // INVARIANT: The caller's promise.
        self.0.push_within_capacity(page).map_err(|_| page)
    }

    /// Moves pages from the end of `other` here until there are `count`, as far as there are any
    /// and room for them.
    pub(crate) fn take_from(&mut self, other: &mut Self, count: usize) {
        while self.len() < count && self.0.len() < self.0.capacity() {
            let Some(page) = other.0.pop() else { return };
            // There is room, as just checked.
            let _ = self.0.push_within_capacity(page);
        }
    }

    /// Exchanges the page at `index` for another one, with their references.
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
            // INVARIANT: The caller's promise.
            Some(old) => Ok(core::mem::replace(old, page)),
            None => Err(page),
        }
    }

    /// The bytes of a range, if there are such.
    pub(crate) fn part(&self, range: PageRange) -> Option<PagePart> {
        let end = range.offset.checked_add(range.length)?;
        let page = *self.0.get(range.index)?;
        (end <= PAGE_SIZE).then_some(PagePart {
            page,
            offset: range.offset,
            length: range.length,
        })
    }

    /// The stretch of `length` bytes from `offset` on, if the pages were one behind the other, page
    /// by page.
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

    /// Copies `from` to the stretch that begins at `offset`; whether it lies within the pages.
    pub(crate) fn copy_in(&mut self, offset: usize, from: &[u8]) -> bool {
        let mut from = from;
        for part in self.parts(offset, from.len()) {
            let (now, later) = from.split_at(part.length.min(from.len()));
            // SAFETY: By the type's invariant the page is valid, and within the linear map, as
            // pages of the kernel are that no flag puts elsewhere; the part lies within it.
            unsafe {
                let to: *mut u8 = super::rpcrdma_page_address(part.page.as_ptr()).cast();
                core::ptr::copy_nonoverlapping(now.as_ptr(), to.add(part.offset), now.len());
            }
            from = later;
        }
        from.is_empty()
    }

    /// Copies from the stretch that begins at `offset` into `to`; whether it lies within the pages.
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

/// Bytes in one page of a [`PageVec`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageRange {
    /// Which page.
    pub(crate) index: usize,
    /// Where the bytes begin in it.
    pub(crate) offset: usize,
    /// How many there are.
    pub(crate) length: usize,
}

/// Bytes in one page, or in pages that follow each other in memory.
#[derive(Clone, Copy)]
pub(crate) struct PagePart {
    /// The first page.
    pub(crate) page: NonNull<page>,
    /// Where the bytes begin in it.
    pub(crate) offset: usize,
    /// How many there are.
    pub(crate) length: usize,
}

impl PagePart {
    /// Whether `next` follows on this part in memory.
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
