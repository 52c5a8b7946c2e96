// SPDX-License-Identifier: GPL-2.0

//! How a connection is accepted: its parameters and capacities, or why there is none.

use super::{
    record::SharedListener,
    sizes::{
        least_send_queue, max_credits, max_read_pages, send_requests, BACKWARD_CREDITS,
        CALL_PIECES, MAX_TRANSFER_SGE, SPARE_RECEIVES,
    },
    transport::{Connection, Param, SvcxprtRdma},
    PAGE_SIZE,
};
use crate::{
    debugfs::WithFiles,
    proto::{
        responder::budget::CallBudget,
        wire::private_data::{negotiate, InlineSize, PrivateData},
    },
    rdma::{ConnectParam, ConnectRequest, Device, Pd, QpCaps, QpOwner, RemovalNotice},
    sunrpc::server::{Accepting, OwnedSvcXprt},
    sysctl,
};
use core::num::NonZeroU32;
use kernel::{
    alloc::AllocError,
    fmt,
    prelude::*,
    sync::{atomic::Relaxed, Arc},
};

impl Param {
    /// The parameters of a connection through `device`.
    fn new(
        request: &ConnectRequest,
        device: &Device,
        svc: &OwnedSvcXprt,
    ) -> Result<Self, NotAccepted> {
        let attributes = device.attributes();
        let read_depth = match request.read_depth().min(attributes.max_initiator_depth) {
            0 => return Err(NotAccepted::NoReads),
            depth => depth.min(sysctl::max_read_requests()),
        };
        let size = InlineSize::from_bytes(sysctl::max_req_size()).unwrap_or(InlineSize::DEFAULT);
        let own = PrivateData {
            send: size,
            receive: size,
            remote_invalidation: attributes.memory_management,
        };
        let peer = PrivateData::find(request.private_data()).map(|(_, found)| found);
        Ok(Self {
            peer: request.peer_address(),
            private_data: (own, peer),
            thresholds: negotiate(own, peer),
            read_depth,
            versions: sysctl::server_versions(),
            budget: CallBudget::new(svc.max_message()),
            max_read_pages: max_read_pages(svc.max_message()),
        })
    }
}

/// The capacities of a queue pair that serves up to `credits` Calls at once, and the work requests
/// that the pages of the largest RPC take. `registers_reads` says whether the RDMA core registers
/// memory for RDMA Reads.
fn caps(conn: &SvcxprtRdma, device: &Device, credits: u32, registers_reads: bool) -> (QpCaps, u32) {
    let attributes = device.attributes();
    // All pages of the largest RPC, each of them an element.
    let pages = conn.svc.max_message().div_ceil(PAGE_SIZE);
    let sge = |limit: u32| NonZeroU32::new(limit.min(MAX_TRANSFER_SGE)).unwrap_or(NonZeroU32::MIN);
    let full = pages
        / if registers_reads {
            // The RDMA core adds the work requests of Reads.
            sge(attributes.max_send_sge)
        } else {
            sge(attributes.max_transfer_sge)
        };
    // Each range has up to as many pages as a region.
    let more = pages / attributes.region_pages();
    let full = full.saturating_add(more);
    let (own, _) = conn.param.private_data;
    let caps = QpCaps {
        receives: credits
            .saturating_add(SPARE_RECEIVES)
            .saturating_add(BACKWARD_CREDITS),
        recv_size: own.receive.bytes(),
        recv_batch: 1,
        send_size: own.send.bytes().max(conn.param.thresholds.send),
        send_entries: send_requests(full),
        // The RDMA core takes into account that Reads may have fewer.
        send_sge: sge(attributes.max_send_sge).get(),
        sends: u32::MAX,
        first_sends: 0,
        rdma_ctxs: CALL_PIECES.saturating_add(more),
        slots: 0,
        watch: true,
    };
    (caps, full)
}

impl Connection {
    /// Accepts a connection that came through a listener. May sleep.
    pub(super) fn accept(
        request: ConnectRequest,
        accepting: &Accepting<'_>,
        listener: &SharedListener,
    ) -> Result<Arc<Self>, NotAccepted> {
        let (local, peer) = (request.local_address(), request.peer_address());
        let svc = OwnedSvcXprt::connection(accepting, &local, &peer)?;
        let device = request.device().ok_or(ENODEV)?;
        let attributes = device.attributes();
        let param = Param::new(&request, &device, &svc)?;
        let credits = max_credits(sysctl::max_requests().min(attributes.max_qp_wr / 4));
        let conn = SvcxprtRdma::new(svc, listener.clone(), param, credits);
        let conn = Arc::pin_init(conn, GFP_KERNEL)?;
        let id = request.into_id(conn.clone());
        let (caps, full) = caps(&conn, &device, credits, id.registers_reads());
        let pd = Arc::new(Pd::new(device.clone())?, GFP_KERNEL)?;
        let registered = caps.registered_requests(&id, &pd);
        let (held, needed) = (attributes.max_qp_wr, least_send_queue(full, registered));
        if held < needed {
            return Err(NotAccepted::SmallQueues { held, needed });
        }
        let qp = QpOwner::new(id, &pd, &caps, conn.clone())?;
        let connection = Self {
            _removal: RemovalNotice::new(&device, conn.clone())?,
            qp: KBox::pin_init(WithFiles::new(conn.number, Ok::<_, Error>(qp)), GFP_KERNEL)?,
        };
        let connection = Arc::new(connection, GFP_KERNEL)?;
        conn.post_all_recvs(connection.qp(), GFP_KERNEL)?;
        connection.qp.accept(&ConnectParam {
            private_data: &conn.param.private_data.0.encode(),
            // The requester reads nothing from here.
            responder_resources: 0,
            initiator_depth: conn.param.read_depth,
        })?;
        listener.accepted();
        conn.is_accepted.store(true, Relaxed);
        Ok(connection)
    }
}

/// Why a connection is not accepted, as the log says it.
pub(super) enum NotAccepted {
    /// RDMA Reads would never begin, and work requests after them would wait for ever.
    NoReads,
    /// The largest RPC takes more work requests than a queue of the device holds.
    SmallQueues {
        /// Work requests that a queue holds.
        held: u32,
        /// Work requests that the RPC takes.
        needed: u32,
    },
    /// An error of the kernel.
    Error(Error),
}

impl NotAccepted {
    /// The errno for trace events.
    pub(super) fn to_errno(&self) -> i32 {
        match self {
            Self::NoReads | Self::SmallQueues { .. } => EINVAL.to_errno(),
            Self::Error(error) => error.to_errno(),
        }
    }
}

impl From<Error> for NotAccepted {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

impl From<AllocError> for NotAccepted {
    fn from(error: AllocError) -> Self {
        Self::Error(error.into())
    }
}

impl fmt::Display for NotAccepted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoReads => write!(f, "no RDMA Reads are possible between the two devices"),
            Self::SmallQueues { held, needed } => write!(
                f,
                "queues of the device hold {held} work requests, and RPCs of the largest size take \
                 {needed}: nfsd needs a smaller max_block_size"
            ),
            Self::Error(error) => write!(f, "{error:?}"),
        }
    }
}
