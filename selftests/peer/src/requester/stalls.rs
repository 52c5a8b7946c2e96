// SPDX-License-Identifier: GPL-2.0

//! Connections whose Calls fill the server's send queues, and which let little or nothing of that complete, beside
//! an honest client. Those that the server ends come again.

use std::time::{Duration, Instant};

use super::{results, segment_of, Call, Requester, Scenarios, PORT};
use crate::verbs::{Acceptance, Verbs, Waited};
use crate::Result;

pub(super) const SCENARIOS: &Scenarios = &[
    ("stalls-placed", |requester| stall(requester, &PLACED)),
    ("stalls-inline", |requester| stall(requester, &INLINE)),
    ("stalls-slowly", |requester| stall(requester, &SLOWLY)),
    ("stalls-reads", |requester| stall(requester, &READS)),
];

/// How long all of it takes.
const LASTS: Duration = Duration::from_secs(20);

/// How long the slow ones take to post the next Receive.
const PAUSE: Duration = Duration::from_secs(8);

/// What is sent on each connection.
struct Stall {
    /// The number of Receives, each of which is for one Reply.
    receives: u32,
    /// A Call, of which there are many.
    call: fn(&mut Verbs) -> Result<Call>,
    /// Whether Receives are posted again, now and then.
    goes_on: bool,
}

/// READs of 60,000 bytes into a Write chunk.
const PLACED: Stall = Stall {
    receives: 0,
    call: placed,
    goes_on: false,
};

/// READs of what fits inline.
const INLINE: Stall = Stall {
    call: |_| results::read(&[], None, 700),
    ..PLACED
};

const SLOWLY: Stall = Stall {
    receives: 1,
    goes_on: true,
    ..PLACED
};

/// Calls with Read segments, behind one whose Reply keeps the server's Reads from being sent.
const READS: Stall = Stall {
    call: |verbs| Ok(Call::reading(&[segment_of(verbs, 2000); 32])),
    ..PLACED
};

fn placed(verbs: &mut Verbs) -> Result<Call> {
    results::read(&[segment_of(verbs, 2000); 30], None, 60_000)
}

/// A number that the test has chosen.
fn chosen(name: &str) -> Result<usize> {
    let value = std::env::var(name).map_err(|error| format!("{name}: {error}"))?;
    value.parse().map_err(|error| format!("{name}: {error}"))
}

/// Connects. There is no other connection that sends until all have come that far.
fn connect(requester: &Requester, stall: &Stall, verbs: &mut Verbs) -> Result {
    let offer = Acceptance {
        receives: stall.receives,
        data_size: 4096,
        ..Requester::small_offer()
    };
    verbs.connect(&requester.address, PORT, &offer, true)
}

/// Sends all of a connection's Calls, behind one that has no chunks.
fn send(requester: &mut Requester, stall: &Stall, verbs: &mut Verbs) -> Result {
    let call = (stall.call)(verbs)?;
    let calls = std::iter::repeat_n(call, chosen("CALLS")?);
    for call in std::iter::once(Call::null()).chain(calls) {
        verbs.send(&call.encode(requester.next_xid()), None)?;
    }
    Ok(())
}

/// How many of the connections the server has ended.
fn stall(requester: &mut Requester, stall: &Stall) -> Result<Vec<String>> {
    let mut all: Vec<Verbs> = (0..chosen("CONNECTIONS")?).map(|_| Verbs::new()).collect();
    for verbs in &mut all {
        connect(requester, stall, verbs)?;
    }
    for verbs in &mut all {
        send(requester, stall, verbs)?;
    }
    let start = Instant::now();
    let mut next = start + PAUSE;
    let mut ended = 0;
    while start.elapsed() < LASTS {
        for verbs in &mut all {
            if verbs.is_ended(Duration::from_millis(10))? {
                ended += 1;
                // Nobody is accepted while all of nfsd waits.
                if connect(requester, stall, verbs).is_ok() {
                    send(requester, stall, verbs)?;
                }
            }
        }
        if stall.goes_on && Instant::now() >= next {
            next += PAUSE;
            for verbs in &mut all {
                if let Waited::For(_) = verbs.receive(Duration::ZERO)? {
                    verbs.post_receive()?;
                }
            }
        }
    }
    Ok(vec![format!("{ended}_ended")])
}
