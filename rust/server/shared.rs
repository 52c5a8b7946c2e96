// SPDX-License-Identifier: GPL-2.0

//! What the threads and completions of one connection share.

use super::{record::SharedRecord, sinks::Sinks, stats::Stats};
use crate::{
    error::Cause,
    proto::{
        responder::{budget::CallBudget, credits::ResponderCredits},
        wire::{header::Credits, private_data::Thresholds},
    },
    rdma::{AcceptedQp, CmEvent, CmHandler, CmReport, Messages, Removal, SendSlots},
    sunrpc::server::{Backward, OwnedSvcXprt, SvcXprt},
    trace::server as trace,
};
use kernel::{
    new_spinlock,
    prelude::*,
    seq_file::SeqFile,
    seq_print,
    sync::{
        atomic::{Acquire, Atomic, Relaxed, Release},
        Arc, SpinLock,
    },
    time::{BootTime, Instant},
};

/// Calls that a new connection is granted. More come with its load.
const FIRST_GRANT: u32 = 8;

/// Receives beyond what the requester may send: for Calls of requesters that count a Call as done
/// when its task is killed, and for what lacks until a batch is posted.
pub(super) const SPARE_RECEIVES: u32 = 4;

/// Backward Calls that can be under way.
pub(super) const BACKWARD_CREDITS: u32 = 2;

/// How many Receives are posted together: what rings the doorbell costs as much for one.
const RECEIVE_BATCH: u32 = 4;

/// The number of the next connection.
static NEXT: Atomic<u32> = Atomic::new(1);

/// Nothing but sunrpc's wish ends the connection.
const NO_CAUSE: i32 = -1;

/// What the connection manager and the device tell of a connection.
#[pin_data]
pub(super) struct Events {
    pub(super) xprt: OwnedSvcXprt,
    /// The room of the send queue, for which nobody waits once the connection is to be closed.
    pub(super) slots: Arc<SendSlots>,
    /// Whether the handshake is over. What arrives before waits.
    is_established: Atomic<bool>,
    backward: Arc<Backward>,
    /// The number of the cause for which the connection ends, the first one of several; or
    /// [`NO_CAUSE`].
    cause: Atomic<i32>,
    /// Tells it from others, in debugfs and in trace events.
    pub(super) number: u32,
    pub(super) since: Instant<BootTime>,
    pub(super) stats: Stats,
    /// That of the listener.
    pub(super) record: SharedRecord,
}

impl Events {
    /// Those of a connection whose handshake is under way. In their place: the counters are too
    /// large for the stack.
    pub(super) fn new(xprt: OwnedSvcXprt, record: SharedRecord) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            xprt,
            slots: Arc::pin_init(SendSlots::new(), GFP_KERNEL)?,
            is_established: Atomic::new(false),
            backward: Arc::pin_init(Backward::new(), GFP_KERNEL)?,
            cause: Atomic::new(NO_CAUSE),
            number: NEXT.fetch_add(1, Relaxed),
            since: Instant::now(),
            stats: Stats::new(),
            record,
        }? Error)
    }

    /// Takes note of the cause for which the connection is going to be closed.
    pub(super) fn note(&self, cause: Cause) {
        // The first one stays.
        let _ = self.cause.cmpxchg(NO_CAUSE, cause.number(), Relaxed);
    }

    /// Why the connection ends.
    pub(super) fn cause(&self) -> Cause {
        let number = self.cause.load(Relaxed);
        let mut causes = Cause::ALL.iter().copied();
        let cause = causes.find(|cause| cause.number() == number);
        cause.unwrap_or(Cause::Closed)
    }

    /// Has the connection closed for this cause. Threads that wait for the send queue are not to be
    /// waited for: they may be all that could close it. Does not sleep.
    pub(super) fn close(&self, cause: Cause) {
        self.note(cause);
        self.slots.close();
        self.xprt.close();
        self.backward.disconnected();
    }

    /// Whether messages can be answered.
    pub(super) fn is_established(&self) -> bool {
        self.is_established.load(Acquire)
    }
}

impl CmHandler for Events {
    fn event(&self, event: CmEvent<'_>, _report: CmReport) {
        match event {
            CmEvent::Established(_) => {
                self.is_established.store(true, Release);
                // What waits was not reported to a thread yet.
                self.xprt.enqueue();
            }
            CmEvent::Disconnected => self.close(Cause::Disconnected),
            CmEvent::DeviceRemoval => self.close(Cause::DeviceRemoved),
            CmEvent::Rejected { .. } => self.close(Cause::Rejected),
            CmEvent::Unreachable => self.close(Cause::Unreachable),
            CmEvent::ConnectError => self.close(Cause::ConnectError),
            _ => {}
        }
    }

    fn queue_pair_failed(&self, event: u32) {
        trace::svcrdma_qp_error(self.number, event);
        self.note(Cause::WorkRequest);
        self.xprt.close();
    }
}

impl Removal for Events {
    fn removed(&self) {
        trace::svcrdma_device_removal(self.number);
        self.note(Cause::DeviceRemoved);
        self.slots.close();
        // The removal waits, and there may be no thread of the service.
        self.xprt.close_now();
        self.backward.disconnected();
    }
}

/// What a connection's completions work on.
#[pin_data]
pub(crate) struct Shared {
    pub(super) events: Arc<Events>,
    pub(super) thresholds: Thresholds,
    pub(super) budget: CallBudget,
    /// Messages for threads of the service.
    #[pin]
    pub(super) ready: SpinLock<Messages<AcceptedQp<Self>>>,
    #[pin]
    credits: SpinLock<Grants>,
    #[pin]
    pub(super) sinks: Sinks,
}

/// What a requester may send.
struct Grants {
    credits: ResponderCredits,
    /// The most Calls that are ever served at once.
    max: u32,
}

impl Shared {
    /// What a connection starts with, which is granted up to `max_credits`.
    pub(super) fn new<'a>(
        events: Arc<Events>,
        thresholds: Thresholds,
        budget: CallBudget,
        max_credits: u32,
    ) -> impl PinInit<Self, Error> + 'a {
        let limit = FIRST_GRANT.min(max_credits);
        try_pin_init!(Self {
            events,
            thresholds,
            budget,
            ready <- new_spinlock!(Messages::new(), "rpcrdma_ready"),
            credits <- new_spinlock!(Grants {
                credits: ResponderCredits::new(Credits::new(limit)),
                max: max_credits,
            }, "rpcrdma_grants"),
            sinks <- Sinks::new(),
        }? Error)
    }

    /// What matches Replies with backward Calls.
    pub(super) fn backward(&self) -> &Arc<Backward> {
        &self.events.backward
    }

    /// What is counted.
    pub(super) fn stats(&self) -> &Stats {
        &self.events.stats
    }

    /// Writes what the requester may send, one `name value` a line.
    pub(super) fn show_grants(&self, seq: &SeqFile) {
        let grants = self.credits.lock();
        let (credits, max) = (grants.credits, grants.max);
        drop(grants);
        seq_print!(seq, "credits_requested {}\n", credits.requested().get());
        seq_print!(seq, "credits_granted {}\n", credits.granted().get());
        seq_print!(seq, "credits_limit {}\n", credits.limit().get());
        seq_print!(seq, "credits_max {max}\n");
        seq_print!(seq, "calls_outstanding {}\n", credits.outstanding());
    }

    /// The Receives of a grant could not be made.
    fn starved(&self, error: Error) {
        if error == ENOMEM {
            self.events.record.starved(&self.xprt().peer_address());
        }
    }

    /// sunrpc's object.
    pub(super) fn xprt(&self) -> &SvcXprt {
        &self.events.xprt
    }

    /// Takes note of a Call that asks for `requested` credits. A requester that uses half of its
    /// grant gets twice as much.
    pub(super) fn called(&self, requested: Credits) {
        let mut grants = self.credits.lock();
        let _ = grants.credits.call(requested);
        let used = grants.credits.outstanding();
        let limit = grants.credits.limit().get();
        let max = grants.max.min(requested.get());
        if used.saturating_mul(2) > u64::from(limit) && limit < max {
            let limit = limit.saturating_mul(2).min(max);
            grants.credits.set_limit(Credits::new(limit));
        }
    }

    /// The credit word of a Reply that is about to be sent. The Receives that it promises are
    /// posted.
    ///
    /// # Errors
    ///
    /// As [`AcceptedQp::post_receives`].
    pub(super) fn grant(&self, qp: &AcceptedQp<Self>) -> Result<Credits> {
        let mut grants = self.credits.lock();
        let limit = grants.credits.limit().get();
        let credits = grants.credits.reply(limit);
        let expected = grants.credits.expected();
        drop(grants);
        qp.post_receives(self.wanted_receives(expected), RECEIVE_BATCH, true)
            .inspect_err(|&error| self.starved(error))?;
        Ok(credits)
    }

    /// Receives to be posted, if the requester may send so many Calls.
    fn wanted_receives(&self, expected: u32) -> u32 {
        let replies = match self.events.backward.is_used() {
            true => BACKWARD_CREDITS,
            false => 0,
        };
        expected
            .saturating_add(SPARE_RECEIVES)
            .saturating_add(replies)
    }

    /// Has every Receive posted that what may arrive needs. May sleep.
    ///
    /// # Errors
    ///
    /// As [`AcceptedQp::post_receives`].
    pub(super) fn post_all_receives(&self, qp: &AcceptedQp<Self>) -> Result {
        let expected = self.credits.lock().credits.expected();
        qp.post_receives(self.wanted_receives(expected), 1, true)
    }

    /// Has a Receive posted in place of one that was used up without a Reply.
    pub(super) fn replace_receive(&self, qp: &AcceptedQp<Self>) {
        let expected = self.credits.lock().credits.expected();
        let wanted = self.wanted_receives(expected);
        if let Err(error) = qp.post_receives(wanted, RECEIVE_BATCH, false) {
            self.starved(error);
            self.events.close(Cause::LocalResources);
        }
    }
}
