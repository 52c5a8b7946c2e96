// SPDX-License-Identifier: GPL-2.0

//! Forms of Calls and Replies that Linux requesters do not use, with data that is compared.

use super::compound::{compound, read_operation, write_operation, WRITE_HEADER};
use super::{payload_of, Call, Requester, Scenarios};
use crate::peer::{word_at, words, LIMIT};
use crate::proto::wire::chunk::{ReadSegment, Segment};
use crate::proto::wire::header::Procedure;
use crate::verbs::Waited;
use crate::Result;

pub(super) const SCENARIOS: &Scenarios = &[("forms", forms)];

/// Bytes of the items, neither of which ends with a word. Behind each of them and the 16 bytes
/// before the next result a page begins: where that is not so, nfsd has the data of the second of
/// several READs a page too far.
const LENGTHS: [usize; 2] = [8173, 69_613];

/// Where in this end's memory there is what: an RPC message, data to be written, and what is read.
const STREAM: usize = 0;
const DATA: [usize; 2] = [256 << 10, 512 << 10];
const RESULTS: [usize; 2] = [768 << 10, 1024 << 10];
const REPLY: usize = 1280 << 10;

/// How two items that the server is to write travel.
enum Form {
    /// Each is a Read chunk, and the rest is inline.
    Chunks,
    /// All of the message is a Position Zero Read chunk.
    Whole,
    /// Each is a Read chunk, and the rest is a Position Zero Read chunk.
    Mixed,
}

/// Data that is different for each `seed`.
fn data(seed: u32) -> [Vec<u8>; 2] {
    let mut state = seed;
    LENGTHS.map(|length| {
        (0..length)
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 24) as u8
            })
            .collect()
    })
}

fn forms(requester: &mut Requester) -> Result<Vec<String>> {
    requester.connect()?;
    let forms = [Form::Chunks, Form::Whole, Form::Mixed];
    let mut outcomes = Vec::new();
    for (form, seed) in forms.iter().zip(1..) {
        let data = data(seed);
        outcomes.push(write(requester, form, &data)?);
        outcomes.push(read(requester, &data)?);
    }
    Ok(outcomes)
}

/// The message that comes next: its procedure, and the RPC message that is inline.
fn receive(requester: &mut Requester) -> Result<(u32, Vec<u8>)> {
    let Waited::For(bytes) = requester.verbs.receive(LIMIT)? else {
        return Err("there is no Reply".to_owned());
    };
    requester.verbs.post_receive()?;
    Ok((word_at(&bytes, 12), payload_of(&bytes).to_vec()))
}

/// A segment of this end's memory from byte `at` on.
pub(super) fn segment(requester: &mut Requester, at: usize, length: usize) -> Segment {
    let all = requester.segment(length as u32);
    Segment {
        offset: all.offset + at as u64,
        ..all
    }
}

/// Two segments of a Read chunk, of which the first has `first` bytes.
fn chunk(
    requester: &mut Requester,
    position: usize,
    at: usize,
    (first, length): (usize, usize),
) -> [ReadSegment; 2] {
    [(at, first), (at + first, length - first)].map(|(at, length)| ReadSegment {
        position: position as u32,
        segment: segment(requester, at, length),
    })
}

/// Writes both items, one behind the other, in one COMPOUND: its status.
fn write(requester: &mut Requester, form: &Form, data: &[Vec<u8>; 2]) -> Result<String> {
    let xid = requester.next_xid();
    let offsets = [0, LENGTHS[0] as u32];
    let operations = [0, 1].map(|n| write_operation(offsets[n], &data[n]));
    let mut stream = words(&[xid]);
    stream.extend(compound(&operations)?);
    let second = stream.len() - operations[1].len();
    let places = [second - operations[0].len(), second].map(|at| at + WRITE_HEADER);

    let mut reads = Vec::new();
    if !matches!(form, Form::Whole) {
        for n in [1, 0] {
            requester.verbs.put(DATA[n], &data[n]);
            stream.drain(places[n]..places[n] + LENGTHS[n].next_multiple_of(4));
            let found = chunk(requester, places[n], DATA[n], (1001, LENGTHS[n]));
            reads.splice(0..0, found);
        }
    }
    let mut procedure = Procedure::Msg;
    if !matches!(form, Form::Chunks) {
        requester.verbs.put(STREAM, &stream);
        reads.splice(0..0, chunk(requester, 0, STREAM, (101, stream.len())));
        procedure = Procedure::Nomsg;
    }
    let call = Call {
        procedure,
        reads,
        body: stream.split_off(4),
        ..Call::null()
    };
    requester.verbs.send(&call.encode(xid), None)?;
    let (_, reply) = receive(requester)?;
    Ok(format!("nfs_{}", word_at(&reply, 24)))
}

/// Reads both items, and the first one once more, in one COMPOUND, into two Write chunks and the
/// Reply chunk: whether they are these.
fn read(requester: &mut Requester, data: &[Vec<u8>; 2]) -> Result<String> {
    let [first, second] = LENGTHS.map(|length| length as u32);
    let operations = [(0, first), (first, second), (0, first)];
    let operations = operations.map(|(offset, count)| read_operation(offset, count));
    for at in [RESULTS[0], RESULTS[1], REPLY] {
        requester.verbs.put(at, &vec![0x55; LENGTHS[1] + 1]);
    }
    let call = Call {
        writes: vec![
            vec![segment(requester, RESULTS[0], LENGTHS[0])],
            vec![
                segment(requester, RESULTS[1], 4099),
                segment(requester, RESULTS[1] + 4099, LENGTHS[1] - 4099),
            ],
        ],
        reply: Some(vec![
            segment(requester, REPLY, 333),
            segment(requester, REPLY + 333, 16384 - 333),
        ]),
        body: compound(&operations)?,
        ..Call::null()
    };
    requester.send(&call)?;
    let (procedure, _) = receive(requester)?;
    if procedure != 1 {
        return Ok(format!("procedure_{procedure}"));
    }
    // The third result is the last thing in the Reply, in front of its padding.
    let rest = requester.verbs.get(REPLY, 16384);
    let start = rest.windows(64).position(|bytes| bytes == &data[0][..64]);
    let third = start.and_then(|start| rest.get(start..start + LENGTHS[0]));
    let mut wrong = Vec::new();
    if third != Some(&data[0]) {
        wrong.push("reply_chunk".to_owned());
    }
    for n in [0, 1] {
        let found = requester.verbs.get(RESULTS[n], LENGTHS[n] + 1);
        // Nothing may be behind it.
        if found[..LENGTHS[n]] != data[n] || found[LENGTHS[n]] != 0x55 {
            wrong.push(format!("write_chunk_{n}"));
        }
    }
    Ok(if wrong.is_empty() {
        "same".to_owned()
    } else {
        wrong.join("+")
    })
}
