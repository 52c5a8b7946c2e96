// SPDX-License-Identifier: GPL-2.0

//! The transport: the callbacks of sunrpc, and what outlives a connection.

use super::{connect, ep::Ep, frwr, known_servers::KnownServers, limits, marshal};
use crate::{
    debugfs::WithFiles,
    error::Cause,
    proto::wire::{
        header::{Xid, MIN_HEADER_LEN},
        private_data::Thresholds,
    },
    rdma::{QpOwner, QueuePair},
    stats::{Ends, Form, Forms, Latency, Stats},
    sunrpc::{
        client::{
            Backchannel, ClientClass, ClientTransport, ForwardRqst, OwnedXprt, Rqst, SendError,
        },
        SocketAddress, XdrBuf, IDENT_RDMA,
    },
    sysctl, trace,
};
use kernel::{
    new_spinlock,
    prelude::*,
    seq_file::SeqFile,
    seq_print,
    sync::{atomic::Atomic, Arc, ArcBorrow, SpinLock},
};

/// The class that mounts name.
static CLASS: ClientClass<RpcrdmaXprt> = ClientClass::new(c"rdma", IDENT_RDMA, [c"rdma", c"rdma6"]);

/// The private part of an `rpc_xprt`, with its files under debugfs. sunrpc and each connection hold
/// a reference.
pub(crate) type RpcrdmaXprt = WithFiles<XprtInner>;

/// The private part of an `rpc_xprt`: its connection, if there is one, and what outlives that.
#[pin_data]
pub(crate) struct XprtInner {
    /// The connection, from the end of `connect` to the end of `close`.
    #[pin]
    pub(super) current: SpinLock<Option<Arc<QueuePair<Ep>>>>,
    pub(super) stats: Stats,
    pub(super) calls: Forms,
    pub(super) latency: Latency,
    /// Why connections ended.
    #[pin]
    pub(super) ended: SpinLock<Ends>,
    /// Why attempts to connect failed.
    #[pin]
    pub(super) connect_failed: SpinLock<Ends>,
    #[pin]
    pub(super) backchannel: Backchannel,
    /// The number of the next connection. Odd: 0 is the cookie of an unsent Call.
    pub(super) next_connection: Atomic<u32>,
    /// Whether a failure to connect, or to agree on a version, was logged since the last Reply.
    pub(super) failure_logged: Atomic<bool>,
    /// Whether the peer ends a connection on which it is checked.
    pub(super) checks_fail: Atomic<bool>,
    /// What is known of servers.
    pub(super) servers: Arc<KnownServers>,
    /// Last: the reference to the module goes with it.
    pub(super) xprt: OwnedXprt,
}

impl XprtInner {
    /// Makes sunrpc close the connection for this cause, if there is one and `is_due` says so. Does
    /// not sleep.
    fn force_disconnect(&self, cause: Cause, is_due: impl FnOnce() -> bool) {
        let current = self.current.lock();
        if let Some(qp) = current.as_ref().filter(|_| is_due()) {
            qp.user().state.force_disconnect(cause);
        }
    }
}

impl ClientTransport for RpcrdmaXprt {
    type Shared = KnownServers;
    type Sender = QpOwner<Ep>;

    const MAX_PAYLOAD: usize = limits::MAX_PAYLOAD;
    const BACKWARD_SLOTS: u32 = limits::BACKWARD_SLOTS;

    fn class() -> &'static ClientClass<Self> {
        &CLASS
    }

    fn max_requests() -> u32 {
        sysctl::slot_table_entries()
    }

    fn setup(xprt: OwnedXprt, servers: Arc<KnownServers>) -> Result<Arc<Self>> {
        let id = xprt.id();
        let private = try_pin_init!(XprtInner {
            current <- new_spinlock!(None, "rpcrdma_current"),
            stats: Stats::new(),
            calls: Forms::new(),
            latency: Latency::new(),
            ended <- new_spinlock!(Ends::NONE, "rpcrdma_ended"),
            connect_failed <- new_spinlock!(Ends::NONE, "rpcrdma_connect_failed"),
            backchannel <- Backchannel::new(),
            next_connection: Atomic::new(1),
            failure_logged: Atomic::new(false),
            checks_fail: Atomic::new(false),
            servers,
            xprt,
        }? Error);
        Arc::pin_init(Self::new(id, private), GFP_KERNEL)
    }

    fn xprt(&self) -> &OwnedXprt {
        &self.xprt
    }

    fn connect(this: ArcBorrow<'_, Self>) -> Result<QpOwner<Ep>> {
        let qp = connect::connect_worker(&this.into())?;
        *this.current.lock() = Some(Arc::clone(&qp));
        Ok(qp)
    }

    fn close(&self, qp: QpOwner<Ep>) {
        let cause = qp.user().state.expect_end();
        self.ended.lock().add(cause);
        trace::xprtrdma_disconnect(self.xprt.id(), cause.name());
        if let Some(v2) = &qp.user().v2 {
            v2.lost_for(qp.user(), cause);
        }
        frwr::shut_down(qp);
        // The connection stays visible until here, because `fence` waits for exactly this.
        let qp = self.current.lock().take();
        drop(qp);
    }

    fn send(&self, qp: &mut QpOwner<Ep>, rqst: &Rqst) -> Result<(), SendError> {
        marshal::marshal_req(qp, rqst).inspect_err(|error| {
            self.stats.failed_marshals.increment();
            trace::xprtrdma_marshal_failed(rqst, error.to_errno());
        })
    }

    fn send_backward(
        &self,
        qp: &mut QpOwner<Ep>,
        xid: u32,
        reply: &XdrBuf<'_>,
        bc_cookie: u64,
    ) -> Result<(), SendError> {
        marshal::send_backward(qp, Xid(xid), reply, bc_cookie)
    }

    fn fence(&self, rqst: &Rqst) {
        // Otherwise no MR is mapped over its memory.
        if !rqst.exposure().is_over() {
            let qp = self.current.lock().clone();
            if let Some(qp) = qp {
                frwr::fence(&qp, rqst);
            }
        }
    }

    fn check_peer(&self) -> bool {
        matches!(&*self.current.lock(), Some(qp) if qp.user().may_check_peer() && qp.check_peer())
    }

    fn timed_out(&self, is_due: impl FnOnce() -> bool) {
        self.force_disconnect(Cause::RpcTimeout, is_due);
    }

    fn disconnect(&self) {
        self.force_disconnect(Cause::Injected, || true);
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
            self.calls.sum(|form| form.call == Form::POSITION_ZERO),
            s.regions_allocated.get(),
            s.local_invalidations.get(),
            s.send_queue_full.get(),
        );
    }

    fn source(&self) -> Option<SocketAddress> {
        let current = self.current.lock();
        Some(current.as_ref()?.user().param.as_ref()?.source)
    }

    fn backward_payload(&self) -> usize {
        let current = self.current.lock();
        let version = current.as_ref().and_then(|qp| qp.user().version());
        let thresholds = version.map_or(Thresholds::DEFAULT, |version| version.thresholds);
        let threshold = thresholds.send.min(thresholds.receive);
        // CAST: A u32 always fits the kernel's usize.
        threshold.saturating_sub(MIN_HEADER_LEN) as usize
    }

    fn backchannel(&self) -> &Backchannel {
        &self.backchannel
    }
}
