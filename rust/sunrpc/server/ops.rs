// SPDX-License-Identifier: GPL-2.0

//! The operations tables: translate each callback from C pointers to a call of a [`SvcListener`] or
//! [`SvcConnection`]. All that may sleep but `create` and `result_payload` runs in a
//! [`ReclaimScope::noio`].

use super::{
    rqst::{KeptCall, Receiving, Replying},
    transport::{SvcConnection, SvcListener, SvcTransport},
    xprt::{Accepting, NewXprt, SvcXprt},
};
use crate::{
    bindings::{self, OwnedMessage, SocketAddress},
    sunrpc::ReclaimScope,
};
use core::{ffi::c_void, marker::PhantomData, ptr::NonNull};
use kernel::{
    ffi::{c_int, c_uint},
    prelude::*,
};

/// `struct svc_xprt_ops` for the listeners `L`.
pub(super) struct ListenerOps<L>(PhantomData<L>);

impl<L: SvcListener> ListenerOps<L> {
    pub(super) const OPS: bindings::svc_xprt_ops = bindings::svc_xprt_ops {
        xpo_create: Some(Self::create),
        xpo_accept: Some(Self::accept),
        xpo_has_wspace: Some(has_wspace),
        xpo_detach: Some(detach::<L>),
        xpo_free: Some(free::<L>),
        xpo_kill_temp_xprt: Some(kill_temp_xprt),
        // sunrpc releases a context each time that it has looked at a transport.
        xpo_release_ctxt: Some(Self::release_nothing),
        ..pin_init::zeroed()
    };

    /// Process context, with the service's mutex held; may sleep.
    ///
    /// # Safety
    ///
    /// - `serv` and `net` are valid, and stay so as long as the transport exists; `address` has
    ///   `length` bytes.
    /// - The caller holds a reference to the class's module, which it drops if this fails.
    unsafe extern "C" fn create(
        serv: *mut bindings::svc_serv,
        net: *mut bindings::net,
        address: *mut bindings::sockaddr,
        length: c_int,
        _flags: c_int,
    ) -> *mut bindings::svc_xprt {
        let create = || -> Result<*mut bindings::svc_xprt> {
            // SAFETY: `address` has `length` bytes (this function's contract).
            let address = unsafe { SocketAddress::copy_from(address, usize::try_from(length)?) };
            let address = address.filter(|address| address.len() != 0);
            let address = address.ok_or_else(super::super::address::unsupported)?;
            let class = L::class().as_raw();
            // SAFETY: `net` and `serv` are valid as long as the transport exists (this function's
            // contract). sunrpc calls this function only for the class, which is registered, and
            // takes what it returns for an `L`, for which these are the operations.
            let new = unsafe { NewXprt::new(net, class, serv, &Self::OPS, &address)? };
            new.owned().set(bindings::XPT_LISTENER);
            Ok(L::listen(new, &address)?.0)
        };
        create().unwrap_or_else(|error| error.to_ptr())
    }

    /// A thread of the service, with the listener marked as busy; may sleep.
    ///
    /// # Safety
    ///
    /// - `raw` is a listener with this table, and stays allocated during the call.
    unsafe extern "C" fn accept(raw: *mut bindings::svc_xprt) -> *mut bindings::svc_xprt {
        // SAFETY: The listener is valid during the callback, and was published.
        let (xprt, listener) = unsafe {
            let xprt = SvcXprt::from_raw(raw);
            (xprt, xprt.transport::<L>())
        };
        xprt.clear(bindings::XPT_CONN);
        let _scope = ReclaimScope::noio();
        // SAFETY: This is a thread of the service, which has marked the listener as busy. These are
        // the operations for the connections of an `L`.
        let accepting = unsafe { Accepting::new(xprt, &ConnectionOps::<L::Connection>::OPS) };
        let new = listener.accept(accepting);
        new.map_or(core::ptr::null_mut(), |new| new.0)
    }

    /// A listener has no Calls.
    extern "C" fn release_nothing(_raw: *mut bindings::svc_xprt, _context: *mut c_void) {}
}

struct ConnectionOps<T>(PhantomData<T>);

impl<T: SvcConnection> ConnectionOps<T> {
    const OPS: bindings::svc_xprt_ops = bindings::svc_xprt_ops {
        xpo_has_wspace: Some(has_wspace),
        xpo_recvfrom: Some(Self::recvfrom),
        xpo_sendto: Some(Self::sendto),
        xpo_result_payload: Some(Self::result_payload),
        xpo_release_ctxt: Some(Self::release_ctxt),
        xpo_detach: Some(detach::<T>),
        xpo_free: Some(free::<T>),
        xpo_kill_temp_xprt: Some(kill_temp_xprt),
        ..pin_init::zeroed()
    };

    /// A thread of the service, with the transport marked as busy; may sleep.
    ///
    /// # Safety
    ///
    /// - `rqstp` belongs to the calling thread, and its transport is a connection with this table,
    ///   which stays allocated.
    unsafe extern "C" fn recvfrom(rqstp: *mut bindings::svc_rqst) -> c_int {
        let _scope = ReclaimScope::noio();
        // SAFETY: The request and its transport are valid during the callback. This thread has
        // marked the transport as busy until `svc_xprt_received`.
        unsafe {
            let xprt = SvcXprt::from_raw((*rqstp).rq_xprt);
            let connection = xprt.transport::<T>();
            let taken = connection.take();
            bindings::svc_xprt_received(xprt.as_raw());
            let mut rqst = Receiving::new(rqstp, xprt);
            let call = taken.and_then(|call| connection.recvfrom(call, &mut rqst));
            rqst.finish(call)
        }
    }

    /// A thread of the service; may sleep. Several at a time.
    ///
    /// # Safety
    ///
    /// - `rqstp` belongs to the calling thread, its transport is a connection with this table, and
    ///   its context is the one that `recvfrom` left. It has a Reply.
    unsafe extern "C" fn sendto(rqstp: *mut bindings::svc_rqst) -> c_int {
        let _scope = ReclaimScope::noio();
        // SAFETY: The request belongs to the calling thread, has a Reply, and has the context that
        // `recvfrom` left (this function's contract).
        let sent = unsafe {
            Self::with_call(rqstp, |xprt, connection, call| {
                let sent = connection.sendto(Replying::new(rqstp), call);
                sent.inspect_err(|_| xprt.deferred_close())
            })
        };
        sent.unwrap_or(Err(EIO))
            .map_or_else(|error| error.to_errno(), |()| 0)
    }

    /// Calls `with` for the connection and the Call of a request, if it has one.
    ///
    /// # Safety
    ///
    /// As for [`Self::sendto`], but for the Reply.
    unsafe fn with_call<R>(
        rqstp: *mut bindings::svc_rqst,
        with: impl FnOnce(&SvcXprt, &T, KeptCall<'_, T::Call>) -> R,
    ) -> Option<R> {
        // SAFETY: The request and its transport are valid during the callback. The context is that
        // of a Call of this connection, and belongs to the calling thread (this function's
        // contract). A connection that has Calls was published.
        unsafe {
            let xprt = SvcXprt::from_raw((*rqstp).rq_xprt);
            let mut call = T::Call::from_raw(NonNull::new((*rqstp).rq_xprt_ctxt)?);
            let result = with(xprt, &xprt.transport::<T>(), KeptCall::new(&mut call));
            (*rqstp).rq_xprt_ctxt = call.into_raw().as_ptr();
            Some(result)
        }
    }

    /// A thread of the service, in an encoder; may sleep.
    ///
    /// # Safety
    ///
    /// - As for [`Self::sendto`], but for the Reply.
    unsafe extern "C" fn result_payload(
        rqstp: *mut bindings::svc_rqst,
        offset: c_uint,
        length: c_uint,
    ) -> c_int {
        // SAFETY: The request is valid during the callback.
        let (is_wrapped, encoded) = unsafe {
            // If the encoder has to leave space for it, RPCSEC_GSS changes the message afterwards,
            // for integrity or privacy (RFC 8166 section 8.2.2).
            ((*rqstp).rq_auth_slack != 0, (*rqstp).rq_res.len)
        };
        // A result ends with what is encoded so far, but for READLINK of NFSv4: of that nfsd says
        // where its count is.
        let end = offset.wrapping_add(length).wrapping_add(3) & !3;
        if !is_wrapped && end == encoded {
            // SAFETY: This function has the contract of `with_call`.
            unsafe {
                Self::with_call(rqstp, |_, connection, call| {
                    connection.result_payload(call, offset, length);
                });
            }
        }
        // Never an error: with one, nfsd encodes its status from before the data on, and leaves the
        // page cache's pages among those for Replies, where the thread's next one is written
        // (nfsd4_encode_splice_read).
        0
    }

    /// Process context; may sleep.
    ///
    /// # Safety
    ///
    /// - `raw` is a connection with this table, and stays allocated during the call.
    /// - `context` is null, or was left by `recvfrom` and is not used any longer.
    unsafe extern "C" fn release_ctxt(raw: *mut bindings::svc_xprt, context: *mut c_void) {
        let Some(context) = NonNull::new(context) else {
            return;
        };
        let _scope = ReclaimScope::noio();
        // SAFETY: `context` is a Call that `recvfrom` left, and is not used again. `raw` is a
        // connection with this table, so it is a `T` that was published (this function's contract).
        unsafe {
            let call = T::Call::from_raw(context);
            SvcXprt::from_raw(raw).transport::<T>().release_ctxt(call);
        }
    }
}

/// Called by svc_xprt_enqueue(); does not sleep. Always yes: `take` decides, under its lock.
extern "C" fn has_wspace(_raw: *mut bindings::svc_xprt) -> c_int {
    1
}

/// Called by the thread that closes the transport, which stays marked as busy for good; may sleep.
/// Called once.
///
/// # Safety
///
/// - `raw` is one of this module's transports, made for a `T`, and stays allocated during the call.
unsafe extern "C" fn detach<T: SvcTransport>(raw: *mut bindings::svc_xprt) {
    // SAFETY: The transport is valid during the callback, and was published.
    unsafe {
        let xprt = SvcXprt::from_raw(raw);
        let _scope = ReclaimScope::noio();
        xprt.transport::<T>().detach();
        xprt.bc().close();
    }
}

/// The last reference is gone; may sleep.
///
/// # Safety
///
/// - `raw` is one of this module's transports, made for a `T`, and there is no reference to it.
/// - The caller has a reference to the class's module, which it drops after this call.
unsafe extern "C" fn free<T: SvcTransport>(raw: *mut bindings::svc_xprt) {
    let _scope = ReclaimScope::noio();
    // SAFETY: It is a `T`, to which sunrpc has no reference. If it was not published, the memory
    // belongs to the thread that failed to create it.
    if let Some(transport) = unsafe { SvcXprt::take_transport::<T>(raw) } {
        T::free(transport);
    }
}

/// A local address was removed. Nothing to do: closing the transport is enough.
extern "C" fn kill_temp_xprt(_raw: *mut bindings::svc_xprt) {}
