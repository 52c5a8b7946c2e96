// SPDX-License-Identifier: GPL-2.0

//! The counters of one transport, from its setup to its end, and the types that the counters of
//! both roles consist of.
//!
//! They are relaxed, and meant for people: a reader sees each counter exactly, but not all of them
//! at one moment.

use crate::{
    proto::requester::plan::{CallForm, Plan, ReplyForm},
    sunrpc::RelaxedCell,
};
use kernel::{
    fmt,
    prelude::*,
    seq_file::SeqFile,
    seq_print,
    sync::atomic::{Atomic, Relaxed},
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

    /// Adds a number of objects in memory.
    pub(crate) fn add_len(&self, len: usize) {
        // CAST: The kernel's usize always fits a u64.
        self.add(len as u64);
    }

    /// The present count.
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// A counter that only one thread at a time increments: the sender, or the completion handler.
/// Concurrent increments would be lost.
pub(crate) struct SoleCounter(RelaxedCell<u64>);

impl SoleCounter {
    /// A counter at zero.
    pub(crate) const fn new() -> Self {
        Self(RelaxedCell::new(0))
    }

    /// Adds one.
    pub(crate) fn increment(&self) {
        self.add(1);
    }

    /// Adds `count`.
    pub(crate) fn add(&self, count: u64) {
        self.0.set(self.get().wrapping_add(count));
    }

    /// Adds a number of bytes.
    pub(crate) fn add_len(&self, len: usize) {
        // CAST: The kernel's usize always fits a u64.
        self.add(len as u64);
    }

    /// The present count.
    pub(crate) fn get(&self) -> u64 {
        self.0.get()
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
    reply_chunk_replies: SoleCounter,
    /// Read segments sent.
    read_segments: SoleCounter,
    /// Write segments sent.
    write_segments: SoleCounter,
    /// Reply chunk segments sent.
    reply_segments: SoleCounter,
    /// Bytes offered in Write and Reply chunks.
    offered_bytes: SoleCounter,
    /// Bytes that the peer reported having written to them.
    delivered_bytes: SoleCounter,
    /// Bytes of Calls copied into send buffers.
    pullup_bytes: SoleCounter,
    /// Bytes of Replies copied out of receive buffers into pages.
    fixup_bytes: SoleCounter,
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
    remote_invalidations: SoleCounter,
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
    /// 0: inline; 1: with a Read chunk; 2: as a Position Zero chunk.
    pub(crate) call: u8,
    /// 0: inline; 1: with a Write chunk offered; 2: with a Reply chunk offered.
    pub(crate) reply: u8,
}

impl Form {
    /// Both inline.
    pub(crate) const INLINE: Self = Self { call: 0, reply: 0 };

    const CALLS: [&'static str; 3] = ["inline", "read", "position_zero"];
    const REPLIES: [&'static str; 3] = ["inline", "write", "reply"];

    /// Its place among all forms, by Call and then by Reply.
    fn index(self) -> usize {
        usize::from(self.call)
            .saturating_mul(Self::REPLIES.len())
            .saturating_add(self.reply.into())
    }
}

impl From<&Plan> for Form {
    fn from(plan: &Plan) -> Self {
        Self {
            call: match plan.call {
                CallForm::Inline => 0,
                CallForm::ReadChunk { .. } => 1,
                CallForm::PositionZero => 2,
            },
            reply: match plan.reply {
                ReplyForm::Inline => 0,
                ReplyForm::WriteChunk => 1,
                ReplyForm::ReplyChunk => 2,
            },
        }
    }
}

/// Calls by form.
pub(crate) struct Calls([[SoleCounter; Form::REPLIES.len()]; Form::CALLS.len()]);

impl Calls {
    /// No Calls so far.
    pub(crate) const fn new() -> Self {
        Self([const { [const { SoleCounter::new() }; 3] }; 3])
    }

    /// Counts a Call.
    pub(crate) fn record(&self, form: Form) {
        if let Some(count) = self.0.as_flattened().get(form.index()) {
            count.increment();
        }
    }

    /// Calls with this form.
    fn with_call(&self, call: u8) -> u64 {
        self.sum(|form| form.call == call)
    }

    /// Calls that expect a Reply of this form.
    fn with_reply(&self, reply: u8) -> u64 {
        self.sum(|form| form.reply == reply)
    }

    fn sum(&self, is_meant: impl Fn(Form) -> bool) -> u64 {
        let calls = (0u8..).zip(&self.0);
        let forms = calls.flat_map(|(call, replies)| {
            (0u8..)
                .zip(replies)
                .map(move |(reply, count)| (Form { call, reply }, count))
        });
        forms
            .filter(|&(form, _)| is_meant(form))
            .fold(0, |sum, (_, count)| u64::saturating_add(sum, count.get()))
    }

    /// Calls that were sent as a Position Zero Read chunk.
    pub(crate) fn position_zero(&self) -> u64 {
        self.with_call(2)
    }

    /// Prints them, one `name value` a line.
    pub(crate) fn show(&self, seq: &SeqFile) {
        for (name, value) in [
            ("inline_calls", self.with_call(0)),
            ("read_chunk_calls", self.with_call(1)),
            ("position_zero_calls", self.position_zero()),
            ("inline_replies_expected", self.with_reply(0)),
            ("write_chunk_calls", self.with_reply(1)),
            ("reply_chunk_calls", self.with_reply(2)),
        ] {
            seq_print!(seq, "{name} {value}\n");
        }
    }
}

/// The number of latency classes: one below 1024 ns, then one for each doubling. The last one, from
/// 34 s on, is open-ended.
const CLASSES: usize = 26;

/// A histogram of durations.
pub(crate) struct Histogram([SoleCounter; CLASSES]);

impl Histogram {
    /// An empty histogram.
    pub(crate) const fn new() -> Self {
        Self([const { SoleCounter::new() }; CLASSES])
    }

    /// The class of this many nanoseconds.
    fn class(nanoseconds: u64) -> usize {
        // The lowest bit stands for all below 1024 ns, as 0 has no logarithm.
        let doublings = ((nanoseconds >> 9) | 1).ilog2();
        // CAST: At most 54.
        (doublings as usize).min(CLASSES - 1)
    }

    /// Counts a duration.
    pub(crate) fn record(&self, nanoseconds: u64) {
        if let Some(count) = self.0.get(Self::class(nanoseconds)) {
            count.increment();
        }
    }

    /// Prints the classes that are not empty, one `what limit count` a line. The limit is in
    /// nanoseconds: durations in a class are shorter than it, and not shorter than the limit
    /// before.
    pub(crate) fn show(&self, seq: &SeqFile, what: fmt::Arguments<'_>) {
        let mut limit = 1u64 << 10;
        for count in self.0.iter().map(SoleCounter::get) {
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
///
/// Replies of one connection are handled one after the other, and so are connections.
pub(crate) struct Latency([[Histogram; Form::REPLIES.len()]; Form::CALLS.len()]);

impl Latency {
    /// All at zero.
    pub(crate) const fn new() -> Self {
        Self([const { [const { Histogram::new() }; 3] }; 3])
    }

    /// Counts an RPC that took this long.
    pub(crate) fn record(&self, form: Form, nanoseconds: u64) {
        if let Some(counts) = self.0.as_flattened().get(form.index()) {
            counts.record(nanoseconds);
        }
    }

    /// Prints the classes that are not empty, one `call reply limit count` a line.
    pub(crate) fn show(&self, seq: &SeqFile) {
        for (call, replies) in Form::CALLS.iter().zip(&self.0) {
            for (reply, counts) in Form::REPLIES.iter().zip(replies) {
                counts.show(seq, fmt!("{call} {reply}"));
            }
        }
    }
}

#[cfg(rpcrdma_kunit)]
#[kernel::macros::kunit_tests(rpcrdma_stats)]
mod tests {
    use super::*;

    #[test]
    fn a_latency_is_below_the_limit_of_its_class() {
        for (nanoseconds, class) in [
            (0, 0),
            (1023, 0),
            (1024, 1),
            (2047, 1),
            (2048, 2),
            (1 << 20, 11),
            ((1 << 34) - 1, 24),
            (1 << 34, 25),
            (u64::MAX, 25),
        ] {
            assert_eq!(Histogram::class(nanoseconds), class);
        }
    }

    #[test]
    fn calls_are_counted_by_both_forms() {
        let calls = Calls::new();
        for (call, reply) in [(0, 0), (0, 1), (1, 0), (2, 2), (2, 2)] {
            calls.record(Form { call, reply });
        }
        assert_eq!([0, 1, 2].map(|call| calls.with_call(call)), [2, 1, 2]);
        assert_eq!([0, 1, 2].map(|reply| calls.with_reply(reply)), [2, 1, 2]);
        assert_eq!(calls.position_zero(), 2);
    }

    #[test]
    fn each_form_has_its_own_counts() {
        let latency = KBox::new(Latency::new(), GFP_KERNEL).unwrap();
        let form = Form { call: 1, reply: 2 };
        latency.record(form, 5000);
        for (call, replies) in latency.0.iter().enumerate() {
            for (reply, counts) in replies.iter().enumerate() {
                let sum: u64 = counts.0.iter().map(SoleCounter::get).sum();
                assert_eq!(sum, u64::from((call, reply) == (1, 2)));
            }
        }
        assert_eq!(latency.0[1][2].0[3].get(), 1);
    }
}
