// SPDX-License-Identifier: GPL-2.0

//! Memory regions that are registered by work requests (FRWR), and their states.
//!
//! 1. [`Idle`]: no pages are mapped. The peer has no handle, or an invalid one.
//! 2. [`Mapped`]: pages are mapped for DMA, and the region has a new handle that was not sent yet.
//! 3. [`Registered`]: the registration was posted; the peer may use the handle.
//!
//! A region returns from 3 to 1 only by an invalidation, remote or local, or by its destruction,
//! which also invalidates it. Pages are unmapped on the way into state 1, never earlier. A provider
//! that fails to destroy a region keeps its pages.

use super::Pd;
use crate::{
    bindings::{self, Exposable, Exposed, Location},
    trace,
};
use core::{marker::PhantomData, mem::ManuallyDrop, ptr::NonNull};
use kernel::{
    dma::DataDirection,
    error::{from_err_ptr, to_result},
    page::PAGE_SIZE,
    prelude::*,
    sync::Arc,
    time::{delay::fsleep, Delta},
};

mod state {
    /// Closes [`super::State`].
    pub(crate) trait Sealed {}
}

/// A state of a memory region.
pub(crate) trait State: state::Sealed {}

/// No pages are mapped.
pub(crate) struct Idle;
/// Pages are mapped, but the registration was not posted.
pub(crate) struct Mapped;
/// The peer can reach it.
pub(crate) struct Registered;

impl state::Sealed for Idle {}
impl state::Sealed for Mapped {}
impl state::Sealed for Registered {}
impl State for Idle {}
impl State for Mapped {}
impl State for Registered {}

/// The kind of memory that a region can map (`enum ib_mr_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MrType {
    /// Pages of which all but the first and the last are used whole.
    MemReg,
    /// Pieces of any address and length. Adapters reach them more slowly.
    SgGaps,
}

impl MrType {
    fn as_raw(self) -> bindings::ib_mr_type {
        match self {
            Self::MemReg => bindings::ib_mr_type_IB_MR_TYPE_MEM_REG,
            Self::SgGaps => bindings::ib_mr_type_IB_MR_TYPE_SG_GAPS,
        }
    }
}

/// What the peer may do with a registered region.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// RDMA Read: the memory holds an argument.
    RemoteRead,
    /// RDMA Write: the memory receives a result.
    RemoteWrite,
}

impl Access {
    /// Bits of `enum ib_access_flags`.
    pub(super) fn flags(self) -> i32 {
        // CAST: Small bit masks, in a signed word.
        const READ: i32 = bindings::ib_access_flags_IB_ACCESS_REMOTE_READ as i32;
        const WRITE: i32 = (bindings::ib_access_flags_IB_ACCESS_REMOTE_WRITE
            | bindings::ib_access_flags_IB_ACCESS_LOCAL_WRITE) as i32;
        match self {
            Self::RemoteRead => READ,
            Self::RemoteWrite => WRITE,
        }
    }

    /// The DMA direction that corresponds.
    pub(super) fn direction(self) -> DataDirection {
        match self {
            Self::RemoteRead => DataDirection::ToDevice,
            Self::RemoteWrite => DataDirection::FromDevice,
        }
    }
}

/// How often a provider is asked again to destroy a region, and after which pauses: it may have no
/// memory for that, or say that the device is busy.
const DESTROY_ATTEMPTS: u32 = 4;
const DESTROY_PAUSE: Delta = Delta::from_millis(20);

/// The parts of a region that all states share.
///
/// # Invariants
///
/// `ptr` is a memory region that this object owns, large enough for as many pages as `sg` has
/// elements. The first `elements` of `sg` are mapped for DMA, in the direction of `access`;
/// `exposed` keeps their memory, together with a reference to each page of the first `counted`
/// elements.
pub(crate) struct Core {
    next: Option<KBox<Core>>,
    ptr: NonNull<bindings::ib_mr>,
    sg: KVVec<bindings::scatterlist>,
    elements: i32,
    counted: i32,
    /// Length of the mapped memory in bytes.
    length: u32,
    exposed: Option<Exposed>,
    access: Access,
    register: bindings::ib_reg_wr,
    invalidate: bindings::ib_send_wr,
    pd: Arc<Pd>,
}

// SAFETY: A memory region may be used from any thread; `&mut` guards the rest.
unsafe impl Send for Core {}

impl Core {
    /// The C object.
    fn mr(&self) -> &bindings::ib_mr {
        // SAFETY: The region is valid, and only its owner changes it.
        unsafe { self.ptr.as_ref() }
    }

    /// Unmaps the pages, which can then be released.
    fn unmap(&mut self) {
        if self.elements != 0 {
            trace::xprtrdma_mr_unmap(self);
        }
        self.unmap_pages();
    }

    /// As [`Self::unmap`], for a region that may already be destroyed.
    fn unmap_pages(&mut self) {
        if self.elements != 0 {
            // SAFETY: By the type's invariant that many elements are mapped on the domain's device.
            unsafe {
                bindings::rpcrdma_ib_dma_unmap_sg(
                    self.pd.device().as_raw(),
                    self.sg.as_mut_ptr(),
                    self.elements,
                    self.access.direction().into(),
                )
            };
            self.elements = 0;
        }
        if self.counted != 0 {
            // SAFETY: By the type's invariant each of these pages is referenced once.
            unsafe { bindings::rpcrdma_put_pages(self.sg.as_mut_ptr(), self.counted) };
            self.counted = 0;
        }
        self.exposed = None;
    }

    /// The handle by which the peer addresses the region (its rkey).
    fn handle(&self) -> u32 {
        self.mr().rkey
    }

    /// Destroys the region, which makes the device forget the handle: the pages can be unmapped
    /// afterwards whatever the state was. May sleep, and must be the last use of the region.
    fn destroy(&mut self) -> Result {
        let mut attempts = 0..DESTROY_ATTEMPTS;
        loop {
            // SAFETY: This object owns the region, which still exists if the provider has failed.
            let rc =
                unsafe { bindings::ib_dereg_mr_user(self.ptr.as_ptr(), core::ptr::null_mut()) };
            let destroyed = to_result(rc);
            if destroyed.is_ok() || attempts.next().is_none() {
                return destroyed;
            }
            fsleep(DESTROY_PAUSE);
        }
    }
}

impl trace::TraceMr for Core {
    fn number(&self) -> u32 {
        self.mr().res.id
    }

    fn elements(&self) -> i32 {
        self.elements
    }

    fn segment(&self) -> (u32, u64, u64) {
        let mr = self.mr();
        (mr.rkey, mr.length, mr.iova)
    }

    fn direction(&self) -> u32 {
        // CAST: A small enumerator.
        self.access.direction() as u32
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        let number = self.mr().res.id;
        if self.elements != 0 {
            trace::xprtrdma_mr_unmap(self);
        }
        let destroyed = self.destroy();
        trace::xprtrdma_frwr_dereg(number, destroyed.map_or_else(Error::to_errno, |()| 0));
        if let Err(error) = destroyed {
            self.pd.log_lost("cannot destroy a memory region", error);
        }
        if destroyed.is_ok() && !self.pd.is_unstoppable() {
            return self.unmap_pages();
        }
        // The device may go on writing: the pages are neither unmapped nor released, and their
        // owner does not get them back.
        if let Some(exposed) = self.exposed.take() {
            if self.counted == 0 {
                // SAFETY: By the type's invariant that many elements describe memory, which its
                // owner keeps as long as it is exposed.
                unsafe { bindings::rpcrdma_get_pages(self.sg.as_mut_ptr(), self.elements) };
            }
            exposed.lose();
        }
    }
}

/// A memory region in state `S`.
pub(crate) struct Mr<S: State> {
    core: KBox<Core>,
    state: PhantomData<S>,
}

impl<S: State> Mr<S> {
    fn from_core(core: KBox<Core>) -> Self {
        Self {
            core,
            state: PhantomData,
        }
    }
}

impl Mr<Idle> {
    /// Creates a region of type `mr_type` for at most `pages` pages. May sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, or whatever the provider returns when it runs out of regions.
    pub(crate) fn new(pd: &Arc<Pd>, mr_type: MrType, pages: u32) -> Result<Self> {
        let count = usize::try_from(pages).map_err(|_| EINVAL)?;
        let sg = KVVec::from_elem(bindings::scatterlist::default(), count, GFP_KERNEL)?;
        let core = KBox::new_uninit(GFP_KERNEL)?;
        // SAFETY: The domain is valid.
        let ptr = unsafe { bindings::ib_alloc_mr(pd.as_raw(), mr_type.as_raw(), pages) };
        let ptr = from_err_ptr(ptr)
            .inspect_err(|&error| trace::xprtrdma_frwr_alloc(0, error.to_errno()))?;
        let ptr = NonNull::new(ptr).ok_or(ENOMEM)?;
        // The constant part of the requests.
        let request = |opcode| bindings::ib_send_wr {
            opcode,
            ..Default::default()
        };
        // INVARIANT: The region was just created, and nothing is mapped.
        let core = core.write(Core {
            next: None,
            ptr,
            sg,
            elements: 0,
            counted: 0,
            length: 0,
            exposed: None,
            access: Access::RemoteRead,
            register: bindings::ib_reg_wr {
                wr: request(bindings::ib_wr_opcode_IB_WR_REG_MR),
                mr: ptr.as_ptr(),
                ..Default::default()
            },
            invalidate: request(bindings::ib_wr_opcode_IB_WR_LOCAL_INV),
            pd: pd.clone(),
        });
        trace::xprtrdma_frwr_alloc(core.mr().res.id, 0);
        Ok(Self::from_core(core))
    }

    /// Maps `memory` for `access` and gives the region a new handle.
    ///
    /// The peer sees offsets that start at `tag << 32` plus the offset within the first page, so no
    /// kernel address is exposed.
    ///
    /// # Errors
    ///
    /// `ENOMEM` if the memory cannot be mapped now, `EIO` if it does not fit the region.
    pub(crate) fn map(
        self,
        memory: &Exposable<'_>,
        access: Access,
        tag: u32,
    ) -> Result<Mr<Mapped>, (Self, Error)> {
        self.map_described(access, tag, memory.is_counted(), |sg| {
            Some((describe(sg, memory)?, memory.expose()))
        })
    }

    /// As [`Self::map`], for several pieces of memory of one owner in order, none of which is
    /// counted. The region must be of type [`MrType::SgGaps`].
    pub(crate) fn map_all<'a>(
        self,
        pieces: impl Iterator<Item = &'a Exposable<'a>>,
        access: Access,
        tag: u32,
    ) -> Result<Mr<Mapped>, (Self, Error)> {
        self.map_described(access, tag, false, |sg| describe_all(sg, pieces))
    }

    fn map_described(
        mut self,
        access: Access,
        tag: u32,
        counted: bool,
        describe: impl FnOnce(&mut [bindings::scatterlist]) -> Option<(i32, Exposed)>,
    ) -> Result<Mr<Mapped>, (Self, Error)> {
        match self.try_map(access, tag, counted, describe) {
            Ok(()) => Ok(Mr::from_core(self.core)),
            Err(error) => {
                self.core.unmap();
                Err((self, error))
            }
        }
    }

    fn try_map(
        &mut self,
        access: Access,
        tag: u32,
        counted: bool,
        describe: impl FnOnce(&mut [bindings::scatterlist]) -> Option<(i32, Exposed)>,
    ) -> Result {
        let core = &mut *self.core;
        let (elements, exposed) = describe(&mut core.sg).ok_or(EIO)?;
        core.access = access;
        if counted {
            // SAFETY: The elements describe counted memory, whose pages can be referenced.
            unsafe { bindings::rpcrdma_get_pages(core.sg.as_mut_ptr(), elements) };
            core.counted = elements;
        }
        core.exposed = Some(exposed);
        let device = core.pd.device().as_raw();
        let direction = core.access.direction().into();
        // SAFETY: `describe`, which is one of the two closures above, initialised that many
        // elements with memory that stays as long as it is exposed, which ends with the mapping.
        let mapped = unsafe {
            bindings::rpcrdma_ib_dma_map_sg(device, core.sg.as_mut_ptr(), elements, direction)
        };
        if mapped <= 0 {
            trace::xprtrdma_frwr_sgerr(core, elements, mapped);
            return Err(ENOMEM);
        }
        // INVARIANT: Unmapping takes the count that was passed in, not the one that was returned.
        core.elements = elements;
        let page_size = u32::try_from(PAGE_SIZE).map_err(|_| EINVAL)?;
        // SAFETY: The elements are mapped; the region is idle.
        let registered = unsafe {
            bindings::ib_map_mr_sg(
                core.ptr.as_ptr(),
                core.sg.as_mut_ptr(),
                mapped,
                core::ptr::null_mut(),
                page_size,
            )
        };
        if registered != mapped {
            trace::xprtrdma_frwr_maperr(core, mapped, registered);
            return Err(EIO);
        }
        // SAFETY: The region is valid and idle, and this is its only user.
        let mr = unsafe { &mut *core.ptr.as_ptr() };
        core.length = u32::try_from(mr.length).map_err(|_| EIO)?;
        mr.iova = (u64::from(tag) << 32) | (mr.iova & u64::from(page_size.wrapping_sub(1)));
        // A new low byte invalidates every earlier handle of the region, as in
        // ib_update_fast_reg_key().
        let key = mr.rkey.wrapping_add(1) & 0xff;
        mr.lkey = mr.lkey & !0xff | key;
        mr.rkey = mr.rkey & !0xff | key;
        trace::xprtrdma_mr_map(core);
        Ok(())
    }
}

/// Describes `pieces`, in order, in scatterlist elements, and exposes them; returns how many
/// elements were needed, if there were enough, and all pieces have the same owner.
fn describe_all<'a>(
    sg: &mut [bindings::scatterlist],
    pieces: impl Iterator<Item = &'a Exposable<'a>>,
) -> Option<(i32, Exposed)> {
    let end = usize::try_from(bindings::SG_END).ok()?;
    let mut used = 0usize;
    let mut exposed: Option<Exposed> = None;
    for piece in pieces {
        let exposed = exposed.get_or_insert_with(|| piece.expose());
        if piece.is_counted() || !exposed.covers(piece) {
            return None;
        }
        if let Some(last) = used.checked_sub(1) {
            sg.get_mut(last)?.page_link &= !end;
        }
        let elements = describe(sg.get_mut(used..)?, piece)?;
        used = used.checked_add(usize::try_from(elements).ok()?)?;
    }
    Some((i32::try_from(used).ok()?, exposed?))
}

/// Describes `memory` in scatterlist elements; returns how many were needed, if there were enough.
fn describe(sg: &mut [bindings::scatterlist], memory: &Exposable<'_>) -> Option<i32> {
    let elements = memory.element_count();
    let sg = sg.get_mut(..elements)?;
    match memory.location() {
        Location::Linear(start) => {
            let length = u32::try_from(memory.len()).ok()?;
            let element = sg.first_mut()?;
            *element = bindings::scatterlist::default();
            // SAFETY: By the type's invariant the memory is contiguous and of this length.
            unsafe { bindings::rpcrdma_sg_set_buf(element, start.as_ptr().cast(), length) };
        }
        Location::Pages(pages, base) => {
            let mut index = base / PAGE_SIZE;
            let mut offset = base % PAGE_SIZE;
            let mut left = memory.len();
            for element in sg.iter_mut() {
                let here = left.min(PAGE_SIZE.saturating_sub(offset));
                // SAFETY: By the type's invariant the array has a page for every byte from `base`
                // on, and `index` is that of one of them.
                let page = unsafe { *pages.as_ptr().add(index) };
                // This is sg_set_page(), without a function call for each page. The two low bits of
                // a page's address hold the element's flags.
                *element = bindings::scatterlist {
                    page_link: page.expose_provenance(),
                    offset: u32::try_from(offset).ok()?,
                    length: u32::try_from(here).ok()?,
                    ..Default::default()
                };
                left = left.saturating_sub(here);
                index = index.saturating_add(1);
                offset = 0;
            }
        }
    }
    sg.last_mut()?.page_link |= usize::try_from(bindings::SG_END).ok()?;
    i32::try_from(elements).ok()
}

/// How the peer is told of a region: one RDMA segment (RFC 8166 section 3.4.3).
#[derive(Clone, Copy)]
pub(crate) struct Extent {
    /// The handle.
    pub(crate) handle: u32,
    /// Length in bytes.
    pub(crate) length: u32,
    /// Offset of the first byte.
    pub(crate) offset: u64,
}

/// A list of regions in the same state.
pub(crate) struct MrList<S: State> {
    /// Emptied when the list is dropped.
    first: ManuallyDrop<Option<KBox<Core>>>,
    state: PhantomData<S>,
}

impl<S: State> MrList<S> {
    /// An empty list.
    pub(crate) const fn new() -> Self {
        Self {
            first: ManuallyDrop::new(None),
            state: PhantomData,
        }
    }

    /// Whether the list is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// How many regions the list holds.
    pub(crate) fn len(&self) -> usize {
        self.cores()
            .fold(0, |count: usize, _| count.saturating_add(1))
    }

    /// Inserts a region at the front.
    pub(crate) fn push_front(&mut self, mut mr: Mr<S>) {
        core::mem::swap(&mut mr.core.next, &mut *self.first);
        // The value that is replaced is `None`, which need not be dropped.
        core::mem::forget(self.first.replace(mr.core));
    }

    /// Appends a region after walking the list, which is only as long as a chunk has segments.
    pub(crate) fn push_back(&mut self, mr: Mr<S>) {
        let mut link = &mut *self.first;
        while let Some(core) = link {
            link = &mut core.next;
        }
        // The value that is replaced is `None`, which need not be dropped.
        core::mem::forget(link.replace(mr.core));
    }

    /// Takes the first region.
    pub(crate) fn pop(&mut self) -> Option<Mr<S>> {
        let mut core = self.first.take()?;
        core::mem::swap(&mut *self.first, &mut core.next);
        Some(Mr::from_core(core))
    }

    /// The same regions in another state.
    fn into_state<T: State>(mut self) -> MrList<T> {
        MrList {
            first: ManuallyDrop::new(self.first.take()),
            state: PhantomData,
        }
    }

    fn cores(&self) -> impl Iterator<Item = &Core> + Clone {
        core::iter::successors(self.first.as_deref(), |core| core.next.as_deref())
    }
}

impl<S: State> Drop for MrList<S> {
    fn drop(&mut self) {
        // One at a time: dropping nested boxes would recurse as deeply as the list is long.
        while self.pop().is_some() {}
    }
}

impl<S: State> MrList<S> {
    /// The segments that describe the regions, in order. Those of idle regions are stale.
    pub(crate) fn extents(&self) -> impl Iterator<Item = Extent> + Clone + '_ {
        self.cores().map(|core| {
            // SAFETY: The region is valid, and the device does not change the description of a
            // mapped region.
            let mr = unsafe { &*core.ptr.as_ptr() };
            Extent {
                handle: core.handle(),
                length: core.length,
                offset: mr.iova,
            }
        })
    }
}

impl MrList<Mapped> {
    /// Unmaps regions that were never posted.
    pub(crate) fn unmap(mut self) -> MrList<Idle> {
        let mut link = &mut *self.first;
        while let Some(core) = link {
            core.unmap();
            link = &mut core.next;
        }
        self.into_state()
    }

    /// Builds a registration for each region in front of `last`, and returns the first request of
    /// the chain. The regions count as registered from here on. They are returned unchanged if one
    /// of them does not belong to `pd`.
    ///
    /// # Safety
    ///
    /// The chain is posted, or discarded, while the returned list still exists. `cqe` handles the
    /// completion of registrations that fail.
    pub(super) unsafe fn chain(
        mut self,
        pd: &Arc<Pd>,
        cqe: *mut bindings::ib_cqe,
        last: *mut bindings::ib_send_wr,
    ) -> Result<(*mut bindings::ib_send_wr, MrList<Registered>), Self> {
        let mut first = last;
        let mut link = &mut *self.first;
        while let Some(core) = link {
            if !Arc::ptr_eq(&core.pd, pd) {
                return Err(self);
            }
            let key = core.handle();
            core.register.wr.next = first;
            core.register.wr.__bindgen_anon_1.wr_cqe = ManuallyDrop::new(cqe);
            core.register.key = key;
            core.register.access = core.access.flags();
            trace::xprtrdma_mr_fastreg(&**core);
            first = &mut core.register.wr;
            link = &mut core.next;
        }
        Ok((first, self.into_state()))
    }
}

impl MrList<Registered> {
    /// Removes the region with this handle, if it is in the list.
    ///
    /// # Safety
    ///
    /// The peer has invalidated the handle, in the protection domain of these regions.
    pub(super) unsafe fn take_invalidated(&mut self, handle: u32) -> Option<Mr<Idle>> {
        let mut link = &mut *self.first;
        while link.as_ref().is_some_and(|core| core.handle() != handle) {
            link = &mut link.as_mut()?.next;
        }
        let mut core = link.take()?;
        core::mem::swap(link, &mut core.next);
        trace::xprtrdma_mr_reminv(&*core);
        core.unmap();
        Some(Mr::from_core(core))
    }

    /// Builds a chain of local invalidations, of which only the last is signalled. Its completion
    /// goes to `last`; those of the others go to `cqe` if they fail or are flushed.
    pub(super) fn invalidations(
        &mut self,
        cqe: *mut bindings::ib_cqe,
        last: *mut bindings::ib_cqe,
    ) -> *mut bindings::ib_send_wr {
        let mut first: *mut bindings::ib_send_wr = core::ptr::null_mut();
        let signaled = bindings::ib_send_flags_IB_SEND_SIGNALED;
        let mut link = &mut *self.first;
        while let Some(core) = link {
            let is_last = first.is_null();
            let key = core.handle();
            let request = &mut core.invalidate;
            request.next = first;
            request.__bindgen_anon_1.wr_cqe = ManuallyDrop::new(if is_last { last } else { cqe });
            request.send_flags = if is_last { signaled } else { 0 };
            request.ex.invalidate_rkey = ManuallyDrop::new(key);
            trace::xprtrdma_mr_localinv(&**core);
            first = &mut core.invalidate;
            link = &mut core.next;
        }
        first
    }

    /// Unmaps the regions, all of which were invalidated locally.
    ///
    /// # Safety
    ///
    /// A local invalidation of every region in the list has completed successfully.
    pub(super) unsafe fn invalidated(self) -> MrList<Idle> {
        self.into_state::<Mapped>().unmap()
    }
}

#[cfg(rpcrdma_kunit)]
#[kernel::macros::kunit_tests(rpcrdma_mr)]
mod tests {
    use super::*;
    use crate::bindings::{Exposure, RegionSize};
    use core::num::NonZeroUsize;

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
        assert_eq!(describe(&mut sg, &memory), Some(2));
        assert_eq!(element(&sg[0]), (128, 8, page - 8));
        assert_eq!(element(&sg[1]), (192 | end, 0, 8));
        assert!(describe(&mut sg[..1], &memory).is_none());

        let mut size = RegionSize {
            bytes: NonZeroUsize::new(PAGE_SIZE).unwrap(),
            is_bounced: false,
        };
        let rest = memory.split_off(size).unwrap();
        assert_eq!(describe(&mut sg, &memory), Some(1));
        assert_eq!(element(&sg[0]), (128 | end, 8, page - 8));
        assert_eq!(describe(&mut sg, &rest), Some(1));
        assert_eq!(element(&sg[0]), (192 | end, 0, 8));

        size.bytes = NonZeroUsize::new(8 * PAGE_SIZE).unwrap();
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

        let (count, exposed) = describe_all(&mut sg, pieces.iter()).unwrap();
        assert_eq!(count, 3);
        assert_eq!(sg.each_ref().map(|sg| sg.page_link & end), [0, 0, end]);
        assert_eq!((sg[0].length, sg[1].offset, sg[2].length), (64, 8, 8));
        assert!(!owner.is_over());
        drop(exposed);
        assert!(owner.is_over());

        let foreign = [pieces[0], paged(&pages, 8, &other)];
        assert!(describe_all(&mut sg, foreign.iter()).is_none());
        assert!(describe_all(&mut sg[..2], pieces.iter()).is_none());
        assert!(describe_all(&mut sg, [].iter()).is_none());
        assert!(owner.is_over() && other.is_over());
    }
}
