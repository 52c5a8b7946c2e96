// SPDX-License-Identifier: GPL-2.0

//! Credits (RFC 8166 section 3.3.1) of both directions, as sunrpc's congestion window counts them.
//!
//! A Call takes a credit when it is sent, and returns it when its Reply arrives. One that is killed
//! before, or whose caller times out, is released; but the peer still works on it, so that another
//! Call in its place would exceed the grant. Its credit is *orphaned*: it stays in use until a
//! Reply arrives that no request waits for, whatever its XID, or until the connection ends. A peer
//! that makes up XIDs gets no more Calls than it sends Replies.

use super::{
    rpc_xprt::{jiffies, window, RpcXprt},
    SendError,
};
use crate::bindings;

impl RpcXprt {
    /// Sends a Call by `send`, with a credit. If that fails, a credit that is new is returned: a
    /// Call that was sent before may still have one.
    ///
    /// # Safety
    ///
    /// `rqst` is a request of this transport, has a task, and is not released during the call. The
    /// send lock is held.
    ///
    /// # Errors
    ///
    /// [`SendError::NoCredit`], or those of `send`.
    pub(super) unsafe fn send_with_credit(
        &self,
        rqst: *mut bindings::rpc_rqst,
        send: impl FnOnce() -> Result<(), SendError>,
    ) -> Result<(), SendError> {
        // SAFETY: The transport is valid (type invariant). `rqst` is one of its requests, with a
        // task, and is not released, and the send lock, under which alone credits are taken, is
        // held (this function's contract).
        unsafe {
            let is_new = (*rqst).rq_cong == 0;
            if !bindings::xprt_request_get_cong(self.as_raw(), rqst) {
                return Err(SendError::NoCredit);
            }
            let sent = send();
            if sent.is_err() && is_new {
                self.return_credit(rqst);
            }
            sent
        }
    }

    /// Returns a request's credit, if it has one: the request was not sent, or its Reply has
    /// arrived. Wakes a task that waits for a credit.
    ///
    /// # Safety
    ///
    /// `rqst` is a request of this transport, has a task, and is not released during the call.
    pub(super) unsafe fn return_credit(&self, rqst: *mut bindings::rpc_rqst) {
        // SAFETY: `rqst` is a request of this transport with a task, and is not released during the
        // call (this function's contract). The transport lock, which the call requires, is held.
        unsafe {
            let _guard = self.transport_lock();
            bindings::xprt_release_rqst_cong((*rqst).rq_task);
        }
    }

    /// A request is released: if it has a credit, the Call was sent and has no Reply. Returns
    /// whether the credit is orphaned.
    ///
    /// # Safety
    ///
    /// `rqst` is a request of this transport, has a task, and is not sent any longer. The transport
    /// lock is held.
    pub(super) unsafe fn orphan_credit(&self, rqst: *mut bindings::rpc_rqst) -> bool {
        // SAFETY: `rqst` is a request of this transport with a task, and the lock that guards its
        // credit, the orphans and the window is held (this function's contract).
        unsafe {
            let is_orphan = (*rqst).rq_cong != 0 && (*self.orphans()).orphan_credit(jiffies());
            if is_orphan {
                (*rqst).rq_cong = 0;
            }
            bindings::xprt_release_rqst_cong((*rqst).rq_task);
            is_orphan
        }
    }

    /// Records a Reply on the present connection that no request waits for: if it answers a Call
    /// that was given up, the Call's credit is returned. Otherwise a Call may be about to be given
    /// up.
    pub(crate) fn late_reply(&self) {
        let _guard = self.transport_lock();
        // SAFETY: The transport is valid, and the lock that guards the orphans and the window is
        // held. The credit of an orphaned Call has no request.
        unsafe {
            let orphans = &mut *self.orphans();
            if orphans.late_reply(jiffies()) {
                self.release_credit();
            } else {
                orphans.unmatched_reply((*self.as_raw()).cong);
            }
        }
    }

    /// As [`Orphans::time_left`], at present. If no time is left, the connection has to end: tasks
    /// that wait for a credit would wait for ever. Process context; does not sleep.
    pub(super) fn time_left(&self, reply_timeout: usize) -> Option<usize> {
        let _guard = self.transport_lock();
        // SAFETY: The transport is valid, and the lock that guards the orphans and the window is
        // held.
        unsafe { (*self.orphans()).time_left(jiffies(), reply_timeout, (*self.as_raw()).cwnd) }
    }

    /// Returns the credit of a request that no longer exists, and wakes a task that waits for one.
    ///
    /// # Safety
    ///
    /// The transport lock is held, and one of the credits in use belongs to no request.
    unsafe fn release_credit(&self) {
        // sunrpc returns a credit on behalf of a request and its task. These stand in for those
        // that are gone.
        let mut rqst = bindings::rpc_rqst::default();
        let mut task = bindings::rpc_task::default();
        rqst.rq_xprt = self.as_raw();
        rqst.rq_cong = 1;
        task.tk_rqstp = &raw mut rqst;
        // SAFETY: The transport is valid, its lock is held, and `rqst` stands for the credit in use
        // that belongs to no request (this function's contract). The call keeps neither `task` nor
        // `rqst`.
        unsafe { bindings::xprt_release_rqst_cong(&raw mut task) };
    }
}

/// The orphaned credits of one transport. sunrpc's transport lock guards them. Zeroes are valid,
/// and stand for none.
#[derive(Default)]
pub(super) struct Orphans {
    /// Credits in use whose Calls were given up.
    credits: u32,
    /// Replies for which there was neither a waiting request nor an orphaned credit. Such a Reply
    /// arrives after its request has left the queue of those that wait, but before that request is
    /// released.
    unmatched: u32,
    /// When the last Call was given up, or the last Reply to one arrived, in jiffies.
    changed: usize,
}

impl Orphans {
    /// A Call that has a credit, and has been sent, is given up at `now`. Returns whether its
    /// credit stays in use; otherwise its Reply has already arrived.
    pub(super) fn orphan_credit(&mut self, now: usize) -> bool {
        if let Some(rest) = self.unmatched.checked_sub(1) {
            self.unmatched = rest;
            return false;
        }
        self.changed = now;
        self.credits = self.credits.saturating_add(1);
        true
    }

    /// A Reply has arrived at `now` that no request waits for. Returns whether it answers a Call
    /// that was given up, whose credit the caller then returns.
    pub(super) fn late_reply(&mut self, now: usize) -> bool {
        let Some(rest) = self.credits.checked_sub(1) else {
            return false;
        };
        self.credits = rest;
        self.changed = now;
        true
    }

    /// A Reply has arrived that neither a request nor an orphaned credit waits for. If there are no
    /// more of these than credits in use, of which the window has `cong`, its Call may be about to
    /// be given up.
    pub(super) fn unmatched_reply(&mut self, cong: usize) {
        if window(self.unmatched) < cong {
            self.unmatched = self.unmatched.saturating_add(1);
        }
    }

    /// Jiffies from `now` until the connection has to end; `None` without orphaned credits. If they
    /// are all credits of the window `cwnd`, so that nobody else can send, it ends `reply_timeout`
    /// after the last Call that was given up or the last Reply to one. Otherwise the time is always
    /// `reply_timeout`; but the peer may grant fewer credits meanwhile.
    pub(super) fn time_left(&self, now: usize, reply_timeout: usize, cwnd: usize) -> Option<usize> {
        let mut silence = now.wrapping_sub(self.changed);
        if window(self.credits) < cwnd {
            silence = 0;
        }
        (self.credits != 0).then(|| reply_timeout.saturating_sub(silence))
    }
}

/// A transport for tests.
#[cfg(rpcrdma_kunit)]
pub(super) mod unregistered {
    use super::*;
    use kernel::prelude::*;

    /// A request with its task.
    pub(in crate::sunrpc) type Request = KBox<(bindings::rpc_rqst, bindings::rpc_task)>;

    /// A transport of two credits that only its test knows of. It has no `ClassUser`, so its end is
    /// `xprt_free`, and no work is queued for it.
    pub(in crate::sunrpc) struct Unregistered(pub(in crate::sunrpc) *mut bindings::rpc_xprt);

    impl Unregistered {
        /// Its allocation is an `A`.
        pub(in crate::sunrpc) fn new<A>() -> Self {
            // SAFETY: The initial namespace always exists.
            let raw = unsafe {
                let net = &raw mut bindings::init_net;
                bindings::xprt_alloc(net, size_of::<A>(), 2, 2)
            };
            assert!(!raw.is_null());
            // SAFETY: Only this test knows of the transport.
            unsafe { (*raw).cwnd = window(2) };
            Self(raw)
        }

        pub(in crate::sunrpc) fn request(&self) -> Request {
            let mut both = Request::new(Default::default(), GFP_KERNEL).unwrap();
            let (rqst, task): &mut (bindings::rpc_rqst, bindings::rpc_task) = &mut both;
            rqst.rq_xprt = self.0;
            rqst.rq_task = task;
            task.tk_rqstp = rqst;
            both
        }

        /// Sends a request with this result.
        pub(in crate::sunrpc) fn send(
            &self,
            request: &mut Request,
            sent: Result<(), SendError>,
        ) -> Result<(), SendError> {
            // SAFETY: Only this test uses the transport and its request, which has a task.
            unsafe {
                let xprt = &*self.0.cast::<RpcXprt>();
                xprt.send_with_credit(&raw mut request.0, || sent)?;
                // As sunrpc does.
                request.0.rq_connect_cookie = (*self.0).connect_cookie;
            }
            Ok(())
        }
    }

    impl Drop for Unregistered {
        fn drop(&mut self) {
            // SAFETY: Only this test knows of the transport.
            unsafe { bindings::xprt_free(self.0) };
        }
    }
}

#[cfg(rpcrdma_kunit)]
#[kernel::macros::kunit_tests(rpcrdma_sunrpc_credits)]
mod tests {
    use super::{super::rpc_xprt::Base, unregistered::Unregistered, *};

    #[test]
    fn a_call_that_fails_returns_a_new_credit_only() {
        let transport = Unregistered::new::<Base>();
        let mut requests = [0; 3].map(|_| transport.request());
        let [first, second, third] = requests.each_mut();
        let busy = Err(SendError::Busy);
        assert_eq!(transport.send(first, busy), busy);
        assert_eq!(first.0.rq_cong, 0);
        assert_eq!(transport.send(first, Ok(())), Ok(()));
        assert_eq!(transport.send(first, busy), busy);
        assert_eq!(transport.send(second, Ok(())), Ok(()));
        assert_eq!(transport.send(third, Ok(())), Err(SendError::NoCredit));
        // SAFETY: Only this test uses the transport and its request, which has a task.
        unsafe { (*transport.0.cast::<RpcXprt>()).return_credit(&raw mut first.0) };
        assert_eq!(transport.send(third, Ok(())), Ok(()));
        assert_eq!(transport.send(first, Ok(())), Err(SendError::NoCredit));
    }

    #[test]
    fn a_late_reply_returns_one_credit() {
        let mut orphans = Orphans::default();
        assert!(!orphans.late_reply(1));
        assert!(orphans.orphan_credit(2));
        assert!(orphans.orphan_credit(3));
        assert!(orphans.late_reply(4));
        assert_eq!(orphans.time_left(4, 9, 0), Some(9));
        assert!(orphans.late_reply(5));
        assert_eq!(orphans.time_left(5, 9, 0), None);
        assert!(!orphans.late_reply(6));
    }

    #[test]
    fn a_reply_before_the_end_of_its_call_leaves_no_orphan() {
        let mut orphans = Orphans::default();
        orphans.unmatched_reply(window(2));
        orphans.unmatched_reply(window(2));
        // Only two Calls have credits.
        orphans.unmatched_reply(window(2));
        assert!(!orphans.orphan_credit(1));
        assert!(!orphans.orphan_credit(2));
        assert!(orphans.orphan_credit(3));
    }

    #[test]
    fn the_peer_owes_since_the_last_call_or_its_last_reply() {
        let mut orphans = Orphans::default();
        let left = |orphans: &Orphans, now| orphans.time_left(now, 5, window(1));
        // Before the jiffies wrap around.
        assert!(orphans.orphan_credit(usize::MAX));
        assert!(orphans.orphan_credit(8));
        assert_eq!(left(&orphans, 9), Some(4));
        assert!(orphans.late_reply(10));
        assert_eq!(left(&orphans, 12), Some(3));
        assert!(orphans.orphan_credit(13));
        assert_eq!(left(&orphans, 14), Some(4));
        assert_eq!(left(&orphans, 19), Some(0));
    }

    #[test]
    fn the_peer_may_owe_while_there_are_other_credits() {
        let mut orphans = Orphans::default();
        assert!(orphans.orphan_credit(0));
        assert_eq!(orphans.time_left(100, 5, window(2)), Some(5));
        // It grants fewer.
        assert_eq!(orphans.time_left(100, 5, window(1)), Some(0));
    }
}
