// SPDX-License-Identifier: GPL-2.0

//! A message of the backward direction (RFC 8167) that sunrpc asks to send: nfsd's Call, or the
//! client's Reply.

use super::XdrBuf;
use crate::bindings;
use core::{marker::PhantomData, ptr::NonNull};
use kernel::prelude::*;

/// The request (`struct rpc_rqst`) whose `rq_snd_buf` is to be sent.
///
/// # Invariants
///
/// `rqst` is valid, has an encoded `rq_snd_buf`, and belongs to the running callback for all of
/// `'a`.
pub(crate) struct BcRqst<'a> {
    rqst: NonNull<bindings::rpc_rqst>,
    callback: PhantomData<&'a bindings::rpc_rqst>,
}

impl BcRqst<'_> {
    /// Wraps a request.
    ///
    /// # Safety
    ///
    /// The type's invariants hold.
    pub(super) unsafe fn new(rqst: NonNull<bindings::rpc_rqst>) -> Self {
        // INVARIANT: `rqst` is valid and encoded, and belongs to the running callback (this
        // function's contract).
        Self {
            rqst,
            callback: PhantomData,
        }
    }

    /// The C pointer.
    pub(super) fn as_raw(&self) -> *mut bindings::rpc_rqst {
        self.rqst.as_ptr()
    }

    /// The transaction identifier, in host byte order.
    pub(crate) fn xid(&self) -> u32 {
        // SAFETY: `rqst` is valid (type invariant).
        u32::from_be(unsafe { (*self.as_raw()).rq_xid })
    }

    /// Length of the RPC message in bytes.
    pub(crate) fn len(&self) -> usize {
        // SAFETY: `rqst` is valid (type invariant).
        // CAST: An unsigned int always fits the kernel's usize.
        unsafe { (*self.as_raw()).rq_snd_buf.len as usize }
    }

    /// Copies the beginning of the RPC message to `to`.
    ///
    /// # Errors
    ///
    /// `EMSGSIZE` if the message is shorter.
    pub(crate) fn copy_out(&self, to: &mut [u8]) -> Result {
        // SAFETY: `rqst` is valid and has an encoded message (type invariant). The address of a
        // field is not null.
        let message = unsafe {
            XdrBuf::from_raw(NonNull::new_unchecked(&raw mut (*self.as_raw()).rq_snd_buf))
        };
        message.copy_out(0, to)
    }
}
