// SPDX-License-Identifier: GPL-2.0

//! Connections that say nothing, are not completed, or do not last.

use std::ops::RangeInclusive;
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
    ("takes-no-replies", takes_no_replies),
    ("holds-replies", holds_replies),
    ("leaves-replies", leaves_replies),
    ("takes-few-replies", takes_few_replies),
    ("takes-slowly", takes_slowly),
    ("takes-later", takes_later),
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

/// How many times as long as usual the machines take for anything.
fn slow() -> Result<u64> {
    let slow = std::env::var("SLOW").map_or(Ok(1), |slow| slow.parse::<u64>());
    slow.map_err(|error| error.to_string())
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
    let end = Instant::now() + Duration::from_secs(240 * slow()?);
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

/// How many seconds after the first Calls a connection ends of which nothing completes any more, and one of which too
/// little does. The server looks every ten seconds, and a busy machine somewhat later.
const QUIET: RangeInclusive<u64> = 20..=35;
const LATE: RangeInclusive<u64> = 60..=85;

/// Waits for the end of a connection, by the server and at its time.
fn end_at(verbs: &mut Verbs, start: Instant, times: &RangeInclusive<u64>) -> Result<String> {
    let is_ended = verbs.is_ended(Duration::from_secs(*times.end() * slow()?))?;
    let took = start.elapsed().as_secs();
    Ok(match is_ended && took >= *times.start() {
        true => "ended".to_owned(),
        false => format!("ended_after_{took}_s"),
    })
}

/// READs whose Replies fill the server's send queue: it has to end the connection.
fn takes_no_replies(requester: &mut Requester) -> Result<Vec<String>> {
    let mut verbs = requester.connect_for_one_reply()?;
    let start = Instant::now();
    let segment = segment_of(&mut verbs, 1000);
    let call = results::read(&[], Some(vec![segment; 22]), 20_000)?;
    for _ in 0..40 {
        verbs.send(&call.encode(requester.next_xid()), None)?;
    }
    Ok(vec![end_at(&mut verbs, start, &QUIET)?])
}

/// A few Replies that are never received. They do not fill the send queue, and Calls keep the connection from being
/// idle.
fn holds_replies(requester: &mut Requester) -> Result<Vec<String>> {
    let mut verbs = requester.connect_for_one_reply()?;
    let start = Instant::now();
    loop {
        requester.xid += 1;
        verbs.send(&Call::null().encode(requester.xid), None)?;
        if verbs.is_ended(Duration::from_secs(3))? {
            return Ok(vec![end_at(&mut verbs, start, &QUIET)?]);
        }
    }
}

/// The Reply to a READ finds no Receive, and the requester says not a word more: the server keeps the
/// pages that it has read for a while.
fn leaves_replies(requester: &mut Requester) -> Result<Vec<String>> {
    let mut verbs = requester.connect_for_one_reply()?;
    let segment = segment_of(&mut verbs, 20_000);
    let start = Instant::now();
    verbs.send(&Call::null().encode(requester.next_xid()), None)?;
    let read = results::read(&[segment], None, 20_000)?;
    verbs.send(&read.encode(requester.next_xid()), None)?;
    Ok(vec![end_at(&mut verbs, start, &QUIET)?])
}

/// More Replies than a send queue holds, of which one is taken every nine seconds.
fn takes_few_replies(requester: &mut Requester) -> Result<Vec<String>> {
    let mut verbs = requester.connect_for_one_reply()?;
    let start = Instant::now();
    for _ in 0..127 {
        verbs.send(&Call::null().encode(requester.next_xid()), None)?;
    }
    while !verbs.is_ended(Duration::from_secs(9))? {
        if let Waited::For(_) = verbs.receive(Duration::ZERO)? {
            verbs.post_receive()?;
        }
    }
    Ok(vec![end_at(&mut verbs, start, &LATE)?])
}

/// The server's send queue of SLOTS entries is full of Replies, so that RDMA Reads wait, and the Replies are taken one
/// by one for forty seconds, of which the Reads still wait, and then all.
fn takes_slowly(requester: &mut Requester) -> Result<Vec<String>> {
    /// Entries that are left for a Call with 32 Read segments.
    const LEFT: usize = 20;
    let slots = std::env::var("SLOTS").map_err(|error| format!("SLOTS: {error}"))?;
    let slots: usize = slots.parse().map_err(|_| format!("SLOTS is {slots}"))?;
    let mut verbs = requester.connect_for_one_reply()?;
    let replies = slots - LEFT;
    for _ in 0..replies {
        verbs.send(&Call::null().encode(requester.next_xid()), None)?;
    }
    let segment = segment_of(&mut verbs, 100);
    let reading = Call::reading(&[segment; 32]);
    verbs.send(&reading.encode(requester.next_xid()), None)?;
    wait_for_line();
    let mut outcomes = Vec::new();
    for _ in 0..10 {
        outcomes.push(outcome_of(&mut verbs, LIMIT)?);
        std::thread::sleep(Duration::from_secs(4));
    }
    while outcomes.len() <= replies {
        outcomes.push(outcome_of(&mut verbs, LIMIT)?);
    }
    requester.others.push(verbs);
    Ok(outcomes)
}

/// Two of three Replies find no Receive until the test has done something.
fn takes_later(requester: &mut Requester) -> Result<Vec<String>> {
    let mut verbs = requester.connect_for_one_reply()?;
    for _ in 0..3 {
        verbs.send(&Call::null().encode(requester.next_xid()), None)?;
    }
    wait_for_line();
    let outcomes = [(); 3].map(|()| outcome_of(&mut verbs, LIMIT));
    requester.others.push(verbs);
    outcomes.into_iter().collect()
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
