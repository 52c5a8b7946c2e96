// SPDX-License-Identifier: GPL-2.0

//! Chunks that are too small for their results, or of too many segments, and Receives that are.

use super::compound::{compound, compound_of, lookups, names, path, read_operation};
use super::forms::{receive, segment};
use super::{payload_of, verdict, Call, Requester, Scenarios};
use crate::peer::{word_at, words, LIMIT};
use crate::proto::wire::chunk::Segment;
use crate::proto::wire::private_data::{InlineSize, PrivateData};
use crate::verbs::{Acceptance, Waited};
use crate::Result;

pub(super) const SCENARIOS: &Scenarios = &[
    ("small-chunks", small_chunks),
    ("short-chunks", short_chunks),
    ("announces", announces),
    ("small-receives", small_receives),
    ("readlink", readlink),
];

/// Reads `count` bytes of the file that the test has made.
pub(super) fn read(writes: &[Segment], reply: Option<Vec<Segment>>, count: u32) -> Result<Call> {
    Ok(Call {
        writes: if writes.is_empty() {
            vec![]
        } else {
            vec![writes.to_vec()]
        },
        reply,
        body: compound(&[read_operation(0, count)])?,
        ..Call::null()
    })
}

/// As [`read`], twice, so that only the first one of the results can go into the Write chunk.
fn read_twice(writes: &[Segment], reply: Vec<Segment>, count: u32) -> Result<Call> {
    Ok(Call {
        body: compound(&[read_operation(0, count), read_operation(0, count)])?,
        ..read(writes, Some(reply), count)?
    })
}

/// The outcome, with the status of COMPOUND if the RPC was executed.
fn status(requester: &mut Requester, call: &Call) -> Result<String> {
    requester.send(call)?;
    let bytes = match requester.verbs.receive(LIMIT)? {
        Waited::For(bytes) => bytes,
        Waited::Ended => return Ok("ended".to_owned()),
        Waited::TimedOut => return Ok("silence".to_owned()),
    };
    requester.verbs.post_receive()?;
    let payload = payload_of(&bytes);
    Ok(match (word_at(&bytes, 12), word_at(&bytes, 16)) {
        (4, 2) => "err_chunk".to_owned(),
        (4, other) => format!("rdma_error_{other}"),
        // The Reply chunk has the rest.
        (1, _) => "in_reply_chunk".to_owned(),
        _ => format!("nfs_{}", word_at(payload, 24)),
    })
}

fn small_chunks(requester: &mut Requester) -> Result<Vec<String>> {
    requester.connect()?;
    let [tiny, small, exact, large] =
        [700, 1000, 20_000, 65_536].map(|length| requester.segment(length));
    let calls = [
        read(&[exact], None, 20_000)?,
        read(&[small, small], None, 20_000)?,
        read(&[], Some(vec![large]), 20_000)?,
        read(&[], Some(vec![small; 3]), 20_000)?,
        read(&[], None, 20_000)?,
        // This end has said nothing about itself, so that 1024 bytes are sent inline.
        read(&[], None, 1100)?,
        read(&[], None, 700)?,
        read(&[small], Some(vec![large]), 20_000)?,
        read(&[exact], None, 20_000)?,
        // The Write chunk takes 20 RDMA Writes, the Reply chunk 3 or 30. A Reply has 45 at most.
        read_twice(&[small; 20], vec![exact; 20], 20_000)?,
        read_twice(&[small; 20], vec![tiny; 30], 20_000)?,
    ];
    calls.iter().map(|call| status(requester, call)).collect()
}

/// READs of data for which there is no room, by which nfsd has pages of the file in its hands, and
/// then others from behind these, which are no pages of the file but copies.
fn short_chunks(requester: &mut Requester) -> Result<Vec<String>> {
    requester.connect()?;
    let [short, large] = [1000, 65_536].map(|length| requester.segment(length));
    let short = read(&[short], None, 20_000)?;
    let copies = [
        read_operation(50_000, 20_000),
        read_operation(70_000, 20_000),
    ];
    let copies = Call {
        reply: Some(vec![large]),
        body: compound(&copies)?,
        ..Call::null()
    };
    // For each of the server's threads, and more.
    let calls = [[&short; 32], [&copies; 32]].concat();
    calls.iter().map(|call| status(requester, call)).collect()
}

/// The text of the symbolic link beside the file, in a Reply chunk, with a Write chunk and without:
/// whether it is the same.
fn readlink(requester: &mut Requester) -> Result<Vec<String>> {
    const LENGTH: usize = 8192;
    requester.connect()?;
    let path = path()?;
    let mut names = names(&path);
    names.pop();
    names.push("link");
    let operations = [lookups(&names), vec![words(&[27])]].concat();
    let chunks = [0, LENGTH].map(|at| segment(requester, at, LENGTH));
    let mut text = |writes: &[Segment]| {
        requester.verbs.put(0, &[0; LENGTH]);
        requester.send(&Call {
            writes: writes.iter().map(|&segment| vec![segment]).collect(),
            reply: Some(vec![chunks[0]]),
            body: compound_of(0, &operations),
            ..Call::null()
        })?;
        receive(requester)?;
        // Behind the XID.
        Result::Ok(requester.verbs.get(4, LENGTH - 4))
    };
    let (inline, placed) = (text(&[])?, text(&chunks[1..])?);
    let has_text = inline.windows(100).any(|bytes| bytes == [b'a'; 100]);
    Ok(vec![verdict(has_text && inline == placed)])
}

/// The private data of RFC 8797 for Receives of this many bytes.
fn announcement(receive: u32) -> Result<Vec<u8>> {
    let receive = InlineSize::from_bytes(receive).ok_or("there is no such size")?;
    let data = PrivateData {
        receive,
        ..PrivateData::DEFAULT
    };
    Ok(data.encode().to_vec())
}

/// What a requester says of its Receives when it connects, and for each a Reply that just fits it
/// and one that is a word too long. The server itself sends 4096 bytes at most.
fn announces(requester: &mut Requester) -> Result<Vec<String>> {
    // The headers of transport, RPC and COMPOUND; the results of PUTROOTFH and of each LOOKUP;
    // that of READ.
    let before = 28 + 24 + 12 + 8 * (1 + names(&path()?).len() as u32) + 16;
    let mut unknown = announcement(4096)?;
    unknown[4] += 1;
    let mut outcomes = Vec::new();
    for (private_data, most) in [
        (Vec::new(), 1024),
        (unknown, 1024),
        (announcement(1024)?, 1024),
        (announcement(2048)?, 2048),
        (announcement(3072)?, 3072),
        (announcement(65_536)?, 4096),
    ] {
        requester.connect_with(&Acceptance {
            private_data,
            receive_size: most,
            ..Requester::offer()
        })?;
        for count in [most - before, most - before + 4] {
            outcomes.push(status(requester, &read(&[], None, count)?)?);
        }
    }
    Ok(outcomes)
}

/// Receives that are smaller than any Reply, although it is the default that is announced.
fn small_receives(requester: &mut Requester) -> Result<Vec<String>> {
    requester.connect_with(&Acceptance {
        receive_size: 32,
        ..Requester::offer()
    })?;
    Ok(vec![requester.call(&Call::null())?])
}
