// SPDX-License-Identifier: GPL-2.0

//! Requests: one RPC each (`struct rpc_rqst`).

use super::{
    backchannel, buffer,
    rqst_buf::{ReplyRoom, RqstBuf},
    xprt::Xprt,
};
use crate::{
    bindings::{self, RelaxedCell},
    sunrpc::BcRqst,
};
use core::{ops::Deref, ptr::NonNull};
use kernel::types::Opaque;

/// The numbers by which sunrpc's trace events identify an RPC: that of its task, and that of the
/// task's RPC client, or `u32::MAX` without one.
///
/// # Safety
///
/// `rqst` is valid and has a task.
pub(super) unsafe fn task_of(rqst: *const bindings::rpc_rqst) -> (u32, u32) {
    // SAFETY: `rqst` is valid and has a task (this function's contract). The task's number and
    // client do not change.
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
pub(super) unsafe fn lens_of(message: *const bindings::xdr_buf) -> [usize; 3] {
    // SAFETY: `message` is valid (this function's contract).
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
        impl $crate::trace::TraceRqst for $type {
            fn task(&self) -> (u32, u32) {
                let $self = self;
                // SAFETY: By the type's invariant the request is valid and has a task.
                unsafe { $crate::sunrpc::client::rqst::task_of($raw) }
            }

            fn xid(&self) -> u32 {
                let $self = self;
                // SAFETY: By the type's invariant the request is valid.
                u32::from_be(unsafe { (*$raw).rq_xid })
            }

            fn call_lens(&self) -> [usize; 3] {
                let $self = self;
                // SAFETY: By the type's invariant the request is valid, and so is its Call.
                unsafe { $crate::sunrpc::client::rqst::lens_of(&raw const (*$raw).rq_snd_buf) }
            }

            fn reply_lens(&self) -> [usize; 3] {
                let $self = self;
                // SAFETY: By the type's invariant the request is valid, and so is the buffer for
                // its Reply.
                unsafe { $crate::sunrpc::client::rqst::lens_of(&raw const (*$raw).rq_rcv_buf) }
            }
        }
    };
}

trace_rqst!(Rqst, |rqst| rqst.as_raw());
pub(super) use trace_rqst;

/// One forward RPC, during a callback.
///
/// # Invariants
///
/// A reference to a `Rqst` points to a forward request that belongs to the running callback. It has
/// a task, and is between `buf_alloc` and `buf_free`.
#[repr(transparent)]
pub(crate) struct Rqst(Opaque<bindings::rpc_rqst>);

impl Rqst {
    /// Borrows a request from C.
    ///
    /// # Safety
    ///
    /// The type's invariants hold for all of `'a`.
    pub(super) unsafe fn from_raw<'a>(ptr: *mut bindings::rpc_rqst) -> &'a Self {
        // SAFETY: `ptr` is a forward request that belongs to the running callback (this function's
        // contract), and `Rqst` is transparent over `rpc_rqst`.
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
        // SAFETY: The request is a forward one between `buf_alloc` and `buf_free`, and belongs to
        // the running callback, so the Call does too (type invariant).
        unsafe { RqstBuf::call(NonNull::new_unchecked(self.as_raw())) }
    }

    /// The buffer for the Reply.
    pub(crate) fn reply(&self) -> ReplyRoom<'_> {
        // SAFETY: The request is a forward one between `buf_alloc` and `buf_free`, and belongs to
        // the running callback, so the buffer for its Reply does too (type invariant).
        unsafe { ReplyRoom::new(NonNull::new_unchecked(self.as_raw())) }
    }

    /// Whether direct placement of the page data is allowed. With RPCSEC_GSS integrity or privacy
    /// the upper layer does not see the bytes of the pages, so they cannot be placed directly.
    pub(crate) fn placement_allowed(&self) -> bool {
        let datatouch = 1usize << bindings::RPCAUTH_AUTH_DATATOUCH;
        // SAFETY: The request is valid. While it is sent it has a credential, which keeps the
        // authenticator. Other bits of the flags may change concurrently.
        let flags = unsafe {
            let auth = (*(*self.as_raw()).rq_cred).cr_auth;
            (&raw const (*auth).au_flags).read_volatile()
        };
        flags & datatouch == 0
    }

    /// Whether a Reply is expected.
    pub(crate) fn reply_expected(&self) -> bool {
        // SAFETY: The request is valid and has a task, whose procedure is null or constant.
        let procedure = unsafe { (*(*self.as_raw()).rq_task).tk_msg.rpc_proc.as_ref() };
        procedure.is_some_and(|procedure| procedure.p_decode.is_some())
    }

    /// A cookie that the transport keeps with the request, 0 for a new one.
    pub(crate) fn cookie(&self) -> &RelaxedCell<u64> {
        // SAFETY: The request is a forward one between `buf_alloc` and `buf_free` (type invariant).
        &unsafe { buffer::prefix(self.as_raw()) }.cookie
    }

    /// Whether a device may reach the request's memory for good, so that it must not be sent again.
    pub(crate) fn is_lost(&self) -> bool {
        // SAFETY: The request is a forward one between `buf_alloc` and `buf_free` (type invariant).
        unsafe { buffer::prefix(self.as_raw()) }.exposure.is_lost()
    }

    /// Whether the request was sent on the present connection, which may end at any time unless the
    /// caller holds the send lock.
    pub(crate) fn is_of_connection(&self, xprt: &Xprt) -> bool {
        // SAFETY: Request and transport are valid, and only the request's sender changes its
        // connect cookie.
        unsafe {
            let current = (&raw const (*xprt.as_raw()).connect_cookie).read_volatile();
            (*self.as_raw()).rq_connect_cookie == current
        }
    }

    /// Starts to measure the round-trip time, and counts the Call's bytes as sent. To be called
    /// before the post: whoever handles the Reply looks at the time.
    pub(crate) fn start(&self) {
        let raw = self.as_raw();
        // SAFETY: The request is valid, and only its sender changes these words. The round-trip
        // time is wrong if the Reply was faster, and nothing else.
        unsafe {
            // CAST: An unsigned int always fits the kernel's usize.
            let length = (*raw).rq_snd_buf.len as usize;
            let sent = (*raw).rq_xmit_bytes_sent.wrapping_add(length);
            (&raw mut (*raw).rq_xmit_bytes_sent).write_volatile(sent);
            (&raw mut (*raw).rq_xtime).write_volatile(bindings::ktime_get());
        }
    }
}

/// A backward Reply that is to be sent.
///
/// # Invariants
///
/// The request is a backward one of this module.
pub(crate) struct BackwardReply<'a>(BcRqst<'a>);

impl<'a> BackwardReply<'a> {
    /// Wraps a request.
    ///
    /// # Safety
    ///
    /// The type's invariants hold.
    pub(super) unsafe fn new(rqst: BcRqst<'a>) -> Self {
        // INVARIANT: The request is a backward one of this module (this function's contract).
        Self(rqst)
    }

    /// The number of the connection on which the backward Call arrived, as it was passed in when
    /// the Call was received.
    pub(crate) fn connection(&self) -> u64 {
        // SAFETY: It is a backward request of this module (type invariant).
        unsafe { backchannel::connection_of(self.0.as_raw()) }
    }
}

impl<'a> Deref for BackwardReply<'a> {
    type Target = BcRqst<'a>;

    fn deref(&self) -> &BcRqst<'a> {
        &self.0
    }
}
