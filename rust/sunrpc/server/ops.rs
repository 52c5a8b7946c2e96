// SPDX-License-Identifier: GPL-2.0

//! The operations tables: translate each callback from C pointers to a call of a [`SvcListener`] or
//! [`SvcConnection`].

use super::{
    class::SvcRegistration,
    rqst::{KeptCall, Receiving, Replying},
    transport::{SvcConnection, SvcListener, SvcTransport},
    xprt::{flag, Accepting, OwnedSvcXprt, SvcXprt},
};
use crate::bindings::{self, OwnedMessage, SocketAddress};
use core::{ffi::c_void, marker::PhantomData, ptr::NonNull};
use kernel::{
    ffi::{c_int, c_uint},
    prelude::*,
};

/// Registers the class of `L`.
///
/// # Errors
///
/// `EBUSY` the second time, `EEXIST` if another module has registered a class of this name.
pub(crate) fn register<L: SvcListener>(module: &'static ThisModule) -> Result<SvcRegistration> {
    // SAFETY: These are the operations for an `L`.
    unsafe { L::class().register(module, &ListenerTable::<L>::OPS) }
}

struct ListenerTable<L>(PhantomData<L>);

impl<L: SvcListener> ListenerTable<L> {
    const OPS: bindings::svc_xprt_ops = bindings::svc_xprt_ops {
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
        let create = || -> Result<NonNull<bindings::svc_xprt>> {
            // SAFETY: `address` has `length` bytes (this function's contract).
            let address = unsafe { SocketAddress::copy_from(address, usize::try_from(length)?) };
            let address = address.filter(|address| address.len() != 0);
            let address = address.ok_or_else(super::super::address::unsupported)?;
            let class = L::class().as_raw();
            // SAFETY: `net` and `serv` are valid as long as the transport exists (this function's
            // contract). sunrpc calls this function only for `class`, which is registered.
            let xprt = unsafe { OwnedSvcXprt::listener(net, class, serv, &address)? };
            let new = xprt.as_raw();
            let listener = L::listen(xprt, &address)?;
            let own = listener.clone();
            let xprt = own.xprt();
            // Any other would be taken for a listener.
            if xprt.as_raw() != new {
                listener.detach();
                return Err(EINVAL);
            }
            xprt.set_local_port(listener.address().port());
            // SAFETY: These are the operations for an `L`.
            NonNull::new(unsafe { xprt.publish(listener, &Self::OPS) }).ok_or(EINVAL)
        };
        match create() {
            Ok(raw) => raw.as_ptr(),
            Err(error) => error.to_ptr(),
        }
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
        xprt.clear(flag::CONN);
        // SAFETY: This is a thread of the service, which has marked the listener as busy.
        let Some(connection) = listener.accept(&unsafe { Accepting::new(xprt) }) else {
            return core::ptr::null_mut();
        };
        let own = connection.clone();
        let new = own.xprt();
        // sunrpc would take any other for a connection of this service.
        if !new.is_accepted_by(xprt) {
            return core::ptr::null_mut();
        }
        // SAFETY: These are the operations for what `accept` returns.
        unsafe { new.publish(connection, &ConnectionTable::<L::Connection>::OPS) }
    }

    /// A listener has no Calls.
    extern "C" fn release_nothing(_raw: *mut bindings::svc_xprt, _context: *mut c_void) {}
}

struct ConnectionTable<T>(PhantomData<T>);

impl<T: SvcConnection> ConnectionTable<T> {
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
        // SAFETY: The request and its transport are valid during the callback.
        unsafe {
            let xprt = SvcXprt::from_raw((*rqstp).rq_xprt);
            let connection = xprt.transport::<T>();
            let mut rqst = Receiving::new(rqstp, xprt);
            let call = connection.recvfrom(&mut rqst);
            let (length, pages) = rqst.finish(call);
            if let Some(pages) = pages {
                connection.put_pages(pages);
            }
            length
        }
    }

    /// A thread of the service; may sleep. Several at a time.
    ///
    /// # Safety
    ///
    /// - `rqstp` belongs to the calling thread, its transport is a connection with this table, and
    ///   its context is the one that `recvfrom` left.
    unsafe extern "C" fn sendto(rqstp: *mut bindings::svc_rqst) -> c_int {
        // SAFETY: The request and its transport are valid during the callback.
        let (xprt, context) = unsafe {
            let xprt = SvcXprt::from_raw((*rqstp).rq_xprt);
            (xprt, NonNull::new((*rqstp).rq_xprt_ctxt))
        };
        let Some(context) = context else {
            return EIO.to_errno();
        };
        // SAFETY: The context is that of a Call of this connection, and belongs to the calling
        // thread.
        let (mut call, connection) = unsafe { (T::Call::from_raw(context), xprt.transport::<T>()) };
        // SAFETY: The request belongs to the calling thread, and has a Reply.
        let rqst = unsafe { Replying::new(rqstp) };
        let sent = connection.sendto(rqst, KeptCall::new(&mut call));
        // SAFETY: The request belongs to the calling thread.
        unsafe { (*rqstp).rq_xprt_ctxt = call.into_raw().as_ptr() };
        match sent {
            Ok(()) => 0,
            Err(error) => {
                xprt.close();
                error.to_errno()
            }
        }
    }

    /// A thread of the service, in an encoder; may sleep.
    ///
    /// # Safety
    ///
    /// - As for [`Self::sendto`].
    unsafe extern "C" fn result_payload(
        rqstp: *mut bindings::svc_rqst,
        offset: c_uint,
        length: c_uint,
    ) -> c_int {
        // SAFETY: The request and its transport are valid during the callback.
        let (xprt, context, is_wrapped, encoded) = unsafe {
            let xprt = SvcXprt::from_raw((*rqstp).rq_xprt);
            // If the encoder has to leave room for it, RPCSEC_GSS changes the message afterwards,
            // for integrity or privacy (RFC 8166 section 8.2.2).
            let is_wrapped = (*rqstp).rq_auth_slack != 0;
            let context = NonNull::new((*rqstp).rq_xprt_ctxt);
            (xprt, context, is_wrapped, (*rqstp).rq_res.len)
        };
        let (Some(context), false) = (context, is_wrapped) else {
            return 0;
        };
        // A result ends with what is encoded so far, but for READLINK of NFSv4: of that nfsd says
        // where its count is.
        let end = offset.wrapping_add(length).wrapping_add(3) & !3;
        if end != encoded {
            return 0;
        }
        // SAFETY: The context is that of a Call of this connection, and belongs to the calling
        // thread (this function's contract). A connection that has Calls was published.
        let (mut call, connection) = unsafe { (T::Call::from_raw(context), xprt.transport::<T>()) };
        connection.result_payload(KeptCall::new(&mut call), offset, length);
        // SAFETY: The request belongs to the calling thread.
        unsafe { (*rqstp).rq_xprt_ctxt = call.into_raw().as_ptr() };
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
        // SAFETY: `context` is a Call that `recvfrom` left, and is not used again. `raw` is a
        // connection with this table, so it is a `T` that was published (this function's contract).
        unsafe {
            let call = T::Call::from_raw(context);
            SvcXprt::from_raw(raw).transport::<T>().release_ctxt(call);
        }
    }
}

/// Whoever enqueues a transport asks; does not sleep. The flags of a transport of this module say
/// that a thread has something to do only when it has.
extern "C" fn has_wspace(_raw: *mut bindings::svc_xprt) -> c_int {
    1
}

/// Called by whoever closes the transport, which stays marked as busy for good; may sleep. Called
/// once.
///
/// # Safety
///
/// - `raw` is one of this module's transports, made for a `T`, and stays allocated during the call.
unsafe extern "C" fn detach<T: SvcTransport>(raw: *mut bindings::svc_xprt) {
    // SAFETY: The transport is valid during the callback, and was published.
    unsafe {
        let xprt = SvcXprt::from_raw(raw);
        xprt.transport::<T>().detach();
        xprt.bc().close();
    }
}

/// The last reference is gone; may sleep.
///
/// # Safety
///
/// - `raw` is one of this module's transports, made for a `T`, and nobody has a reference to it.
/// - The caller has a reference to the class's module, which it drops after this call.
unsafe extern "C" fn free<T: SvcTransport>(raw: *mut bindings::svc_xprt) {
    // SAFETY: It is a `T`, to which sunrpc has no reference. If it was not published, the memory
    // belongs to whoever failed to create it.
    if let Some(transport) = unsafe { SvcXprt::take_transport::<T>(raw) } {
        T::free(transport);
    }
}

/// A local address was removed. Nothing to do: closing the transport is enough.
extern "C" fn kill_temp_xprt(_raw: *mut bindings::svc_xprt) {}
