// SPDX-License-Identifier: GPL-2.0

//! A private workqueue, and allocation scopes for the work that runs on it.

use crate::bindings;
use core::{marker::PhantomData, ptr::NonNull};
use kernel::{prelude::*, str::CStr, str::CStrExt};

/// A workqueue that is destroyed with its owner.
///
/// It makes progress under memory pressure (`WQ_MEM_RECLAIM`), as write-back can wait for a
/// connection, and is not bound to a CPU.
///
/// # Invariants
///
/// The pointer is that of a workqueue that this object owns.
pub(super) struct OwnedQueue(NonNull<bindings::workqueue_struct>);

// SAFETY: Workqueues may be used from any thread.
unsafe impl Send for OwnedQueue {}
// SAFETY: Workqueues may be used from any thread, and by several at a time.
unsafe impl Sync for OwnedQueue {}

impl OwnedQueue {
    /// Allocates a workqueue.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new(name: &'static CStr) -> Result<Self> {
        let flags = bindings::wq_flags_WQ_UNBOUND | bindings::wq_flags_WQ_MEM_RECLAIM;
        // SAFETY: The format has one directive, for the name, which is static.
        let ptr = unsafe {
            bindings::alloc_workqueue_noprof(c"%s".as_char_ptr(), flags, 0, name.as_char_ptr())
        };
        // INVARIANT: Just allocated.
        NonNull::new(ptr).map(Self).ok_or(ENOMEM)
    }

    /// The C pointer.
    pub(super) fn as_raw(&self) -> *mut bindings::workqueue_struct {
        self.0.as_ptr()
    }
}

impl Drop for OwnedQueue {
    fn drop(&mut self) {
        // SAFETY: This object owns the queue. The call waits for all work on it.
        unsafe { bindings::destroy_workqueue(self.0.as_ptr()) };
    }
}

/// A scope of `memalloc_flags_save()` of the running thread, until it is dropped: allocations do
/// not wait for what may wait for that thread.
pub(crate) struct ReclaimScope {
    flags: u32,
    /// The scope is tied to the thread.
    thread: PhantomData<*mut ()>,
}

impl ReclaimScope {
    /// Allocations do not wait for file systems, and may use reserves if the transport carries
    /// swap.
    pub(super) fn nofs(is_swapper: bool) -> Self {
        let reserves = if is_swapper { bindings::PF_MEMALLOC } else { 0 };
        Self::with(bindings::PF_MEMALLOC_NOFS | reserves)
    }

    /// Allocations neither start I/O nor wait for it. A machine that mounts its own export needs
    /// what is allocated under it to write its pages back.
    pub(crate) fn noio() -> Self {
        Self::with(bindings::PF_MEMALLOC_NOIO)
    }

    fn with(flags: u32) -> Self {
        Self {
            // SAFETY: Only changes the running thread's flags.
            flags: unsafe { bindings::rpcrdma_memalloc_flags_save(flags) },
            thread: PhantomData,
        }
    }
}

impl Drop for ReclaimScope {
    fn drop(&mut self) {
        // SAFETY: Clears the flags that `with` has set, in the same thread.
        unsafe { bindings::rpcrdma_memalloc_flags_restore(self.flags) };
    }
}
