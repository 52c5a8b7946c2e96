// SPDX-License-Identifier: GPL-2.0

//! Replaces `backchannel.rs` in a kernel without `CONFIG_SUNRPC_BACKCHANNEL`: there are no backward
//! requests, and backward Calls are not served.

use super::xprt::Xprt;
use crate::bindings;
use kernel::prelude::*;

/// No backward requests.
#[pin_data]
pub(crate) struct Backchannel {}

impl Backchannel {
    /// Does nothing.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {})
    }

    /// Refuses a backward Call.
    pub(crate) fn receive(
        &self,
        _xprt: &Xprt,
        _connection: u64,
        _xid: u32,
        _message: &[u8],
    ) -> bool {
        false
    }

    /// Always false: there is no service.
    pub(crate) fn is_served(&self) -> bool {
        false
    }
}

/// Whether a request is a backward one.
///
/// # Safety
///
/// Always safe to call: no request is a backward one.
pub(super) unsafe fn is_backward(_rqst: *const bindings::rpc_rqst) -> bool {
    false
}

/// The connection on which the Call of a backward request arrived.
///
/// # Safety
///
/// Must not be called: there is no backward request.
pub(super) unsafe fn connection_of(_rqst: *const bindings::rpc_rqst) -> u64 {
    0
}
