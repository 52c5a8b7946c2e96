// SPDX-License-Identifier: GPL-2.0

//! Listening for connections (`rdma_listen()`), and the connects that were asked for.

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

/// Connects that may wait for their acceptance. One more is rejected, and tried again by its
/// requester.
const MAX_WAITING: usize = 256;

/// What providers keep of connects that the connection manager has not reported yet.
const BACKLOG: c_int = 64;

/// Octets of private data that are kept of a connect. RFC 8797 has 8; a fabric may put some before
/// them.
const PRIVATE_DATA: usize = 64;

/// Learns what happens to a [`Listener`].
///
/// Called with an identifier's mutex held, in process context. The implementation does not sleep
/// long, nor use the listener.
pub(crate) trait ListenHandler: Send + Sync + 'static {
    /// Somebody asks for a connection: [`Listener::next`] has it.
    fn requested(&self);

    /// Somebody was rejected, as too many wait already.
    fn rejected(&self);

    /// The listener's address has moved to another device, or its device goes away. It hears no
    /// more of connects.
    fn address_changed(&self);
}

/// An address at which this end waits for connections, until it is dropped, which rejects those
/// that were not accepted. May sleep then, and is not to be dropped by the handler of an event.
pub(crate) struct Listener<H: ListenHandler> {
    // The identifier goes first: no connect comes after it.
    id: RawCmId,
    waiting: Waiting<H>,
}

/// Rejects the connects that nobody has accepted, when it is dropped.
struct Waiting<H: ListenHandler>(Arc<Shared<H>>);

/// What the identifier of a listener refers to, and those of the connects that came through it.
#[pin_data]
struct Shared<H: ListenHandler> {
    handler: Arc<H>,
    #[pin]
    waiting: SpinLock<KVVec<ConnectRequest>>,
}

impl<H: ListenHandler> Listener<H> {
    /// Listens in `net` at `address`, for its family alone, so that IPv4 and IPv6 can share a port.
    /// Port 0 is one of the connection manager's choice. May sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, or what the connection manager answers, such as `EADDRINUSE` or `EADDRNOTAVAIL`.
    pub(crate) fn new(net: &Net, address: &SocketAddress, handler: Arc<H>) -> Result<Self> {
        let waiting = KVVec::with_capacity(MAX_WAITING, GFP_KERNEL)?;
        let shared = Arc::pin_init(
            pin_init!(Shared {
                handler,
                waiting <- new_spinlock!(waiting, "rpcrdma_connect_requests"),
            }),
            GFP_KERNEL,
        )?;
        let id = RawCmId::new(net, listen_handler::<H>, shared.clone())?;
        // SAFETY: The identifier is valid, the address is complete and only read.
        unsafe {
            #[cfg(CONFIG_IPV6)]
            to_result(bindings::rdma_set_afonly(id.as_raw(), 1))?;
            to_result(bindings::rdma_bind_addr(id.as_raw(), address.as_raw()))?;
            to_result(bindings::rdma_listen(id.as_raw(), BACKLOG))?;
        }
        Ok(Self {
            id,
            waiting: Waiting(shared),
        })
    }

    /// The address, with the port that was chosen.
    pub(crate) fn address(&self) -> SocketAddress {
        self.id.source_address()
    }

    /// The connect that waits longest, and whether others wait behind it.
    pub(crate) fn next(&self) -> Option<(ConnectRequest, bool)> {
        self.waiting.0.next()
    }
}

impl<H: ListenHandler> Drop for Waiting<H> {
    fn drop(&mut self) {
        // Each refers to what has the list.
        while self.0.next().is_some() {}
    }
}

/// A connect that a peer asks for. Dropping it rejects it; may sleep then, and is not to be dropped
/// by the handler of an event.
///
/// # Invariants
///
/// `id` has a device.
pub(crate) struct ConnectRequest {
    id: RawCmId,
    private_data: [u8; PRIVATE_DATA],
    length: usize,
    initiator_depth: u8,
}

impl ConnectRequest {
    /// The peer's private data, possibly empty, padded or cut.
    pub(crate) fn private_data(&self) -> &[u8] {
        self.private_data.get(..self.length).unwrap_or(&[])
    }

    /// The peer's address.
    pub(crate) fn peer_address(&self) -> SocketAddress {
        self.id.peer_address()
    }

    /// The address at this end.
    pub(crate) fn local_address(&self) -> SocketAddress {
        self.id.source_address()
    }

    /// How many RDMA Reads from its memory the peer takes at a time.
    pub(crate) fn read_depth(&self) -> u8 {
        self.initiator_depth
    }

    /// The identifier of the connection, whose events go to `handler`. May sleep.
    pub(crate) fn into_id<HC: CmHandler>(self, handler: Arc<HC>) -> CmId<Bound> {
        // SAFETY: By the type's invariant.
        unsafe { CmId::take_over(self.id, handler) }
    }
}

/// Takes an event of a listener's identifier, or of one of a connect that nobody has accepted yet.
///
/// # Safety
///
/// Called by the connection manager only; the context of `id` is that of a listener.
unsafe extern "C" fn listen_handler<H: ListenHandler>(
    id: *mut bindings::rdma_cm_id,
    event: *mut bindings::rdma_cm_event,
) -> c_int {
    // SAFETY: Identifier and event are valid during the call; the context is that of a `RawCmId`,
    // or of the listener's while its handler runs, and stays as long.
    let (event, shared) = unsafe {
        let shared = ArcBorrow::from_raw((*id).context.cast::<Shared<H>>().cast_const());
        (&*event, shared)
    };
    match event.event {
        bindings::rdma_cm_event_type_RDMA_CM_EVENT_CONNECT_REQUEST => {
            let Some(id) = NonNull::new(id) else {
                return 0;
            };
            // SAFETY: The identifier is a new one, whose context is the listener's, and ours from
            // here on unless we return an error.
            let id = unsafe { RawCmId::adopt(id, shared.into()) };
            // SAFETY: For this event the union holds connection parameters.
            let conn = unsafe { &event.param.conn };
            match shared.enqueue(id, conn) {
                Ok(()) => {
                    shared.handler.requested();
                    0
                }
                Err(id) => {
                    id.leave();
                    shared.handler.rejected();
                    1
                }
            }
        }
        bindings::rdma_cm_event_type_RDMA_CM_EVENT_ADDR_CHANGE
        | bindings::rdma_cm_event_type_RDMA_CM_EVENT_DEVICE_REMOVAL => match shared.withdraw(id) {
            // Nobody has accepted it, and nobody is going to.
            Some(request) => {
                request.id.leave();
                1
            }
            None => {
                shared.handler.address_changed();
                0
            }
        },
        // Those of a connect that waits come back when it is accepted, as an error.
        _ => 0,
    }
}

impl<H: ListenHandler> Shared<H> {
    /// The connect that waits longest, and whether others wait behind it.
    fn next(&self) -> Option<(ConnectRequest, bool)> {
        let mut waiting = self.waiting.lock();
        let first = waiting.remove(0).ok()?;
        Some((first, !waiting.is_empty()))
    }

    /// Takes the connect with this identifier out, if it waits.
    fn withdraw(&self, id: *mut bindings::rdma_cm_id) -> Option<ConnectRequest> {
        let mut waiting = self.waiting.lock();
        let mut requests = waiting.iter();
        let index = requests.position(|request| request.id.as_raw() == id)?;
        waiting.remove(index).ok()
    }

    /// Has a connect wait for its acceptance.
    fn enqueue(&self, id: RawCmId, conn: &bindings::rdma_conn_param) -> Result<(), RawCmId> {
        let from = private_data(conn);
        let mut request = ConnectRequest {
            // INVARIANT: The identifier of a connect is bound to the device that it came from.
            id,
            private_data: [0; PRIVATE_DATA],
            length: from.len().min(PRIVATE_DATA),
            initiator_depth: conn.initiator_depth,
        };
        for (to, from) in request.private_data.iter_mut().zip(from) {
            *to = *from;
        }
        let mut waiting = self.waiting.lock();
        let left = waiting.push_within_capacity(request).err();
        drop(waiting);
        match left {
            None => Ok(()),
            Some(error) => Err(error.0.id),
        }
    }
}
