// SPDX-License-Identifier: GPL-2.0

//! Socket addresses, as sunrpc prints them.

use crate::bindings::{self, SocketAddress};
use kernel::{fmt, prelude::*, str::CStr};

impl fmt::Display for SocketAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = [0u8; 64];
        // SAFETY: The address is complete, and the buffer has the size that is passed.
        unsafe { bindings::rpc_ntop(self.as_raw(), text.as_mut_ptr().cast(), text.len()) };
        let text = CStr::from_bytes_until_nul(&text).ok();
        f.write_str(text.and_then(|text| text.to_str().ok()).unwrap_or("?"))
    }
}

impl SocketAddress {
    /// The port.
    pub(crate) fn port(&self) -> u16 {
        // SAFETY: The address is complete.
        unsafe { bindings::rpcrdma_rpc_get_port(self.as_raw()) }
    }
}

/// The error for an address of an unsupported family.
pub(super) fn unsupported() -> Error {
    // CAST: Error numbers are below 4096.
    Error::from_errno(-(bindings::EAFNOSUPPORT as i32))
}
