// SPDX-License-Identifier: GPL-2.0

//! RPC messages as sunrpc keeps them: head, pages, tail (`struct xdr_buf`).

use crate::bindings;
use core::{marker::PhantomData, ptr::NonNull};
use kernel::{error::to_result, prelude::*};

/// An RPC message, or the buffer for one.
///
/// # Invariants
///
/// `ptr` is a valid `xdr_buf` for all of `'a`. Its head and tail are memory of their lengths, and
/// its array has a non-null page for all of `page_len` from `page_base` on. That memory is used
/// only through copies of this object, or by devices to which they give access.
#[derive(Clone, Copy)]
pub(crate) struct XdrBuf<'a> {
    ptr: NonNull<bindings::xdr_buf>,
    message: PhantomData<&'a bindings::xdr_buf>,
}

impl<'a> XdrBuf<'a> {
    /// Borrows a message from C.
    ///
    /// # Safety
    ///
    /// The type's invariants hold.
    pub(super) unsafe fn from_raw(ptr: NonNull<bindings::xdr_buf>) -> Self {
        // INVARIANT: `ptr` is a valid `xdr_buf` for all of `'a`, and only copies of this object use
        // its memory (this function's contract).
        Self {
            ptr,
            message: PhantomData,
        }
    }

    /// The XID of a request, in host byte order, and its encoded message.
    ///
    /// # Safety
    ///
    /// `rqst` is valid, has an encoded `rq_snd_buf`, and belongs to the running callback for all of
    /// `'a`.
    pub(super) unsafe fn sent_by(rqst: *mut bindings::rpc_rqst) -> (u32, Self) {
        // SAFETY: The request is valid and encoded, and belongs to the running callback for all of
        // `'a` (this function's contract). The address of a field is not null.
        unsafe {
            let message = NonNull::new_unchecked(&raw mut (*rqst).rq_snd_buf);
            (u32::from_be((*rqst).rq_xid), Self::from_raw(message))
        }
    }

    /// The C object.
    pub(super) fn raw(&self) -> &bindings::xdr_buf {
        // SAFETY: `ptr` is a valid `xdr_buf` for all of `'a` (type invariant).
        unsafe { self.ptr.as_ref() }
    }

    /// Length of the head in bytes.
    pub(crate) fn head_len(&self) -> usize {
        self.raw().head[0].iov_len
    }

    /// Length of the page data in bytes.
    pub(crate) fn page_len(&self) -> usize {
        // CAST: An unsigned int always fits the kernel's usize.
        self.raw().page_len as usize
    }

    /// Length of the tail in bytes.
    pub(crate) fn tail_len(&self) -> usize {
        self.raw().tail[0].iov_len
    }

    /// Length of the whole message in bytes.
    pub(crate) fn len(&self) -> usize {
        self.head_len()
            .saturating_add(self.page_len())
            .saturating_add(self.tail_len())
    }

    /// Whether the pages receive the data of a file read.
    pub(crate) fn is_read(&self) -> bool {
        self.raw().flags & bindings::XDRBUF_READ != 0
    }

    /// Whether the pages hold the data of a file write.
    pub(crate) fn is_write(&self) -> bool {
        self.raw().flags & bindings::XDRBUF_WRITE != 0
    }

    /// The start of these bytes, if all of them are in the head, as those of most messages are.
    fn in_head(&self, base: usize, length: usize) -> Option<*mut u8> {
        let head = &self.raw().head[0];
        let has_them = base.checked_add(length)? <= head.iov_len;
        has_them.then(|| head.iov_base.cast::<u8>().wrapping_add(base))
    }

    /// Copies the bytes from `base` on to `to`.
    ///
    /// # Errors
    ///
    /// `EMSGSIZE` if the message does not have that many bytes.
    pub(crate) fn copy_out(&self, base: usize, to: &mut [u8]) -> Result {
        if let Some(from) = self.in_head(base, to.len()) {
            // SAFETY: By the type's invariant these bytes are memory, of which `to` is no part.
            unsafe { from.copy_to_nonoverlapping(to.as_mut_ptr(), to.len()) };
            return Ok(());
        }
        let base = u32::try_from(base).map_err(|_| EMSGSIZE)?;
        let length = u32::try_from(to.len()).map_err(|_| EMSGSIZE)?;
        // SAFETY: By the type's invariant the message is valid; `to` has room for `length` bytes,
        // and the function rejects a range beyond the message.
        to_result(unsafe {
            bindings::read_bytes_from_xdr_buf(
                self.ptr.as_ptr(),
                base,
                to.as_mut_ptr().cast(),
                length,
            )
        })
        .map_err(|_| EMSGSIZE)
    }

    /// Copies `from` to the bytes from `base` on, as far as there is room; returns how many bytes
    /// were copied.
    ///
    /// # Errors
    ///
    /// `EMSGSIZE` if they are beyond 4 GiB.
    pub(crate) fn copy_in(&self, base: usize, from: &[u8]) -> Result<usize> {
        let length = from.len().min(self.len().saturating_sub(base));
        if length == 0 {
            return Ok(0);
        }
        if let Some(to) = self.in_head(base, length) {
            // SAFETY: By the type's invariant these bytes are memory, of which `from` is no part.
            unsafe { to.copy_from_nonoverlapping(from.as_ptr(), length) };
            return Ok(length);
        }
        let start = u32::try_from(base).map_err(|_| EMSGSIZE)?;
        let count = u32::try_from(length).map_err(|_| EMSGSIZE)?;
        // SAFETY: The message is valid and has room, as just checked. The callee only reads `from`.
        to_result(unsafe {
            bindings::write_bytes_to_xdr_buf(
                self.ptr.as_ptr(),
                start,
                from.as_ptr().cast_mut().cast(),
                count,
            )
        })
        .map_err(|_| EMSGSIZE)?;
        Ok(length)
    }
}
