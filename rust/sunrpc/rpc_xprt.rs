// SPDX-License-Identifier: GPL-2.0

//! What the transports of both directions have in common: to sunrpc, both are transports of an RPC
//! client (`struct rpc_xprt`).

use super::{address_strings, orphans::Orphans, registration::ClassUser};
use crate::bindings;
use core::{marker::PhantomData, ptr::NonNull};
use kernel::{prelude::*, time::msecs_to_jiffies};

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
}

/// Allocates a transport, and initialises what sunrpc reads of either direction's. The rest of `A`
/// is zeroed. It has the first number of slots from the start, and the second one at most.
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
    user: &ClassUser,
    ops: &'static bindings::rpc_xprt_ops,
    slots: (u32, u32),
) -> Result<NonNull<A>> {
    if args.addrlen > size_of::<bindings::__kernel_sockaddr_storage>() {
        return Err(EBADF);
    }
    // SAFETY: The namespace is referenced. `A` begins with a `Base` (this function's contract), so
    // the new, zeroed allocation has all of these fields, and only this thread knows of it. The
    // address has as many bytes as it says, which fit the transport's, as just checked.
    unsafe {
        let raw = bindings::xprt_alloc(args.net, size_of::<A>(), slots.0, slots.1);
        let allocation = NonNull::new(raw.cast::<A>()).ok_or(ENOMEM)?;
        let timeout = &raw mut (*raw.cast::<Base>()).timeout;
        (*timeout).to_initval = msecs_to_jiffies(60_000);
        (*timeout).to_maxval = (*timeout).to_initval;
        (*raw).timeout = timeout;
        (*raw).set_resvport(0);
        (*raw).ops = ops;
        (*raw).xprt_class = user.class().as_raw();
        (*raw).addrlen = args.addrlen;
        let addr = (&raw mut (*raw).addr).cast::<u8>();
        core::ptr::copy_nonoverlapping(args.dstaddr.cast(), addr, args.addrlen);
        address_strings::format_strings(&mut *raw).inspect_err(|_| free(raw))?;
        Ok(allocation)
    }
}

/// Frees a transport and its strings. May sleep.
///
/// # Safety
///
/// `raw` came from [`allocate`], and is not used any longer.
pub(super) unsafe fn free(raw: *mut bindings::rpc_xprt) {
    // SAFETY: `raw` is a valid transport, which new readers cannot find (this function's contract).
    unsafe {
        address_strings::free_strings(&mut *raw);
        bindings::xprt_free(raw);
    }
}

/// Attributes a Reply that no request waits for to a Call that was given up. Without one, the Call
/// may be about to be given up.
///
/// # Safety
///
/// `xprt` is the `xprt` of a valid [`Base`].
pub(super) unsafe fn late_reply(xprt: *mut bindings::rpc_xprt) {
    // SAFETY: `xprt` is that of a valid `Base` (this function's contract), and the lock that guards
    // the orphans and the window is held. The credit of an orphaned Call has no request.
    unsafe {
        let _guard = transport_lock(xprt);
        let orphans = &mut (*xprt.cast::<Base>()).orphans;
        if orphans.late_reply(jiffies()) {
            release_credit(xprt);
        } else {
            orphans.early_reply((*xprt).cong);
        }
    }
}

/// Whether a transport counts as connected.
///
/// # Safety
///
/// `xprt` is valid.
pub(super) unsafe fn is_connected(xprt: *mut bindings::rpc_xprt) -> bool {
    // SAFETY: `xprt` is valid (this function's contract). The bits are read by one access, as
    // test_bit() does.
    let bits = unsafe { core::ptr::read_volatile(&raw const (*xprt).state) };
    bits & (1 << bindings::XPRT_CONNECTED) != 0
}

/// Sets a bit of a transport's state.
///
/// # Safety
///
/// `xprt` is valid.
pub(super) unsafe fn set_state(xprt: *mut bindings::rpc_xprt, bit: u32) {
    // SAFETY: `xprt` is valid (this function's contract).
    // CAST: A small number.
    unsafe { bindings::set_bit(bit as usize, &raw mut (*xprt).state) };
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

/// Takes the lock of the requests that wait for a Reply.
///
/// # Safety
///
/// `xprt` is valid for all of `'a`.
pub(super) unsafe fn queue_lock<'a>(xprt: *mut bindings::rpc_xprt) -> SpinGuard<'a> {
    // SAFETY: `xprt` is valid for all of `'a` (this function's contract), so its lock is
    // initialised and outlives the guard. sunrpc and this module take the lock in process context
    // only.
    unsafe { SpinGuard::new(&raw mut (*xprt).queue_lock) }
}

/// Takes the lock of a transport's state and congestion window.
///
/// # Safety
///
/// `xprt` is valid for all of `'a`.
pub(super) unsafe fn transport_lock<'a>(xprt: *mut bindings::rpc_xprt) -> SpinGuard<'a> {
    // SAFETY: `xprt` is valid for all of `'a` (this function's contract), so its lock is
    // initialised and outlives the guard. sunrpc and this module take the lock in process context
    // only.
    unsafe { SpinGuard::new(&raw mut (*xprt).transport_lock) }
}

/// Credits in the unit of sunrpc's congestion window.
pub(super) fn window(credits: u32) -> usize {
    // CAST: A u32 always fits the kernel's usize.
    (credits as usize) << bindings::RPC_CWNDSHIFT
}

/// Returns the credit of a request that no longer exists, and wakes a task that waits for one.
///
/// # Safety
///
/// `xprt` is valid, its transport lock is held, and one of the credits in use belongs to no
/// request.
pub(super) unsafe fn release_credit(xprt: *mut bindings::rpc_xprt) {
    // sunrpc returns a credit on behalf of a request and its task. These stand in for those that
    // are gone.
    let mut rqst = bindings::rpc_rqst::default();
    let mut task = bindings::rpc_task::default();
    rqst.rq_xprt = xprt;
    rqst.rq_cong = 1;
    task.tk_rqstp = &raw mut rqst;
    // SAFETY: `xprt` is valid, its transport lock is held, and `rqst` stands for the credit in use
    // that belongs to no request (this function's contract). The call keeps neither `task` nor
    // `rqst`.
    unsafe { bindings::xprt_release_rqst_cong(&raw mut task) };
}

/// A C spinlock, held.
pub(super) struct SpinGuard<'a> {
    lock: *mut bindings::spinlock_t,
    xprt: PhantomData<&'a bindings::rpc_xprt>,
}

impl SpinGuard<'_> {
    /// Takes the lock.
    ///
    /// # Safety
    ///
    /// `lock` is an initialised spinlock that outlives the guard, and is never taken from
    /// interrupts.
    unsafe fn new(lock: *mut bindings::spinlock_t) -> Self {
        // SAFETY: `lock` is an initialised spinlock that interrupts never take (this function's
        // contract).
        unsafe { bindings::spin_lock(lock) };
        Self {
            lock,
            xprt: PhantomData,
        }
    }
}

impl Drop for SpinGuard<'_> {
    fn drop(&mut self) {
        // SAFETY: `new` took the lock, in this thread.
        unsafe { bindings::spin_unlock(self.lock) };
    }
}
