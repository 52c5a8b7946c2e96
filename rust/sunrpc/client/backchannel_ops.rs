// SPDX-License-Identifier: GPL-2.0

//! The callbacks for backward requests, which a kernel without `CONFIG_SUNRPC_BACKCHANNEL` does not
//! have.

use super::{
    backchannel::{BackwardCall, MESSAGE_SIZE},
    transport::ClientTransport,
    xprt::Xprt,
};
use crate::{bindings, trace};
use kernel::{ffi::c_int, prelude::*};

/// `bc_setup`: process context, may sleep; at session creation.
///
/// # Safety
///
/// - `raw` is a transport of this module's, made for a `T`, and stays allocated during the call.
pub(super) unsafe extern "C" fn setup<T: ClientTransport>(
    raw: *mut bindings::rpc_xprt,
    requests: u32,
) -> c_int {
    // SAFETY: The transport is valid during the callback, its setup has succeeded.
    let (xprt, transport) = unsafe {
        let xprt = Xprt::from_raw(raw);
        (xprt, xprt.transport::<T>())
    };
    trace::xprtrdma_cb_setup(xprt, requests);
    kernel::error::from_result(|| {
        let slots = usize::try_from(T::backward_slots())?;
        transport.backward().provision(slots.saturating_mul(2))?;
        Ok(0)
    })
}

/// `bc_maxpayload`: under RCU, does not sleep.
///
/// # Safety
///
/// - `raw` is a transport of this module's, made for a `T`, and stays allocated during the call.
pub(super) unsafe extern "C" fn max_payload<T: ClientTransport>(
    raw: *mut bindings::rpc_xprt,
) -> usize {
    // SAFETY: The transport is valid during the callback.
    unsafe { Xprt::from_raw(raw).transport::<T>() }
        .backward_payload()
        .min(MESSAGE_SIZE)
}

/// `bc_num_slots`: under RCU, does not sleep.
pub(super) extern "C" fn slots<T: ClientTransport>(_raw: *mut bindings::rpc_xprt) -> u32 {
    T::backward_slots()
}

/// `bc_free_rqst`: the service is done with a request. Process context.
///
/// # Safety
///
/// - `raw` is the `rqst` of a [`BackwardCall`] that [`BackwardCalls::receive`] has given away, and
///   that nobody uses any more.
/// - Its transport was made for a `T`, and sunrpc leaves the reference to it that
///   `xprt_enqueue_bc_request` took to this function.
pub(super) unsafe extern "C" fn free<T: ClientTransport>(raw: *mut bindings::rpc_rqst) {
    // SAFETY: The request came from `receive`, which gave it away, and its transport is valid:
    // sunrpc took the reference for it that is given back last.
    unsafe {
        let xprt = (*raw).rq_xprt;
        let call = KBox::from_raw(raw.cast::<BackwardCall>());
        Xprt::from_raw(xprt)
            .transport::<T>()
            .backward()
            .give_back(call);
        bindings::xprt_put(xprt);
    }
}

/// `bc_destroy`: process context; at the end of a session, for `count` requests, and at the end of
/// the transport, for all.
///
/// # Safety
///
/// - `raw` is a transport of this module's, made for a `T`, and stays allocated during the call. It
///   is called before `destroy` for the last time.
pub(super) unsafe extern "C" fn destroy<T: ClientTransport>(
    raw: *mut bindings::rpc_xprt,
    count: u32,
) {
    // SAFETY: The transport is valid during the callback.
    let transport = unsafe { Xprt::from_raw(raw).transport::<T>() };
    // CAST: A u32 always fits the kernel's usize.
    transport.backward().retire(count as usize);
}
