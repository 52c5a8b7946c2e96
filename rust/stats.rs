// SPDX-License-Identifier: GPL-2.0

//! Counters of one transport, from its setup to its end, and what its connection has agreed on.
//!
//! They are relaxed and for people: a reader sees each of them exactly, but not all at one moment.

use kernel::{
    seq_file::SeqFile,
    seq_print,
    sync::atomic::{Atomic, Relaxed},
};

/// A counter that only grows.
pub(crate) struct Counter(Atomic<u64>);

impl Counter {
    const fn new() -> Self {
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

    /// Adds a number of bytes, or of things in memory.
    pub(crate) fn add_len(&self, len: usize) {
        self.add(u64::try_from(len).unwrap_or(0));
    }

    /// Puts another value in the place of the old one, for a number that is not a count.
    pub(crate) fn set(&self, value: u32) {
        self.0.store(value.into(), Relaxed);
    }

    /// The count so far.
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The counters of a transport.
        pub(crate) struct Stats {
            $($(#[$doc])* pub(crate) $name: Counter,)*
        }

        impl Stats {
            /// All at zero.
            pub(crate) const fn new() -> Self {
                Self { $($name: Counter::new(),)* }
            }

            /// Writes them, one `name value` a line.
            pub(crate) fn show(&self, seq: &SeqFile) {
                $(seq_print!(seq, "{} {}\n", stringify!($name), self.$name.get());)*
            }
        }
    };
}

counters! {
    /// Calls whose message went inline.
    inline_calls,
    /// Calls with the data in a Read chunk.
    read_chunk_calls,
    /// Calls that are a Position Zero Read chunk as a whole.
    position_zero_calls,
    /// Calls without room for results but in the Reply message.
    inline_replies_expected,
    /// Calls that offered a Write chunk.
    write_chunk_calls,
    /// Calls that offered a Reply chunk.
    reply_chunk_calls,
    /// Replies that came in the Reply chunk.
    reply_chunk_replies,
    /// Read segments sent.
    read_segments,
    /// Write segments sent.
    write_segments,
    /// Reply chunk segments sent.
    reply_segments,
    /// Bytes offered in Write and Reply chunks.
    offered_bytes,
    /// Bytes that the peer reported to have written to them.
    delivered_bytes,
    /// Bytes of Calls copied into send buffers.
    pullup_bytes,
    /// Bytes of Replies copied out of receive buffers into pages.
    fixup_bytes,
    /// Calls that could not be marshalled at the time.
    failed_marshals,
    /// Replies that were malformed or an RDMA_ERROR.
    bad_replies,
    /// Messages that were dropped: undecodable, or no Call waits for them.
    dropped_messages,
    /// RDMA_ERROR messages sent.
    errors_sent,
    /// Memory regions made.
    regions_allocated,
    /// Regions that a Reply invalidated.
    remote_invalidations,
    /// Regions invalidated by a work request of our own.
    local_invalidations,
    /// Sends that found no send buffer.
    send_queue_full,
    /// Sends that found no memory region.
    regions_exhausted,
    /// Backward Calls handed to the callback service.
    backward_calls,
    /// Backward Calls that found no service or no room.
    backward_overflows,
    /// Work requests that failed, other than by the connection's end.
    failed_requests,
    /// The largest message to send on the last connection, in bytes.
    inline_send,
    /// The largest message to receive on the last connection, in bytes.
    inline_receive,
    /// The credits last granted.
    granted_credits,
}
