// SPDX-License-Identifier: GPL-2.0

//! The requester: an RPC client transport over one reliable connection.
//!
//! [`Client`] is the transport, as long as the mount. [`connection::Connection`] is what exists
//! only while a connection does, and owns all that is bound to a device. Locks: `Client::current`
//! is a leaf; the lock of a chunk entry is taken within that of its slot in `rdma/`.

mod chunks;
mod connect;
mod connection;
mod limits;
mod marshal;
mod regions;
mod reply;

use crate::{
    debugfs::Shown,
    rdma::QueuePair,
    stats::Stats,
    sunrpc::{
        BackwardCalls, BackwardReply, ClientTransport, OwnedXprt, Rqst, SendError, SocketAddress,
    },
    sysctl,
};
use connection::Connection;
use kernel::{
    new_spinlock,
    prelude::*,
    seq_file::SeqFile,
    seq_print,
    sync::{
        atomic::{Atomic, Relaxed},
        Arc, ArcBorrow, SpinLock,
    },
};

/// Backward Calls that the peer may have under way.
const BACKWARD_SLOTS: u32 = 16;

/// A client transport.
#[pin_data]
pub(crate) struct Client {
    #[pin]
    stats: Shown<Stats>,
    /// The connection, from the end of a connect until a close is through.
    #[pin]
    current: SpinLock<Option<Arc<QueuePair<Connection>>>>,
    #[pin]
    backward: BackwardCalls,
    /// The largest backward message on the last connection.
    backward_payload: Atomic<u32>,
    /// Whether the present series of failed attempts was logged.
    failure_logged: Atomic<bool>,
    /// Last: with it goes the reference to the module.
    xprt: OwnedXprt,
}

impl Client {
    /// The connection, if there is one.
    fn connection(&self) -> Option<Arc<QueuePair<Connection>>> {
        self.current.lock().clone()
    }

    /// Ends the connection, if there is one, and waits until the peer has lost all access to this
    /// host's memory. May sleep.
    fn teardown(&self) {
        // The connection stays visible until then, because `fence` waits for just that.
        if let Some(qp) = self.connection() {
            qp.context().shut_down(&qp);
            let last = self.current.lock().take();
            drop(last);
        }
    }
}

impl ClientTransport for Client {
    const MAX_PAYLOAD: usize = limits::MAX_PAYLOAD;

    fn max_requests() -> u32 {
        sysctl::slot_table_entries()
    }

    fn setup(xprt: OwnedXprt) -> Result<Arc<Self>> {
        Arc::pin_init(
            try_pin_init!(Self {
                stats <- Shown::new(xprt.id(), Stats::new()),
                xprt,
                current <- new_spinlock!(None, "rpcrdma_current"),
                backward <- BackwardCalls::new(),
                backward_payload: Atomic::new(limits::backward_payload(limits::DEFAULT_THRESHOLD)),
                failure_logged: Atomic::new(false),
            }? Error),
            GFP_KERNEL,
        )
    }

    fn connect(this: ArcBorrow<'_, Self>) -> Result {
        connect::connect(&this.into())
    }

    fn close(&self) {
        self.teardown();
    }

    fn send(&self, rqst: &Rqst) -> Result<(), SendError> {
        let qp = self.connection().ok_or(SendError::NotConnected)?;
        let sent = marshal::send(self, &qp, rqst);
        match sent {
            Ok(()) | Err(SendError::NoCredit) => {}
            Err(_) => self.stats.failed_marshals.increment(),
        }
        sent
    }

    fn send_backward(&self, reply: &BackwardReply<'_>) -> Result<(), SendError> {
        let qp = self.connection().ok_or(SendError::NotConnected)?;
        marshal::send_backward(self, &qp, reply)
    }

    fn fence(&self, rqst: &Rqst) {
        // No number: the Call had no chunks, or its Reply has fenced them.
        let mark = rqst.mark().load(Relaxed);
        if mark == 0 {
            return;
        }
        if let Some(qp) = self.connection() {
            qp.context().fence(&qp, mark, rqst.xid());
        }
    }

    fn disconnect(&self) {
        if let Some(qp) = self.connection() {
            qp.id().disconnect();
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
            s.position_zero_calls.get(),
            s.regions_allocated.get(),
            s.local_invalidations.get(),
            s.send_queue_full.get(),
        );
    }

    fn source(&self) -> Option<SocketAddress> {
        Some(self.connection()?.id().source_address())
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
