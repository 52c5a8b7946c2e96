// SPDX-License-Identifier: GPL-2.0

//! Connections: what each is made of, what is reported to it, and its end.

use super::{
    incoming::Incoming,
    record::{End, SharedListener},
    recvfrom,
    recvfrom::CallInfo,
    sendto,
    sendto::SendInfo,
    stats::Stats,
};
use crate::{
    debugfs::WithFiles,
    error::Cause,
    proto::{
        responder::budget::CallBudget,
        wire::{
            header::Versions,
            private_data::{PrivateData, Thresholds},
        },
    },
    rdma::{
        AcceptedHandler, CmEvent, CmHandler, CmReport, CqContext, QpFailure, QpOwner, QpUser,
        QueuePair, RecvBox, RemoteInvalidation, Removal, RemovalNotice, WcStatus,
    },
    sunrpc::{
        server::{
            Bc, KeptCall, OwnedSvcXprt, Receiving, Replying, SvcCall, SvcConnection, SvcTransport,
        },
        PageVec, SocketAddress,
    },
    trace,
};
use kernel::{
    new_spinlock,
    prelude::*,
    sync::{
        atomic::{Atomic, Relaxed},
        Arc, SpinLock,
    },
    time::{BootTime, Instant},
};

/// The number of the next connection.
static NEXT: Atomic<u32> = Atomic::new(1);

/// No cause of this module's own: sunrpc ends the connection.
const NO_CAUSE: i32 = -1;

/// The queue pair of a connection.
pub(super) type Qp = QueuePair<SvcxprtRdma>;

/// The message of a Call.
pub(super) type RecvCtxt = RecvBox<SvcxprtRdma>;

/// What sunrpc has of a connection, until `xpo_free`.
pub(crate) struct Connection {
    // A notification that is under way uses only the `SvcxprtRdma`.
    pub(super) _removal: RemovalNotice,
    // Dropping this ends whatever runs.
    pub(super) qp: Pin<KBox<WithFiles<QpOwner<SvcxprtRdma>>>>,
}

/// A connection: the owner of the `svc_xprt`'s memory, and the user of the queue pair.
#[pin_data(PinnedDrop)]
pub(crate) struct SvcxprtRdma {
    pub(super) param: Param,
    /// Distinguishes the connection in debugfs and in trace events.
    pub(super) number: u32,
    pub(super) since: Instant<BootTime>,
    pub(super) stats: Stats,
    /// Calls until a thread takes them, and the grants that limit them.
    #[pin]
    pub(super) incoming: SpinLock<Incoming>,
    /// Pages of Replies whose Sends have not completed.
    pub(super) reply_pages: Atomic<u32>,
    pub(super) is_accepted: Atomic<bool>,
    /// The number of the first cause for which the connection ends, or [`NO_CAUSE`].
    cause: Atomic<i32>,
    /// Whether the device has flushed a work request.
    is_flushed: Atomic<bool>,
    pub(super) listener: SharedListener,
    // Last: by now nothing uses sunrpc's object.
    pub(super) svc: OwnedSvcXprt,
}

/// What does not change during the life of a connection.
pub(super) struct Param {
    /// The requester's address.
    pub(super) peer: SocketAddress,
    /// What this end announced, and what the requester did.
    pub(super) private_data: (PrivateData, Option<PrivateData>),
    /// The thresholds from private data, which are those of Version One.
    pub(super) thresholds: Thresholds,
    /// RDMA Reads that can be under way.
    pub(super) read_depth: u8,
    /// The versions that the requester may speak.
    pub(super) versions: Versions,
    pub(super) budget: CallBudget,
    /// Pages of RDMA Reads that Calls may have until threads take them.
    pub(super) max_read_pages: u32,
}

impl SvcxprtRdma {
    /// A connection whose handshake is under way, on which up to `credits` Calls are served at
    /// once.
    pub(super) fn new(
        svc: OwnedSvcXprt,
        listener: SharedListener,
        param: Param,
        credits: u32,
    ) -> impl PinInit<Self, Error> {
        let incoming = Incoming::new(credits, param.thresholds);
        try_pin_init!(Self {
            param,
            number: NEXT.fetch_add(1, Relaxed),
            since: Instant::now(),
            stats: Stats::new(),
            incoming <- new_spinlock!(incoming, "rpcrdma_incoming"),
            reply_pages: Atomic::new(0),
            is_accepted: Atomic::new(false),
            cause: Atomic::new(NO_CAUSE),
            is_flushed: Atomic::new(false),
            listener,
            svc,
        }? Error)
    }

    /// Counts pages that a context keeps for the Writes of a Reply.
    pub(super) fn add_reply_pages(&self, pages: u32) {
        self.reply_pages.add(pages, Relaxed);
        self.listener.reply_pages.add(pages);
    }

    /// The backward direction.
    pub(super) fn bc(&self) -> &Bc {
        self.svc.bc()
    }

    /// Sets the cause for which the connection is going to be closed, unless it has one.
    pub(super) fn set_cause(&self, cause: Cause) {
        let _ = self.cause.cmpxchg(NO_CAUSE, cause.number(), Relaxed);
    }

    /// Why the connection ends.
    fn cause(&self) -> Cause {
        let number = self.cause.load(Relaxed);
        let mut causes = Cause::ALL.iter().copied();
        match causes.find(|cause| cause.number() == number) {
            Some(cause) => cause,
            // With iWARP that may come before the connection manager reports that the client has
            // disconnected.
            None if self.is_flushed.load(Relaxed) => Cause::Disconnected,
            None => Cause::Closed,
        }
    }

    /// Has a thread close the connection, for this cause unless it has another one. Does not sleep.
    pub(super) fn force_close(&self, cause: Cause) {
        self.set_cause(cause);
        self.svc.close();
    }
}

#[pinned_drop]
impl PinnedDrop for SvcxprtRdma {
    fn drop(self: Pin<&mut Self>) {
        let reads = self.incoming.lock().pages;
        self.listener.read_pages.subtract(reads);
        if self.is_accepted.load(Relaxed) {
            self.listener.ended(End {
                peer: self.param.peer,
                cause: self.cause(),
                began: self.since,
                ended: Instant::now(),
                answers: self.stats.answers(),
            });
        }
    }
}

impl Connection {
    /// The queue pair.
    pub(super) fn qp(&self) -> &Qp {
        &self.qp
    }

    /// The user of the queue pair.
    pub(super) fn conn(&self) -> &SvcxprtRdma {
        self.qp().user()
    }
}

impl SvcTransport for Connection {
    fn xprt(&self) -> &OwnedSvcXprt {
        &self.conn().svc
    }

    fn detach(&self) {
        let conn = self.conn();
        // A work request that is flushed from now on is not the cause.
        conn.set_cause(conn.cause());
        let qp = self.qp();
        qp.close();
        self.qp.disconnect();
        // The svc_xprt may live on for long, in a thread, a deferred Call or an nfs4_client.
        conn.drop_ready(qp);
        qp.drop_pending();
    }

    fn free(this: Arc<Self>) {
        drop(this);
    }
}

impl SvcConnection for Connection {
    type Call = RecvCtxt;

    fn recvfrom(&self, rqst: &mut Receiving<'_>) -> Option<SvcCall<RecvCtxt>> {
        recvfrom::recvfrom(self.qp(), rqst)
    }

    fn put_pages(&self, pages: PageVec) {
        self.conn().put_pages(pages);
    }

    fn result_payload(&self, call: KeptCall<'_, RecvCtxt>, at: u32, length: u32) {
        sendto::result_payload(call, at, length);
    }

    fn sendto(&self, rqst: Replying<'_>, call: KeptCall<'_, RecvCtxt>) -> Result {
        sendto::sendto(self.qp(), rqst, call).inspect_err(|_| {
            // A Reply that comes too late is not why the connection ends.
            if !self.conn().svc.is_closing() {
                self.conn().set_cause(Cause::ReplyFailed);
            }
        })
    }

    fn release_ctxt(&self, call: RecvCtxt) {
        recvfrom::release_ctxt(self.qp(), call);
    }
}

impl QpUser for SvcxprtRdma {
    type Recv = CallInfo;
    type Send = SendInfo;
    type Slot = ();

    const IS_CLIENT: bool = false;

    fn received(
        cx: &mut CqContext<'_, Self>,
        ctxt: RecvCtxt,
        _invalidated: Option<RemoteInvalidation<'_>>,
    ) {
        recvfrom::received(cx, ctxt);
    }

    fn pages_put(&self, data: &SendInfo, pages: usize) {
        // It was a u32 when it was added.
        let pages = u32::try_from(pages).unwrap_or(u32::MAX);
        if let SendInfo::Writes | SendInfo::Reply(_) = data {
            self.reply_pages.fetch_sub(pages, Relaxed);
            self.listener.reply_pages.subtract(pages);
        }
    }

    fn sent(cx: &mut CqContext<'_, Self>, data: SendInfo, pages: PageVec) {
        let conn = cx.user();
        match data {
            SendInfo::Idle | SendInfo::Writes => {}
            SendInfo::Reads(ctxt) => recvfrom::read(cx.qp(), ctxt, pages),
            SendInfo::Reply(_) | SendInfo::Error(_) | SendInfo::GarbageArgs => {
                conn.stats.sent(&data);
                conn.incoming.lock().grants.delivered();
            }
            SendInfo::BackwardCall => conn.stats.sent(&data),
        }
    }

    fn part_failed(&self, data: &SendInfo, status: WcStatus) {
        let xid = match data {
            SendInfo::Reads(ctxt) => ctxt.data().xid(),
            SendInfo::Reply(reply) => Some(reply.xid),
            _ => None,
        };
        if let (Some(xid), true) = (xid, status.is_refusal()) {
            self.listener.cannot_answer(&self.param.peer, xid);
        }
    }

    fn sq_full(&self) {
        self.stats.queue_is_full();
    }

    fn sq_available(&self) {
        self.wake_any(&self.incoming.lock());
    }

    fn idle(&self) {
        let spare = core::mem::take(&mut self.incoming.lock().spare);
        drop(spare);
    }

    fn failed(&self, why: QpFailure) {
        self.force_close(match why {
            QpFailure::Flushed => {
                self.is_flushed.store(true, Relaxed);
                return self.svc.close();
            }
            QpFailure::WorkRequest(_) => {
                self.stats.counters.failed_requests.increment();
                Cause::WorkRequest
            }
            QpFailure::NotASend => Cause::NotASend,
            QpFailure::PostRefused(_) => Cause::PostFailed,
            QpFailure::Stalled => Cause::TimedOut,
        });
    }
}

impl CmHandler for SvcxprtRdma {
    fn event(&self, event: CmEvent<'_>, _report: CmReport) {
        match event {
            CmEvent::Established(_) => self.established(),
            CmEvent::Disconnected => self.force_close(Cause::Disconnected),
            CmEvent::DeviceRemoval => self.force_close(Cause::DeviceRemoved),
            CmEvent::Rejected { .. } => self.force_close(Cause::Rejected),
            CmEvent::Unreachable => self.force_close(Cause::Unreachable),
            CmEvent::ConnectError => self.force_close(Cause::ConnectError),
            _ => {}
        }
    }
}

impl AcceptedHandler for SvcxprtRdma {
    fn queue_pair_failed(&self, event: u32) {
        trace::svcrdma_qp_error(self.number, event);
        self.force_close(Cause::WorkRequest);
    }
}

impl Removal for SvcxprtRdma {
    fn removed(&self) {
        trace::svcrdma_device_removal(self.number);
        self.set_cause(Cause::DeviceRemoved);
        // The removal waits, and the service may have no thread.
        self.svc.close_now();
    }
}
