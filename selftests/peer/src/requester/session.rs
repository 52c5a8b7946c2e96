// SPDX-License-Identifier: GPL-2.0

//! What takes a session of NFSv4.2 (RFC 8881, RFC 7862): a Reply that the server has kept,
//! READ_PLUS, which Linux' clients do not use, and extended attributes (RFC 8276).

use super::compound::{compound_of, lookups, names, opaque, path};
use super::forms::segment;
use super::{payload_of, verdict, Call, Requester, Scenarios};
use crate::peer::{word_at, words, LIMIT};
use crate::proto::wire::chunk::ReadSegment;
use crate::verbs::Waited;
use crate::Result;

pub(super) const SCENARIOS: &Scenarios = &[
    ("replayed", replayed),
    ("read-plus", read_plus),
    ("attribute", attribute),
];

/// Bytes that a Reply may have to be kept.
const MOST_KEPT: u32 = 4096;

/// In a Reply, where the results of the first operation begin.
const RESULTS: usize = 44;

/// Sends a COMPOUND of these operations: its Reply.
fn call(requester: &mut Requester, operations: &[Vec<u8>]) -> Result<Option<Vec<u8>>> {
    let call = Call {
        body: compound_of(2, operations),
        ..Call::null()
    };
    send(requester, &call)
}

/// Sends a Call: what is inline of the RPC Reply, or nothing if there is an ERR_CHUNK instead.
fn send(requester: &mut Requester, call: &Call) -> Result<Option<Vec<u8>>> {
    requester.send(call)?;
    let Waited::For(bytes) = requester.verbs.receive(LIMIT)? else {
        return Err("there is no Reply".to_owned());
    };
    requester.verbs.post_receive()?;
    match (word_at(&bytes, 12), word_at(&bytes, 16)) {
        (4, 2) => Ok(None),
        _ => Ok(Some(payload_of(&bytes).to_vec())),
    }
}

/// The status of a COMPOUND.
fn status(reply: Option<Vec<u8>>) -> String {
    match reply {
        Some(reply) => format!("nfs_{}", word_at(&reply, 24)),
        None => "err_chunk".to_owned(),
    }
}

/// The same of one that is good.
fn good(reply: Option<Vec<u8>>) -> Result<Vec<u8>> {
    match reply {
        Some(reply) if word_at(&reply, 24) == 0 => Ok(reply),
        other => Err(status(other)),
    }
}

/// SEQUENCE with this number in the only slot. The server is to keep the Reply if `is_kept`, which
/// may not be long then.
pub(super) fn sequence(session: &[u8], number: u32, is_kept: bool) -> Vec<u8> {
    let slot = words(&[number, 0, 0, is_kept.into()]);
    [words(&[53]), session.to_vec(), slot].concat()
}

/// A session, whose identifier is returned. The first number of its slot is used up.
fn session(requester: &mut Requester) -> Result<Vec<u8>> {
    session_with(requester, 0)
}

/// The same with these flags.
pub(super) fn session_with(requester: &mut Requester, flags: u32) -> Result<Vec<u8>> {
    // EXCHANGE_ID with a verifier and a name, no flags, no protection of state, no implementation.
    let owner = [
        words(&[42, std::process::id(), 0]),
        opaque(b"rpcrdma-peer"),
        words(&[0, 0, 0]),
    ]
    .concat();
    let client = good(call(requester, &[owner])?)?;
    let client = client.get(RESULTS..RESULTS + 12).unwrap_or(&[]);
    // CREATE_SESSION with the channels of both directions; the backward one has no credentials.
    let session = [
        words(&[43]),
        client.to_vec(),
        words(&[flags, 0, 1 << 16, 1 << 16, MOST_KEPT, 50, 1, 0]),
        words(&[0, 4096, 4096, 0, 2, 1, 0]),
        words(&[1 << 30, 1, 0]),
    ]
    .concat();
    let session = good(call(requester, &[session])?)?;
    let session = session.get(RESULTS..RESULTS + 16).unwrap_or(&[]).to_vec();
    // RECLAIM_COMPLETE of all file systems.
    let reclaim = [sequence(&session, 1, false), words(&[58, 0])];
    good(call(requester, &reclaim)?)?;
    Ok(session)
}

/// Makes a directory, and asks for so much about it that the Reply does not fit inline, and then
/// not into its Reply chunk either: it is lost. Then the Call comes again, with a chunk that is
/// large enough: the Reply is the first one, which the server has kept. Another Call of the same
/// finds the directory.
fn replayed(requester: &mut Requester) -> Result<Vec<String>> {
    requester.connect()?;
    let session = session(requester)?;
    let path = path()?;
    let mut names = names(&path);
    names.pop();
    let make = |number| {
        let mut operations = vec![sequence(&session, number, true)];
        operations.extend(lookups(&names));
        // CREATE of a directory without attributes, and GETATTR of what each server has.
        operations.push([words(&[6, 2]), opaque(b"made"), words(&[0, 0])].concat());
        operations.extend([(); 6].map(|()| words(&[9, 2, 0x0018_091a, 0x0030_a23a])));
        operations
    };
    let mut outcomes = vec![status(call(requester, &make(2))?)];
    for length in [1024, 8192] {
        let again = Call {
            reply: Some(vec![requester.segment(length)]),
            body: compound_of(2, &make(2)),
            ..Call::null()
        };
        let reply = send(requester, &again)?;
        let found = reply.map(|_| requester.verbs.get(0, length as usize));
        outcomes.push(status(found));
    }
    outcomes.push(status(call(requester, &make(3))?));
    Ok(outcomes)
}

/// Where the Replies and the data are in this end's memory.
const CHUNK: usize = 64 << 10;

/// The file is read by READ, and then by READ_PLUS: inline, into a Write chunk, and as part of a
/// Reply chunk.
fn read_plus(requester: &mut Requester) -> Result<Vec<String>> {
    const LENGTH: usize = 20_001;
    const SHORT: usize = 501;
    requester.connect()?;
    let session = session(requester)?;
    let path = path()?;
    let lookups = lookups(&names(&path));
    // Behind the results of SEQUENCE and of these.
    let start = RESULTS - 8 + 44 + 8 * lookups.len();
    let mut next = 1;
    let mut read = |operation: u32, length: usize, writes: Vec<_>, reply: Option<Vec<_>>| {
        next += 1;
        let mut operations = vec![sequence(&session, next, false)];
        operations.extend_from_slice(&lookups);
        operations.push(words(&[operation, 0, 0, 0, 0, 0, 0, length as u32]));
        Call {
            writes,
            reply,
            body: compound_of(2, &operations),
            ..Call::null()
        }
    };
    let chunks = [0, 1].map(|n| segment(requester, n * CHUNK, LENGTH));
    let reply = segment(requester, 2 * CHUNK, CHUNK);
    good(send(
        requester,
        &read(25, LENGTH, vec![vec![chunks[0]]], None),
    )?)?;
    let inline = good(send(requester, &read(68, SHORT, vec![], None))?)?;
    good(send(
        requester,
        &read(68, LENGTH, vec![vec![chunks[1]]], None),
    )?)?;
    send(requester, &read(68, LENGTH, vec![], Some(vec![reply])))?;
    let whole = good(Some(requester.verbs.get(2 * CHUNK, CHUNK)))?;

    let data = requester.verbs.get(0, LENGTH);
    // The end of the file, the number of items, what kind the first one is, its place and length.
    let item = |reply: &[u8], length: usize| {
        let data = start + 32;
        let found = reply.get(data..data + length).unwrap_or(&[]).to_vec();
        (word_at(reply, data - 4) as usize == length).then_some(found)
    };
    let found = [
        item(&inline, SHORT),
        Some(requester.verbs.get(CHUNK, LENGTH)),
        item(&whole, LENGTH),
    ];
    let same = |found: &Option<Vec<u8>>| {
        let found = found.as_deref().unwrap_or_default();
        verdict(data.starts_with(found) && !found.is_empty())
    };
    Ok(found.iter().map(same).collect())
}

/// An attribute of the file whose value follows a Read chunk: whether the server has it then, or what
/// else of the Call it has taken for it.
fn attribute(requester: &mut Requester) -> Result<Vec<String>> {
    const TAG: u32 = 4;
    const LENGTH: usize = 600;
    const NAME: &[u8] = b"name";
    requester.connect()?;
    let session = session(requester)?;
    let path = path()?;
    let mut next = 1;
    let mut on_file = |operation: Vec<u8>| {
        next += 1;
        let mut operations = vec![sequence(&session, next, false)];
        operations.extend(lookups(&names(&path)));
        operations.push(operation);
        compound_of(2, &operations)
    };
    let value: Vec<u8> = (0..LENGTH).map(|at| at as u8).collect();
    // SETXATTR, whether there is one already or not.
    let set = [words(&[73, 0]), opaque(NAME), opaque(&value)].concat();
    let mut body = on_file(set);
    // What is in pages there: the bytes of the chunk, and what follows it.
    requester.verbs.put(0, &words(&[0x7461_6773]));
    let pages = [words(&[0x7461_6773]), body[60..].to_vec()].concat();
    // The tag follows its length, with which the header of the RPC Call and the XID are 64 bytes.
    body[56..60].copy_from_slice(&words(&[TAG]));
    let call = Call {
        reads: vec![ReadSegment {
            position: 64,
            segment: requester.segment(TAG),
        }],
        body,
        ..Call::null()
    };
    let set = status(send(requester, &call)?);
    let get = Call {
        body: on_file([words(&[72]), opaque(NAME)].concat()),
        ..Call::null()
    };
    let found = good(send(requester, &get)?)?;
    let outcome = if found.ends_with(&opaque(&value)) {
        "same"
    } else if found.ends_with(&opaque(&pages[..LENGTH])) {
        "beginning"
    } else {
        "different"
    };
    Ok(vec![set, outcome.to_owned()])
}
