// SPDX-License-Identifier: GPL-2.0

//! The Calls of one connection until a thread of the service takes them, and the grants that limit
//! them: what its completions and the threads share.

use super::{
    events::{Events, Shortage},
    sizes::{BACKWARD_CREDITS, RECEIVE_BATCH, SPARE_RECEIVES},
    stats::Stats,
};
use crate::{
    error::Cause,
    proto::{
        responder::{
            budget::CallBudget,
            grants::{Conduct, Grants},
        },
        v2::responder::ResponderNegotiation,
        wire::{
            header::{Credits, Versions, VERSION_TWO},
            private_data::Thresholds,
        },
    },
    rdma::{AcceptedMessage, AcceptedQp, Messages},
    sunrpc::server::{Bc, SvcXprt},
    trace,
};
use kernel::{
    new_spinlock,
    prelude::*,
    seq_file::SeqFile,
    seq_print,
    sync::{
        atomic::{Atomic, Full, Relaxed},
        Arc, SpinLock,
    },
    time::{delay::fsleep, Delta},
};

/// Calls that a new connection is granted. More come with its load.
const FIRST_GRANT: u32 = 8;

/// How long a thread waits before it looks again whether there is memory for Receives.
const MEMORY_PAUSE: Delta = Delta::from_millis(10);

/// Calls that wait for room, in order.
struct Waiting {
    messages: Messages<AcceptedQp<IncomingCalls>>,
    /// Whether the first one is in the room's line. Its pages are then taken from the connection's
    /// own budget.
    is_in_line: bool,
}

/// The Calls that have arrived on a connection, and what they are judged by.
#[pin_data]
pub(crate) struct IncomingCalls {
    pub(super) events: Arc<Events>,
    /// The thresholds from private data, which are those of Version One.
    pub(super) thresholds: Thresholds,
    /// The versions that the requester may speak.
    versions: Versions,
    pub(super) budget: CallBudget,
    /// Messages for threads of the service.
    #[pin]
    pub(super) ready: SpinLock<Messages<AcceptedQp<Self>>>,
    #[pin]
    waiting: SpinLock<Waiting>,
    /// How many Calls are in [`Self::waiting`].
    waiting_count: Atomic<u32>,
    #[pin]
    flow: SpinLock<Flow>,
}

/// What a requester may send, and in which version.
struct Flow {
    grants: Grants,
    /// Messages that were answered, but not with a Reply.
    refused: u64,
    negotiation: ResponderNegotiation,
}

impl IncomingCalls {
    /// The state of a new connection, which is granted up to `max_credits`.
    pub(super) fn new<'a>(
        events: Arc<Events>,
        thresholds: Thresholds,
        versions: Versions,
        budget: CallBudget,
        max_credits: u32,
    ) -> impl PinInit<Self, Error> + 'a {
        try_pin_init!(Self {
            events,
            thresholds,
            versions,
            budget,
            ready <- new_spinlock!(Messages::new(), "rpcrdma_ready"),
            waiting <- new_spinlock!(Waiting {
                messages: Messages::new(),
                is_in_line: false,
            }, "rpcrdma_waiting"),
            waiting_count: Atomic::new(0),
            flow <- new_spinlock!(Flow {
                grants: Grants::new(FIRST_GRANT.min(max_credits), max_credits),
                refused: 0,
                negotiation: ResponderNegotiation::new(*thresholds),
            }, "rpcrdma_flow"),
        }? Error)
    }

    /// What matches Replies with backward Calls.
    pub(super) fn bc(&self) -> &Bc {
        self.events.xprt.bc()
    }

    /// What is counted of the connection.
    pub(super) fn stats(&self) -> &Stats {
        &self.events.stats
    }

    /// Writes what the requester may send, one `name value` a line.
    pub(super) fn show_grants(&self, seq: &SeqFile) {
        let grants = self.flow.lock().grants;
        seq_print!(seq, "credits_requested {}\n", grants.requested().get());
        seq_print!(seq, "credits_granted {}\n", grants.granted().get());
        seq_print!(seq, "credits_limit {}\n", grants.limit());
        seq_print!(seq, "credits_max {}\n", grants.max());
        seq_print!(seq, "calls_outstanding {}\n", grants.outstanding());
        seq_print!(seq, "calls_waiting {}\n", self.waiting_count.load(Relaxed));
        let pages = self.events.page_budget();
        seq_print!(seq, "read_pages {}\n", pages.used());
        seq_print!(seq, "read_pages_most {}\n", pages.most());
        seq_print!(seq, "read_pages_limit {}\n", pages.limit());
    }

    /// sunrpc's object.
    pub(super) fn xprt(&self) -> &SvcXprt {
        &self.events.xprt
    }

    /// The versions that the requester may speak.
    pub(super) fn versions(&self) -> Versions {
        self.versions
    }

    /// Records a Call of Version Two, before [`Self::called`]: the first Call decides what is
    /// spoken.
    pub(super) fn called_in_version_two(&self) {
        let mut flow = self.flow.lock();
        if flow.grants.received() <= flow.refused {
            flow.negotiation.called(VERSION_TWO, true);
        }
    }

    /// Records that a Reply in Version Two is about to be sent.
    pub(super) fn replies_in_version_two(&self) {
        if self.flow.lock().negotiation.replied(VERSION_TWO) {
            trace::svcrdma_version(self.events.number, VERSION_TWO);
        }
    }

    /// Records that a Call of Version Two is about to be answered with an RDMA_ERROR.
    pub(super) fn fails_in_version_two(&self) {
        let mut flow = self.flow.lock();
        // The Reply to another Call decides.
        let is_only = flow.grants.received() <= flow.refused.saturating_add(1);
        if is_only && flow.negotiation.failed() {
            flow.refused = flow.refused.saturating_add(1);
        }
    }

    /// The largest message to send in answer to one of Version Two, in bytes.
    pub(super) fn version_two_threshold(&self) -> u32 {
        self.flow.lock().negotiation.thresholds(VERSION_TWO).send
    }

    /// The version that both ends speak, once that is known, and its thresholds. Until then the
    /// thresholds are those of Version One.
    pub(super) fn agreed(&self) -> (Option<u32>, Thresholds) {
        let flow = self.flow.lock();
        let has_replied = self.versions == Versions::ONE || flow.grants.answered() > flow.refused;
        let version = flow.negotiation.agreed(has_replied);
        let thresholds = match version {
            Some(version) => flow.negotiation.thresholds(version),
            None => self.thresholds,
        };
        (version, thresholds)
    }

    /// Records a message that is answered although it is not a Call, as one that asks for
    /// `requested` credits.
    pub(super) fn refused(&self, requested: Credits) {
        self.count_call(requested, 1);
    }

    /// Records a Call that asks for `requested` credits.
    pub(super) fn called(&self, requested: Credits) {
        self.count_call(requested, 0);
    }

    fn count_call(&self, requested: Credits, refused: u64) {
        let mut flow = self.flow.lock();
        flow.refused = flow.refused.saturating_add(refused);
        if flow.grants.call(requested) == Conduct::Excess {
            self.stats().counters.excess_calls.increment();
        }
    }

    /// Records that a Call which [`Self::called`] has counted gets no answer.
    pub(super) fn dropped(&self) {
        self.flow.lock().grants.drop_call();
    }

    /// Records that the requester has the answer to a Call.
    pub(super) fn delivered(&self) {
        self.flow.lock().grants.delivered();
    }

    /// Has a Call wait until there is room for the data that is to be fetched for it. Returns the
    /// Call if there is room already.
    ///
    /// While it waits, its Receive is not posted again.
    pub(super) fn admit(
        &self,
        qp: &AcceptedQp<Self>,
        mut message: AcceptedMessage<Self>,
    ) -> Option<AcceptedMessage<Self>> {
        let note = message.with_note().1;
        if note.reserved.is_some() {
            return Some(message);
        }
        let pages = note.wanted();
        if !self.has_waiting() {
            note.reserved = Events::try_reserve(&self.events, pages);
        }
        match note.reserved {
            Some(_) => Some(message),
            None => self.admit_later(qp, message, pages),
        }
    }

    /// The slow path of [`Self::admit`]: there was no room.
    fn admit_later(
        &self,
        qp: &AcceptedQp<Self>,
        mut message: AcceptedMessage<Self>,
        pages: u32,
    ) -> Option<AcceptedMessage<Self>> {
        let mut waiting = self.waiting.lock();
        // Once closed, `give_up` may have run; until then, it takes this lock later.
        if self.xprt().is_closing() {
            drop(waiting);
            qp.recycle(message);
            return None;
        }
        // Counted before anybody is to give pages back for it.
        self.waiting_count.fetch_add(1, Full);
        if waiting.messages.first_note().is_none() {
            match Events::reserve(&self.events, pages) {
                Ok(reserved) => {
                    self.waiting_count.fetch_sub(1, Relaxed);
                    message.with_note().1.reserved = Some(reserved);
                    return Some(message);
                }
                Err(shortage) => waiting.is_in_line = matches!(shortage, Shortage::Room),
            }
        }
        waiting.messages.push(message);
        drop(waiting);
        self.stats().counters.delayed_reads.increment();
        None
    }

    /// Hands a message to the threads of the service.
    pub(super) fn enqueue(&self, qp: &AcceptedQp<Self>, message: AcceptedMessage<Self>) {
        let mut ready = self.ready.lock();
        // As in `admit_later`.
        if self.xprt().is_closing() {
            drop(ready);
            return qp.recycle(message);
        }
        // All of this under the lock: `give_up`, which takes it, runs before the service can end,
        // whose pools the last call uses.
        ready.push(message);
        self.xprt().call_waits();
        self.xprt().enqueue_recorded();
        drop(ready);
    }

    /// Drops all Calls that no thread has taken, with their room and the place in the room's line.
    /// The transport is closed, so that no thread will take them, and it may be long until its last
    /// Call is done.
    pub(super) fn give_up(&self, qp: &AcceptedQp<Self>) {
        let mut waiting = self.waiting.lock();
        waiting.is_in_line = false;
        let calls = core::mem::replace(&mut waiting.messages, Messages::new());
        self.waiting_count.store(0, Relaxed);
        drop(waiting);
        self.events.withdraw();
        let ready = core::mem::replace(&mut *self.ready.lock(), Messages::new());
        for mut messages in [calls, ready] {
            while let Some(message) = messages.pop() {
                qp.recycle(message);
            }
        }
    }

    /// Whether Calls wait for room.
    pub(super) fn has_waiting(&self) -> bool {
        self.waiting_count.load(Relaxed) != 0
    }

    /// The first Call that waits, if there is room for it.
    pub(super) fn admitted(&self) -> Option<AcceptedMessage<Self>> {
        if !self.has_waiting() {
            return None;
        }
        self.admit_first()
    }

    /// The slow path of [`Self::admitted`]: Calls wait, which is rare.
    fn admit_first(&self) -> Option<AcceptedMessage<Self>> {
        let events = &self.events;
        let mut waiting = self.waiting.lock();
        let pages = waiting.messages.first_note()?.wanted();
        let reserved = if waiting.is_in_line {
            Events::take_admitted(events, pages)?
        } else {
            match Events::reserve(events, pages) {
                Ok(reserved) => reserved,
                Err(shortage) => {
                    waiting.is_in_line = matches!(shortage, Shortage::Room);
                    return None;
                }
            }
        };
        waiting.is_in_line = false;
        let mut message = waiting.messages.pop()?;
        self.waiting_count.fetch_sub(1, Relaxed);
        // There may be room for others as well, and nobody is told again.
        if waiting.messages.first_note().is_some() {
            self.xprt().call_waits();
        }
        drop(waiting);
        message.with_note().1.reserved = Some(reserved);
        Some(message)
    }

    /// The credit word of a Reply that is about to be sent, once the Receives that it promises are
    /// posted. Without memory for these, waits until other threads have given back those of the
    /// Calls that they have answered.
    ///
    /// # Errors
    ///
    /// As [`AcceptedQp::post_receives`], but never `ENOMEM`.
    pub(super) fn grant(&self, qp: &AcceptedQp<Self>) -> Result<Credits> {
        self.raise(qp)?;
        let (granted, wanted) = loop {
            let mut flow = self.flow.lock();
            // A Receive is no longer counted as posted before its Call is counted.
            let calls = u64::from(posted_for_calls(qp)).saturating_add(flow.grants.outstanding());
            // One of these is the Call that is being answered.
            if calls > u64::from(flow.grants.limit()) {
                let granted = flow.grants.reply();
                break (granted, wanted_receives(&flow.grants, flow.grants.limit()));
            }
            let mut grants = flow.grants;
            drop(flow);
            let _ = grants.reply();
            if !self.post(qp, wanted_receives(&grants, grants.limit()), 1)? {
                if self.xprt().is_closing() {
                    return Err(EPIPE);
                }
                fsleep(MEMORY_PAUSE);
            }
        };
        self.post(qp, wanted, RECEIVE_BATCH)?;
        Ok(granted)
    }

    /// Posts Receives; returns whether there was memory for all.
    fn post(&self, qp: &AcceptedQp<Self>, count: u32, batch: u32) -> Result<bool> {
        match qp.post_receives(count, batch, true) {
            Ok(()) => Ok(true),
            Err(ENOMEM) => {
                self.events.record.starved(&self.xprt().peer_address());
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Grants more from now on, if the requester could use it and there is memory for the Receives.
    fn raise(&self, qp: &AcceptedQp<Self>) -> Result {
        let grants = self.flow.lock().grants;
        let limit = grants.wanted();
        if limit == grants.limit() {
            return Ok(());
        }
        if self.post(qp, wanted_receives(&grants, limit), 1)? {
            self.flow.lock().grants.raise(limit);
        }
        Ok(())
    }

    /// Posts Receives for all that may arrive. May sleep.
    ///
    /// # Errors
    ///
    /// As [`AcceptedQp::post_receives`].
    pub(super) fn post_all_receives(&self, qp: &AcceptedQp<Self>) -> Result {
        let grants = self.flow.lock().grants;
        qp.post_receives(wanted_receives(&grants, grants.limit()), 1, true)
    }

    /// Posts a Receive in place of one that was used up without a Reply.
    pub(super) fn replace_receive(&self, qp: &AcceptedQp<Self>) {
        let grants = self.flow.lock().grants;
        let goes_on = match qp.post_receives(
            wanted_receives(&grants, grants.limit()),
            RECEIVE_BATCH,
            false,
        ) {
            Ok(()) => true,
            Err(ENOMEM) => {
                self.events.record.starved(&self.xprt().peer_address());
                // If no Reply is to come, nobody posts any.
                posted_for_calls(qp) != 0 || grants.outstanding() != 0
            }
            Err(_) => false,
        };
        if !goes_on {
            self.events.close(Cause::LocalResources);
        }
    }
}

/// How many Receives are to be posted if `limit` Calls are served at once: those for Calls, and for
/// Replies to backward Calls.
fn wanted_receives(grants: &Grants, limit: u32) -> u32 {
    let calls = grants.receives(limit, SPARE_RECEIVES);
    calls.saturating_add(BACKWARD_CREDITS)
}

/// How many Receives are posted for Calls.
fn posted_for_calls(qp: &AcceptedQp<IncomingCalls>) -> u32 {
    qp.posted_count().saturating_sub(BACKWARD_CREDITS)
}
