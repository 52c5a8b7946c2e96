// SPDX-License-Identifier: GPL-2.0

//! Properties of generated messages, chunk lists, plans and flow control.

mod credits;
mod plans;
mod rpcs;

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;

use crate::proto::requester::decode::{decode_received, Received};
use crate::proto::requester::encode::encode_call;
use crate::proto::requester::plan::header_len;
use crate::proto::responder::decode::ReceivedByResponder;
use crate::proto::testing::hostile::check;
use crate::proto::testing::responder::decode::decode_call;
use crate::proto::wire::chunk::{Lists, ReadSegment, Segment};
use crate::proto::wire::encode::encode_header;
use crate::proto::wire::header::{
    Credits, FixedHeader, Procedure, Versions, Xid, FIXED_LEN, VERSION_ONE,
};
use crate::proto::wire::malformed::HeaderError;
use crate::proto::wire::private_data::{negotiate, InlineSize, PrivateData};
use crate::proto::wire::xdr::Reader;

/// The most segments of a generated list.
const MAX_SEGMENTS: usize = 5;

prop_compose! {
    /// A segment that ends inside the address space.
    fn segment()(handle: u32, length: u32, offset: u64) -> Segment {
        let highest = u64::MAX - u64::from(length.saturating_sub(1));
        Segment { handle, length, offset: offset.min(highest) }
    }
}

fn segments() -> impl Strategy<Value = Vec<Segment>> {
    vec(segment(), 1..=MAX_SEGMENTS)
}

prop_compose! {
    /// The fixed words of a message.
    fn fixed(procedure: Procedure)(xid: u32, credits in 1u32..) -> FixedHeader {
        let credits = Credits::new(credits);
        FixedHeader { xid: Xid(xid), version: VERSION_ONE, credits, procedure }
    }
}

/// The chunks of a Read list with these Positions and lengths.
fn read_chunks(reads: &[(u32, u32)]) -> Result<Vec<(u32, u64)>, HeaderError> {
    let entries = reads.iter().map(|&(position, length)| ReadSegment {
        position,
        segment: Segment {
            handle: 1,
            length,
            offset: 0,
        },
    });
    let fixed = FixedHeader {
        xid: Xid(0),
        version: VERSION_ONE,
        credits: Credits::new(1),
        procedure: Procedure::Msg,
    };
    let none: [std::iter::Empty<Segment>; 0] = [];
    let mut bytes = vec![0; 24 * reads.len() + 28];
    encode_header(
        &mut bytes,
        &fixed,
        entries,
        none.clone(),
        none.into_iter().next(),
    )
    .unwrap();
    let lists = Lists::decode(&mut Reader::new(&bytes[FIXED_LEN..]))?;
    let chunks = lists.reads.chunks();
    Ok(chunks
        .map(|chunk| (chunk.position, chunk.length()))
        .collect())
}

proptest! {
    /// Proves: V1-051.
    #[test]
    fn read_segments_are_joined_by_position(
        mut reads in vec((0u32..12, 0u32..1 << 25), 0..100),
        is_ordered: bool,
    ) {
        for (position, _) in &mut reads {
            // All but that of the message type.
            *position = if *position == 0 { 0 } else { 4 * (*position + 1) };
        }
        if is_ordered {
            reads.sort_unstable();
        }
        let mut sums = BTreeMap::new();
        for &(position, length) in &reads {
            *sums.entry(position).or_insert(0) += u64::from(length);
        }
        prop_assert_eq!(read_chunks(&reads), Ok(sums.into_iter().collect::<Vec<_>>()));
    }

    /// Proves: V1-005, V1-085, V1-092.
    #[test]
    fn calls_round_trip(
        fixed in fixed(Procedure::Msg),
        reads in vec((2u32..64, segment()), 0..=MAX_SEGMENTS),
        writes in vec(segments(), 0..=3),
        reply in vec(segment(), 0..=MAX_SEGMENTS),
        payload in vec(any::<u8>(), 0..64),
    ) {
        // Lengths do not matter here; short chunks far apart fit any Payload.
        let reads: Vec<_> = reads
            .into_iter()
            .map(|(position, segment)| ReadSegment {
                position: position * 4,
                segment: Segment { length: 0, ..segment },
            })
            .collect();
        let mut buffer = vec![0; 1024];
        let chunks = writes.iter().map(|chunk| chunk.iter().copied());
        let length = encode_call(
            &mut buffer, &fixed, reads.iter().copied(), chunks, reply.iter().copied(),
        ).unwrap();
        let count = |n: usize| u32::try_from(n).unwrap();
        let expected = header_len(
            count(reads.len()),
            writes.iter().map(|chunk| count(chunk.len())),
            (!reply.is_empty()).then_some(count(reply.len())),
        );
        prop_assert_eq!(u64::try_from(length), Ok(expected));

        buffer.truncate(length);
        buffer.extend(fixed.xid.0.to_be_bytes());
        buffer.extend([0; 4]);
        buffer.extend([0; 256]);
        buffer.extend(payload);
        prop_assert_eq!(check(&buffer, &mut vec![0; buffer.len()]), Ok(()));
        let Ok(ReceivedByResponder::Call(call)) = decode_call(&buffer, Versions::ONE) else {
            return Err(TestCaseError::fail("not a Call"));
        };
        prop_assert_eq!(call.index.xid, fixed.xid);
        prop_assert_eq!(call.index.credits, fixed.credits);
        prop_assert_eq!(call.payload, buffer.get(length..));
        prop_assert!(call.lists.reads.segments().eq(reads));
        let decoded: Vec<Vec<_>> =
            call.lists.writes.chunks().map(|chunk| chunk.segments().collect()).collect();
        prop_assert_eq!(decoded, writes);
        let decoded: Vec<_> =
            call.lists.reply.into_iter().flat_map(|chunk| chunk.segments()).collect();
        prop_assert_eq!(decoded, reply);
    }

    /// Proves: V1-063, V1-064, V1-066, V1-110.
    #[test]
    fn a_responder_and_a_requester_agree_on_what_was_delivered(
        fixed in fixed(Procedure::Msg),
        writes in vec(segments(), 2),
        used in [any::<u64>(), any::<u64>()],
    ) {
        let none = std::iter::empty::<Segment>();
        let chunks = writes.iter().map(|chunk| chunk.iter().copied());
        let mut call = vec![0; 1024];
        let length = encode_call(&mut call, &fixed, [], chunks, none).unwrap();
        call.truncate(length);
        call.extend(fixed.xid.0.to_be_bytes());
        call.extend([0; 4]);
        let Ok(ReceivedByResponder::Call(received)) = decode_call(&call, Versions::ONE) else {
            return Err(TestCaseError::fail("not a Call"));
        };

        let placed: Vec<u64> = received.lists.writes.chunks()
            .zip(used)
            .map(|(chunk, used)| used % (chunk.length() + 1))
            .collect();
        let filled = received.lists.writes.chunks()
            .zip(&placed)
            .map(|(chunk, &used)| chunk.filled(used));
        let mut reply = vec![0; 1024];
        let no_chunk = None::<std::iter::Empty<Segment>>;
        let length = encode_header(&mut reply, &fixed, [], filled, no_chunk).unwrap();
        reply.truncate(length);
        reply.extend(fixed.xid.0.to_be_bytes());
        reply.extend([0, 0, 0, 1]);
        let Ok(Received::Reply(received)) = decode_received(&reply, Versions::ONE) else {
            return Err(TestCaseError::fail("not a Reply"));
        };
        let offered = |index: usize| writes[index].iter().map(|segment| segment.length);
        let result = received.reconcile([offered(0), offered(1)], std::iter::empty());
        let delivered = result.unwrap().writes;
        for (delivery, placed) in delivered.iter().zip(placed) {
            prop_assert_eq!((delivery.total, delivery.contiguous), (placed, placed));
        }
    }

    /// Proves: SEC-015.
    #[test]
    fn any_bytes_decode_to_something_inside(
        mut bytes in vec(any::<u8>(), 0..256),
        procedure in 0u8..6,
        small in any::<bool>(),
    ) {
        // Random words seldom look like a header, so the first ones are helped.
        for (slot, byte) in bytes.iter_mut().skip(4).zip([0, 0, 0, 1]) {
            *slot = byte;
        }
        for (slot, byte) in bytes.iter_mut().skip(12).zip([0, 0, 0, procedure]) {
            *slot = byte;
        }
        if small {
            for word in bytes.chunks_mut(4).skip(4) {
                for (slot, mask) in word.iter_mut().zip([0, 0, 0, 5]) {
                    *slot &= mask;
                }
            }
        }
        prop_assert_eq!(check(&bytes, &mut vec![0; bytes.len()]), Ok(()));
    }

    /// Proves: PD-027, PD-028, PD-029, SEC-016.
    #[test]
    fn both_ends_agree_on_the_thresholds(
        a in any::<[u32; 2]>(),
        b in any::<[u32; 2]>(),
        r: [bool; 2],
    ) {
        let message = |[send, receive]: [u32; 2], remote_invalidation| {
            Some(PrivateData {
                send: InlineSize::from_bytes(send)?,
                receive: InlineSize::from_bytes(receive)?,
                remote_invalidation,
            })
        };
        let (Some(client), Some(server)) = (message(a, r[0]), message(b, r[1])) else {
            return Ok(());
        };
        let seen = |message: &PrivateData| PrivateData::find(&message.encode()).map(|(_, m)| m);
        let at_client = negotiate(client, seen(&server));
        let at_server = negotiate(server, seen(&client));
        prop_assert_eq!(at_client.send, at_server.receive);
        prop_assert_eq!(at_client.receive, at_server.send);
        prop_assert_eq!(at_client.remote_invalidation, at_server.remote_invalidation);
        prop_assert!(at_client.send <= a[0].min(b[1]));
    }
}
