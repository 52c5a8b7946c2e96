// SPDX-License-Identifier: GPL-2.0

//! Connections that say nothing, are not completed, or do not last.

use std::time::Duration;

use super::{outcome_of, results, segment_of, Call, Requester, Scenarios};
use crate::Result;

pub(super) const SCENARIOS: &Scenarios = &[
    ("silent", |requester| many(requester, 20, true)),
    ("half-open", |requester| many(requester, 10, false)),
    ("takes-no-replies", takes_no_replies),
    ("comes-and-goes", |requester| comes_and_goes(requester, 50)),
    ("comes-and-goes-10000", |requester| {
        comes_and_goes(requester, 10_000)
    }),
];

/// Connections that stay, and on which nothing is ever sent.
fn many(requester: &mut Requester, count: usize, establish: bool) -> Result<Vec<String>> {
    for _ in 0..count {
        requester.connect_another(establish)?;
    }
    Ok(vec![format!("{count}_up")])
}

/// READs whose Replies fill the server's send queue.
fn takes_no_replies(requester: &mut Requester) -> Result<Vec<String>> {
    let mut verbs = requester.connect_for_one_reply()?;
    let segment = segment_of(&mut verbs, 1000);
    let call = results::read(&[], Some(vec![segment; 22]), 20_000)?;
    for _ in 0..40 {
        let xid = requester.next_xid();
        verbs.send(&call.encode(xid), None)?;
    }
    verbs.receive(Duration::from_secs(10))?;
    Ok(vec![outcome_of(&mut verbs, Duration::from_secs(60))?])
}

/// One connection after the other; every tenth is used.
fn comes_and_goes(requester: &mut Requester, count: u32) -> Result<Vec<String>> {
    let mut answered = 0;
    for n in 0..count {
        requester.connect()?;
        if n % 10 == 0 {
            match requester.call(&Call::null())?.as_str() {
                "answered" => answered += 1,
                other => return Ok(vec![other.to_owned()]),
            }
        }
        requester.verbs.disconnect();
    }
    Ok(vec![format!("{answered}_answered")])
}
