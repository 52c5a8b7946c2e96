// SPDX-License-Identifier: GPL-2.0

//! The memory of one RPC: what the transport keeps with it, the Call, and the
//! first and last part of the Reply, in one allocation.

use crate::bindings::{self, Exposure, RelaxedCell};
use core::ptr::NonNull;
use kernel::{
    prelude::*,
    sync::atomic::{Acquire, Atomic, Full},
};

/// What precedes the Call's bytes. Its size keeps them aligned like kmalloc memory.
#[repr(C, align(16))]
struct Prefix {
    cookie: RelaxedCell<u64>,
    /// Whether the Call was sent and its Reply has not come, as 0 or 1.
    reply_owed: RelaxedCell<u32>,
    exposure: Exposure,
    /// The size of the allocation in bytes.
    size: usize,
}

/// Memory of RPCs, from `kmalloc`.
///
/// # Invariants
///
/// `ptr` is an allocation that begins with an initialised [`Prefix`] and has its `size`; it
/// belongs to this object, and no device can reach it.
struct Buffer {
    ptr: NonNull<Prefix>,
}

impl Buffer {
    /// Allocates at least `size` bytes. Task context, may sleep within its flags.
    fn new(size: usize) -> Option<Self> {
        // So much the allocator would take anyway.
        let size = size.checked_next_power_of_two()?;
        // SAFETY: Always safe to call in task context.
        let ptr = NonNull::new(unsafe { bindings::rpcrdma_rpc_buf_alloc(size) })?.cast();
        let prefix = Prefix {
            cookie: RelaxedCell::new(0),
            reply_owed: RelaxedCell::new(0),
            exposure: Exposure::new(),
            size,
        };
        // SAFETY: The memory is large enough for a prefix, as every caller's size includes one.
        unsafe { ptr.write(prefix) };
        // INVARIANT: Just allocated and written.
        Some(Self { ptr })
    }

    /// The size in bytes.
    fn size(&self) -> usize {
        // SAFETY: By the type's invariant.
        unsafe { (*self.ptr.as_ptr()).size }
    }

    /// Leaves the memory to the pointer that is returned.
    fn into_raw(self) -> *mut Prefix {
        let ptr = self.ptr.as_ptr();
        core::mem::forget(self);
        ptr
    }

    /// Undoes [`Self::into_raw`]; nothing for a null pointer.
    ///
    /// # Safety
    ///
    /// `ptr` is null, or came from `into_raw`, once, and no device can reach the memory.
    unsafe fn from_raw(ptr: *mut Prefix) -> Option<Self> {
        // INVARIANT: The caller's promise.
        NonNull::new(ptr).map(|ptr| Self { ptr })
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: This object owns the allocation.
        unsafe { bindings::kfree(self.ptr.as_ptr().cast()) };
    }
}

/// How many buffers a transport keeps for later RPCs.
const SPARE_BUFFERS: usize = 32;

/// How large they are at most, in bytes: what NFSv4.2 wants to open a file, with its label.
const SPARE_SIZE: usize = 16384;

/// Buffers of RPCs that are over, for those to come. Each slot of the transport has one place,
/// which it shares with others: sunrpc hands the slot that was used last out first.
///
/// # Invariants
///
/// Each pointer is null, or from [`Buffer::into_raw`] with no device that reaches the memory.
pub(super) struct SpareBuffers([Atomic<*mut Prefix>; SPARE_BUFFERS]);

impl SpareBuffers {
    /// The place of a request's slot.
    fn place(&self, rqst: &bindings::rpc_rqst) -> Option<&Atomic<*mut Prefix>> {
        self.0
            .get(core::ptr::from_ref(rqst).addr() / size_of::<bindings::rpc_rqst>() % SPARE_BUFFERS)
    }

    /// Takes a buffer of at least `size` bytes, if there is one; a smaller one will not be wanted
    /// again soon.
    fn take(&self, rqst: &bindings::rpc_rqst, size: usize) -> Option<Buffer> {
        let ptr = self.place(rqst)?.xchg(core::ptr::null_mut(), Acquire);
        // SAFETY: By the type's invariant; the place is left without it.
        unsafe { Buffer::from_raw(ptr) }.filter(|buffer| buffer.size() >= size)
    }

    /// Keeps a buffer, unless it is large. A memory checker wants to see the end of each.
    fn put(&self, rqst: &bindings::rpc_rqst, buffer: Buffer) {
        if cfg!(CONFIG_KASAN) || buffer.size() > SPARE_SIZE {
            return;
        }
        if let Some(place) = self.place(rqst) {
            // INVARIANT: No device can reach a `Buffer`.
            let old = place.xchg(buffer.into_raw(), Full);
            // SAFETY: By the type's invariant; the place has another now.
            drop(unsafe { Buffer::from_raw(old) });
        }
    }

    /// Gives all of them back.
    pub(super) fn clear(&self) {
        for place in &self.0 {
            let old = place.xchg(core::ptr::null_mut(), Acquire);
            // SAFETY: By the type's invariant; the place is left without it.
            drop(unsafe { Buffer::from_raw(old) });
        }
    }
}

/// How the Reply's part is aligned: the device may write there, so that it shares no cache line
/// with what the CPU writes on machines whose DMA bypasses the caches.
const REPLY_ALIGN: usize = bindings::RPCRDMA_DMA_MINALIGN;

/// The transport's number of a request.
///
/// # Safety
///
/// `rqst` is a forward request between `buf_alloc` and `buf_free` for all of `'a`.
pub(super) unsafe fn cookie<'a>(rqst: *mut bindings::rpc_rqst) -> &'a RelaxedCell<u64> {
    // SAFETY: `buf_alloc` made `rq_buffer` point just behind a prefix.
    unsafe { &(*(*rqst).rq_buffer.cast::<Prefix>().sub(1)).cookie }
}

/// Whether the Call was sent and its Reply has not come, as 0 or 1.
///
/// # Safety
///
/// As for [`cookie`].
pub(super) unsafe fn reply_owed<'a>(rqst: *mut bindings::rpc_rqst) -> &'a RelaxedCell<u32> {
    // SAFETY: `buf_alloc` made `rq_buffer` point just behind a prefix.
    unsafe { &(*(*rqst).rq_buffer.cast::<Prefix>().sub(1)).reply_owed }
}

/// What counts the regions over the request's memory.
///
/// # Safety
///
/// As for [`cookie`].
pub(super) unsafe fn exposure<'a>(rqst: *mut bindings::rpc_rqst) -> &'a Exposure {
    // SAFETY: `buf_alloc` made `rq_buffer` point just behind a prefix.
    unsafe { &(*(*rqst).rq_buffer.cast::<Prefix>().sub(1)).exposure }
}

/// Sets the buffers for a request's Call and Reply: one of `spare`, or a new one.
///
/// # Errors
///
/// `ENOMEM`.
pub(super) fn attach(rqst: &mut bindings::rpc_rqst, spare: &SpareBuffers) -> Result {
    let reply = size_of::<Prefix>()
        .saturating_add(rqst.rq_callsize)
        .checked_next_multiple_of(REPLY_ALIGN)
        .ok_or(ENOMEM)?;
    let size = reply.saturating_add(rqst.rq_rcvsize);
    let buffer = spare.take(rqst, size).or_else(|| Buffer::new(size));
    let prefix = buffer.ok_or(ENOMEM)?.into_raw();
    // SAFETY: The memory is large enough for the prefix and what follows.
    unsafe {
        (*prefix).cookie = RelaxedCell::new(0);
        (*prefix).reply_owed = RelaxedCell::new(0);
        rqst.rq_buffer = prefix.add(1).cast();
        rqst.rq_rbuffer = prefix.cast::<u8>().add(reply).cast();
    }
    Ok(())
}

/// Gives a request's buffers back, to `spare` if there is room. Rather than memory that the peer
/// can reach, none is given back.
///
/// # Safety
///
/// The request has buffers from [`attach`], which nobody uses any more.
pub(super) unsafe fn detach(rqst: &mut bindings::rpc_rqst, spare: &SpareBuffers) {
    // SAFETY: The caller's promise.
    let is_reached = !unsafe { exposure(rqst) }.is_over();
    if kernel::warn_on!(is_reached) {
        return;
    }
    // SAFETY: `attach` made `rq_buffer` point just behind the prefix of a buffer, which is left to
    // this object; no device can reach it.
    let buffer = unsafe { Buffer::from_raw(rqst.rq_buffer.cast::<Prefix>().sub(1)) };
    rqst.rq_buffer = core::ptr::null_mut();
    rqst.rq_rbuffer = core::ptr::null_mut();
    if let Some(buffer) = buffer {
        spare.put(rqst, buffer);
    }
}
