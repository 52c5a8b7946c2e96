// SPDX-License-Identifier: GPL-2.0

//! How a connection is accepted: its parameters and capacities, or why there is none.

use super::{
    incoming::Incoming,
    record::SharedListener,
    sizes::{
        least_send_queue, max_read_pages, send_requests, BACKWARD_CREDITS, CALL_PIECES,
        MAX_TRANSFER_SGE, SPARE_RECEIVES,
    },
    stats::Stats,
    transport::{Connection, SvcxprtRdma},
    PAGE_SIZE,
};
use crate::{
    debugfs::WithFiles,
    proto::{
        responder::budget::CallBudget,
        wire::private_data::{negotiate, InlineSize, PrivateData},
    },
    rdma::{ConnectRequest, Device, Pd, QpCaps, QpOwner, RemovalNotice},
    sunrpc::server::{Accepting, OwnedSvcXprt, Published},
    sysctl,
};
use core::num::NonZeroU32;
use kernel::{
    new_spinlock,
    prelude::*,
    sync::{
        atomic::{Atomic, Relaxed},
        Arc, SetOnce,
    },
    time::Instant,
};

/// The number of the next connection.
static NEXT: Atomic<u32> = Atomic::new(1);

impl SvcxprtRdma {
    /// A connection through `device` whose handshake is under way, on which up to `credits` Calls
    /// are served at once.
    ///
    /// # Errors
    ///
    /// `ENOMEM`. `ENXIO` if no RDMA Reads are possible: they would never begin, and work requests
    /// after them would wait for ever.
    fn new(
        svc: OwnedSvcXprt,
        listener: SharedListener,
        request: &ConnectRequest,
        device: &Device,
        credits: u32,
    ) -> Result<Arc<Self>> {
        let attributes = device.attributes();
        let read_depth = match request.read_depth.min(attributes.max_initiator_depth) {
            0 => return Err(ENXIO),
            depth => depth.min(sysctl::max_read_requests()),
        };
        let size = InlineSize::from_bytes(sysctl::max_req_size()).unwrap_or(InlineSize::DEFAULT);
        let own = PrivateData {
            send: size,
            receive: size,
            remote_invalidation: attributes.memory_management,
        };
        let peer = request.id.peer_address();
        let theirs = PrivateData::find(&request.private_data).map(|(_, found)| found);
        let thresholds = negotiate(own, theirs);
        let incoming = Incoming::new(credits, thresholds)?;
        let this = pin_init!(Self {
            has_unanswerable: listener.has_unanswerable(&peer),
            peer,
            own_data: own,
            peer_data: theirs,
            thresholds,
            read_depth,
            versions: sysctl::server_versions(),
            budget: CallBudget::new(svc.max_message),
            max_read_pages: max_read_pages(svc.max_message),
            number: NEXT.fetch_add(1, Relaxed),
            since: Instant::now(),
            stats: Stats::new(),
            incoming <- new_spinlock!(incoming, "rpcrdma_incoming"),
            reply_load: Atomic::new(0),
            cause: SetOnce::new(),
            is_flushed: Atomic::new(false),
            listener,
            svc,
        });
        Arc::pin_init(this, GFP_KERNEL)
    }
}

/// The capacities of a queue pair that serves up to `credits` Calls at once, and the work requests
/// that the pages of the largest RPC take. `registers_reads` says whether the RDMA core registers
/// memory for RDMA Reads.
fn caps(conn: &SvcxprtRdma, device: &Device, credits: u32, registers_reads: bool) -> (QpCaps, u32) {
    let attributes = device.attributes();
    // Each page of the largest RPC is an element of a gather list.
    let pages = conn.svc.max_message.div_ceil(PAGE_SIZE);
    let sge = |limit: u32| NonZeroU32::new(limit.min(MAX_TRANSFER_SGE)).unwrap_or(NonZeroU32::MIN);
    let full = pages
        / if registers_reads {
            // Its Reads: the RDMA core adds their work requests. So this counts the Writes.
            sge(attributes.max_send_sge)
        } else {
            sge(attributes.max_transfer_sge)
        };
    // A range with more pages than a region is split.
    let more = pages / attributes.region_pages();
    let full = full.saturating_add(more);
    let caps = QpCaps {
        max_recv_wr: credits
            .saturating_add(SPARE_RECEIVES)
            .saturating_add(BACKWARD_CREDITS),
        recv_size: conn.own_data.receive.bytes(),
        send_size: conn.own_data.send.bytes().max(conn.thresholds.send),
        max_send_wr: send_requests(full),
        // The RDMA core limits the elements of a Read to max_sge_rd.
        max_send_sge: sge(attributes.max_send_sge).get(),
        first_sends: 0,
        max_sends: u32::MAX,
        ranges_per_msg: CALL_PIECES.saturating_add(more),
        slots: 0,
    };
    (caps, full)
}

impl Connection {
    /// Accepts a connection that came through a listener. May sleep.
    ///
    /// # Errors
    ///
    /// `ERANGE` if the largest RPC takes more work requests than a queue of the device holds;
    /// others of the kernel.
    pub(super) fn accept<'a>(
        request: ConnectRequest,
        accepting: Accepting<'a, Self>,
        listener: &SharedListener,
    ) -> Result<Published<'a>> {
        let (local, peer) = (request.id.source_address(), request.id.peer_address());
        let new = accepting.transport(&local, &peer)?;
        let device = request.id.device().ok_or(ENODEV)?;
        let attributes = device.attributes();
        let credits = sysctl::max_requests().min(attributes.max_qp_wr / 4).max(1);
        let (svc, listener) = (new.owned(), listener.clone());
        let rdma = SvcxprtRdma::new(svc, listener, &request, &device, credits)?;
        let id = request.into_id(rdma.clone());
        let (caps, full) = caps(&rdma, &device, credits, id.is_iwarp());
        let pd = Arc::new(Pd::new(device.clone())?, GFP_KERNEL)?;
        let registered = caps.registered_requests(&id);
        if attributes.max_qp_wr < least_send_queue(full, registered) {
            return Err(ERANGE);
        }
        let qp = QpOwner::new(id, &pd, &caps, rdma.clone());
        // A device may take less than it says. EINVAL otherwise means that the client has gone:
        // the connection manager's event has set the cause, unless it came before `into_id`.
        let qp = qp.map_err(|error| match error {
            EINVAL if rdma.cause.as_ref().is_none() => ERANGE,
            error => error,
        })?;
        let connection = Self {
            _removal: RemovalNotice::new(&device, rdma.clone())?,
            qp: KBox::pin_init(WithFiles::new(rdma.number, Ok::<_, Error>(qp)), GFP_KERNEL)?,
        };
        let connection = Arc::new(connection, GFP_KERNEL)?;
        rdma.post_all_recvs(&connection.qp, GFP_KERNEL)?;
        let private_data = rdma.own_data.encode();
        connection.qp.accept(&private_data, rdma.read_depth)?;
        rdma.listener.accepted.increment();
        Ok(new.publish(connection))
    }
}
