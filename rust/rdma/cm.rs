// SPDX-License-Identifier: GPL-2.0

//! Connection identifiers of the RDMA connection manager.

use super::{
    device::{Device, DeviceName},
    ib_client,
};
use crate::bindings::{self, Net, SocketAddress};
use core::{marker::PhantomData, mem::ManuallyDrop, ptr::NonNull};
use kernel::{
    error::from_err_ptr,
    error::to_result,
    ffi::{c_int, c_ulong},
    prelude::*,
    str::CStr,
    str::CStrExt,
    sync::Arc,
};

/// An event of an identifier.
pub(crate) enum CmEvent<'a> {
    /// The address was resolved, and the identifier is bound to a device.
    AddressResolved,
    /// A route was found.
    RouteResolved,
    /// The connection is up. The octets are the private data of the peer's reply (RFC 8797),
    /// possibly empty or padded.
    Established(&'a [u8]),
    /// Any other event, most of which end an attempt or a connection.
    Other {
        /// `enum rdma_cm_event_type`.
        event: u32,
        /// Zero, a negative errno, or a rejection reason defined by the fabric.
        status: i32,
        /// That reason in words.
        why: Option<&'static CStr>,
    },
}

/// Handles the events of one connection identifier.
///
/// Called with the identifier's mutex held, in process context. The implementation may sleep
/// briefly, but must not destroy or connect the identifier, or wait for another of its events.
pub(crate) trait CmHandler: Send + Sync + 'static {
    /// Handles one event.
    fn event(&self, event: CmEvent<'_>);
}

/// The peer's address is not resolved yet.
pub(crate) struct Unbound;
/// The identifier is bound to a device for good.
pub(crate) struct Bound;

/// A connection identifier in state `S`, [`Unbound`] or [`Bound`].
///
/// # Invariants
///
/// In state [`Bound`] the identifier has a device, which stays registered as long as the identifier
/// exists.
pub(crate) struct CmId<S>(RawCmId, PhantomData<S>);

/// An identifier, and the handler of its events.
///
/// # Invariants
///
/// `ptr` is an identifier that this object owns, whose context is the pointer of `context`.
pub(super) struct RawCmId {
    ptr: NonNull<bindings::rdma_cm_id>,
    context: Arc<dyn Send + Sync>,
}

impl RawCmId {
    /// Creates an identifier for a reliable connection in `net`. Its events are passed to
    /// `handler`, which finds `context` in the identifier.
    ///
    /// # Safety
    ///
    /// `handler` may be called with any event, for an identifier with a context that points to a
    /// `T`. It destroys no identifier, and returns nonzero only after [`CmId::disown`].
    ///
    /// # Errors
    ///
    /// Whatever the connection manager returns, usually `ENOMEM`.
    pub(super) unsafe fn new<T: Send + Sync + 'static>(
        net: &Net,
        handler: unsafe extern "C" fn(
            *mut bindings::rdma_cm_id,
            *mut bindings::rdma_cm_event,
        ) -> c_int,
        context: Arc<T>,
    ) -> Result<Self> {
        // SAFETY: `net` is live, `context` stays valid until `drop`, and the name is static.
        // `handler` may be called with any event, for an identifier whose context points to a `T`
        // (this function's contract).
        let ptr = from_err_ptr(unsafe {
            bindings::__rdma_create_kernel_id(
                net.as_raw(),
                Some(handler),
                Arc::as_ptr(&context).cast_mut().cast(),
                bindings::rdma_ucm_port_space_RDMA_PS_TCP,
                bindings::ib_qp_type_IB_QPT_RC,
                super::CALLER.as_char_ptr(),
            )
        })?;
        let ptr = NonNull::new(ptr).ok_or(ENOMEM)?;
        // INVARIANT: The identifier was just created with this context.
        Ok(Self { ptr, context })
    }

    /// The C pointer.
    pub(super) fn as_raw(&self) -> *mut bindings::rdma_cm_id {
        self.ptr.as_ptr()
    }

    /// The local address, with its port once the identifier is bound.
    pub(super) fn source_address(&self) -> SocketAddress {
        // SAFETY: By the type's invariant the identifier is valid; the address is plain memory
        // inside it, large enough for any address family, and does not change once the identifier
        // is bound.
        SocketAddress(unsafe {
            let source = &raw const (*self.as_raw()).route.addr.src_addr;
            source.cast::<bindings::__kernel_sockaddr_storage>().read()
        })
    }
}

// SAFETY: The connection manager does its own locking of identifiers.
unsafe impl Send for RawCmId {}
// SAFETY: The connection manager does its own locking of identifiers.
unsafe impl Sync for RawCmId {}

/// Handles an event from the connection manager. Always returns zero: the owner destroys the
/// identifier, never the connection manager.
///
/// # Safety
///
/// Called only by the connection manager, for the identifier of a [`RawCmId`].
unsafe extern "C" fn event_handler<H: CmHandler>(
    id: *mut bindings::rdma_cm_id,
    event: *mut bindings::rdma_cm_event,
) -> c_int {
    // SAFETY: The identifier is valid during the call, and its context is that of a `RawCmId`,
    // which releases the context only after `rdma_destroy_id` has waited for this handler, or after
    // the identifier was given another handler.
    let handler = unsafe { &*(*id).context.cast::<H>() };
    // SAFETY: The event is valid during the call.
    let event = unsafe { &*event };
    let status = event.status;
    handler.event(match event.event {
        bindings::rdma_cm_event_type_RDMA_CM_EVENT_ADDR_RESOLVED => CmEvent::AddressResolved,
        bindings::rdma_cm_event_type_RDMA_CM_EVENT_ROUTE_RESOLVED => CmEvent::RouteResolved,
        bindings::rdma_cm_event_type_RDMA_CM_EVENT_ESTABLISHED => {
            // SAFETY: For this event the union holds connection parameters, which are valid during
            // the callback.
            CmEvent::Established(unsafe { private_data(&event.param.conn) })
        }
        event => CmEvent::Other {
            event,
            status,
            why: (event == bindings::rdma_cm_event_type_RDMA_CM_EVENT_REJECTED).then(|| {
                // SAFETY: An identifier that is rejected has a device, from which the function
                // learns the type of fabric; it returns a static string for any status.
                unsafe { CStr::from_char_ptr(bindings::rdma_reject_msg(id, status)) }
            }),
        },
    });
    0
}

/// The private data of connection parameters, possibly empty or padded.
///
/// # Safety
///
/// `conn` belongs to an event of the connection manager, which is being handled for all of its
/// lifetime.
pub(super) unsafe fn private_data(conn: &bindings::rdma_conn_param) -> &[u8] {
    if conn.private_data.is_null() {
        return &[];
    }
    let length = usize::from(conn.private_data_len);
    // SAFETY: The connection manager provides that many octets while the event is handled (this
    // function's contract).
    unsafe { core::slice::from_raw_parts(conn.private_data.cast(), length) }
}

impl CmId<Unbound> {
    /// Creates an identifier for a reliable connection in `net`, whose events go to `handler`.
    ///
    /// # Errors
    ///
    /// Whatever the connection manager returns, usually `ENOMEM`.
    pub(crate) fn new<H: CmHandler>(net: &Net, handler: Arc<H>) -> Result<Self> {
        // SAFETY: This is the handler for an `H`, and always returns zero.
        let raw = unsafe { RawCmId::new(net, event_handler::<H>, handler)? };
        Ok(Self(raw, PhantomData))
    }

    /// Starts to resolve the peer's address, for at most `timeout_ms` milliseconds.
    ///
    /// # Errors
    ///
    /// Whatever the connection manager returns now, such as `ENODEV` without any RDMA device or
    /// `ENETUNREACH` without a network; a later failure is reported as an event.
    pub(crate) fn resolve_address(&self, peer: &SocketAddress, timeout_ms: u32) -> Result {
        // SAFETY: The identifier is valid, the address is complete and only read.
        to_result(unsafe {
            bindings::rdma_resolve_addr(
                self.as_raw(),
                core::ptr::null_mut(),
                peer.as_raw(),
                c_ulong::try_from(timeout_ms)?,
            )
        })
    }

    /// Converts the identifier to a bound one, once the peer's address is resolved.
    pub(crate) fn into_bound(self) -> Option<CmId<Bound>> {
        // SAFETY: The identifier is valid. The connection manager sets the device once.
        let device = unsafe { (&raw const (*self.as_raw()).device).read_volatile() };
        // INVARIANT: There is a device. An identifier that is bound to a device delays the device's
        // removal.
        (!device.is_null()).then_some(CmId(self.0, PhantomData))
    }
}

impl CmId<Bound> {
    /// Takes over the identifier of a connect request, which the connection manager created with
    /// this context.
    ///
    /// # Safety
    ///
    /// The identifier has no other owner, and its context is the pointer of `context`.
    pub(super) unsafe fn adopt(
        ptr: NonNull<bindings::rdma_cm_id>,
        context: Arc<dyn Send + Sync>,
    ) -> Self {
        // INVARIANT: The identifier has no other owner, and this is its context (this function's
        // contract). It was created for the device on which the request arrived, and delays the
        // device's removal as long as it exists.
        Self(RawCmId { ptr, context }, PhantomData)
    }

    /// Leaves the identifier to the connection manager, which destroys it once the running event
    /// handler has returned nonzero.
    ///
    /// # Safety
    ///
    /// The caller is the handler of one of its events, and returns nonzero. It has another
    /// reference to the context if it still uses that.
    pub(super) unsafe fn disown(self) {
        let this = ManuallyDrop::new(self.0);
        // SAFETY: `this` is not used any longer. No further handler of the identifier uses the
        // context (this function's contract).
        drop(unsafe { core::ptr::read(&this.context) });
    }

    /// Redirects the events to `handler`. Waits for an event handler that is running. May sleep.
    pub(super) fn with_handler<H: CmHandler>(mut self, handler: Arc<H>) -> Self {
        let id = self.as_raw();
        // SAFETY: The identifier is valid. No handler runs while the lock is held; later ones have
        // the new context.
        unsafe {
            bindings::rdma_lock_handler(id);
            (*id).context = Arc::as_ptr(&handler).cast_mut().cast();
            (*id).event_handler = Some(event_handler::<H>);
            bindings::rdma_unlock_handler(id);
        }
        // INVARIANT: This is its context now.
        self.0.context = handler;
        self
    }

    /// Starts to resolve the route, giving up after `timeout_ms` milliseconds.
    ///
    /// # Errors
    ///
    /// Whatever the connection manager returns now.
    pub(crate) fn resolve_route(&self, timeout_ms: u32) -> Result {
        let timeout = c_ulong::try_from(timeout_ms)?;
        // SAFETY: The identifier is valid; in a wrong state the call returns an error.
        to_result(unsafe { bindings::rdma_resolve_route(self.as_raw(), timeout) })
    }

    /// The device, unless it is being removed or has not been added to this module's devices yet.
    /// May sleep.
    pub(crate) fn device(&self) -> Option<Arc<Device>> {
        ib_client::find(self.raw_device().as_ptr())
    }

    /// The name of the device.
    pub(crate) fn device_name(&self) -> DeviceName {
        // SAFETY: By the type's invariant the device is registered.
        unsafe { DeviceName::of(self.raw_device()) }
    }

    /// The C object of the device.
    pub(super) fn raw_device(&self) -> NonNull<bindings::ib_device> {
        // SAFETY: By the type's invariant there is a device, and it does not change.
        unsafe { NonNull::new_unchecked((*self.as_raw()).device) }
    }

    /// The local address.
    pub(crate) fn source_address(&self) -> SocketAddress {
        self.0.source_address()
    }

    /// The peer's address.
    pub(crate) fn peer_address(&self) -> SocketAddress {
        // SAFETY: The identifier is valid. The address is plain memory inside it, large enough for
        // any address family, and does not change once the identifier is bound.
        SocketAddress(unsafe {
            let peer = &raw const (*self.as_raw()).route.addr.dst_addr;
            peer.cast::<bindings::__kernel_sockaddr_storage>().read()
        })
    }

    /// Whether this is iWARP. There RDMA Reads always need registered memory, and the limits on the
    /// elements of their lists say nothing.
    pub(crate) fn is_iwarp(&self) -> bool {
        let device = self.raw_device().as_ptr();
        // SAFETY: By the type's invariant the device is registered, and this is one of its ports.
        unsafe { bindings::rpcrdma_rdma_protocol_iwarp(device, self.port()) }
    }

    /// The port of the device, counted from 1.
    pub(crate) fn port(&self) -> u32 {
        // SAFETY: The identifier is valid. The port does not change once it is set.
        unsafe { (*self.as_raw()).port_num }
    }
}

impl<S> CmId<S> {
    /// The C pointer.
    pub(super) fn as_raw(&self) -> *mut bindings::rdma_cm_id {
        self.0.as_raw()
    }
}

impl Drop for RawCmId {
    fn drop(&mut self) {
        // SAFETY: This object owns the identifier. A queue pair owns its identifier and is
        // destroyed before it. The call waits for a running event handler, which may use the
        // context; the handlers hold no reference to a `RawCmId`, so none of them runs this.
        unsafe { bindings::rdma_destroy_id(self.ptr.as_ptr()) };
    }
}
