// SPDX-License-Identifier: GPL-2.0

//! Pages that are passed between sunrpc and a device, and descriptions of the bytes in them.

use super::{bio_vec, page};
use core::{num::NonZeroU32, ptr::NonNull};
use kernel::{alloc::Flags, page::PAGE_SIZE, prelude::*};

/// Bytes in a page.
// CAST: No page has as many as a u32 can count.
pub(crate) const PAGE_BYTES: u32 = PAGE_SIZE as u32;

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
    /// How many pages there are.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Drops the references to all pages.
    pub(crate) fn clear(&mut self) {
        if self.0.is_empty() {
            return;
        }
        let pages = self.0.as_mut_ptr().cast();
        // SAFETY: By the type's invariant one reference to each page belongs to this object.
        unsafe { super::rpcrdma_put_page_array(pages, self.0.len()) };
        self.0.clear();
    }

    /// Makes room for `count` more pages.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn reserve(&mut self, count: usize, flags: Flags) -> Result {
        Ok(self.0.reserve(count, flags)?)
    }

    /// Moves the pages of `array` here, and leaves null pointers there.
    ///
    /// # Safety
    ///
    /// Each element of `array` is a page with a reference that the caller owns.
    ///
    /// # Errors
    ///
    /// `ENOMEM` if there is no room for all; the pages stay where they are.
    pub(crate) unsafe fn take_array(&mut self, array: &mut [*mut page]) -> Result {
        if self.0.capacity() < self.len().saturating_add(array.len()) {
            return Err(ENOMEM);
        }
        for page in array {
            let page = core::mem::replace(page, core::ptr::null_mut());
            // INVARIANT: The caller's reference goes to this object.
            self.0
                .push_within_capacity(NonNull::new(page).ok_or(EIO)?)
                .map_err(|_| ENOMEM)?;
        }
        Ok(())
    }

    /// Exchanges the pages of `array` for these, one for one.
    ///
    /// # Safety
    ///
    /// Each element of `array` that is not null is a page with a reference that the caller owns.
    ///
    /// # Errors
    ///
    /// `EIO` if an element is null, or if there are not as many pages; they stay where they are.
    pub(crate) unsafe fn exchange(&mut self, array: &mut [*mut page]) -> Result {
        if array.len() != self.len() || array.iter().any(|page| page.is_null()) {
            return Err(EIO);
        }
        let pages = self.0.as_mut_ptr().cast::<*mut page>();
        // SAFETY: Both have that many elements, and are in different places. None of the pointers
        // is null.
        // INVARIANT: The caller's references are exchanged for those of this object.
        unsafe { core::ptr::swap_nonoverlapping(pages, array.as_mut_ptr(), array.len()) };
        Ok(())
    }

    /// The part of each page that has bytes of `range`, as far as there are such pages.
    fn parts(&self, range: PageRange) -> impl Iterator<Item = (NonNull<page>, u32, u32)> + '_ {
        let PageRange {
            index,
            mut offset,
            length: mut left,
        } = range;
        self.0.iter().skip(index).map_while(move |&page| {
            let (start, length) = (offset, left.min(PAGE_BYTES.saturating_sub(offset)));
            offset = 0;
            left = left.saturating_sub(length);
            (length != 0).then_some((page, start, length))
        })
    }

    /// Appends the bytes of `range` to `vecs`, for a device. There is an element for each page, or
    /// for pages that follow one another in memory.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there are no such bytes, `ENOMEM` if `vecs` has no room for them. Some of them
    /// may be in `vecs` then.
    pub(crate) fn append_to(&self, vecs: &mut KVVec<bio_vec>, range: PageRange) -> Result {
        /// The most bytes in an element of several pages: what every device can map as one piece.
        const MOST: u32 = 64 << 10;
        let (before, mut left) = (vecs.len(), range.length);
        for (page, start, length) in self.parts(range) {
            left = left.saturating_sub(length);
            let last = vecs.get_mut(before..).and_then(|vecs| vecs.last_mut());
            match last.filter(|last| is_behind(last, page)) {
                Some(last) if last.bv_len.saturating_add(length) <= MOST => {
                    last.bv_len = last.bv_len.saturating_add(length);
                }
                _ => {
                    let vec = bio_vec {
                        bv_page: page.as_ptr(),
                        bv_len: length,
                        bv_offset: start,
                    };
                    vecs.push_within_capacity(vec).map_err(|_| ENOMEM)?;
                }
            }
        }
        match left {
            0 => Ok(()),
            _ => Err(EINVAL),
        }
    }

    /// Copies `from` to the bytes that begin at `offset`; returns whether these are within the
    /// pages.
    pub(crate) fn copy_in(&mut self, offset: u32, mut from: &[u8]) -> bool {
        let Ok(length) = u32::try_from(from.len()) else {
            return false;
        };
        for (page, start, length) in self.parts(PageRange::at(offset, length)) {
            // CAST: A u32 always fits the kernel's usize.
            let (now, later) = from.split_at((length as usize).min(from.len()));
            let now_at = now.as_ptr().cast();
            // SAFETY: By the type's invariant the page is valid; the part lies within it. C copies,
            // for which it does not matter whether others use the page as well.
            unsafe { super::rpcrdma_memcpy_to_page(page.as_ptr(), start, now_at, now.len()) };
            from = later;
        }
        from.is_empty()
    }

    /// Copies the first bytes of the first page to `to`; returns whether it has as many.
    pub(crate) fn copy_first(&self, to: &mut [u8]) -> bool {
        let page = self.0.first().filter(|_| to.len() <= PAGE_SIZE);
        page.is_some_and(|page| {
            // SAFETY: By the type's invariant the page is valid, and it has as many bytes.
            unsafe {
                super::rpcrdma_memcpy_from_page(to.as_mut_ptr().cast(), page.as_ptr(), 0, to.len())
            };
            true
        })
    }
}

impl Drop for PageVec {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Bytes in consecutive pages of a [`PageVec`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PageRange {
    /// The first page.
    pub(crate) index: usize,
    /// Where the bytes begin in it, less than the size of a page.
    pub(crate) offset: u32,
    /// How many there are, in as many pages as it takes.
    pub(crate) length: u32,
}

impl PageRange {
    /// The `length` bytes from byte `offset` of all pages on.
    pub(crate) const fn at(offset: u32, length: u32) -> Self {
        Self {
            // CAST: A u32 always fits the kernel's usize.
            index: (offset / PAGE_BYTES) as usize,
            offset: offset % PAGE_BYTES,
            length,
        }
    }

    /// The same bytes in consecutive ranges of up to `most` pages each.
    pub(crate) fn split(self, most: NonZeroU32) -> impl Iterator<Item = Self> {
        let most = most.get().saturating_mul(PAGE_BYTES);
        let mut rest = self;
        core::iter::from_fn(move || {
            let length = rest.length.min(most.saturating_sub(rest.offset));
            let range = Self { length, ..rest };
            let end = Self::at(rest.offset.saturating_add(length), 0);
            rest = Self {
                index: rest.index.saturating_add(end.index),
                offset: end.offset,
                length: rest.length.saturating_sub(length),
            };
            (length != 0).then_some(range)
        })
    }
}

/// Whether `next` comes right after the pages of `vec` in physical memory; `vec` ends where a page
/// ends. If the kernel has one array of `struct page`, the structures then follow each other, too.
/// If it has several (classic SPARSEMEM) the answer is always no.
fn is_behind(vec: &bio_vec, next: NonNull<page>) -> bool {
    // CAST: A u32 always fits the kernel's usize.
    let pages = (vec.bv_offset.saturating_add(vec.bv_len) / PAGE_BYTES) as usize;
    cfg!(any(not(CONFIG_SPARSEMEM), CONFIG_SPARSEMEM_VMEMMAP))
        && vec.bv_page.wrapping_add(pages) == next.as_ptr()
}

#[cfg(rpcrdma_kunit)]
#[kernel::macros::kunit_tests(rpcrdma_pages)]
mod tests {
    use super::*;
    use core::mem::ManuallyDrop;
    use kernel::page::Page;

    fn pages(count: usize) -> PageVec {
        let mut pages = PageVec::default();
        pages.reserve(count, GFP_KERNEL).unwrap();
        for _ in 0..count {
            // INVARIANT: The page was just allocated, and its one reference is not dropped.
            let page = ManuallyDrop::new(Page::alloc_page(GFP_KERNEL).unwrap());
            let page = NonNull::new(page.as_ptr()).unwrap();
            pages.0.push_within_capacity(page).unwrap();
        }
        pages
    }

    /// The bytes of `range`, page by page, as the elements of `vecs` have them.
    fn walk(vecs: &[bio_vec], mut each: impl FnMut(*mut page, u32, u32)) {
        for vec in vecs {
            let (mut page, mut offset, mut left) = (vec.bv_page, vec.bv_offset, vec.bv_len);
            while left != 0 {
                let length = left.min(PAGE_BYTES - offset);
                each(page, offset, length);
                (page, offset, left) = (page.wrapping_add(1), 0, left - length);
            }
        }
    }

    #[test]
    fn a_range_is_described_page_by_page() {
        let pages = pages(32);
        let last = 32 * PAGE_BYTES - 1;
        for (at, length) in [
            (0, 1),
            (0, PAGE_BYTES),
            (PAGE_BYTES - 1, 2),
            (3 * PAGE_BYTES + 8, 5 * PAGE_BYTES),
            (1, last - 1),
            (last, 1),
            (0, last + 1),
        ] {
            let mut vecs = KVVec::with_capacity(33, GFP_KERNEL).unwrap();
            let range = PageRange::at(at, length);
            pages.append_to(&mut vecs, range).unwrap();
            assert!(vecs.iter().all(|vec| vec.bv_len <= (64 << 10)));
            let mut expected = pages.parts(range);
            walk(&vecs, |page, offset, length| {
                let (found, start, bytes) = expected.next().unwrap();
                assert!(page == found.as_ptr());
                assert_eq!((offset, length), (start, bytes));
            });
            assert!(expected.next().is_none());
            assert!(vecs.len() <= pages.parts(range).count());
        }
    }

    #[test]
    fn ranges_are_split_between_pages() {
        let split = |at, length, most| {
            let mut found = KVec::new();
            let most = NonZeroU32::new(most).unwrap();
            for range in PageRange::at(at, length).split(most) {
                found.push(range, GFP_KERNEL).unwrap();
            }
            found
        };
        assert!(split(5, 0, 4).is_empty());
        assert!(split(5, 9, 1)[..] == [PageRange::at(5, 9)]);
        assert!(split(8, 3 * PAGE_BYTES, u32::MAX)[..] == [PageRange::at(8, 3 * PAGE_BYTES)]);
        assert!(
            split(PAGE_BYTES, 4 * PAGE_BYTES, 2)[..]
                == [
                    PageRange::at(PAGE_BYTES, 2 * PAGE_BYTES),
                    PageRange::at(3 * PAGE_BYTES, 2 * PAGE_BYTES)
                ]
        );
        let ranges = split(PAGE_BYTES - 1, 4 * PAGE_BYTES, 2);
        assert!(
            ranges[..]
                == [
                    PageRange::at(PAGE_BYTES - 1, PAGE_BYTES + 1),
                    PageRange::at(2 * PAGE_BYTES, 2 * PAGE_BYTES),
                    PageRange::at(4 * PAGE_BYTES, PAGE_BYTES - 1),
                ]
        );
    }

    #[test]
    fn what_has_no_room_or_no_page_is_not_described() {
        let mut pages = pages(4);
        // None comes right after the one before, or both would be described as one piece.
        pages.0.sort_unstable_by(|one, other| other.cmp(one));
        let mut vecs = KVVec::with_capacity(3, GFP_KERNEL).unwrap();
        let room = vecs.capacity();
        for _ in 0..room - 1 {
            let first = PageRange::at(0, 1);
            assert!(pages.append_to(&mut vecs, first) == Ok(()));
        }
        for (range, error) in [
            (PageRange::at(PAGE_BYTES - 1, 2), ENOMEM),
            (PageRange::at(3 * PAGE_BYTES, PAGE_BYTES + 1), EINVAL),
            (PageRange::at(5 * PAGE_BYTES, 1), EINVAL),
        ] {
            assert!(pages.append_to(&mut vecs, range) == Err(error));
            vecs.truncate(room - 1);
        }
        assert!(pages.append_to(&mut vecs, PageRange::at(8, 0)) == Ok(()));
        assert!(pages.append_to(&mut vecs, PageRange::at(8, 8)) == Ok(()));
        assert_eq!(vecs.len(), room);
    }
}
