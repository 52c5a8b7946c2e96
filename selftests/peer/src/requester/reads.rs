// SPDX-License-Identifier: GPL-2.0

//! Memory that cannot be read, or is gone when it is, and much of it at once.

use std::time::Duration;

use super::{end_of, outcome_of, segment_of, Call, Requester, Scenarios};
use crate::peer::LIMIT;
use crate::proto::wire::chunk::Segment;
use crate::verbs::{Acceptance, Verbs};
use crate::Result;

pub(super) const SCENARIOS: &Scenarios = &[
    ("bad-handle", bad_handle),
    ("beyond-the-memory", beyond_the_memory),
    ("bad-write-handle", bad_write_handle),
    ("sends-it-again", sends_it_again),
    ("vanishes", vanishes),
    ("vanishes-for-long", vanishes_for_long),
    ("hangs-up", hangs_up),
    ("crowd", crowd),
    ("holds-pages", holds_pages),
];

/// A handle that there is not, several times, each on a connection of its own.
fn bad_handle(requester: &mut Requester) -> Result<Vec<String>> {
    (0..5)
        .map(|_| {
            requester.connect()?;
            let segment = requester.segment(1 << 20);
            let bad = Segment {
                handle: !segment.handle,
                ..segment
            };
            requester.call(&Call::reading(&[bad]))
        })
        .collect()
}

fn beyond_the_memory(requester: &mut Requester) -> Result<Vec<String>> {
    requester.connect()?;
    let segment = requester.segment(1 << 20);
    let beyond = Segment {
        offset: segment.offset + (1 << 40),
        ..segment
    };
    Ok(vec![
        requester.call(&Call::reading(&[segment, beyond][1..]))?
    ])
}

/// A whole Reply into a chunk that cannot be written to.
fn bad_write_handle(requester: &mut Requester) -> Result<Vec<String>> {
    requester.connect()?;
    let segment = requester.segment(1 << 16);
    let bad = Segment {
        handle: !segment.handle,
        ..segment
    };
    let read = super::results::read(&[], Some(vec![bad]), 20_000)?;
    Ok(vec![requester.call(&read)?])
}

/// A Call costs two connections before it is refused. After so many the scenario gives up.
const MOST_ENDS: u32 = 10;

/// A Call that cannot be answered comes again on the next connections, and once more when it was
/// refused.
fn sends_it_again(requester: &mut Requester) -> Result<Vec<String>> {
    let mut outcomes = Vec::new();
    for is_write in [false, true] {
        requester.connect()?;
        let segment = requester.segment(1 << 16);
        let bad = Segment {
            handle: !segment.handle,
            ..segment
        };
        let (bad, good) = match is_write {
            // The device tells why of the first Read, and of the last one that it was flushed.
            false => (
                Call::reading(&[bad, segment]),
                Call::reading(&[segment, segment]),
            ),
            true => (
                super::results::read(&[], Some(vec![bad]), 20_000)?,
                super::results::read(&[], Some(vec![segment]), 20_000)?,
            ),
        };
        let xid = requester.next_xid();
        let mut ends = 0;
        let last = loop {
            let outcome = requester.bytes(&bad.encode(xid), LIMIT)?;
            if outcome != "ended" || ends == MOST_ENDS {
                break outcome;
            }
            ends += 1;
            outcomes.push(outcome);
            requester.connect()?;
            let honest = requester.call(&Call::null())?;
            if honest != "answered" {
                outcomes.push(honest);
            }
        };
        outcomes.push(last);
        let (offset, handle) = requester.verbs.memory();
        let mut good = good;
        for segment in good.reads.iter_mut().map(|entry| &mut entry.segment) {
            (segment.offset, segment.handle) = (offset, handle);
        }
        for segment in good.reply.iter_mut().flatten() {
            (segment.offset, segment.handle) = (offset, handle);
        }
        outcomes.push(requester.bytes(&good.encode(xid), LIMIT)?);
    }
    Ok(outcomes)
}

/// The queue pair is gone when the server reads, and nobody tells it.
fn vanishes(requester: &mut Requester) -> Result<Vec<String>> {
    vanishes_from(requester, &Requester::offer())
}

/// The same where the server is asked to wait for 2.4 hours before it takes anything for lost.
fn vanishes_for_long(requester: &mut Requester) -> Result<Vec<String>> {
    let offer = Acceptance {
        ack_timeout: 31,
        ..Requester::offer()
    };
    vanishes_from(requester, &offer)
}

fn vanishes_from(requester: &mut Requester, offer: &Acceptance) -> Result<Vec<String>> {
    requester.connect_with(offer)?;
    let segment = requester.segment(1 << 20);
    for _ in 0..6 {
        requester.send(&Call::reading(&[segment]))?;
    }
    // They have arrived, and the first Reads may have begun.
    requester.verbs.flush()?;
    requester.verbs.vanish()?;
    Ok(vec![end_of(&mut requester.verbs)?])
}

/// The connection ends with Reads under way, time and again.
fn hangs_up(requester: &mut Requester) -> Result<Vec<String>> {
    for _ in 0..20 {
        requester.connect()?;
        let segment = requester.segment(1 << 20);
        for _ in 0..6 {
            requester.send(&Call::reading(&[segment]))?;
        }
        requester.verbs.flush()?;
        requester.verbs.disconnect();
    }
    Ok(vec!["gone".to_owned()])
}

/// Connections that together ask for more than there is room for.
const CROWD: usize = 10;

/// Many connections, each of which asks for as much as it may, and is gone when the server reads.
fn crowd(requester: &mut Requester) -> Result<Vec<String>> {
    for _ in 0..CROWD {
        let xid = requester.next_xid();
        let verbs = requester.connect_another(&Requester::offer(), true)?;
        verbs.send(&Call::null().encode(xid), None)?;
        match outcome_of(verbs, LIMIT)?.as_str() {
            "answered" => {}
            other => return Ok(vec![other.to_owned()]),
        }
    }
    let mut xid = requester.xid;
    for verbs in &mut requester.others {
        for _ in 0..CALLS {
            ask(verbs, &mut xid)?;
        }
        verbs.flush()?;
        verbs.vanish()?;
    }
    requester.others.iter_mut().map(end_of).collect()
}

/// As much is to be read as there may be, behind Replies that are repeated for ever, as there are no Receives for
/// them.
fn holds_pages(requester: &mut Requester) -> Result<Vec<String>> {
    for _ in 0..CROWD {
        let mut verbs = requester.connect_for_one_reply()?;
        verbs.send(&Call::null().encode(requester.next_xid()), None)?;
        verbs.receive(LIMIT)?;
        verbs.send(&Call::null().encode(requester.next_xid()), None)?;
        verbs.flush()?;
        requester.others.push(verbs);
    }
    // Those Calls are executed before these.
    requester.connect()?;
    for _ in 0..20 {
        requester.call(&Call::null())?;
    }
    let mut xid = requester.xid;
    // In turns, so that each has some of it.
    for _ in 0..CALLS {
        for verbs in &mut requester.others {
            ask(verbs, &mut xid)?;
            verbs.flush()?;
        }
    }
    let others = requester.others.iter_mut();
    others
        .map(|verbs| outcome_of(verbs, Duration::from_secs(200)))
        .collect()
}

/// Calls like [`ask`]'s with which a connection asks for as much as it may.
const CALLS: usize = 8;

/// Sends a Call with much to be read.
fn ask(verbs: &mut Verbs, xid: &mut u32) -> Result {
    let segment = segment_of(verbs, 1 << 20);
    *xid += 1;
    verbs.send(&Call::reading(&[segment]).encode(*xid), None)
}
