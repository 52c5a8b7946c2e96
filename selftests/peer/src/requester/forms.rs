// SPDX-License-Identifier: GPL-2.0

//! Forms of Calls and Replies that Linux requesters do not use, with data that is compared.

use super::compound::{compound, read_operation, write_operation, WRITE_HEADER};
use super::{payload_of, verdict, Call, Requester, Scenarios};
use crate::peer::{word_at, words, LIMIT};
use crate::proto::wire::chunk::{ReadSegment, Segment};
use crate::proto::wire::header::Procedure;
use crate::verbs::{Acceptance, Waited};
use crate::Result;

pub(super) const SCENARIOS: &Scenarios =
    &[("forms", forms), ("inline", inline), ("repeated", repeated)];

/// Bytes of the items, neither of which ends with a word. Behind each of them and the 16 bytes
/// before the next result a page begins: where that is not so, nfsd has the data of the second of
/// several READs a page too far.
const LENGTHS: [usize; 2] = [8173, 69_613];

/// Where in this end's memory there is what: an RPC message, data to be written, and what is read.
const STREAM: usize = 0;
const DATA: [usize; 2] = [256 << 10, 512 << 10];
const RESULTS: [usize; 2] = [768 << 10, 1024 << 10];
const REPLY: usize = 1280 << 10;
const REPLY_LENGTH: usize = 16384;

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
    for (has_reply_chunk, seed) in [(false, 4), (true, 5)] {
        outcomes.push(exchange(requester, &data(seed)[0], has_reply_chunk)?);
    }
    Ok(outcomes)
}

/// An item that is larger than a page, in a Call that is inline as a whole: whether it is what can be
/// read then.
fn inline(requester: &mut Requester) -> Result<Vec<String>> {
    requester.connect_with(&Acceptance {
        send_size: 16384,
        ..Requester::offer()
    })?;
    let [item, _] = data(6);
    requester.send(&Call {
        body: compound(&[write_operation(0, &item)])?,
        ..Call::null()
    })?;
    receive(requester)?;
    requester.verbs.put(RESULTS[0], &vec![0x55; item.len() + 1]);
    let chunk = segment(requester, RESULTS[0], item.len());
    requester.send(&Call {
        writes: vec![vec![chunk]],
        body: compound(&[read_operation(0, item.len() as u32)])?,
        ..Call::null()
    })?;
    receive(requester)?;
    Ok(vec![verdict(is_in_write_chunk(requester, 0, &item))])
}

/// A WRITE of few bytes, with more behind them in the same COMPOUND, and the same again on another
/// connection, after many others: what became of both.
fn repeated(requester: &mut Requester) -> Result<Vec<String>> {
    requester.connect()?;
    let xid = requester.next_xid();
    let item = [7; 49];
    // GETATTR of the type.
    let others = [words(&[9, 1, 2])];
    let mut outcomes = Vec::new();
    for round in 0..2 {
        let call = write_first(requester, xid, &item, &others)?;
        requester.verbs.send(&call.encode(xid), None)?;
        let (_, reply) = receive(requester)?;
        outcomes.push(format!("nfs_{}", word_at(&reply, 24)));
        if round == 0 {
            for seed in 10..40 {
                write(requester, &Form::Chunks, &data(seed))?;
            }
            requester.connect()?;
        }
    }
    Ok(outcomes)
}

/// The message that comes next: its procedure, and the RPC message that is inline.
pub(super) fn receive(requester: &mut Requester) -> Result<(u32, Vec<u8>)> {
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

/// Takes item `n` out of the RPC message, where it begins at `place`: its Read chunk.
fn reduce(
    requester: &mut Requester,
    stream: &mut Vec<u8>,
    place: usize,
    n: usize,
    data: &[u8],
) -> [ReadSegment; 2] {
    requester.verbs.put(DATA[n], data);
    stream.drain(place..place + data.len().next_multiple_of(4));
    chunk(
        requester,
        place,
        DATA[n],
        (data.len().min(1001), data.len()),
    )
}

/// A Call of a COMPOUND that writes an item, which is a Read chunk, and then does the others.
fn write_first(
    requester: &mut Requester,
    xid: u32,
    item: &[u8],
    others: &[Vec<u8>],
) -> Result<Call> {
    let operations = [&[write_operation(0, item)], others].concat();
    let mut stream = words(&[xid]);
    stream.extend(compound(&operations)?);
    let place = stream.len() - operations.concat().len() + WRITE_HEADER;
    let reads = reduce(requester, &mut stream, place, 0, item);
    Ok(Call {
        reads: reads.to_vec(),
        body: stream.split_off(4),
        ..Call::null()
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
            let item = reduce(requester, &mut stream, places[n], n, &data[n]);
            reads.splice(0..0, item);
        }
    }
    let mut procedure = Procedure::Msg;
    if !matches!(form, Form::Chunks) {
        requester.verbs.put(STREAM, &stream);
        // Its first segment ends where the first item begins.
        let whole = chunk(requester, 0, STREAM, (places[0], stream.len()));
        reads.splice(0..0, whole);
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
            segment(requester, REPLY + 333, REPLY_LENGTH - 333),
        ]),
        body: compound(&operations)?,
        ..Call::null()
    };
    requester.send(&call)?;
    let (procedure, _) = receive(requester)?;
    if procedure != 1 {
        return Ok(format!("procedure_{procedure}"));
    }
    let mut wrong = Vec::new();
    if !is_in_reply_chunk(requester, &data[0]) {
        wrong.push("reply_chunk".to_owned());
    }
    for n in [0, 1] {
        if !is_in_write_chunk(requester, n, &data[n]) {
            wrong.push(format!("write_chunk_{n}"));
        }
    }
    Ok(if wrong.is_empty() {
        verdict(true)
    } else {
        wrong.join("+")
    })
}

/// Whether the Reply chunk has this item, the last thing in the Reply in front of its padding.
fn is_in_reply_chunk(requester: &mut Requester, item: &[u8]) -> bool {
    let reply = requester.verbs.get(REPLY, REPLY_LENGTH);
    let start = reply.windows(64).position(|bytes| bytes == &item[..64]);
    start.and_then(|start| reply.get(start..start + item.len())) == Some(item)
}

/// Whether a Write chunk has this item, and nothing behind it.
fn is_in_write_chunk(requester: &mut Requester, n: usize, item: &[u8]) -> bool {
    let found = requester.verbs.get(RESULTS[n], item.len() + 1);
    found.split_last() == Some((&0x55, item))
}

/// Writes an item and reads it again in one COMPOUND, whose Call has a Read and a Write chunk; then
/// reads it twice, so that it has a Reply chunk, too: whether it is the same.
fn exchange(requester: &mut Requester, item: &[u8], has_reply_chunk: bool) -> Result<String> {
    let xid = requester.next_xid();
    let length = item.len();
    let reads = vec![read_operation(0, length as u32); if has_reply_chunk { 2 } else { 1 }];
    for at in [RESULTS[0], REPLY] {
        requester.verbs.put(at, &vec![0x55; length + 1]);
    }
    let reply = segment(requester, REPLY, REPLY_LENGTH);
    let call = Call {
        writes: vec![vec![segment(requester, RESULTS[0], length)]],
        reply: has_reply_chunk.then(|| vec![reply]),
        ..write_first(requester, xid, item, &reads)?
    };
    requester.verbs.send(&call.encode(xid), None)?;
    receive(requester)?;
    let is_same = is_in_write_chunk(requester, 0, item)
        && (!has_reply_chunk || is_in_reply_chunk(requester, item));
    Ok(verdict(is_same))
}
