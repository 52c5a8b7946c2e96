// SPDX-License-Identifier: GPL-2.0

//! Chunks that are too small for their results, or of too many segments.

use super::{payload_of, Call, Requester, Scenarios};
use crate::peer::{word_at, words, LIMIT};
use crate::proto::wire::chunk::Segment;
use crate::verbs::Waited;
use crate::Result;

pub(super) const SCENARIOS: &Scenarios = &[("small-chunks", small_chunks)];

/// An opaque item.
fn opaque(bytes: &[u8]) -> Vec<u8> {
    let mut item = words(&[bytes.len() as u32]);
    item.extend_from_slice(bytes);
    item.resize(item.len().next_multiple_of(4), 0);
    item
}

/// Reads `count` bytes of the file that the test has made, by NFSv4.0 without an open.
pub(super) fn read(writes: &[Segment], reply: Option<Vec<Segment>>, count: u32) -> Result<Call> {
    let path = std::env::var("FILE").map_err(|error| format!("FILE: {error}"))?;
    let names: Vec<_> = path.split('/').filter(|name| !name.is_empty()).collect();
    // A Call by RPC version 2 of COMPOUND; the credentials are those of root, by AUTH_SYS.
    let mut body = words(&[0, 2, 100_003, 4, 1, 1, 20, 0, 0, 0, 0, 0, 0, 0]);
    // No tag, minor version 0; PUTROOTFH, a LOOKUP of each name, READ.
    body.extend(words(&[0, 0, names.len() as u32 + 2, 24]));
    for name in names {
        body.extend(words(&[15]));
        body.extend(opaque(name.as_bytes()));
    }
    body.extend(words(&[25, 0, 0, 0, 0, 0, 0, count]));
    Ok(Call {
        writes: if writes.is_empty() {
            vec![]
        } else {
            vec![writes.to_vec()]
        },
        reply,
        body,
        ..Call::null()
    })
}

/// As [`read`], twice, so that only the first one of the results can go into the Write chunk.
fn read_twice(writes: &[Segment], reply: Vec<Segment>, count: u32) -> Result<Call> {
    let mut call = read(writes, Some(reply), count)?;
    // The number of operations is behind the RPC header, the tag and the minor version.
    let operations = call
        .body
        .get_mut(64..68)
        .ok_or("a Call without operations")?;
    let number = word_at(operations, 0) + 1;
    operations.copy_from_slice(&number.to_be_bytes());
    call.body.extend(words(&[25, 0, 0, 0, 0, 0, 0, count]));
    Ok(call)
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
    let [small, some, exact, large] =
        [1000, 1500, 20_000, 65_536].map(|length| requester.segment(length));
    let calls = [
        read(&[exact], None, 20_000)?,
        read(&[small, small], None, 20_000)?,
        read(&[], Some(vec![large]), 20_000)?,
        read(&[], Some(vec![small; 3]), 20_000)?,
        read(&[], None, 20_000)?,
        read(&[small], Some(vec![large]), 20_000)?,
        read(&[exact], None, 20_000)?,
        // The Write chunk takes 20 RDMA Writes, the Reply chunk 3 or 15. A Reply has 32 at most.
        read_twice(&[small; 20], vec![exact; 20], 20_000)?,
        read_twice(&[small; 20], vec![some; 20], 20_000)?,
    ];
    calls.iter().map(|call| status(requester, call)).collect()
}
