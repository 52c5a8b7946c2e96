// SPDX-License-Identifier: GPL-2.0

//! One connection: what it is made of, and its end.

use super::{
    events::Events,
    incoming::IncomingCalls,
    not_accepted::NotAccepted,
    note::CallNote,
    receive,
    record::{End, SharedRecord},
    reply,
    sizes::{
        least_send_queue, max_credits, max_read_pages, send_requests, BACKWARD_CREDITS,
        CALL_PIECES, MAX_TRANSFER_SGE, SPARE_RECEIVES, TRANSFERS,
    },
    stats::SentMessage,
    PAGE_SIZE,
};
use crate::{
    debugfs::WithFiles,
    error::Cause,
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
            Accepting, KeptCall, OwnedSvcXprt, Receiving, Replying, SvcCall, SvcConnection,
            SvcTransport,
        },
        PageVec, SocketAddress,
    },
    sysctl,
};
use core::num::NonZeroU32;
use kernel::{
    prelude::*,
    sync::{
        atomic::{Atomic, Relaxed},
        Arc,
    },
    time::Instant,
};

/// A connection.
#[pin_data]
pub(crate) struct Connection {
    // A notification that is under way uses only the events.
    _removal: RemovalNotice,
    // Dropping this ends whatever runs, and thus all uses of sunrpc's object.
    #[pin]
    pub(super) parts: WithFiles<Parts>,
    // By now everything has been counted.
    farewell: Farewell,
    // Last: it owns sunrpc's object.
    events: Arc<Events>,
}

/// What the files of a connection show.
pub(super) struct Parts {
    pub(super) qp: AcceptedOwner<IncomingCalls>,
    /// The requester's address.
    pub(super) address: SocketAddress,
    /// What this end announced.
    pub(super) own: PrivateData,
    /// What the requester announced.
    pub(super) peer: Option<PrivateData>,
    /// RDMA Reads that can be under way.
    pub(super) read_depth: u8,
}

impl Parts {
    /// What the connection's events go to.
    pub(super) fn events(&self) -> &Events {
        &self.qp.context().events
    }
}

/// When dropped, leaves the listener's room and, if the connection was accepted, enters its end
/// into the listener's record. May sleep then.
struct Farewell {
    events: Arc<Events>,
    peer: SocketAddress,
    is_accepted: Atomic<bool>,
}

impl Drop for Farewell {
    fn drop(&mut self) {
        let events = &self.events;
        events.leave();
        if !self.is_accepted.load(Relaxed) {
            return;
        }
        events.record.ended(End {
            peer: self.peer,
            cause: events.cause(),
            began: events.since,
            ended: Instant::now(),
            answers: events.stats.answers(),
        });
    }
}

/// What this end announces (RFC 8797).
fn own_private_data(device: &Device) -> PrivateData {
    let size = InlineSize::from_bytes(sysctl::max_req_size()).unwrap_or(InlineSize::DEFAULT);
    PrivateData {
        send: size,
        receive: size,
        remote_invalidation: device.attributes().memory_management,
    }
}

impl Connection {
    /// Accepts a connection that came through a listener. May sleep.
    pub(super) fn accept(
        request: ConnectRequest,
        accepting: &Accepting<'_>,
        record: &SharedRecord,
    ) -> Result<Arc<Self>, NotAccepted> {
        let (local, peer) = (request.local_address(), request.peer_address());
        let found = PrivateData::find(request.private_data()).map(|(_, found)| found);
        let peer_depth = request.read_depth();
        let xprt = OwnedSvcXprt::connection(accepting, &local, &peer)?;
        let max_pages = max_read_pages(xprt.max_message());
        let events = Events::new(xprt, record.clone(), max_pages);
        let events = Arc::pin_init(events, GFP_KERNEL)?;
        let id = request.into_id(events.clone());
        let device = id.device().ok_or(ENODEV)?;
        let attributes = device.attributes();
        let read_depth = match peer_depth.min(attributes.max_initiator_depth) {
            0 => return Err(NotAccepted::NoReads),
            depth => depth.min(sysctl::max_read_requests()),
        };
        let own = own_private_data(&device);
        let thresholds = negotiate(own, found);
        let budget = CallBudget::new(events.xprt.max_message());
        let max_credits = max_credits(sysctl::max_requests().min(attributes.max_qp_wr / 4));
        // All pages of the largest RPC, each of them an element.
        let pages = events.xprt.max_message().div_ceil(PAGE_SIZE);
        let sge =
            |limit: u32| NonZeroU32::new(limit.min(MAX_TRANSFER_SGE)).unwrap_or(NonZeroU32::MIN);
        let full = pages
            / match id.registers_reads() {
                // The RDMA core adds the work requests of Reads.
                true => sge(attributes.max_send_sge),
                false => sge(attributes.max_transfer_sge),
            };
        // Each range has up to as many pages as a region.
        let more = pages / attributes.region_pages();
        let full = full.saturating_add(more);
        let sizes = AcceptedSizes {
            receives: max_credits
                .saturating_add(SPARE_RECEIVES)
                .saturating_add(BACKWARD_CREDITS),
            receive_size: own.receive.bytes(),
            send_size: own.send.bytes().max(thresholds.send),
            send_requests: send_requests(full),
            transfers: TRANSFERS,
            message_transfers: CALL_PIECES.saturating_add(more),
            // The RDMA core takes into account that Reads may have fewer.
            transfer_sge: sge(attributes.max_send_sge).get(),
        };
        let pd = Arc::new(Pd::new(device.clone())?, GFP_KERNEL)?;
        let registered = sizes.registered_requests(&id, &pd);
        let (held, needed) = (attributes.max_qp_wr, least_send_queue(full, registered));
        if held < needed {
            return Err(NotAccepted::SmallQueues { held, needed });
        }
        let versions = sysctl::server_versions();
        let incoming =
            IncomingCalls::new(events.clone(), thresholds, versions, budget, max_credits);
        let qp = AcceptedOwner::new(id, &pd, &sizes, events.slots.clone(), incoming)?;
        let removal = RemovalNotice::new(&device, events.clone())?;
        let parts = Parts {
            qp,
            address: peer,
            own,
            peer: found,
            read_depth,
        };
        Events::enter(&events)?;
        let farewell = Farewell {
            events: events.clone(),
            peer,
            is_accepted: Atomic::new(false),
        };
        let connection = Arc::pin_init(
            try_pin_init!(Self {
                _removal: removal,
                parts <- WithFiles::new(events.number, Ok::<_, Error>(parts)),
                farewell,
                events,
            }? Error),
            GFP_KERNEL,
        )?;
        let qp = &connection.parts.qp;
        qp.context().post_all_receives(qp)?;
        qp.accept(&ConnectParameters {
            private_data: &own.encode(),
            // The requester reads nothing from here.
            responder_resources: 0,
            initiator_depth: read_depth,
        })?;
        record.accepted();
        connection.farewell.is_accepted.store(true, Relaxed);
        Ok(connection)
    }
}

impl SvcTransport for Connection {
    fn xprt(&self) -> &OwnedSvcXprt {
        &self.events.xprt
    }

    fn detach(&self) {
        // What is flushed from now on is not a cause.
        self.events.note(self.events.cause());
        let qp = &self.parts.qp;
        qp.disconnect();
        qp.context().give_up(qp);
    }

    fn end(this: Arc<Self>) {
        // Dropping the queue pair waits for what is under way.
        drop(this);
    }
}

impl SvcConnection for Connection {
    type Call = AcceptedMessage<IncomingCalls>;

    fn has_room(&self) -> bool {
        self.events.is_established() && self.parts.qp.has_room()
    }

    fn receive(&self, rqst: &mut Receiving<'_>) -> Option<SvcCall<Self::Call>> {
        receive::next(&self.parts.qp, rqst)
    }

    fn take_pages(&self, pages: PageVec) {
        self.events.record.sinks().give_back(pages);
    }

    fn place(&self, call: KeptCall<'_, Self::Call>, at: u32, length: u32) {
        reply::place(call, at, length);
    }

    fn reply(&self, rqst: Replying<'_>, call: KeptCall<'_, Self::Call>) -> Result {
        reply::reply(&self.parts.qp, rqst, call).inspect_err(|_| {
            // A Reply that comes too late is not why the connection ends.
            if !self.events.xprt.is_closing() {
                self.events.note(Cause::ReplyFailed);
            }
        })
    }

    fn release(&self, call: Self::Call) {
        receive::release(&self.parts.qp, call);
    }
}

impl AcceptedEvents for IncomingCalls {
    type Note = CallNote;
    type Sent = SentMessage;

    fn received(qp: &AcceptedQp<Self>, message: AcceptedMessage<Self>) {
        receive::received(qp, message);
    }

    fn read(qp: &AcceptedQp<Self>, message: AcceptedMessage<Self>, pages: PageVec) {
        receive::read(qp, message, pages);
    }

    fn not_read(&self, note: &CallNote, status: WcStatus) {
        if let (Some(index), true) = (&note.index, status.is_refusal()) {
            self.events.cannot_answer(index.xid);
        }
    }

    fn not_written(&self, sent: &SentMessage, status: WcStatus) {
        if let (SentMessage::Reply(answered), true) = (sent, status.is_refusal()) {
            self.events.cannot_answer(answered.xid);
        }
    }

    fn sent(&self, sent: &SentMessage) {
        self.stats().sent(sent);
        match sent {
            SentMessage::Nothing | SentMessage::BackwardCall => {}
            SentMessage::Reply(_) | SentMessage::Error(_) | SentMessage::GarbageArgs => {
                self.delivered();
            }
        }
    }

    fn queue_is_full(&self) {
        self.stats().queue_is_full();
    }

    fn failed(&self, status: WcStatus) {
        if status.is_flush() {
            self.events.flushed();
        } else {
            self.stats().counters.failed_requests.increment();
            self.events.close(Cause::WorkRequest);
        }
    }

    fn not_a_send(&self) {
        self.events.close(Cause::NotASend);
    }

    fn timed_out(&self) {
        self.events.close(Cause::TimedOut);
    }

    fn refused(&self) {
        self.events.close(Cause::PostFailed);
    }
}
