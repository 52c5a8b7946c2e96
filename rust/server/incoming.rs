// SPDX-License-Identifier: GPL-2.0

//! The Calls of one connection until a thread of the service takes them, and the grants that limit
//! them: what its completions and the threads share.

use super::{
    events::{Events, Shortage},
    room::ReceiveShare,
    sizes::{BACKWARD_CREDITS, RECEIVE_BATCH, SPARE_RECEIVES},
    stats::Stats,
};
use crate::{
    error::Cause,
    proto::{
        responder::{
            budget::CallBudget,
            credits::{Arrivals, Conduct, Load, ResponderCredits},
            negotiation::ResponderNegotiation,
        },
        wire::{
            header::{lower_credits, Credits, Versions, VERSION_TWO},
            private_data::Thresholds,
        },
    },
    rdma::{AcceptedMessage, AcceptedQp, Messages},
    sunrpc::{
        server::{Bc, Moment, SvcXprt},
        RelaxedCell,
    },
    trace,
};
use kernel::{
    new_spinlock,
    prelude::*,
    seq_file::SeqFile,
    seq_print,
    sync::{
        atomic::{Acquire, Atomic, Full, Relaxed, Release},
        Arc, SpinLock, SpinLockGuard,
    },
};

/// Calls that a new connection is granted. More come with its load.
const FIRST_GRANT: u32 = 8;

/// How long, in nanoseconds, a requester keeps a grant that it does not use.
const QUIET_TIME: u64 = 5_000_000_000;

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
    /// What has arrived, and what Calls that arrive are compared with.
    arrivals: Arriving,
    #[pin]
    credits: SpinLock<Grants>,
}

/// The part of a requester's credits that arriving Calls need, and what they tell Replies. It is
/// read and written without a lock, so that a Call that arrives waits for nobody who replies.
struct Arriving {
    received: Atomic<u64>,
    /// Messages among these that were answered, but not with a Reply.
    refused: Atomic<u64>,
    /// What the last Call asked for.
    requested: RelaxedCell<u32>,
    /// As [`Self::leave`] has last stored them: [`ResponderCredits::allowed`],
    /// [`ResponderCredits::dropped`] and [`ResponderCredits::limit`].
    allowed: RelaxedCell<u64>,
    dropped: RelaxedCell<u64>,
    limit: RelaxedCell<u32>,
    /// The same of [`ResponderCredits::granted`], for Replies that are about to be sent.
    granted: RelaxedCell<u32>,
    /// The most Calls that the requester had outstanding since a Reply last looked. An arriving
    /// Call may put an older value back: then the limit falls one period later.
    most: RelaxedCell<u64>,
    /// Whether the requester has used all that it may, while no Call of it waited for room.
    is_short: RelaxedCell<bool>,
}

impl Arriving {
    /// Nothing has arrived.
    fn new(credits: &ResponderCredits) -> Self {
        Self {
            received: Atomic::new(0),
            refused: Atomic::new(0),
            requested: RelaxedCell::new(credits.requested().get()),
            allowed: RelaxedCell::new(credits.allowed()),
            dropped: RelaxedCell::new(0),
            limit: RelaxedCell::new(credits.limit().get()),
            granted: RelaxedCell::new(credits.granted().get()),
            most: RelaxedCell::new(0),
            is_short: RelaxedCell::new(false),
        }
    }

    /// What has arrived by now.
    #[inline(always)]
    fn now(&self) -> Arrivals {
        Arrivals {
            // Pairs with `IncomingCalls::called`: the Receives of these are no longer counted as
            // posted.
            received: self.received.load(Acquire),
            requested: Credits::new(self.requested.get()),
        }
    }

    /// Stores what arriving Calls are to be compared with.
    #[inline(always)]
    fn leave(&self, credits: &ResponderCredits) {
        self.allowed.set(credits.allowed());
        self.dropped.set(credits.dropped());
        self.limit.set(credits.limit().get());
        self.granted.set(credits.granted().get());
    }
}

/// What a requester may send.
struct Grants {
    credits: ResponderCredits,
    load: Load,
    /// Room for the Receives of grants beyond the first ones.
    receives: ReceiveShare,
    /// By how much a thread is about to raise the limit, once the Receives for that are posted.
    rising: u32,
    /// When the connection began. The load counts nanoseconds from then on.
    since: Moment,
    negotiation: ResponderNegotiation,
}

impl Grants {
    /// Receives to be posted for Calls.
    #[inline(always)]
    fn wanted(&self) -> u32 {
        let wanted = self.credits.receives(SPARE_RECEIVES);
        wanted.saturating_add(self.rising)
    }

    /// Lowers the grant, as there is less room than the requester could use.
    fn lower(&mut self) {
        let less = self.load.lower(&mut self.credits);
        self.receives.lower(less);
    }

    /// Gives back the room for Receives that lowered grants do not use, once Calls have used them
    /// up: of `posted` ones.
    #[cold]
    fn give_back_surplus(&mut self, posted: u32) {
        let expected = self.credits.expected();
        // Those of a limit that was not raised after all are not expected.
        let kept = expected.max(posted.saturating_sub(SPARE_RECEIVES));
        self.receives
            .give_back_surplus(kept.saturating_sub(self.load.first()));
    }
}

impl IncomingCalls {
    /// The state of a new connection, which is granted up to `max_credits`, each with a Receive of
    /// `receive_size` bytes.
    pub(super) fn new<'a>(
        events: Arc<Events>,
        thresholds: Thresholds,
        versions: Versions,
        budget: CallBudget,
        (max_credits, receive_size): (u32, u32),
    ) -> impl PinInit<Self, Error> + 'a {
        let limit = FIRST_GRANT.min(max_credits);
        let receives = ReceiveShare::new(events.room.clone(), receive_size);
        let credits = ResponderCredits::new(Credits::new(limit));
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
            arrivals: Arriving::new(&credits),
            credits <- new_spinlock!(Grants {
                credits,
                load: Load::new(limit, max_credits, QUIET_TIME),
                receives,
                rising: 0,
                since: Moment::now(),
                negotiation: ResponderNegotiation::new(*thresholds),
            }, "rpcrdma_grants"),
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
        let grants = self.grants();
        let (credits, max) = (grants.credits, grants.load.max());
        drop(grants);
        seq_print!(seq, "credits_requested {}\n", credits.requested().get());
        seq_print!(seq, "credits_granted {}\n", credits.granted().get());
        seq_print!(seq, "credits_limit {}\n", credits.limit().get());
        seq_print!(seq, "credits_max {max}\n");
        seq_print!(seq, "calls_outstanding {}\n", credits.outstanding());
        seq_print!(seq, "calls_waiting {}\n", self.waiting_count.load(Relaxed));
        let pages = self.events.page_budget();
        seq_print!(seq, "read_pages {}\n", pages.used());
        seq_print!(seq, "read_pages_most {}\n", pages.most());
        seq_print!(seq, "read_pages_limit {}\n", pages.limit());
    }

    /// Receives were not posted because of `error`. The connection goes on with those that are
    /// posted, as each Reply posts what is missing.
    ///
    /// # Errors
    ///
    /// `error`, unless memory was short.
    #[cold]
    fn starved(&self, error: Error) -> Result {
        if error != ENOMEM {
            return Err(error);
        }
        self.events.record.starved(&self.xprt().peer_address());
        Ok(())
    }

    /// How many Receives are posted for Calls.
    fn posted_for_calls(&self, qp: &AcceptedQp<Self>) -> u32 {
        qp.posted_count().saturating_sub(self.wanted_receives(0))
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
    #[cold]
    pub(super) fn called_in_version_two(&self) {
        let known = &self.arrivals;
        if known.received.load(Relaxed) <= known.refused.load(Relaxed) {
            self.credits.lock().negotiation.called(VERSION_TWO, true);
        }
    }

    /// Records that a Reply in Version Two is about to be sent.
    #[cold]
    pub(super) fn replies_in_version_two(&self) {
        if self.credits.lock().negotiation.replied(VERSION_TWO) {
            trace::svcrdma_version(self.events.number, VERSION_TWO);
        }
    }

    /// Records that a Call of Version Two is about to be answered with an RDMA_ERROR.
    #[cold]
    pub(super) fn fails_in_version_two(&self) {
        let (mut grants, known) = (self.credits.lock(), &self.arrivals);
        // The Reply to another Call decides.
        let is_only = known.received.load(Relaxed) <= known.refused.load(Relaxed).saturating_add(1);
        if is_only && grants.negotiation.failed() {
            known.refused.fetch_add(1, Relaxed);
        }
    }

    /// The largest message to send in answer to one of Version Two, in bytes.
    #[cold]
    pub(super) fn version_two_threshold(&self) -> u32 {
        self.credits.lock().negotiation.thresholds(VERSION_TWO).send
    }

    /// The version that both ends speak, once that is known, and its thresholds. Until then the
    /// thresholds are those of Version One.
    pub(super) fn agreed(&self) -> (Option<u32>, Thresholds) {
        let grants = self.credits.lock();
        let refused = self.arrivals.refused.load(Relaxed);
        let has_replied = self.versions == Versions::ONE || grants.credits.answered() > refused;
        let version = grants.negotiation.agreed(has_replied);
        let thresholds = match version {
            Some(version) => grants.negotiation.thresholds(version),
            None => self.thresholds,
        };
        (version, thresholds)
    }

    /// Records a message that is answered although it is not a Call, as one that asks for
    /// `requested` credits.
    pub(super) fn refused(&self, requested: Credits) {
        self.arrivals.refused.fetch_add(1, Relaxed);
        self.called(requested);
    }

    /// Records a Call that asks for `requested` credits. A requester that uses all of its grant
    /// gets twice as much with the next Reply, as long as there is room for its Receives and none
    /// of its Calls waits for pages.
    #[inline(always)]
    pub(super) fn called(&self, requested: Credits) {
        let known = &self.arrivals;
        known.requested.set(requested.get());
        let arrivals = Arrivals {
            // A completion and a thread may both receive: the thread handles what came before the
            // handshake was over. Release: the Receive was counted as used up before.
            received: known.received.fetch_add(1, Release).wrapping_add(1),
            requested,
        };
        if arrivals.conduct(known.allowed.get()) == Conduct::Excess {
            self.stats().counters.excess_calls.increment();
        }
        let used = arrivals.used(known.dropped.get(), self.stats().delivered());
        if used > known.most.get() {
            known.most.set(used);
        }
        if used >= u64::from(known.limit.get()) && !self.has_waiting() {
            known.is_short.set(true);
        }
    }

    /// What the requester may send, with all that has arrived taken into account.
    #[inline(always)]
    fn grants(&self) -> SpinLockGuard<'_, Grants> {
        let mut grants = self.credits.lock();
        grants.credits.arrived(self.arrivals.now());
        grants
    }

    /// Records that a Call which [`Self::called`] has counted gets no answer.
    pub(super) fn dropped(&self) {
        let mut grants = self.grants();
        grants.credits.drop_call();
        self.arrivals.leave(&grants.credits);
    }

    /// Lowers the grant, as there is less room than the requester could use.
    fn lower_grants(&self) {
        let mut grants = self.grants();
        grants.lower();
        self.arrivals.leave(&grants.credits);
        self.arrivals.is_short.set(false);
    }

    /// Has a Call wait until there is room for the data that is to be fetched for it. Returns the
    /// Call if there is room already.
    ///
    /// While it waits, its Receive is not posted again, and the grant falls.
    #[inline(always)]
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
    #[cold]
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
        self.lower_grants();
        None
    }

    /// Hands a message to the threads of the service.
    #[inline(always)]
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
    #[inline(always)]
    pub(super) fn has_waiting(&self) -> bool {
        self.waiting_count.load(Relaxed) != 0
    }

    /// The first Call that waits, if there is room for it.
    #[inline(always)]
    pub(super) fn admitted(&self) -> Option<AcceptedMessage<Self>> {
        if !self.has_waiting() {
            return None;
        }
        self.admit_first()
    }

    /// The slow path of [`Self::admitted`]: Calls wait, which is rare.
    #[cold]
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

    /// The requester has used its whole grant: grants as much again, if there is room for that. The
    /// Receives are posted first, as a Reply that relies on the new limit may be sent long after
    /// one that follows it.
    #[cold]
    fn raise(&self, qp: &AcceptedQp<Self>) {
        let known = &self.arrivals;
        let mut grants = self.grants();
        let is_short = known.is_short.get();
        known.is_short.set(false);
        if !is_short || grants.rising != 0 || self.has_waiting() {
            return;
        }
        let limit = grants.credits.limit();
        let more = grants.load.more(&grants.credits);
        if more == 0 || !grants.receives.take(more) {
            return;
        }
        grants.rising = more;
        let wanted = grants.wanted();
        drop(grants);
        let posted = qp.post_receives(self.wanted_receives(wanted), 1, true);
        let mut grants = self.grants();
        grants.rising = 0;
        // Unless there is no longer a reason to.
        if posted.is_ok() && grants.credits.limit() == limit && !self.has_waiting() {
            grants.credits.raise_limit(more);
            known.leave(&grants.credits);
            // Calls that have arrived in the meantime were compared with the old limit.
            known.is_short.set(false);
            return;
        }
        grants.receives.lower(more);
        drop(grants);
        if let Err(error) = posted {
            // The limit stays. Otherwise the connection is ending, which the Reply finds out.
            let _ = self.starved(error);
        }
    }

    /// The credit word of a Reply that is about to be sent at `now`. Posts the Receives that it
    /// promises.
    ///
    /// # Errors
    ///
    /// As [`AcceptedQp::post_receives`], with `ENOMEM` only if no Call could follow.
    #[inline(always)]
    pub(super) fn grant(&self, qp: &AcceptedQp<Self>, now: Moment) -> Result<Credits> {
        let known = &self.arrivals;
        if known.is_short.get() {
            self.raise(qp);
        }
        let mut grants = self.grants();
        let Grants {
            credits,
            load,
            receives,
            since,
            ..
        } = &mut *grants;
        let less = load.replies(credits, known.most.get(), now.since(*since));
        if let Some(less) = less {
            receives.lower(less);
            known.most.set(credits.outstanding());
        }
        let limit = credits.limit().get();
        let granted = credits.reply(limit);
        known.leave(credits);
        let has_surplus = receives.has_surplus();
        let wanted = grants.wanted();
        if has_surplus {
            grants.give_back_surplus(self.posted_for_calls(qp));
        }
        drop(grants);
        if less.is_some() {
            self.events.check_sends();
        }
        match qp.post_receives(self.wanted_receives(wanted), RECEIVE_BATCH, true) {
            Ok(()) => Ok(granted),
            Err(error) => self.grant_less(qp, error),
        }
    }

    /// What [`Self::grant`] grants if Receives were not posted because of `error`.
    #[cold]
    fn grant_less(&self, qp: &AcceptedQp<Self>, error: Error) -> Result<Credits> {
        self.starved(error)?;
        let mut grants = self.grants();
        grants.lower();
        // After the Calls that have arrived are known: of another one that arrives in between,
        // neither the Call nor its Receive counts. The other way round both would.
        let posted = self.posted_for_calls(qp);
        let granted = match grants.credits.lower_grant(posted) {
            Some(granted) => Ok(granted),
            None => {
                // Unless it was the last that could.
                grants.credits.arrived(self.arrivals.now());
                grants.credits.lower_grant(posted).ok_or(error)
            }
        };
        self.arrivals.leave(&grants.credits);
        granted
    }

    /// A Reply is about to be posted. For each that was posted before, [`Self::grant`] had stored
    /// what it grants, and the lock under which they are posted orders that before this look. If
    /// the last one grants less, it has Receives for no more: neither does this one grant more.
    /// Returns whether it was changed.
    #[inline(always)]
    pub(super) fn revise_grant(&self, reply: &mut [u8]) -> bool {
        lower_credits(reply, Credits::new(self.arrivals.granted.get()))
    }

    /// How many Receives are to be posted: `calls` for Calls, and those for backward Replies.
    fn wanted_receives(&self, calls: u32) -> u32 {
        let replies = match self.bc().is_used() {
            true => BACKWARD_CREDITS,
            false => 0,
        };
        calls.saturating_add(replies)
    }

    /// Posts Receives for all that may arrive. May sleep.
    ///
    /// # Errors
    ///
    /// As [`AcceptedQp::post_receives`].
    pub(super) fn post_all_receives(&self, qp: &AcceptedQp<Self>) -> Result {
        let wanted = self.grants().wanted();
        qp.post_receives(self.wanted_receives(wanted), 1, true)
    }

    /// Posts a Receive in place of one that was used up without a Reply.
    pub(super) fn replace_receive(&self, qp: &AcceptedQp<Self>) {
        let wanted = self.grants().wanted();
        let posted = qp.post_receives(self.wanted_receives(wanted), RECEIVE_BATCH, false);
        let Err(error) = posted else {
            return;
        };
        let goes_on = self.starved(error).is_ok_and(|()| {
            // If no Reply is to come, nobody posts any.
            self.posted_for_calls(qp) != 0 || self.grants().credits.outstanding() != 0
        });
        if !goes_on {
            self.events.close(Cause::LocalResources);
        }
    }
}
