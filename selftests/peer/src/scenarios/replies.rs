// SPDX-License-Identifier: GPL-2.0

//! Replies that are good in themselves: for nobody, for a Call that was answered already, before
//! there is a Call, or with an RPC message of another length than is due.

use super::Scenarios;
use crate::peer::{rpc_reply, Message, Peer, CREDITS, EIO, REPLY_LEN};
use crate::Result;

pub(super) const SCENARIOS: &Scenarios = &[
    ("other-xid", other_xid),
    ("earlier-xid", earlier_xid),
    ("repeated", repeated),
    ("unsolicited", unsolicited),
    ("too-early", too_early),
    ("long-replies", long_replies),
    ("short-replies", short_replies),
    ("other-versions", other_versions),
];

/// A Reply of `length` bytes of RPC message, if that is not less than a Reply has.
fn reply_of(xid: u32, length: usize) -> Message {
    let mut payload = rpc_reply(xid);
    payload.resize(length, 0);
    Message::inline(xid, CREDITS, payload)
}

fn other_xid(peer: &mut Peer) -> Result {
    peer.accept()?;
    let call = peer.call()?;
    for bit in 0..32 {
        peer.send(&reply_of(call.xid ^ (1 << bit), REPLY_LEN).encode())?;
    }
    peer.answer(&call)
}

/// Each Call hears the Replies to all before it first.
fn earlier_xid(peer: &mut Peer) -> Result {
    peer.accept()?;
    let mut earlier: Vec<Vec<u8>> = Vec::new();
    for _ in 0..6 {
        let call = peer.call()?;
        for message in &earlier {
            peer.send(message)?;
        }
        let reply = peer.reply(&call)?.encode();
        peer.send(&reply)?;
        peer.succeeds(&call);
        earlier.push(reply);
    }
    Ok(())
}

/// Each Reply comes twice, or fifty times, also while its Call's memory is being invalidated.
fn repeated(peer: &mut Peer) -> Result {
    peer.accept()?;
    for times in [2, 50] {
        for _ in 0..4 {
            let call = peer.call()?;
            let reply = peer.reply(&call)?.encode();
            for _ in 0..times {
                peer.send(&reply)?;
            }
            peer.succeeds(&call);
        }
    }
    Ok(())
}

fn unsolicited(peer: &mut Peer) -> Result {
    peer.accept()?;
    for xid in 0..100 {
        peer.send(&reply_of(xid, REPLY_LEN).encode())?;
    }
    Ok(())
}

/// Replies to the Calls that wait for a credit, by the numbers that they will have. Each round takes
/// the client a while, so that the Calls are there in most of them.
fn too_early(peer: &mut Peer) -> Result {
    peer.accept()?;
    for _ in 0..2 {
        let call = peer.call()?;
        for _ in 0..20 {
            for ahead in 1..=4 {
                // sunrpc counts in the byte order of its machine, which is little-endian.
                let xid = call.xid.swap_bytes().wrapping_add(ahead).swap_bytes();
                peer.send(&reply_of(xid, 4096 - 28).encode())?;
            }
            super::backward::round_trip(peer)?;
        }
        let mut reply = peer.reply(&call)?;
        reply.credits = 1;
        peer.send(&reply.encode())?;
        peer.succeeds(&call);
    }
    Ok(())
}

/// More bytes than the Reply has room for: what is too much is left out.
fn long_replies(peer: &mut Peer) -> Result {
    peer.accept()?;
    for excess in [4, 100, 1000, 4096 - 28 - REPLY_LEN] {
        let call = peer.call()?;
        peer.send(&reply_of(call.xid, REPLY_LEN + excess).encode())?;
        peer.gets(0);
    }
    Ok(())
}

/// An RPC message that ends too soon, or not at the end of a word. The RPC layer sends the Call twice more, for which this
/// transport makes a new connection, and gives up.
fn short_replies(peer: &mut Peer) -> Result {
    peer.accept()?;
    for length in [8, REPLY_LEN - 4, REPLY_LEN + 1] {
        let mut first = None;
        for _ in 0..3 {
            let call = peer.call_anywhere()?;
            if *first.get_or_insert(call.xid) != call.xid {
                return Err("the Call did not go out again".to_owned());
            }
            peer.send(&reply_of(call.xid, length).encode())?;
        }
        peer.ends(EIO);
    }
    Ok(())
}

/// Replies of versions and with procedures that there are not. Each ends its Call at once, and none
/// is answered: an RDMA_ERROR could be for a backward Call.
fn other_versions(peer: &mut Peer) -> Result {
    peer.accept()?;
    // The forms of Calls come in turn.
    for _ in 0..6 {
        for (at, word) in [
            (4, 0),
            (4, 2),
            (4, u32::MAX),
            (12, 2),
            (12, 3),
            (12, 5),
            (12, u32::MAX),
        ] {
            let call = peer.call()?;
            let mut message = peer.reply(&call)?.encode();
            message[at..at + 4].copy_from_slice(&u32::to_be_bytes(word));
            peer.send(&message)?;
            peer.ends(EIO);
        }
    }
    Ok(())
}
