// SPDX-License-Identifier: GPL-2.0

//! The memory of one RPC: the transport's own state, the Call, and the head and tail of the Reply,
//! in one allocation.

use crate::bindings::{self, Exposure, RelaxedCell};
use core::ptr::NonNull;
use kernel::{
    prelude::*,
    sync::atomic::{Acquire, Atomic, Full},
};

/// The transport's state, in front of the Call's bytes. Its size keeps them aligned like kmalloc
/// memory.
#[repr(C, align(16))]
struct Prefix {
    cookie: RelaxedCell<u64>,
    /// Whether the Call was sent when that was last tried, and its Reply has not arrived, as 0 or
    /// 1.
    reply_owed: RelaxedCell<u32>,
    /// The transport's `connect_cookie` when the request took its credit.
    credit: RelaxedCell<u32>,
    /// Whether somebody is handling a Reply, as 0 or 1. The lock of the requests that wait for a
    /// Reply guards it.
    is_taken: RelaxedCell<u32>,
    /// The exposure of all memory of the RPC, which neither completes nor is freed before that is
    /// over.
    exposure: Exposure,
    /// The size of the allocation in bytes.
    size: usize,
}

/// The memory of an RPC, from `kmalloc`.
///
/// # Invariants
///
/// `ptr` is an allocation that begins with an initialised [`Prefix`] and is as large as its `size`;
/// it belongs to this object, and no device can reach it.
struct Buffer {
    ptr: NonNull<Prefix>,
}

impl Buffer {
    /// Allocates at least `size` bytes, which include the prefix. Task context, may sleep if the
    /// task's flags allow it.
    fn new(size: usize) -> Option<Self> {
        // The allocator would round up to this size anyway.
        let size = size.max(size_of::<Prefix>()).checked_next_power_of_two()?;
        // SAFETY: Always safe to call in task context.
        let ptr = NonNull::new(unsafe { bindings::rpcrdma_rpc_buf_alloc(size) })?.cast();
        let prefix = Prefix {
            cookie: RelaxedCell::new(0),
            reply_owed: RelaxedCell::new(0),
            credit: RelaxedCell::new(0),
            is_taken: RelaxedCell::new(0),
            exposure: Exposure::new(),
            size,
        };
        // SAFETY: The memory is new, and large enough for a prefix.
        unsafe { ptr.write(prefix) };
        // INVARIANT: Just allocated and written.
        Some(Self { ptr })
    }

    /// The size in bytes.
    fn size(&self) -> usize {
        // SAFETY: By the type's invariant.
        unsafe { (*self.ptr.as_ptr()).size }
    }

    /// Transfers the ownership of the memory to the returned pointer.
    fn into_raw(self) -> *mut Prefix {
        let ptr = self.ptr.as_ptr();
        core::mem::forget(self);
        ptr
    }

    /// Undoes [`Self::into_raw`]; returns `None` for a null pointer.
    ///
    /// # Safety
    ///
    /// `ptr` is null, or came from `into_raw` and was not passed here before; no device can reach
    /// the memory.
    unsafe fn from_raw(ptr: *mut Prefix) -> Option<Self> {
        // INVARIANT: Guaranteed by the caller.
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

/// The largest buffer that is kept, in bytes: what NFSv4.2 needs to open a file, including its
/// security label.
const SPARE_SIZE: usize = 16384;

/// Buffers of finished RPCs, kept for later ones. Each slot of the transport maps to one place,
/// which it shares with others: sunrpc hands out the most recently used slot first.
///
/// # Invariants
///
/// Each pointer is null, or came from [`Buffer::into_raw`], and no device can reach the memory.
pub(super) struct SpareBuffers([Atomic<*mut Prefix>; SPARE_BUFFERS]);

impl SpareBuffers {
    /// The place for a request's slot.
    fn place(&self, rqst: &bindings::rpc_rqst) -> Option<&Atomic<*mut Prefix>> {
        self.0
            .get(core::ptr::from_ref(rqst).addr() / size_of::<bindings::rpc_rqst>() % SPARE_BUFFERS)
    }

    /// Takes a buffer of at least `size` bytes, if there is one. A smaller one is freed, as it will
    /// not be wanted again soon.
    fn take(&self, rqst: &bindings::rpc_rqst, size: usize) -> Option<Buffer> {
        let ptr = self.place(rqst)?.xchg(core::ptr::null_mut(), Acquire);
        // SAFETY: By the type's invariant; the pointer is no longer in its place.
        unsafe { Buffer::from_raw(ptr) }.filter(|buffer| buffer.size() >= size)
    }

    /// Keeps a buffer, unless it is large. With a memory checker every buffer is freed, so that
    /// later accesses are found.
    fn put(&self, rqst: &bindings::rpc_rqst, buffer: Buffer) {
        if cfg!(CONFIG_KASAN) || buffer.size() > SPARE_SIZE {
            return;
        }
        if let Some(place) = self.place(rqst) {
            // INVARIANT: No device can reach the memory of a `Buffer`.
            let old = place.xchg(buffer.into_raw(), Full);
            // SAFETY: By the type's invariant; another pointer has taken its place.
            drop(unsafe { Buffer::from_raw(old) });
        }
    }

    /// Frees all buffers.
    pub(super) fn clear(&self) {
        for place in &self.0 {
            let old = place.xchg(core::ptr::null_mut(), Acquire);
            // SAFETY: By the type's invariant; the pointer is no longer in its place.
            drop(unsafe { Buffer::from_raw(old) });
        }
    }
}

/// The alignment of the Reply's part: the device may write there, so on machines whose DMA is not
/// cache-coherent it must not share a cache line with what the CPU writes.
const REPLY_ALIGN: usize = bindings::RPCRDMA_DMA_MINALIGN;

/// The cookie that the transport keeps with a request.
///
/// # Safety
///
/// `rqst` is a forward request between `buf_alloc` and `buf_free` for all of `'a`.
pub(super) unsafe fn cookie<'a>(rqst: *mut bindings::rpc_rqst) -> &'a RelaxedCell<u64> {
    // SAFETY: `buf_alloc` made `rq_buffer` point just behind a prefix.
    unsafe { &(*(*rqst).rq_buffer.cast::<Prefix>().sub(1)).cookie }
}

/// Whether the Call was sent when that was last tried, and its Reply has not arrived, as 0 or 1.
///
/// # Safety
///
/// As for [`cookie`].
pub(super) unsafe fn reply_owed<'a>(rqst: *mut bindings::rpc_rqst) -> &'a RelaxedCell<u32> {
    // SAFETY: `buf_alloc` made `rq_buffer` point just behind a prefix.
    unsafe { &(*(*rqst).rq_buffer.cast::<Prefix>().sub(1)).reply_owed }
}

/// The transport's `connect_cookie` when the request took its credit.
///
/// # Safety
///
/// As for [`cookie`].
pub(super) unsafe fn credit<'a>(rqst: *mut bindings::rpc_rqst) -> &'a RelaxedCell<u32> {
    // SAFETY: `buf_alloc` made `rq_buffer` point just behind a prefix.
    unsafe { &(*(*rqst).rq_buffer.cast::<Prefix>().sub(1)).credit }
}

/// Whether somebody is handling a Reply to the request, as 0 or 1.
///
/// # Safety
///
/// As for [`cookie`].
pub(super) unsafe fn is_taken<'a>(rqst: *mut bindings::rpc_rqst) -> &'a RelaxedCell<u32> {
    // SAFETY: `buf_alloc` made `rq_buffer` point just behind a prefix.
    unsafe { &(*(*rqst).rq_buffer.cast::<Prefix>().sub(1)).is_taken }
}

/// The counter of the regions over the request's memory.
///
/// # Safety
///
/// As for [`cookie`].
pub(super) unsafe fn exposure<'a>(rqst: *mut bindings::rpc_rqst) -> &'a Exposure {
    // SAFETY: `buf_alloc` made `rq_buffer` point just behind a prefix.
    unsafe { &(*(*rqst).rq_buffer.cast::<Prefix>().sub(1)).exposure }
}

/// Attaches the buffers for a request's Call and Reply: one of `spare`, or a new one.
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
    // SAFETY: The memory is large enough for the prefix and for what follows it.
    unsafe {
        (*prefix).cookie = RelaxedCell::new(0);
        (*prefix).reply_owed = RelaxedCell::new(0);
        rqst.rq_buffer = prefix.add(1).cast();
        rqst.rq_rbuffer = prefix.cast::<u8>().add(reply).cast();
    }
    Ok(())
}

/// Detaches a request's buffers, and returns them to `spare` if there is room. Memory that the peer
/// can still reach is leaked instead.
///
/// # Safety
///
/// The request has buffers from [`attach`], which nobody uses any longer.
pub(super) unsafe fn detach(rqst: &mut bindings::rpc_rqst, spare: &SpareBuffers) {
    // SAFETY: Guaranteed by the caller.
    let is_reached = !unsafe { exposure(rqst) }.is_over();
    if kernel::warn_on!(is_reached) {
        return;
    }
    // SAFETY: `attach` made `rq_buffer` point just behind the prefix of a buffer, whose ownership
    // passes to this object; no device can reach it.
    let buffer = unsafe { Buffer::from_raw(rqst.rq_buffer.cast::<Prefix>().sub(1)) };
    rqst.rq_buffer = core::ptr::null_mut();
    rqst.rq_rbuffer = core::ptr::null_mut();
    if let Some(buffer) = buffer {
        spare.put(rqst, buffer);
    }
}
