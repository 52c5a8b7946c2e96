// SPDX-License-Identifier: GPL-2.0

//! Connecting: `connect` hands the send lock to a worker, which gives it back when it is done.

use super::{
    send_lock::SendLock,
    transport::ClientTransport,
    xprt::{CountedXprt, Xprt},
};
use crate::{
    bindings,
    sunrpc::{queue::ReclaimScope, send_error::SendError},
    trace,
};
use core::ptr::NonNull;
use kernel::{prelude::*, time::msecs_to_jiffies};

/// The least time between two attempts, in milliseconds, after one that brought no message. It
/// doubles with each attempt, up to the mount's limit.
const FIRST_DELAY_MS: u32 = 1_000;

/// `connect`: starts an attempt. Task context with the send lock held; does not wait.
///
/// # Safety
///
/// - `raw` is a transport of this module's, and stays allocated during the call.
/// - `task` holds the send lock, and `XPRT_CONNECTING` was set for this call: no other attempt is
///   under way, and none begins before the worker has cleared it.
pub(super) unsafe extern "C" fn connect(
    raw: *mut bindings::rpc_xprt,
    task: *mut bindings::rpc_task,
) {
    // SAFETY: The transport is valid during the callback.
    let xprt = unsafe { Xprt::from_raw(raw) };
    // The worker's reference: the transport stays until the attempt is over.
    let Some(counted) = CountedXprt::new(xprt) else {
        return;
    };
    // SAFETY: The task holds the send lock, which goes to the worker. `connecting` is set, so no
    // other attempt is queued, and the work is this transport's.
    unsafe {
        bindings::xprt_lock_connect(raw, task, raw.cast());
        let delay = bindings::xprt_reconnect_delay(raw);
        bindings::xprt_reconnect_backoff(raw, msecs_to_jiffies(FIRST_DELAY_MS));
        trace::xprtrdma_op_connect(xprt, delay);
        let _ = counted.into_raw();
        xprt.enqueue(&raw mut (*xprt.allocation()).work, delay);
    }
}

/// The worker: one attempt, on the module's workqueue.
///
/// # Safety
///
/// - `work` is the `work` of an [`Allocation`](super::allocation::Allocation) that was made for a
///   `T`, queued by [`connect`] with a reference and the send lock, which both are the worker's.
pub(super) unsafe extern "C" fn work<T: ClientTransport>(work: *mut bindings::work_struct) {
    // SAFETY: The work is that of an allocation, and `connect` left a reference for this attempt.
    let xprt = unsafe {
        let allocation = Xprt::of_work(work);
        CountedXprt::from_raw(NonNull::new_unchecked(allocation.cast()))
    };
    let _scope = ReclaimScope::enter(xprt.is_swapper());
    // SAFETY: Setup of the transport has succeeded, or nobody would connect it. The worker has the
    // send lock until it gives it back.
    let outcome = unsafe { xprt.transport::<T>().connect(&mut SendLock::new(&xprt)) };
    let raw = xprt.as_raw();
    // SAFETY: The transport is valid, and the worker has the send lock until it gives it back.
    unsafe {
        bindings::rpcrdma_xprt_clear_connecting(raw);
        let status = match outcome {
            Ok(()) => {
                let elapsed = bindings::rpcrdma_jiffies().wrapping_sub((*raw).stat.connect_start);
                (*raw).connect_cookie = (*raw).connect_cookie.wrapping_add(1);
                (*raw).stat.connect_count = (*raw).stat.connect_count.wrapping_add(1);
                (*raw).stat.connect_time = (*raw).stat.connect_time.wrapping_add(elapsed);
                bindings::rpcrdma_xprt_set_connected(raw);
                // The tasks look again.
                EAGAIN.to_errno()
            }
            Err(error) => {
                let errno = error.to_errno();
                // The attempt is over as a connection would be: whom it is told may not close the
                // next one for it (`xprt_conditional_disconnect`).
                (*raw).connect_cookie = (*raw).connect_cookie.wrapping_add(1);
                // The peer was not asked, so it need not be spared: sunrpc's own pause is enough.
                if errno == SendError::NoMemory.to_errno() {
                    (*raw).reestablish_timeout = 0;
                }
                errno
            }
        };
        // First, or they would wake one that has got the lock, has sent, and waits for its Reply.
        bindings::xprt_wake_pending_tasks(raw, status);
        bindings::xprt_unlock_connect(raw, raw.cast());
    }
}

/// So many seconds in jiffies.
pub(super) fn seconds(seconds: u32) -> usize {
    msecs_to_jiffies(seconds.saturating_mul(1000))
}

/// `set_connect_timeout`: lowers the timeouts. Process context.
///
/// # Safety
///
/// - `raw` is a transport of this module's, and stays allocated during the call.
pub(super) unsafe extern "C" fn set_connect_timeout(
    raw: *mut bindings::rpc_xprt,
    connect: usize,
    reconnect: usize,
) {
    // SAFETY: The transport is valid during the callback.
    let xprt = unsafe { Xprt::from_raw(raw) };
    trace::xprtrdma_op_set_cto(xprt, connect, reconnect);
    let _guard = xprt.transport_lock();
    // SAFETY: The lock that guards the timeouts is held.
    unsafe {
        if connect < (*raw).connect_timeout {
            let timeout = &mut (*xprt.allocation()).timeout;
            // An attempt that is given up sooner would not outlive the pause before it.
            timeout.to_initval = connect.max(seconds(10));
            timeout.to_maxval = timeout.to_initval;
            (*raw).connect_timeout = connect;
        }
        if reconnect < (*raw).max_reconnect_timeout {
            (*raw).max_reconnect_timeout = reconnect;
        }
    }
}
