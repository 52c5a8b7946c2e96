// SPDX-License-Identifier: GPL-2.0

//! The messages of a request (`rq_snd_buf` and `rq_rcv_buf`), whose memory the peer can be given access to.

use super::buffer;
use crate::{
    bindings::{self, Exposure, Memory, MessagePart},
    sunrpc::XdrBuf,
};
use core::{ops::Deref, ptr::NonNull};

/// A request's Call, or the room for its Reply.
///
/// # Invariants
///
/// `rqst` is a valid forward request between `buf_alloc` and `buf_free` for all of `'a`, and `buf` its
/// `rq_snd_buf` or `rq_rcv_buf`. The memory of the message stays until the request's exposure is over, but
/// for pages and tail of one that is `counted`.
#[derive(Clone, Copy)]
pub(crate) struct RqstBuf<'a> {
    buf: XdrBuf<'a>,
    rqst: NonNull<bindings::rpc_rqst>,
    /// Whether pages and tail stay only as long as somebody has a reference to their pages.
    counted: bool,
}

impl<'a> RqstBuf<'a> {
    /// The Call of a request.
    ///
    /// # Safety
    ///
    /// As the type's invariants say; the caller has the message for itself.
    pub(super) unsafe fn call(rqst: NonNull<bindings::rpc_rqst>) -> Self {
        // SAFETY: The request is valid, and the message the caller's.
        let (buf, counted) = unsafe {
            let raw = rqst.as_ptr();
            let buf = XdrBuf::from_raw(NonNull::new_unchecked(&raw mut (*raw).rq_snd_buf));
            // Privacy has the Call in pages of its own, which sunrpc gives back when it encodes the
            // Call once more.
            (buf, (*raw).rq_release_snd_buf.is_some())
        };
        // INVARIANT: The caller's promise.
        Self { buf, rqst, counted }
    }

    /// The room for the Reply of a request.
    ///
    /// # Safety
    ///
    /// As for [`Self::call`].
    pub(super) unsafe fn reply(rqst: NonNull<bindings::rpc_rqst>) -> Self {
        // SAFETY: The request is valid, and the message the caller's.
        let buf = unsafe {
            XdrBuf::from_raw(NonNull::new_unchecked(&raw mut (*rqst.as_ptr()).rq_rcv_buf))
        };
        // INVARIANT: The caller's promise.
        Self {
            buf,
            rqst,
            counted: false,
        }
    }

    /// The first part.
    #[inline(always)]
    pub(crate) fn head(&self) -> Option<MessagePart<'a>> {
        self.part(self.buf.head()?, false)
    }

    /// The pages, if there are any.
    #[inline(always)]
    pub(crate) fn pages(&self) -> Option<MessagePart<'a>> {
        self.part(self.buf.pages()?, self.counted)
    }

    /// The last part, if there is one.
    #[inline(always)]
    pub(crate) fn tail(&self) -> Option<MessagePart<'a>> {
        self.part(self.buf.tail()?, self.counted)
    }

    /// All parts in order.
    pub(crate) fn parts(&self) -> [Option<MessagePart<'a>>; 3] {
        [self.head(), self.pages(), self.tail()]
    }

    #[inline(always)]
    fn part(&self, (memory, length): (Memory, usize), counted: bool) -> Option<MessagePart<'a>> {
        // SAFETY: By the invariants of both types the memory has that length, and stays.
        unsafe { MessagePart::new(memory, length, self.exposure(), counted) }
    }

    /// What counts the regions over the message's memory.
    fn exposure(&self) -> &'a Exposure {
        // SAFETY: By the type's invariant.
        unsafe { buffer::exposure(self.rqst.as_ptr()) }
    }
}

impl<'a> Deref for RqstBuf<'a> {
    type Target = XdrBuf<'a>;

    fn deref(&self) -> &XdrBuf<'a> {
        &self.buf
    }
}
