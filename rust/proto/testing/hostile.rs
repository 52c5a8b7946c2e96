// SPDX-License-Identifier: GPL-2.0

//! What holds for any received bytes, however they came about.
//!
//! Tests, KUnit suites and fuzz targets call [`check`] with messages that were cut, changed or made
//! up: whatever decodes lies inside the message, and encodes to the bytes that it came from.

use crate::proto::message::{Body, Message};
use crate::proto::requester::decode::{decode_received, Received, ReplyError, RequesterRefusal};
use crate::proto::requester::encode::encode_call;
use crate::proto::requester::plan::header_len;
use crate::proto::responder::decode::ReceivedByResponder;
use crate::proto::responder::refusal::ResponderRefusal;
use crate::proto::testing::options::{encode_option, OptionMessage};
use crate::proto::testing::responder::decode::decode_call;
use crate::proto::wire::chunk::{Chunk, Lists};
use crate::proto::wire::encode::encode_header;
use crate::proto::wire::error::ErrorMessage;
use crate::proto::wire::header::{FixedHeader, Procedure, Versions};
use crate::proto::wire::private_data::PrivateData;
use crate::proto::wire::xdr::NoSpace;

/// What does not hold.
pub(crate) type Violation = &'static str;

/// Segment lengths that a Reply is compared with, in bytes.
const OFFERED: [u32; 3] = [4096; 3];

/// Decodes `bytes` in every way and checks what comes out; `scratch` is as long at least.
///
/// # Errors
///
/// The first thing that does not hold.
pub(crate) fn check(bytes: &[u8], scratch: &mut [u8]) -> Result<(), Violation> {
    for versions in [Versions::ONE, Versions::ONE_AND_TWO] {
        check_requester(bytes, versions)?;
        check_responder(bytes, versions)?;
        if let Ok(message) = Message::decode(bytes, versions) {
            check_encoding(bytes, &message, scratch)?;
        }
        if let Some(Ok(message)) = OptionMessage::decode(bytes, versions) {
            check_option(bytes, &message, scratch)?;
        }
    }
    check_private_data(bytes)
}

/// Turns what must hold into a result.
fn hold(condition: bool, violation: Violation) -> Result<(), Violation> {
    if condition {
        Ok(())
    } else {
        Err(violation)
    }
}

/// Checks that header and Payload are the two parts of `bytes`.
fn check_parts(bytes: &[u8], header_len: usize, payload: Option<&[u8]>) -> Result<(), Violation> {
    let (_, rest) = bytes
        .split_at_checked(header_len)
        .ok_or("the header is longer than the message")?;
    match payload {
        Some(payload) => hold(
            core::ptr::eq(rest, payload) && !rest.is_empty(),
            "the Payload is not what follows the header",
        ),
        None => hold(rest.is_empty(), "bytes follow the header of RDMA_NOMSG"),
    }
}

fn check_requester(bytes: &[u8], versions: Versions) -> Result<(), Violation> {
    match decode_received(bytes, versions) {
        Ok(Received::Reply(reply)) => {
            check_parts(bytes, reply.header_len, reply.payload)?;
            let offered = OFFERED.into_iter();
            let writes = [offered.clone(), offered.clone()];
            let Ok(delivered) = reply.reconcile(writes, offered) else {
                return Ok(());
            };
            let [first, second] = delivered.writes;
            for delivery in [first, second, delivered.reply] {
                let whole = 3 * 4096;
                hold(
                    delivery.contiguous <= delivery.total && delivery.total <= whole,
                    "more was delivered than was offered",
                )?;
            }
            Ok(())
        }
        Ok(Received::BackwardCall(call)) => check_parts(bytes, 28, Some(call.payload)),
        Ok(Received::Error(_)) => Ok(()),
        Err(refused) => {
            hold(refused.at <= bytes.len(), "the fault is outside")?;
            for (awaited, backward) in [(false, false), (false, true), (true, false), (true, true)]
            {
                if let RequesterRefusal::Answer(answer) = refused.at_requester(awaited, backward) {
                    hold(
                        !awaited
                            || refused.is_optional()
                            || refused.error == ReplyError::ChunksInBackwardCall,
                        "what may be a Reply is answered",
                    )?;
                    check_answer(bytes, &answer)?;
                }
            }
            Ok(())
        }
    }
}

fn check_responder(bytes: &[u8], versions: Versions) -> Result<(), Violation> {
    match decode_call(bytes, versions) {
        Ok(ReceivedByResponder::Call(call)) => {
            let mut reads = call.lists.reads.segments();
            hold(
                reads.all(|entry| entry.position & 3 == 0),
                "a Position is not a multiple of four",
            )?;
            check_parts(bytes, call.index.header_len, call.payload)
        }
        Ok(ReceivedByResponder::BackwardReply { payload, .. }) => {
            let header_len = bytes.len().saturating_sub(payload.len());
            check_parts(bytes, header_len, Some(payload))
        }
        Ok(ReceivedByResponder::Error(_)) => Ok(()),
        Err(refused) => {
            hold(refused.at <= bytes.len(), "the fault is outside")?;
            match refused.at_responder() {
                ResponderRefusal::Answer(answer) => check_answer(bytes, &answer),
                ResponderRefusal::Discard | ResponderRefusal::GarbageArgs(_) => Ok(()),
            }
        }
    }
}

/// Checks that an answer repeats XID and version, and is not for an RDMA_ERROR.
fn check_answer(bytes: &[u8], answer: &ErrorMessage) -> Result<(), Violation> {
    let word = |at: usize| {
        bytes
            .get(at..)?
            .first_chunk()
            .copied()
            .map(u32::from_be_bytes)
    };
    hold(word(0) == Some(answer.xid.0), "the answer has another XID")?;
    hold(
        word(4) == Some(answer.version),
        "the answer has another version",
    )?;
    hold(
        word(12).is_some_and(|procedure| procedure != 4),
        "an RDMA_ERROR is answered",
    )
}

/// Checks that `message` encodes to the header that it came from.
fn check_encoding(
    bytes: &[u8],
    message: &Message<'_>,
    scratch: &mut [u8],
) -> Result<(), Violation> {
    let header = bytes
        .get(..message.header_len)
        .ok_or("the header is longer than the message")?;
    let fixed = &message.fixed;
    let (length, compared) = match message.body {
        Body::Msg { lists, .. } | Body::Nomsg { lists } => {
            let Some(length) = encode_lists(fixed, &lists, scratch)? else {
                return Ok(());
            };
            (length, header.len())
        }
        Body::Error(body) => {
            let error = ErrorMessage {
                xid: fixed.xid,
                version: fixed.version,
                body,
            };
            (error.encode(scratch, fixed.credits), header.len())
        }
    };
    hold(length == Ok(header.len()), "the header has another length")?;
    check_bytes(header, scratch, compared)
}

/// Checks that the first `compared` bytes of the header are what was encoded.
fn check_bytes(header: &[u8], scratch: &[u8], compared: usize) -> Result<(), Violation> {
    let encoded = (0..compared).zip(scratch.iter().zip(header));
    // A credit word of 0 is read as 1.
    let credits_differ = header.get(8..12) == Some(&[0; 4]);
    let mut differing = encoded.filter(|&(at, (a, b))| a != b && !(credits_differ && at == 11));
    hold(
        differing.next().is_none(),
        "the header encodes to other bytes",
    )
}

/// The same for an RDMA_OPTIONAL.
fn check_option(
    bytes: &[u8],
    message: &OptionMessage<'_>,
    scratch: &mut [u8],
) -> Result<(), Violation> {
    let OptionMessage { fixed, option, .. } = message;
    // Pad bytes may have any value.
    let data = option.optinfo.len().saturating_add(24);
    let length = encode_option(option, scratch, fixed.xid, fixed.credits);
    let header = bytes
        .get(..message.header_len)
        .ok_or("the header is longer than the message")?;
    hold(
        length == Ok(message.header_len),
        "the header has another length",
    )?;
    check_bytes(header, scratch, data)
}

/// Encodes the header of a message with chunk lists; nothing if no encoder makes such a one.
fn encode_lists(
    fixed: &FixedHeader,
    lists: &Lists<'_>,
    scratch: &mut [u8],
) -> Result<Option<Result<usize, NoSpace>>, Violation> {
    let count = |chunk: Chunk<'_>| chunk.segments().fold(0, |n, _| u32::saturating_add(n, 1));
    let reads = lists
        .reads
        .segments()
        .fold(0, |n, _| u32::saturating_add(n, 1));
    let computed = header_len(
        reads,
        lists.writes.chunks().map(count),
        lists.reply.map(count),
    );
    let writes = lists.writes.chunks().map(|chunk| chunk.segments());
    let chunk = lists.reply.map(|chunk| chunk.segments());
    let encoded = if lists.reads.is_empty() {
        encode_header(scratch, fixed, [], writes, chunk)
    } else if lists
        .writes
        .chunks()
        .chain(lists.reply)
        .all(|chunk| count(chunk) > 0)
    {
        let chunk = chunk.into_iter().flatten();
        encode_call(scratch, fixed, lists.reads.segments(), writes, chunk)
    } else {
        // The encoder of a Call leaves out chunks without segments.
        return Ok(None);
    };
    let length = encoded.map(u64::try_from);
    hold(length == Ok(Ok(computed)), "the computed length is another")?;
    hold(
        matches!(fixed.procedure, Procedure::Msg | Procedure::Nomsg),
        "another procedure has chunk lists",
    )?;
    Ok(Some(encoded))
}

/// Checks that private data that was found is what would be sent for it.
fn check_private_data(bytes: &[u8]) -> Result<(), Violation> {
    let Some((offset, message)) = PrivateData::find(bytes) else {
        return Ok(());
    };
    let found = bytes.get(offset..).and_then(|rest| rest.first_chunk());
    let Some(&[a, b, c, d, format, flags, send, receive]) = found else {
        return Err("private data ends outside");
    };
    // Reserved flags are ignored.
    let expected = [a, b, c, d, format, flags & 1, send, receive];
    hold(
        message.encode() == expected,
        "private data encodes to other bytes",
    )
}
