// SPDX-License-Identifier: GPL-2.0

//! RDMA Reads and Writes to memory that a Call has offered, after the Call has ended, and beyond
//! what it has offered: all have to fail.

use super::Scenarios;
use crate::peer::{words, Call, Form, Peer, EIO, ERESTARTSYS, ETIMEDOUT};
use crate::proto::wire::chunk::Segment;
use crate::Result;

pub(super) const SCENARIOS: &Scenarios = &[
    ("late-after-reply", after_reply),
    ("late-after-invalidation", after_invalidation),
    ("late-after-error", after_error),
    ("late-after-bad-reply", after_bad_reply),
    ("late-after-timeout", after_timeout),
    ("late-after-kill", after_kill),
    ("late-on-next-connection", on_next_connection),
    ("out-of-bounds", out_of_bounds),
    ("wrong-access", wrong_access),
];

/// `IBV_WC_REM_ACCESS_ERR`.
const REMOTE_ACCESS_ERROR: u32 = 10;

/// The first connection, with its first Call.
fn accept(peer: &mut Peer) -> Result {
    peer.accept()?;
    let call = peer.call()?;
    peer.answer(&call)
}

/// The segments that a Call has offered, and whether they are for RDMA Reads.
fn offered(call: &Call) -> Vec<(bool, Segment)> {
    let reads = call.reads.iter().map(|entry| (true, entry.segment));
    let writes = call
        .writes
        .iter()
        .flatten()
        .chain(call.reply.iter().flatten());
    reads
        .chain(writes.map(|segment| (false, *segment)))
        .collect()
}

/// Reads or writes one byte, which has to fail and ends the connection. Whether the Call that came
/// last goes out again is up to the client.
fn must_fail(peer: &mut Peer, is_read: bool, segment: &Segment, at: u64) -> Result {
    let (address, handle) = (segment.offset.wrapping_add(at), segment.handle);
    let status = if is_read {
        peer.verbs.read(&mut [0], address, handle)?
    } else {
        peer.verbs.write(b"!", address, handle)?
    };
    if status != REMOTE_ACCESS_ERROR {
        return Err(format!("an access that is not allowed has status {status}"));
    }
    Ok(())
}

/// One connection for each form of Call that offers memory. `end` ends a Call; when the next one
/// comes, the client is through with it.
fn after(peer: &mut Peer, end: fn(&mut Peer, &Call) -> Result) -> Result {
    accept(peer)?;
    for _ in 0..4 {
        let call = peer.call_anywhere()?;
        end(peer, &call)?;
        let next = peer.call_anywhere()?;
        let (is_read, segment) = *offered(&call).last().ok_or("the Call offers nothing")?;
        must_fail(peer, is_read, &segment, 0)?;
        // The next Call goes out again.
        let again = peer.call_anywhere()?;
        if again.xid != next.xid {
            return Err("the Call did not go out again".to_owned());
        }
        peer.answer(&again)?;
    }
    Ok(())
}

fn after_reply(peer: &mut Peer) -> Result {
    after(peer, Peer::answer)
}

fn after_invalidation(peer: &mut Peer) -> Result {
    after(peer, |peer, call| {
        let reply = peer.reply(call)?.encode();
        let handle = offered(call).last().map(|(_, segment)| segment.handle);
        peer.verbs.send(&reply, handle)?;
        peer.succeeds(call);
        Ok(())
    })
}

fn after_error(peer: &mut Peer) -> Result {
    after(peer, |peer, call| {
        peer.send(&words(&[call.xid, 1, 32, 4, 2]))?;
        peer.ends(EIO);
        Ok(())
    })
}

fn after_bad_reply(peer: &mut Peer) -> Result {
    after(peer, |peer, call| {
        peer.send(&words(&[call.xid, 1, 32, 0, 2, 2, 2]))?;
        peer.ends(EIO);
        Ok(())
    })
}

/// The client gives up, and makes a new connection for its next Call.
fn after_timeout(peer: &mut Peer) -> Result {
    after(peer, |peer, _| {
        peer.ends(ETIMEDOUT);
        Ok(())
    })
}

/// A Call whose task is killed: a later one says that the client knows.
fn after_kill(peer: &mut Peer) -> Result {
    accept(peer)?;
    for _ in 0..4 {
        let victim = peer.call_anywhere()?;
        peer.ends(ERESTARTSYS);
        // Of two Calls, the first comes before the kill, and the second after it.
        let before = peer.call()?;
        peer.answer(&before)?;
        let after = peer.call()?;
        let (is_read, segment) = *offered(&victim).last().ok_or("the Call offers nothing")?;
        must_fail(peer, is_read, &segment, 0)?;
        let again = peer.call_anywhere()?;
        if again.xid != after.xid {
            return Err("the Call did not go out again".to_owned());
        }
        peer.answer(&again)?;
    }
    Ok(())
}

/// A Call goes out again on another connection, where the old handles are good for nothing.
fn on_next_connection(peer: &mut Peer) -> Result {
    accept(peer)?;
    for _ in 0..4 {
        let call = peer.call_anywhere()?;
        peer.verbs.disconnect();
        let again = peer.call_anywhere()?;
        let (is_read, segment) = *offered(&call).last().ok_or("the Call offers nothing")?;
        must_fail(peer, is_read, &segment, 0)?;
        let third = peer.call_anywhere()?;
        if (again.xid, third.xid) != (call.xid, call.xid) {
            return Err("the Call did not go out again".to_owned());
        }
        peer.answer(&third)?;
    }
    Ok(())
}

/// The byte in front of a segment and the one behind it, while the Call waits.
fn out_of_bounds(peer: &mut Peer) -> Result {
    accept(peer)?;
    for _ in 0..4 {
        for behind in [false, true] {
            let call = peer.call_anywhere()?;
            let (is_read, segment) = *offered(&call).last().ok_or("the Call offers nothing")?;
            let at = if behind {
                u64::from(segment.length)
            } else {
                u64::MAX
            };
            must_fail(peer, is_read, &segment, at)?;
        }
        let call = peer.call_anywhere()?;
        peer.answer(&call)?;
    }
    Ok(())
}

/// An RDMA Write to a Read chunk, and an RDMA Read from a chunk to write to.
fn wrong_access(peer: &mut Peer) -> Result {
    accept(peer)?;
    for _ in 0..4 {
        let call = peer.call_anywhere()?;
        let (is_read, segment) = *offered(&call).last().ok_or("the Call offers nothing")?;
        must_fail(peer, !is_read, &segment, 0)?;
        let call = peer.call_anywhere()?;
        if call.form == Form::Done {
            return Err("the Call did not go out again".to_owned());
        }
        peer.answer(&call)?;
    }
    Ok(())
}
