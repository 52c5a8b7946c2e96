// SPDX-License-Identifier: GPL-2.0

//! What is known of a listener and of the connections that came through it, and what these share.

use super::accept::NotAccepted;
use crate::{
    debugfs::{File, Show, WithFiles},
    error::Cause,
    proto::{responder::unanswerable::UnanswerableCalls, wire::header::Xid},
    stats::{self, Counter},
    sunrpc::{self, Host, SocketAddress},
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

/// Lines in the log for each period: a client that connects again and again must not fill it.
const LINES: u32 = 10;

/// The period.
const PERIOD: Delta = Delta::from_secs(60);

/// How many Calls that could not be answered are remembered.
const UNANSWERABLE: usize = 16;

/// How long they are remembered, in nanoseconds: until a requester has connected again and repeated
/// them.
const REMEMBERED: u64 = 60_000_000_000;

/// The part of the machine's memory that the pages of all connections of a listener can have: one
/// in this many for RDMA Reads, and one in this many for Replies.
const PART: u32 = 16;

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

/// Pages that the connections of a listener have under way.
///
/// A connection that has none gets some whatever the others have, so the limit can be exceeded by
/// one message for each connection.
pub(super) struct PageCount(Atomic<u32>);

impl PageCount {
    /// Adds `pages`.
    pub(super) fn add(&self, pages: u32) {
        self.0.add(pages, Relaxed);
    }

    /// Subtracts `pages`, which were added.
    pub(super) fn subtract(&self, pages: u32) {
        self.0.fetch_sub(pages, Relaxed);
    }

    /// How many there are.
    pub(super) fn get(&self) -> u32 {
        self.0.load(Relaxed)
    }
}

/// Counts, ends, and what costs connections. It outlives the listener: each connection has a
/// reference.
#[pin_data]
pub(super) struct ListenerShared {
    pub(super) number: u32,
    address: SetOnce<SocketAddress>,
    accepted: Counter,
    accept_failures: Counter,
    rejected: Counter,
    pub(super) moves: Counter,
    starved_grants: Counter,
    /// Pages of RDMA Reads, until a thread takes them.
    pub(super) read_pages: PageCount,
    /// Pages of Replies, until their Sends complete.
    pub(super) reply_pages: PageCount,
    /// The most of each, for connections that have some already.
    pub(super) page_limit: u32,
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
    log: SpinLock<LogLimit>,
}

type Unanswerable = UnanswerableCalls<Host, UNANSWERABLE>;

/// What the connections of a listener share, with its files under debugfs.
pub(super) type SharedListener = Arc<WithFiles<ListenerShared>>;

impl ListenerShared {
    /// What the connections of a new listener share.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new() -> Result<SharedListener> {
        let number = NEXT.fetch_add(1, Relaxed);
        let ends = KVVec::with_capacity(ENDS, GFP_KERNEL)?;
        let shared = try_pin_init!(Self {
            number,
            address: SetOnce::new(),
            accepted: Counter::new(),
            accept_failures: Counter::new(),
            rejected: Counter::new(),
            moves: Counter::new(),
            starved_grants: Counter::new(),
            read_pages: PageCount(Atomic::new(0)),
            reply_pages: PageCount(Atomic::new(0)),
            page_limit: sunrpc::total_pages() / PART,
            began: Instant::now(),
            unanswerable <- new_spinlock!(
                UnanswerableCalls::new(REMEMBERED),
                "rpcrdma_unanswerable"
            ),
            has_unanswerable: Atomic::new(false),
            counts <- new_spinlock!(stats::Ends::NONE, "rpcrdma_end_counts"),
            ends <- new_mutex!(ends, "rpcrdma_ends"),
            log <- new_spinlock!(LogLimit::new(), "rpcrdma_log"),
        }? Error);
        Arc::pin_init(WithFiles::new(number, shared), GFP_KERNEL)
    }

    /// Records that an RDMA Read or Write for a Call of `peer` has failed, which costs its
    /// connection.
    pub(super) fn cannot_answer(&self, peer: &SocketAddress, xid: Xid) {
        self.with_unanswerable(|calls, now| calls.record(peer.host(), xid, now));
    }

    /// Whether a Call of `peer` has cost earlier connections, and is to be refused.
    pub(super) fn is_unanswerable(&self, peer: &SocketAddress, xid: Xid) -> bool {
        self.has_unanswerable.load(Relaxed)
            && self.with_unanswerable(|calls, now| calls.is_refused(peer.host(), xid, now))
    }

    /// Forgets a Call of `peer` that was refused.
    pub(super) fn refused(&self, peer: &SocketAddress, xid: Xid) {
        if self.has_unanswerable.load(Relaxed) {
            self.with_unanswerable(|calls, _| calls.forget(peer.host(), xid));
        }
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
        if self.current_log().has_another() {
            pr_warn!("client {peer}: cannot accept its connection: {why}\n");
        }
    }

    /// Records that a connect request was rejected because too many were waiting.
    pub(super) fn rejected(&self, peer: &SocketAddress) {
        self.rejected.increment();
        if self.current_log().has_another() {
            pr_warn!("client {peer}: its connect was rejected, as too many wait to be accepted\n");
        }
    }

    /// Records that memory was short for Receives that a client is granted, or would have been.
    pub(super) fn starved(&self, peer: &SocketAddress) {
        self.starved_grants.increment();
        let mut log = self.current_log();
        if !core::mem::replace(&mut log.tells_of_shortage, true) && log.has_another() {
            drop(log);
            pr_warn!("client {peer}: memory is short for what it is granted\n");
        }
    }

    /// Records the end of a connection. May sleep.
    pub(super) fn ended(&self, end: End) {
        self.counts.lock().add(end.cause);
        // Neither side asked for other ends.
        let is_asked_for = matches!(
            end.cause,
            Cause::Closed | Cause::Disconnected | Cause::DeviceRemoved
        );
        if !is_asked_for && self.current_log().has_another() {
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

    /// The lines of the present period, which begins now if the last one is over.
    fn current_log(&self) -> SpinLockGuard<'_, LogLimit> {
        let mut log = self.log.lock();
        if log.since.elapsed() >= PERIOD {
            *log = LogLimit::new();
        }
        log
    }
}

/// Lines in the log of one period.
struct LogLimit {
    since: Instant<BootTime>,
    count: u32,
    /// Whether memory was short in this period. One line says so: many Replies in turn lack it.
    tells_of_shortage: bool,
}

impl LogLimit {
    /// No line yet, in a period that begins now.
    fn new() -> Self {
        Self {
            since: Instant::now(),
            count: 0,
            tells_of_shortage: false,
        }
    }

    /// Whether another line may be logged, which is then counted.
    fn has_another(&mut self) -> bool {
        self.count = self.count.saturating_add(1);
        self.count <= LINES
    }
}

impl Show for ListenerShared {
    const PREFIX: &'static CStr = c"listener-";
    const FILES: &'static [File<Self>] = &[(c"ends", ends), (c"listener", listener)];
}

/// Counts, one `name value` a line.
fn listener(shared: &ListenerShared, seq: &SeqFile) {
    if let Some(address) = shared.address.as_ref() {
        let port = address.port();
        seq_print!(seq, "address {address}\nport {port}\n");
    }
    let counts = *shared.counts.lock();
    let accepted = shared.accepted.get();
    let connections = accepted.saturating_sub(counts.sum());
    for (name, value) in [
        ("connections", connections),
        ("accepted", accepted),
        ("accept_failures", shared.accept_failures.get()),
        ("rejected", shared.rejected.get()),
        ("moves", shared.moves.get()),
        ("starved_grants", shared.starved_grants.get()),
        ("read_pages", shared.read_pages.get().into()),
        ("read_pages_limit", shared.page_limit.into()),
        ("reply_pages", shared.reply_pages.get().into()),
        ("reply_pages_limit", shared.page_limit.into()),
    ] {
        seq_print!(seq, "{name} {value}\n");
    }
    counts.show_counts(seq, "ended");
}

/// The last ends, one `peer cause age lifetime answers` a line, with milliseconds.
fn ends(shared: &ListenerShared, seq: &SeqFile) {
    for end in shared.ends.lock().iter() {
        let lifetime = (end.ended - end.began).as_millis();
        let (peer, cause, answers) = (end.peer, end.cause.name(), end.answers);
        let age = end.ended.elapsed().as_millis();
        seq_print!(seq, "{peer} {cause} {age} {lifetime} {answers}\n");
    }
}
