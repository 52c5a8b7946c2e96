// SPDX-License-Identifier: GPL-2.0

//! Connections whose Calls fill the server's send queues, and which let little or nothing of that complete, beside
//! an honest client.

use std::time::Duration;

use super::{results, segment_of, Call, Requester, Scenarios};
use crate::peer::LIMIT;
use crate::verbs::{Acceptance, Verbs, Waited};
use crate::Result;

pub(super) const SCENARIOS: &Scenarios = &[
    ("stalls-placed", |requester| {
        stall(requester, &[of_many(PLACED)])
    }),
    ("stalls-inline", |requester| {
        stall(requester, &[of_many(INLINE)])
    }),
    ("stalls-slowly", |requester| stall(requester, &[SLOWLY])),
    ("stalls-reads", |requester| stall(requester, &[READS])),
    ("stalls-large", |requester| stall(requester, &[LARGE])),
    ("stalls", |requester| {
        stall(requester, &[PLACED, INLINE, READS, ERRORS])
    }),
    ("stalls-behind", |requester| {
        stall(requester, &[PLACED_BEHIND, READS_BEHIND])
    }),
    ("stalls-inline-slowly", |requester| {
        stall(requester, &[INLINE_SLOWLY])
    }),
];

/// How long the slow ones take to post the next Receive.
const PAUSE: Duration = Duration::from_secs(8);

/// How many Receives they post. Then it is over.
const PAUSES: u32 = 2;

/// What is sent on each connection.
struct Stall {
    /// The number of Receives, each of which is for one Reply.
    receives: u32,
    /// Bytes of memory for RDMA Reads and Writes.
    memory: u32,
    /// A Call, of which there are many, and one that comes last.
    call: fn(&mut Verbs) -> Result<Call>,
    last: Option<fn(&mut Verbs) -> Result<Call>>,
    /// Whether Receives are posted again, now and then.
    goes_on: bool,
    /// Whether there may be many. A READ comes first, and is answered: of connections that have shown access to no file
    /// sunrpc keeps 64. When the Calls have arrived the queue pair goes, as what finds no Receive is repeated all the
    /// time, and the server is asked to wait for 2.4 hours before it takes anything for lost.
    is_of_many: bool,
}

/// READs of 60,000 bytes into a Write chunk.
const PLACED: Stall = Stall {
    receives: 0,
    memory: 4096,
    call: placed,
    last: None,
    goes_on: false,
    is_of_many: false,
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

const INLINE_SLOWLY: Stall = Stall {
    call: INLINE.call,
    ..SLOWLY
};

/// Calls with Read segments, behind one whose Reply keeps the server's Reads from being sent.
const READS: Stall = Stall {
    call: |verbs| Ok(Call::reading(&[segment_of(verbs, 2000); 32])),
    ..PLACED
};

/// Calls with one Read segment more than any may have, which are answered with RDMA_ERRORs.
const ERRORS: Stall = Stall {
    call: |verbs| Ok(Call::reading(&[segment_of(verbs, 4); 33])),
    ..PLACED
};

/// Inline Replies leave less room than the last Call needs, for the RDMA Writes of its Reply or for its RDMA Reads.
const PLACED_BEHIND: Stall = Stall {
    last: Some(PLACED.call),
    ..INLINE
};

const READS_BEHIND: Stall = Stall {
    last: Some(READS.call),
    ..INLINE
};

/// READs of SIZE bytes, 4 MiB at most, into segments of the same memory, as there may be many connections.
const LARGE: Stall = Stall {
    memory: 4 << 20 >> 4,
    call: |verbs| {
        let size = u32::try_from(chosen("SIZE")?).map_err(|error| format!("SIZE: {error}"))?;
        results::read(&[segment_of(verbs, size / 16); 16], None, size)
    },
    ..of_many(PLACED)
};

/// The same, of which there may be many.
const fn of_many(stall: Stall) -> Stall {
    Stall {
        receives: 1,
        is_of_many: true,
        ..stall
    }
}

fn placed(verbs: &mut Verbs) -> Result<Call> {
    results::read(&[segment_of(verbs, 2000); 30], None, 60_000)
}

/// A number that the test has chosen.
fn chosen(name: &str) -> Result<usize> {
    let value = std::env::var(name).map_err(|error| format!("{name}: {error}"))?;
    value.parse().map_err(|error| format!("{name}: {error}"))
}

/// Sends all of a connection's Calls, behind one that has no chunks.
fn send(stall: &Stall, verbs: &mut Verbs, xid: &mut u32) -> Result {
    let call = (stall.call)(verbs)?;
    let last = stall.last.map(|last| last(verbs)).transpose()?;
    let calls = std::iter::repeat_n(call, chosen("CALLS")?).chain(last);
    for call in std::iter::once(Call::null()).chain(calls) {
        *xid += 1;
        verbs.send(&call.encode(*xid), None)?;
    }
    Ok(())
}

/// Connections of these kinds in turn. None sends anything until all are up.
fn stall(requester: &mut Requester, kinds: &[Stall]) -> Result<Vec<String>> {
    let kinds = (kinds.iter().cycle()).take(chosen("CONNECTIONS")?);
    let mut xid = requester.xid;
    for stall in kinds.clone() {
        let offer = Acceptance {
            receives: stall.receives,
            data_size: stall.memory,
            ack_timeout: if stall.is_of_many { 31 } else { 0 },
            ..Requester::small_offer()
        };
        let verbs = requester.connect_another(&offer, true)?;
        if stall.is_of_many {
            xid += 1;
            verbs.send(&results::read(&[], None, 1)?.encode(xid), None)?;
            verbs.receive(LIMIT)?;
        }
    }
    for (verbs, stall) in requester.others.iter_mut().zip(kinds.clone()) {
        send(stall, verbs, &mut xid)?;
        if stall.is_of_many {
            verbs.flush()?;
            verbs.vanish()?;
        }
    }
    for _ in 0..PAUSES {
        std::thread::sleep(PAUSE);
        let all = requester.others.iter_mut().zip(kinds.clone());
        for (verbs, _) in all.filter(|(_, stall)| stall.goes_on) {
            if let Waited::For(_) = verbs.receive(Duration::ZERO)? {
                verbs.post_receive()?;
            }
        }
    }
    Ok(vec![format!("{}_up", requester.others.len())])
}
