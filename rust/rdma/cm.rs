// SPDX-License-Identifier: GPL-2.0

//! Connection identifiers of the RDMA connection manager.

use super::device::Device;
use crate::bindings::{self, Net, SocketAddress};
use core::{ffi::c_void, ptr::NonNull};
use kernel::{
    error::from_err_ptr,
    error::to_result,
    ffi::{c_int, c_ulong},
    prelude::*,
    str::CStr,
    str::CStrExt,
    sync::Arc,
};

/// What the connection manager reports about an identifier.
pub(crate) enum CmEvent<'a> {
    /// The address was resolved, and the identifier is bound to a device.
    AddressResolved,
    /// The address cannot be resolved.
    AddressError,
    /// A route was found.
    RouteResolved,
    /// No route was found.
    RouteError,
    /// The connection is up. The octets are the private data of the peer's answer (RFC 8797),
    /// possibly empty or padded.
    Established(&'a [u8]),
    /// The peer, or its connection manager, said no. The report's status has the fabric's reason.
    Rejected {
        /// Whether the reason is a stale connection, which a second attempt may cure.
        stale: bool,
    },
    /// The peer did not answer.
    Unreachable,
    /// The handshake broke off.
    ConnectError,
    /// The connection has ended.
    Disconnected,
    /// The device goes away. Everything on it has to be released soon.
    DeviceRemoval,
    /// The local address moved to another device.
    AddressChange,
    /// An event without consequence for a connection.
    Other,
}

/// What the connection manager says of an event, for people.
#[derive(Clone, Copy)]
pub(crate) struct CmReport {
    /// Its name.
    pub(crate) event: &'static CStr,
    /// Zero, a negative errno, or a reason of the fabric's.
    pub(crate) status: i32,
}

/// Takes the events of one connection identifier.
///
/// Called with the identifier's mutex held, in process context. The implementation may sleep
/// shortly, and does not destroy the identifier, connect it, or wait for another of its events.
pub(crate) trait CmHandler: Send + Sync + 'static {
    /// One event.
    fn event(&self, event: CmEvent<'_>, report: CmReport);
}

/// A connection identifier, and the device reference that comes with it.
///
/// # Invariants
///
/// `ptr` is an identifier that this object owns, and whose context is `context`. `context` came
/// from `Arc::into_raw` and is released by `release`, once.
pub(crate) struct CmId {
    ptr: NonNull<bindings::rdma_cm_id>,
    context: *const c_void,
    release: unsafe fn(*const c_void),
}

// SAFETY: The connection manager locks an identifier by its own means.
unsafe impl Send for CmId {}
// SAFETY: As above.
unsafe impl Sync for CmId {}

/// Takes an event from the connection manager. Always returns zero: the owner destroys the
/// identifier, never the connection manager.
///
/// # Safety
///
/// Called by the connection manager only, for the identifier of a [`CmId`].
unsafe extern "C" fn event_handler<H: CmHandler>(
    id: *mut bindings::rdma_cm_id,
    event: *mut bindings::rdma_cm_event,
) -> c_int {
    // SAFETY: The identifier is valid during the call, and its context is a `CmId`'s, which
    // releases it only after `rdma_destroy_id` has waited for this handler.
    let handler = unsafe { &*(*id).context.cast::<H>() };
    // SAFETY: The event is valid during the call.
    let (kind, status) = unsafe { ((*event).event, (*event).status) };
    let event = match kind {
        bindings::rdma_cm_event_type_RDMA_CM_EVENT_ADDR_RESOLVED => CmEvent::AddressResolved,
        bindings::rdma_cm_event_type_RDMA_CM_EVENT_ADDR_ERROR => CmEvent::AddressError,
        bindings::rdma_cm_event_type_RDMA_CM_EVENT_ROUTE_RESOLVED => CmEvent::RouteResolved,
        bindings::rdma_cm_event_type_RDMA_CM_EVENT_ROUTE_ERROR => CmEvent::RouteError,
        bindings::rdma_cm_event_type_RDMA_CM_EVENT_ESTABLISHED => {
            // SAFETY: For this event the union holds connection parameters.
            let conn = unsafe { &(*event).param.conn };
            let length = usize::from(conn.private_data_len);
            CmEvent::Established(if conn.private_data.is_null() {
                &[]
            } else {
                // SAFETY: The private data is `length` octets, valid during the call.
                unsafe { core::slice::from_raw_parts(conn.private_data.cast(), length) }
            })
        }
        bindings::rdma_cm_event_type_RDMA_CM_EVENT_REJECTED => CmEvent::Rejected {
            stale: u32::try_from(status)
                .is_ok_and(|s| s == bindings::ib_cm_rej_reason_IB_CM_REJ_STALE_CONN),
        },
        bindings::rdma_cm_event_type_RDMA_CM_EVENT_UNREACHABLE => CmEvent::Unreachable,
        bindings::rdma_cm_event_type_RDMA_CM_EVENT_CONNECT_ERROR => CmEvent::ConnectError,
        bindings::rdma_cm_event_type_RDMA_CM_EVENT_DISCONNECTED => CmEvent::Disconnected,
        bindings::rdma_cm_event_type_RDMA_CM_EVENT_DEVICE_REMOVAL => CmEvent::DeviceRemoval,
        bindings::rdma_cm_event_type_RDMA_CM_EVENT_ADDR_CHANGE => CmEvent::AddressChange,
        _ => CmEvent::Other,
    };
    let report = CmReport {
        // SAFETY: The function returns a static string for any event.
        event: unsafe { CStr::from_char_ptr(bindings::rdma_event_msg(kind)) },
        status,
    };
    handler.event(event, report);
    0
}

/// Drops the context reference of an identifier.
///
/// # Safety
///
/// `context` came from `Arc::<H>::into_raw`, and this reference was not dropped before.
unsafe fn release<H: CmHandler>(context: *const c_void) {
    // SAFETY: The caller's promise.
    drop(unsafe { Arc::from_raw(context.cast::<H>()) });
}

impl CmId {
    /// Creates an identifier for a reliable connection in `net`, whose events go to `handler`.
    ///
    /// # Errors
    ///
    /// What the connection manager answers, `ENOMEM` mostly.
    pub(crate) fn new<H: CmHandler>(net: &Net, handler: Arc<H>) -> Result<Self> {
        let context: *const c_void = Arc::into_raw(handler).cast();
        // SAFETY: `net` is live; the context stays valid until `drop`; the name is static.
        let ptr = from_err_ptr(unsafe {
            bindings::__rdma_create_kernel_id(
                net.as_raw(),
                Some(event_handler::<H>),
                context.cast_mut(),
                bindings::rdma_ucm_port_space_RDMA_PS_TCP,
                bindings::ib_qp_type_IB_QPT_RC,
                super::CALLER.as_char_ptr(),
            )
        })
        .and_then(|ptr| NonNull::new(ptr).ok_or(ENOMEM))
        .inspect_err(|_| {
            // SAFETY: The identifier was not created, so nobody else has the reference.
            unsafe { release::<H>(context) }
        })?;
        // INVARIANT: The identifier was just created with this context.
        Ok(Self {
            ptr,
            context,
            release: release::<H>,
        })
    }

    /// Starts to resolve the peer's address, for at most `timeout_ms` milliseconds.
    ///
    /// # Errors
    ///
    /// What the connection manager answers at once, such as `ENODEV` without any RDMA device;
    /// a later answer comes as an event.
    pub(crate) fn resolve_address(&self, peer: &SocketAddress, timeout_ms: u32) -> Result {
        // SAFETY: The identifier is valid, the address is complete and only read.
        to_result(unsafe {
            bindings::rdma_resolve_addr(
                self.ptr.as_ptr(),
                core::ptr::null_mut(),
                peer.as_raw(),
                c_ulong::try_from(timeout_ms)?,
            )
        })
    }

    /// Starts to resolve the route, for at most `timeout_ms` milliseconds. The address is
    /// resolved already.
    ///
    /// # Errors
    ///
    /// What the connection manager answers at once.
    pub(crate) fn resolve_route(&self, timeout_ms: u32) -> Result {
        let timeout = c_ulong::try_from(timeout_ms)?;
        // SAFETY: The identifier is valid; in a wrong state the call returns an error.
        to_result(unsafe { bindings::rdma_resolve_route(self.ptr.as_ptr(), timeout) })
    }

    /// Asks the peer for a connection, with `private_data` (RFC 8797) and as many RDMA Reads
    /// by the peer as `responder_resources`.
    ///
    /// # Errors
    ///
    /// What the connection manager answers at once; a later answer comes as an event.
    pub(crate) fn connect(&self, private_data: &[u8], responder_resources: u8) -> Result {
        let mut parameters = bindings::rdma_conn_param {
            private_data: private_data.as_ptr().cast(),
            private_data_len: u8::try_from(private_data.len()).map_err(|_| EINVAL)?,
            responder_resources,
            // This end never issues RDMA Reads.
            initiator_depth: 0,
            // The most that the fabric's field holds: a lost packet is not a lost connection.
            retry_count: 6,
            // Credits keep Receives posted; a peer that overruns them is cut off.
            rnr_retry_count: 0,
            ..Default::default()
        };
        // SAFETY: The identifier is valid; the parameters are copied during the call.
        to_result(unsafe { bindings::rdma_connect(self.ptr.as_ptr(), &mut parameters) })
    }

    /// Ends the connection. The queue pair goes to the error state. May sleep.
    pub(crate) fn disconnect(&self) {
        // SAFETY: The identifier is valid. An error says that there is no connection to end.
        let _ = unsafe { bindings::rdma_disconnect(self.ptr.as_ptr()) };
    }

    /// The device that the identifier is bound to, once the address is resolved.
    pub(crate) fn device(&self) -> Option<&Device> {
        // SAFETY: The identifier is valid. Once set the device does not change, and it stays
        // registered until the identifier is destroyed.
        let device = unsafe { (*self.ptr.as_ptr()).device };
        if device.is_null() {
            return None;
        }
        // SAFETY: As above.
        Some(unsafe { Device::from_raw(device) })
    }

    /// The address at this end, once the peer's is resolved.
    pub(crate) fn source_address(&self) -> SocketAddress {
        // SAFETY: The identifier is valid; the address is plain memory inside it, which does not
        // change any more.
        SocketAddress::new(unsafe {
            let source = &raw const (*self.ptr.as_ptr()).route.addr.src_addr;
            source.cast::<bindings::__kernel_sockaddr_storage>().read()
        })
    }

    /// The port of the device, from 1 on, once the address is resolved.
    pub(crate) fn port(&self) -> u32 {
        // SAFETY: The identifier is valid. Once set the port does not change.
        unsafe { (*self.ptr.as_ptr()).port_num }
    }

    /// Says in words why the peer rejected the connection.
    pub(crate) fn reject_message(&self, status: i32) -> &'static CStr {
        // SAFETY: The identifier is valid; the function returns a static string for any status.
        unsafe { CStr::from_char_ptr(bindings::rdma_reject_msg(self.ptr.as_ptr(), status)) }
    }

    /// The C pointer.
    pub(super) fn as_raw(&self) -> *mut bindings::rdma_cm_id {
        self.ptr.as_ptr()
    }
}

impl Drop for CmId {
    fn drop(&mut self) {
        // SAFETY: This object owns the identifier. Queue pair and protection domain hold counted
        // references to it, so they are gone. The call waits for a running event handler; the
        // handlers hold no reference to a `CmId`, so none of them runs this.
        unsafe { bindings::rdma_destroy_id(self.ptr.as_ptr()) };
        // SAFETY: By the type's invariant; no handler runs any more.
        unsafe { (self.release)(self.context) };
    }
}
