// SPDX-License-Identifier: GPL-2.0

//! Every message of the vector file, cut at every byte and with every byte changed to every value.
//!
//! Whatever decodes must lie inside its message and must be the message that was sent.

use crate::proto::call::{decode_call, encode_call, ReceivedByResponder};
use crate::proto::chunk::{header_len, Lists};
use crate::proto::cursor::Reader;
use crate::proto::header::{Credits, FixedHeader, Procedure, Versions, FIXED_LEN};
use crate::proto::message::{Body, Message, Refusal};
use crate::proto::private_data::{PrivateData, PRIVATE_DATA_LEN};
use crate::proto::reply::{decode_received, encode_reply, Received};
use crate::vectors::tests::{messages, private_messages};

/// Decodes `bytes` in every way and checks what comes out.
pub(crate) fn decode_everything(bytes: &[u8]) {
    for versions in [Versions::ONE, Versions::ONE_AND_TWO] {
        decode_as(bytes, versions);
    }
}

/// Decodes `bytes` at an endpoint that supports `versions`.
fn decode_as(bytes: &[u8], versions: Versions) {
    match decode_received(bytes, versions) {
        Ok(Received::Reply(reply)) => {
            inside(bytes, reply.header_len, reply.payload);
            let offered = [4096u32; 3].into_iter();
            let result = reply.reconcile([offered.clone()], offered);
            if let Ok(delivered) = result {
                let [write] = delivered.writes;
                for delivery in [write, delivered.reply] {
                    assert!(delivery.total <= 3 * 4096);
                    assert!(delivery.contiguous <= delivery.total);
                }
            }
        }
        Ok(Received::BackwardCall(call)) => inside(bytes, call.header_len, Some(call.payload)),
        Ok(Received::Error(_)) => {}
        Err(refused) => {
            assert!(refused.why.at <= bytes.len());
            for answer in [false, true] {
                refused.at_requester(answer, true);
            }
        }
    }
    match decode_call(bytes, versions) {
        Ok(ReceivedByResponder::Call(call)) => inside(bytes, call.header_len, call.payload),
        Ok(ReceivedByResponder::BackwardReply { payload, .. }) => {
            inside(bytes, bytes.len() - payload.len(), Some(payload));
        }
        Ok(ReceivedByResponder::Error(_)) => {}
        Err(refused) => {
            assert!(refused.why.at <= bytes.len());
            refused.at_responder();
        }
    }
    if let Ok(message) = Message::decode(bytes, versions) {
        match message.body {
            Body::Msg { lists, .. } | Body::Nomsg { lists } => same_header(bytes, &message, &lists),
            Body::Error(_) => assert!(message.header_len <= bytes.len()),
            Body::Optional { option, payload } => {
                inside(
                    bytes,
                    message.header_len,
                    (!payload.is_empty()).then_some(payload),
                );
                let header = &bytes[..message.header_len];
                let mut buffer = vec![0; header.len()];
                let FixedHeader { xid, credits, .. } = message.fixed;
                let length = option.encode(&mut buffer, xid, credits);
                assert_eq!(length, Ok(header.len()));
                // Pad bytes may have any value.
                let end = 24 + option.optinfo.len();
                assert_eq!(buffer[12..end], header[12..end]);
            }
        }
    }
}

/// Checks that header and Payload are the two parts of `bytes`.
fn inside(bytes: &[u8], header_len: usize, payload: Option<&[u8]>) {
    let (_, rest) = bytes.split_at(header_len);
    assert!(std::ptr::eq(rest, payload.unwrap_or(rest)));
    assert_eq!(payload.is_none(), rest.is_empty());
}

/// Checks that `lists` encode to the header they came from.
fn same_header(bytes: &[u8], message: &Message<'_>, lists: &Lists<'_>) {
    let header = &bytes[..message.header_len];
    let count = |n: usize| u32::try_from(n).unwrap();
    let computed = header_len(
        count(lists.reads.segments().count()),
        lists.writes.chunks().map(|c| count(c.segments().count())),
        lists.reply.map(|c| count(c.segments().count())),
    );
    assert_eq!(u64::try_from(header.len()), Ok(computed));

    let mut buffer = vec![0; header.len()];
    let writes = lists.writes.chunks().map(|chunk| chunk.segments());
    let reply = lists.reply.map(|chunk| chunk.segments());
    let length = if lists.reads.is_empty() {
        encode_reply(&mut buffer, &message.fixed, writes, reply)
    } else if lists
        .writes
        .chunks()
        .chain(lists.reply)
        .all(|c| c.segments().count() > 0)
    {
        let reply: Vec<_> = reply.into_iter().flatten().collect();
        let reads = lists.reads.segments();
        encode_call(
            &mut buffer,
            &message.fixed,
            reads,
            writes,
            reply.into_iter(),
        )
    } else {
        // The encoder of a Call leaves out chunks without segments.
        return;
    };
    assert_eq!(length, Ok(header.len()));
    // A credit word of 0 is read as 1.
    let (credits, expected) = (8..12, &header[8..12]);
    if expected != [0; 4] {
        assert_eq!(&buffer[credits.clone()], expected);
    }
    assert_eq!(&buffer[..credits.start], &header[..credits.start]);
    assert_eq!(&buffer[credits.end..], &header[credits.end..]);
}

/// Calls `check` with every change of one byte of `bytes`.
fn change_every_byte(bytes: &[u8], mut check: impl FnMut(&[u8])) {
    let mut changed = bytes.to_vec();
    for (at, &original) in bytes.iter().enumerate() {
        for step in 1..=255 {
            changed[at] = original.wrapping_add(step);
            check(&changed);
        }
        changed[at] = original;
    }
}

#[test]
fn truncated_messages_are_handled() {
    for message in messages() {
        for length in 0..=message.len() {
            decode_everything(&message[..length]);
        }
    }
}

#[test]
fn a_truncated_header_is_never_taken_for_a_message() {
    let versions = Versions::ONE_AND_TWO;
    for message in messages() {
        let Ok(whole) = Message::decode(&message, versions) else {
            continue;
        };
        for length in 0..whole.header_len {
            assert!(Message::decode(&message[..length], versions).is_err());
        }
    }
}

#[test]
fn changed_messages_are_handled() {
    for message in messages() {
        change_every_byte(&message, decode_everything);
    }
}

#[test]
fn changed_and_truncated_private_data_is_handled() {
    let check = |bytes: &[u8]| {
        if let Some((offset, message)) = PrivateData::find(bytes) {
            let found = &bytes[offset..offset + PRIVATE_DATA_LEN];
            let mut encoded = message.encode();
            // Reserved flags are ignored.
            encoded[5] |= found[5] & 0xfe;
            assert_eq!(found, encoded);
        }
    };
    for message in private_messages() {
        change_every_byte(&message, check);
        for length in 0..=message.len() {
            check(&message[..length]);
        }
    }
}

#[test]
fn answers_repeat_the_xid_and_the_version() {
    for message in messages() {
        change_every_byte(message.get(..FIXED_LEN).unwrap_or_default(), |bytes| {
            let Err(refused) = decode_call(bytes, Versions::ONE_AND_TWO) else {
                return;
            };
            let Some(Refusal::Answer(answer)) = refused.at_responder() else {
                return;
            };
            let mut buffer = [0; 28];
            let length = answer.encode(&mut buffer, Credits::new(1)).unwrap();
            assert_eq!(buffer[..8], bytes[..8]);
            assert_ne!(bytes[12..16], [0, 0, 0, 4]);
            let fixed = FixedHeader::take(&mut Reader::new(&buffer));
            assert_eq!(fixed.map(|fixed| fixed.procedure), Ok(Procedure::Error));
            assert!(length == 20 || length == 28);
        });
    }
}
