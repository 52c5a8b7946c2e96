// SPDX-License-Identifier: GPL-2.0

//! Credits (RFC 8166 section 3.3.1), as sunrpc's congestion window counts them.
//!
//! A request takes a credit when it is sent, and returns it when it is released. The window,
//! `cwnd`, and the part of it that is in use, `cong`, also include credits that do not belong to a
//! living request of this connection:
//!
//! - *stale* credits belong to requests that took them on an earlier connection and were not in
//!   the queue of those that wait for a Reply when this one began. The window is larger by these.
//! - *orphaned* credits ([`Orphans`](crate::sunrpc::orphans::Orphans)) belong to Calls that were
//!   killed after they were sent. If the responder owes their Replies for too long, the connection
//!   is closed, as it is when a Call times out: otherwise requests that wait for a credit would
//!   wait for ever.

use super::{
    backchannel, buffer,
    ops::ClientTransport,
    rqst::Rqst,
    send_lock::SendLock,
    xprt::{Allocation, Shares, TransportLock, Xprt},
};
use crate::{
    bindings,
    sunrpc::rpc_xprt::{self, window},
};

impl SendLock<'_> {
    /// Takes a credit for the request, which keeps it until the request is released, and records
    /// that the peer owes the Reply. Returns false if there is no credit, and the sender waits in
    /// sunrpc's queue, or if the lock is that of another transport.
    pub(crate) fn take_credit(&mut self, rqst: &Rqst) -> bool {
        let (xprt, rqst) = (self.xprt(), rqst.as_raw());
        // SAFETY: The request is valid.
        if xprt.as_raw() != unsafe { (*rqst).rq_xprt } {
            return false;
        }
        let lock = xprt.transport_lock();
        // SAFETY: The request is a forward one of this transport, with its buffer, and the lock
        // that guards the credits is held.
        unsafe {
            if xprt.forget_stale(rqst) {
                (*rqst).rq_cong = 0;
                lock.lower_use(window(1));
            }
            let credit = buffer::credit(rqst);
            if (*rqst).rq_cong == 0 {
                credit.cookie = (*xprt.as_raw()).connect_cookie;
            }
            credit.is_reply_owed = true;
        }
        drop(lock);
        // SAFETY: Transport and request are valid.
        unsafe { bindings::xprt_request_get_cong(xprt.as_raw(), rqst) }
    }

    /// Initialises the credits of a new connection: requests that were sent on an earlier one must
    /// take a credit again. The credits of those that sunrpc has not encoded again become stale.
    pub(crate) fn reset_credits(&mut self, credits: u32) {
        let xprt = self.xprt();
        let raw = xprt.as_raw();
        let _queue = xprt.queue_lock();
        let lock = xprt.transport_lock();
        lock.forget_orphans();
        // SAFETY: The transport is valid. All requests that wait for a Reply are in the tree, which
        // the queue lock guards; the transport lock guards their credits.
        unsafe {
            let mut node = bindings::rb_first(&raw const (*raw).recv_queue);
            while !node.is_null() {
                let rqst = kernel::container_of!(
                    node.cast::<core::mem::ManuallyDrop<bindings::rb_node>>(),
                    bindings::rpc_rqst,
                    __bindgen_anon_1.rq_recv
                );
                if (*rqst).rq_cong != 0 {
                    (*rqst).rq_cong = 0;
                    lock.lower_use(window(1));
                }
                node = bindings::rb_next(node);
            }
            (*xprt.shares()).stale = (*raw).cong;
            (*raw).cwnd = window(credits).saturating_add((*raw).cong);
        }
    }

    /// Marks the transport as disconnected, and wakes the tasks that wait for it with `ENOTCONN`.
    pub(super) fn disconnect_done(&mut self) {
        let xprt = self.xprt();
        let raw = xprt.as_raw();
        let lock = xprt.transport_lock();
        self.next_cookie();
        lock.forget_orphans();
        drop(lock);
        // SAFETY: The transport is valid.
        unsafe { bindings::xprt_disconnect_done(raw) };
    }
}

impl TransportLock<'_> {
    /// Returns the credits of all orphaned Calls when their connection ends.
    fn forget_orphans(&self) {
        // SAFETY: The transport is valid, and by the type's invariant the lock that guards the
        // shares is held.
        let shares = unsafe { &mut *self.xprt.shares() };
        self.lower_use(window(shares.orphans.take_all()));
    }

    /// Lowers the part of the window that is in use. Others read it without the lock.
    fn lower_use(&self, part: usize) {
        let raw = self.xprt.as_raw();
        // SAFETY: The transport is valid, and by the type's invariant the lock that guards the
        // window is held.
        unsafe {
            let rest = (*raw).cong.saturating_sub(part);
            (&raw mut (*raw).cong).write_volatile(rest);
        }
    }
}

impl Xprt {
    /// Sets the number of requests that may be outstanding. If there are more, a task that waits
    /// for a credit is woken.
    pub(crate) fn set_credits(&self, credits: u32) {
        let raw = self.as_raw();
        let _guard = self.transport_lock();
        // SAFETY: The transport is valid, and the lock that guards the window is held. The credit
        // that is returned is one more than requests have.
        unsafe {
            let before = (*raw).cwnd;
            (*raw).cwnd = window(credits).saturating_add((*self.shares()).stale);
            if (*raw).cwnd > before {
                (*raw).cong = (*raw).cong.saturating_add(window(1));
                rpc_xprt::release_credit(raw);
            }
        }
    }

    /// How many credits are in use.
    pub(crate) fn credits_in_use(&self) -> usize {
        // SAFETY: The transport is valid; the number is informational and may be slightly stale.
        let taken = unsafe { core::ptr::read_volatile(&raw const (*self.as_raw()).cong) };
        taken >> bindings::RPC_CWNDSHIFT
    }

    /// Records a Reply on the present connection that no request waits for: if it answers a Call
    /// that was killed, the Call's credit is returned.
    pub(crate) fn late_reply(&self) {
        let raw = self.as_raw();
        let _lock = self.transport_lock();
        // SAFETY: The transport is valid, and the lock that guards the shares and the window is
        // held. The credit of an orphaned Call has no request.
        unsafe {
            let orphans = &mut (*self.shares()).orphans;
            if orphans.late_reply(bindings::rpcrdma_jiffies()) {
                rpc_xprt::release_credit(raw);
            } else {
                orphans.early_reply((*raw).cong);
            }
        }
    }

    fn shares(&self) -> *mut Shares {
        // SAFETY: By the type's invariant the allocation is valid; only takes the address of a
        // field.
        unsafe { &raw mut (*self.allocation()).shares }
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

    /// Removes the request's stale credit, if it has one, from the stale credits and from the
    /// window.
    ///
    /// # Safety
    ///
    /// `rqst` is a forward request of this transport that has its buffer, and the transport lock is
    /// held.
    unsafe fn forget_stale(&self, rqst: *mut bindings::rpc_rqst) -> bool {
        let (raw, part) = (self.as_raw(), window(1));
        // SAFETY: Transport and request are valid, and the lock that guards their credits is held.
        unsafe {
            let shares = &mut *self.shares();
            let is_stale =
                (*rqst).rq_cong != 0 && buffer::credit(rqst).cookie != (*raw).connect_cookie;
            let Some(rest) = shares.stale.checked_sub(part).filter(|_| is_stale) else {
                return false;
            };
            shares.stale = rest;
            (*raw).cwnd = (*raw).cwnd.saturating_sub(part);
        }
        true
    }

    /// Leaves the request's credit in use if the Call was sent on the present connection and its
    /// Reply has not arrived.
    ///
    /// # Safety
    ///
    /// `rqst` is a forward request of this transport with a credit and its buffer, and the
    /// transport lock is held.
    unsafe fn orphan(&self, rqst: *mut bindings::rpc_rqst) {
        // SAFETY: Transport and request are valid, and the lock that guards their credits is held.
        // Setup has initialised the work.
        unsafe {
            let (credit, shares) = (buffer::credit(rqst), &mut *self.shares());
            if credit.is_reply_owed
                && credit.cookie == (*self.as_raw()).connect_cookie
                && shares.orphans.give_up(bindings::rpcrdma_jiffies())
            {
                (*rqst).rq_cong = 0;
                self.enqueue(&raw mut shares.overdue, self.patience());
            }
        }
    }

    /// How long the responder may owe Replies, in jiffies.
    fn patience(&self) -> usize {
        // SAFETY: The allocation is valid; another mount may lower this word concurrently.
        unsafe { (&raw const (*self.allocation()).timeout.to_initval).read_volatile() }
    }
}

/// `release_request`: returns the request's credit. Called under the transport lock.
///
/// # Safety
///
/// - `task` has a request, of one of this module's transports, whose setup has succeeded and whose
///   transport lock is held.
/// - The request is a backward one, or still has its buffer: sunrpc calls `buf_free` after this.
/// - Nobody else sends or completes the request, now or later.
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
            xprt.forget_stale(rqst);
        }
        bindings::xprt_release_rqst_cong(task);
    }
}

/// Closes the connection if the Replies to killed Calls are overdue. On the class's queue.
///
/// # Safety
///
/// `work` is the `overdue` of an [`Allocation`] whose transport is in use.
pub(super) unsafe extern "C" fn overdue<T: ClientTransport>(work: *mut bindings::work_struct) {
    // SAFETY: The work is that of a transport, whose end waits for it. Its setup has succeeded, as
    // there have been requests.
    let (xprt, transport) = unsafe {
        let delayed = kernel::container_of!(work, bindings::delayed_work, work);
        let shares = kernel::container_of!(delayed, Shares, overdue);
        let allocation = kernel::container_of!(shares, Allocation, shares);
        let xprt = Xprt::from_raw(allocation.cast());
        (xprt, xprt.transport::<T>())
    };
    let guard = xprt.transport_lock();
    // SAFETY: The transport is valid, and the lock that guards the shares is held.
    let owed = unsafe { (*xprt.shares()).orphans.owed(bindings::rpcrdma_jiffies()) };
    drop(guard);
    let Some(owed) = owed else {
        return;
    };
    match xprt.patience().checked_sub(owed.silence) {
        // SAFETY: Setup has initialised the work.
        Some(left @ 1..) => unsafe { xprt.enqueue(&raw mut (*xprt.shares()).overdue, left) },
        _ => transport.timed_out(),
    }
}

#[cfg(rpcrdma_kunit)]
#[kernel::macros::kunit_tests(rpcrdma_sunrpc_credits)]
mod tests {
    use super::*;
    use kernel::prelude::*;

    /// A transport that only its test knows of.
    struct Unregistered(*mut bindings::rpc_xprt);

    impl Unregistered {
        fn new() -> Self {
            // SAFETY: The initial namespace always exists.
            let raw = unsafe {
                let net = &raw mut bindings::init_net;
                bindings::xprt_alloc(net, size_of::<Allocation>(), 2, 2)
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
            // SAFETY: Nobody else uses the request.
            unsafe { buffer::detach(rqst, core::ptr::null_mut()) };
        }
    }

    impl Drop for Unregistered {
        fn drop(&mut self) {
            // SAFETY: Nobody else knows of the transport.
            unsafe { bindings::xprt_free(self.0) };
        }
    }

    #[test]
    fn a_stale_credit_is_taken_anew_once() {
        let transport = Unregistered::new();
        let mut requests = [transport.request(), transport.request()];
        let [first, second] = requests.each_mut().map(|rqst| &raw mut **rqst);
        // SAFETY: Transport and requests are valid, and nobody else uses them.
        let (mut lock, first, second) = unsafe {
            let xprt = Xprt::from_raw(transport.0);
            (
                SendLock::new(xprt),
                Rqst::from_raw(first),
                Rqst::from_raw(second),
            )
        };
        lock.reset_credits(2);
        assert!(lock.take_credit(first));
        assert!(lock.take_credit(second));
        // The connection is lost while sunrpc encodes both again.
        lock.next_cookie();
        lock.reset_credits(1);
        // The first one cannot be sent at once.
        for _ in 0..2 {
            assert!(lock.take_credit(first));
        }
        assert!(!lock.take_credit(second));
        assert_eq!(lock.xprt().credits_in_use(), 1);
        lock.xprt().set_credits(2);
        assert!(lock.take_credit(second));
        assert_eq!(lock.xprt().credits_in_use(), 2);
        for rqst in &mut requests {
            transport.release(rqst);
        }
    }
}
