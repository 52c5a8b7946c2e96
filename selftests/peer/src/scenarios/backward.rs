// SPDX-License-Identifier: GPL-2.0

//! Backward Calls (RFC 8167), with and without a service for them at the client.

use super::garbage::Random;
use super::Scenarios;
use crate::peer::{word_at, words, Message, Peer, THRESHOLD};
use crate::proto::wire::chunk::{ReadSegment, Segment};
use crate::Result;

pub(super) const SCENARIOS: &Scenarios = &[
    ("backward", backward),
    ("backward-unserved", backward_unserved),
    ("backward-garbage", backward_garbage),
    ("backward-chunks", backward_chunks),
    ("backward-long", backward_long),
    ("backward-burst", backward_burst),
    ("backward-without-credits", backward_without_credits),
    ("backward-at-the-end", backward_at_the_end),
    ("backward-outlives", backward_outlives),
    ("backward-across-connections", backward_across_connections),
];

/// The program that the client's service has.
const PROGRAM: u32 = 0x2004_9000;

/// A Call of NULL.
pub(super) fn null(xid: u32) -> Message {
    Message::inline(xid, 1, words(&[xid, 0, 2, PROGRAM, 1, 0, 0, 0, 0, 0]))
}

/// Waits for `count` backward Replies more.
fn replies(peer: &mut Peer, count: usize) -> Result {
    let wanted = peer.backward_replies.len() + count;
    while peer.backward_replies.len() < wanted {
        peer.backward_reply()?;
    }
    Ok(())
}

/// As it should be. The XID is also that of the forward Call that waits, which is no matter.
fn backward(peer: &mut Peer) -> Result {
    peer.accept()?;
    let call = peer.call()?;
    for xid in [call.xid, 0, u32::MAX] {
        peer.send(&null(xid).encode())?;
        replies(peer, 1)?;
        let reply = peer.backward_replies.last().ok_or("there is no Reply")?;
        if *reply != words(&[xid, 1, 0, 0, 0, 0]) {
            return Err(format!("the Reply is {reply:02x?}"));
        }
    }
    peer.answer(&call)
}

/// One Call, and its Reply.
pub(super) fn round_trip(peer: &mut Peer) -> Result {
    peer.send(&null(1).encode())?;
    replies(peer, 1)
}

/// The forward direction has no credit left, and Calls that wait for one: the other direction has its
/// own. No Reply comes to the Call before the backward Replies.
fn backward_without_credits(peer: &mut Peer) -> Result {
    peer.accept()?;
    for _ in 0..10 {
        let call = peer.call()?;
        for _ in 0..10 {
            round_trip(peer)?;
        }
        let mut reply = peer.reply(&call)?;
        reply.credits = 1;
        peer.send(&reply.encode())?;
        peer.succeeds(&call);
    }
    Ok(())
}

/// Before a service is there, or without one: all are dropped.
fn backward_unserved(peer: &mut Peer) -> Result {
    peer.accept()?;
    let call = peer.call()?;
    for xid in 0..100 {
        peer.send(&null(xid).encode())?;
    }
    peer.send(&null(call.xid).encode())?;
    let mut random = Random::new();
    for length in 8..64 {
        let mut garbage = null(1);
        garbage.payload.truncate(8);
        garbage.payload.extend(random.bytes(length));
        peer.send(&garbage.encode())?;
    }
    for mut message in with_chunks() {
        peer.send(&message.encode())?;
        // Neither may it be taken for what the forward Call waits for.
        message.xid = !call.xid;
        peer.send(&message.encode())?;
    }
    peer.answer(&call)
}

/// RPC messages that make no sense: the service answers or drops them.
fn backward_garbage(peer: &mut Peer) -> Result {
    peer.accept()?;
    let call = peer.call()?;
    let mut random = Random::new();
    let mut wrong: Vec<Message> = Vec::new();
    for length in (0..64).chain([100, 1000, 4000, 4060]) {
        let mut garbage = null(1);
        garbage.payload.truncate(8);
        garbage.payload.extend(random.bytes(length));
        wrong.push(garbage);
    }
    // One word each: RPC version, program, version, procedure, credential, verifier.
    for at in 2..10 {
        let mut message = null(2);
        message.payload[at * 4..at * 4 + 4].fill(0xff);
        wrong.push(message);
    }
    for message in wrong {
        peer.send(&message.encode())?;
        // The service takes one after the other.
        peer.send(&null(3).encode())?;
        peer.backward_reply()?;
        while peer.backward_replies.last() != Some(&words(&[3, 1, 0, 0, 0, 0])) {
            peer.backward_reply()?;
        }
    }
    peer.answer(&call)
}

/// Calls of NULL that have chunks, and others that are a Position Zero chunk.
fn with_chunks() -> Vec<Message> {
    let segment = Segment {
        handle: 0x1234_5678,
        length: 100,
        offset: 0x7f00_0000_1000,
    };
    let mut all = vec![null(3); 4];
    all[0].writes = vec![vec![segment]];
    all[1].reply = Some(vec![segment]);
    all[2].reads = vec![ReadSegment {
        position: 40,
        segment,
    }];
    all[3].writes = vec![Vec::new()];
    all
}

/// Each is answered with an RDMA_ERROR.
fn backward_chunks(peer: &mut Peer) -> Result {
    peer.accept()?;
    let call = peer.call()?;
    for message in with_chunks() {
        peer.send(&message.encode())?;
        let error = peer.error()?;
        let expected = [message.xid, 1, word_at(&error, 8), 4, 2];
        if error != words(&expected) {
            return Err(format!("the client answered {error:02x?}"));
        }
    }
    peer.answer(&call)
}

/// A Call of as many bytes as a Receive has is served. A longer one ends the connection, and the forward
/// Call goes out again.
fn backward_long(peer: &mut Peer) -> Result {
    peer.accept()?;
    let call = peer.call()?;
    let mut message = null(1).encode();
    message.resize(THRESHOLD as usize, 0);
    peer.send(&message)?;
    replies(peer, 1)?;
    message.push(0);
    peer.send(&message)?;
    peer.end()?;
    peer.accept()?;
    let again = peer.call_again(&call)?;
    peer.answer(&again)
}

/// Many more than there are credits for, and no more than the client has Receives, while the service
/// is busy: those that it has requests for wait, and the forward direction works on.
fn backward_burst(peer: &mut Peer) -> Result {
    peer.accept()?;
    let call = peer.call()?;
    // The procedure that is answered when there is another connection.
    peer.send(&procedure(1, 1).encode())?;
    for xid in 2..=100 {
        peer.send(&null(xid).encode())?;
    }
    peer.verbs.flush()?;
    peer.answer(&call)?;
    for _ in 0..4 {
        let call = peer.call()?;
        peer.answer(&call)?;
    }
    let last = peer.call()?;
    peer.verbs.disconnect();
    peer.accept()?;
    let again = peer.call_again(&last)?;
    peer.answer(&again)?;
    let done = peer.call()?;
    peer.answer(&done)?;
    // The service has to see that there is a connection, until the client ends it.
    peer.finished = true;
    peer.end()
}

/// The Reply to the client's last Call comes between two backward Calls. With the second one in its
/// hands the transport ends, if it is slow with each.
fn backward_at_the_end(peer: &mut Peer) -> Result {
    peer.accept()?;
    let call = peer.call()?;
    peer.answer(&call)?;
    let last = peer.call()?;
    peer.send(&null(1).encode())?;
    peer.answer(&last)?;
    peer.send(&null(2).encode())?;
    peer.finished = true;
    peer.end()
}

/// A Call of another procedure of the client's service.
fn procedure(xid: u32, number: u32) -> Message {
    let mut call = null(xid);
    call.payload[20..24].copy_from_slice(&number.to_be_bytes());
    call
}

/// The client ends while it has a backward Call, which is answered when only that keeps the
/// transport.
fn backward_outlives(peer: &mut Peer) -> Result {
    peer.accept()?;
    let call = peer.call()?;
    peer.answer(&call)?;
    let last = peer.call()?;
    peer.send(&procedure(1, 2).encode())?;
    peer.answer(&last)?;
    peer.finished = true;
    replies(peer, 1)?;
    if peer.backward_replies != [words(&[1, 1, 0, 0, 0, 0])] {
        return Err(format!("the Replies are {:02x?}", peer.backward_replies));
    }
    peer.end()
}

/// The Reply to a Call of the first connection is ready when there is a second one, which is none of
/// its business.
fn backward_across_connections(peer: &mut Peer) -> Result {
    peer.accept()?;
    let call = peer.call()?;
    // The procedure that is answered then.
    peer.send(&procedure(1, 1).encode())?;
    peer.verbs.flush()?;
    peer.verbs.disconnect();
    peer.accept()?;
    let call = peer.call_again(&call)?;
    // The service takes one Call after the other.
    peer.send(&null(2).encode())?;
    replies(peer, 1)?;
    if peer.backward_replies != [words(&[2, 1, 0, 0, 0, 0])] {
        return Err(format!("the Replies are {:02x?}", peer.backward_replies));
    }
    peer.answer(&call)
}
