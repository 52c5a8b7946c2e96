// SPDX-License-Identifier: GPL-2.0

//! The watch over Calls that wait for their Reply: checks of the peer, and the end of a connection
//! on which a Call has waited for too long.

use super::{implementation::ClientTransport, rqst::Rqst, xprt::Xprt};
use crate::{
    bindings,
    sunrpc::{jiffies, jiffies_to_ms, SendError},
};
use kernel::time::msecs_to_jiffies;

/// Milliseconds between two checks of the peer, for which a task that waits for a Reply wakes up.
/// Most Calls complete sooner, so a connection that works is hardly ever checked. With the time for
/// which the device repeats what is not acknowledged, about as much, an outage ends the connection
/// well before a lease of NFSv4 (90 s).
const CHECK_PERIOD_MS: u32 = 5_000;

/// `wait_for_reply_request`: puts the task to sleep until its Reply, or the next check of the
/// peer. Called with sunrpc's `queue_lock` held, by the task.
///
/// # Safety
///
/// - `task` is running in this thread, and has a forward request of one of this module's
///   transports.
pub(super) unsafe extern "C" fn wait_for_reply(task: *mut bindings::rpc_task) {
    // SAFETY: The task is valid, and has a request. Only the thread that runs the task uses these
    // words, and the task still counts as running if it is woken during the call.
    unsafe {
        let rqst = (*task).tk_rqstp;
        let (timeout, major) = ((*rqst).rq_timeout, (*rqst).rq_majortimeo);
        (*rqst).rq_timeout = timeout.min(msecs_to_jiffies(CHECK_PERIOD_MS));
        // The sleep would not last beyond the major timeout, which may have been long ago.
        (*rqst).rq_majortimeo = jiffies().wrapping_add((*rqst).rq_timeout);
        bindings::xprt_wait_for_reply_request_def(task);
        (*rqst).rq_timeout = timeout;
        (*rqst).rq_majortimeo = major;
    }
}

/// `timer`: the task woke up without a Reply. Has the peer checked, and puts the task to sleep
/// again, until its time is up: sunrpc's state machine, which would send the Call again, does not
/// see that. Task context, in a callback of the task. The connection of the Call may be gone.
///
/// The connection ends
///
/// - at the major timeout: the server may have dropped the Call;
/// - at the first timeout (`timeo=`) if the peer is not checked, if the Call was sent before, or if
///   the RPC is a soft one of NFSv3.
///
/// Neither ends it while the Call is younger than the first timeout: after an outage the major
/// timeout of a Call that was just sent may be in the past.
///
/// # Safety
///
/// - `raw` is one of this module's transports, made for a `T`, and stays allocated during the call.
/// - `task` is running in this thread. It has a forward request of this transport with a buffer, as
///   it waits for a Reply. The request is not released during the call.
pub(super) unsafe extern "C" fn timer<T: ClientTransport>(
    raw: *mut bindings::rpc_xprt,
    task: *mut bindings::rpc_task,
) {
    // CAST: Flags of 16 bits.
    const SOFT: u16 = (bindings::RPC_TASK_SOFT | bindings::RPC_TASK_TIMEOUT) as u16;
    // CAST: Flags of 16 bits.
    const NO_RETRANS: u16 = bindings::RPC_TASK_NO_RETRANS_TIMEOUT as u16;
    // SAFETY: Transport and task are valid during the callback, the task has a request, and the
    // transport's setup has succeeded.
    let (xprt, transport, rqst) = unsafe {
        let xprt = Xprt::from_raw(raw);
        let rqst = Rqst::from_raw((*task).tk_rqstp);
        (xprt, xprt.transport::<T>(), rqst)
    };
    if !rqst.is_of_connection() {
        return;
    }
    let is_checked = transport.check_peer();
    // SAFETY: Task and request are valid, and only the thread that runs the task changes these
    // words. `tk_runstate` is read by one access, as test_bit() does.
    unsafe {
        let raw_rqst = (*task).tk_rqstp;
        let is_over = jiffies().wrapping_sub((*raw_rqst).rq_majortimeo) <= usize::MAX / 2;
        let age = bindings::ktime_get().wrapping_sub((*raw_rqst).rq_xtime) / 1_000_000;
        // A sleep may be a jiffy too short, which is 10 ms at most.
        let age = usize::try_from(age).map_or(0, |age| age.saturating_add(10));
        let is_late = age >= jiffies_to_ms((*raw_rqst).rq_timeout);
        if is_over && (*task).tk_flags & SOFT != 0 {
            // A soft RPC of NFSv4 would go on while there is a connection.
            (*task).tk_flags &= !NO_RETRANS;
            if !is_late {
                return;
            }
        }
        // If it was sent before, the server may still work at it, drop the repetition, and send its
        // Reply to the earlier connection. A soft RPC that is not of NFSv4 has little time, and its
        // server may have dropped it.
        let may_be_dropped = (*raw_rqst).rq_ntrans > 1
            || (*task).tk_flags & SOFT != 0 && (*task).tk_flags & NO_RETRANS == 0;
        if is_late && (is_over || !is_checked || may_be_dropped) {
            return transport.timed_out(|| rqst.is_of_connection());
        }
        let _lock = xprt.queue_lock();
        (*task).tk_status = 0;
        let state = (&raw const (*task).tk_runstate).read_volatile();
        if state >> bindings::RPC_TASK_NEED_RECV & 1 != 0 {
            wait_for_reply(task);
            // The end of the connection has woken those that slept.
            if !rqst.is_of_connection() {
                bindings::rpc_wake_up_queued_task(&raw mut (*raw).pending, task);
                (*task).tk_status = SendError::NotConnected.to_errno();
            }
        }
    }
}
