// SPDX-License-Identifier: GPL-2.0

//! What the transports of both directions have in common: to sunrpc, both are transports of an RPC
//! client (`struct rpc_xprt`).

use super::{address_strings, credits::Orphans, registration::ClassUser};
use crate::bindings;
use core::ptr::NonNull;
use kernel::{
    prelude::*,
    sync::{SpinLock, SpinLockGuard},
    time::msecs_to_jiffies,
    types::Opaque,
};

/// What the allocation of a transport begins with.
#[repr(C)]
pub(super) struct Base {
    /// First, because sunrpc frees the allocation by this pointer.
    xprt: bindings::rpc_xprt,
    /// The timeouts that `xprt.timeout` points to.
    pub(super) timeout: bindings::rpc_timeout,
    /// The credits of Calls that were given up. The transport lock guards them. Zeroes stand for
    /// none.
    pub(super) orphans: Orphans,
    /// Runs attempts to connect, if the transport makes any, and at last its end.
    pub(super) work: bindings::delayed_work,
    /// The class, and thus the module. Dropped by [`free`].
    user: ClassUser,
}

/// A transport of either direction.
///
/// # Invariants
///
/// A reference to an `RpcXprt` points to the `xprt` of a valid [`Base`].
#[repr(transparent)]
pub(crate) struct RpcXprt(Opaque<bindings::rpc_xprt>);

// SAFETY: sunrpc does its own locking of transports.
unsafe impl Send for RpcXprt {}
// SAFETY: sunrpc does its own locking of transports.
unsafe impl Sync for RpcXprt {}

impl RpcXprt {
    /// Borrows a transport from C.
    ///
    /// # Safety
    ///
    /// `ptr` is the `xprt` of a valid [`Base`], which stays so for all of `'a`.
    pub(super) unsafe fn from_raw<'a>(ptr: *mut bindings::rpc_xprt) -> &'a Self {
        // SAFETY: `ptr` is valid for all of `'a` (this function's contract), and `RpcXprt` is
        // transparent over `rpc_xprt`.
        unsafe { &*ptr.cast() }
    }

    /// The C pointer.
    pub(super) fn as_raw(&self) -> *mut bindings::rpc_xprt {
        self.0.get()
    }

    /// The orphaned credits, which the transport lock guards.
    pub(super) fn orphans(&self) -> *mut Orphans {
        // SAFETY: The allocation is valid (type invariant); only takes the address of a field.
        unsafe { &raw mut (*self.as_raw().cast::<Base>()).orphans }
    }

    /// The transport's reference to its class.
    pub(crate) fn user(&self) -> &ClassUser {
        // SAFETY: The allocation is valid (type invariant), and has the user until it is freed.
        unsafe { &(*self.as_raw().cast::<Base>()).user }
    }

    /// Queues `work` on the class's workqueue, to run after `delay` jiffies. If it is queued
    /// already, nothing changes.
    ///
    /// # Safety
    ///
    /// The work is initialised, and belongs to this transport's allocation.
    pub(super) unsafe fn enqueue(&self, work: *mut bindings::delayed_work, delay: usize) {
        // SAFETY: `work` is initialised and part of the allocation (this function's contract),
        // whose user keeps the queue.
        unsafe { enqueue(self.user().queue(), work, delay) };
    }

    /// Leaves the end of the transport to `end`, on the class's queue: the transport holds a
    /// reference to the module, and unloading the module waits for work on that queue, but not for
    /// system workers.
    ///
    /// # Safety
    ///
    /// No user of sunrpc has a reference to the transport, and its `work` is not queued.
    pub(super) unsafe fn queue_end(&self, end: unsafe extern "C" fn(*mut bindings::work_struct)) {
        // SAFETY: The allocation is valid (type invariant), and its `work` is not queued (this
        // function's contract).
        unsafe {
            let work = &raw mut (*self.as_raw().cast::<Base>()).work;
            bindings::rpcrdma_init_delayed_work(work, Some(end));
            self.enqueue(work, 0);
        }
    }

    /// The transport to which the work belongs.
    ///
    /// # Safety
    ///
    /// `work` is part of the `work` of a [`Base`].
    pub(super) unsafe fn of_work(work: *mut bindings::work_struct) -> *mut bindings::rpc_xprt {
        // SAFETY: `work` is part of the delayed work `work` of a `Base` (this function's contract).
        unsafe {
            let delayed = kernel::container_of!(work, bindings::delayed_work, work);
            kernel::container_of!(delayed, Base, work).cast()
        }
    }

    /// Whether a state bit is set. It may change at any time.
    pub(super) fn has(&self, bit: u32) -> bool {
        // SAFETY: The transport is valid; the bits are read by one access, as test_bit() does.
        let bits = unsafe { (&raw const (*self.as_raw()).state).read_volatile() };
        bits >> bit & 1 != 0
    }

    /// Sets a state bit.
    pub(super) fn set(&self, bit: u32) {
        // CAST: A small number.
        // SAFETY: The transport is valid, and its bits are only changed by atomic operations.
        unsafe { bindings::set_bit(bit as usize, &raw mut (*self.as_raw()).state) };
    }

    /// Whether the transport counts as connected.
    pub(crate) fn is_connected(&self) -> bool {
        self.has(bindings::XPRT_CONNECTED)
    }

    /// Takes the lock of the requests that wait for a Reply. Process context only, as sunrpc takes
    /// it.
    pub(super) fn queue_lock(&self) -> SpinLockGuard<'_, ()> {
        // SAFETY: The transport is valid, so its lock is initialised and outlives the guard.
        unsafe { SpinLock::from_raw(&raw mut (*self.as_raw()).queue_lock) }.lock()
    }

    /// Takes the lock of a transport's state and congestion window. Process context only.
    pub(super) fn transport_lock(&self) -> SpinLockGuard<'_, ()> {
        // SAFETY: The transport is valid, so its lock is initialised and outlives the guard.
        unsafe { SpinLock::from_raw(&raw mut (*self.as_raw()).transport_lock) }.lock()
    }
}

/// Requests that a transport has from the start; others are allocated when they are needed.
const PREALLOCATED_SLOTS: u32 = 16;

/// Allocates a transport of the class of `user`, and initialises its [`Base`] but for `work`, and
/// what sunrpc reads of either direction's. The rest of `A` is zeroed. It can have `requests`
/// outstanding.
///
/// # Safety
///
/// - `A` is `repr(C)`, and begins with a [`Base`].
/// - The namespace of `args` is referenced, and its address has as many bytes as it says.
///
/// # Errors
///
/// `EBADF` if the address is too long, `EAFNOSUPPORT` for its family, `ENOMEM`.
pub(super) unsafe fn allocate<A>(
    args: &bindings::xprt_create,
    user: ClassUser,
    ops: &'static bindings::rpc_xprt_ops,
    requests: u32,
) -> Result<NonNull<A>> {
    if args.addrlen > size_of::<bindings::__kernel_sockaddr_storage>() {
        return Err(EBADF);
    }
    // SAFETY: The namespace is referenced. `A` begins with a `Base` (this function's contract), so
    // the new, zeroed allocation has all of these fields, and only this thread knows of it. The
    // address has as many bytes as it says, which fit the transport's, as just checked.
    unsafe {
        let slots = requests.min(PREALLOCATED_SLOTS);
        let raw = bindings::xprt_alloc(args.net, size_of::<A>(), slots, requests);
        let allocation = NonNull::new(raw.cast::<A>()).ok_or(ENOMEM)?;
        (*raw).xprt_class = user.class().as_raw();
        (&raw mut (*raw.cast::<Base>()).user).write(user);
        let timeout = &raw mut (*raw.cast::<Base>()).timeout;
        (*timeout).to_initval = msecs_to_jiffies(60_000);
        (*timeout).to_maxval = (*timeout).to_initval;
        (*raw).timeout = timeout;
        (*raw).set_resvport(0);
        (*raw).ops = ops;
        (*raw).addrlen = args.addrlen;
        let addr = (&raw mut (*raw).addr).cast::<u8>();
        core::ptr::copy_nonoverlapping(args.dstaddr.cast(), addr, args.addrlen);
        address_strings::format_strings(&mut *raw).inspect_err(|_| free(raw))?;
        Ok(allocation)
    }
}

/// Frees a transport and its strings, and drops its reference to the class. May sleep.
///
/// # Safety
///
/// `raw` came from [`allocate`], and is not used any longer.
pub(super) unsafe fn free(raw: *mut bindings::rpc_xprt) {
    // SAFETY: `raw` is a valid transport, which new readers cannot find (this function's contract).
    // `allocate` has initialised the user, which is not used any longer.
    unsafe {
        let user = (&raw const (*raw.cast::<Base>()).user).read();
        address_strings::free_strings(&mut *raw);
        bindings::xprt_free(raw);
        drop(user);
    }
}

/// The present time in jiffies.
pub(crate) fn jiffies() -> usize {
    // SAFETY: The kernel's counter, which changes at any time.
    unsafe { (&raw const bindings::jiffies).read_volatile() }
}

/// A time in jiffies, in milliseconds.
pub(crate) fn jiffies_to_ms(jiffies: usize) -> usize {
    jiffies.saturating_mul(1000) / msecs_to_jiffies(1000).max(1)
}

/// Queues `work` on a workqueue, to run after `delay` jiffies. If it is queued already, nothing
/// changes.
///
/// # Safety
///
/// The work is initialised, and the queue is valid and stays so until the work is done.
pub(super) unsafe fn enqueue(
    queue: *mut bindings::workqueue_struct,
    work: *mut bindings::delayed_work,
    delay: usize,
) {
    // CAST: As many as there can be CPUs, which fits an int.
    const ANY_CPU: i32 = bindings::wq_misc_consts_WORK_CPU_UNBOUND as i32;
    // SAFETY: `work` is initialised, and `queue` stays valid until the work is done (this
    // function's contract).
    unsafe { bindings::queue_delayed_work_on(ANY_CPU, queue, work, delay) };
}

/// Credits in the unit of sunrpc's congestion window.
pub(super) fn window(credits: u32) -> usize {
    // CAST: A u32 always fits the kernel's usize.
    (credits as usize) << bindings::RPC_CWNDSHIFT
}
