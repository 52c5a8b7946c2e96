// SPDX-License-Identifier: GPL-2.0

//! Waiting for connections.

use super::{
    record::{ListenerShared, SharedListener},
    transport::Connection,
};
use crate::{
    rdma::{self, ListenHandler},
    sunrpc::{
        server::{
            Accepting, BcConnection, NewXprt, OwnedSvcXprt, Published, SvcClass, SvcListener,
            SvcTransport,
        },
        ClassUser, ReclaimScope, SocketAddress, IDENT_RDMA,
    },
};
use kernel::{
    new_delayed_work, new_mutex,
    prelude::*,
    sync::{Arc, Mutex},
    time::msecs_to_jiffies,
    workqueue::{impl_has_delayed_work, DelayedWork, WorkItem},
};

/// The most bytes of data in one RPC, which sunrpc allows any transport (`RPCSVC_MAXPAYLOAD`).
const MAX_PAYLOAD: u32 = 4 << 20;

/// Milliseconds until an address that no device has is tried once more.
const PAUSE_MS: u32 = 1000;

pub(crate) static CLASS: SvcClass<SvcRdmaListener> =
    SvcClass::new(c"rdma", IDENT_RDMA, MAX_PAYLOAD);

/// One address at which connections are accepted.
#[pin_data]
pub(crate) struct SvcRdmaListener {
    #[pin]
    state: Mutex<State>,
    /// Listens anew. Until it runs it keeps the listener, and thus the module.
    #[pin]
    work: DelayedWork<Self>,
    shared: SharedListener,
    // Last: it owns sunrpc's object.
    xprt: OwnedSvcXprt,
}

struct State {
    /// `None` while no device has the address. It refers to the listener, until that is closed.
    id: Option<rdma::Listener<SvcRdmaListener>>,
    address: SocketAddress,
    /// Whether it does not listen any longer, or not yet.
    is_closed: bool,
    /// Whether the log says that no device has the address.
    is_logged: bool,
}

impl_has_delayed_work! {
    impl HasDelayedWork<Self> for SvcRdmaListener { self.work }
}

impl WorkItem for SvcRdmaListener {
    type Pointer = Arc<Self>;

    /// Tries to listen at the address again, unless the listener is closed. Until a device has the
    /// address, each attempt queues the next one, and has no worker in between. May sleep.
    fn run(this: Arc<Self>) {
        let _scope = ReclaimScope::noio();
        let mut state = this.state.lock();
        // The port has to be free before it can be listened at again. Destroying the identifier
        // waits for handlers, which do not take the lock.
        state.id = None;
        if state.is_closed {
            return;
        }
        let address = state.address;
        match rdma::Listener::new(&this.xprt.net, &address, this.clone()) {
            Ok(id) => {
                state.id = Some(id);
                state.is_logged = false;
                this.shared.moves.increment();
            }
            Err(error) => {
                if !core::mem::replace(&mut state.is_logged, true) {
                    let port = address.port();
                    pr_warn!(
                        "{address} port {port}: cannot listen for clients ({error:?}): trying on \
                         until an RDMA device has the address\n"
                    );
                }
                let delay = msecs_to_jiffies(PAUSE_MS);
                ClassUser::enqueue_delayed(&this, |this| &this.shared.user, delay);
            }
        }
    }
}

impl ListenHandler for SvcRdmaListener {
    fn requested(&self) {
        self.xprt.wake_for_connection();
    }

    fn rejected(&self, peer: &SocketAddress) {
        self.shared.rejected(peer);
    }

    fn withdrawn(&self, peer: &SocketAddress) {
        self.shared.accept_failed(peer, EINVAL);
    }

    fn address_changed(this: &Arc<Self>) {
        // If the work is already queued, it handles this event as well.
        let _ = this.shared.user.enqueue(this.clone());
    }
}

impl SvcTransport for SvcRdmaListener {
    fn detach(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        state.id = None;
    }
}

impl SvcListener for SvcRdmaListener {
    type Connection = Connection;

    fn class() -> &'static SvcClass<Self> {
        &CLASS
    }

    fn listen<'a>(new: NewXprt<'a, Self>, address: &SocketAddress) -> Result<Published<'a>> {
        let user = Connection::bc_class().enter().ok_or(ENODEV)?;
        let (shared, xprt) = (ListenerShared::new(user)?, new.owned());
        let state = State {
            id: None,
            address: *address,
            // Should this fail, an event that has come meanwhile is not to listen anew.
            is_closed: true,
            is_logged: false,
        };
        let this = Arc::pin_init(
            pin_init!(Self {
                state <- new_mutex!(state, "rpcrdma_listener"),
                work <- new_delayed_work!("rpcrdma_listener"),
                shared,
                xprt,
            }),
            GFP_KERNEL,
        )?;
        let mut state = this.state.lock();
        let id = rdma::Listener::new(&this.xprt.net, address, this.clone())?;
        state.address = id.address();
        state.id = Some(id);
        state.is_closed = false;
        this.shared.address.populate(state.address);
        new.set_local_port(state.address.port());
        drop(state);
        Ok(new.publish(this))
    }

    fn accept<'a>(&self, accepting: Accepting<'a, Connection>) -> Option<Published<'a>> {
        let (request, is_followed) = self.state.lock().id.as_ref()?.next()?;
        if is_followed {
            self.xprt.wake_for_connection();
        }
        let peer = request.id.peer_address();
        Connection::accept(request, accepting, &self.shared)
            .inspect_err(|&error| self.shared.accept_failed(&peer, error))
            .ok()
    }
}
