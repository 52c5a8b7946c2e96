// SPDX-License-Identifier: GPL-2.0

//! Requests that wait for their Reply, as completion handlers find them.

use super::{buffer, rqst::ForwardRqst, rqst_buf::RqstBuf, xprt::Xprt};
use crate::{bindings, sunrpc::send_error::end_task};
use core::{mem::ManuallyDrop, ptr::NonNull};
use kernel::{prelude::*, sync::atomic::Relaxed, time::Delta};

impl Xprt {
    /// Finds and pins the request with this XID, if it waits for a Reply and no other Reply to it
    /// is being handled. sunrpc counts the lookups that find nothing.
    pub(crate) fn pin(&self, xid: u32) -> Result<PinnedRqst, NotPinned> {
        let _guard = self.queue_lock();
        // SAFETY: The transport is valid, and the lock that the lookup requires is held.
        let ptr = NonNull::new(unsafe { bindings::xprt_lookup_rqst(self.as_raw(), xid.to_be()) });
        let ptr = ptr.ok_or(NotPinned::Unknown)?;
        // SAFETY: The request was just found, under the same lock: it waits for a Reply.
        let is_taken = &unsafe { buffer::prefix(ptr.as_ptr()) }.is_taken;
        if is_taken.load(Relaxed) {
            return Err(NotPinned::Taken);
        }
        is_taken.store(true, Relaxed);
        // SAFETY: The request was just found, and the lock, under which it stays, is held.
        unsafe { bindings::xprt_pin_rqst(ptr.as_ptr()) };
        // INVARIANT: Found, marked and pinned under the lock.
        Ok(PinnedRqst(ptr))
    }
}

/// Why no request was pinned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotPinned {
    /// None with this XID waits for a Reply.
    Unknown,
    /// It has a Reply, which is being handled.
    Taken,
}

/// A request that waits for its Reply and was pinned, so it stays until it is unpinned, and so does
/// its transport: the request's task has a reference to that, and waits for the pin before it
/// releases the request.
///
/// # Invariants
///
/// The request is pinned once by this object, and marked as taken on behalf of it, so there is no
/// other such object for the request. It has not been completed. As it waits for a Reply, it is a
/// forward request, has a task, and is between `buf_alloc` and `buf_free`. The holder keeps the
/// transport as well, through its connection, until this object is gone: the queue lock is released
/// after the unpin, with which the task may go.
pub(crate) struct PinnedRqst(NonNull<bindings::rpc_rqst>);

// SAFETY: Any thread may complete a pinned request.
unsafe impl Send for PinnedRqst {}

// SAFETY: The request is a forward one with a task, between `buf_alloc` and `buf_free` (type
// invariant).
unsafe impl ForwardRqst for PinnedRqst {
    fn raw(&self) -> *mut bindings::rpc_rqst {
        self.0.as_ptr()
    }
}

impl PinnedRqst {
    /// The time from the Send to the arrival of the Reply.
    pub(crate) fn round_trip(&self) -> Delta {
        // SAFETY: A pinned request is valid; the lookup has set the time.
        Delta::from_nanos(unsafe { (*self.raw()).rq_rtt })
    }

    /// The buffer for the Reply, without missing pages. The request's task does not access it
    /// before the completion.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, though another try may succeed.
    pub(crate) fn reply(&self) -> Result<RqstBuf<'_>> {
        // SAFETY: A pinned request is valid, and between `buf_alloc` and `buf_free`.
        unsafe { RqstBuf::reply(self.0) }
    }

    /// Truncates the head of the Reply's buffer to `length` bytes, for a Reply whose page data the
    /// peer placed after a shorter head than expected.
    pub(crate) fn trim_reply_head(&mut self, length: usize) {
        let raw = self.raw();
        // SAFETY: A pinned request is valid, and its task does not use the Reply's buffer before
        // the completion.
        unsafe {
            if length < (*raw).rq_rcv_buf.head[0].iov_len {
                (*raw).rq_rcv_buf.head[0].iov_len = length;
                (*raw).rq_private_buf.head[0].iov_len = length;
            }
        }
    }

    /// Makes sunrpc learn the length of RPCSEC_GSS' verifiers anew, from the next Reply without
    /// placed data: it was learned from the first Reply, and this one's verifier is longer.
    pub(crate) fn relearn_verifier(&self) {
        // SAFETY: A pinned request is valid, and keeps its credential.
        unsafe { bindings::rpcrdma_rpc_relearn_verifier(self.raw()) };
    }

    /// Completes the request with a Reply of `length` bytes, and wakes its task.
    ///
    /// A request whose memory the peer can still reach is not completed (the fence, RFC 8166
    /// section 8.1): it continues to wait, and is sent again on the next connection.
    pub(crate) fn complete(self, length: usize) {
        match i32::try_from(length) {
            Ok(length) => self.finish(length),
            // No buffer is that large.
            Err(_) => self.fail(EIO),
        }
    }

    /// Fails the RPC, under the same condition. A task that is not asleep yet, because the Reply
    /// was faster, fails too, and does not send the Call again.
    pub(crate) fn fail(self, error: Error) {
        if self.exposure().is_over() {
            // SAFETY: A pinned request is valid and has a task.
            unsafe { end_task(self.raw(), error.to_errno()) };
        }
        self.finish(0);
    }

    fn finish(self, length: i32) {
        if kernel::warn_on!(!self.exposure().is_over()) {
            return;
        }
        let this = ManuallyDrop::new(self);
        let (raw, xprt) = (this.raw(), this.xprt());
        // SAFETY: A pinned request is one of the transport, has a task, and is not released.
        unsafe { xprt.return_credit(raw) };
        let _guard = xprt.queue_lock();
        // SAFETY: A pinned request is valid, and the lock that the call requires is held.
        unsafe { bindings::xprt_complete_rqst((*raw).rq_task, length) };
        this.unpin();
    }

    /// The request's transport.
    fn xprt(&self) -> &Xprt {
        // SAFETY: A pinned request is valid, and its transport, one of this module's, stays with
        // it.
        unsafe { Xprt::from_raw((*self.raw()).rq_xprt) }
    }

    /// Unpins the request, which is not used any longer; the queue lock is held.
    fn unpin(&self) {
        // SAFETY: By the type's invariant this object marked and pinned the request.
        unsafe {
            buffer::prefix(self.raw()).is_taken.store(false, Relaxed);
            bindings::xprt_unpin_rqst(self.raw());
        }
    }
}

/// A request that is not completed continues to wait, and is sent again on the next connection.
impl Drop for PinnedRqst {
    fn drop(&mut self) {
        let _guard = self.xprt().queue_lock();
        self.unpin();
    }
}
