// SPDX-License-Identifier: GPL-2.0

//! Connections that say nothing, are not completed, or do not last.

use std::time::{Duration, Instant};

use super::{
    end_of, outcome_of, results, segment_of, wait_for_line, Call, Requester, Scenarios, PORT,
};
use crate::peer::LIMIT;
use crate::verbs::{Verbs, Waited};
use crate::Result;

pub(super) const SCENARIOS: &Scenarios = &[
    ("silent", |requester| many(requester, 20, true)),
    ("silent-100", too_many),
    ("half-open", |requester| many(requester, 10, false)),
    ("burst", |requester| burst(requester, 300)),
    ("burst-5", |requester| burst(requester, 5)),
    ("refused-50", |requester| refused(requester, 50)),
    ("takes-no-replies", |requester| {
        takes_no_replies(requester, 1)
    }),
    ("takes-no-replies-8", |requester| {
        takes_no_replies(requester, 8)
    }),
    ("full-and-gone-8", |requester| full_and_gone(requester, 8)),
    ("holds-replies", holds_replies),
    ("leaves-replies", leaves_replies),
    ("comes-and-goes", |requester| comes_and_goes(requester, 50)),
    ("comes-and-goes-10000", |requester| {
        comes_and_goes(requester, 10_000)
    }),
];

/// Connections that stay, and on which nothing is ever sent.
fn many(requester: &mut Requester, count: usize, establish: bool) -> Result<Vec<String>> {
    for _ in 0..count {
        requester.connect_another(&Requester::small_offer(), establish)?;
    }
    Ok(vec![format!("{count}_up")])
}

/// Connections that have shown access to no file, of which sunrpc keeps so many: one more costs the
/// oldest of them.
const KEPT: usize = 65;

/// The same as [`many`], of more than are kept. Each that is one too many is made when the end of
/// the one before has come: while it is still to end, the next one costs nothing.
fn too_many(requester: &mut Requester) -> Result<Vec<String>> {
    let mut outcomes = many(requester, KEPT, true)?;
    for n in 0..35 {
        requester.connect_another(&Requester::small_offer(), true)?;
        outcomes.push(end_of(&mut requester.others[n])?);
    }
    Ok(outcomes)
}

/// How many connects the server's listener has room for.
const WAITING: usize = 256;

/// A server that has accepted the first connection, and accepts no other one meanwhile, is asked
/// for `count` more: how many it refuses, as no more may wait.
fn burst(requester: &mut Requester, count: usize) -> Result<Vec<String>> {
    requester.connect_another(&Requester::small_offer(), false)?;
    let mut pending = Vec::new();
    for _ in 0..count {
        let mut verbs = Verbs::new();
        verbs.ask(&requester.address, PORT, &Requester::small_offer())?;
        pending.push(verbs);
    }
    let mut refused = 0;
    // A message that is lost is repeated after some seconds.
    let slow = std::env::var("SLOW").map_or(Ok(1), |slow| slow.parse::<u32>());
    let end = Instant::now() + 8 * slow.map_err(|error| error.to_string())? * LIMIT;
    while pending.len() > WAITING && Instant::now() < end {
        for mut verbs in std::mem::take(&mut pending) {
            match verbs.answer(Duration::from_millis(1))? {
                Waited::For(()) => return Ok(vec!["accepted".to_owned()]),
                Waited::Ended => refused += 1,
                Waited::TimedOut => pending.push(verbs),
            }
        }
    }
    requester.others.append(&mut pending);
    Ok(vec![format!("{refused}_refused")])
}

/// Asks for connections that the server does not accept.
fn refused(requester: &mut Requester, count: usize) -> Result<Vec<String>> {
    let offer = Requester::small_offer();
    let mut refused = 0;
    for _ in 0..count {
        refused += usize::from(requester.connect_with(&offer).is_err());
    }
    Ok(vec![format!("{refused}_refused")])
}

/// READs whose Replies fill the server's send queues of some connections.
fn fill_queues(requester: &mut Requester, count: usize) -> Result {
    for _ in 0..count {
        let verbs = requester.connect_for_one_reply()?;
        requester.others.push(verbs);
    }
    for verbs in &mut requester.others {
        let segment = segment_of(verbs, 1000);
        let call = results::read(&[], Some(vec![segment; 22]), 20_000)?;
        for _ in 0..40 {
            requester.xid += 1;
            verbs.send(&call.encode(requester.xid), None)?;
        }
    }
    Ok(())
}

/// Connections with full queues, which the server has to end.
fn takes_no_replies(requester: &mut Requester, count: usize) -> Result<Vec<String>> {
    fill_queues(requester, count)?;
    let others = requester.others.iter_mut();
    others
        .map(|verbs| {
            verbs.receive(Duration::from_secs(10))?;
            outcome_of(verbs, Duration::from_secs(60))
        })
        .collect()
}

/// The same, which end when the test says so. Their queue pairs have the server repeat its Replies
/// all the same: by these it cannot tell that they have ended.
fn full_and_gone(requester: &mut Requester, count: usize) -> Result<Vec<String>> {
    fill_queues(requester, count)?;
    wait_for_line();
    for verbs in &mut requester.others {
        verbs.say_goodbye()?;
    }
    requester.others.iter_mut().map(end_of).collect()
}

/// The server looks at what it has sent at intervals of this length, when it sends a Reply.
const LOOKS: Duration = Duration::from_secs(10);

/// So long what it has sent may be under way.
const UNDER_WAY: Duration = Duration::from_secs(65);

/// A few Replies that are never received. They do not fill the send queue, so that no thread waits
/// for them, and Calls keep the connection from being idle.
fn holds_replies(requester: &mut Requester) -> Result<Vec<String>> {
    let mut verbs = requester.connect_for_one_reply()?;
    let mut call = |verbs: &mut Verbs| {
        requester.xid += 1;
        verbs.send(&Call::null().encode(requester.xid), None)
    };
    call(&mut verbs)?;
    verbs.receive(LIMIT)?;
    for pause in [LOOKS, UNDER_WAY] {
        call(&mut verbs)?;
        std::thread::sleep(pause);
    }
    // The server has looked with the Reply to the one before, and looks again with this one's.
    call(&mut verbs)?;
    Ok(vec![outcome_of(&mut verbs, LIMIT)?])
}

/// The Reply to a READ finds no Receive, and the requester says not a word more: the server keeps the
/// pages that it has read for a while.
fn leaves_replies(requester: &mut Requester) -> Result<Vec<String>> {
    let mut verbs = requester.connect_for_one_reply()?;
    let segment = segment_of(&mut verbs, 20_000);
    requester.xid += 2;
    verbs.send(&Call::null().encode(requester.xid - 1), None)?;
    verbs.receive(LIMIT)?;
    let read = results::read(&[segment], None, 20_000)?;
    verbs.send(&read.encode(requester.xid), None)?;
    Ok(vec![outcome_of(&mut verbs, Duration::from_secs(180))?])
}

/// One connection after the other; every tenth is used.
fn comes_and_goes(requester: &mut Requester, count: u32) -> Result<Vec<String>> {
    let mut answered = 0;
    for n in 0..count {
        requester.connect_with(&Requester::small_offer())?;
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
