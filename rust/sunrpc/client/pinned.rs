// SPDX-License-Identifier: GPL-2.0

//! Requests that wait for their Reply, as completion handlers find them.

use super::{
    buffer,
    rqst::trace_rqst,
    rqst_buf::ReplyRoom,
    xprt::{CountedXprt, Xprt},
};
use crate::{
    bindings::{self, RelaxedCell},
    sunrpc::send_error::end_task,
};
use core::{mem::ManuallyDrop, ptr::NonNull};
use kernel::prelude::*;

trace_rqst!(PinnedRqst<'_>, |rqst| rqst.ptr.as_ptr());

impl Xprt {
    /// Finds and pins the request with this XID, if it waits for a Reply and no other Reply to it
    /// is being handled. sunrpc counts the lookups that find nothing.
    pub(crate) fn pin(&self, xid: u32) -> Result<PinnedRqst<'_>, NotPinned> {
        let _guard = self.queue_lock();
        // SAFETY: The transport is valid, and the lock that the lookup requires is held.
        let ptr = NonNull::new(unsafe { bindings::xprt_lookup_rqst(self.as_raw(), xid.to_be()) });
        let ptr = ptr.ok_or(NotPinned::Unknown)?;
        // SAFETY: The request was just found, under the same lock: it waits for a Reply.
        let is_taken = &unsafe { buffer::prefix(ptr.as_ptr()) }.is_taken;
        if is_taken.get() != 0 {
            return Err(NotPinned::Taken);
        }
        is_taken.set(1);
        // SAFETY: The request was just found, and the lock, under which it stays, is held.
        unsafe { bindings::xprt_pin_rqst(ptr.as_ptr()) };
        // INVARIANT: Found, marked and pinned under the lock.
        Ok(PinnedRqst { ptr, xprt: self })
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

/// A request that waits for its Reply and was pinned, so it stays until it is unpinned.
///
/// # Invariants
///
/// `ptr` is a request of `xprt`, pinned once by this object, and marked as taken on behalf of it,
/// so there is no other such object for the request. It has not been completed. As it waits for a
/// Reply, it is a forward request, has a task, and is between `buf_alloc` and `buf_free`.
pub(crate) struct PinnedRqst<'a> {
    ptr: NonNull<bindings::rpc_rqst>,
    xprt: &'a Xprt,
}

impl PinnedRqst<'_> {
    /// The time from the Send to the arrival of the Reply, in nanoseconds.
    pub(crate) fn round_trip(&self) -> u64 {
        // SAFETY: A pinned request is valid; the lookup has set the time.
        let time = unsafe { (*self.ptr.as_ptr()).rq_rtt };
        time.max(0).unsigned_abs()
    }

    /// The buffer for the Reply. The request's task does not access it before the completion.
    pub(crate) fn reply(&self) -> ReplyRoom<'_> {
        // SAFETY: A pinned request is valid, and between `buf_alloc` and `buf_free`.
        unsafe { ReplyRoom::new(self.ptr) }
    }

    /// The cookie that the transport keeps with the request.
    pub(crate) fn cookie(&self) -> &RelaxedCell<u64> {
        // SAFETY: A pinned request is valid, and between `buf_alloc` and `buf_free`.
        &unsafe { buffer::prefix(self.ptr.as_ptr()) }.cookie
    }

    /// Truncates the head of the Reply's buffer to `length` bytes, for a Reply whose page data the
    /// peer placed behind a shorter head than expected.
    pub(crate) fn trim_reply_head(&mut self, length: usize) {
        let raw = self.ptr.as_ptr();
        // SAFETY: A pinned request is valid, and nobody else uses the Reply's buffer before the
        // completion.
        unsafe {
            if length < (*raw).rq_rcv_buf.head[0].iov_len {
                (*raw).rq_rcv_buf.head[0].iov_len = length;
                (*raw).rq_private_buf.head[0].iov_len = length;
            }
        }
    }

    /// Has sunrpc learn the length of RPCSEC_GSS' verifiers anew, from the next Reply without
    /// placed data: it was learned from the first Reply, and this one's verifier is longer.
    pub(crate) fn relearn_verifier(&self) {
        // SAFETY: A pinned request is valid, and keeps its credential.
        unsafe { bindings::rpcrdma_rpc_relearn_verifier(self.ptr.as_ptr()) };
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
        if self.is_fenced() {
            // SAFETY: A pinned request is valid and has a task.
            unsafe { end_task(self.ptr.as_ptr(), error.to_errno()) };
        }
        self.finish(0);
    }

    fn finish(self, length: i32) {
        if kernel::warn_on!(!self.is_fenced()) {
            return;
        }
        // SAFETY: A pinned request is a forward one of the transport, between `buf_alloc` and
        // `buf_free`.
        unsafe { self.xprt.no_reply_owed(self.ptr.as_ptr()) };
        let _guard = self.xprt.queue_lock();
        // SAFETY: A pinned request is valid, and the lock that the call requires is held.
        unsafe { bindings::xprt_complete_rqst((*self.ptr.as_ptr()).rq_task, length) };
        self.unpin();
        core::mem::forget(self);
    }

    /// Whether the peer can no longer reach the request's memory.
    fn is_fenced(&self) -> bool {
        // SAFETY: A pinned request is valid, and between `buf_alloc` and `buf_free`.
        unsafe { buffer::prefix(self.ptr.as_ptr()) }
            .exposure
            .is_over()
    }

    /// Unpins the request; the queue lock is held.
    fn unpin(&self) {
        // SAFETY: By the type's invariant this object marked and pinned the request, and no longer
        // uses it.
        unsafe {
            buffer::prefix(self.ptr.as_ptr()).is_taken.set(0);
            bindings::xprt_unpin_rqst(self.ptr.as_ptr());
        }
    }

    /// Keeps the request beyond the borrow of its transport, with a counted reference to the
    /// transport. If the transport has no references left, and so no requests, the request is
    /// unpinned instead.
    pub(crate) fn store(self) -> Option<StoredRqst> {
        let xprt = CountedXprt::new(self.xprt)?;
        let ptr = ManuallyDrop::new(self).ptr;
        // INVARIANT: Those of `self`, whose pin this object takes over.
        Some(StoredRqst { ptr, xprt })
    }
}

/// A request that is not completed continues to wait, and is sent again on the next connection.
impl Drop for PinnedRqst<'_> {
    fn drop(&mut self) {
        let _guard = self.xprt.queue_lock();
        self.unpin();
    }
}

/// A pinned request with a reference to its transport.
///
/// # Invariants
///
/// Those of [`PinnedRqst`].
pub(crate) struct StoredRqst {
    ptr: NonNull<bindings::rpc_rqst>,
    xprt: CountedXprt,
}

// SAFETY: Any thread may complete a pinned request.
unsafe impl Send for StoredRqst {}

impl StoredRqst {
    /// Passes the request on to `complete`.
    pub(crate) fn resume<R>(self, complete: impl FnOnce(PinnedRqst<'_>) -> R) -> R {
        let this = ManuallyDrop::new(self);
        // SAFETY: The field is neither used nor dropped after this.
        let xprt = unsafe { core::ptr::read(&this.xprt) };
        // INVARIANT: Those of `self`, whose pin this object takes over.
        complete(PinnedRqst {
            ptr: this.ptr,
            xprt: &xprt,
        })
    }
}

impl Drop for StoredRqst {
    fn drop(&mut self) {
        // INVARIANT: Those of `self`, which is not used any longer.
        drop(PinnedRqst {
            ptr: self.ptr,
            xprt: &self.xprt,
        });
    }
}
