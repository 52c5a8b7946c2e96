// SPDX-License-Identifier: GPL-2.0

//! One connection: what it is made of, and its end.

use super::{
    call::Call,
    receive, reply,
    shared::{Events, Shared, BACKWARD_CREDITS, SPARE_RECEIVES},
};
use crate::{
    proto::{
        responder::budget::CallBudget,
        wire::private_data::{negotiate, InlineSize, PrivateData},
    },
    rdma::{
        AcceptedEvents, AcceptedMessage, AcceptedOwner, AcceptedQp, AcceptedSizes,
        ConnectParameters, ConnectRequest, Device, Pd, RemovalNotice, WcStatus,
    },
    sunrpc::{
        server::{
            OwnedSvcXprt, Receiving, Replying, SvcCall, SvcConnection, SvcTransport, SvcXprt,
        },
        PageVec,
    },
    sysctl,
};
use kernel::{page::PAGE_SIZE, prelude::*, sync::Arc};

/// RDMA Reads and Writes that can be under way on fabrics where each takes a memory region. There a
/// connection has so many.
const TRANSFERS: u32 = 64;

/// Segments that one list of a Call has at most. With fabrics that register memory for each there are
/// regions for as many.
const MAX_SEGMENTS: u32 = TRANSFERS;

/// Work requests of Replies that can be under way beside those of the largest RPC.
const SEND_REQUESTS: u32 = 64;

/// Parts of memory that one work request of a transfer has at most. Providers keep room for as many in
/// each entry of the send queue.
const MAX_TRANSFER_SGE: u32 = 8;

/// A connection.
pub(crate) struct Connection {
    // No notice comes once this is gone.
    _removal: RemovalNotice,
    // Ends what runs, and with it all that refers to sunrpc's object.
    pub(super) qp: AcceptedOwner<Shared>,
    // Last: it has sunrpc's object.
    events: Arc<Events>,
}

/// What this end says about itself (RFC 8797).
fn own_private_data(device: &Device) -> PrivateData {
    let size = InlineSize::from_bytes(sysctl::max_request_size()).unwrap_or(InlineSize::DEFAULT);
    PrivateData {
        send: size,
        receive: size,
        remote_invalidation: device.attributes().memory_management,
    }
}

impl Connection {
    /// Accepts a connection that came through `listener`. May sleep.
    pub(super) fn accept(request: ConnectRequest, listener: &SvcXprt) -> Result<Arc<Self>> {
        let (local, peer) = (request.local_address(), request.peer_address());
        let found = PrivateData::find(request.private_data()).map(|(_, found)| found);
        // RDMA Reads would never begin, and what is behind them would wait for ever.
        let read_depth = match request.read_depth() {
            0 => return Err(EINVAL),
            depth => depth,
        };
        let xprt = OwnedSvcXprt::connection::<Self>(listener, &local, &peer)?;
        let events = Arc::new(Events::new(xprt)?, GFP_KERNEL)?;
        let id = request.into_id(events.clone());
        let device = id.device().ok_or(ENODEV)?;
        let attributes = device.attributes();
        let own = own_private_data(&device);
        let thresholds = negotiate(own, found);
        let budget = budget(events.xprt.max_message());
        let max_credits = sysctl::max_requests().min(attributes.max_qp_wr / 4).max(1);
        // All pages of the largest RPC, one by one.
        let pages = events.xprt.max_message().div_ceil(PAGE_SIZE_U32);
        let sge = attributes.max_transfer_sge.clamp(1, MAX_TRANSFER_SGE);
        let sizes = AcceptedSizes {
            receives: max_credits
                .saturating_add(SPARE_RECEIVES)
                .saturating_add(BACKWARD_CREDITS),
            receive_size: own.receive.bytes(),
            send_size: own.send.bytes().max(thresholds.send),
            send_requests: SEND_REQUESTS.saturating_add(pages.div_ceil(sge)),
            transfers: TRANSFERS,
            transfer_sge: sge,
        };
        let pd = Arc::new(Pd::new(device.clone())?, GFP_KERNEL)?;
        let shared = Shared::new(events.clone(), thresholds, budget, max_credits);
        let qp = AcceptedOwner::new(id, &pd, &sizes, events.slots.clone(), shared)?;
        let connection = Arc::new(
            Self {
                _removal: RemovalNotice::new(&device, events.clone())?,
                qp,
                events,
            },
            GFP_KERNEL,
        )?;
        let qp = &connection.qp;
        qp.post_receives(SPARE_RECEIVES.saturating_add(1), 1, true)?;
        qp.accept(&ConnectParameters {
            private_data: &own.encode(),
            // The requester reads nothing from here.
            responder_resources: 0,
            initiator_depth: read_depth.min(attributes.max_initiator_depth),
        })?;
        Ok(connection)
    }
}

// CAST: A page is far smaller.
const PAGE_SIZE_U32: u32 = PAGE_SIZE as u32;

/// What one Call may ask for, if RPC messages have up to `max_message` bytes.
fn budget(max_message: u32) -> CallBudget {
    // Each takes a work request at least, and together with their pages they have to fit the send queue.
    let segments = max_message
        .div_ceil(PAGE_SIZE_U32)
        .saturating_add(2)
        .min(MAX_SEGMENTS);
    CallBudget {
        read_segments: segments,
        read_chunks: 16,
        read_bytes: max_message,
        write_chunks: 8,
        write_segments: segments,
        reply_segments: segments,
    }
}

impl SvcTransport for Connection {
    fn xprt(&self) -> &OwnedSvcXprt {
        &self.events.xprt
    }

    fn detach(&self) {
        self.qp.disconnect();
    }

    fn end(this: Arc<Self>) {
        // The end of the queue pair waits for what is under way.
        drop(this);
    }
}

impl SvcConnection for Connection {
    type Call = AcceptedMessage<Shared>;

    fn has_room(&self) -> bool {
        self.events.is_established() && self.qp.has_room()
    }

    fn receive(&self, rqst: &mut Receiving<'_>) -> Option<SvcCall<Self::Call>> {
        receive::next(&self.qp, rqst)
    }

    fn take_pages(&self, pages: PageVec) {
        self.qp.context().sinks.give_back(pages);
    }

    fn place(&self, call: &mut Self::Call, at: u32, length: u32) -> Result {
        reply::place(call, at, length)
    }

    fn reply(&self, rqst: &mut Replying<'_>, call: &mut Self::Call) -> Result {
        reply::reply(&self.qp, rqst, call)
    }

    fn release(&self, mut call: Self::Call) {
        let (_, note) = call.with_note();
        *note = Call::default();
        self.qp.recycle(call);
    }
}

impl AcceptedEvents for Shared {
    type Note = Call;

    fn received(qp: &AcceptedQp<Self>, message: AcceptedMessage<Self>) {
        receive::received(qp, message);
    }

    fn read(qp: &AcceptedQp<Self>, message: AcceptedMessage<Self>, pages: PageVec) {
        receive::read(qp, message, pages);
    }

    fn sent(&self) {}

    fn failed(&self, _status: WcStatus) {
        self.events.close();
    }
}
