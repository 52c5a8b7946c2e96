// SPDX-License-Identifier: GPL-2.0

//! RPC messages as sunrpc keeps them: head, pages, tail (`struct xdr_buf`).

use super::buffer;
use crate::bindings::{self, Exposure, Memory, MessagePart};
use core::{marker::PhantomData, ptr::NonNull};
use kernel::{error::to_result, page::PAGE_SIZE, prelude::*};

/// A request's Call, or the room for its Reply.
///
/// # Invariants
///
/// `rqst` is a valid forward request between `buf_alloc` and `buf_free` for all of `'a`, and `ptr` its
/// `rq_snd_buf` or `rq_rcv_buf`. Nobody else uses the memory of the message meanwhile, and it stays
/// until the request's exposure is over, but for what [`Self::is_counted`] says.
#[derive(Clone, Copy)]
pub(crate) struct XdrBuf<'a> {
    ptr: NonNull<bindings::xdr_buf>,
    rqst: NonNull<bindings::rpc_rqst>,
    message: PhantomData<&'a Exposure>,
}

impl<'a> XdrBuf<'a> {
    /// The Call of a request.
    ///
    /// # Safety
    ///
    /// As the type's invariants say; the caller has the message for itself.
    pub(super) unsafe fn call(rqst: NonNull<bindings::rpc_rqst>) -> Self {
        // INVARIANT: The caller's promise.
        Self {
            // SAFETY: The request is valid.
            ptr: unsafe { NonNull::new_unchecked(&raw mut (*rqst.as_ptr()).rq_snd_buf) },
            rqst,
            message: PhantomData,
        }
    }

    /// The room for the Reply of a request.
    ///
    /// # Safety
    ///
    /// As for [`Self::call`].
    pub(super) unsafe fn reply(rqst: NonNull<bindings::rpc_rqst>) -> Self {
        // INVARIANT: The caller's promise.
        Self {
            // SAFETY: The request is valid.
            ptr: unsafe { NonNull::new_unchecked(&raw mut (*rqst.as_ptr()).rq_rcv_buf) },
            rqst,
            message: PhantomData,
        }
    }

    fn raw(&self) -> &bindings::xdr_buf {
        // SAFETY: By the type's invariant.
        unsafe { self.ptr.as_ref() }
    }

    /// Whether pages and tail stay only as long as somebody has a reference to their pages. Privacy
    /// has the Call in pages of its own, which sunrpc gives back when it encodes the Call once more.
    fn is_counted(&self) -> bool {
        let rqst = self.rqst.as_ptr();
        // SAFETY: By the type's invariant the request is valid.
        unsafe {
            (*rqst).rq_release_snd_buf.is_some()
                && core::ptr::eq(self.ptr.as_ptr(), &raw const (*rqst).rq_snd_buf)
        }
    }

    /// What counts the regions over the message's memory.
    fn exposure(&self) -> &'a Exposure {
        // SAFETY: By the type's invariant.
        unsafe { buffer::exposure(self.rqst.as_ptr()) }
    }

    /// Length of the first part in bytes.
    pub(crate) fn head_len(&self) -> usize {
        self.raw().head[0].iov_len
    }

    /// Length of the pages' part in bytes.
    pub(crate) fn page_len(&self) -> usize {
        // CAST: An unsigned int always fits the kernel's usize.
        self.raw().page_len as usize
    }

    /// Length of the last part in bytes.
    pub(crate) fn tail_len(&self) -> usize {
        self.raw().tail[0].iov_len
    }

    /// Length of all parts in bytes.
    pub(crate) fn len(&self) -> usize {
        self.head_len()
            .saturating_add(self.page_len())
            .saturating_add(self.tail_len())
    }

    /// The first part.
    #[inline(always)]
    pub(crate) fn head(&self) -> Option<MessagePart<'a>> {
        self.linear(&self.raw().head[0], false)
    }

    /// The pages, if there are any.
    #[inline(always)]
    pub(crate) fn pages(&self) -> Option<MessagePart<'a>> {
        let raw = self.raw();
        if raw.page_len == 0 {
            return None;
        }
        // CAST: An unsigned int always fits the kernel's usize.
        let (base, length) = (raw.page_base as usize, raw.page_len as usize);
        let memory = Memory::Pages(NonNull::new(raw.pages)?, base);
        // SAFETY: By the type's invariant the array has the pages of this part, which stay.
        unsafe { MessagePart::new(memory, length, self.exposure(), self.is_counted()) }
    }

    /// The last part, if there is one.
    #[inline(always)]
    pub(crate) fn tail(&self) -> Option<MessagePart<'a>> {
        self.linear(&self.raw().tail[0], self.is_counted())
    }

    /// All parts in order.
    pub(crate) fn parts(&self) -> [Option<MessagePart<'a>>; 3] {
        [self.head(), self.pages(), self.tail()]
    }

    /// The part that a kvec describes.
    #[inline(always)]
    fn linear(&self, vec: &bindings::kvec, counted: bool) -> Option<MessagePart<'a>> {
        let memory = Memory::Linear(NonNull::new(vec.iov_base.cast())?);
        // SAFETY: Head and tail of a message are contiguous memory, which stays by the type's invariant.
        unsafe { MessagePart::new(memory, vec.iov_len, self.exposure(), counted) }
    }

    /// Whether the pages take the data of a file read.
    pub(crate) fn is_read(&self) -> bool {
        self.raw().flags & bindings::XDRBUF_READ != 0
    }

    /// Whether the pages hold the data of a file write.
    pub(crate) fn is_write(&self) -> bool {
        self.raw().flags & bindings::XDRBUF_WRITE != 0
    }

    /// Allocates the pages that the upper layer left to the transport, without waiting.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, which a second try may not meet.
    pub(crate) fn fill_sparse_pages(&self) -> Result {
        let raw = self.raw();
        if raw.flags & bindings::XDRBUF_SPARSE_PAGES == 0 {
            return Ok(());
        }
        // CAST: An unsigned int always fits the kernel's usize.
        let (base, length) = (raw.page_base as usize, raw.page_len as usize);
        for index in base / PAGE_SIZE..base.saturating_add(length).div_ceil(PAGE_SIZE) {
            // SAFETY: By the type's invariant the array has an element for every page of the part.
            let page = unsafe { &mut *raw.pages.add(index) };
            if page.is_null() {
                // SAFETY: Always safe to call.
                *page = unsafe { bindings::rpcrdma_alloc_page_nowait() };
            }
            if page.is_null() {
                return Err(ENOMEM);
            }
        }
        Ok(())
    }

    /// Copies the bytes from `base` on into `to`.
    ///
    /// # Errors
    ///
    /// `EMSGSIZE` if the message has fewer bytes than that.
    pub(crate) fn copy_out(&self, base: usize, to: &mut [u8]) -> Result {
        // SAFETY: By the type's invariant the message is valid.
        unsafe { copy_out(self.ptr, base, to) }
    }

    /// Copies `from` to the bytes from `base` on, as far as there is room; how many were copied.
    pub(crate) fn copy_in(&self, base: usize, from: &[u8]) -> usize {
        if from.is_empty() {
            return 0;
        }
        let room = self.len().saturating_sub(base);
        let length = from.len().min(room);
        let (Ok(start), Ok(count)) = (u32::try_from(base), u32::try_from(length)) else {
            return 0;
        };
        if count == 0 {
            return 0;
        }
        if base.saturating_add(length) <= self.head_len() {
            // SAFETY: By the type's invariant the head is memory of this length, which nobody else
            // uses, `from` least of all. The range lies within it.
            unsafe {
                let head: *mut u8 = self.raw().head[0].iov_base.cast();
                core::ptr::copy_nonoverlapping(from.as_ptr(), head.add(base), length);
            }
            return length;
        }
        // SAFETY: The message is valid and has room, as checked. The callee only reads `from`.
        let status = unsafe {
            bindings::write_bytes_to_xdr_buf(
                self.ptr.as_ptr(),
                start,
                from.as_ptr().cast_mut().cast(),
                count,
            )
        };
        if status == 0 {
            length
        } else {
            0
        }
    }
}

/// Copies the bytes of a message from `base` on into `to`.
///
/// # Safety
///
/// The message is valid, and so is the memory that it describes.
///
/// # Errors
///
/// `EMSGSIZE` if the message has fewer bytes than that.
pub(super) unsafe fn copy_out(
    message: NonNull<bindings::xdr_buf>,
    base: usize,
    to: &mut [u8],
) -> Result {
    // SAFETY: The caller's promise.
    let head = unsafe { &message.as_ref().head[0] };
    if base.saturating_add(to.len()) <= head.iov_len {
        // SAFETY: By the caller's promise the head is memory of this length, within which the range
        // lies. Nobody else writes to `to`, so they do not overlap.
        unsafe {
            let from: *const u8 = head.iov_base.cast();
            core::ptr::copy_nonoverlapping(from.add(base), to.as_mut_ptr(), to.len());
        }
        return Ok(());
    }
    let base = u32::try_from(base).map_err(|_| EMSGSIZE)?;
    let length = u32::try_from(to.len()).map_err(|_| EMSGSIZE)?;
    // SAFETY: The caller's promise; `to` has room for `length` bytes, and the function refuses a
    // range beyond the message.
    to_result(unsafe {
        bindings::read_bytes_from_xdr_buf(message.as_ptr(), base, to.as_mut_ptr().cast(), length)
    })
    .map_err(|_| EMSGSIZE)
}
