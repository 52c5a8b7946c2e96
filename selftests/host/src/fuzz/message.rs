// SPDX-License-Identifier: GPL-2.0

//! Received messages and their parts.

use std::collections::BTreeMap;

use super::responder::check_call;
use crate::proto::message::{Body, Message, MIN_PAYLOAD_LEN};
use crate::proto::requester::decode::{decode_received, Received, ReceivedReply};
use crate::proto::requester::reconcile::{Delivery, Mismatch};
use crate::proto::responder::decode::ReceivedByResponder;
use crate::proto::testing::hostile;
use crate::proto::testing::responder::decode::decode_call;
use crate::proto::wire::chunk::{Chunk, Lists};
use crate::proto::wire::encode::encode_header;
use crate::proto::wire::header::{
    Credits, FixedHeader, Procedure, Versions, Xid, FIXED_LEN, VERSION_ONE,
};
use crate::proto::wire::private_data::{negotiate, PrivateData, Thresholds, PRIVATE_DATA_LEN};
use crate::proto::wire::xdr::Reader;

/// One message, received by either role, of Version One only or of both.
pub fn message(bytes: &[u8]) {
    let mut scratch = vec![0; bytes.len().max(64)];
    assert_eq!(hostile::check(bytes, &mut scratch), Ok(()));
    if let Ok(ReceivedByResponder::Call(call)) = decode_call(bytes, Versions::ONE_AND_TWO) {
        check_call(&call, bytes);
    }
}

fn encode(buffer: &mut [u8], fixed: &FixedHeader, lists: &Lists<'_>) -> usize {
    let writes = lists.writes.chunks().map(|chunk| chunk.segments());
    let reply = lists.reply.map(|chunk| chunk.segments());
    encode_header(buffer, fixed, lists.reads.segments(), writes, reply).unwrap()
}

/// The three chunk lists alone, wherever in a message they are.
pub fn chunk_lists(bytes: &[u8]) {
    let mut reader = Reader::new(bytes);
    let lists = match Lists::decode(&mut reader) {
        Ok(lists) => lists,
        Err(error) => {
            assert!(error.position(reader.position()) <= bytes.len());
            return;
        }
    };
    let (taken, rest) = bytes.split_at(reader.position());
    assert!(std::ptr::eq(rest, reader.rest()));
    let fixed = FixedHeader {
        xid: Xid(0),
        version: VERSION_ONE,
        credits: Credits::new(1),
        procedure: Procedure::Msg,
    };
    let mut buffer = vec![0; FIXED_LEN + taken.len()];
    assert_eq!(encode(&mut buffer, &fixed, &lists), buffer.len());
    assert_eq!(&buffer[FIXED_LEN..], taken);
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
        .map(|chunk| (chunk.position, chunk.length()))
        .eq(gathered.clone()));
    for (position, length) in gathered {
        assert_eq!(lists.reads.chunk(position).length(), length);
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
