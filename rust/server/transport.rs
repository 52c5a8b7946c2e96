// SPDX-License-Identifier: GPL-2.0

//! Connections: what each is made of, what is reported to it, and its end.

use super::{
    incoming::Incoming, record::SharedListener, recvfrom, recvfrom::CallInfo, sendto,
    sendto::SendInfo, stats::Stats,
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
        self, CmEvent, CmHandler, CqContext, QpFailure, QpOwner, QpUser, QueuePair,
        RemoteInvalidation, Removal, RemovalNotice, WcStatus,
    },
    sunrpc::{
        server::{
            KeptCall, OwnedSvcXprt, Receiving, Replying, SvcCall, SvcConnection, SvcTransport,
        },
        ClassUser, PageVec, SocketAddress,
    },
    trace,
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{Atomic, Relaxed},
        Arc, SetOnce, SpinLock,
    },
    time::{BootTime, Instant},
};

/// The queue pair of a connection.
pub(super) type Qp = QueuePair<SvcxprtRdma>;

/// Its owner, which threads borrow with the connection.
pub(super) type Owner = QpOwner<SvcxprtRdma>;

/// The message of a Call.
pub(super) type RecvBox = rdma::RecvBox<SvcxprtRdma>;

/// What sunrpc has of a connection, until `xpo_free`.
pub(crate) struct Connection {
    // A notification that is under way uses only the `SvcxprtRdma`.
    pub(super) _removal: RemovalNotice,
    // Dropping this ends whatever runs.
    pub(super) qp: Pin<KBox<WithFiles<QpOwner<SvcxprtRdma>>>>,
}

/// A connection: the owner of the `svc_xprt`'s memory, and the user of the queue pair.
#[pin_data]
pub(crate) struct SvcxprtRdma {
    /// The requester's address.
    pub(super) peer: SocketAddress,
    /// What this end announced.
    pub(super) own_data: PrivateData,
    /// What the requester announced.
    pub(super) peer_data: Option<PrivateData>,
    /// The thresholds from private data, which are those of Version One.
    pub(super) thresholds: Thresholds,
    /// RDMA Reads that can be under way.
    pub(super) read_depth: u8,
    /// The versions that the requester may speak.
    pub(super) versions: Versions,
    pub(super) budget: CallBudget,
    /// Whether Calls of this requester have cost earlier connections.
    pub(super) has_unanswerable: bool,
    /// Pages of RDMA Reads that Calls may have until threads take them.
    pub(super) max_read_pages: u32,
    /// Distinguishes the connection in debugfs and in trace events.
    pub(super) number: u32,
    pub(super) since: Instant<BootTime>,
    pub(super) stats: Stats,
    /// Calls until a thread takes them, and the grants that limit them.
    #[pin]
    pub(super) incoming: SpinLock<Incoming>,
    /// Pages of Replies whose Sends have not completed, and one for each Call with a thread, or
    /// deferred, that offers memory for its Reply. debugfs shows it as `reply_pages`.
    pub(super) reply_load: Atomic<u32>,
    /// The first cause that was reported; unset if sunrpc closes the connection.
    pub(super) cause: SetOnce<Cause>,
    /// Whether the device has flushed a work request.
    pub(super) is_flushed: Atomic<bool>,
    pub(super) listener: SharedListener,
    // Last: by now nothing uses sunrpc's object.
    pub(super) svc: OwnedSvcXprt,
}

impl SvcxprtRdma {
    /// Sets the cause for which the connection is going to be closed, unless it has one.
    pub(super) fn set_cause(&self, cause: Cause) {
        self.cause.populate(cause);
    }

    /// Why the connection ends.
    fn cause(&self) -> Cause {
        self.cause.copy().unwrap_or_else(|| {
            // A flush can be handled before the connection manager reports why: a reject, or with
            // iWARP that the client has disconnected.
            match self.is_flushed.load(Relaxed) {
                true if self.incoming.lock().is_established => Cause::Disconnected,
                true => Cause::Rejected,
                false => Cause::Closed,
            }
        })
    }

    /// Makes a thread close the connection, for this cause unless it has another one. Does not
    /// sleep.
    pub(super) fn force_close(&self, cause: Cause) {
        self.set_cause(cause);
        self.svc.deferred_close();
    }

    /// The same for something that this end could not do. If the connection is being closed
    /// anyway, that is not the cause. Does not sleep.
    pub(super) fn fail(&self, cause: Cause) {
        if !self.svc.is_closing() {
            self.force_close(cause);
        }
    }
}

impl SvcTransport for Connection {
    fn detach(&self) {
        let conn = self.qp.user();
        // A work request that is flushed from now on is not the cause.
        conn.set_cause(conn.cause());
        self.qp.close_sq();
        self.qp.disconnect();
        // The svc_xprt may live on for long, in a thread, a deferred Call or an nfs4_client.
        conn.drop_ready(&self.qp);
    }

    fn free(this: Arc<Self>) {
        let conn = this.qp.user().clone();
        drop(this);
        conn.listener.ended(&conn.peer, conn.cause());
    }
}

impl SvcConnection for Connection {
    type Call = RecvBox;

    fn take(&self) -> Option<RecvBox> {
        self.qp.user().take(&self.qp)
    }

    fn recvfrom(&self, call: RecvBox, rqst: &mut Receiving<'_>) -> Option<SvcCall<RecvBox>> {
        recvfrom::recvfrom(&self.qp, call, rqst)
    }

    fn result_payload(&self, call: KeptCall<'_, RecvBox>, at: u32, length: u32) {
        sendto::result_payload(call, at, length);
    }

    fn sendto(&self, rqst: Replying<'_>, call: KeptCall<'_, RecvBox>) -> Result {
        sendto::sendto(&self.qp, rqst, call)
    }

    fn release_ctxt(&self, call: RecvBox) {
        recvfrom::release_ctxt(&self.qp, call);
    }
}

impl QpUser for SvcxprtRdma {
    type Recv = CallInfo;
    type Send = SendInfo;
    type Slot = ();

    const IS_CLIENT: bool = false;

    fn received(
        cx: &mut CqContext<'_, Self>,
        ctxt: RecvBox,
        _proof: Option<RemoteInvalidation<'_, Self>>,
    ) {
        recvfrom::received(cx, ctxt);
    }

    fn pages_put(&self, data: &SendInfo, pages: usize) {
        // `add_writes` counted them in a u32.
        let pages = u32::try_from(pages).unwrap_or(u32::MAX);
        if let SendInfo::Reply(_) = data {
            self.reply_load.fetch_sub(pages, Relaxed);
            self.listener.reply_pages.fetch_sub(pages, Relaxed);
        }
    }

    fn sent(cx: &mut CqContext<'_, Self>, data: SendInfo, pages: Option<PageVec>) {
        match data {
            SendInfo::Reads(ctxt) => recvfrom::reads_done(cx.qp(), ctxt, pages),
            data => {
                let conn = cx.user();
                conn.stats.sent(&data);
                if !matches!(data, SendInfo::BackwardCall) {
                    conn.incoming.lock().grants.delivered();
                }
            }
        }
    }

    fn part_failed(&self, data: &SendInfo, status: WcStatus) {
        let xid = match data {
            SendInfo::Reads(ctxt) => ctxt.data().xid(),
            SendInfo::Reply(reply) => Some(reply.xid),
            _ => None,
        };
        if let (Some(xid), true) = (xid, status.is_remote_error()) {
            self.listener.cannot_answer(&self.peer, xid);
        }
    }

    fn sq_full(&self) {
        self.stats.queue_is_full();
    }

    fn sq_available(&self) {
        self.wake(self.incoming.lock());
    }

    fn qp_event(&self, event: u32) {
        trace::svcrdma_qp_error(self.number, event);
        self.force_close(Cause::QueuePairError);
    }

    fn enqueue_watchdog(qp: &Arc<Qp>, delay: usize) {
        ClassUser::enqueue_delayed(qp, |qp| &qp.user().listener.user, delay);
    }

    fn qp_failed(&self, why: QpFailure) {
        match why {
            QpFailure::Flushed => {
                self.is_flushed.store(true, Relaxed);
                return self.svc.deferred_close();
            }
            QpFailure::WorkRequest(_) => self.stats.counters.failed_requests.increment(),
            _ => {}
        }
        self.force_close(why.into());
    }
}

impl CmHandler for SvcxprtRdma {
    fn event(&self, event: CmEvent<'_>) {
        match event {
            CmEvent::Established(_) => self.incoming.lock().is_established = true,
            CmEvent::Other { event, status, .. } => match Cause::of_event(event, status) {
                // The address may still be reached.
                None | Some(Cause::AddressChanged) => {}
                Some(cause) => self.force_close(cause),
            },
            _ => {}
        }
    }
}

impl Removal for SvcxprtRdma {
    fn removed(&self) {
        trace::svcrdma_device_removal(self.number);
        self.set_cause(Cause::DeviceRemoved);
        // The removal waits, and the service may have no thread.
        self.svc.close();
    }
}
