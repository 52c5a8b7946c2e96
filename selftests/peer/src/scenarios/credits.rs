// SPDX-License-Identifier: GPL-2.0

//! Grants at their limits. As many Receives are posted as Calls may be outstanding, so that one
//! Call too many ends the connection.

use std::time::Duration;

use super::Scenarios;
use crate::peer::{words, Call, Peer, ERESTARTSYS, REQUESTED};
use crate::verbs::Waited;
use crate::Result;

pub(super) const SCENARIOS: &Scenarios = &[
    ("no-credits", no_credits),
    ("one-credit", one_credit),
    ("all-credits", all_credits),
    ("fewer-credits", fewer_credits),
    ("killed-credits", killed_credits),
    ("killed-late", killed_late),
    ("killed-malformed", killed_malformed),
    ("killed-made-up", killed_made_up),
    ("killed-unanswered", killed_unanswered),
];

fn accept(peer: &mut Peer, receives: u32) -> Result {
    let mut acceptance = Peer::acceptance();
    acceptance.receives = receives;
    peer.reposts = false;
    peer.accept_with(&acceptance)
}

/// Answers with a grant, after the Receive for the next Call was posted.
fn grant(peer: &mut Peer, call: &Call, credits: u32) -> Result {
    let mut reply = peer.reply(call)?;
    reply.credits = credits;
    peer.verbs.post_receive()?;
    peer.send(&reply.encode())?;
    peer.succeeds(call);
    Ok(())
}

/// Zero counts as one (RFC 8166 section 3.3.1 forbids it).
fn no_credits(peer: &mut Peer) -> Result {
    at_most_one(peer, 0)
}

fn one_credit(peer: &mut Peer) -> Result {
    at_most_one(peer, 1)
}

fn at_most_one(peer: &mut Peer, credits: u32) -> Result {
    accept(peer, 1)?;
    for _ in 0..20 {
        let call = peer.call()?;
        grant(peer, &call, credits)?;
    }
    peer.reposts = true;
    Ok(())
}

/// More than the client asked for: it uses what it asked for, and no more.
fn all_credits(peer: &mut Peer) -> Result {
    accept(peer, REQUESTED)?;
    let call = peer.call()?;
    grant(peer, &call, u32::MAX)?;
    let calls = outstanding(peer, REQUESTED)?;
    for call in calls {
        grant(peer, &call, u32::MAX)?;
    }
    peer.reposts = true;
    Ok(())
}

/// A grant that is taken back while many Calls are outstanding.
fn fewer_credits(peer: &mut Peer) -> Result {
    accept(peer, REQUESTED)?;
    let call = peer.call()?;
    grant(peer, &call, REQUESTED)?;
    let mut calls = outstanding(peer, REQUESTED)?;
    let last = calls.pop().ok_or("there is no Call")?;
    for call in calls {
        let mut reply = peer.reply(&call)?;
        reply.credits = 1;
        peer.send(&reply.encode())?;
        peer.succeeds(&call);
    }
    // No Receive but one is posted from here on.
    grant(peer, &last, 1)?;
    for _ in 0..20 {
        let call = peer.call()?;
        grant(peer, &call, 1)?;
    }
    peer.reposts = true;
    Ok(())
}

/// All Calls that may be outstanding are killed, while the memory of theirs cannot be invalidated yet:
/// the last of their Sends waits for a Receive.
fn killed_credits(peer: &mut Peer) -> Result {
    const GRANTED: u32 = 64;
    let mut acceptance = Peer::acceptance();
    acceptance.receives = GRANTED;
    acceptance.rnr_retries = 7;
    peer.reposts = false;
    peer.accept_with(&acceptance)?;
    let call = peer.call()?;
    let mut reply = peer.reply(&call)?;
    reply.credits = GRANTED;
    peer.send(&reply.encode())?;
    peer.succeeds(&call);
    let mut killed = outstanding(peer, GRANTED - 1)?;
    // Nothing can come, but the client has the time to go on.
    if let Some(message) = peer.receive_for(Duration::from_secs(2))? {
        return Err(format!("{message:02x?} came without a Receive"));
    }
    peer.reposts = true;
    for _ in 0..GRANTED {
        peer.verbs.post_receive()?;
    }
    // The last one of those that were killed.
    killed.push(peer.call()?);
    for call in &killed {
        peer.ends(ERESTARTSYS);
        late(peer, call.xid, GRANTED)?;
    }
    Ok(())
}

/// What the scenarios with killed Calls grant.
const FEW: u32 = 16;

/// As many Calls as there are credits are outstanding, and killed. Others wait.
fn kill(peer: &mut Peer) -> Result<Vec<Call>> {
    begin(peer)?;
    let killed = kill_some(peer, FEW)?;
    no_more(peer)?;
    Ok(killed)
}

/// Grants those credits.
fn begin(peer: &mut Peer) -> Result {
    peer.accept()?;
    let call = peer.call()?;
    grant_alone(peer, &call)
}

/// So many Calls come, and are killed.
fn kill_some(peer: &mut Peer, count: u32) -> Result<Vec<Call>> {
    let killed = outstanding(peer, count)?;
    for _ in &killed {
        peer.ends(ERESTARTSYS);
    }
    Ok(killed)
}

/// Calls that are killed keep their credits until their Replies come: one each.
fn killed_late(peer: &mut Peer) -> Result {
    killed_and_answered(peer, |peer, xid| late(peer, xid, FEW))
}

/// The same with Replies that have a Read list.
fn killed_malformed(peer: &mut Peer) -> Result {
    killed_and_answered(peer, |peer, xid| {
        let read_list = [1, 8, 1, 4, 0, 0, 0];
        let rest = [0, 0, xid, 1, 0, 0, 0, 0];
        peer.send(&words(&[&[xid, 1, FEW, 0][..], &read_list, &rest].concat()))
    })
}

fn killed_and_answered(peer: &mut Peer, answer: fn(&mut Peer, u32) -> Result) -> Result {
    let killed = kill(peer)?;
    let mut calls = Vec::new();
    for call in &killed {
        answer(peer, call.xid)?;
        calls.push(peer.call()?);
    }
    no_more(peer)?;
    for call in calls {
        grant_alone(peer, &call)?;
    }
    Ok(())
}

/// Many more Replies, to Calls that there never were: no more Calls come than there are credits.
fn killed_made_up(peer: &mut Peer) -> Result {
    let killed = kill(peer)?;
    for at in 0..100u32 {
        late(peer, !killed[0].xid ^ at << 16, FEW)?;
    }
    let calls = outstanding(peer, FEW)?;
    no_more(peer)?;
    for call in calls {
        grant_alone(peer, &call)?;
    }
    Ok(())
}

/// The Replies never come. The connection lasts as long as there are other credits, for longer than
/// the client waits when there are none (60 s); then it makes another one, rather than wait for ever.
fn killed_unanswered(peer: &mut Peer) -> Result {
    begin(peer)?;
    kill_some(peer, FEW / 2)?;
    let call = peer.call()?;
    if let Some(message) = peer.receive_for(Duration::from_secs(65))? {
        return Err(format!("{message:02x?} came before the answer"));
    }
    grant_alone(peer, &call)?;
    kill_some(peer, FEW / 2)?;
    no_more(peer)?;
    match peer.verbs.receive(Duration::from_secs(90))? {
        Waited::Ended => peer.accept(),
        Waited::For(_) | Waited::TimedOut => Err("the connection does not end".to_owned()),
    }
}

/// Answers a Call with the grant of those scenarios.
fn grant_alone(peer: &mut Peer, call: &Call) -> Result {
    let mut reply = peer.reply(call)?;
    reply.credits = FEW;
    peer.send(&reply.encode())?;
    peer.succeeds(call);
    Ok(())
}

/// A Reply that nobody waits for.
fn late(peer: &mut Peer, xid: u32, credits: u32) -> Result {
    peer.send(&words(&[xid, 1, credits, 0, 0, 0, 0, xid, 1, 0, 0, 0, 0]))
}

/// No Call comes, although the client has some.
fn no_more(peer: &mut Peer) -> Result {
    match peer.receive_for(Duration::from_secs(1))? {
        None => Ok(()),
        Some(message) => Err(format!("{message:02x?} came without a credit")),
    }
}

/// Takes so many Calls without an answer.
pub(super) fn outstanding(peer: &mut Peer, count: u32) -> Result<Vec<Call>> {
    (0..count)
        .map(|at| {
            let call = peer.call();
            call.map_err(|error| format!("{error} after {at} of {count} Calls"))
        })
        .collect()
}
