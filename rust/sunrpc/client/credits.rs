// SPDX-License-Identifier: GPL-2.0

//! The credits of a mount's transport, which outlives its connections: only credits of the present
//! one count. At the end of a connection the part of the window that is in use becomes zero, and a
//! Call that was sent takes another credit to be sent again.
//!
//! If all credits are orphaned, and the responder owes their Replies for too long, the connection
//! is closed, as it is when a Call times out: otherwise requests that wait for a credit would wait
//! for ever.

use super::{
    backchannel,
    implementation::ClientTransport,
    xprt::{Xprt, XprtAllocation},
};
use crate::{
    bindings,
    sunrpc::{credits::Orphans, rpc_xprt::window},
};
use kernel::ffi::c_int;

impl Xprt {
    /// Forgets the request's credit, if it has taken that on an earlier connection: it no longer
    /// counts, and no Reply will return it. The answer can be trusted under the send lock and under
    /// the transport lock: a connection begins under both.
    ///
    /// # Safety
    ///
    /// `rqst` is a forward request of this transport, which no other thread sends or releases
    /// during the call.
    pub(super) unsafe fn forget_earlier_credit(&self, rqst: *mut bindings::rpc_rqst) {
        // SAFETY: Transport and request are valid. The cookie of a request is that of the
        // connection on which it was sent last. Only the next send changes it, and the task when it
        // waits for a connection, to that of the time before the connection.
        unsafe {
            let current = (&raw const (*self.as_raw()).connect_cookie).read_volatile();
            if (*rqst).rq_connect_cookie != current || !self.is_connected() {
                (*rqst).rq_cong = 0;
            }
        }
    }

    /// Marks the transport as disconnected, and wakes the tasks that wait for it with `ENOTCONN`.
    /// The caller holds the send lock.
    pub(super) fn disconnect_done(&self) {
        let raw = self.as_raw();
        let lock = self.transport_lock();
        self.next_cookie();
        // SAFETY: The transport is valid, and the lock that guards the window and the orphans is
        // held. Others read the window without it.
        unsafe {
            (&raw mut (*raw).cong).write_volatile(0);
            *self.orphans() = Orphans::default();
        }
        drop(lock);
        // SAFETY: The transport is valid.
        unsafe { bindings::xprt_disconnect_done(raw) };
    }

    /// Sets the number of requests that may be outstanding. Tasks that wait for a credit are woken
    /// when the next one is returned: that of the Call whose Reply grants these.
    pub(crate) fn set_credits(&self, credits: u32) {
        let _guard = self.transport_lock();
        // SAFETY: The transport is valid, and the lock that guards the window is held.
        unsafe { (*self.as_raw()).cwnd = window(credits) };
    }

    /// How many credits are in use.
    pub(crate) fn credits_in_use(&self) -> usize {
        // SAFETY: The transport is valid; the number is informational and may be slightly stale.
        let taken = unsafe { core::ptr::read_volatile(&raw const (*self.as_raw()).cong) };
        taken >> bindings::RPC_CWNDSHIFT
    }

    /// How long the responder may owe Replies, in jiffies.
    fn reply_timeout(&self) -> usize {
        // SAFETY: The allocation is valid; another mount may lower this word concurrently.
        unsafe { (&raw const (*self.allocation()).base.timeout.to_initval).read_volatile() }
    }
}

/// `prepare_request`: a request is about to be queued. sunrpc puts those that have a credit first.
/// With one of an earlier connection a Call would wait for another one in front of backward
/// Replies, which need none. Task context; does not sleep.
///
/// # Safety
///
/// `rqst` is a request of one of this module's transports, and not queued.
pub(super) unsafe extern "C" fn prepare_request(
    rqst: *mut bindings::rpc_rqst,
    _buffer: *mut bindings::xdr_buf,
) -> c_int {
    // SAFETY: The transport is valid. A request that is not queued is not sent, and this thread
    // alone may release it.
    unsafe {
        if !backchannel::is_backward(rqst) {
            Xprt::from_raw((*rqst).rq_xprt).forget_earlier_credit(rqst);
        }
    }
    0
}

/// `release_request`: a Call that has no Reply leaves its credit in use. Called under the transport
/// lock.
///
/// # Safety
///
/// - `task` has a request, of one of this module's transports, whose setup has succeeded and whose
///   transport lock is held.
/// - The request is neither sent nor completed during the call, or later.
pub(super) unsafe extern "C" fn release_request(task: *mut bindings::rpc_task) {
    // SAFETY: The task has a request, whose transport is valid and locked, and which no thread
    // sends. Setup has initialised the work.
    unsafe {
        let rqst = (*task).tk_rqstp;
        let xprt = Xprt::from_raw((*rqst).rq_xprt);
        if backchannel::is_backward(rqst) {
            return;
        }
        xprt.forget_earlier_credit(rqst);
        if xprt.orphan_credit(rqst) {
            xprt.enqueue(&raw mut (*xprt.allocation()).overdue, xprt.reply_timeout());
        }
    }
}

/// Closes the connection if all credits belong to killed Calls, whose Replies are overdue; if
/// these are not overdue yet, queues itself again. On the class's queue.
///
/// # Safety
///
/// `work` is the `overdue` of an [`XprtAllocation`] whose transport is in use.
pub(super) unsafe extern "C" fn overdue<T: ClientTransport>(work: *mut bindings::work_struct) {
    // SAFETY: The work is that of a transport, whose end waits for it. Its setup has succeeded, as
    // there have been requests.
    let (xprt, transport) = unsafe {
        let delayed = kernel::container_of!(work, bindings::delayed_work, work);
        let allocation = kernel::container_of!(delayed, XprtAllocation, overdue);
        let xprt = Xprt::from_raw(allocation.cast());
        (xprt, xprt.transport::<T>())
    };
    let mut left = None;
    transport.timed_out(|| {
        left = xprt.time_left(xprt.reply_timeout());
        left == Some(0)
    });
    if let Some(left) = left.filter(|left| *left != 0) {
        // SAFETY: Setup has initialised the work.
        unsafe { xprt.enqueue(&raw mut (*xprt.allocation()).overdue, left) };
    }
}

#[cfg(rpcrdma_kunit)]
#[kernel::macros::kunit_tests(rpcrdma_sunrpc_client_credits)]
mod tests {
    use super::*;
    use crate::sunrpc::{credits::unregistered::Unregistered, SendError};

    #[test]
    fn a_credit_counts_on_its_connection_only() {
        let transport = Unregistered::new::<XprtAllocation>();
        let mut requests = [transport.request(), transport.request()];
        let [first, second] = requests.each_mut();
        // SAFETY: The transport is valid.
        let xprt = unsafe { Xprt::from_raw(transport.0) };
        let connect = |credits| {
            xprt.set_credits(credits);
            xprt.next_cookie();
            xprt.set(bindings::XPRT_CONNECTED);
        };
        connect(2);
        assert_eq!(transport.send(first, Ok(())), Ok(()));
        assert_eq!(transport.send(second, Ok(())), Ok(()));
        xprt.disconnect_done();
        assert_eq!(xprt.credits_in_use(), 0);
        // The first one waits for the connection, as in xprt_connect().
        // SAFETY: Only this test uses the transport and its requests.
        let forget = |rqst| unsafe { xprt.forget_earlier_credit(rqst) };
        // SAFETY: The transport is valid.
        first.0.rq_connect_cookie = unsafe { (*transport.0).connect_cookie };
        forget(&raw mut first.0);
        assert_eq!(first.0.rq_cong, 0);
        connect(1);
        // The first one cannot be sent at once.
        for _ in 0..2 {
            assert_eq!(transport.send(first, Ok(())), Ok(()));
        }
        forget(&raw mut first.0);
        assert_eq!(first.0.rq_cong, 1);
        forget(&raw mut second.0);
        assert_eq!(transport.send(second, Ok(())), Err(SendError::NoCredit));
        assert_eq!(xprt.credits_in_use(), 1);
        xprt.set_credits(2);
        assert_eq!(transport.send(second, Ok(())), Ok(()));
        assert_eq!(xprt.credits_in_use(), 2);
        xprt.disconnect_done();
        forget(&raw mut first.0);
        // SAFETY: Only this test uses the transport and its requests, which have a task.
        assert!(!unsafe { xprt.orphan_credit(&raw mut first.0) });
        assert_eq!(first.0.rq_cong, 0);
        assert_eq!(xprt.credits_in_use(), 0);
    }
}
