// SPDX-License-Identifier: GPL-2.0

//! The counters of one transport, from its setup to its end, and the types that the counters of
//! both roles consist of.
//!
//! They are relaxed, and meant for people: a reader sees each counter exactly, but not all of them
//! at one moment.

use crate::{
    error::Cause,
    proto::{
        requester::plan::{CallForm, Plan, ReplyForm},
        wire::private_data::PrivateData,
    },
};
use kernel::{
    fmt,
    prelude::*,
    seq_file::SeqFile,
    seq_print,
    sync::atomic::{Atomic, Relaxed},
    time::{BootTime, Delta, Instant},
};

/// A counter that is only incremented.
pub(crate) struct Counter(Atomic<u64>);

impl Counter {
    /// A counter at zero.
    pub(crate) const fn new() -> Self {
        Self(Atomic::new(0))
    }

    /// Adds one.
    pub(crate) fn increment(&self) {
        self.add(1);
    }

    /// Adds `count`.
    pub(crate) fn add(&self, count: u64) {
        self.0.add(count, Relaxed);
    }

    /// Adds a number of objects or bytes in memory.
    pub(crate) fn add_len(&self, len: usize) {
        // CAST: The kernel's usize always fits a u64.
        self.add(len as u64);
    }

    /// The present count.
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Defines a structure of counters.
macro_rules! counters {
    (
        $(#[$struct_doc:meta])*
        struct $struct:ident;
        $($(#[$doc:meta])* $name:ident: $type:ident,)*
    ) => {
        $(#[$struct_doc])*
        pub(crate) struct $struct {
            $($(#[$doc])* pub(crate) $name: $type,)*
        }

        impl $struct {
            /// All counters at zero.
            pub(crate) const fn new() -> Self {
                Self { $($name: $type::new(),)* }
            }

            /// Prints them, one `name value` a line.
            pub(crate) fn show(&self, seq: &kernel::seq_file::SeqFile) {
                $(kernel::seq_print!(seq, "{} {}\n", stringify!($name), self.$name.get());)*
            }
        }
    };
}
pub(crate) use counters;

counters! {
    /// The counters of a transport.
    struct Stats;
    /// Replies that arrived in the Reply chunk.
    reply_chunk_replies: Counter,
    /// Read segments sent.
    read_segments: Counter,
    /// Write segments sent.
    write_segments: Counter,
    /// Reply chunk segments sent.
    reply_segments: Counter,
    /// Bytes of Calls, inline and in Read chunks.
    call_bytes: Counter,
    /// Bytes offered in Write and Reply chunks.
    offered_bytes: Counter,
    /// Bytes that the peer reported having written to them.
    delivered_bytes: Counter,
    /// Bytes of Calls copied into send buffers.
    pullup_bytes: Counter,
    /// Bytes of Replies copied out of receive buffers into pages.
    fixup_bytes: Counter,
    /// Calls that could not be marshalled at the time.
    failed_marshals: Counter,
    /// Replies that were malformed or an RDMA_ERROR.
    bad_replies: Counter,
    /// Messages that were dropped: undecodable, or not awaited by a Call.
    dropped_messages: Counter,
    /// RDMA_ERROR messages sent with ERR_VERS.
    vers_errors_sent: Counter,
    /// RDMA_ERROR messages sent with ERR_CHUNK.
    chunk_errors_sent: Counter,
    /// RDMA_ERROR messages sent with RDMA_ERR_INVAL_OPTION.
    option_errors_sent: Counter,
    /// RDMA_ERROR messages for a Call that waits, with ERR_VERS.
    vers_errors_received: Counter,
    /// RDMA_ERROR messages for a Call that waits, with ERR_CHUNK.
    chunk_errors_received: Counter,
    /// RDMA_ERROR messages for a Call that waits, with RDMA_ERR_INVAL_OPTION.
    option_errors_received: Counter,
    /// Calls that were sent again in another version, as the peer had refused theirs.
    version_fallbacks: Counter,
    /// RDMA_ERROR messages for a Call that waits, with an error code that is not defined.
    unknown_errors_received: Counter,
    /// Memory regions allocated.
    regions_allocated: Counter,
    /// Regions that a Reply invalidated.
    remote_invalidations: Counter,
    /// Regions invalidated by a local work request.
    local_invalidations: Counter,
    /// Sends for which no send buffer was free.
    send_queue_full: Counter,
    /// Sends for which no memory region was free.
    regions_exhausted: Counter,
    /// Backward Calls passed to the callback service.
    backward_calls: Counter,
    /// Backward Calls for which there was no service or no request.
    backward_overflows: Counter,
    /// Backward Replies whose connection had ended.
    backward_replies_dropped: Counter,
    /// Work requests that failed other than by being flushed.
    failed_requests: Counter,
}

/// How an RPC is conveyed: the forms of its Call and of its Reply.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Form {
    /// [`Self::INLINE_CALL`], or one of the constants that follow it.
    pub(crate) call: u8,
    /// [`Self::WRITE_CHUNKS`] and [`Self::REPLY_CHUNK`], or 0: at the client those that it offers,
    /// at the server those that are used.
    pub(crate) reply: u8,
}

impl Form {
    /// Calls: inline, with a Read chunk, with several, as a Position Zero Read chunk.
    pub(crate) const INLINE_CALL: u8 = 0;
    pub(crate) const READ_CHUNK: u8 = 1;
    pub(crate) const SEVERAL_READ_CHUNKS: u8 = 2;
    pub(crate) const POSITION_ZERO: u8 = 3;

    /// Bits of Replies.
    pub(crate) const WRITE_CHUNKS: u8 = 1;
    pub(crate) const REPLY_CHUNK: u8 = 2;

    /// Both inline.
    pub(crate) const INLINE: Self = Self { call: 0, reply: 0 };

    const CALLS: [&'static str; 4] = ["inline", "read", "several_reads", "position_zero"];
    const REPLIES: [&'static str; 4] = ["inline", "write", "reply", "write_and_reply"];
    const COUNT: usize = Self::CALLS.len() * Self::REPLIES.len();

    /// All forms with their names, by Call and then by Reply.
    fn all() -> impl Iterator<Item = (Self, &'static str, &'static str)> {
        (0..u8::MAX).zip(Self::CALLS).flat_map(|(call, of_call)| {
            let replies = (0..u8::MAX).zip(Self::REPLIES);
            replies.map(move |(reply, of_reply)| (Self { call, reply }, of_call, of_reply))
        })
    }

    /// Its place among all forms.
    fn index(self) -> usize {
        usize::from(self.call) * Self::REPLIES.len() + usize::from(self.reply)
    }
}

impl From<&Plan> for Form {
    fn from(plan: &Plan) -> Self {
        Self {
            call: match plan.call {
                CallForm::Inline => Self::INLINE_CALL,
                CallForm::ReadChunk { .. } => Self::READ_CHUNK,
                CallForm::PositionZero => Self::POSITION_ZERO,
            },
            reply: match plan.reply {
                ReplyForm::Inline => 0,
                ReplyForm::WriteChunk => Self::WRITE_CHUNKS,
                ReplyForm::ReplyChunk => Self::REPLY_CHUNK,
            },
        }
    }
}

/// RPCs by form.
pub(crate) struct Forms([Counter; Form::COUNT]);

impl Forms {
    /// No RPCs so far.
    pub(crate) const fn new() -> Self {
        Self([const { Counter::new() }; Form::COUNT])
    }

    /// Counts an RPC.
    pub(crate) fn record(&self, form: Form) {
        if let Some(count) = self.0.get(form.index()) {
            count.increment();
        }
    }

    /// How many RPCs have such a form.
    pub(crate) fn sum(&self, is_meant: impl Fn(Form) -> bool) -> u64 {
        let forms = Form::all().zip(&self.0);
        forms
            .filter(|((form, ..), _)| is_meant(*form))
            .fold(0, |sum, (_, count)| u64::saturating_add(sum, count.get()))
    }

    /// Prints them as the client does, one `name value` a line.
    pub(crate) fn show_calls(&self, seq: &SeqFile) {
        let calls = |call| self.sum(|form| form.call == call);
        let replies = |reply| self.sum(|form| form.reply == reply);
        for (name, value) in [
            ("inline_calls", calls(Form::INLINE_CALL)),
            ("read_chunk_calls", calls(Form::READ_CHUNK)),
            ("position_zero_calls", calls(Form::POSITION_ZERO)),
            ("inline_replies_expected", replies(0)),
            ("write_chunk_calls", replies(Form::WRITE_CHUNKS)),
            ("reply_chunk_calls", replies(Form::REPLY_CHUNK)),
        ] {
            seq_print!(seq, "{name} {value}\n");
        }
    }

    /// Prints those that occurred as the server does, one `name value` a line.
    pub(crate) fn show_answers(&self, seq: &SeqFile) {
        for ((_, call, reply), count) in Form::all().zip(self.0.iter().map(Counter::get)) {
            if count != 0 {
                seq_print!(seq, "{call}_call_{reply}_reply {count}\n");
            }
        }
    }
}

/// The number of latency classes: one below 1024 ns, then one for each doubling. The last one, from
/// 17 s (2^34 ns) on, is open-ended.
const CLASSES: usize = 26;

/// A histogram of durations.
pub(crate) struct Histogram([Counter; CLASSES]);

impl Histogram {
    /// An empty histogram.
    pub(crate) const fn new() -> Self {
        Self([const { Counter::new() }; CLASSES])
    }

    /// The class of a duration; a negative one counts as none.
    fn class(duration: Delta) -> usize {
        let nanoseconds = duration.as_nanos().max(0);
        // The lowest bit stands for all below 1024 ns, as 0 has no logarithm.
        let doublings = ((nanoseconds >> 9) | 1).ilog2();
        // CAST: At most 54.
        (doublings as usize).min(CLASSES - 1)
    }

    /// Counts a duration.
    pub(crate) fn record(&self, duration: Delta) {
        if let Some(count) = self.0.get(Self::class(duration)) {
            count.increment();
        }
    }

    /// Prints the classes that are not empty, one `what limit count` a line. The limit is in
    /// nanoseconds: durations in a class are shorter than it, and not shorter than the limit
    /// before.
    pub(crate) fn show(&self, seq: &SeqFile, what: fmt::Arguments<'_>) {
        let mut limit = 1u64 << 10;
        for count in self.0.iter().map(Counter::get) {
            if limit >> 10 == 1 << (CLASSES - 1) && count != 0 {
                seq_print!(seq, "{what} inf {count}\n");
            } else if count != 0 {
                seq_print!(seq, "{what} {limit} {count}\n");
            }
            limit <<= 1;
        }
    }
}

/// The latency of RPCs by form, from the Send to the arrival of the Reply.
pub(crate) struct Latency([Histogram; Form::COUNT]);

impl Latency {
    /// All at zero.
    pub(crate) const fn new() -> Self {
        Self([const { Histogram::new() }; Form::COUNT])
    }

    /// Counts an RPC that took this long.
    pub(crate) fn record(&self, form: Form, duration: Delta) {
        if let Some(counts) = self.0.get(form.index()) {
            counts.record(duration);
        }
    }

    /// Prints the classes that are not empty, one `call reply limit count` a line.
    pub(crate) fn show(&self, seq: &SeqFile) {
        for ((_, call, reply), counts) in Form::all().zip(&self.0) {
            counts.show(seq, fmt!("{call} {reply}"));
        }
    }
}

/// How often something came to an end for each cause, and the last time.
#[derive(Clone, Copy)]
pub(crate) struct Ends {
    counts: [u64; Cause::ALL.len()],
    last: Option<(Cause, Instant<BootTime>)>,
}

impl Ends {
    /// There were none.
    pub(crate) const NONE: Self = Self {
        counts: [0; Cause::ALL.len()],
        last: None,
    };

    /// Counts one, which is the last one from now on.
    pub(crate) fn add(&mut self, cause: Cause) {
        // CAST: The place among all causes.
        if let Some(count) = self.counts.get_mut(cause as usize) {
            *count = count.saturating_add(1);
        }
        self.last = Some((cause, Instant::now()));
    }

    /// How many there were.
    pub(crate) fn sum(&self) -> u64 {
        self.counts
            .iter()
            .fold(0, |sum, count| u64::saturating_add(sum, *count))
    }

    /// Prints the counts that are not zero, one `what_cause count` a line.
    pub(crate) fn show_counts(&self, seq: &SeqFile, what: &str) {
        for (cause, count) in Cause::ALL.iter().zip(self.counts) {
            if count != 0 {
                seq_print!(seq, "{what}_{} {count}\n", cause.name());
            }
        }
    }

    /// Prints the last cause, if there was one, and how many milliseconds ago it occurred.
    pub(crate) fn show_last(&self, seq: &SeqFile, what: &str) {
        if let Some((cause, when)) = self.last {
            let age = when.elapsed().as_millis();
            seq_print!(
                seq,
                "last_{what} {}\nlast_{what}_age_ms {age}\n",
                cause.name()
            );
        }
    }
}

/// Prints what both ends of a connection announced (RFC 8797).
pub(crate) fn show_private_data(seq: &SeqFile, own: &PrivateData, peer: Option<&PrivateData>) {
    for (end, said) in [("own", Some(own)), ("peer", peer)] {
        let Some(said) = said else { continue };
        seq_print!(seq, "{end}_send {}\n", said.send.bytes());
        seq_print!(seq, "{end}_receive {}\n", said.receive.bytes());
        let may = u32::from(said.remote_invalidation);
        seq_print!(seq, "{end}_remote_invalidation {may}\n");
    }
}

#[cfg(rpcrdma_kunit)]
#[kernel::macros::kunit_tests(rpcrdma_stats)]
mod tests {
    use super::*;

    #[test]
    fn a_latency_is_below_the_limit_of_its_class() {
        for (nanoseconds, class) in [
            (i64::MIN, 0),
            (0, 0),
            (1023, 0),
            (1024, 1),
            (2047, 1),
            (2048, 2),
            (1 << 20, 11),
            ((1 << 34) - 1, 24),
            (1 << 34, 25),
            (i64::MAX, 25),
        ] {
            assert_eq!(Histogram::class(Delta::from_nanos(nanoseconds)), class);
        }
    }

    #[test]
    fn calls_are_counted_by_both_forms() {
        let calls = Forms::new();
        for (call, reply) in [(0, 0), (0, 1), (1, 0), (3, 2), (3, 2)] {
            calls.record(Form { call, reply });
        }
        let with_call = [0, 1, 2, 3].map(|call| calls.sum(|form| form.call == call));
        assert_eq!(with_call, [2, 1, 0, 2]);
        let with_reply = [0, 1, 2, 3].map(|reply| calls.sum(|form| form.reply == reply));
        assert_eq!(with_reply, [2, 1, 2, 0]);
    }

    #[test]
    fn each_form_has_its_own_counts() {
        let latency = KBox::new(Latency::new(), GFP_KERNEL).unwrap();
        let meant = Form { call: 1, reply: 2 };
        latency.record(meant, Delta::from_micros(5));
        for ((form, ..), counts) in Form::all().zip(&latency.0) {
            let sum: u64 = counts.0.iter().map(Counter::get).sum();
            assert_eq!(sum, u64::from(form == meant));
        }
        assert_eq!(latency.0[meant.index()].0[3].get(), 1);
    }
}
