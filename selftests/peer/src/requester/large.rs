// SPDX-License-Identifier: GPL-2.0

//! RPCs with as much data as nfsd takes, of which Linux's own client never asks for more than a
//! quarter.

use super::compound::{compound, read_operation, write_operation};
use super::{payload_of, Call, Requester, Scenarios};
use crate::peer::{word_at, words, LIMIT};
use crate::proto::wire::chunk::{ReadSegment, Segment};
use crate::verbs::{Acceptance, Waited};
use crate::Result;

pub(super) const SCENARIOS: &Scenarios = &[("large", large)];

/// Bytes of data in each RPC.
const LENGTH: usize = 4 << 20;

/// Numbers of segments that each of the chunks has in turn.
const SEGMENTS: [usize; 3] = [1, 16, 32];

/// What no data has behind it.
const BEYOND: u8 = 0x55;

/// Reads the file that the test has made, of [`LENGTH`] bytes, and writes it behind itself, time
/// and again.
fn large(requester: &mut Requester) -> Result<Vec<String>> {
    let offer = Acceptance {
        data_size: LENGTH as u32 + 4096,
        ..Requester::offer()
    };
    requester.connect_with(&offer)?;
    let mut outcomes = Vec::new();
    for (n, segments) in (0..).zip(SEGMENTS) {
        requester.verbs.put(0, &vec![BEYOND; LENGTH + 1]);
        outcomes.push(read(requester, segments, n * LENGTH)?);
        outcomes.push(write(requester, segments, (n + 1) * LENGTH)?);
    }
    Ok(outcomes)
}

/// All data as one chunk.
fn chunk(requester: &mut Requester, count: usize) -> Vec<Segment> {
    let length = LENGTH / count;
    let all = requester.segment(length as u32);
    let segment = |n: usize| Segment {
        offset: all.offset + (n * length) as u64,
        ..all
    };
    (0..count).map(segment).collect()
}

/// The Reply, and its RPC message, which has to say that all went well.
fn receive(requester: &mut Requester) -> Result<(Vec<u8>, Vec<u8>)> {
    let Waited::For(bytes) = requester.verbs.receive(LIMIT)? else {
        return Err("there is no Reply".to_owned());
    };
    requester.verbs.post_receive()?;
    let payload = payload_of(&bytes).to_vec();
    match (word_at(&bytes, 12), word_at(&payload, 24)) {
        (0, 0) => Ok((bytes, payload)),
        (0, status) => Err(format!("nfs_{status}")),
        (procedure, _) => Err(format!("procedure_{procedure}")),
    }
}

/// How many bytes a READ from `offset` on has placed in a Write chunk of so many segments.
fn read(requester: &mut Requester, segments: usize, offset: usize) -> Result<String> {
    let call = Call {
        writes: vec![chunk(requester, segments)],
        body: compound(&[read_operation(offset as u32, LENGTH as u32)])?,
        ..Call::null()
    };
    requester.send(&call)?;
    let (bytes, _) = receive(requester)?;
    // The Write list is behind the fixed words and an empty Read list; its one chunk has a flag and
    // a count before the segments.
    let lengths = (0..segments).map(|n| word_at(&bytes, 28 + 16 * n + 4) as usize);
    if requester.verbs.get(LENGTH, 1) != [BEYOND] {
        return Ok("beyond_the_chunk".to_owned());
    }
    Ok(format!("read_{}", lengths.sum::<usize>()))
}

/// How many bytes a WRITE at `offset` has taken from a Read chunk of so many segments.
fn write(requester: &mut Requester, segments: usize, offset: usize) -> Result<String> {
    let xid = requester.next_xid();
    let operation = write_operation(offset as u32, &vec![0; LENGTH]);
    let mut stream = words(&[xid]);
    stream.extend(compound(&[operation])?);
    let position = stream.len() - LENGTH;
    stream.truncate(position);
    let reads = chunk(requester, segments);
    let reads = reads.into_iter().map(|segment| ReadSegment {
        position: position as u32,
        segment,
    });
    let call = Call {
        reads: reads.collect(),
        body: stream.split_off(4),
        ..Call::null()
    };
    requester.verbs.send(&call.encode(xid), None)?;
    let (_, reply) = receive(requester)?;
    // The result ends with the count, how it was committed, and a verifier.
    let count = reply.len().checked_sub(16).map(|at| word_at(&reply, at));
    Ok(format!("written_{}", count.unwrap_or(0)))
}
