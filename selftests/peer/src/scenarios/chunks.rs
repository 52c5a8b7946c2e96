// SPDX-License-Identifier: GPL-2.0

//! Replies whose chunk lists are not what the Call has offered.

use super::Scenarios;
use crate::peer::{data, filled, rpc_reply, words, Call, Form, Message, Peer, CREDITS, EIO};
use crate::proto::wire::chunk::{ReadSegment, Segment};
use crate::proto::wire::header::Procedure;
use crate::Result;

pub(super) const SCENARIOS: &Scenarios = &[
    ("write-chunks", write_chunks),
    ("reply-chunks", reply_chunks),
    ("chunks-for-nothing", chunks_for_nothing),
    ("unused-chunks", unused_chunks),
    ("short-chunks", short_chunks),
    ("gaps", gaps),
    ("garbage-in-chunks", garbage_in_chunks),
    ("unreduced", unreduced),
];

/// A segment that nobody has offered.
const STRANGE: Segment = Segment {
    handle: 0x1234_5678,
    length: 100,
    offset: 0x7f00_0000_1000,
};

/// Changes a Reply that was good.
type Change = fn(&mut Message);

/// Answers each Call, which has to be of this form, with one of the changed Replies.
fn change_replies(peer: &mut Peer, form: Form, changes: &[Change]) -> Result {
    peer.accept()?;
    for change in changes {
        let call = peer.call()?;
        if call.form != form {
            return Err(format!("this is no {form:?} but {:?}", call.form));
        }
        let mut reply = peer.reply(&call)?;
        change(&mut reply);
        peer.send(&reply.encode())?;
        peer.ends(EIO);
    }
    Ok(())
}

/// The first segment of the first Write chunk.
fn first(message: &mut Message) -> &mut Segment {
    &mut message.writes[0][0]
}

/// The Reply chunk.
fn chunk(message: &mut Message) -> &mut Vec<Segment> {
    message.reply.as_mut().expect("the Call has offered one")
}

fn write_chunks(peer: &mut Peer) -> Result {
    change_replies(
        peer,
        Form::Read,
        &[
            |reply| first(reply).length += 1,
            |reply| first(reply).length = u32::MAX,
            |reply| reply.writes[0].last_mut().expect("a segment").length += 1,
            |reply| {
                reply.writes[0].push(Segment {
                    length: 0,
                    ..STRANGE
                })
            },
            |reply| reply.writes[0].push(STRANGE),
            |reply| {
                reply.writes[0].pop();
            },
            |reply| reply.writes[0].clear(),
            |reply| reply.writes.push(vec![STRANGE]),
            |reply| reply.writes.push(Vec::new()),
            |reply| reply.writes.insert(0, vec![STRANGE]),
            |reply| reply.writes = vec![vec![STRANGE]; 40],
            |reply| reply.reply = Some(vec![STRANGE]),
            |reply| reply.reply = Some(Vec::new()),
            |reply| {
                reply.reads = vec![ReadSegment {
                    position: 28,
                    segment: STRANGE,
                }];
            },
            // No Payload at all, and one in a chunk that was not offered.
            |reply| {
                reply.procedure = Procedure::Nomsg;
                reply.payload.clear();
            },
            |reply| {
                reply.procedure = Procedure::Nomsg;
                reply.payload.clear();
                reply.reply = Some(vec![STRANGE]);
            },
        ],
    )
}

fn reply_chunks(peer: &mut Peer) -> Result {
    change_replies(
        peer,
        Form::List,
        &[
            |reply| chunk(reply)[0].length += 1,
            |reply| chunk(reply)[0].length = u32::MAX,
            |reply| chunk(reply).iter_mut().for_each(|s| s.length = u32::MAX),
            |reply| chunk(reply).iter_mut().for_each(|s| s.length = 0),
            |reply| *chunk(reply) = filled(chunk(reply), 7),
            |reply| chunk(reply).push(STRANGE),
            |reply| {
                chunk(reply).pop();
            },
            |reply| chunk(reply).clear(),
            |reply| reply.reply = None,
            |reply| reply.writes = vec![vec![STRANGE]],
            |reply| reply.payload = vec![0; 40],
            // Two Payloads.
            |reply| {
                reply.procedure = Procedure::Msg;
                reply.payload = rpc_reply(reply.xid);
                reply.payload.extend(words(&[0]));
            },
            |reply| {
                reply.reads = vec![ReadSegment {
                    position: 0,
                    segment: STRANGE,
                }];
            },
        ],
    )
}

/// A Call without chunks.
fn chunks_for_nothing(peer: &mut Peer) -> Result {
    change_replies(
        peer,
        Form::Null,
        &[
            |reply| reply.writes = vec![vec![STRANGE]],
            |reply| reply.writes = vec![Vec::new()],
            |reply| reply.reply = Some(vec![STRANGE]),
            |reply| reply.reply = Some(vec![STRANGE; 60]),
            |reply| {
                reply.procedure = Procedure::Nomsg;
                reply.payload.clear();
                reply.reply = Some(vec![STRANGE]);
            },
        ],
    )
}

/// An empty result, with and without the lists that say so, and other names for the memory.
fn unused_chunks(peer: &mut Peer) -> Result {
    peer.accept()?;
    for forget in [false, true] {
        // A Read and a List.
        for _ in 0..2 {
            let call = peer.call()?;
            let mut reply = inline(&call, 0);
            if !forget {
                reply.writes = call.writes.iter().map(|c| filled(c, 0)).collect();
                reply.reply = call.reply.as_ref().map(|c| filled(c, 0));
            }
            peer.send(&reply.encode())?;
            peer.gets(0);
        }
    }
    let call = peer.call()?;
    let mut reply = peer.reply(&call)?;
    for segment in reply.writes.iter_mut().flatten() {
        segment.handle = !segment.handle;
        segment.offset = u64::MAX - u64::from(segment.length);
    }
    peer.send(&reply.encode())?;
    peer.succeeds(&call);
    Ok(())
}

/// A Reply whose inline part says that there are `count` bytes of data.
fn inline(call: &Call, count: u32) -> Message {
    let mut payload = rpc_reply(call.xid);
    payload.extend(words(&[count]));
    Message::inline(call.xid, CREDITS, payload)
}

/// The RPC message promises more bytes than the chunk says were placed. The client sees those that
/// were, and their round-up.
fn short_chunks(peer: &mut Peer) -> Result {
    peer.accept()?;
    for placed in [0, 1, 2, 3, 4, 101, 4096] {
        let call = peer.call()?;
        let mut reply = inline(&call, 100_000);
        let offered = call.writes.first().ok_or("there is no Write chunk")?;
        peer.push(offered, &data(placed))?;
        reply.writes = vec![filled(offered, placed)];
        peer.send(&reply.encode())?;
        peer.gets(placed.next_multiple_of(4));
    }
    Ok(())
}

/// A segment that is not full, and bytes said to be in the one behind it: data ends at the gap.
fn gaps(peer: &mut Peer) -> Result {
    peer.accept()?;
    let call = peer.call()?;
    let offered = call.writes.first().ok_or("there is no Write chunk")?;
    let [one, two] = offered.as_slice() else {
        return Err(format!("{} segments, not two", offered.len()));
    };
    let mut reply = inline(&call, one.length + two.length);
    let (mut one, two) = (*one, *two);
    one.length -= 4;
    peer.push(&[one], &data(one.length as usize))?;
    reply.writes = vec![vec![one, two]];
    peer.send(&reply.encode())?;
    peer.gets(one.length as usize);
    Ok(())
}

/// The Reply chunk holds no RPC message. The RPC layer sends the Call twice more and gives up.
fn garbage_in_chunks(peer: &mut Peer) -> Result {
    peer.accept()?;
    let mut random = super::garbage::Random::new();
    for length in [8, 27, 5000] {
        for _ in 0..3 {
            let call = peer.call_anywhere()?;
            let offered = call.reply.as_ref().ok_or("there is no Reply chunk")?;
            let mut reply = inline(&call, 0);
            reply.payload.clear();
            reply.procedure = Procedure::Nomsg;
            reply.reply = Some(filled(offered, length));
            peer.push(offered, &random.bytes(length))?;
            peer.send(&reply.encode())?;
        }
        peer.ends(EIO);
    }
    Ok(())
}

/// Data inline that a Write chunk was offered for, with and without the list that says the chunk is
/// not used: a violation of the binding, which ends the Call.
fn unreduced(peer: &mut Peer) -> Result {
    peer.accept()?;
    for (count, forget) in [(4, false), (1000, false), (1001, true), (3000, true)] {
        let call = peer.call()?;
        let mut reply = inline(&call, count);
        reply
            .payload
            .extend(data(count.next_multiple_of(4) as usize));
        if !forget {
            reply.writes = call.writes.iter().map(|c| filled(c, 0)).collect();
        }
        if call.writes.is_empty() {
            return Err("there is no Write chunk".to_owned());
        }
        peer.send(&reply.encode())?;
        peer.ends(EIO);
    }
    Ok(())
}
