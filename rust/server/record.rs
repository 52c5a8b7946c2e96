// SPDX-License-Identifier: GPL-2.0

//! What is known of a listener and of the connections that came through it, and what these share.

use crate::{
    debugfs::{File, Show, WithFiles},
    error::{describe, Cause},
    proto::{responder::unanswerable::UnanswerableCalls, wire::header::Xid},
    stats::{Counter, Ends},
    sunrpc::{self, ClassUser, Host, SocketAddress},
    trace,
};
use kernel::{
    new_spinlock,
    prelude::*,
    seq_file::SeqFile,
    seq_print,
    str::CStr,
    sync::{
        atomic::{Atomic, Relaxed},
        Arc, SetOnce, SpinLock,
    },
    time::{BootTime, Delta, Instant},
};

/// Lines in the log for each period: a client that connects again and again must not fill it.
const LINES: u32 = 10;

/// That period.
const PERIOD: Delta = Delta::from_secs(60);

/// How many Calls that could not be answered are remembered.
const UNANSWERABLE: usize = 16;

/// How long they are remembered, in nanoseconds: a requester connects again and repeats a Call in
/// less.
const REMEMBERED: u64 = 60_000_000_000;

/// The part of the machine's memory that the pages of all connections of a listener can have: one
/// in this many for RDMA Reads, and one in this many for Replies.
const PART: u32 = 16;

/// The number of the next listener.
static NEXT: Atomic<u32> = Atomic::new(1);

/// Counts, and the Calls that cost connections. It outlives the listener: each connection has a
/// reference.
#[pin_data]
pub(super) struct ListenerShared {
    pub(super) number: u32,
    /// Pins the module; its workqueue is the listener's and the connections'.
    pub(super) user: ClassUser,
    pub(super) address: SetOnce<SocketAddress>,
    pub(super) accepted: Counter,
    accept_failures: Counter,
    rejected: Counter,
    pub(super) moves: Counter,
    pub(super) starved_grants: Counter,
    /// Pages of RDMA Reads, until a thread takes them.
    pub(super) read_pages: Atomic<u32>,
    /// Pages of Replies, until their Sends complete.
    pub(super) reply_pages: Atomic<u32>,
    /// The limit of `read_pages`, and of `reply_pages`. A connection that has none may exceed it by
    /// those of one message.
    pub(super) page_limit: u32,
    began: Instant<BootTime>,
    #[pin]
    unanswerable: SpinLock<Unanswerable>,
    #[pin]
    ends: SpinLock<Ends>,
    /// When the present period of the log began, and its lines.
    #[pin]
    log: SpinLock<(Instant<BootTime>, u32)>,
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
    pub(super) fn new(user: ClassUser) -> Result<SharedListener> {
        let number = NEXT.fetch_add(1, Relaxed);
        let shared = try_pin_init!(Self {
            number,
            user,
            address: SetOnce::new(),
            accepted: Counter::new(),
            accept_failures: Counter::new(),
            rejected: Counter::new(),
            moves: Counter::new(),
            starved_grants: Counter::new(),
            read_pages: Atomic::new(0),
            reply_pages: Atomic::new(0),
            page_limit: sunrpc::total_pages() / PART,
            began: Instant::now(),
            unanswerable <- new_spinlock!(
                UnanswerableCalls::new(REMEMBERED),
                "rpcrdma_unanswerable"
            ),
            ends <- new_spinlock!(Ends::NONE, "rpcrdma_ends"),
            log <- new_spinlock!((Instant::now(), 0), "rpcrdma_log"),
        }? Error);
        Arc::pin_init(WithFiles::new(number, shared), GFP_KERNEL)
    }

    /// Records that an RDMA Read or Write for a Call of `peer` has failed, which costs its
    /// connection.
    pub(super) fn cannot_answer(&self, peer: &SocketAddress, xid: Xid) {
        self.with_unanswerable(|calls, now| calls.record(peer.host(), xid, now));
    }

    /// Whether Calls of `peer` have cost earlier connections. Otherwise the Calls on a connection
    /// that begins now need not be looked for ([`Self::is_unanswerable`]): what one peer has done
    /// has no other one's Calls take the lock.
    pub(super) fn has_unanswerable(&self, peer: &SocketAddress) -> bool {
        self.with_unanswerable(|calls, now| calls.has_any(peer.host(), now))
    }

    /// Whether a Call of `peer` has cost earlier connections, and is to be refused.
    pub(super) fn is_unanswerable(&self, peer: &SocketAddress, xid: Xid) -> bool {
        self.with_unanswerable(|calls, now| calls.is_refused(peer.host(), xid, now))
    }

    /// Forgets a Call of `peer` that was answered with an RDMA_ERROR.
    pub(super) fn error_sent(&self, peer: &SocketAddress, xid: Xid) {
        self.with_unanswerable(|calls, _| calls.forget(peer.host(), xid));
    }

    /// Passes `change` the Calls that could not be answered, and the nanoseconds since the listener
    /// began.
    fn with_unanswerable<R>(&self, change: impl FnOnce(&mut Unanswerable, u64) -> R) -> R {
        let mut calls = self.unanswerable.lock();
        change(&mut calls, self.began.elapsed().as_nanos().unsigned_abs())
    }

    /// Records that a connection could not be accepted.
    pub(super) fn accept_failed(&self, peer: &SocketAddress, error: Error) {
        trace::svcrdma_accept_err(self.number, error.to_errno());
        self.accept_failures.increment();
        if self.may_log() {
            let why = why_not_accepted(error);
            pr_warn!("client {peer}: cannot accept its connection: {why} ({error:?})\n");
        }
    }

    /// Records that a connect request was rejected because too many were waiting.
    pub(super) fn rejected(&self, peer: &SocketAddress) {
        self.rejected.increment();
        if self.may_log() {
            pr_warn!("client {peer}: connect rejected: nfsd has too few threads, or they hang\n");
        }
    }

    /// Records the end of a connection that was accepted.
    pub(super) fn ended(&self, peer: &SocketAddress, cause: Cause) {
        self.ends.lock().add(cause);
        // Requested by either end, or by the administrator.
        let is_asked_for = matches!(
            cause,
            Cause::Closed | Cause::Disconnected | Cause::DeviceRemoved
        );
        if !is_asked_for && self.may_log() {
            let (why, name) = (describe(cause), cause.name());
            pr_warn!("client {peer}: its connection has failed: {why} ({name})\n");
        }
    }

    /// Whether one more line may be logged in this period, which is then counted.
    fn may_log(&self) -> bool {
        let mut log = self.log.lock();
        let (since, lines) = &mut *log;
        if since.elapsed() >= PERIOD {
            (*since, *lines) = (Instant::now(), 0);
        }
        *lines = lines.saturating_add(1);
        *lines <= LINES
    }
}

impl Show for ListenerShared {
    const PREFIX: &'static CStr = c"listener-";
    const FILES: &'static [File<Self>] = &[(c"listener", listener)];
}

/// Why a connection could not be accepted, for the log.
fn why_not_accepted(error: Error) -> &'static str {
    match error {
        EINVAL => "it has gone away",
        ENOMEM => "memory or device resources are short",
        ENODEV => "the device is going away, or has just come",
        ENXIO => "its device, or the device here, allows no RDMA Reads",
        ERANGE => "the queues of the device are too short for nfsd's max_block_size",
        _ => "the device refused a request",
    }
}

/// Counts, one `name value` a line.
fn listener(shared: &ListenerShared, seq: &SeqFile) {
    if let Some(address) = shared.address.as_ref() {
        let port = address.port();
        seq_print!(seq, "address {address}\nport {port}\n");
    }
    let ends = *shared.ends.lock();
    let accepted = shared.accepted.get();
    for (name, value) in [
        ("connections", accepted.saturating_sub(ends.sum())),
        ("accepted", accepted),
        ("accept_failures", shared.accept_failures.get()),
        ("rejected", shared.rejected.get()),
        ("moves", shared.moves.get()),
        ("starved_grants", shared.starved_grants.get()),
        ("read_pages", shared.read_pages.load(Relaxed).into()),
        ("read_pages_limit", shared.page_limit.into()),
        ("reply_pages", shared.reply_pages.load(Relaxed).into()),
        ("reply_pages_limit", shared.page_limit.into()),
    ] {
        seq_print!(seq, "{name} {value}\n");
    }
    ends.show_counts(seq, "ended");
    ends.show_last(seq, "end");
}
