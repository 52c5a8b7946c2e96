// SPDX-License-Identifier: GPL-2.0

//! Received messages and their parts.

use std::collections::{BTreeMap, VecDeque};

use crate::proto::message::{Body, Message, MIN_PAYLOAD_LEN};
use crate::proto::requester::decode::{decode_received, Received, ReceivedReply};
use crate::proto::requester::reconcile::{Delivery, Mismatch};
use crate::proto::responder::call::ReceivedCall;
use crate::proto::responder::decode::ReceivedByResponder;
use crate::proto::responder::stream::{Source, StreamPiece};
use crate::proto::testing::hostile;
use crate::proto::testing::responder::decode::decode_call;
use crate::proto::wire::chunk::{Chunk, Lists, ReadSegment, Segment};
use crate::proto::wire::encode::{put_read_list, put_reply_chunk, put_write_list};
use crate::proto::wire::header::Versions;
use crate::proto::wire::private_data::{negotiate, PrivateData, Thresholds, PRIVATE_DATA_LEN};
use crate::proto::wire::xdr::{Reader, Writer};

/// One message, received by either role, of Version One only or of both.
pub fn message(bytes: &[u8]) {
    let mut scratch = vec![0; bytes.len().max(64)];
    assert_eq!(hostile::check(bytes, &mut scratch), Ok(()));
    if let Ok(ReceivedByResponder::Call(call)) = decode_call(bytes, Versions::ONE_AND_TWO) {
        check_stream(&call);
        check_index(&call, bytes);
        for chunk in call.lists.writes.chunks().chain(call.lists.reply) {
            check_filled(&chunk);
        }
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
            base.push_front((length - taken, rest));
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
    let layout = call.layout;
    let total = call.stream().last().map(|piece| piece.at + piece.length);
    assert_eq!(total, Some(layout.total()));
    let inline = call
        .payload
        .map_or(0, |bytes| u32::try_from(bytes.len()).unwrap());
    let chunks = call.lists.reads.chunks().filter(|chunk| chunk.length > 0);
    match (call.payload, chunks.count()) {
        (Some(_), 0) => assert_eq!((layout.head, layout.pages, layout.tail), (inline, 0, 0)),
        (Some(_), 1) => assert_eq!(layout.head + layout.tail, inline),
        _ => assert_eq!((layout.head, layout.tail), (0, 0)),
    }
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
    let index = call.index(bytes.len());
    let buffer = [bytes, &[0xff; 9]].concat();
    let again = index.call(&buffer).unwrap();
    assert_eq!(
        (again.xid, again.version, again.credits),
        (call.xid, call.version, call.credits)
    );
    assert_eq!((again.payload, again.layout), (call.payload, call.layout));
    assert!(again.stream().eq(call.stream()));
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

fn put_lists(writer: &mut Writer<'_>, lists: &Lists<'_>) {
    put_read_list(writer, lists.reads.segments()).unwrap();
    let writes = lists.writes.chunks().map(|chunk| chunk.segments());
    put_write_list(writer, writes).unwrap();
    put_reply_chunk(writer, lists.reply.map(|chunk| chunk.segments())).unwrap();
}

/// The three chunk lists alone, wherever in a message they are.
pub fn chunk_lists(bytes: &[u8]) {
    let mut reader = Reader::new(bytes);
    let lists = match Lists::take(&mut reader) {
        Ok(lists) => lists,
        Err(why) => {
            assert!(why.at <= bytes.len());
            return;
        }
    };
    let (taken, rest) = bytes.split_at(reader.position());
    assert!(std::ptr::eq(rest, reader.rest()));
    let mut buffer = vec![0; taken.len()];
    let mut writer = Writer::new(&mut buffer);
    put_lists(&mut writer, &lists);
    assert_eq!(writer.position(), taken.len());
    assert_eq!(buffer, taken);
    assert_eq!(lists.is_empty(), taken == [0; 12]);

    // The Read chunks are the Read segments, gathered by Position.
    let entries: Vec<_> = lists.reads.segments().collect();
    let mut gathered = BTreeMap::new();
    for entry in &entries {
        assert_eq!(entry.position % 4, 0);
        let sum: &mut u64 = gathered.entry(entry.position).or_default();
        *sum += u64::from(entry.segment.length);
    }
    let chunks = lists.reads.chunks();
    assert!(chunks
        .map(|chunk| (chunk.position, chunk.length))
        .eq(gathered.clone()));
    for (position, length) in gathered {
        assert_eq!(lists.reads.length_at(position), length);
        assert!(length <= u64::from(u32::MAX));
    }
    let reads = entries.into_iter().map(|entry| entry.segment);
    let chunks = lists.writes.chunks().chain(lists.reply);
    for segment in reads.chain(chunks.flat_map(|chunk| chunk.segments())) {
        let end = u128::from(segment.offset) + u128::from(segment.length);
        assert!(end <= 1 << 64);
    }
}

/// Bytes in front of the message that [`reconcile`] takes.
pub(super) const OFFER_LEN: usize = 16;

/// A Reply, and what its Call offered: the returned segments, changed as the first bytes say.
pub fn reconcile(input: &[u8]) {
    let Some((changes, bytes)) = input.split_at_checked(OFFER_LEN) else {
        return;
    };
    let Ok(Received::Reply(reply)) = decode_received(bytes, Versions::ONE_AND_TWO) else {
        return;
    };
    let Ok(Message {
        body: Body::Msg { lists, .. } | Body::Nomsg { lists },
        ..
    }) = Message::decode(bytes, Versions::ONE_AND_TWO)
    else {
        panic!("a Reply that is no message");
    };
    let mut changes = changes.iter().cycle();
    let mut returned = lists.writes.chunks();
    let offered = [returned.next(), returned.next(), lists.reply].map(|chunk| {
        let mut lengths = chunk.map(|chunk| lengths(&chunk)).unwrap_or_default();
        match changes.next().unwrap_or(&0) {
            1 => lengths.push(8),
            2 => lengths.truncate(1),
            3 => lengths.clear(),
            _ => {}
        }
        for (length, change) in lengths.iter_mut().zip(&mut changes) {
            *length = match change {
                1 => length.saturating_add(1),
                2 => length.saturating_sub(1),
                3 => u32::MAX,
                4 => 0,
                _ => *length,
            };
        }
        lengths
    });
    let [first, second, chunk] = &offered;
    let result = delivered(&reply, [first, second], chunk);
    let returned: Vec<_> = lists.writes.chunks().map(|c| lengths(&c)).collect();
    let mut wanted: Vec<&[u32]> = vec![first, second];
    wanted.retain(|chunk| !chunk.is_empty());
    let placed = |offered: &[u32], returned: &[u32]| {
        offered.len() == returned.len() && offered.iter().zip(returned).all(|(o, r)| r <= o)
    };
    let writes_fit = returned.is_empty()
        || returned.len() == wanted.len()
            && wanted.iter().zip(&returned).all(|(w, r)| placed(w, r));
    let in_chunk = lists.reply.map(|chunk| lengths(&chunk));
    let chunk_fits = in_chunk
        .as_ref()
        .is_none_or(|r| !chunk.is_empty() && placed(chunk, r));
    let in_chunk = placement(chunk, &in_chunk.unwrap_or_default());
    let one_payload = match reply.payload {
        Some(_) => in_chunk.total == 0,
        None => in_chunk.contiguous >= MIN_PAYLOAD_LEN,
    };
    assert_eq!(result.is_ok(), writes_fit && chunk_fits && one_payload);
    let Ok((writes, reply)) = result else {
        return;
    };
    assert_eq!(reply, in_chunk);
    let mut returned = returned.into_iter();
    for (delivery, offered) in writes.into_iter().zip([first, second]) {
        let returned = if offered.is_empty() {
            None
        } else {
            returned.next()
        };
        assert_eq!(delivery, placement(offered, &returned.unwrap_or_default()));
    }
}

/// What segments of these lengths hold that were returned with those.
fn placement(offered: &[u32], returned: &[u32]) -> Delivery {
    let bytes = |count: usize| returned.iter().take(count).map(|&n| u64::from(n)).sum();
    let full = offered.iter().zip(returned).take_while(|(o, r)| o == r);
    Delivery {
        total: bytes(returned.len()),
        contiguous: bytes(full.count() + 1),
    }
}

fn delivered(
    reply: &ReceivedReply<'_>,
    writes: [&[u32]; 2],
    chunk: &[u32],
) -> Result<([Delivery; 2], Delivery), Mismatch> {
    let writes = writes.map(|lengths| lengths.iter().copied());
    let result = reply.reconcile(writes, chunk.iter().copied());
    result.map(|delivered| (delivered.writes, delivered.reply))
}

/// The segment lengths of `chunk`.
pub(super) fn lengths(chunk: &Chunk<'_>) -> Vec<u32> {
    chunk.segments().map(|segment| segment.length).collect()
}

/// The private data of a connection manager's message.
pub fn private_data(bytes: &[u8]) {
    let first = bytes
        .windows(PRIVATE_DATA_LEN)
        .position(|w| w.starts_with(&[0xf6, 0xab, 0x0e, 0x18, 1]));
    let found = PrivateData::find(bytes);
    assert_eq!(found.map(|(at, _)| at), first);
    let own = PrivateData::DEFAULT;
    let Some((at, message)) = found else {
        assert_eq!(negotiate(own, None), negotiate(own, Some(own)));
        return;
    };
    // The other flags are reserved: sent as 0, ignored when received.
    let mut expected = bytes[at..at + PRIVATE_DATA_LEN].to_vec();
    expected[5] &= 1;
    assert_eq!(message.encode(), *expected);
    let Thresholds {
        send,
        receive,
        remote_invalidation,
    } = negotiate(own, Some(message));
    assert_eq!((send, receive, remote_invalidation), (1024, 1024, false));
    let same = negotiate(message, Some(message));
    assert_eq!(same.send, same.receive);
    assert_eq!(
        same.send,
        1024 * (1 + u32::from(expected[6].min(expected[7])))
    );
    assert_eq!(same.remote_invalidation, expected[5] == 1);
}
