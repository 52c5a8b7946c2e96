// SPDX-License-Identifier: GPL-2.0

//! What the client itself has to keep to: the form of its Calls, the sizes of messages, and Receives for
//! all that may come.

use super::backward::null;
use super::credits::outstanding;
use super::Scenarios;
use crate::peer::{words, Call, Form, Peer, EIO, REQUESTED, THRESHOLD};
use crate::proto::wire::chunk::Segment;
use crate::proto::wire::private_data::PrivateData;
use crate::Result;

pub(super) const SCENARIOS: &Scenarios = &[
    ("shapes", shapes),
    ("exactly-1024", |peer| exactly(peer, 1024)),
    ("exactly-4096", |peer| exactly(peer, THRESHOLD)),
    ("all-receives", all_receives),
    ("bad-replies", bad_replies),
];

/// Bytes of a transport header without chunks.
const HEADER: usize = 28;

/// Bytes of the client's RPC Calls up to their data, whose length comes last, and of Replies to them.
const CALL: usize = 44;
const REPLY: usize = 28;

/// Bytes that the client allows for the padding of data in a Reply.
const ROUND_UP: usize = 4;

/// Backward Calls that the client takes at a time.
const BACKWARD: usize = 16;

/// Judges all Calls up to the client's last one.
fn shapes(peer: &mut Peer) -> Result {
    peer.accept()?;
    while !peer.finished {
        let call = peer.call()?;
        judge(&call, THRESHOLD as usize).map_err(|error| format!("{error}: {call:x?}"))?;
        peer.answer(&call)?;
        peer.finished = call.form == Form::Done;
    }
    Ok(())
}

fn total(segments: &[Segment]) -> usize {
    segments.iter().map(|segment| segment.length as usize).sum()
}

/// Says what is wrong with a Call, the decoder having found nothing.
fn judge(call: &Call, threshold: usize) -> Result {
    let must = |good: bool, what: &str| match good {
        true => Ok(()),
        false => Err(format!("against what should be: {what}")),
    };
    let padded = call.size.next_multiple_of(4);
    let read: Vec<_> = call.reads.iter().map(|entry| entry.segment).collect();
    let at = |position| call.reads.iter().all(|entry| entry.position == position);
    must(call.message_len <= threshold, "no Send above the threshold")?;
    must(call.credits == REQUESTED, "the same credits in all Calls")?;
    match call.form {
        Form::Null | Form::Done => {
            must(call.reads.is_empty(), "no Read list")?;
            must(
                call.message_len == HEADER + CALL - 4,
                "the RPC Call at once behind the header",
            )?;
        }
        Form::Write if HEADER + CALL + padded <= threshold => {
            must(call.reads.is_empty(), "what fits inline is inline")?;
        }
        Form::Write => {
            must(
                call.inline_len == CALL,
                "all but the data inline, the count included",
            )?;
            must(at(CALL as u32), "one Position, where the data was")?;
            must(
                total(&read) == call.size,
                "a chunk of the data, without its padding",
            )?;
        }
        Form::Long | Form::Exchange if HEADER + CALL + padded > threshold => {
            must(call.inline_len == 0, "a long Call has no inline part")?;
            must(at(0), "Position Zero")?;
            must(
                total(&read) == CALL + padded,
                "a chunk of the whole RPC message",
            )?;
        }
        _ => must(call.reads.is_empty(), "no Read list")?,
    }
    let fits = HEADER + REPLY + call.size + ROUND_UP <= threshold;
    match call.form {
        Form::Read if !fits => {
            must(
                call.reply.is_none(),
                "no Reply chunk beside the Write chunk",
            )?;
            must(call.writes.len() == 1, "one Write chunk")?;
            must(
                total(&call.writes[0]) == call.size,
                "room for the result, and none for padding",
            )?;
        }
        Form::List | Form::Exchange if !fits => {
            must(call.writes.is_empty(), "no Write list")?;
            let room = call.reply.as_deref().map_or(0, total);
            must(
                room >= REPLY + padded,
                "a Reply chunk with room for the largest Reply",
            )?;
        }
        _ => must(
            call.writes.is_empty() && call.reply.is_none(),
            "no chunk for a Reply that fits inline",
        )?,
    }
    Ok(())
}

/// The client's first Call, or the Reply to it, has just as many bytes as fit; without private data that
/// is 1024.
fn exactly(peer: &mut Peer, threshold: u32) -> Result {
    let mut acceptance = Peer::acceptance();
    if threshold == PrivateData::DEFAULT.receive.bytes() {
        acceptance.private_data.clear();
    }
    acceptance.receive_size = threshold;
    peer.accept_with(&acceptance)?;
    let call = peer.call()?;
    judge(&call, threshold as usize)?;
    answer_exactly(peer, &call, threshold)
}

/// Answers a Call that has, or whose Reply has, just `threshold` bytes.
pub(super) fn answer_exactly(peer: &mut Peer, call: &Call, threshold: u32) -> Result {
    let mut reply = peer.reply(call)?.encode();
    if call.message_len < threshold as usize {
        // To the end of what the client has room for.
        reply.resize(reply.len() + ROUND_UP, 0);
    }
    if call.message_len.max(reply.len()) != threshold as usize {
        let lengths = (call.message_len, reply.len());
        return Err(format!("messages of {lengths:?} bytes, not {threshold}"));
    }
    peer.send(&reply)?;
    peer.succeeds(call);
    Ok(())
}

/// As many backward Calls as may be outstanding come beside the Replies to all Calls that may be, on a
/// first connection and on the next one, and before the client has sent anything there.
fn all_receives(peer: &mut Peer) -> Result {
    peer.accept()?;
    let first = receives_backward(peer)?;
    peer.answer(&first)?;
    outstanding(peer, REQUESTED)?;
    peer.verbs.disconnect();
    // All go out again.
    peer.accept()?;
    let first = receives_backward(peer)?;
    peer.answer(&first)?;
    let calls = outstanding(peer, REQUESTED - 1)?;
    let (last, calls) = calls.split_last().ok_or("there are no Calls")?;
    let wanted = send_backward(peer)?;
    for call in calls {
        peer.answer(call)?;
    }
    served(peer, wanted)?;
    peer.answer(last)
}

/// Sends backward Calls; the number of Replies when all are answered.
fn send_backward(peer: &mut Peer) -> Result<usize> {
    let wanted = peer.backward_replies.len() + BACKWARD;
    for xid in 0..BACKWARD {
        peer.send(&null(xid as u32).encode())?;
    }
    Ok(wanted)
}

/// Waits for so many backward Replies in all.
fn served(peer: &mut Peer, wanted: usize) -> Result {
    while peer.backward_replies.len() < wanted {
        let served = peer.backward_replies.len();
        peer.backward_reply()
            .map_err(|error| format!("{error} after {served} of {wanted} backward Replies"))?;
    }
    Ok(())
}

/// Backward Calls before anything else on a connection, and the Call that comes then.
fn receives_backward(peer: &mut Peer) -> Result<Call> {
    let wanted = send_backward(peer)?;
    let call = peer.call()?;
    served(peer, wanted)?;
    Ok(call)
}

/// More Replies that cannot be used than the client has Receives, for Calls and for nobody: it posts
/// another Receive for each.
fn bad_replies(peer: &mut Peer) -> Result {
    peer.accept()?;
    for at in 0..300 {
        let call = peer.call()?;
        // Three words are no header.
        peer.send(&words(&[call.xid, 1, 32]))?;
        if at % 2 == 0 {
            peer.send(&words(&[call.xid, 1, 32, 0, 2, 2, 2]))?;
        } else {
            peer.send(&words(&[call.xid, 1, 32, 4, 2]))?;
        }
        peer.ends(EIO);
    }
    Ok(())
}
