// SPDX-License-Identifier: GPL-2.0

//! Credits (RFC 8166 section 3.3.1), as sunrpc's congestion window counts them.
//!
//! A request takes a credit when it is sent, and returns it when it is released. The part of the
//! window that is in use, `cong`, counts the credits of the present connection only:
//!
//! - those of requests, each with the `connect_cookie` of the connection on which it was taken. At
//!   the end of a connection `cong` becomes zero; a request takes another credit to be sent again.
//! - *orphaned* ones ([`Orphans`]) of Calls that were killed after they were sent. If these are all
//!   credits, and the responder owes their Replies for too long, the connection is closed, as it is
//!   when a Call times out: otherwise requests that wait for a credit would wait for ever.

use super::{
    backchannel, buffer,
    implementation::ClientTransport,
    xprt::{Xprt, XprtAllocation},
};
use crate::{
    bindings,
    sunrpc::{
        orphans::Orphans,
        rpc_xprt::{jiffies, window},
    },
};
use kernel::ffi::c_int;

impl Xprt {
    /// Takes a credit for the request, which keeps it until the request is released, and records
    /// that the peer owes the Reply. Returns false if there is no credit, and the sender waits in
    /// sunrpc's queue.
    ///
    /// # Safety
    ///
    /// `rqst` is a forward request of this transport that has its buffer. The caller holds the send
    /// lock.
    pub(super) unsafe fn take_credit(&self, rqst: *mut bindings::rpc_rqst) -> bool {
        let lock = self.transport_lock();
        // SAFETY: The request is a forward one of this transport, with its buffer, and the lock
        // that guards the credits is held.
        unsafe {
            self.forget_earlier_credit(rqst);
            buffer::credit(rqst).is_reply_owed = true;
        }
        drop(lock);
        // SAFETY: Transport and request are valid.
        unsafe { bindings::xprt_request_get_cong(self.as_raw(), rqst) }
    }

    /// The request's credit of an earlier connection, if it has one, is no longer counted.
    ///
    /// # Safety
    ///
    /// `rqst` is a forward request of this transport that has its buffer, and the transport lock is
    /// held.
    unsafe fn forget_earlier_credit(&self, rqst: *mut bindings::rpc_rqst) {
        // SAFETY: The request is a forward one of this transport, with its buffer, and the lock
        // that guards the credits is held.
        unsafe {
            let (credit, connect_cookie) = (buffer::credit(rqst), (*self.as_raw()).connect_cookie);
            if credit.connect_cookie != connect_cookie {
                (*rqst).rq_cong = 0;
                credit.connect_cookie = connect_cookie;
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

    /// Sets the number of requests that may be outstanding. If there are more, a task that waits
    /// for a credit is woken.
    pub(crate) fn set_credits(&self, credits: u32) {
        let raw = self.as_raw();
        let _guard = self.transport_lock();
        // SAFETY: The transport is valid, and the lock that guards the window is held. The credit
        // that is returned is one more than requests have.
        unsafe {
            let before = (*raw).cwnd;
            (*raw).cwnd = window(credits);
            if (*raw).cwnd > before {
                (*raw).cong = (*raw).cong.saturating_add(window(1));
                self.release_credit();
            }
        }
    }

    /// How many credits are in use.
    pub(crate) fn credits_in_use(&self) -> usize {
        // SAFETY: The transport is valid; the number is informational and may be slightly stale.
        let taken = unsafe { core::ptr::read_volatile(&raw const (*self.as_raw()).cong) };
        taken >> bindings::RPC_CWNDSHIFT
    }

    /// Records that the peer does not owe the request's Reply: the Call was not sent, or its Reply
    /// has arrived.
    ///
    /// # Safety
    ///
    /// `rqst` is a forward request of this transport that has its buffer.
    pub(super) unsafe fn no_reply_owed(&self, rqst: *mut bindings::rpc_rqst) {
        let _lock = self.transport_lock();
        // SAFETY: The request has its buffer, and the lock that guards its credit is held.
        unsafe { buffer::credit(rqst) }.is_reply_owed = false;
    }

    /// Leaves the request's credit in use if the Call was sent on the present connection and its
    /// Reply has not arrived. A credit of an earlier connection is no longer counted.
    ///
    /// # Safety
    ///
    /// `rqst` is a forward request of this transport with a credit and its buffer, and the
    /// transport lock is held.
    unsafe fn orphan(&self, rqst: *mut bindings::rpc_rqst) {
        // SAFETY: Transport and request are valid, and the lock that guards their credits is held.
        // Setup has initialised the work.
        unsafe {
            self.forget_earlier_credit(rqst);
            let is_owed = (*rqst).rq_cong != 0 && buffer::credit(rqst).is_reply_owed;
            if is_owed && (*self.orphans()).orphan_credit(jiffies()) {
                (*rqst).rq_cong = 0;
                self.enqueue(&raw mut (*self.allocation()).overdue, self.reply_timeout());
            }
        }
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
/// `rqst` is a request of one of this module's transports, and not queued. It is a backward one, or
/// has its buffer.
pub(super) unsafe extern "C" fn prepare_request(
    rqst: *mut bindings::rpc_rqst,
    _buffer: *mut bindings::xdr_buf,
) -> c_int {
    // SAFETY: The transport is valid. The request is a forward one with its buffer, or a backward
    // one, and only this thread uses it.
    unsafe {
        if (*rqst).rq_cong != 0 && !backchannel::is_backward(rqst) {
            let xprt = Xprt::from_raw((*rqst).rq_xprt);
            let _lock = xprt.transport_lock();
            xprt.forget_earlier_credit(rqst);
        }
    }
    0
}

/// `release_request`: returns the request's credit. Called under the transport lock.
///
/// # Safety
///
/// - `task` has a request, of one of this module's transports, whose setup has succeeded and whose
///   transport lock is held.
/// - The request is a backward one, or still has its buffer: sunrpc calls `buf_free` after this.
/// - The request is neither sent nor completed during the call, or later.
pub(super) unsafe extern "C" fn release_request(task: *mut bindings::rpc_task) {
    // SAFETY: The task has a request, whose transport is valid and locked. A forward request with a
    // credit was about to be sent, so it was given a buffer, which it still has.
    unsafe {
        let rqst = (*task).tk_rqstp;
        let xprt = Xprt::from_raw((*rqst).rq_xprt);
        if backchannel::is_backward(rqst) {
            (*rqst).rq_cong = 0;
        } else if (*rqst).rq_cong != 0 {
            xprt.orphan(rqst);
        }
        bindings::xprt_release_rqst_cong(task);
    }
}

/// Closes the connection if all credits belong to killed Calls, whose Replies are overdue. On the
/// class's queue, again and again while any credits do.
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
    match xprt.time_left(xprt.reply_timeout()) {
        None => {}
        Some(0) => transport.timed_out(),
        // SAFETY: Setup has initialised the work.
        Some(left) => unsafe { xprt.enqueue(&raw mut (*xprt.allocation()).overdue, left) },
    }
}

#[cfg(rpcrdma_kunit)]
#[kernel::macros::kunit_tests(rpcrdma_sunrpc_credits)]
mod tests {
    use super::*;
    use kernel::prelude::*;

    /// A transport that only its test knows of. It has no `ClassUser`, so its end is `xprt_free`,
    /// and no work is queued for it.
    struct Unregistered(*mut bindings::rpc_xprt);

    impl Unregistered {
        fn new() -> Self {
            // SAFETY: The initial namespace always exists.
            let raw = unsafe {
                let net = &raw mut bindings::init_net;
                bindings::xprt_alloc(net, size_of::<XprtAllocation>(), 2, 2)
            };
            assert!(!raw.is_null());
            Self(raw)
        }

        /// A request of it that has its buffer.
        fn request(&self) -> KBox<bindings::rpc_rqst> {
            let mut rqst = KBox::new(bindings::rpc_rqst::default(), GFP_KERNEL).unwrap();
            rqst.rq_xprt = self.0;
            // SAFETY: There is no reserve.
            assert!(unsafe { buffer::attach(&mut rqst, core::ptr::null_mut()) }.is_ok());
            rqst
        }

        fn release(&self, rqst: &mut bindings::rpc_rqst) {
            // SAFETY: Only this test uses the request.
            unsafe { buffer::detach(rqst, core::ptr::null_mut()) };
        }
    }

    impl Drop for Unregistered {
        fn drop(&mut self) {
            // SAFETY: Only this test knows of the transport.
            unsafe { bindings::xprt_free(self.0) };
        }
    }

    #[test]
    fn a_credit_counts_on_its_connection_only() {
        let transport = Unregistered::new();
        let mut requests = [transport.request(), transport.request()];
        let [first, second] = requests.each_mut().map(|rqst| &raw mut **rqst);
        // SAFETY: The transport is valid.
        let xprt = unsafe { Xprt::from_raw(transport.0) };
        // SAFETY: Both requests have a buffer, and only this test uses the transport.
        let take = |rqst| unsafe { xprt.take_credit(rqst) };
        xprt.next_cookie();
        xprt.set_credits(2);
        assert!(take(first));
        assert!(take(second));
        xprt.disconnect_done();
        assert_eq!(xprt.credits_in_use(), 0);
        xprt.next_cookie();
        xprt.set_credits(1);
        // The first one cannot be sent at once.
        for _ in 0..2 {
            assert!(take(first));
        }
        assert!(!take(second));
        assert_eq!(xprt.credits_in_use(), 1);
        xprt.set_credits(2);
        assert!(take(second));
        assert_eq!(xprt.credits_in_use(), 2);
        xprt.disconnect_done();
        // SAFETY: The request has a credit and a buffer, and only this test uses the transport.
        unsafe {
            xprt.orphan(first);
            assert_eq!((*first).rq_cong, 0);
        }
        for rqst in &mut requests {
            transport.release(rqst);
        }
    }
}
