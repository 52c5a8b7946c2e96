// SPDX-License-Identifier: GPL-2.0

//! Replies to the server's backward Calls (RFC 8167) that are cut, too long, or something else.
//!
//! nfsd probes no client of NFSv4.1 or later when a session begins. It calls back when a COPY that
//! it was asked to do meanwhile is done: CB_OFFLOAD (RFC 7862 section 15.2). If that fails it comes
//! again at once, with the same number in its CB_SEQUENCE. As the session has one slot for such
//! Calls, the next one has the next number, and does not come before this one has its Reply. So the
//! next Call tells what has become of a Reply.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::{Duration, Instant};

use super::compound::{compound, compound_of, lookups, names, opaque, path, read_operation};
use super::session::{sequence, session_with};
use super::{end_of, payload_of, results, wait_for_line, word_of, Call, Requester, Scenarios};
use crate::peer::{rpc_reply, word_at, words, Message, LIMIT, THRESHOLD};
use crate::proto::wire::chunk::{ReadSegment, Segment};
use crate::proto::wire::header::{Procedure, VERSION_ONE};
use crate::verbs::{Acceptance, Verbs, Waited};
use crate::Result;

pub(super) const SCENARIOS: &Scenarios = &[
    ("backward-taken", |requester| on_channel(requester, taken)),
    ("backward-fails", |requester| on_channel(requester, fails)),
    ("backward-refused", |requester| {
        on_channel(requester, refused)
    }),
    ("backward-owed", |requester| on_channel(requester, owed)),
    ("backward-long", |requester| on_channel(requester, long)),
    ("backward-in-turn", in_turn),
    ("backward-dropped", dropped),
    ("backward-waits", waits),
    ("backward-alone", alone),
];

/// CREATE_SESSION4_FLAG_CONN_BACK_CHAN.
const BACK_CHANNEL: u32 = 2;

/// Operations of nfsd's backward Calls.
const CB_SEQUENCE: u32 = 11;
const CB_OFFLOAD: u32 = 15;

/// In a backward Call with AUTH_NONE, where the first operation is.
const FIRST: usize = 56;

/// A backward Call, as far as its Reply repeats it.
#[derive(Clone, Debug)]
struct BackwardCall {
    xid: u32,
    session: Vec<u8>,
    number: u32,
    slot: u32,
}

impl BackwardCall {
    /// The Call in an RPC message.
    fn decode(payload: &[u8]) -> Result<Self> {
        match (word_at(payload, FIRST), payload.get(FIRST + 4..)) {
            (CB_SEQUENCE, Some(arguments)) if arguments.len() >= 24 => Ok(Self {
                xid: word_at(payload, 0),
                session: arguments[..16].to_vec(),
                number: word_at(arguments, 16),
                slot: word_at(arguments, 20),
            }),
            _ => Err(format!("the server calls {payload:02x?}")),
        }
    }

    /// The RPC Reply that it should have.
    fn results(&self) -> Vec<u8> {
        [
            rpc_reply(self.xid),
            // NFS4_OK, no tag, and two results.
            words(&[0, 0, 2, CB_SEQUENCE, 0]),
            self.session.clone(),
            // The only slot stays the only one.
            words(&[self.number, self.slot, 0, 0, CB_OFFLOAD, 0]),
        ]
        .concat()
    }

    /// An RPC Reply that says PROC_UNAVAIL, so that it is seen when it is taken for one.
    fn failure(&self) -> Vec<u8> {
        words(&[self.xid, 1, 0, 0, 0, 3])
    }

    /// A message with this RPC message.
    fn message(&self, payload: Vec<u8>) -> Message {
        Message::inline(self.xid, 1, payload)
    }

    /// The Reply that it should have.
    fn reply(&self) -> Vec<u8> {
        self.message(self.results()).encode()
    }

    /// The same with another credit word.
    fn granting(&self, credits: u32) -> Vec<u8> {
        Message::inline(self.xid, credits, self.results()).encode()
    }

    /// What has become of the Reply to the Call before.
    fn outcome_behind(&self, before: &Self) -> String {
        match self.number.wrapping_sub(before.number) {
            0 => "again".to_owned(),
            1 => "answered".to_owned(),
            other => format!("{other}_later"),
        }
    }
}

/// What the server has sent.
enum Came {
    Call(BackwardCall),
    /// The Reply to a Call of this end, as it came.
    Reply(Vec<u8>),
    /// Anything else, in a word.
    Other(String),
}

/// A Call of operations on the file, and the place of the first one's result in the Reply.
fn on_file(session: &[u8], number: u32, operations: Vec<Vec<u8>>) -> Result<(Call, usize)> {
    let mut all = vec![sequence(session, number, false)];
    all.extend(lookups(&names(&path()?)));
    let at = 36 + 44 + 8 * (all.len() - 1) + 8;
    all.extend(operations);
    let call = Call {
        body: compound_of(2, &all),
        ..Call::null()
    };
    Ok((call, at))
}

/// A Call that has the server copy a part of the file within it, and call back when that is done.
fn copy_call(session: &[u8], number: u32) -> Result<Call> {
    // COPY from the file that SAVEFH saves, without an OPEN of either.
    let no_states = words(&[60, 0, 0, 0, 0, 0, 0, 0, 0]);
    // 100 bytes from byte 0 on, to byte 200, in order, not synchronously, on this server.
    let what = words(&[0, 0, 0, 200, 0, 100, 1, 0, 0]);
    let operations = vec![words(&[32]), [no_states, what].concat()];
    Ok(on_file(session, number, operations)?.0)
}

/// A connection with a session by which the server may call back. That it has ended, or that
/// nothing comes, is an error here, which is the outcome in a word.
struct Channel<'a> {
    requester: &'a mut Requester,
    session: Vec<u8>,
    /// The last number that was used for a Call of this end.
    number: u32,
    /// Calls that came while something else was waited for.
    calls: VecDeque<BackwardCall>,
    outcomes: Vec<String>,
}

/// Runs a scenario on a new connection.
fn on_channel(
    requester: &mut Requester,
    run: fn(&mut Channel<'_>) -> Result,
) -> Result<Vec<String>> {
    requester.connect()?;
    let session = session_with(requester, BACK_CHANNEL)?;
    let mut channel = Channel {
        requester,
        session,
        number: 1,
        calls: VecDeque::new(),
        outcomes: Vec::new(),
    };
    // What there was before is told as well.
    if let Err(error) = run(&mut channel) {
        channel.outcomes.push(error);
    }
    Ok(channel.outcomes)
}

impl Channel<'_> {
    /// The next message.
    fn receive(&mut self) -> Result<Came> {
        let verbs = &mut self.requester.verbs;
        let bytes = match verbs.receive(LIMIT)? {
            Waited::For(bytes) => bytes,
            Waited::Ended => return Err(end_of(verbs)?),
            Waited::TimedOut => return Err("silence".to_owned()),
        };
        verbs.post_receive()?;
        let payload = payload_of(&bytes);
        Ok(match (word_at(&bytes, 12), word_at(payload, 4)) {
            (0, 0) => Came::Call(BackwardCall::decode(payload)?),
            (0, 1) => Came::Reply(bytes),
            _ => Came::Other(word_of(&bytes)),
        })
    }

    /// Sends messages, and behind them a Call of NULL: what else has come when that has its Reply,
    /// but backward Calls, or what the Reply says.
    ///
    /// The Call has data to be fetched, behind what the server may fetch for these messages.
    fn send(&mut self, messages: &[Vec<u8>]) -> Result<String> {
        for message in messages {
            self.requester.verbs.send(message, None)?;
        }
        let segment = self.requester.segment(8);
        self.requester.send(&Call::reading(&[segment]))?;
        let mut before = None;
        loop {
            match self.receive()? {
                Came::Call(call) => self.calls.push_back(call),
                Came::Other(word) => before = Some(word),
                Came::Reply(bytes) => {
                    return Ok(match (word_of(&bytes), before) {
                        (word, Some(before)) if word == "answered" => before,
                        (word, _) => word,
                    });
                }
            }
        }
    }

    /// The next backward Call.
    fn call(&mut self) -> Result<BackwardCall> {
        if let Some(call) = self.calls.pop_front() {
            return Ok(call);
        }
        match self.receive()? {
            Came::Call(call) => Ok(call),
            Came::Reply(_) => Err("reply".to_owned()),
            Came::Other(word) => Err(word),
        }
    }

    /// Has the server copy a part of the file within it: the next backward Call, which tells that
    /// this is done unless one before has come again.
    fn copy(&mut self) -> Result<BackwardCall> {
        self.number += 1;
        self.requester
            .send(&copy_call(&self.session, self.number)?)?;
        // It may be done before there is a Reply.
        loop {
            match self.receive()? {
                Came::Call(call) => self.calls.push_back(call),
                Came::Other(word) => return Err(word),
                Came::Reply(bytes) => match word_at(payload_of(&bytes), 24) {
                    0 => return self.call(),
                    status => return Err(format!("nfs_{status}")),
                },
            }
        }
    }

    /// Sends an operation on the file, which is to have this status: the state that is its result.
    fn state(&mut self, operation: Vec<u8>, status: u32) -> Result<Vec<u8>> {
        self.number += 1;
        let (call, at) = on_file(&self.session, self.number, vec![operation])?;
        self.requester.send(&call)?;
        match self.receive()? {
            Came::Reply(bytes) => {
                let payload = payload_of(&bytes);
                match word_at(payload, 24) {
                    found if found == status => {
                        Ok(payload.get(at..at + 16).unwrap_or_default().to_vec())
                    }
                    found => Err(format!("nfs_{found}")),
                }
            }
            Came::Call(call) => Err(format!("{call:?}")),
            Came::Other(word) => Err(word),
        }
    }

    /// Adds an outcome: what [`Self::send`] says of messages for a Call, or what the next one does.
    fn tell(&mut self, word: String, call: &BackwardCall, next: &BackwardCall) {
        self.outcomes.push(match word.as_str() {
            "answered" => next.outcome_behind(call),
            _ => word,
        });
    }

    /// Answers a Call as it should be, and the next one, which is the last.
    fn finish(&mut self, call: &BackwardCall) -> Result {
        let word = self.send(&[call.reply()])?;
        let next = self.copy()?;
        self.tell(word, call, &next);
        self.send(&[next.reply()]).map(drop)
    }
}

/// Messages of which one answers the Call, whatever the others do.
type Answers = fn(&BackwardCall) -> Vec<Vec<u8>>;

const TAKEN: &[Answers] = &[
    |call| vec![call.reply()],
    // What there is no room for is no part of the results.
    |call| {
        let mut reply = call.reply();
        reply.resize(THRESHOLD as usize, 0);
        vec![reply]
    },
    // No credits count as one (RFC 8167 section 4 forbids to grant none), too many as the two that
    // the server asks for.
    |call| vec![call.granting(0)],
    |call| vec![call.granting(u32::MAX)],
    // One that nobody waits for.
    |call| {
        let other = BackwardCall {
            xid: !call.xid,
            ..call.clone()
        };
        vec![other.message(other.failure()).encode(), call.reply()]
    },
    |call| vec![call.reply(), call.reply()],
];

/// Replies that the server takes: nfsd goes on with what it has to say next.
fn taken(channel: &mut Channel<'_>) -> Result {
    let mut call = channel.copy()?;
    for answers in TAKEN {
        let word = channel.send(&answers(&call))?;
        let next = channel.copy()?;
        channel.tell(word, &call, &next);
        call = next;
    }
    channel.finish(&call)
}

/// A message that ends the Call.
type Failure = fn(&BackwardCall) -> Vec<u8>;

const FAILURES: &[Failure] = &[
    // An XID and the message type are enough to tell whose Reply it is. sunrpc, which decodes it,
    // makes two more attempts after a Reply like this one and the next.
    |call| call.message(words(&[call.xid, 1])).encode(),
    |call| [call.reply(), vec![0]].concat(),
    // A tag that has no end where the server has no more room.
    |call| {
        let mut payload = [rpc_reply(call.xid), words(&[0, 4000])].concat();
        payload.resize(payload.len() + 4000, b'a');
        call.message(payload).encode()
    },
    |call| call.message(call.failure()).encode(),
];

/// ERR_VERS and ERR_CHUNK. Either end may send them (RFC 8166 section 4.5), and there will be no
/// Reply.
const REFUSALS: &[Failure] = &[
    |call| words(&[call.xid, VERSION_ONE, 1, 4, 1, 1, 1]),
    |call| words(&[call.xid, VERSION_ONE, 1, 4, 2]),
];

/// Messages by which the Call fails: it comes again, behind a refusal when its time is over.
fn fails(channel: &mut Channel<'_>) -> Result {
    let mut call = channel.copy()?;
    for failure in FAILURES {
        let word = channel.send(&[failure(&call)])?;
        let next = channel.call()?;
        channel.tell(word, &call, &next);
        call = next;
    }
    for refusal in REFUSALS {
        let before = Instant::now();
        let word = channel.send(&[refusal(&call)])?;
        let next = channel.call()?;
        channel.tell(word, &call, &next);
        if before.elapsed() < Duration::from_secs(1) {
            channel.outcomes.push("at_once".to_owned());
        }
        call = next;
    }
    channel.finish(&call)
}

/// A Call is not answered: the next one, which has no credit, does not come, and the connection ends.
fn owed(channel: &mut Channel<'_>) -> Result {
    channel.copy()?;
    channel
        .call()
        .map(|call| channel.outcomes.push(format!("{call:?}")))
}

/// A lock that somebody else has is asked for, and that one gives it back, of which the server tells
/// who waits for it (RFC 8881 section 20.11): by a name that makes the Call longer than the
/// Receives.
fn long(channel: &mut Channel<'_>) -> Result {
    const WRITE: u32 = 2;
    const WRITE_WAITING: u32 = 4;
    const DENIED: u32 = 10_010;
    let whole = words(&[0, 0, u32::MAX, u32::MAX]);
    // OPEN for both, and no delegation, of the file itself.
    let open = [
        words(&[18, 0, 0x403, 0, 0, 0]),
        opaque(b"opener"),
        words(&[0, 4]),
    ]
    .concat();
    let opened = channel.state(open, 0)?;
    let lock = |kind, name: &[u8]| {
        let range = [words(&[12, kind, 0]), whole.clone()].concat();
        let owner = [
            words(&[1, 0]),
            opened.clone(),
            words(&[0, 0, 0]),
            opaque(name),
        ]
        .concat();
        [range, owner].concat()
    };
    let locked = channel.state(lock(WRITE, b"one"), 0)?;
    channel.state(lock(WRITE_WAITING, &[b'x'; 1000]), DENIED)?;
    channel.state([words(&[14, WRITE, 0]), locked, whole].concat(), 0)?;
    let word = channel.send(&[])?;
    channel.outcomes.push(word);
    let call = channel.copy()?;
    channel.finish(&call)
}

/// Bytes of the file in each of the Replies that fill a send queue.
const PART: usize = 600;

/// The bytes of it in the Reply that waits behind these. The COPY changes none of their pages, of which nfsd may have
/// the file's own in its hands.
const LAST: Range<usize> = 4096..24_096;

/// Whether a Reply or a backward Call waits first when a send queue is full.
#[derive(Clone, Copy, PartialEq)]
enum Waits {
    Reply,
    Call,
}

/// A connection, in place of the present one, with one Receive and the session. The server's send queue of SLOTS
/// entries is full of Replies to READs of one part of the file after the other: the session, and the parts.
fn fill(requester: &mut Requester, waits: Waits) -> Result<(Vec<u8>, Vec<Vec<u8>>)> {
    let slots = std::env::var("SLOTS").map_err(|error| format!("SLOTS: {error}"))?;
    let slots: usize = slots.parse().map_err(|_| format!("SLOTS is {slots}"))?;
    requester.connect_with(&Acceptance {
        receives: 1,
        ..Requester::offer()
    })?;
    let session = session_with(requester, BACK_CHANNEL)?;
    // The first Reply takes the Receive. What waits needs more than the six entries that are left, or one.
    let count = match waits {
        Waits::Reply => slots - 5,
        Waits::Call => slots + 1,
    };
    // All of it, before the COPY changes it.
    let length = count * PART;
    let segment = requester.segment(length as u32);
    requester.send(&results::read(&[segment], None, length as u32)?)?;
    status(requester)?;
    let file = requester.verbs.get(0, length);
    for n in 0..count {
        requester.send(&Call {
            body: compound(&[read_operation((n * PART) as u32, PART as u32)])?,
            ..Call::null()
        })?;
    }
    if waits == Waits::Reply {
        let segment = requester.segment(1000);
        let segments = (0..22).map(|n| Segment {
            offset: segment.offset + 1000 * n,
            ..segment
        });
        let read = read_operation(LAST.start as u32, LAST.len() as u32);
        requester.send(&Call {
            reply: Some(segments.collect()),
            body: compound(&[read])?,
            ..Call::null()
        })?;
    }
    wait_for_line();
    Ok((session, file.chunks(PART).map(<[u8]>::to_vec).collect()))
}

/// Has the server call back on a connection that is full, by another one: the full one.
fn call_back(requester: &mut Requester, session: &[u8]) -> Result<Verbs> {
    let full = std::mem::replace(&mut requester.verbs, Verbs::new());
    requester.connect()?;
    requester.send(&copy_call(session, 2)?)?;
    status(requester)?;
    wait_for_line();
    Ok(full)
}

/// The status of the COMPOUND whose Reply comes next, which is to be none.
fn status(requester: &mut Requester) -> Result {
    let Waited::For(bytes) = requester.verbs.receive(LIMIT)? else {
        return Err("there is no Reply".to_owned());
    };
    requester.verbs.post_receive()?;
    match word_at(payload_of(&bytes), 24) {
        0 => Ok(()),
        status => Err(format!("nfs_{status}")),
    }
}

/// One more Reply waits for more room than there is, and then a backward Call, which would have enough: when there
/// are Receives, all come in the order in which they were sent, with the data that they had.
fn in_turn(requester: &mut Requester) -> Result<Vec<String>> {
    let (session, parts) = fill(requester, Waits::Reply)?;
    let first = requester.xid - parts.len() as u32;
    let mut full = call_back(requester, &session)?;
    for n in 0..=parts.len() {
        let Waited::For(bytes) = full.receive(LIMIT)? else {
            return Err(format!("reply_{n}_missing"));
        };
        full.post_receive()?;
        if word_at(&bytes, 0) != first + n as u32 {
            return Ok(vec![format!("reply_{n}_out_of_turn")]);
        }
        let is_same = match parts.get(n) {
            Some(part) => payload_of(&bytes).ends_with(part),
            None => {
                let (chunk, file) = (full.get(0, 22_000), parts.concat());
                (chunk.windows(LAST.len())).any(|data| data == &file[LAST])
            }
        };
        if !is_same {
            let status = word_at(payload_of(&bytes), 24);
            return Ok(vec![format!("reply_{n}_differs_{status}")]);
        }
    }
    let Waited::For(bytes) = full.receive(LIMIT)? else {
        return Err("call_missing".to_owned());
    };
    full.post_receive()?;
    let call = BackwardCall::decode(payload_of(&bytes))?;
    full.send(&call.reply(), None)?;
    requester.others.push(full);
    Ok(vec!["in_turn".to_owned()])
}

/// There is no room for a backward Call, and all threads of the server wait for the end of its session, and so for
/// that Call's; then the connection goes with all that waits.
fn dropped(requester: &mut Requester) -> Result<Vec<String>> {
    let (session, _) = fill(requester, Waits::Call)?;
    let full = call_back(requester, &session)?;
    requester.others.push(full);
    let destroy = [words(&[44]), session].concat();
    requester.send(&Call {
        body: compound_of(2, &[destroy]),
        ..Call::null()
    })?;
    status(requester)?;
    Ok(vec!["destroyed".to_owned()])
}

/// There is no room for a backward Call, and nothing changes that.
fn waits(requester: &mut Requester) -> Result<Vec<String>> {
    let (session, _) = fill(requester, Waits::Call)?;
    let full = call_back(requester, &session)?;
    requester.others.push(full);
    Ok(vec!["waits".to_owned()])
}

/// Replies to backward Calls are all that arrives on a connection, many more than it has Receives.
fn alone(requester: &mut Requester) -> Result<Vec<String>> {
    const TIMES: u32 = 200;
    requester.connect()?;
    let session = session_with(requester, BACK_CHANNEL)?;
    let mut called = std::mem::replace(&mut requester.verbs, Verbs::new());
    requester.connect()?;
    for n in 0..TIMES {
        requester.send(&copy_call(&session, 2 + n)?)?;
        status(requester)?;
        let Waited::For(bytes) = called.receive(LIMIT)? else {
            return Ok(vec![format!("{n}_answered")]);
        };
        called.post_receive()?;
        let call = BackwardCall::decode(payload_of(&bytes))?;
        called.send(&call.reply(), None)?;
    }
    // The last one has arrived as well.
    called.flush()?;
    requester.others.push(called);
    Ok(vec![format!("{TIMES}_answered")])
}

/// Messages that are no Replies, although they have the XID of the Call and, as far as they have
/// one, a Reply by which it would fail. `segment` is memory that has such a Reply.
///
/// What is not a Reply for certain is answered, like a Call (RFC 8166 section 4.5).
fn no_replies(call: &BackwardCall, segment: Segment) -> Vec<Vec<u8>> {
    let whole = || call.message(call.failure());
    let bytes = whole().encode();
    let read = |position| vec![ReadSegment { position, segment }];
    let messages = [
        // An XID alone does not tell the direction.
        call.message(words(&[call.xid])),
        // Backward messages have no chunks (RFC 8167 section 5).
        Message {
            reads: read(24),
            ..whole()
        },
        Message {
            writes: vec![vec![segment]],
            ..whole()
        },
        Message {
            reply: Some(vec![segment]),
            ..whole()
        },
        // Nor are they RDMA_NOMSG, which is taken for a Call. With a Position Zero chunk it is
        // fetched, found to be none, and dropped.
        Message {
            procedure: Procedure::Nomsg,
            ..whole()
        },
        Message {
            procedure: Procedure::Nomsg,
            reads: read(0),
            ..call.message(Vec::new())
        },
        // Two XIDs.
        call.message(words(&[!call.xid, 1, 0, 0, 0, 3])),
    ];
    let mut all = vec![bytes[..12].to_vec(), bytes[..20].to_vec()];
    all.extend(messages.iter().map(Message::encode));
    all
}

/// The Call goes on to wait: it has its Reply behind all of these.
fn refused(channel: &mut Channel<'_>) -> Result {
    let call = channel.copy()?;
    let failure = call.failure();
    channel.requester.verbs.put(0, &failure);
    let segment = channel.requester.segment(failure.len() as u32);
    for message in no_replies(&call, segment) {
        let word = channel.send(&[message])?;
        channel.outcomes.push(word);
    }
    channel.finish(&call)
}
