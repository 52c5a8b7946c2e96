// SPDX-License-Identifier: GPL-2.0

//! The backward direction of a connection (RFC 8167): nfsd's Calls to its client, and the Replies.
//!
//! sunrpc sends these Calls through a transport of their own; a connection has at most one. The
//! completion handlers of the connection match its Replies with the requests of that transport: all
//! threads of nfsd may be waiting for the result of a Call.

use crate::{
    bindings,
    sunrpc::{
        rpc_xprt::{window, RpcXprt},
        send_error::end_task,
        XdrBuf,
    },
};
use core::ptr::NonNull;
use kernel::{new_spinlock, prelude::*, sync::SpinLock, time::msecs_to_jiffies};

/// How long a client may leave all Calls that it grants unanswered, after nfsd has given up the
/// last of them, before the next one ends the connection, in milliseconds. nfsd gives one up after
/// a tenth of the lease, 9 s, and then sends it again.
const REPLY_TIMEOUT_MS: u32 = 5_000;

/// Ends all Calls of a transport, and allows no others. Process context; does not sleep.
pub(super) fn disconnect(xprt: &RpcXprt) {
    if xprt.is_connected() {
        // SAFETY: The transport is valid (type invariant).
        unsafe { bindings::xprt_disconnect_done(xprt.as_raw()) };
    }
}

/// Whether all credits of a transport belong to Calls that were given up, and have done so for a
/// while. Process context; does not sleep.
pub(super) fn is_overdue(xprt: &RpcXprt) -> bool {
    xprt.time_left(msecs_to_jiffies(REPLY_TIMEOUT_MS)) == Some(0)
}

/// `release_request`. Called under the transport lock.
///
/// # Safety
///
/// - `task` has a request, of a transport for backward Calls, whose transport lock is held. The
///   request is neither sent nor completed during the call, or later.
pub(super) unsafe extern "C" fn release_request(task: *mut bindings::rpc_task) {
    // SAFETY: `task` has a request of a valid transport, whose lock is held (this function's
    // contract).
    unsafe {
        let rqst = (*task).tk_rqstp;
        RpcXprt::from_raw((*rqst).rq_xprt).orphan_credit(rqst);
    }
}

/// Copies a Reply to its request.
///
/// # Safety
///
/// `rqst` waits for this Reply, and stays during the call.
///
/// # Errors
///
/// `EIO` if the request expects pages.
unsafe fn copy_reply(rqst: *mut bindings::rpc_rqst, payload: &[u8]) -> Result<i32> {
    // SAFETY: Only the completion uses the buffer of a request that waits.
    let rcv_buf = unsafe { &mut (*rqst).rq_rcv_buf };
    // nfsd's callbacks expect no pages; none would be allocated yet.
    if rcv_buf.flags & bindings::XDRBUF_SPARSE_PAGES != 0 {
        return Err(EIO);
    }
    // SAFETY: The buffer belongs to this call, as the request waits for this Reply (this function's
    // contract). No page is missing, as the buffer is not sparse.
    let rcv_buf = unsafe { XdrBuf::from_raw(NonNull::from(rcv_buf)) };
    Ok(i32::try_from(rcv_buf.copy_in(0, payload)?)?)
}

/// The backward direction of one connection.
#[pin_data]
pub(crate) struct Bc {
    #[pin]
    state: SpinLock<State>,
}

/// # Invariants
///
/// `xprt` is null or valid: it is removed before it is freed.
struct State {
    xprt: *const RpcXprt,
    /// Whether the connection has been closed. Then `xprt` is disconnected.
    is_closed: bool,
}

// SAFETY: The transport may be used from any thread.
unsafe impl Send for State {}

impl State {
    fn xprt(&self) -> Option<&RpcXprt> {
        // SAFETY: Valid, or null (type invariant), as long as the lock is held, and thus `self`
        // borrowed.
        unsafe { self.xprt.as_ref() }
    }
}

impl Bc {
    /// No transport.
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            state <- new_spinlock!(State {
                xprt: core::ptr::null(),
                is_closed: false,
            }, "rpcrdma_bc"),
        })
    }

    /// Completes the Call that a Reply answers, and applies the credits that the Reply grants.
    /// Process context; does not sleep.
    pub(crate) fn handle_reply(&self, xid: u32, credits: u32, payload: &[u8]) {
        // SAFETY: The request waits for this Reply, has a task and stays during the call, and the
        // locks that the window and the completion require are held.
        self.with_waiting(xid, |xprt, rqst| unsafe {
            let length = copy_reply(rqst, payload).unwrap_or_else(|error| {
                end_task(rqst, error.to_errno());
                0
            });
            let raw = xprt.as_raw();
            {
                let _guard = xprt.transport_lock();
                (*raw).cwnd = window(credits.min((*raw).max_reqs));
            }
            xprt.return_credit(rqst);
            bindings::xprt_complete_rqst((*rqst).rq_task, length);
        });
    }

    /// An RDMA_ERROR arrived. If it answers a Call that waits, there will be no Reply, and the Call
    /// waits for its timeout: nfsd repeats what has failed without a pause. Process context; does
    /// not sleep.
    pub(crate) fn handle_error(&self, xid: u32) {
        // SAFETY: The request is one of the transport, has a task, and stays during the call.
        self.with_waiting(xid, |xprt, rqst| unsafe { xprt.return_credit(rqst) });
    }

    /// Calls `with` for the request that waits for the Reply with this XID, under `queue_lock`,
    /// which completing the request requires. The request is pinned, so it stays during the call:
    /// the task of one that is complete takes no lock before it releases it.
    fn with_waiting(&self, xid: u32, with: impl FnOnce(&RpcXprt, *mut bindings::rpc_rqst)) {
        let state = self.state.lock();
        let Some(xprt) = state.xprt() else {
            return;
        };
        let raw = xprt.as_raw();
        // SAFETY: The transport is valid, and the lock that the lookup requires is held.
        unsafe {
            let _guard = xprt.queue_lock();
            let rqst = bindings::xprt_lookup_rqst(raw, xid.to_be());
            if !rqst.is_null() {
                bindings::xprt_pin_rqst(rqst);
                with(xprt, rqst);
                bindings::xprt_unpin_rqst(rqst);
                return;
            }
        }
        xprt.late_reply();
    }

    /// The connection has been closed: ends all Calls, and allows no others. Process context; does
    /// not sleep.
    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        if let Some(xprt) = state.xprt() {
            disconnect(xprt);
        }
    }

    /// Adds the transport.
    ///
    /// # Safety
    ///
    /// It stays valid until [`Self::remove`].
    ///
    /// # Errors
    ///
    /// `EPIPE` if the connection has been closed; `EAGAIN` if there is a transport, which sunrpc
    /// finds from now on.
    pub(super) unsafe fn add(&self, xprt: &RpcXprt) -> Result {
        let mut state = self.state.lock();
        if state.is_closed {
            return Err(EPIPE);
        }
        if !state.xprt.is_null() {
            return Err(EAGAIN);
        }
        // INVARIANT: `xprt` stays valid until `remove` (this function's contract).
        state.xprt = xprt;
        Ok(())
    }

    /// Removes the transport.
    pub(super) fn remove(&self) {
        self.state.lock().xprt = core::ptr::null();
    }
}

#[cfg(rpcrdma_kunit)]
#[kernel::macros::kunit_tests(rpcrdma_sunrpc_backchannel_credits)]
mod tests {
    use super::*;
    use crate::sunrpc::{
        credits::unregistered::{Request, Unregistered},
        rpc_xprt::{jiffies, Base},
    };
    use kernel::sync::Arc;

    fn transport() -> Unregistered {
        Unregistered::new::<Base>()
    }

    fn xprt(transport: &Unregistered) -> &RpcXprt {
        // SAFETY: It is valid until it is dropped.
        unsafe { RpcXprt::from_raw(transport.0) }
    }

    #[test]
    fn a_connection_has_one_transport_until_it_is_closed() {
        let bc = Arc::pin_init(Bc::new(), GFP_KERNEL).unwrap();
        let (one, other) = (transport(), transport());
        let add = |transport: &Unregistered| {
            // SAFETY: The transports are valid until the end of the test.
            unsafe { bc.add(xprt(transport)) }
        };
        assert_eq!(add(&one), Ok(()));
        assert_eq!(add(&other), Err(EAGAIN));
        bc.remove();
        assert_eq!(add(&other), Ok(()));
        bc.close();
        bc.remove();
        assert_eq!(add(&one), Err(EPIPE));
    }

    #[test]
    fn calls_wait_for_orphaned_credits_for_a_while() {
        let transport = transport();
        let mut requests = [0; 3].map(|_| transport.request());
        let [first, second, third] = requests.each_mut();
        let xprt = xprt(&transport);
        let orphan = |request: &mut Request, ago| {
            assert_eq!(transport.send(request, Ok(())), Ok(()));
            request.0.rq_cong = 0;
            // SAFETY: Only this test uses the transport. Its field is valid.
            let orphans = unsafe { &mut *xprt.orphans() };
            let now = jiffies();
            assert!(orphans.orphan_credit(now.wrapping_sub(msecs_to_jiffies(ago))));
        };
        assert!(!is_overdue(xprt));
        orphan(first, 3 * REPLY_TIMEOUT_MS);
        // There is another credit.
        assert!(!is_overdue(xprt));
        orphan(second, REPLY_TIMEOUT_MS / 2);
        assert!(!is_overdue(xprt));
        xprt.late_reply();
        orphan(third, 2 * REPLY_TIMEOUT_MS);
        assert!(is_overdue(xprt));
    }
}
