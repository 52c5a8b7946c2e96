// SPDX-License-Identifier: GPL-2.0

//! Waiting for connections.

use super::{
    connection::Connection,
    record::{Record, SharedRecord},
};
use crate::{
    rdma::{self, ConnectRequest, ListenHandler},
    sunrpc::{
        server::{OwnedSvcXprt, SvcClass, SvcListener, SvcTransport},
        SocketAddress, IDENT_RDMA,
    },
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        atomic::{Atomic, Relaxed},
        Arc, Mutex,
    },
};

/// The most bytes of data in one RPC, which sunrpc allows any transport (`RPCSVC_MAXPAYLOAD`).
const MAX_PAYLOAD: u32 = 4 << 20;

static CLASS: SvcClass = SvcClass::new(c"rdma", IDENT_RDMA, MAX_PAYLOAD);

/// One address at which connections are accepted.
#[pin_data]
pub(crate) struct Listener {
    /// Nothing once it is closed.
    #[pin]
    id: Mutex<Option<rdma::Listener<Events>>>,
    address: SocketAddress,
    // Last: it has sunrpc's object.
    events: Arc<Events>,
}

/// What happens to a listener's identifier.
pub(super) struct Events {
    xprt: OwnedSvcXprt,
    /// Whether the address has moved to another device, so that another identifier has to listen.
    has_moved: Atomic<bool>,
    record: SharedRecord,
}

impl ListenHandler for Events {
    fn requested(&self) {
        self.xprt.connection_waits();
        self.xprt.enqueue();
    }

    fn rejected(&self) {
        self.record.rejected();
    }

    fn address_changed(&self) {
        self.has_moved.store(true, Relaxed);
        self.requested();
    }
}

impl Listener {
    /// The connect that waits longest. May sleep.
    fn next(&self) -> Option<ConnectRequest> {
        let mut id = self.id.lock();
        if self.events.has_moved.xchg(false, Relaxed) && id.is_some() {
            // The port has to be free before it can be listened at again.
            *id = None;
            match rdma::Listener::new(self.events.xprt.net(), &self.address, self.events.clone()) {
                Ok(new) => *id = Some(new),
                Err(error) => {
                    let (address, port) = (self.address, self.address.port());
                    pr_err!(
                        "{address} port {port}: cannot listen on the device that the address \
                         is now of: {error:?}\n"
                    );
                }
            }
        }
        let (request, is_followed) = id.as_ref()?.next()?;
        if is_followed {
            self.events.xprt.connection_waits();
        }
        Some(request)
    }
}

impl SvcTransport for Listener {
    fn xprt(&self) -> &OwnedSvcXprt {
        &self.events.xprt
    }

    fn detach(&self) {
        let id = self.id.lock().take();
        // Its end waits for handlers, which do not take the lock.
        drop(id);
    }

    fn end(this: Arc<Self>) {
        this.detach();
    }
}

impl SvcListener for Listener {
    type Connection = Connection;

    fn class() -> &'static SvcClass {
        &CLASS
    }

    fn listen(xprt: OwnedSvcXprt, address: &SocketAddress) -> Result<Arc<Self>> {
        let events = Arc::new(
            Events {
                xprt,
                has_moved: Atomic::new(false),
                record: Record::new()?,
            },
            GFP_KERNEL,
        )?;
        let id = rdma::Listener::new(events.xprt.net(), address, events.clone())?;
        let address = id.address();
        events.record.listens(address);
        Arc::pin_init(
            pin_init!(Self {
                id <- new_mutex!(Some(id), "rpcrdma_listener"),
                address,
                events,
            }),
            GFP_KERNEL,
        )
    }

    fn address(&self) -> SocketAddress {
        self.address
    }

    fn accept(&self) -> Option<Arc<Connection>> {
        let request = self.next()?;
        let peer = request.peer_address();
        let record = &self.events.record;
        Connection::accept(request, &self.events.xprt, record)
            .inspect_err(|&error| record.accept_failed(&peer, error))
            .ok()
    }
}
