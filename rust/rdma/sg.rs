// SPDX-License-Identifier: GPL-2.0

//! The scatterlist of a region: one element for each page of the memory that it is mapped over.

use crate::bindings::{self, Exposable, Exposed, Location};
use kernel::page::PAGE_SIZE;

/// Describes `pieces`, in order, in scatterlist elements, and exposes them; returns how many
/// elements were needed, if there were enough, and all pieces have the same owner and are counted
/// alike.
pub(super) fn describe<'a>(
    sg: &mut [bindings::scatterlist],
    pieces: impl Iterator<Item = &'a Exposable<'a>> + Clone,
) -> Option<(i32, Exposed)> {
    let first = pieces.clone().next()?;
    let exposed = first.expose();
    let mut used = 0usize;
    for piece in pieces {
        if piece.is_counted() != first.is_counted() || !exposed.covers(piece) {
            return None;
        }
        let end = used.checked_add(piece.element_count())?;
        let mut done = 0usize;
        for element in sg.get_mut(used..end)? {
            let left = piece.len().saturating_sub(done);
            *element = bindings::scatterlist::default();
            match piece.location() {
                Location::Linear(start) => {
                    let (start, length) = (start.as_ptr().cast(), u32::try_from(left).ok()?);
                    // SAFETY: By the type's invariant the memory is contiguous and of this length.
                    unsafe { bindings::rpcrdma_sg_set_buf(element, start, length) };
                }
                Location::Pages(pages, base) => {
                    let at = base.checked_add(done)?;
                    let offset = at % PAGE_SIZE;
                    let length = left.min(PAGE_SIZE.saturating_sub(offset));
                    // SAFETY: By the type's invariant the array has a page for every byte from
                    // `base` on, and `at` is one of them.
                    let page = unsafe { *pages.as_ptr().add(at / PAGE_SIZE) };
                    // This is sg_set_page(), without a function call for each page. The two low
                    // bits of a page's address hold the element's flags.
                    element.page_link = page.expose_provenance();
                    element.offset = u32::try_from(offset).ok()?;
                    element.length = u32::try_from(length).ok()?;
                    done = done.saturating_add(length);
                }
            }
        }
        used = end;
    }
    let last = sg.get_mut(used.checked_sub(1)?)?;
    // This is sg_mark_end().
    last.page_link |= usize::try_from(bindings::SG_END).ok()?;
    Some((i32::try_from(used).ok()?, exposed))
}

#[cfg(rpcrdma_kunit)]
#[kernel::macros::kunit_tests(rpcrdma_sg)]
mod tests {
    use super::*;
    use crate::bindings::{Exposure, RegionSize};
    use core::ptr::NonNull;
    use kernel::prelude::*;

    /// Memory in the pages of an array, of which only the addresses are used.
    fn paged<'a>(pages: &[*mut bindings::page], base: usize, owner: &'a Exposure) -> Exposable<'a> {
        let location = Location::Pages(NonNull::from(pages).cast(), base);
        // SAFETY: Nothing accesses the memory.
        unsafe { Exposable::new(location, PAGE_SIZE, owner, false) }.unwrap()
    }

    fn linear<'a>(bytes: &mut [u8], owner: &'a Exposure) -> Exposable<'a> {
        let length = bytes.len();
        let location = Location::Linear(NonNull::from(bytes).cast());
        // SAFETY: Nothing accesses the memory.
        unsafe { Exposable::new(location, length, owner, false) }.unwrap()
    }

    fn pages() -> [*mut bindings::page; 3] {
        [64, 128, 192].map(core::ptr::without_provenance_mut)
    }

    /// How many elements describe these pieces.
    fn count<const N: usize>(
        sg: &mut [bindings::scatterlist],
        pieces: [Exposable<'_>; N],
    ) -> Option<i32> {
        describe(sg, pieces.iter()).map(|(elements, _)| elements)
    }

    /// The flags and the page of an element, its offset and its length.
    fn element(sg: &bindings::scatterlist) -> (usize, u32, u32) {
        (sg.page_link, sg.offset, sg.length)
    }

    #[test]
    fn memory_is_described_page_by_page() {
        let end = usize::try_from(bindings::SG_END).unwrap();
        let page = u32::try_from(PAGE_SIZE).unwrap();
        let (owner, pages) = (Exposure::new(), pages());
        let mut sg = [bindings::scatterlist::default(); 2];
        // It begins in the second page and ends in the third.
        let mut memory = paged(&pages, PAGE_SIZE + 8, &owner);
        assert_eq!(count(&mut sg, [memory]), Some(2));
        assert_eq!(element(&sg[0]), (128, 8, page - 8));
        assert_eq!(element(&sg[1]), (192 | end, 0, 8));
        assert!(count(&mut sg[..1], [memory]).is_none());

        let mut size = RegionSize {
            bytes: PAGE_SIZE,
            is_bounced: false,
        };
        let rest = memory.split_off(size).unwrap();
        assert_eq!(count(&mut sg, [memory]), Some(1));
        assert_eq!(element(&sg[0]), (128 | end, 8, page - 8));
        assert_eq!(count(&mut sg, [rest]), Some(1));
        assert_eq!(element(&sg[0]), (192 | end, 0, 8));

        size.bytes = 8 * PAGE_SIZE;
        assert_eq!(paged(&pages, 8, &owner).region_count(size), 1);
        size.is_bounced = true;
        assert_eq!(paged(&pages, 8, &owner).region_count(size), 2);
        assert_eq!(paged(&pages, PAGE_SIZE, &owner).region_count(size), 1);
    }

    #[test]
    fn pieces_of_one_owner_are_described_and_exposed_together() {
        let end = usize::try_from(bindings::SG_END).unwrap();
        let (owner, other, pages) = (Exposure::new(), Exposure::new(), pages());
        let mut bytes = KVec::from_elem(0, 64, GFP_KERNEL).unwrap();
        let mut sg = [bindings::scatterlist::default(); 3];
        let pieces = [linear(&mut bytes, &owner), paged(&pages, 8, &owner)];

        let (elements, exposed) = describe(&mut sg, pieces.iter()).unwrap();
        assert_eq!(elements, 3);
        assert_eq!(sg.each_ref().map(|sg| sg.page_link & end), [0, 0, end]);
        assert_eq!((sg[0].length, sg[1].offset, sg[2].length), (64, 8, 8));
        assert!(!owner.is_over());
        drop(exposed);
        assert!(owner.is_over());

        let foreign = [pieces[0], paged(&pages, 8, &other)];
        assert!(count(&mut sg, foreign).is_none());
        assert!(count(&mut sg[..2], pieces).is_none());
        assert!(describe(&mut sg, [].iter()).is_none());
        assert!(owner.is_over() && other.is_over());
    }
}
