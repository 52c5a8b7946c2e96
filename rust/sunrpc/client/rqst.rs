// SPDX-License-Identifier: GPL-2.0

//! Requests: one RPC each (`struct rpc_rqst`).

use super::{
    backchannel, buffer,
    class::SendError,
    rqst_buf::{ReplyRoom, RqstBuf},
    xprt::Xprt,
};
use crate::{
    bindings::{self, Word},
    sunrpc::XdrBuf,
    trace,
};
use core::ptr::NonNull;
use kernel::{
    prelude::*,
    sync::atomic::{Atomic, Relaxed},
    types::Opaque,
};

/// The numbers by which sunrpc's trace events name an RPC: the task's, and that of the RPC client that it
/// is a task of, or `u32::MAX` without one.
///
/// # Safety
///
/// `rqst` is valid and has a task.
unsafe fn task_of(rqst: *const bindings::rpc_rqst) -> (u32, u32) {
    // SAFETY: The caller's promise. A task's number and client do not change.
    unsafe {
        let task = (*rqst).rq_task;
        let client = (*task).tk_client;
        let number = if client.is_null() {
            u32::MAX
        } else {
            (*client).cl_clid
        };
        ((*task).tk_pid.into(), number)
    }
}

/// Lengths of head, pages and tail.
///
/// # Safety
///
/// `message` is valid.
unsafe fn lens_of(message: *const bindings::xdr_buf) -> [usize; 3] {
    // SAFETY: The caller's promise.
    unsafe {
        [
            (*message).head[0].iov_len,
            // CAST: An unsigned int always fits the kernel's usize.
            (*message).page_len as usize,
            (*message).tail[0].iov_len,
        ]
    }
}

macro_rules! trace_rqst {
    ($type:ty, |$self:ident| $raw:expr) => {
        impl trace::TraceRqst for $type {
            fn task(&self) -> (u32, u32) {
                let $self = self;
                // SAFETY: By the type's invariant the request is valid and has a task.
                unsafe { task_of($raw) }
            }

            fn xid(&self) -> u32 {
                let $self = self;
                // SAFETY: By the type's invariant the request is valid.
                u32::from_be(unsafe { (*$raw).rq_xid })
            }

            fn call_lens(&self) -> [usize; 3] {
                let $self = self;
                // SAFETY: As above.
                unsafe { lens_of(&raw const (*$raw).rq_snd_buf) }
            }

            fn reply_lens(&self) -> [usize; 3] {
                let $self = self;
                // SAFETY: As above.
                unsafe { lens_of(&raw const (*$raw).rq_rcv_buf) }
            }
        }
    };
}

trace_rqst!(Rqst, |rqst| rqst.as_raw());
trace_rqst!(PinnedRqst, |rqst| rqst.ptr.as_ptr());

/// Has the task of a request end with this error number when it runs next.
///
/// # Safety
///
/// `rqst` is valid and has a task.
unsafe fn end_task(rqst: *mut bindings::rpc_rqst, errno: i32) {
    // SAFETY: The caller's promise; the error is only changed atomically, and from 0, as here.
    let status = unsafe { Atomic::from_ptr(&raw mut (*(*rqst).rq_task).tk_rpc_status) };
    // An earlier error counts.
    let _ = status.cmpxchg(0, errno, Relaxed);
}

/// One forward RPC, during a callback.
///
/// # Invariants
///
/// A reference to a `Rqst` points to a request that belongs to the running callback.
#[repr(transparent)]
pub(crate) struct Rqst(Opaque<bindings::rpc_rqst>);

impl Rqst {
    /// Borrows a request from C.
    ///
    /// # Safety
    ///
    /// `ptr` is a request that the caller has for itself during `'a`.
    pub(super) unsafe fn from_raw<'a>(ptr: *mut bindings::rpc_rqst) -> &'a Self {
        // SAFETY: `Rqst` is transparent over `rpc_rqst`; the rest is the caller's promise.
        unsafe { &*ptr.cast() }
    }

    /// The C pointer.
    pub(super) fn as_raw(&self) -> *mut bindings::rpc_rqst {
        self.0.get()
    }

    /// The transaction identifier, in host byte order.
    pub(crate) fn xid(&self) -> u32 {
        // SAFETY: The request is valid.
        u32::from_be(unsafe { (*self.as_raw()).rq_xid })
    }

    /// The Call.
    pub(crate) fn call(&self) -> RqstBuf<'_> {
        // SAFETY: The request is valid, the callback's own, and between `buf_alloc` and `buf_free`.
        unsafe { RqstBuf::call(NonNull::new_unchecked(self.as_raw())) }
    }

    /// The room for the Reply.
    pub(crate) fn reply(&self) -> ReplyRoom<'_> {
        // SAFETY: As above.
        unsafe { ReplyRoom::new(NonNull::new_unchecked(self.as_raw())) }
    }

    /// Whether the pages' bytes are what the upper layer sees. With RPCSEC_GSS integrity or
    /// privacy they are not, and cannot be placed directly.
    pub(crate) fn placement_allowed(&self) -> bool {
        let datatouch = 1usize << bindings::RPCAUTH_AUTH_DATATOUCH;
        // SAFETY: The request is valid and has a credential while it is sent, which keeps the
        // authenticator. Others may change the flags' other bits.
        let flags = unsafe {
            let auth = (*(*self.as_raw()).rq_cred).cr_auth;
            (&raw const (*auth).au_flags).read_volatile()
        };
        flags & datatouch == 0
    }

    /// Whether the peer will answer.
    pub(crate) fn reply_expected(&self) -> bool {
        // SAFETY: The request is valid and has a task, whose procedure is null or constant.
        let procedure = unsafe { (*(*self.as_raw()).rq_task).tk_msg.rpc_proc.as_ref() };
        procedure.is_some_and(|procedure| procedure.p_decode.is_some())
    }

    /// A number that the transport keeps with the request, 0 for a new one.
    pub(crate) fn mark(&self) -> &Word<u64> {
        // SAFETY: The request is valid, and between `buf_alloc` and `buf_free`.
        unsafe { buffer::mark(self.as_raw()) }
    }

    /// Says whether the peer owes the Reply: before the Call is posted, or if it was not.
    pub(super) fn set_reply_owed(&self, owed: bool) {
        // SAFETY: The request is valid, and between `buf_alloc` and `buf_free`.
        unsafe { buffer::reply_owed(self.as_raw()) }.set(owed.into());
    }

    /// Whether the request was sent on the connection that is up now. It may end meanwhile, unless the
    /// caller holds the send lock.
    pub(crate) fn is_of_connection(&self, xprt: &Xprt) -> bool {
        // SAFETY: Request and transport are valid, and only the request's sender changes its cookie.
        unsafe {
            let current = (&raw const (*xprt.as_raw()).connect_cookie).read_volatile();
            (*self.as_raw()).rq_connect_cookie == current
        }
    }

    /// Ends the RPC with an error, whoever sends it: its task finds the error when it runs next.
    pub(super) fn end_rpc(&self, error: SendError) {
        // SAFETY: The request is valid and has a task.
        unsafe { end_task(self.as_raw(), error.to_errno()) };
    }

    /// Starts the clock of the round trip.
    pub(crate) fn start_clock(&self) {
        // SAFETY: The request is valid and the callback's own.
        unsafe { (*self.as_raw()).rq_xtime = bindings::ktime_get() };
    }

    /// Counts the Call's bytes as sent. To be called before the post, after which the Reply can
    /// change the request.
    pub(crate) fn count_sent(&self) {
        let raw = self.as_raw();
        // SAFETY: The request is valid, and its sender alone counts.
        unsafe {
            // CAST: An unsigned int always fits the kernel's usize.
            let length = (*raw).rq_snd_buf.len as usize;
            (*raw).rq_xmit_bytes_sent = (*raw).rq_xmit_bytes_sent.wrapping_add(length);
        }
    }
}

/// A backward Reply, to be sent.
///
/// # Invariants
///
/// The request is a backward one.
pub(crate) struct BackwardReply<'a>(&'a Rqst);

impl<'a> BackwardReply<'a> {
    /// The Reply of a request, if that is a backward one.
    pub(super) fn new(rqst: &'a Rqst) -> Option<Self> {
        // INVARIANT: Just looked at.
        backchannel::is_backward(rqst).then_some(Self(rqst))
    }

    /// The number of the connection that the backward Call came on, as it was told when the Call was
    /// received.
    pub(crate) fn connection(&self) -> u64 {
        // SAFETY: By the type's invariant.
        unsafe { backchannel::connection_of(self.0) }
    }

    /// The transaction identifier of the backward Call, in host byte order.
    pub(crate) fn xid(&self) -> u32 {
        self.0.xid()
    }

    fn message(&self) -> NonNull<bindings::xdr_buf> {
        // SAFETY: The request is valid and the callback's own.
        unsafe { NonNull::new_unchecked(&raw mut (*self.0.as_raw()).rq_snd_buf) }
    }

    /// Length of the RPC message in bytes.
    pub(crate) fn len(&self) -> usize {
        // SAFETY: The request is valid and the callback's own.
        // CAST: An unsigned int always fits the kernel's usize.
        unsafe { (*self.message().as_ptr()).len as usize }
    }

    /// Copies the start of the RPC message into `to`.
    ///
    /// # Errors
    ///
    /// `EMSGSIZE` if the message is shorter.
    pub(crate) fn copy_out(&self, to: &mut [u8]) -> Result {
        // SAFETY: The service has built the message in the memory of the request.
        unsafe { XdrBuf::from_raw(self.message()) }.copy_out(0, to)
    }
}

/// A request that waits for its Reply and was pinned, so that it stays until it is unpinned.
///
/// # Invariants
///
/// `ptr` is a request of `xprt`, pinned once by this object. It is not completed yet. The transport
/// outlives it, because `close` waits for the queue pair that keeps pinned requests.
pub(crate) struct PinnedRqst {
    ptr: NonNull<bindings::rpc_rqst>,
}

// SAFETY: A pinned request may be completed from any thread.
unsafe impl Send for PinnedRqst {}

impl PinnedRqst {
    /// Looks a request up by its transaction identifier and pins it.
    pub(super) fn lookup(xprt: &Xprt, xid: u32) -> Option<Self> {
        let raw = xprt.as_raw();
        let _guard = xprt.queue_lock();
        // SAFETY: The transport is valid, and the lock that the lookup wants is held.
        let ptr = NonNull::new(unsafe { bindings::xprt_lookup_rqst(raw, xid.to_be()) })?;
        // SAFETY: The request was just found, under the same lock.
        unsafe { bindings::xprt_pin_rqst(ptr.as_ptr()) };
        // INVARIANT: Found and pinned under the lock.
        Some(Self { ptr })
    }

    /// The time from the Send to the arrival of the Reply, in nanoseconds.
    pub(crate) fn round_trip(&self) -> u64 {
        // SAFETY: A pinned request is valid; the lookup has set the time.
        let time = unsafe { (*self.ptr.as_ptr()).rq_rtt };
        u64::try_from(time).unwrap_or(0)
    }

    /// The room for the Reply. The request's task does not look at it before the completion.
    pub(crate) fn reply(&self) -> ReplyRoom<'_> {
        // SAFETY: A pinned request is valid, and between `buf_alloc` and `buf_free`.
        unsafe { ReplyRoom::new(self.ptr) }
    }

    /// The number that the transport keeps with the request.
    pub(crate) fn mark(&self) -> &Word<u64> {
        // SAFETY: A pinned request is valid, and between `buf_alloc` and `buf_free`.
        unsafe { buffer::mark(self.ptr.as_ptr()) }
    }

    /// Ends the first part of the Reply's room after `length` bytes, where the peer placed the
    /// pages' data behind a shorter first part than was expected.
    pub(crate) fn trim_reply_head(&mut self, length: usize) {
        let raw = self.ptr.as_ptr();
        // SAFETY: A pinned request is valid, and nobody else uses the Reply's room before the
        // completion.
        unsafe {
            if length < (*raw).rq_rcv_buf.head[0].iov_len {
                (*raw).rq_rcv_buf.head[0].iov_len = length;
                (*raw).rq_private_buf.head[0].iov_len = length;
            }
        }
    }

    /// Wakes the task: the Reply has `length` bytes.
    ///
    /// A request whose memory the peer can still reach is not completed (the fence, RFC 8166
    /// section 8.1): it goes on waiting, and is sent again on the next connection.
    pub(crate) fn complete(self, length: usize) {
        self.finish(i32::try_from(length).unwrap_or(0));
    }

    /// Ends the RPC with an error, on the same condition. A task that is not asleep yet, because the
    /// Reply was faster, ends too, and does not send the Call again.
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
        // SAFETY: A pinned request is valid, and between `buf_alloc` and `buf_free`.
        unsafe { buffer::reply_owed(self.ptr.as_ptr()) }.set(0);
        let _guard = self.xprt().queue_lock();
        // SAFETY: A pinned request is valid; the lock that the call wants is held.
        unsafe { bindings::xprt_complete_rqst((*self.ptr.as_ptr()).rq_task, length) };
        self.unpin();
        core::mem::forget(self);
    }

    /// Whether the peer can no longer reach the request's memory.
    fn is_fenced(&self) -> bool {
        // SAFETY: A pinned request is valid, and between `buf_alloc` and `buf_free`.
        unsafe { buffer::exposure(self.ptr.as_ptr()) }.is_over()
    }

    /// Gives the pin back, with the queue lock held.
    fn unpin(&self) {
        // SAFETY: By the type's invariant this object pinned the request, and gives it up now.
        unsafe { bindings::xprt_unpin_rqst(self.ptr.as_ptr()) };
    }

    fn xprt<'a>(&self) -> &'a Xprt {
        // SAFETY: A request's transport does not change, and outlives this object.
        unsafe { Xprt::from_raw((*self.ptr.as_ptr()).rq_xprt) }
    }
}

/// Without a completion the request waits on, to be sent again on the next connection.
impl Drop for PinnedRqst {
    fn drop(&mut self) {
        let _guard = self.xprt().queue_lock();
        self.unpin();
    }
}
