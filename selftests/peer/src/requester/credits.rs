// SPDX-License-Identifier: GPL-2.0

//! Calls beyond what was granted.

use super::{Call, Requester, Scenarios};
use crate::peer::LIMIT;
use crate::Result;

pub(super) const SCENARIOS: &Scenarios = &[
    ("beyond-the-grant", beyond),
    ("overrun-reads", overrun_reads),
];

/// Sends Calls as fast as there are Receives for them, which the fabric repeats until then.
fn overrun(requester: &mut Requester, call: &Call, count: usize) -> Result<Vec<String>> {
    let mut outcomes = Vec::new();
    for _ in 0..count {
        requester.send(call)?;
        // What has come by now, so that there is a Receive for the next one.
        while outcomes.len() < count {
            match requester.outcome(std::time::Duration::ZERO)?.as_str() {
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
