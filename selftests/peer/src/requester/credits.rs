// SPDX-License-Identifier: GPL-2.0

//! Calls beyond what was granted.

use std::time::Duration;

use super::compound::{compound, read_operation, write_operation};
use super::{Call, Requester, Scenarios};
use crate::peer::LIMIT;
use crate::Result;

pub(super) const SCENARIOS: &Scenarios = &[
    ("beyond-the-grant", beyond),
    ("overrun-reads", overrun_reads),
    ("dropped", dropped),
];

/// Sends Calls as fast as there are Receives for them, which the fabric repeats until then.
fn overrun(requester: &mut Requester, call: &Call, count: usize) -> Result<Vec<String>> {
    let mut outcomes = Vec::new();
    for _ in 0..count {
        requester.send(call)?;
        // What has come by now, so that there is a Receive for the next one.
        while outcomes.len() < count {
            match requester.outcome(Duration::ZERO)?.as_str() {
                "silence" => break,
                outcome => outcomes.push(outcome.to_owned()),
            }
        }
    }
    while outcomes.len() < count {
        outcomes.push(requester.outcome(LIMIT)?);
    }
    Ok(outcomes)
}

fn beyond(requester: &mut Requester) -> Result<Vec<String>> {
    requester.connect()?;
    overrun(requester, &Call::null(), 600)
}

/// The same with data to be fetched, more than a connection may have fetched at once.
fn overrun_reads(requester: &mut Requester) -> Result<Vec<String>> {
    requester.connect()?;
    let segment = requester.segment(1 << 20);
    overrun(requester, &Call::reading(&[segment]), 40)
}

/// The same Call again and again, with which a thread of the server is kept, and then others.
fn dropped(requester: &mut Requester) -> Result<Vec<String>> {
    const AGAIN: usize = 200;
    const OTHERS: usize = 20;
    requester.connect()?;
    let call = Call {
        body: compound(&[write_operation(0, b"data"), read_operation(0, 4)])?,
        ..Call::null()
    };
    let bytes = call.encode(requester.next_xid());
    for _ in 0..=AGAIN {
        requester.verbs.send(&bytes, None)?;
    }
    let mut outcomes = overrun(requester, &Call::null(), OTHERS)?;
    outcomes.push(requester.outcome(LIMIT)?);
    Ok(outcomes)
}
