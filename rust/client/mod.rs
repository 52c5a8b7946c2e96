// SPDX-License-Identifier: GPL-2.0

//! The requester: an RPC client transport over one reliable connection.
//!
//! [`Client`] is the transport, as long as the mount. [`connection::Connection`] is what exists
//! only while a connection does, and owns all that is bound to a device. Locks: those of a connection
//! are taken one at a time, within `Transport::current` by a reader in debugfs, who must not hold a
//! reference to the connection: it might be the last.

mod answered;
mod chunks;
mod connect;
mod connection;
mod ends;
mod failure;
mod limits;
mod mapping;
mod marshal;
mod regions;
mod reply;
mod show;

use crate::{
    debugfs::Shown,
    error::Cause,
    rdma::QueuePair,
    stats::{Calls, Latency, Stats},
    sunrpc::{
        client::{
            BackwardCalls, BackwardReply, ClientTransport, OwnedXprt, Rqst, SendError, SendLock,
            SendLocked, SendOwned,
        },
        Class, SocketAddress, IDENT_RDMA,
    },
    sysctl, trace,
};
use connection::{shut_down, Connection, Sent};
use ends::Ends;
use kernel::{
    prelude::*,
    seq_file::SeqFile,
    seq_print,
    sync::{
        atomic::{Atomic, Relaxed},
        Arc, ArcBorrow,
    },
};
use marshal::Sending;

/// Backward Calls that the peer may have under way.
const BACKWARD_SLOTS: u32 = 16;

/// What mounts name.
static CLASS: Class = Class::new(c"rdma", IDENT_RDMA, &[c"rdma", c"rdma6"]);

/// A client transport, with its files under debugfs.
#[pin_data]
pub(crate) struct Client {
    #[pin]
    transport: Shown<Transport>,
}

impl core::ops::Deref for Client {
    type Target = Transport;

    fn deref(&self) -> &Transport {
        &self.transport
    }
}

/// What a transport consists of.
#[pin_data]
pub(crate) struct Transport {
    stats: Stats,
    calls: Calls,
    latency: Latency,
    #[pin]
    ends: Ends,
    /// The connection, from the end of a connect until a close is through.
    #[pin]
    current: SendLocked<QueuePair<Connection>>,
    /// Who sends on it.
    sending: SendOwned<Sending>,
    #[pin]
    backward: BackwardCalls,
    /// The largest backward message on the last connection.
    backward_payload: Atomic<u32>,
    /// The number of the next connection, an odd one.
    next_connection: Atomic<u32>,
    /// Regions that Calls had when the last connection ended, and will want on the next one.
    regions_in_use: Atomic<usize>,
    /// Whether the present series of failed attempts was logged.
    failure_logged: Atomic<bool>,
    /// Last: with it goes the reference to the module.
    xprt: OwnedXprt,
}

impl Transport {
    /// The connection, if there is one.
    fn connection(&self) -> Option<Arc<QueuePair<Connection>>> {
        self.current.get()
    }

    /// The number of a new connection, not 0, nor that of one before it.
    fn next_connection(&self) -> u32 {
        self.next_connection.fetch_add(2, Relaxed)
    }

    /// Has the connection closed for this cause. Does not sleep.
    fn end(&self, cause: Cause) {
        self.ends.note(cause);
        self.xprt.force_disconnect();
    }

    /// Waits until the peer has lost access to the memory of a Call with chunks, by their number.
    #[cold]
    fn fence_regions(&self, rqst: &Rqst, mark: u64) {
        if let Some(qp) = self.connection() {
            qp.context().fence(&qp, mark, rqst);
        }
    }

    /// Ends the connection, if there is one, and waits until the peer has lost all access to this
    /// host's memory. May sleep.
    fn teardown(&self, lock: &mut SendLock<'_>) {
        if let Some(sending) = self.sending.replace(lock, None) {
            trace::xprtrdma_disconnect(&self.xprt, self.ends.end().number());
            let in_use = sending.sender.qp().context().regions.in_use();
            self.regions_in_use.store(in_use, Relaxed);
            shut_down(sending.sender);
        }
        // It stays visible until then, because `fence` waits for just that.
        drop(self.current.replace(lock, None));
    }
}

impl ClientTransport for Client {
    const MAX_PAYLOAD: usize = limits::MAX_PAYLOAD;

    fn class() -> &'static Class {
        &CLASS
    }

    fn max_requests() -> u32 {
        sysctl::slot_table_entries()
    }

    fn setup(xprt: OwnedXprt) -> Result<Arc<Self>> {
        let id = xprt.id();
        let transport = try_pin_init!(Transport {
            stats: Stats::new(),
            calls: Calls::new(),
            latency: Latency::new(),
            current <- SendLocked::new(&xprt),
            sending: SendOwned::new(&xprt),
            xprt,
            ends <- Ends::new(),
            backward <- BackwardCalls::new(),
            backward_payload: Atomic::new(limits::backward_payload(limits::DEFAULT_THRESHOLD)),
            next_connection: Atomic::new(1),
            regions_in_use: Atomic::new(0),
            failure_logged: Atomic::new(false),
        }? Error);
        let client = try_pin_init!(Self {
            transport <- Shown::new(id, transport),
        }? Error);
        Arc::pin_init(client, GFP_KERNEL)
    }

    fn connect(this: ArcBorrow<'_, Self>, lock: &mut SendLock<'_>) -> Result {
        connect::connect(&this.into(), lock)
    }

    fn close(&self, lock: &mut SendLock<'_>) {
        self.teardown(lock);
    }

    fn send(&self, lock: &mut SendLock<'_>, rqst: &Rqst) -> Result<(), SendError> {
        let sent = marshal::send(self, lock, rqst);
        match sent {
            Ok(()) | Err(SendError::NoCredit) => {}
            Err(error) => {
                self.stats.failed_marshals.increment();
                trace::xprtrdma_marshal_failed(rqst, error.to_errno());
            }
        }
        sent
    }

    fn send_backward(
        &self,
        lock: &mut SendLock<'_>,
        reply: &BackwardReply<'_>,
    ) -> Result<(), SendError> {
        let sending = self.sending.get(lock).ok_or(SendError::NotConnected)?;
        marshal::send_backward(self, sending, reply)
    }

    fn fence(&self, rqst: &Rqst) {
        // Otherwise the Call had no chunks, or its Reply has fenced them.
        let mark = rqst.mark().get();
        if Sent::has_chunks(mark) {
            self.fence_regions(rqst, mark);
        }
    }

    fn timed_out(&self) {
        self.end(Cause::RpcTimeout);
    }

    fn disconnect(&self) {
        if let Some(qp) = self.connection() {
            self.ends.note(Cause::Injected);
            qp.qp().disconnect();
        }
    }

    fn print_stats(&self, seq: &SeqFile) {
        let s = &self.stats;
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
            self.calls.position_zero(),
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
        self.backward_payload.load(Relaxed) as usize
    }

    fn backward_slots() -> u32 {
        BACKWARD_SLOTS
    }

    fn backward(&self) -> &BackwardCalls {
        &self.backward
    }
}
