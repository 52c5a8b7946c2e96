// SPDX-License-Identifier: GPL-2.0

//! Listening for connections (`rdma_listen()`), and the connect requests that arrive.

use super::cm::{private_data, Bound, CmHandler, CmId, RawCmId};
use crate::bindings::{self, Net, SocketAddress};
use core::ptr::NonNull;
use kernel::{
    error::to_result,
    ffi::c_int,
    new_spinlock,
    prelude::*,
    sync::{Arc, ArcBorrow, SpinLock},
};

/// How many connect requests may wait to be accepted. Further ones are rejected, and their
/// requesters try again.
const MAX_WAITING: usize = 256;

/// How many connect requests the provider may queue before the connection manager reports them.
const BACKLOG: c_int = 64;

/// Octets of private data kept of a connect request: all that the connection manager can report.
/// RFC 8797 defines 8, which may begin at any of them.
const PRIVATE_DATA: usize = 255;

/// Is notified of the events of a [`Listener`].
///
/// Called with an identifier's mutex held, in process context. The implementation must not sleep
/// for long or use the listener.
pub(crate) trait ListenHandler: Send + Sync + 'static {
    /// A connect request arrived: [`Listener::next`] returns it.
    fn requested(&self);

    /// A connect request from this peer was rejected because too many are waiting.
    fn rejected(&self, peer: &SocketAddress);

    /// A connect request from this peer was waiting when the peer gave it up.
    fn withdrawn(&self, peer: &SocketAddress);

    /// The listener's address has moved to another device, or its device is being removed, which
    /// waits until the listener is dropped, which rejects the requests that still arrive.
    fn address_changed(this: &Arc<Self>);
}

/// An address at which connections are accepted, until it is dropped, which rejects connect
/// requests that were not accepted. Dropping may sleep, and must not happen in an event handler.
pub(crate) struct Listener<H: ListenHandler> {
    // Dropped first: nothing is queued when its handlers have returned.
    id: RawCmId,
    requests: Requests<H>,
}

/// Drops the connect requests that wait. Each of them refers to the object that holds the list.
struct Requests<H: ListenHandler>(Arc<Shared<H>>);

impl<H: ListenHandler> Drop for Requests<H> {
    fn drop(&mut self) {
        let waiting = core::mem::take(&mut *self.0.waiting.lock());
        drop(waiting);
    }
}

/// The context of a listener's identifier, and of the connect requests that came through it.
#[pin_data]
struct Shared<H: ListenHandler> {
    handler: Arc<H>,
    #[pin]
    waiting: SpinLock<KVVec<ConnectRequest>>,
}

impl<H: ListenHandler> Listener<H> {
    /// Listens in `net` at `address`, for its address family alone, so that IPv4 and IPv6 can share
    /// a port. For port 0 the connection manager chooses one. May sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, or whatever the connection manager returns, such as `EADDRINUSE` or
    /// `EADDRNOTAVAIL`.
    pub(crate) fn new(net: &Net, address: &SocketAddress, handler: Arc<H>) -> Result<Self> {
        let waiting = KVVec::with_capacity(MAX_WAITING, GFP_KERNEL)?;
        let shared = Arc::pin_init(
            pin_init!(Shared {
                handler,
                waiting <- new_spinlock!(waiting, "rpcrdma_connect_requests"),
            }),
            GFP_KERNEL,
        )?;
        // SAFETY: This is the handler for a `Shared<H>`.
        let id = unsafe { RawCmId::new(net, listen_handler::<H>, shared.clone())? };
        // If listening fails on one device, connect requests may have come from another: dropping
        // this rejects them.
        let this = Self {
            id,
            requests: Requests(shared),
        };
        let id = this.id.as_raw();
        // SAFETY: The identifier is valid, the address is complete and only read.
        unsafe {
            to_result(bindings::rdma_set_afonly(id, 1))?;
            to_result(bindings::rdma_bind_addr(id, address.as_raw()))?;
            to_result(bindings::rdma_listen(id, BACKLOG))?;
        }
        Ok(this)
    }

    /// The address, with the port that was chosen.
    pub(crate) fn address(&self) -> SocketAddress {
        self.id.source_address()
    }

    /// The oldest connect request, and whether there are others.
    pub(crate) fn next(&self) -> Option<(ConnectRequest, bool)> {
        let mut waiting = self.requests.0.waiting.lock();
        let first = waiting.remove(0).ok()?;
        Some((first, !waiting.is_empty()))
    }
}

/// A connect request from a peer. Dropping it rejects the request; this may sleep, and must not
/// happen in an event handler.
pub(crate) struct ConnectRequest {
    pub(crate) id: CmId<Bound>,
    /// The peer's private data, if there is any, padded.
    pub(crate) private_data: [u8; PRIVATE_DATA],
    /// How many RDMA Reads from its memory the peer allows at a time.
    pub(crate) read_depth: u8,
}

impl ConnectRequest {
    /// Turns the request into the identifier of the connection, whose events go to `handler`. May
    /// sleep.
    pub(crate) fn into_id<H: CmHandler>(self, handler: Arc<H>) -> CmId<Bound> {
        self.id.with_handler(handler)
    }
}

/// Handles an event of a listener's identifier, or the first one of a connect request.
///
/// # Safety
///
/// Called only by the connection manager; the context of `id` is that of a listener.
unsafe extern "C" fn listen_handler<H: ListenHandler>(
    id: *mut bindings::rdma_cm_id,
    event: *mut bindings::rdma_cm_event,
) -> c_int {
    // SAFETY: Identifier and event are valid during the call; the context is that of a `RawCmId`,
    // or of the listener's while its handler runs, and stays valid that long.
    let (event, shared) = unsafe {
        let shared = ArcBorrow::from_raw((*id).context.cast::<Shared<H>>().cast_const());
        (&*event, shared)
    };
    match event.event {
        bindings::rdma_cm_event_type_RDMA_CM_EVENT_CONNECT_REQUEST => {
            let Some(id) = NonNull::new(id) else {
                return 0;
            };
            // SAFETY: The identifier is new; its context is that of the listener, and it belongs to
            // us unless we return an error.
            let id = unsafe { CmId::adopt(id, Arc::<Shared<H>>::from(shared)) };
            // Its later events are not the listener's.
            // SAFETY: The identifier is valid, and this is its event handler. The other one expects
            // the same context.
            unsafe { (*id.as_raw()).event_handler = Some(request_handler::<H>) };
            // SAFETY: For this event the union holds connection parameters, which are valid during
            // the callback.
            let (conn, data) = unsafe { (&event.param.conn, private_data(&event.param.conn)) };
            match shared.enqueue(id, data, conn.initiator_depth) {
                Ok(()) => {
                    shared.handler.requested();
                    0
                }
                Err(id) => {
                    let peer = id.peer_address();
                    // SAFETY: This is the handler of the identifier's first event. The listener
                    // holds a reference to the context.
                    unsafe { id.disown() };
                    shared.handler.rejected(&peer);
                    1
                }
            }
        }
        bindings::rdma_cm_event_type_RDMA_CM_EVENT_ADDR_CHANGE
        | bindings::rdma_cm_event_type_RDMA_CM_EVENT_DEVICE_REMOVAL => {
            H::address_changed(&shared.handler);
            0
        }
        _ => 0,
    }
}

/// Handles a later event of a connect request that is not accepted yet.
///
/// # Safety
///
/// Called only by the connection manager; `id` belongs to a [`ConnectRequest`] of an `H`.
unsafe extern "C" fn request_handler<H: ListenHandler>(
    id: *mut bindings::rdma_cm_id,
    event: *mut bindings::rdma_cm_event,
) -> c_int {
    // SAFETY: Identifier and event are valid during the call; the context is that of a `RawCmId`,
    // which stays valid until the identifier is disowned, or given another handler.
    let (event, shared) = unsafe {
        let shared = ArcBorrow::from_raw((*id).context.cast::<Shared<H>>().cast_const());
        ((*event).event, shared)
    };
    // Whatever has happened to it, the request will not be accepted.
    let Some(request) = shared.withdraw(id) else {
        // It is being accepted. That fails if the client has gone; the connection is notified of
        // the device's removal as well.
        return 0;
    };
    match event {
        bindings::rdma_cm_event_type_RDMA_CM_EVENT_ADDR_CHANGE
        | bindings::rdma_cm_event_type_RDMA_CM_EVENT_DEVICE_REMOVAL => {}
        _ => shared.handler.withdrawn(&request.id.peer_address()),
    }
    // SAFETY: This is the handler of an event of the identifier. The context is not used any
    // longer.
    unsafe { request.id.disown() };
    1
}

impl<H: ListenHandler> Shared<H> {
    /// Removes the connect request with this identifier, if it is waiting.
    fn withdraw(&self, id: *mut bindings::rdma_cm_id) -> Option<ConnectRequest> {
        let mut waiting = self.waiting.lock();
        let mut requests = waiting.iter();
        let index = requests.position(|request| request.id.as_raw() == id)?;
        waiting.remove(index).ok()
    }

    /// Queues a connect request until it is accepted.
    fn enqueue(
        &self,
        id: CmId<Bound>,
        private_data: &[u8],
        read_depth: u8,
    ) -> Result<(), CmId<Bound>> {
        let mut request = ConnectRequest {
            id,
            private_data: [0; PRIVATE_DATA],
            read_depth,
        };
        for (to, from) in request.private_data.iter_mut().zip(private_data) {
            *to = *from;
        }
        let mut waiting = self.waiting.lock();
        let queued = waiting.push_within_capacity(request);
        queued.map_err(|error| error.0.id)
    }
}
