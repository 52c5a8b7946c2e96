// SPDX-License-Identifier: GPL-2.0

//! The transport: the callbacks of sunrpc, and what outlives a connection.

use super::{
    connect,
    ep::{Ep, SentCall},
    frwr,
    limits::{self, backward_payload},
    marshal::{self, SendSide},
    v2::KnownServers,
};
use crate::{
    debugfs::WithFiles,
    error::Cause,
    proto::wire::private_data::Thresholds,
    rdma::QueuePair,
    stats::{self, Forms, Latency, Stats},
    sunrpc::{
        client::{
            Backchannel, BackwardReply, ClientClass, ClientTransport, OwnedXprt, Rqst, SendError,
            SendLock, SendLocked, SendOwned,
        },
        SocketAddress, IDENT_RDMA,
    },
    sysctl, trace,
};
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

/// The class that mounts name.
static CLASS: ClientClass<Client> = ClientClass::new(c"rdma", IDENT_RDMA, &[c"rdma", c"rdma6"]);

/// The private part of an `rpc_xprt`, with its files under debugfs. sunrpc and each connection hold
/// a reference.
pub(crate) type Client = WithFiles<RpcrdmaXprt>;

/// The private part of an `rpc_xprt`: its connection, if there is one, and what outlives that.
#[pin_data]
pub(crate) struct RpcrdmaXprt {
    /// The connection, from the end of `connect` to the end of `close`.
    #[pin]
    pub(super) current: SendLocked<QueuePair<Ep>>,
    /// The sender of the connection.
    sending: SendOwned<SendSide>,
    pub(super) stats: Stats,
    pub(super) calls: Forms,
    pub(super) latency: Latency,
    #[pin]
    pub(super) ends: SpinLock<Ends>,
    #[pin]
    pub(super) backchannel: Backchannel,
    /// The largest backward message on the last connection.
    pub(super) backward_payload: Atomic<u32>,
    /// The number of the next connection, which is odd.
    next_connection: Atomic<u32>,
    /// Whether connections are made for half of the requests, as a device has refused queues for
    /// all.
    pub(super) is_halved: Atomic<bool>,
    /// Whether the present series of failed attempts was logged.
    pub(super) failure_logged: Atomic<bool>,
    /// Whether the present series of refused versions was logged.
    pub(super) refusal_logged: Atomic<bool>,
    /// What is known of servers.
    pub(super) servers: Arc<KnownServers>,
    /// Last: the reference to the module goes with it.
    pub(super) xprt: OwnedXprt,
}

/// Why connections ended, and why attempts to connect failed.
#[derive(Clone, Copy)]
pub(super) struct Ends {
    pub(super) ended: stats::Ends,
    pub(super) failed: stats::Ends,
    /// Why the present connection will be closed.
    pub(super) pending: Option<Cause>,
}

impl Ends {
    const NONE: Self = Self {
        ended: stats::Ends::NONE,
        failed: stats::Ends::NONE,
        pending: None,
    };

    /// The connection is closed. Without an earlier cause, sunrpc closed it.
    fn end(&mut self) -> Cause {
        let cause = self.pending.take().unwrap_or(Cause::Closed);
        self.ended.add(cause);
        cause
    }
}

impl RpcrdmaXprt {
    /// The number of a new connection: not 0, and not that of an earlier one.
    pub(super) fn next_connection(&self) -> u32 {
        self.next_connection.fetch_add(2, Relaxed)
    }

    /// Has sunrpc close the connection for this cause. Does not sleep.
    pub(super) fn force_disconnect(&self, cause: Cause) {
        // The first cause counts.
        self.ends.lock().pending.get_or_insert(cause);
        self.xprt.force_disconnect();
    }
}

impl ClientTransport for Client {
    type Shared = KnownServers;

    const MAX_PAYLOAD: usize = limits::MAX_PAYLOAD;

    fn class() -> &'static ClientClass<Self> {
        &CLASS
    }

    fn max_requests() -> u32 {
        sysctl::slot_table_entries()
    }

    fn setup(xprt: OwnedXprt, servers: Arc<KnownServers>) -> Result<Arc<Self>> {
        let id = xprt.id();
        let private = try_pin_init!(RpcrdmaXprt {
            current <- SendLocked::new(),
            sending: SendOwned::new(&xprt),
            stats: Stats::new(),
            calls: Forms::new(),
            latency: Latency::new(),
            ends <- new_spinlock!(Ends::NONE, "rpcrdma_ends"),
            backchannel <- Backchannel::new(),
            backward_payload: Atomic::new(backward_payload(Thresholds::DEFAULT.receive)),
            next_connection: Atomic::new(1),
            is_halved: Atomic::new(false),
            failure_logged: Atomic::new(false),
            refusal_logged: Atomic::new(false),
            servers,
            xprt,
        }? Error);
        Arc::pin_init(Self::new(id, private), GFP_KERNEL)
    }

    fn xprt(&self) -> &OwnedXprt {
        &self.xprt
    }

    fn connect(this: ArcBorrow<'_, Self>, lock: &mut SendLock<'_>) -> Result {
        let sending = connect::connect_worker(&this.into(), lock)?;
        let qp = Arc::clone(&sending.qp);
        drop(this.current.replace(lock, Some(qp)));
        drop(this.sending.replace(lock, Some(sending)));
        Ok(())
    }

    fn close(&self, lock: &mut SendLock<'_>) {
        if let Some(sending) = self.sending.replace(lock, None) {
            let cause = self.ends.lock().end();
            trace::xprtrdma_disconnect(&self.xprt, cause.number());
            let ep = sending.qp.user();
            if let Some(v2) = &ep.v2 {
                v2.lost_for(ep, cause);
            }
            frwr::shut_down(sending.qp);
        }
        // The connection stays visible until here, because `fence` waits for exactly this.
        drop(self.current.replace(lock, None));
    }

    fn send(&self, lock: &mut SendLock<'_>, rqst: &Rqst) -> Result<(), SendError> {
        if !lock.take_credit(rqst) {
            return Err(SendError::NoCredit);
        }
        let sending = self.sending.get(lock).ok_or(SendError::NotConnected)?;
        let sent = marshal::marshal_req(self, sending, rqst);
        if let Err(error) = sent {
            self.stats.failed_marshals.increment();
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
        marshal::send_backward(self, sending, reply)
    }

    fn fence(&self, rqst: &Rqst) {
        // Otherwise the Call had no chunks, or its Reply has already fenced them.
        let cookie = rqst.cookie().get();
        if !SentCall::has_chunks(cookie) {
            return;
        }
        if let Some(qp) = self.current.get() {
            frwr::fence(&qp, cookie, rqst);
        }
    }

    fn timed_out(&self) {
        self.force_disconnect(Cause::RpcTimeout);
    }

    fn disconnect(&self) {
        if self.current.get().is_some() {
            self.force_disconnect(Cause::Injected);
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
        Some(self.current.get()?.user().param.as_ref()?.source)
    }

    fn backward_payload(&self) -> usize {
        // CAST: A u32 always fits the kernel's usize.
        self.backward_payload.load(Relaxed) as usize
    }

    fn backward_slots() -> u32 {
        limits::BACKWARD_SLOTS
    }

    fn backchannel(&self) -> &Backchannel {
        &self.backchannel
    }
}
