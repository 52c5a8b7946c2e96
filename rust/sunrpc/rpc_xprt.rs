// SPDX-License-Identifier: GPL-2.0

//! What the transports of both directions have in common: to sunrpc, both are transports of an RPC
//! client (`struct rpc_xprt`).

use crate::bindings;
use core::marker::PhantomData;

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
pub(super) fn jiffies() -> usize {
    // SAFETY: The kernel's counter, which changes at any time.
    unsafe { (&raw const bindings::jiffies).read_volatile() }
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
