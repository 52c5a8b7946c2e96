// SPDX-License-Identifier: GPL-2.0

//! Connecting: `connect` passes the send lock to a worker, which releases it when it is done.

use super::{implementation::ClientTransport, xprt::Xprt};
use crate::{
    bindings,
    sunrpc::rpc_xprt::{self, jiffies, RpcXprt},
    trace,
};
use kernel::{prelude::*, time::msecs_to_jiffies};

/// The least time between two attempts, in milliseconds, after an attempt or a connection that
/// brought no message. It doubles with each attempt, up to the mount's limit.
const FIRST_DELAY_MS: u32 = 1_000;

/// `connect`: starts an attempt. Task context with the send lock held; does not wait.
///
/// # Safety
///
/// - `raw` is one of this module's transports, and stays allocated during the call.
/// - `task` holds the send lock, and `XPRT_CONNECTING` was set for this call: no other attempt is
///   in progress, and none begins before the worker has cleared it.
pub(super) unsafe extern "C" fn connect(
    raw: *mut bindings::rpc_xprt,
    task: *mut bindings::rpc_task,
) {
    // SAFETY: The transport is valid during the callback.
    let xprt = unsafe { Xprt::from_raw(raw) };
    // SAFETY: The transport is valid; the call checks that the task holds the send lock.
    let is_locked = unsafe { bindings::xprt_lock_connect(raw, task, raw.cast()) };
    if kernel::warn_on!(!is_locked) {
        return;
    }
    // SAFETY: The send lock now belongs to the worker. `XPRT_CONNECTING` is set, so no other
    // attempt is queued, and the work belongs to this transport. The task has a reference to the
    // transport; the worker's keeps it until the attempt is over.
    unsafe {
        bindings::xprt_get(raw);
        let delay = bindings::xprt_reconnect_delay(raw);
        bindings::xprt_reconnect_backoff(raw, msecs_to_jiffies(FIRST_DELAY_MS));
        trace::xprtrdma_op_connect(xprt.id(), delay);
        let allocation = xprt.allocation();
        let work = &raw mut (*allocation).base.work;
        rpc_xprt::enqueue((*allocation).attempts, work, delay);
    }
}

/// The worker: makes one attempt, on a workqueue where nothing but attempts waits for it.
///
/// # Safety
///
/// - `work` is the `work` of a transport that was made for a `T`. It was queued by [`connect`] with
///   a reference and the send lock, both of which now belong to the worker.
pub(super) unsafe extern "C" fn work<T: ClientTransport>(work: *mut bindings::work_struct) {
    // SAFETY: The work is that of a transport, and `connect` took a reference for this attempt.
    let xprt = unsafe { Xprt::from_raw(RpcXprt::of_work(work)) };
    let _scope = xprt.reclaim_scope();
    // Before the first Reply can come.
    xprt.set_credits(1);
    // SAFETY: sunrpc connects only transports whose setup has succeeded.
    let outcome = T::connect(unsafe { xprt.transport::<T>() });
    let raw = xprt.as_raw();
    // SAFETY: The transport is valid, and the worker has the send lock, and a reference, until it
    // releases them.
    unsafe {
        bindings::rpcrdma_xprt_clear_connecting(raw);
        let is_connected = outcome.is_ok();
        let status = match outcome {
            Ok(sender) => {
                *xprt.sender::<T>() = Some(sender);
                let elapsed = jiffies().wrapping_sub((*raw).stat.connect_start);
                let (count, time) = ((*raw).stat.connect_count, (*raw).stat.connect_time);
                // Others read these without a lock.
                (&raw mut (*raw).stat.connect_count).write_volatile(count.wrapping_add(1));
                (&raw mut (*raw).stat.connect_time).write_volatile(time.wrapping_add(elapsed));
                // The tasks check the connection again.
                EAGAIN.to_errno()
            }
            Err(error) => {
                let errno = error.to_errno();
                // The peer was not contacted, so there is no need to spare it: sunrpc's own pause
                // is enough. An attempt fails one task, and the others wait for theirs.
                if let bindings::ENOBUFS | bindings::ENETUNREACH | bindings::ENETDOWN =
                    errno.unsigned_abs()
                {
                    (&raw mut (*raw).reestablish_timeout).write_volatile(0);
                }
                errno
            }
        };
        // For `release_request`, both at once.
        let lock = xprt.transport_lock();
        // An attempt that has failed counts as a connection that has ended, too: a task that gets
        // its error must not close the next connection on account of it
        // (`xprt_conditional_disconnect`).
        xprt.next_cookie();
        if is_connected {
            xprt.set(bindings::XPRT_CONNECTED);
        }
        drop(lock);
        // Before unlocking, or this would wake a task that has obtained the lock, has sent its
        // Call, and waits for the Reply.
        bindings::xprt_wake_pending_tasks(raw, status);
        bindings::xprt_unlock_connect(raw, raw.cast());
        // May be the last reference.
        bindings::xprt_put(raw);
    }
}

/// `set_connect_timeout`: lowers the timeouts. Process context.
///
/// # Safety
///
/// - `raw` is one of this module's transports, and stays allocated during the call.
pub(super) unsafe extern "C" fn set_connect_timeout(
    raw: *mut bindings::rpc_xprt,
    connect: usize,
    reconnect: usize,
) {
    // SAFETY: The transport is valid during the callback.
    let xprt = unsafe { Xprt::from_raw(raw) };
    trace::xprtrdma_op_set_cto(xprt.id(), connect, reconnect);
    let _guard = xprt.transport_lock();
    // SAFETY: The lock that guards the timeouts is held.
    unsafe {
        if connect < (*raw).connect_timeout {
            let timeout = &raw mut (*xprt.allocation()).base.timeout;
            // As in the C transport the timeout of an RPC is 10 s at least. That of an attempt has
            // no such limit.
            let initval = connect.max(msecs_to_jiffies(10_000));
            // Others read these without the lock.
            (&raw mut (*timeout).to_initval).write_volatile(initval);
            (&raw mut (*timeout).to_maxval).write_volatile(initval);
            (&raw mut (*raw).connect_timeout).write_volatile(connect);
        }
        if reconnect < (*raw).max_reconnect_timeout {
            (&raw mut (*raw).max_reconnect_timeout).write_volatile(reconnect);
        }
    }
}
