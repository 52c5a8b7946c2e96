// SPDX-License-Identifier: GPL-2.0

//! The requester: an RPC client transport over one reliable connection.
//!
//! [`Client`] is the transport, which exists as long as the mount, and [`transport::Transport`] the
//! part of it that connections use. [`connection::Connection`] exists only while a connection does,
//! and owns everything that is bound to a device. Locks: those of a connection are taken one at a
//! time; a reader in debugfs takes them within `Endpoint::current`, as it must not hold a reference
//! to the connection, which might be the last.

mod answered;
mod chunks;
mod completions;
mod connect;
mod connection;
mod ends;
mod failure;
mod fence;
mod limits;
mod mapping;
mod marshal;
mod monitor;
mod regions;
mod reply;
mod servers;
mod show;
mod transport;
mod version;

use crate::{
    debugfs::WithFiles,
    error::Cause,
    rdma::QueuePair,
    sunrpc::{
        client::{
            Backchannel, BackwardReply, ClientClass, ClientTransport, OwnedXprt, Rqst, SendError,
            SendLock, SendLocked, SendOwned,
        },
        SocketAddress, IDENT_RDMA,
    },
    sysctl, trace,
};
use connection::{Connection, SentCall};
use kernel::{
    prelude::*,
    seq_file::SeqFile,
    seq_print,
    sync::{atomic::Relaxed, Arc},
};
use marshal::LimitedSender;
pub(crate) use servers::Servers;
use transport::Transport;

/// The class that mounts name.
static CLASS: ClientClass<Client> = ClientClass::new(c"rdma", IDENT_RDMA, &[c"rdma", c"rdma6"]);

/// A client transport, with its files under debugfs.
#[pin_data]
pub(crate) struct Client {
    #[pin]
    endpoint: WithFiles<Endpoint>,
}

impl core::ops::Deref for Client {
    type Target = Endpoint;

    fn deref(&self) -> &Endpoint {
        &self.endpoint
    }
}

/// A transport with its present connection.
#[pin_data]
pub(crate) struct Endpoint {
    /// The connection, from the end of `connect` to the end of `close`.
    #[pin]
    current: SendLocked<QueuePair<Connection>>,
    /// The sender of the connection.
    sending: SendOwned<LimitedSender>,
    /// Last: this may be the last reference to the transport, and to the module.
    transport: Arc<Transport>,
}

impl Endpoint {
    /// The connection, if there is one.
    fn connection(&self) -> Option<Arc<QueuePair<Connection>>> {
        self.current.get()
    }

    /// Waits until the peer has lost access to the memory of a Call with chunks, which its cookie
    /// names.
    fn fence_regions(&self, rqst: &Rqst, cookie: u64) {
        if let Some(qp) = self.connection() {
            fence::fence(&qp, cookie, rqst);
        }
    }
}

impl ClientTransport for Client {
    type Shared = Servers;

    const MAX_PAYLOAD: usize = limits::MAX_PAYLOAD;

    fn class() -> &'static ClientClass<Self> {
        &CLASS
    }

    fn max_requests() -> u32 {
        sysctl::slot_table_entries()
    }

    fn setup(xprt: OwnedXprt, servers: Arc<Servers>) -> Result<Arc<Self>> {
        let id = xprt.id();
        let endpoint = try_pin_init!(Endpoint {
            current <- SendLocked::new(&xprt),
            sending: SendOwned::new(&xprt),
            transport: Transport::new(xprt, servers)?,
        }? Error);
        let client = try_pin_init!(Self {
            endpoint <- WithFiles::new(id, endpoint),
        }? Error);
        Arc::pin_init(client, GFP_KERNEL)
    }

    fn xprt(&self) -> &OwnedXprt {
        &self.transport.xprt
    }

    fn connect(&self, lock: &mut SendLock<'_>) -> Result {
        let sending = connect::connect(&self.transport, lock)?;
        let qp = sending.sender.qp().clone();
        drop(self.current.replace(lock, Some(qp)));
        drop(self.sending.replace(lock, Some(sending)));
        Ok(())
    }

    fn close(&self, lock: &mut SendLock<'_>) {
        if let Some(sending) = self.sending.replace(lock, None) {
            let transport = &self.transport;
            let cause = transport.ends.end();
            trace::xprtrdma_disconnect(&transport.xprt, cause.number());
            let connection = sending.sender.qp().context();
            connection.lost_for(cause);
            let in_use = connection.regions.in_use();
            transport.regions_in_use.store(in_use, Relaxed);
            fence::shut_down(sending.sender);
        }
        // The connection stays visible until here, because `fence` waits for exactly this.
        drop(self.current.replace(lock, None));
    }

    fn send(&self, lock: &mut SendLock<'_>, rqst: &Rqst) -> Result<(), SendError> {
        if !lock.take_credit(rqst) {
            return Err(SendError::NoCredit);
        }
        let sending = self.sending.get(lock).ok_or(SendError::NotConnected)?;
        let sent = marshal::send(&self.transport, sending, rqst);
        if let Err(error) = sent {
            self.transport.stats.failed_marshals.increment();
            trace::xprtrdma_marshal_failed(rqst, error.to_errno());
        }
        sent
    }

    fn send_backward(
        &self,
        lock: &mut SendLock<'_>,
        reply: &BackwardReply<'_>,
    ) -> Result<(), SendError> {
        let sending = self.sending.get(lock).ok_or(SendError::NotConnected)?;
        marshal::send_backward(&self.transport, sending, reply)
    }

    fn fence(&self, rqst: &Rqst) {
        // Otherwise the Call had no chunks, or its Reply has already fenced them.
        let cookie = rqst.cookie().get();
        if SentCall::has_chunks(cookie) {
            self.fence_regions(rqst, cookie);
        }
    }

    fn timed_out(&self) {
        self.transport.end(Cause::RpcTimeout);
    }

    fn disconnect(&self) {
        if let Some(qp) = self.connection() {
            self.transport.ends.note(Cause::Injected);
            qp.qp().disconnect();
        }
    }

    fn print_stats(&self, seq: &SeqFile) {
        let Transport {
            stats: s, calls, ..
        } = &*self.transport;
        seq_print!(
            seq,
            "{} {} {} {} {} {} {} 0 {} {} {} 0 0 {} {} {} 0\n",
            s.read_segments.get(),
            s.write_segments.get(),
            s.reply_segments.get(),
            s.offered_bytes.get(),
            s.delivered_bytes.get(),
            s.pullup_bytes.get(),
            s.fixup_bytes.get(),
            s.failed_marshals.get(),
            s.bad_replies.get(),
            calls.position_zero(),
            s.regions_allocated.get(),
            s.local_invalidations.get(),
            s.send_queue_full.get(),
        );
    }

    fn source(&self) -> Option<SocketAddress> {
        Some(self.connection()?.qp().id().source_address())
    }

    fn backward_payload(&self) -> usize {
        // CAST: A u32 always fits the kernel's usize.
        self.transport.backward_payload.load(Relaxed) as usize
    }

    fn backward_slots() -> u32 {
        limits::BACKWARD_SLOTS
    }

    fn backchannel(&self) -> &Backchannel {
        &self.transport.backchannel
    }
}
