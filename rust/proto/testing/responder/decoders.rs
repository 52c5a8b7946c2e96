// SPDX-License-Identifier: GPL-2.0

//! The decoders of common Calls beside the one of all messages.

use super::decode::UNLIMITED;
use crate::proto::responder::budget::CallBudget;
use crate::proto::responder::call::ReceivedCall;
use crate::proto::responder::decode::{decode_any, ReceivedByResponder};
use crate::proto::wire::chunk::{Chunk, Segment};
use crate::proto::wire::header::Versions;
use crate::proto::wire::private_data::Thresholds;

/// A budget that many messages exceed, in several ways.
const SMALL: CallBudget = CallBudget {
    read_segments: 2,
    read_chunks: 1,
    read_bytes: 4096,
    write_chunks: 1,
    write_segments: 2,
    reply_segments: 1,
};

const AGREED: Thresholds = Thresholds {
    remote_invalidation: true,
    ..Thresholds::DEFAULT
};

/// Checks that what one of the decoders takes for a Call is one to all of them, and the same one.
///
/// # Errors
///
/// What is not so.
pub(crate) fn check_decoders(bytes: &[u8], versions: Versions) -> Result<(), &'static str> {
    for budget in [UNLIMITED, SMALL] {
        for call in [
            ReceivedCall::take_inline(bytes, versions, &budget),
            ReceivedCall::take_whole(bytes, versions, &budget),
            ReceivedCall::take_one_read(bytes, versions, &budget),
            ReceivedCall::take_reduced(bytes, versions, &budget),
        ] {
            let Some(call) = call else {
                continue;
            };
            let Ok(ReceivedByResponder::Call(other)) = decode_any(bytes, versions, &budget) else {
                return Err("only one decoder takes it for a Call");
            };
            if !is_same(&call, &other) {
                return Err("the decoders see different Calls");
            }
            if !is_same_work(bytes, &call, &other) {
                return Err("the decoders see different chunks");
            }
        }
    }
    Ok(())
}

fn is_same(one: &ReceivedCall<'_>, other: &ReceivedCall<'_>) -> bool {
    let payload = |call: &ReceivedCall<'_>| call.payload.map(<[u8]>::as_ptr_range);
    let words = |call: &ReceivedCall<'_>| {
        let lists = &call.lists;
        (
            (call.xid, call.version, call.credits, call.header_len),
            (lists.reads.count(), lists.reads.length()),
            lists.writes.position(),
        )
    };
    words(one) == words(other) && payload(one) == payload(other) && one.layout == other.layout
}

/// Whether both have the same chunks, also when they are put together from their indexes.
fn is_same_work(bytes: &[u8], one: &ReceivedCall<'_>, other: &ReceivedCall<'_>) -> bool {
    let index = |call: &ReceivedCall<'_>| call.index(bytes.len());
    let (first, second) = (index(one), index(other));
    let facts = [first, second].map(|index| {
        let handle = index
            .call(bytes)
            .map(|call| call.handle_to_invalidate(&AGREED));
        (
            (index.reads(), index.offers_memory(), index.is_inline()),
            handle,
        )
    });
    let [same, expected] = facts;
    let reads = |call: &ReceivedCall<'_>| sum_of_reads(|each| call.for_each_read(each));
    let reads_of_index = sum_of_reads(|each| first.for_each_read(bytes, (), each));
    let mut writes = (one.lists.writes.chunks(), other.lists.writes.chunks());
    let has_same_writes = loop {
        match (writes.0.next(), writes.1.next()) {
            (None, None) => break true,
            (a, b) if !is_same_chunk(a, b) => break false,
            _ => {}
        }
    };
    same == expected
        && reads(one) == reads(other)
        && reads_of_index == reads(other)
        && has_same_writes
        && is_same_chunk(one.lists.reply, other.lists.reply)
}

fn is_same_chunk(one: Option<Chunk<'_>>, other: Option<Chunk<'_>>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => {
            one.count() == other.count() && one.segments().eq(other.segments())
        }
        (one, other) => one.is_none() && other.is_none(),
    }
}

/// A sum over all that is to be read, which depends on the order.
fn sum_of_reads(
    walk: impl FnOnce(&mut dyn FnMut(u32, Segment) -> Result<(), ()>) -> Result<(), ()>,
) -> Result<u64, ()> {
    let mut sum = 0u64;
    walk(&mut |at, segment| {
        for word in [
            u64::from(at),
            u64::from(segment.handle),
            u64::from(segment.length),
            segment.offset,
        ] {
            sum = sum.wrapping_mul(0x0100_0000_01b3).wrapping_add(word);
        }
        Ok(())
    })?;
    Ok(sum)
}
