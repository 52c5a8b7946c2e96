// SPDX-License-Identifier: GPL-2.0

//! What is counted of one connection.
//!
//! Nearly all of it is counted by completion handlers, which never run two at a time for one
//! connection: what is counted of a Reply is kept with its Send, and added when that has completed.

use super::sendto::{ReplyInfo, SendInfo};
use crate::{
    proto::{
        responder::{call::CallIndex, placement::ReplyPlan},
        wire::error::ErrorBody,
    },
    stats::{counters, Counter, Form, Forms, Histogram},
    sysctl::ServerCounter,
};
use kernel::{prelude::*, seq_file::SeqFile, seq_print, time::Delta};

counters! {
    /// The counters of a connection.
    struct Counters;
    /// Messages that arrived.
    received_messages: Counter,
    /// Segments that RDMA Reads have fetched.
    read_segments: Counter,
    /// Bytes of them, with the round-up of XDR.
    read_bytes: Counter,
    /// Calls beyond what the requester was granted.
    excess_calls: Counter,
    /// Segments that RDMA Writes have filled, wholly or in part.
    write_segments: Counter,
    /// Bytes of them.
    write_bytes: Counter,
    /// Bytes of Replies that were sent inline, not counting transport headers.
    inline_reply_bytes: Counter,
    /// Replies that have invalidated a handle of the requester.
    remote_invalidations: Counter,
    /// Chains that were pending, as the send queue was full.
    send_queue_full: Counter,
    /// Messages that the service was not given, whether the transport answered them or not.
    refused_messages: Counter,
    /// RDMA_ERROR messages sent with ERR_VERS.
    vers_errors_sent: Counter,
    /// RDMA_ERROR messages sent with ERR_CHUNK.
    chunk_errors_sent: Counter,
    /// RDMA_ERROR messages sent with RDMA_ERR_INVAL_OPTION.
    option_errors_sent: Counter,
    /// Calls answered with GARBAGE_ARGS.
    garbage_args_sent: Counter,
    /// Backward Calls that were sent.
    backward_calls: Counter,
    /// Work requests that failed, other than by the connection's end.
    failed_requests: Counter,
}

impl Form {
    /// The form of a Call, and of the Reply that is sent.
    pub(super) fn new(call: &CallIndex, plan: &ReplyPlan<'_>) -> Self {
        let is_placed = plan.results().any(|result| result.length != 0);
        Self {
            call: match (call.layout.read_chunks, call.is_inline) {
                (0, _) => Self::INLINE_CALL,
                (1, true) => Self::READ_CHUNK,
                (1, false) => Self::POSITION_ZERO,
                _ => Self::SEVERAL_READ_CHUNKS,
            },
            reply: u8::from(is_placed) * Self::WRITE_CHUNKS
                | u8::from(plan.reply_chunk_len != 0) * Self::REPLY_CHUNK,
        }
    }
}

/// All that is counted.
pub(super) struct Stats {
    pub(super) counters: Counters,
    forms: Forms,
    waiting: Histogram,
    reading: Histogram,
    executing: Histogram,
    sending: Histogram,
}

impl Stats {
    /// All at zero.
    pub(super) const fn new() -> Self {
        Self {
            counters: Counters::new(),
            forms: Forms::new(),
            waiting: Histogram::new(),
            reading: Histogram::new(),
            executing: Histogram::new(),
            sending: Histogram::new(),
        }
    }

    /// Counts a message that has arrived. In a completion handler.
    pub(super) fn received(&self) {
        self.counters.received_messages.increment();
        ServerCounter::Receives.add(1);
    }

    /// Counts the RDMA Reads for a Call, which took `took`. In a completion handler.
    pub(super) fn read(&self, call: &CallIndex, took: Delta) {
        let (segments, bytes) = call.reads;
        self.counters.read_segments.add(u64::from(segments));
        self.counters.read_bytes.add(bytes);
        self.reading.record(took);
        ServerCounter::Reads.add(segments);
    }

    /// Counts what was sent. In a completion handler.
    pub(super) fn sent(&self, sent: &SendInfo) {
        let counters = &self.counters;
        match sent {
            SendInfo::Idle | SendInfo::Reads(_) => {}
            SendInfo::Reply(reply) => self.replied(reply),
            SendInfo::Error(ErrorBody::Version(_)) => counters.vers_errors_sent.increment(),
            SendInfo::Error(ErrorBody::Chunk) => counters.chunk_errors_sent.increment(),
            SendInfo::Error(ErrorBody::InvalidOption) => counters.option_errors_sent.increment(),
            SendInfo::GarbageArgs => counters.garbage_args_sent.increment(),
            SendInfo::BackwardCall => counters.backward_calls.increment(),
        }
    }

    fn replied(&self, reply: &ReplyInfo) {
        let counters = &self.counters;
        self.forms.record(reply.form);
        counters.inline_reply_bytes.add(u64::from(reply.inline));
        if reply.segments != 0 {
            counters.write_segments.add(u64::from(reply.segments));
            counters.write_bytes.add(reply.bytes);
            ServerCounter::Writes.add(reply.segments);
        }
        if reply.has_invalidated {
            counters.remote_invalidations.increment();
        }
        self.waiting.record(reply.taken - reply.complete);
        self.executing.record(reply.replied - reply.taken);
        self.sending.record(reply.replied.elapsed());
    }

    /// Counts a chain that becomes pending.
    pub(super) fn queue_is_full(&self) {
        self.counters.send_queue_full.increment();
        ServerCounter::SendQueueFull.add(1);
    }

    /// RPCs that were answered.
    pub(super) fn answers(&self) -> u64 {
        self.forms.sum(|_| true)
    }

    /// Writes the counters, one `name value` a line. Of the forms, only those that occurred are
    /// shown.
    pub(super) fn show(&self, seq: &SeqFile) {
        seq_print!(seq, "answered_calls {}\n", self.answers());
        self.forms.show_answers(seq);
        self.counters.show(seq);
    }

    /// Writes how long the steps took, one `step limit count` a line.
    pub(super) fn show_latency(&self, seq: &SeqFile) {
        self.reading.show(seq, fmt!("reading"));
        self.waiting.show(seq, fmt!("waiting"));
        self.executing.show(seq, fmt!("executing"));
        self.sending.show(seq, fmt!("sending"));
    }
}
