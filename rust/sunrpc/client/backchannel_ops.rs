// SPDX-License-Identifier: GPL-2.0

//! The callbacks for backward requests, which do not exist in a kernel without
//! `CONFIG_SUNRPC_BACKCHANNEL`.

use super::{
    backchannel::{BackchannelRqst, MESSAGE_SIZE},
    transport::ClientTransport,
    xprt::Xprt,
};
use crate::{bindings, trace};
use kernel::{ffi::c_int, prelude::*};

/// `bc_setup`: prepares the back channel when a session is created. Process context, may sleep.
///
/// # Safety
///
/// - `raw` is one of this module's transports, made for a `T`, and stays allocated during the call.
pub(super) unsafe extern "C" fn setup<T: ClientTransport>(
    raw: *mut bindings::rpc_xprt,
    requests: u32,
) -> c_int {
    // SAFETY: The transport is valid during the callback, and its setup has succeeded.
    let (xprt, transport) = unsafe {
        let xprt = Xprt::from_raw(raw);
        (xprt, xprt.transport::<T>())
    };
    trace::xprtrdma_cb_setup(xprt, requests);
    kernel::error::from_result(|| {
        let slots = usize::try_from(T::backward_slots())?;
        transport.backchannel().provision(slots.saturating_mul(2))?;
        Ok(0)
    })
}

/// `bc_maxpayload`: under RCU, does not sleep.
///
/// # Safety
///
/// - `raw` is one of this module's transports, made for a `T`, and stays allocated during the call.
pub(super) unsafe extern "C" fn max_payload<T: ClientTransport>(
    raw: *mut bindings::rpc_xprt,
) -> usize {
    // SAFETY: The transport is valid during the callback, and its setup has succeeded.
    unsafe { Xprt::from_raw(raw).transport::<T>() }
        .backward_payload()
        .min(MESSAGE_SIZE)
}

/// `bc_num_slots`: under RCU, does not sleep.
pub(super) extern "C" fn slots<T: ClientTransport>(_raw: *mut bindings::rpc_xprt) -> u32 {
    T::backward_slots()
}

/// `bc_free_rqst`: the service no longer needs a request. Process context.
///
/// # Safety
///
/// - `raw` is the `rqst` of a [`BackchannelRqst`] that [`Backchannel::receive`] gave away, and
///   nobody uses it any longer.
/// - Its transport was created for a `T`, and sunrpc passes on to this function the reference to it
///   that `xprt_enqueue_bc_request` took.
pub(super) unsafe extern "C" fn free<T: ClientTransport>(raw: *mut bindings::rpc_rqst) {
    // SAFETY: The request came from `receive`, which gave it away. Its transport is valid: sunrpc
    // took the reference that is dropped last here.
    unsafe {
        let xprt = (*raw).rq_xprt;
        let rqst = KBox::from_raw(raw.cast::<BackchannelRqst>());
        Xprt::from_raw(xprt)
            .transport::<T>()
            .backchannel()
            .give_back(rqst);
        bindings::xprt_put(xprt);
    }
}

/// `bc_destroy`: process context; called for `count` requests when a session ends, and for all of
/// them when the transport ends.
///
/// # Safety
///
/// - `raw` is one of this module's transports, made for a `T`, and stays allocated during the call.
///   The last call precedes that of `destroy`.
pub(super) unsafe extern "C" fn destroy<T: ClientTransport>(
    raw: *mut bindings::rpc_xprt,
    count: u32,
) {
    // SAFETY: The transport is valid during the callback, and its setup has succeeded.
    let transport = unsafe { Xprt::from_raw(raw).transport::<T>() };
    // CAST: A u32 always fits the kernel's usize.
    transport.backchannel().retire(count as usize);
}
