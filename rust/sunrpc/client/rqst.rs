// SPDX-License-Identifier: GPL-2.0

//! Requests: one RPC each (`struct rpc_rqst`).

use super::{buffer, rqst_buf::RqstBuf};
use crate::{
    bindings::{self, Exposure},
    trace,
};
use core::ptr::NonNull;
use kernel::{prelude::*, sync::atomic::Relaxed, types::Opaque};

/// A forward request that has a task, and is between `buf_alloc` and `buf_free`.
///
/// # Safety
///
/// [`Self::raw`] returns such a request, which stays so as long as the object exists.
pub(crate) unsafe trait ForwardRqst {
    /// The C pointer.
    fn raw(&self) -> *mut bindings::rpc_rqst;

    /// The transaction identifier, in host byte order.
    fn xid(&self) -> u32 {
        // SAFETY: The request is valid (this trait's contract).
        u32::from_be(unsafe { (*self.raw()).rq_xid })
    }

    /// The implementation's word for the connection and slot of the Call, 0 before it is sent.
    fn ep_cookie(&self) -> u64 {
        // SAFETY: The request is a forward one between `buf_alloc` and `buf_free` (this trait's
        // contract).
        let prefix = unsafe { buffer::prefix(self.raw()) };
        prefix.ep_cookie.load(Relaxed)
    }

    /// Changes [`Self::ep_cookie`].
    fn set_ep_cookie(&self, ep_cookie: u64) {
        // SAFETY: The request is a forward one between `buf_alloc` and `buf_free` (this trait's
        // contract).
        let prefix = unsafe { buffer::prefix(self.raw()) };
        prefix.ep_cookie.store(ep_cookie, Relaxed);
    }

    /// The counter of the regions over the request's memory.
    fn exposure(&self) -> &Exposure {
        // SAFETY: The request is a forward one between `buf_alloc` and `buf_free` (this trait's
        // contract).
        &unsafe { buffer::prefix(self.raw()) }.exposure
    }
}

// SAFETY: The request is valid and has a task (contract of `ForwardRqst`), which keeps its client
// until it has released the request.
unsafe impl<R: ForwardRqst> trace::TraceRqst for R {
    fn raw(&self) -> *const bindings::rpc_rqst {
        ForwardRqst::raw(self)
    }
}

/// One forward RPC, during a callback.
///
/// # Invariants
///
/// A reference to a `Rqst` points to a forward request that belongs to the running callback. It has
/// a task, and is between `buf_alloc` and `buf_free`.
#[repr(transparent)]
pub(crate) struct Rqst(Opaque<bindings::rpc_rqst>);

// SAFETY: The request is a forward one with a task, between `buf_alloc` and `buf_free` (type
// invariant).
unsafe impl ForwardRqst for Rqst {
    fn raw(&self) -> *mut bindings::rpc_rqst {
        self.0.get()
    }
}

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

    /// The Call.
    pub(crate) fn call(&self) -> RqstBuf<'_> {
        // SAFETY: The request is a forward one between `buf_alloc` and `buf_free`, and belongs to
        // the running callback, so the Call does too (type invariant).
        unsafe { RqstBuf::call(NonNull::new_unchecked(self.raw())) }
    }

    /// The buffer for the Reply, without missing pages.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, though another try may succeed.
    pub(crate) fn reply(&self) -> Result<RqstBuf<'_>> {
        // SAFETY: The request is a forward one between `buf_alloc` and `buf_free`, and belongs to
        // the running callback, so the buffer for its Reply does too (type invariant).
        unsafe { RqstBuf::reply(NonNull::new_unchecked(self.raw())) }
    }

    /// Whether direct placement of the page data is allowed. With RPCSEC_GSS integrity or privacy
    /// the upper layer does not see the bytes of the pages, so they cannot be placed directly.
    pub(crate) fn placement_allowed(&self) -> bool {
        let datatouch = 1usize << bindings::RPCAUTH_AUTH_DATATOUCH;
        // SAFETY: The request is valid. While it is sent it has a credential, which keeps the
        // authenticator. Other bits of the flags may change concurrently.
        let flags = unsafe {
            let auth = (*(*self.raw()).rq_cred).cr_auth;
            (&raw const (*auth).au_flags).read_volatile()
        };
        flags & datatouch == 0
    }

    /// Whether the request was sent on the present connection, which may end at any time unless the
    /// caller holds the send lock. While there is none, also true of one that waits for it.
    pub(crate) fn is_of_connection(&self) -> bool {
        // SAFETY: Request and transport are valid, and only the request's sender changes its
        // connect cookie.
        unsafe {
            let current = (&raw const (*(*self.raw()).rq_xprt).connect_cookie).read_volatile();
            (*self.raw()).rq_connect_cookie == current
        }
    }

    /// Starts to measure the round-trip time, and counts the Call's bytes as sent. To be called
    /// before the post: the handler of the Reply reads the time.
    pub(crate) fn start(&self) {
        let raw = self.raw();
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
