// SPDX-License-Identifier: GPL-2.0

//! Send With Invalidate, of handles that the Reply is not about.

use super::Scenarios;
use crate::peer::{rpc_reply, words, Call, Form, Message, Peer, CREDITS};
use crate::Result;

pub(super) const SCENARIOS: &Scenarios = &[
    ("invalidates", invalidates),
    ("invalidates-other-call", invalidates_other_call),
    ("invalidates-for-nobody", invalidates_for_nobody),
    ("invalidates-by-error", invalidates_by_error),
    ("invalidates-unknown", invalidates_unknown),
    ("invalidates-twice", invalidates_twice),
    ("cannot-be-invalidated", cannot_be_invalidated),
];

/// The handle of the first segment that a Call has offered.
fn handle(call: &Call) -> Result<u32> {
    let reads = call.reads.iter().map(|entry| entry.segment);
    let writes = call.writes.iter().flatten().copied();
    let reply = call.reply.iter().flatten().copied();
    let mut all = reads.chain(writes).chain(reply);
    Ok(all.next().ok_or("the Call offers nothing")?.handle)
}

/// As it should be, for each form of a Call.
fn invalidates(peer: &mut Peer) -> Result {
    peer.accept()?;
    for _ in 0..5 {
        let call = peer.call()?;
        let reply = peer.reply(&call)?;
        peer.verbs.send(&reply.encode(), Some(handle(&call)?))?;
        peer.succeeds(&call);
    }
    Ok(())
}

/// The Reply to one of two Calls invalidates the other one's memory. That one's Reply can only
/// come once its data was placed before.
fn invalidates_other_call(peer: &mut Peer) -> Result {
    peer.accept()?;
    let call = peer.call()?;
    peer.answer(&call)?;
    for _ in 0..3 {
        let (one, two) = (peer.call()?, peer.call()?);
        let (reply, other) = (peer.reply(&one)?, peer.reply(&two)?);
        peer.verbs.send(&reply.encode(), Some(handle(&two)?))?;
        peer.verbs.send(&other.encode(), Some(handle(&one)?))?;
        peer.succeeds(&one);
        peer.succeeds(&two);
    }
    Ok(())
}

/// A Reply that no Call waits for invalidates the memory of one that waits for another.
fn invalidates_for_nobody(peer: &mut Peer) -> Result {
    peer.accept()?;
    for _ in 0..3 {
        let call = peer.call()?;
        let nobody = Message::inline(!call.xid, CREDITS, rpc_reply(!call.xid));
        let reply = peer.reply(&call)?;
        peer.verbs.send(&nobody.encode(), Some(handle(&call)?))?;
        peer.send(&reply.encode())?;
        peer.succeeds(&call);
    }
    Ok(())
}

/// An RDMA_ERROR that does not decode, and so is dropped, invalidates the memory of the Call that it
/// names, or of another one.
fn invalidates_by_error(peer: &mut Peer) -> Result {
    peer.accept()?;
    let call = peer.call()?;
    peer.answer(&call)?;
    for _ in 0..3 {
        let (one, two) = (peer.call()?, peer.call()?);
        let (reply, other) = (peer.reply(&one)?, peer.reply(&two)?);
        let error = |call: &Call| words(&[call.xid, 1, CREDITS, 4, 3]);
        peer.verbs.send(&error(&one), Some(handle(&one)?))?;
        peer.verbs.send(&error(&one), Some(handle(&two)?))?;
        peer.send(&reply.encode())?;
        peer.send(&other.encode())?;
        peer.succeeds(&one);
        peer.succeeds(&two);
    }
    Ok(())
}

/// Handles that do not exist, or are not for this: the connection ends, and the Call goes out
/// again on the next one.
fn invalidates_unknown(peer: &mut Peer) -> Result {
    peer.accept()?;
    let changes: [fn(u32) -> u32; 4] = [|_| 0, |_| u32::MAX, |handle| !handle, |handle| handle ^ 1];
    for change in changes {
        let call = peer.call()?;
        let wrong = change(handle(&call)?);
        let reply = peer.reply(&call)?;
        peer.verbs.send(&reply.encode(), Some(wrong))?;
        peer.end()?;
        peer.accept()?;
        let again = peer.call()?;
        peer.answer(&again)?;
    }
    Ok(())
}

/// The same Reply again, with the same handle, which is another Call's or nobody's by then: the
/// connection may end by that, at any time.
fn invalidates_twice(peer: &mut Peer) -> Result {
    peer.accept()?;
    let mut last = None;
    loop {
        let call = peer.call_anywhere()?;
        if call.form == Form::Done {
            peer.finished = true;
            return peer.answer(&call);
        }
        if last != Some(call.xid) {
            last = Some(call.xid);
            peer.succeeds(&call);
        }
        let handle = handle(&call)?;
        // An error says that the connection has ended, and that the Call comes again.
        let Ok(reply) = peer.reply(&call) else {
            continue;
        };
        for _ in 0..2 {
            let _ = peer.verbs.send(&reply.encode(), Some(handle));
        }
    }
}

/// The client cannot invalidate what a Call has offered. It ends the connection, and not the Call,
/// which goes out again on the next one.
fn cannot_be_invalidated(peer: &mut Peer) -> Result {
    peer.accept()?;
    for _ in 0..4 {
        let call = peer.call()?;
        let reply = peer.reply(&call)?;
        peer.send(&reply.encode())?;
        peer.end()?;
        peer.accept()?;
        let again = peer.call_again(&call)?;
        peer.answer(&again)?;
    }
    Ok(())
}
