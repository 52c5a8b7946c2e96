// SPDX-License-Identifier: GPL-2.0

//! What is known of a listener and of the connections that came through it.

use super::{not_accepted::NotAccepted, room::Room, sinks::Sinks};
use crate::{
    debugfs::{File, Show, WithFiles},
    error::Cause,
    proto::{responder::unanswerable::UnanswerableCalls, wire::header::Xid},
    stats::{self, Counter},
    sunrpc::{ClassUser, Host, SocketAddress},
    trace,
};
use kernel::{
    new_mutex, new_spinlock,
    prelude::*,
    seq_file::SeqFile,
    seq_print,
    str::CStr,
    sync::{
        atomic::{Atomic, Relaxed},
        Arc, Mutex, SetOnce, SpinLock, SpinLockGuard,
    },
    time::{BootTime, Delta, Instant},
};

/// Ends of connections that are remembered.
const ENDS: usize = 100;

/// Lines in the log for each period, so that nobody can fill it by connecting.
const LINES: u32 = 10;

/// The period.
const PERIOD: Delta = Delta::from_secs(60);

/// How many Calls that could not be answered are remembered.
const UNANSWERABLE: usize = 16;

/// How long they are remembered, in nanoseconds: until a requester has connected again and repeated
/// them.
const REMEMBERED: u64 = 60_000_000_000;

/// The number of the next listener.
static NEXT: Atomic<u32> = Atomic::new(1);

/// The end of one connection.
#[derive(Clone, Copy)]
pub(super) struct End {
    pub(super) peer: SocketAddress,
    pub(super) cause: Cause,
    pub(super) began: Instant<BootTime>,
    pub(super) ended: Instant<BootTime>,
    /// RPCs that were answered.
    pub(super) answers: u64,
}

/// Counts and ends. It stays until the listener is closed and all its connections are gone.
#[pin_data]
pub(super) struct Record {
    number: u32,
    address: SetOnce<SocketAddress>,
    accepted: Counter,
    accept_failures: Counter,
    rejected: Counter,
    moves: Counter,
    starved_grants: Counter,
    room: Arc<Room>,
    #[pin]
    sinks: Sinks,
    began: Instant<BootTime>,
    #[pin]
    unanswerable: SpinLock<Unanswerable>,
    has_unanswerable: Atomic<bool>,
    #[pin]
    counts: SpinLock<stats::Ends>,
    /// The last ends, the oldest one first.
    #[pin]
    ends: Mutex<KVVec<End>>,
    #[pin]
    lines: SpinLock<Lines>,
}

/// Lines in the log.
struct Lines {
    since: Instant<BootTime>,
    count: u32,
    /// Whether memory was short in this period, which is told once: many Replies in turn lack it.
    tells_of_shortage: bool,
}

type Unanswerable = UnanswerableCalls<Host, UNANSWERABLE>;

/// A record, with its files under debugfs.
pub(super) type SharedRecord = Arc<WithFiles<Record>>;

impl Record {
    /// The record of a new listener. `user` is for the work of its room.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new(user: ClassUser) -> Result<SharedRecord> {
        let number = NEXT.fetch_add(1, Relaxed);
        let ends = KVVec::with_capacity(ENDS, GFP_KERNEL)?;
        let (room, sinks) = (Room::new(user)?, Sinks::new()?);
        let record = try_pin_init!(Self {
            number,
            address: SetOnce::new(),
            accepted: Counter::new(),
            accept_failures: Counter::new(),
            rejected: Counter::new(),
            moves: Counter::new(),
            starved_grants: Counter::new(),
            room,
            sinks <- sinks,
            began: Instant::now(),
            unanswerable <- new_spinlock!(
                UnanswerableCalls::new(REMEMBERED),
                "rpcrdma_unanswerable"
            ),
            has_unanswerable: Atomic::new(false),
            counts <- new_spinlock!(stats::Ends::NONE, "rpcrdma_end_counts"),
            ends <- new_mutex!(ends, "rpcrdma_ends"),
            lines <- new_spinlock!(Lines::new(), "rpcrdma_lines"),
        }? Error);
        Arc::pin_init(WithFiles::new(number, record), GFP_KERNEL)
    }

    /// The listener's number.
    pub(super) fn number(&self) -> u32 {
        self.number
    }

    /// Room for the data of all connections' Calls.
    pub(super) fn room(&self) -> &Arc<Room> {
        &self.room
    }

    /// Pages at hand for that data.
    pub(super) fn sinks(&self) -> &Sinks {
        &self.sinks
    }

    /// Records that an RDMA Read or Write for a Call of `peer` has failed, which costs its
    /// connection.
    pub(super) fn cannot_answer(&self, peer: &SocketAddress, xid: Xid) {
        self.with_unanswerable(|calls, now| calls.record(peer.host(), xid, now));
    }

    /// Whether there are such Calls.
    pub(super) fn has_unanswerable(&self) -> bool {
        self.has_unanswerable.load(Relaxed)
    }

    /// Whether a Call of `peer` is one of these, and is to be refused.
    pub(super) fn is_unanswerable(&self, peer: &SocketAddress, xid: Xid) -> bool {
        self.with_unanswerable(|calls, now| calls.is_refused(peer.host(), xid, now))
    }

    /// Forgets a Call of `peer` that was refused.
    pub(super) fn refused(&self, peer: &SocketAddress, xid: Xid) {
        self.with_unanswerable(|calls, _| calls.forget(peer.host(), xid));
    }

    /// Passes `change` the Calls that could not be answered, and the nanoseconds since the listener
    /// began.
    fn with_unanswerable<R>(&self, change: impl FnOnce(&mut Unanswerable, u64) -> R) -> R {
        let mut calls = self.unanswerable.lock();
        let result = change(&mut calls, self.began.elapsed().as_nanos().unsigned_abs());
        self.has_unanswerable.store(!calls.is_empty(), Relaxed);
        result
    }

    /// Records the address at which it listens.
    pub(super) fn listens(&self, address: SocketAddress) {
        self.address.populate(address);
    }

    /// Counts a connection that was accepted.
    pub(super) fn accepted(&self) {
        self.accepted.increment();
    }

    /// Records that a connection could not be accepted.
    pub(super) fn accept_failed(&self, peer: &SocketAddress, why: &NotAccepted) {
        trace::svcrdma_accept_err(self.number, why.to_errno());
        self.accept_failures.increment();
        if self.may_log() {
            pr_warn!("client {peer}: cannot accept its connection: {why}\n");
        }
    }

    /// Records that a connect request was rejected because too many were waiting.
    pub(super) fn rejected(&self, peer: &SocketAddress) {
        self.rejected.increment();
        if self.may_log() {
            pr_warn!("client {peer}: its connect was rejected, as too many wait to be accepted\n");
        }
    }

    /// Records that the listener listens again, after its address has moved to another device or
    /// had none for a while.
    pub(super) fn listened_anew(&self) {
        self.moves.increment();
    }

    /// Records that memory was short for Receives that a client is granted, or would have been.
    pub(super) fn starved(&self, peer: &SocketAddress) {
        self.starved_grants.increment();
        if self.may_log_shortage() {
            pr_warn!("client {peer}: memory is short for what it is granted\n");
        }
    }

    /// Records the end of a connection. May sleep.
    pub(super) fn ended(&self, end: End) {
        self.counts.lock().add(end.cause);
        if is_failure(end.cause) && self.may_log() {
            let (peer, cause) = (end.peer, end.cause.name());
            pr_warn!("client {peer}: its connection has failed: {cause}\n");
        }
        let mut ends = self.ends.lock();
        if ends.len() == ENDS {
            let _ = ends.remove(0);
        }
        // There is room.
        let _ = ends.push_within_capacity(end);
    }

    /// Whether another line may be logged.
    pub(super) fn may_log(&self) -> bool {
        self.current_lines().has_another()
    }

    /// Whether a line about the shortage of memory may be logged, which is one a period.
    fn may_log_shortage(&self) -> bool {
        let mut lines = self.current_lines();
        !core::mem::replace(&mut lines.tells_of_shortage, true) && lines.has_another()
    }

    /// The lines of the present period, which begins now if the last one is over.
    fn current_lines(&self) -> SpinLockGuard<'_, Lines> {
        let mut lines = self.lines.lock();
        if lines.since.elapsed() >= PERIOD {
            *lines = Lines::new();
        }
        lines
    }
}

impl Lines {
    /// No line yet, in a period that begins now.
    fn new() -> Self {
        Self {
            since: Instant::now(),
            count: 0,
            tells_of_shortage: false,
        }
    }

    /// Whether the period has room for another line, which is then counted.
    fn has_another(&mut self) -> bool {
        self.count = self.count.saturating_add(1);
        self.count <= LINES
    }
}

/// Whether an administrator may want to hear of this end, which neither side asked for.
fn is_failure(cause: Cause) -> bool {
    !matches!(
        cause,
        Cause::Closed | Cause::Disconnected | Cause::DeviceRemoved
    )
}

impl Show for Record {
    const PREFIX: &'static CStr = c"listener-";
    const FILES: &'static [File<Self>] = &[(c"ends", ends), (c"listener", listener)];
}

/// Counts, one `name value` a line.
fn listener(record: &Record, seq: &SeqFile) {
    if let Some(address) = record.address.as_ref() {
        let port = address.port();
        seq_print!(seq, "address {address}\nport {port}\n");
    }
    let counts = *record.counts.lock();
    let accepted = record.accepted.get();
    seq_print!(
        seq,
        "connections {}\n",
        accepted.saturating_sub(counts.sum())
    );
    seq_print!(seq, "accepted {accepted}\n");
    seq_print!(seq, "accept_failures {}\n", record.accept_failures.get());
    seq_print!(seq, "rejected {}\n", record.rejected.get());
    seq_print!(seq, "moves {}\n", record.moves.get());
    seq_print!(seq, "starved_grants {}\n", record.starved_grants.get());
    let (pages, waiting) = record.room.usage();
    seq_print!(seq, "read_pages {}\n", pages.used());
    seq_print!(seq, "read_pages_most {}\n", pages.most());
    seq_print!(seq, "read_pages_limit {}\n", pages.limit());
    seq_print!(seq, "sink_pages {}\n", record.sinks.len());
    seq_print!(seq, "waiting_connections {waiting}\n");
    counts.show_counts(seq, "ended");
}

/// The last ends, one `peer cause age lifetime answers` a line, with milliseconds.
fn ends(record: &Record, seq: &SeqFile) {
    for end in record.ends.lock().iter() {
        let lifetime = (end.ended - end.began).as_millis();
        let (peer, cause, answers) = (end.peer, end.cause.name(), end.answers);
        let age = end.ended.elapsed().as_millis();
        seq_print!(seq, "{peer} {cause} {age} {lifetime} {answers}\n");
    }
}
