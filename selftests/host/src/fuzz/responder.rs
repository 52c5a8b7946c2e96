// SPDX-License-Identifier: GPL-2.0

//! Whole connections at a responder.

use std::collections::{BTreeMap, VecDeque};

use super::Input;
use crate::proto::message::{Body, Message, MessageType};
use crate::proto::requester::encode::encode_call;
use crate::proto::responder::budget::CallBudget;
use crate::proto::responder::call::{CallIndex, ReceivedCall};
use crate::proto::responder::decode::{decode_call, ReceivedByResponder};
use crate::proto::responder::encode::encode_garbage_args;
use crate::proto::responder::grants::Grants;
use crate::proto::responder::placement::{Placement, Range, ReplyPlan};
use crate::proto::responder::refusal::ResponderRefusal;
use crate::proto::responder::stream::{Source, StreamPiece};
use crate::proto::wire::chunk::{Chunk, Lists, ReadSegment, Segment};
use crate::proto::wire::encode::encode_inline;
use crate::proto::wire::header::{Credits, FixedHeader, Procedure, Versions, Xid, VERSION_ONE};
use crate::proto::wire::xdr::Reader;

const BUDGET: CallBudget = CallBudget {
    read_segments: 6,
    read_chunks: 3,
    read_bytes: 20_000,
    write_chunks: 3,
    write_segments: 4,
    reply_segments: 3,
};

/// The threshold, which all headers of Calls within the budget fit.
const THRESHOLD: u32 = 1024;

/// Any messages, many of them Calls, any results for those that are served, and limits that change.
pub fn responder(input: &[u8]) {
    let mut input = Input(input);
    let mut connection = Connection::new(Credits::new(input.below(8).into()));
    while !input.0.is_empty() {
        match input.below(8) {
            0 => {
                let length = usize::from(input.below(200)).min(input.0.len());
                let (message, rest) = input.0.split_at(length);
                input.0 = rest;
                connection.receive(message);
            }
            1..=4 => {
                let message = call(&mut input);
                assert!(connection.receive(&message), "a Call was ignored");
            }
            5 | 6 => connection.answer(&mut input),
            _ => connection.set_limit(Credits::new(input.below(8).into())),
        }
    }
}

/// A Call with chunks of any shape, some of them beyond the budget or outside the message.
fn call(input: &mut Input<'_>) -> Vec<u8> {
    let is_long = input.below(4) == 0;
    let length = usize::from(input.below(64)) * 4 + 8;
    let segment = |input: &mut Input<'_>| Segment {
        handle: input.byte().into(),
        length: input.size() & 0xffff,
        offset: u64::from(input.byte()) << 40,
    };
    let mut reads = Vec::new();
    let mut position = if is_long { 0 } else { 8 };
    for _ in 0..input.below(8) {
        let read = segment(input);
        reads.push(ReadSegment {
            position,
            segment: read,
        });
        match input.below(4) {
            0 | 1 => {}
            2 => position += 4 * u32::from(input.below(16)) + read.length.next_multiple_of(4),
            _ => position += 4 * u32::from(input.below(16)),
        }
    }
    let mut segments = |most| -> Vec<_> {
        let count = input.below(most);
        (0..count).map(|_| segment(input)).collect()
    };
    let counts = [6, 5, 5, 3].map(&mut segments);
    let reply = segments(5);
    let fixed = FixedHeader {
        xid: Xid(7),
        version: VERSION_ONE,
        credits: Credits::new(5),
        procedure: if is_long {
            Procedure::Nomsg
        } else {
            Procedure::Msg
        },
    };
    let writes = counts.iter().map(|chunk| chunk.iter().copied());
    let mut message = vec![0; 4096];
    let header = encode_call(&mut message, &fixed, reads, writes, reply.into_iter()).unwrap();
    message.truncate(header);
    if !is_long {
        message.extend(fixed.xid.0.to_be_bytes());
        message.resize(header + length, 0);
    }
    message
}

/// A Call that waits for its Reply.
struct Served {
    index: CallIndex,
    buffer: Vec<u8>,
    /// Whether the requester had a credit for it.
    within: bool,
}

/// One connection, and what is known of it.
struct Connection {
    grants: Grants,
    /// The highest limit that there was.
    highest: u32,
    calls: VecDeque<Served>,
}

impl Connection {
    fn new(limit: Credits) -> Self {
        Self {
            grants: Grants::new(limit.get(), u32::MAX),
            highest: limit.get(),
            calls: VecDeque::new(),
        }
    }

    fn set_limit(&mut self, limit: Credits) {
        self.grants.raise(limit.get());
        self.highest = self.highest.max(limit.get());
    }

    /// Receives a message; returns whether it is a Call or was answered.
    fn receive(&mut self, bytes: &[u8]) -> bool {
        let (refused, credits) = match decode_call(bytes, Versions::ONE, &BUDGET) {
            Ok(ReceivedByResponder::Call(call)) => {
                check_call(&call, bytes);
                check_budget(&call);
                let within = self.grants.call(call.index.credits);
                self.calls.push_back(Served {
                    index: call.index,
                    buffer: [bytes, &[0xff; 64]].concat(),
                    within,
                });
                let within = self.calls.iter().filter(|call| call.within).count();
                assert!(within <= usize::try_from(self.highest).unwrap());
                return true;
            }
            Ok(_) => return false,
            Err(refused) => (refused.at_responder(), refused.fixed),
        };
        match refused {
            ResponderRefusal::Discard => return false,
            ResponderRefusal::Answer(error) => {
                let requested = credits.unwrap().credits;
                let _ = self.grants.call(requested);
                let mut buffer = [0; 28];
                let length = error.encode(&mut buffer, self.grants.reply()).unwrap();
                assert_eq!(buffer[..4], bytes[..4]);
                assert!(length <= 28);
            }
            ResponderRefusal::GarbageArgs(_) => {
                let _ = self.grants.call(credits.unwrap().credits);
                let credits = self.grants.reply();
                let mut buffer = [0; 4096];
                let length = encode_garbage_args(&mut buffer, bytes, credits).unwrap();
                check_returned(bytes, &buffer[..length], Procedure::Msg, |_| 0);
            }
        }
        true
    }

    /// The first Call is served, with any results.
    fn answer(&mut self, input: &mut Input<'_>) {
        let Some(served) = self.calls.pop_front() else {
            return;
        };
        let call = served.index.call(&served.buffer).unwrap();
        let mut placement = Placement::default();
        let mut at = 24u32;
        // The results so far, and for each of them that is in a Write chunk its number.
        let mut placed = Vec::<(Option<u32>, Range)>::new();
        let mut too_large = Vec::<Range>::new();
        for _ in 0..input.below(8) {
            at += 4 * u32::from(input.byte());
            if input.below(8) == 0 {
                at = at.saturating_sub(1000).max(24);
            }
            let length = input.size() & 0x3fff;
            let range = Range { at, length };
            let is_before = |range: &Range| range.at < at && range.at + range.length <= at;
            placed.retain(|(_, range)| is_before(range));
            too_large.retain(|range| range.at + range.length <= at);
            let chunk = call.lists.writes.chunks().nth(placed.len());
            let number = placement.place(&call, at, length);
            match chunk.filter(|_| length > 0).map(|chunk| chunk_size(&chunk)) {
                None => assert_eq!(number, None),
                Some(None) => {
                    assert_eq!(number, None);
                    placed.push((None, Range { at, length: 0 }));
                }
                Some(Some(size)) if size < u64::from(length) => {
                    assert_eq!(number, None);
                    too_large.push(range);
                }
                Some(Some(_)) => {
                    assert_eq!(number, u32::try_from(placed.len()).ok());
                    placed.push((number, range));
                }
            }
            at += length.next_multiple_of(4);
        }
        if input.below(8) == 0 {
            at = at.saturating_sub(u32::from(input.byte())).max(24);
        }
        placed.retain(|(_, range)| range.at + range.length <= at);
        too_large.retain(|range| range.at + range.length <= at);
        let placed = placed.iter();
        let placed = placed.filter_map(|&(number, range)| Some((number?, range)));
        let placed: Vec<_> = placed.collect();
        let threshold = if input.below(4) == 0 { 600 } else { THRESHOLD };
        let credits = self.grants.reply();
        let finished = placement.finish(&call, at, threshold);
        let is_possible = too_large.is_empty() && fits(&call, &placed, at, threshold);
        assert_eq!(finished.is_ok(), is_possible);
        let Ok(plan) = finished else {
            return;
        };
        assert!(plan.header_len + plan.inline_len <= threshold);
        let lengths = plan.results().zip(0..);
        let lengths = lengths.filter(|(range, _)| range.length > 0);
        let results: Vec<_> = lengths.map(|(range, chunk)| (chunk, range)).collect();
        assert_eq!(results, placed);
        check_rest(&plan, &results, at);
        check_writes(&call, &plan, &results);

        let mut buffer = [0xee; 1024];
        let header = plan.encode(&mut buffer, &call, credits).unwrap();
        assert_eq!(u32::try_from(header), Ok(plan.header_len));
        if !served.index.offers_memory {
            let mut inline = [0xee; 1024];
            let length = encode_inline(&mut inline, call.index.version, call.index.xid, credits);
            assert_eq!(length, Ok(header));
            assert_eq!(inline, buffer);
        }
        let mut message = buffer[..header].to_vec();
        if plan.inline_len > 0 {
            message.extend(call.index.xid.0.to_be_bytes());
            message.extend([0, 0, 0, 1]);
        }
        check_returned(&served.buffer, &message, plan.procedure(), |number| match (
            number,
            results.iter().find(|result| Some(result.0) == number),
        ) {
            (None, _) => plan.reply_chunk_len,
            (_, result) => result.map_or(0, |(_, range)| range.length),
        });
    }
}

/// The bytes of a chunk, if it has segments.
fn chunk_size(chunk: &Chunk<'_>) -> Option<u64> {
    let mut segments = chunk.segments().peekable();
    segments.peek()?;
    Some(segments.map(|segment| u64::from(segment.length)).sum())
}

/// Whether a Reply of `total` bytes, of which `placed` are in Write chunks, fits a Send of `threshold`
/// bytes, or the Reply chunk and the header alone such a Send.
fn fits(call: &ReceivedCall<'_>, placed: &[(u32, Range)], total: u32, threshold: u32) -> bool {
    // A word says how many segments there are, another one that there is a Write chunk.
    let size = |chunk: Chunk<'_>| 4 + 16 * u32::try_from(chunk.segments().count()).unwrap();
    let writes = call.lists.writes.chunks().map(|chunk| 4 + size(chunk));
    let header = 28 + writes.sum::<u32>() + call.lists.reply.map_or(0, size);
    let taken = placed.iter().map(|(_, range)| {
        let padded = range.length.next_multiple_of(4);
        padded.min(total - range.at)
    });
    let rest = total - taken.sum::<u32>();
    let room = call.lists.reply.and_then(|chunk| chunk_size(&chunk));
    header + rest <= threshold || header <= threshold && room.unwrap_or(0) >= u64::from(rest)
}

/// Checks that a Call has no more than the budget.
fn check_budget(call: &ReceivedCall<'_>) {
    let (lists, layout) = (&call.lists, &call.index.layout);
    assert!(layout.pages == 0 || layout.pages + layout.tail <= 20_000);
    let reads: Vec<_> = lists.reads.segments().collect();
    let bytes: u64 = reads
        .iter()
        .map(|read| u64::from(read.segment.length))
        .sum();
    let mut positions: Vec<_> = reads.iter().map(|read| read.position).collect();
    positions.sort_unstable();
    positions.dedup();
    assert!(reads.len() <= 6 && positions.len() <= 3 && bytes <= 20_000);
    let writes = lists.writes.chunks();
    assert!(writes.clone().count() <= 3);
    for chunk in writes {
        assert!(chunk.segments().count() <= 4);
    }
    let reply = lists.reply.map_or(0, |chunk| chunk.segments().count());
    assert!(reply <= 3);
}

/// Checks that the rest of a Reply of `total` bytes is all that is neither a result nor its padding.
fn check_rest(plan: &ReplyPlan<'_>, results: &[(u32, Range)], total: u32) {
    let mut results = results.iter();
    let mut next = results.next();
    let mut rest = plan.rest();
    let mut range = rest.next();
    let (mut at, mut sum) = (0, 0);
    while at < total {
        if let Some(found) = range.filter(|range| range.at == at) {
            assert_ne!(found.length, 0);
            at += found.length;
            sum += found.length;
            range = rest.next();
        } else {
            let (_, result) = next.unwrap();
            assert_eq!(result.at, at);
            at += result.length;
            at += (result.length.next_multiple_of(4) - result.length).min(total - at);
            next = results.next();
        }
    }
    assert_eq!((at, range, next), (total, None, None));
    assert_eq!(sum, plan.inline_len + plan.reply_chunk_len);
}

/// An RDMA Write: where in the RPC message its bytes start, and where they go.
#[derive(Debug, PartialEq)]
struct RdmaWrite {
    at: u32,
    target: Segment,
}

/// The RDMA Writes of a Reply, in their order.
fn rdma_writes(call: &ReceivedCall<'_>, plan: &ReplyPlan<'_>) -> VecDeque<RdmaWrite> {
    let writes = plan.rdma_writes(call);
    writes
        .map(|(at, target)| RdmaWrite { at, target })
        .collect()
}

/// Checks that the RDMA Writes fill each chunk from its start, with the bytes that belong there.
fn check_writes(call: &ReceivedCall<'_>, plan: &ReplyPlan<'_>, results: &[(u32, Range)]) {
    let mut writes = rdma_writes(call, plan);
    for (number, chunk) in (0..).zip(call.lists.writes.chunks()) {
        let result = results.iter().find(|result| result.0 == number);
        let ranges = result.map(|(_, range)| *range);
        check_filling(&mut writes, ranges, &chunk);
    }
    if let Some(chunk) = call.lists.reply.filter(|_| plan.reply_chunk_len > 0) {
        check_filling(&mut writes, plan.rest(), &chunk);
    }
    assert_eq!(writes, []);
}

/// Takes off `writes` those that bring `ranges` into `chunk`.
fn check_filling(
    writes: &mut VecDeque<RdmaWrite>,
    ranges: impl IntoIterator<Item = Range>,
    chunk: &Chunk<'_>,
) {
    let mut segments = chunk.segments().filter(|segment| segment.length > 0);
    let mut room = segments.next();
    for Range { at, length } in ranges {
        let mut done = 0;
        while done < length {
            let write = writes.pop_front().unwrap();
            let segment = room.unwrap();
            assert_eq!(write.at, at + done);
            assert_eq!(
                (write.target.handle, write.target.offset),
                (segment.handle, segment.offset)
            );
            let taken = write.target.length;
            assert!(taken > 0 && taken <= segment.length && done + taken <= length);
            done += taken;
            room = if taken == segment.length {
                segments.next()
            } else {
                Some(Segment {
                    length: segment.length - taken,
                    offset: segment.offset + u64::from(taken),
                    ..segment
                })
            };
        }
    }
}

/// Checks that the Reply `message` to `call` is what a requester decodes, and returns all chunks
/// with `length` bytes in the Write chunk of each number, or in the Reply chunk.
fn check_returned(
    call: &[u8],
    message: &[u8],
    procedure: Procedure,
    length: impl Fn(Option<u32>) -> u32,
) {
    // Of the message that was received only the lists count: behind them may be anything.
    let mut reader = Reader::new(call);
    FixedHeader::decode(&mut reader).unwrap();
    let offered = Lists::decode(&mut reader).unwrap();
    let reply = Message::decode(message, Versions::ONE).unwrap();
    assert_eq!(reply.fixed.procedure, procedure);
    let returned = match reply.body {
        Body::Msg {
            lists,
            message_type: MessageType::Reply,
            ..
        }
        | Body::Nomsg { lists } => lists,
        _ => panic!("no Reply"),
    };
    assert!(returned.reads.is_empty());
    assert_eq!(returned.reply.is_some(), offered.reply.is_some());
    let numbers = (0..).map(Some);
    let offered_writes: Vec<_> = offered.writes.chunks().collect();
    let returned_writes: Vec<_> = returned.writes.chunks().collect();
    assert_eq!(offered_writes.len(), returned_writes.len());
    let writes = offered_writes.iter().zip(returned_writes).zip(numbers);
    let writes = writes.map(|((a, b), number)| (*a, b, length(number)));
    let reply = offered.reply.zip(returned.reply);
    let reply = reply.map(|(a, b)| (a, b, length(None)));
    for (offered, returned, length) in writes.chain(reply) {
        let mut left = length;
        let mut segments = returned.segments();
        for segment in offered.segments() {
            let used = left.min(segment.length);
            left -= used;
            let expected = Segment {
                length: used,
                ..segment
            };
            assert_eq!(segments.next(), Some(expected));
        }
        assert_eq!((left, segments.next()), (0, None));
    }
}

/// What holds for each Call: its stream, its layout, and its index; `bytes` are its message.
pub(super) fn check_call(call: &ReceivedCall<'_>, bytes: &[u8]) {
    check_stream(call);
    check_index(call, bytes);
    for chunk in call.lists.writes.chunks().chain(call.lists.reply) {
        check_filled(&chunk);
    }
}

/// The pieces of the RPC message of a Call, put together from lists of what there is.
fn pieces(call: &ReceivedCall<'_>) -> Vec<StreamPiece> {
    let mut chunks = BTreeMap::<u32, VecDeque<(u32, Source)>>::new();
    for ReadSegment { position, segment } in call.lists.reads.segments() {
        let Segment {
            handle,
            offset,
            length,
        } = segment;
        let chunk = chunks.entry(position).or_default();
        chunk.push_back((length, Source::Read { handle, offset }));
    }
    let mut base = chunks.remove(&0).unwrap_or_default();
    if let Some(payload) = call.payload {
        base.push_back((payload.len().try_into().unwrap(), Source::Inline(0)));
    }
    let mut pieces = Vec::new();
    let mut at = 0u32;
    let mut push = |at: &mut u32, length, source| {
        if length > 0 {
            pieces.push(StreamPiece {
                at: *at,
                length,
                source,
            });
        }
        *at += length;
    };
    for (position, chunk) in chunks {
        while at < position {
            let (length, source) = base.pop_front().unwrap();
            let taken = length.min(position - at);
            push(&mut at, taken, source);
            let rest = match source {
                Source::Read { handle, offset } => Source::Read {
                    handle,
                    offset: offset.wrapping_add(taken.into()),
                },
                Source::Inline(from) => Source::Inline(from + taken),
                Source::RoundUp => source,
            };
            if length > taken {
                base.push_front((length - taken, rest));
            }
        }
        for (length, source) in chunk {
            push(&mut at, length, source);
        }
        // Each chunk starts at a word.
        let padding = at.wrapping_neg() % 4;
        push(&mut at, padding, Source::RoundUp);
    }
    for (length, source) in base {
        push(&mut at, length, source);
    }
    pieces
}

/// Checks the stream of a Call, and that its layout keeps in the Receive buffer what can stay there.
fn check_stream(call: &ReceivedCall<'_>) {
    assert_eq!(call.stream().collect::<Vec<_>>(), pieces(call));
    let layout = call.index.layout;
    let total = call.stream().last().map(|piece| piece.at + piece.length);
    assert_eq!(total, Some(layout.total()));
    let inline = call
        .payload
        .map_or(0, |bytes| u32::try_from(bytes.len()).unwrap());
    let chunks = call.lists.reads.chunks().filter(|chunk| chunk.length() > 0);
    match (call.payload, chunks.count()) {
        (Some(_), 0) => assert_eq!((layout.head, layout.pages, layout.tail), (inline, 0, 0)),
        (Some(_), 1) => assert_eq!(layout.head + layout.tail, inline),
        _ => assert_eq!((layout.head, layout.tail), (0, 0)),
    }
    let expected = call.stream().filter_map(|piece| match piece.source {
        Source::Read { handle, offset } => {
            let (at, length) = (piece.at - layout.head, piece.length);
            let segment = Segment {
                handle,
                length,
                offset,
            };
            Some((at, segment))
        }
        Source::Inline(_) | Source::RoundUp => None,
    });
    assert!(expected.eq(call.reads()));
    for piece in call.stream() {
        let in_pages = piece.at >= layout.head && piece.at - layout.head < layout.pages;
        let is_inline = matches!(piece.source, Source::Inline(_));
        assert!(in_pages || is_inline);
        if let (Source::Inline(from), false) = (piece.source, in_pages) {
            let skipped = if piece.at < layout.head {
                0
            } else {
                layout.pages
            };
            assert_eq!(from + skipped, piece.at);
        }
    }
}

/// Checks that a Call can be had again without decoding its message.
fn check_index(call: &ReceivedCall<'_>, bytes: &[u8]) {
    let index = call.index;
    let buffer = [bytes, &[0xff; 9]].concat();
    let again = index.call(&buffer).unwrap();
    assert_eq!(
        (again.index.xid, again.index.version, again.index.credits),
        (call.index.xid, call.index.version, call.index.credits)
    );
    assert_eq!(
        (again.payload, again.index.layout),
        (call.payload, call.index.layout)
    );
    assert!(again.stream().eq(call.stream()));
    let lists = &call.lists;
    let offers_memory = lists.writes.count() != 0 || lists.reply.is_some();
    assert_eq!(index.reads, (lists.reads.count(), lists.reads.length()));
    assert_eq!(
        (index.is_inline, index.offers_memory),
        (call.payload.is_some(), offers_memory)
    );
    let chunks = |call: &ReceivedCall<'_>| -> Vec<Vec<Segment>> {
        let chunks = call.lists.writes.chunks().chain(call.lists.reply);
        chunks.map(|chunk| chunk.segments().collect()).collect()
    };
    assert_eq!(chunks(&again), chunks(call));
    assert_eq!(again.lists.reply.is_some(), call.lists.reply.is_some());
    let shorter = bytes
        .split_last()
        .map(|(_, bytes)| bytes)
        .unwrap_or_default();
    assert!(index.call(shorter).is_none());
}

/// Checks that a responder uses a chunk in order and no more of it than there is.
fn check_filled(chunk: &Chunk<'_>) {
    let capacity = chunk.length();
    for length in [0, 1, capacity / 2, capacity, u64::MAX] {
        let mut left = length;
        for (offered, used) in chunk.segments().zip(chunk.filled(length)) {
            assert_eq!(u64::from(used.length), left.min(offered.length.into()));
            assert_eq!((used.handle, used.offset), (offered.handle, offered.offset));
            left -= u64::from(used.length);
        }
        assert_eq!(left, length.saturating_sub(capacity));
    }
}
