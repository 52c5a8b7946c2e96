// SPDX-License-Identifier: GPL-2.0

//! Memory regions that are registered by work requests (FRWR), and their states.
//!
//! 1. [`Idle`]: no pages are mapped. The peer has no rkey, or an invalid one.
//! 2. [`Mapped`]: pages are mapped for DMA, and the region has a new rkey that was not sent yet.
//! 3. [`Registered`]: the registration was posted; the peer may use the rkey.
//!
//! A region returns from 3 to 1 only by an invalidation, remote or local, or by its destruction,
//! which also invalidates it. Pages are unmapped on the way into state 1, never earlier. A provider
//! that fails to destroy a region keeps its pages.

use super::{
    list::{Link, Linked, List},
    sg::describe,
    Pd,
};
use crate::{
    bindings::{self, Exposable, Exposed},
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

/// No pages are mapped.
pub(crate) struct Idle;
/// Pages are mapped, but the registration was not posted.
pub(crate) struct Mapped;
/// The peer can reach it.
pub(crate) struct Registered;

/// The kind of memory that a region can map (`enum ib_mr_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MrType {
    // CAST: Small enumerators.
    /// Pages of which all but the first and the last are used whole.
    MemReg = bindings::ib_mr_type_IB_MR_TYPE_MEM_REG as isize,
    /// Pieces of any address and length. Adapters reach them more slowly.
    SgGaps = bindings::ib_mr_type_IB_MR_TYPE_SG_GAPS as isize,
}

// CAST: Small bit masks, in a signed word.
const REMOTE_READ: i32 = bindings::ib_access_flags_IB_ACCESS_REMOTE_READ as i32;
const REMOTE_WRITE: i32 = (bindings::ib_access_flags_IB_ACCESS_REMOTE_WRITE
    | bindings::ib_access_flags_IB_ACCESS_LOCAL_WRITE) as i32;

/// How often a provider is asked again to destroy a region, and after which pauses: irdma may have
/// no memory for that (`irdma_hwdereg_mr()`), or say that the device is busy.
const DESTROY_ATTEMPTS: u32 = 4;
const DESTROY_PAUSE: Delta = Delta::from_millis(20);

/// A memory region in state `S`, [`Idle`], [`Mapped`] or [`Registered`].
///
/// # Invariants
///
/// `ptr` is a memory region that this object owns, large enough for as many pages as `sg` has
/// elements. The first `elements` of `sg` are mapped for DMA in `direction`; `exposed` keeps their
/// memory, together with a reference to each page of the first `counted` elements.
#[repr(C)]
pub(crate) struct Mr<S> {
    link: Link<Self>,
    ptr: NonNull<bindings::ib_mr>,
    sg: KVVec<bindings::scatterlist>,
    elements: i32,
    counted: i32,
    /// Length of the mapped memory in bytes.
    length: u32,
    exposed: Option<Exposed>,
    /// From the device if the peer may write to the memory, otherwise to the device.
    direction: DataDirection,
    register: bindings::ib_reg_wr,
    invalidate: bindings::ib_send_wr,
    pd: Arc<Pd>,
    state: PhantomData<S>,
}

/// A list of regions in the same state.
pub(crate) type MrList<S> = List<Mr<S>>;

// SAFETY: A memory region may be used from any thread; `&mut` guards the rest.
unsafe impl<S> Send for Mr<S> {}

// SAFETY: Always the field `link`.
unsafe impl<S> Linked for Mr<S> {
    fn link(&self) -> &Link<Self> {
        &self.link
    }
}

/// The same region in another state.
fn into_state<S, T>(mr: KBox<Mr<S>>) -> KBox<Mr<T>> {
    // SAFETY: The state changes nothing in memory (`repr(C)`).
    unsafe { KBox::from_raw(KBox::into_raw(mr).cast()) }
}

impl<S> Mr<S> {
    /// The C object.
    fn mr(&self) -> &bindings::ib_mr {
        // SAFETY: The region is valid, and only its owner changes it.
        unsafe { self.ptr.as_ref() }
    }

    /// Unmaps the pages, which can then be released. The region may already be destroyed.
    fn unmap(&mut self) {
        if self.elements != 0 {
            // SAFETY: By the type's invariant that many elements are mapped on the domain's device.
            unsafe {
                bindings::rpcrdma_ib_dma_unmap_sg(
                    self.pd.device().as_raw(),
                    self.sg.as_mut_ptr(),
                    self.elements,
                    self.direction.into(),
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

    /// Emits a trace event of the region.
    fn trace(&self, event: fn(&bindings::ib_mr, i32, u32)) {
        // CAST: A small enumerator.
        event(self.mr(), self.elements, self.direction as u32);
    }

    /// Emits the trace event of a region whose pages are about to be unmapped.
    fn trace_unmap(&self) {
        if self.elements != 0 {
            self.trace(trace::xprtrdma_mr_unmap);
        }
    }
}

impl<S> Drop for Mr<S> {
    fn drop(&mut self) {
        let number = self.mr().res.id;
        self.trace_unmap();
        let mut attempts = 0..DESTROY_ATTEMPTS;
        let destroyed = loop {
            // SAFETY: This object owns the region, which still exists if the provider has failed.
            let status =
                unsafe { bindings::ib_dereg_mr_user(self.ptr.as_ptr(), core::ptr::null_mut()) };
            let destroyed = to_result(status);
            if destroyed.is_ok() || self.pd.is_unstoppable() || attempts.next().is_none() {
                break destroyed;
            }
            fsleep(DESTROY_PAUSE);
        };
        trace::xprtrdma_frwr_dereg(number, destroyed.map_or_else(Error::to_errno, |()| 0));
        if let Err(error) = destroyed {
            self.pd.log_lost("cannot destroy a memory region", error);
        }
        if destroyed.is_ok() && !self.pd.is_unstoppable() {
            return self.unmap();
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

impl Mr<Idle> {
    /// Creates a region of type `mr_type` for at most `pages` pages. May sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, or whatever the provider returns when it runs out of regions.
    pub(crate) fn new(pd: &Arc<Pd>, mr_type: MrType, pages: u32) -> Result<KBox<Self>> {
        let count = usize::try_from(pages).map_err(|_| EINVAL)?;
        let sg = KVVec::from_elem(bindings::scatterlist::default(), count, GFP_KERNEL)?;
        let memory = KBox::new_uninit(GFP_KERNEL)?;
        // SAFETY: The domain is valid.
        // CAST: A small enumerator.
        let ptr = unsafe { bindings::ib_alloc_mr(pd.as_raw(), mr_type as u32, pages) };
        let ptr = from_err_ptr(ptr)
            .inspect_err(|&error| trace::xprtrdma_frwr_alloc(0, error.to_errno()))?;
        let ptr = NonNull::new(ptr).ok_or(ENOMEM)?;
        // The constant part of the requests.
        let request = |opcode| bindings::ib_send_wr {
            opcode,
            ..Default::default()
        };
        // INVARIANT: The region was just created, and nothing is mapped.
        let mr = memory.write(Self {
            link: Link::new(),
            ptr,
            sg,
            elements: 0,
            counted: 0,
            length: 0,
            exposed: None,
            direction: DataDirection::ToDevice,
            register: bindings::ib_reg_wr {
                wr: request(bindings::ib_wr_opcode_IB_WR_REG_MR),
                mr: ptr.as_ptr(),
                ..Default::default()
            },
            invalidate: request(bindings::ib_wr_opcode_IB_WR_LOCAL_INV),
            pd: pd.clone(),
            state: PhantomData,
        });
        trace::xprtrdma_frwr_alloc(mr.mr().res.id, 0);
        Ok(mr)
    }

    /// Maps `pieces` of memory of one owner, in order, and gives the region a new rkey.
    fn map<'a>(
        &mut self,
        pieces: impl Iterator<Item = &'a Exposable<'a>> + Clone,
        direction: DataDirection,
        tag: u32,
    ) -> Result {
        let is_counted = pieces.clone().any(Exposable::is_counted);
        let (elements, exposed) = describe(&mut self.sg, pieces).ok_or(EIO)?;
        self.direction = direction;
        if is_counted {
            // SAFETY: The elements describe counted memory, whose pages can be referenced.
            unsafe { bindings::rpcrdma_get_pages(self.sg.as_mut_ptr(), elements) };
            self.counted = elements;
        }
        self.exposed = Some(exposed);
        let (device, sg) = (self.pd.device().as_raw(), self.sg.as_mut_ptr());
        // SAFETY: `describe` initialised that many elements with memory that stays as long as it is
        // exposed, which ends with the mapping.
        let mapped =
            unsafe { bindings::rpcrdma_ib_dma_map_sg(device, sg, elements, direction.into()) };
        if mapped <= 0 {
            trace::xprtrdma_frwr_sgerr(self.mr().res.id, elements, mapped);
            return Err(ENOMEM);
        }
        // INVARIANT: Unmapping takes the count that was passed in, not the one that was returned.
        self.elements = elements;
        let page_size = u32::try_from(PAGE_SIZE).map_err(|_| EINVAL)?;
        let ptr = self.ptr.as_ptr();
        // SAFETY: The elements are mapped; the region is idle.
        let registered =
            unsafe { bindings::ib_map_mr_sg(ptr, sg, mapped, core::ptr::null_mut(), page_size) };
        if registered != mapped {
            trace::xprtrdma_frwr_maperr(self.mr().res.id, mapped, registered);
            return Err(EIO);
        }
        // SAFETY: The region is valid and idle, and this is its only user.
        let mr = unsafe { &mut *ptr };
        self.length = u32::try_from(mr.length).map_err(|_| EIO)?;
        mr.iova = (u64::from(tag) << 32) | (mr.iova & u64::from(page_size.wrapping_sub(1)));
        // A new low byte invalidates every earlier rkey of the region, as in
        // ib_update_fast_reg_key().
        let key = mr.rkey.wrapping_add(1) & 0xff;
        mr.lkey = mr.lkey & !0xff | key;
        mr.rkey = mr.rkey & !0xff | key;
        self.trace(trace::xprtrdma_mr_map);
        Ok(())
    }
}

/// What the peer learns of a region: one RDMA segment (RFC 8166 section 3.4.3).
#[derive(Clone, Copy)]
pub(crate) struct Extent {
    /// The rkey.
    pub(crate) handle: u32,
    /// Length in bytes.
    pub(crate) length: u32,
    /// Offset of the first byte.
    pub(crate) offset: u64,
}

impl<S> MrList<S> {
    /// The segments that describe the regions, in order. Those of idle regions are stale.
    pub(crate) fn extents(&self) -> impl Iterator<Item = Extent> + Clone + '_ {
        self.iter().map(|mr| Extent {
            handle: mr.mr().rkey,
            length: mr.length,
            offset: mr.mr().iova,
        })
    }

    /// Unmaps all regions.
    fn into_idle(mut self) -> MrList<Idle> {
        let mut idle = List::new();
        while let Some(mut mr) = self.pop_front() {
            mr.trace_unmap();
            mr.unmap();
            idle.push_back(into_state(mr));
        }
        idle
    }
}

impl MrList<Idle> {
    /// Maps `pieces` of memory with the first region, gives it a new rkey, and moves it to the
    /// end of `mapped`. All pieces have one owner, and are all counted or all not. Several pieces
    /// take a region of type [`MrType::SgGaps`].
    ///
    /// The peer sees offsets that start at `tag << 32` plus the offset within the first page, so no
    /// kernel address is exposed.
    ///
    /// # Errors
    ///
    /// `ENOMEM` if the memory cannot be mapped now, `EIO` if it does not fit the region, or if
    /// there is none.
    pub(crate) fn map_first<'a>(
        &mut self,
        mapped: &mut MrList<Mapped>,
        pieces: impl Iterator<Item = &'a Exposable<'a>> + Clone,
        direction: DataDirection,
        tag: u32,
    ) -> Result {
        let mut mr = self.pop_front().ok_or(EIO)?;
        let done = mr.map(pieces, direction, tag);
        if done.is_ok() {
            mapped.push_back(into_state(mr));
        } else {
            mr.trace_unmap();
            mr.unmap();
            self.push_front(mr);
        }
        done
    }
}

impl MrList<Mapped> {
    /// Unmaps regions that were never posted.
    pub(crate) fn unmap(self) -> MrList<Idle> {
        self.into_idle()
    }

    /// Whether all of them belong to `pd`. A provider may mistake an MR of another device for one
    /// of its own.
    pub(super) fn are_of(&self, pd: &Arc<Pd>) -> bool {
        self.iter().all(|mr| Arc::ptr_eq(&mr.pd, pd))
    }

    /// Builds a registration for each region in front of `last`, and returns the first request of
    /// the chain. The regions count as registered from here on.
    ///
    /// # Safety
    ///
    /// The chain is posted, or discarded, while the returned list still exists. `unsignalled`
    /// handles the completion of registrations that fail.
    pub(super) unsafe fn register(
        mut self,
        unsignalled: *mut bindings::ib_cqe,
        last: *mut bindings::ib_send_wr,
    ) -> (*mut bindings::ib_send_wr, MrList<Registered>) {
        let (mut first, mut registered) = (last, List::new());
        while let Some(mut mr) = self.pop_front() {
            mr.trace(trace::xprtrdma_mr_fastreg);
            mr.register.key = mr.mr().rkey;
            mr.register.access = match mr.direction {
                DataDirection::ToDevice => REMOTE_READ,
                _ => REMOTE_WRITE,
            };
            let request = &mut mr.register.wr;
            request.next = first;
            request.__bindgen_anon_1.wr_cqe = ManuallyDrop::new(unsignalled);
            first = &raw mut *request;
            registered.push_back(into_state(mr));
        }
        (first, registered)
    }
}

impl MrList<Registered> {
    /// Removes the region with this rkey, if it is in the list.
    ///
    /// # Safety
    ///
    /// The peer has invalidated the rkey, in the protection domain of these regions.
    pub(super) unsafe fn take_invalidated(&mut self, rkey: u32) -> MrList<Idle> {
        let mut invalidated = List::new();
        if let Some(mr) = self.remove_first(|mr| mr.mr().rkey == rkey) {
            mr.trace(trace::xprtrdma_mr_reminv);
            invalidated.push_back(mr);
        }
        invalidated.into_idle()
    }

    /// Builds a chain of local invalidations, of which only the last is signalled. Its completion
    /// goes to `signalled`; the others go to `unsignalled` if they fail or are flushed.
    pub(super) fn localinvs(
        &mut self,
        unsignalled: *mut bindings::ib_cqe,
        signalled: *mut bindings::ib_cqe,
    ) -> *mut bindings::ib_send_wr {
        let mut first: *mut bindings::ib_send_wr = core::ptr::null_mut();
        let mut mrs = self.take();
        while let Some(mut mr) = mrs.pop_front() {
            mr.trace(trace::xprtrdma_mr_localinv);
            let (cqe, flags) = if first.is_null() {
                (signalled, bindings::ib_send_flags_IB_SEND_SIGNALED)
            } else {
                (unsignalled, 0)
            };
            let key = mr.mr().rkey;
            let request = &mut mr.invalidate;
            request.next = first;
            request.__bindgen_anon_1.wr_cqe = ManuallyDrop::new(cqe);
            request.send_flags = flags;
            request.ex.invalidate_rkey = ManuallyDrop::new(key);
            first = &raw mut *request;
            self.push_back(mr);
        }
        first
    }

    /// Unmaps the regions, all of which were invalidated locally.
    ///
    /// # Safety
    ///
    /// A local invalidation of every region in the list has completed successfully.
    pub(super) unsafe fn invalidated(self) -> MrList<Idle> {
        self.into_idle()
    }
}
