// SPDX-License-Identifier: GPL-2.0

//! Messages that are cut short, or not Calls at all.

use super::results::read;
use super::{Call, Requester, Scenarios, PORT, SILENCE};
use crate::peer::{words, LIMIT};
use crate::proto::wire::header::VERSION_TWO;
use crate::Result;

pub(super) const SCENARIOS: &Scenarios = &[
    ("cut", cut),
    ("versions", versions),
    ("not-calls", not_calls),
    ("longer", longer),
    ("not-a-send", not_a_send),
    ("unconfirmed", unconfirmed),
    ("version-two", version_two),
];

/// An honest Call, cut at each word and at some bytes between. What has no whole fixed header gets
/// no answer; each of those costs a moment.
fn cut(requester: &mut Requester) -> Result<Vec<String>> {
    requester.connect()?;
    let mut outcomes = Vec::new();
    for length in [1, 4, 15] {
        let bytes = Call::null().encode(requester.next_xid());
        outcomes.push(requester.bytes(&bytes[..length], SILENCE)?);
    }
    for length in [16, 17, 20, 24, 27, 28, 31, 32, 35] {
        let bytes = Call::null().encode(requester.next_xid());
        outcomes.push(requester.bytes(&bytes[..length], LIMIT)?);
    }
    outcomes.push(requester.call(&Call::null())?);
    Ok(outcomes)
}

/// Other versions of the protocol, and procedures that there are not.
fn versions(requester: &mut Requester) -> Result<Vec<String>> {
    requester.connect()?;
    let mut outcomes = Vec::new();
    for (at, value) in [
        (4, 0),
        (4, 3),
        (4, u32::MAX),
        (12, 2),
        (12, 3),
        (12, 5),
        (12, u32::MAX),
    ] {
        let mut bytes = Call::null().encode(requester.next_xid());
        bytes[at..at + 4].copy_from_slice(&words(&[value]));
        outcomes.push(requester.bytes(&bytes, LIMIT)?);
    }
    outcomes.push(requester.call(&Call::null())?);
    Ok(outcomes)
}

/// Replies to Calls that the server has not sent, and errors.
fn not_calls(requester: &mut Requester) -> Result<Vec<String>> {
    requester.connect()?;
    for round in 0..100 {
        let xid = requester.next_xid();
        let message = match round % 4 {
            0 => words(&[xid, 1, 1, 0, 0, 0, 0, xid, 1, 0, 0, 0, 0]),
            1 => words(&[xid, 1, 1, 4, 1, 1, 1]),
            2 => words(&[xid, 1, 1, 4, 2]),
            // Neither a Call nor a Reply.
            _ => words(&[xid, 1, 1, 0, 0, 0, 0, xid, 7]),
        };
        requester.verbs.send(&message, None)?;
    }
    Ok(vec![
        requester.outcome(SILENCE)?,
        requester.call(&Call::null())?,
    ])
}

/// A message that is longer than the server's Receives.
fn longer(requester: &mut Requester) -> Result<Vec<String>> {
    requester.connect()?;
    let mut bytes = Call::null().encode(requester.next_xid());
    bytes.resize(8000, 0);
    Ok(vec![requester.bytes(&bytes, LIMIT)?])
}

/// A Receive is used up without a message.
fn not_a_send(requester: &mut Requester) -> Result<Vec<String>> {
    requester.connect()?;
    let first = requester.call(&Call::null())?;
    let status = requester.verbs.write_immediate()?;
    if status != 0 {
        return Err(format!("the RDMA Write has status {status}"));
    }
    Ok(vec![first, requester.outcome(SILENCE)?])
}

/// The last message of the handshake is lost; what the server sends again instead comes seconds later.
fn unconfirmed(requester: &mut Requester) -> Result<Vec<String>> {
    let offer = Requester::offer();
    let address = requester.address.clone();
    requester
        .verbs
        .connect_unconfirmed(&address, PORT, &offer)?;
    requester.send(&Call::null())?;
    let mut outcomes = vec![requester.outcome(SILENCE)?];
    requester.verbs.confirm()?;
    outcomes.push(requester.call(&Call::null())?);
    Ok(outcomes)
}

/// Sends a Call in Version Two: what comes of it.
fn in_two(requester: &mut Requester, call: &Call) -> Result<String> {
    let mut bytes = call.encode(requester.next_xid());
    bytes[4..8].copy_from_slice(&words(&[VERSION_TWO]));
    requester.bytes(&bytes, LIMIT)
}

/// A first Call of Version Two whose Reply says that it is wrong, and on another connection one whose
/// Reply does not fit a first message, which decides nothing.
fn version_two(requester: &mut Requester) -> Result<Vec<String>> {
    requester.connect()?;
    let mut wrong = Call::reading(&[requester.segment(100)]);
    wrong.argument = vec![0, 0, 0, 77];
    let long = read(&[], None, 2000)?;
    let mut outcomes = vec![in_two(requester, &wrong)?, in_two(requester, &long)?];
    requester.connect()?;
    for call in [&long, &Call::null(), &long] {
        outcomes.push(in_two(requester, call)?);
    }
    // An RDMA_OPTIONAL, of which the server has none.
    let option = words(&[requester.next_xid(), VERSION_TWO, 32, 5, 7, 0]);
    outcomes.push(requester.bytes(&option, LIMIT)?);
    Ok(outcomes)
}
