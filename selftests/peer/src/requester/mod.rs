// SPDX-License-Identifier: GPL-2.0

//! The requester's side of the protocol: Calls go to an NFS server as they should or not, and each
//! message's outcome is a word.

mod backward;
mod choices;
mod chunks;
mod compound;
mod connections;
mod credits;
mod forms;
mod large;
mod messages;
mod reads;
mod results;
mod session;
mod stalls;

use std::ffi::{CStr, CString};
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use crate::peer::{word_at, words, Message, LIMIT, THRESHOLD};
use crate::proto::wire::chunk::{ReadSegment, Segment};
use crate::proto::wire::header::{Procedure, VERSION_ONE};
use crate::verbs::{Acceptance, Verbs, Waited, MEMORY_SIZE};
use crate::Result;

/// Where the server waits for connections.
const PORT: u16 = 20049;

/// How long to wait for a message that is not to come.
const SILENCE: Duration = Duration::from_secs(2);

/// Runs a scenario: what came of each message.
type Run = fn(&mut Requester) -> Result<Vec<String>>;

/// The scenarios of a file, each with its name.
type Scenarios = [(&'static str, Run)];

fn find(name: &str) -> Option<Run> {
    let files: [&Scenarios; 12] = [
        backward::SCENARIOS,
        choices::SCENARIOS,
        chunks::SCENARIOS,
        connections::SCENARIOS,
        credits::SCENARIOS,
        forms::SCENARIOS,
        large::SCENARIOS,
        messages::SCENARIOS,
        reads::SCENARIOS,
        results::SCENARIOS,
        session::SCENARIOS,
        stalls::SCENARIOS,
    ];
    let mut all = files.into_iter().flatten();
    all.find(|(known, _)| *known == name).map(|&(_, run)| run)
}

/// Runs the scenarios against the server at `address`.
pub(crate) fn main(address: &str, scenarios: &[String]) -> ExitCode {
    let Ok(address) = CString::new(address) else {
        return ExitCode::from(2);
    };
    for name in scenarios {
        let Some(run) = find(name) else {
            eprintln!("there is no scenario {name}");
            return ExitCode::from(2);
        };
        let mut requester = Requester::new(&address);
        let outcome = run(&mut requester).unwrap_or_else(|error| vec![format!("failed: {error}")]);
        println!("{name}: {}", outcome.join(" "));
        let _ = std::io::stdout().flush();
        wait_for_line();
    }
    ExitCode::SUCCESS
}

/// Waits until the test goes on, or there is nobody to say so.
fn wait_for_line() {
    let _ = std::io::stdin().read_line(&mut String::new());
}

/// One end of connections to the server.
struct Requester {
    address: CString,
    verbs: Verbs,
    /// Others that are up.
    others: Vec<Verbs>,
    xid: u32,
}

/// A Call of the NFS procedure NULL unless `body` says otherwise, with what its header has beside.
#[derive(Clone, Debug)]
struct Call {
    credits: u32,
    procedure: Procedure,
    reads: Vec<ReadSegment>,
    writes: Vec<Vec<Segment>>,
    reply: Option<Vec<Segment>>,
    /// What follows the header of the RPC Call.
    argument: Vec<u8>,
    /// The header of the RPC Call behind the XID, or all of another RPC Call there.
    body: Vec<u8>,
}

impl Call {
    /// One without chunks.
    fn null() -> Self {
        Self {
            credits: 32,
            procedure: Procedure::Msg,
            reads: Vec::new(),
            writes: Vec::new(),
            reply: None,
            argument: Vec::new(),
            // A Call by RPC version 2 of program 100003, version 3, procedure 0, without
            // credentials.
            body: words(&[0, 2, 100_003, 3, 0, 0, 0, 0, 0]),
        }
    }

    /// Bytes of the RPC message before the argument.
    const HEADER: u32 = 40;

    /// With an argument, a counted array, of which Read segments have the bytes.
    fn reading(segments: &[Segment]) -> Self {
        let length: u64 = segments
            .iter()
            .map(|segment| u64::from(segment.length))
            .sum();
        let position = Self::HEADER + 4;
        Self {
            reads: segments
                .iter()
                .map(|&segment| ReadSegment { position, segment })
                .collect(),
            argument: words(&[length as u32]),
            ..Self::null()
        }
    }

    fn encode(&self, xid: u32) -> Vec<u8> {
        let mut payload = Vec::new();
        if self.procedure == Procedure::Msg {
            payload.extend(words(&[xid]));
            payload.extend_from_slice(&self.body);
            payload.extend_from_slice(&self.argument);
        }
        let message = Message {
            xid,
            version: VERSION_ONE,
            credits: self.credits,
            procedure: self.procedure,
            reads: self.reads.clone(),
            writes: self.writes.clone(),
            reply: self.reply.clone(),
            payload,
        };
        message.encode()
    }
}

impl Requester {
    fn new(address: &CStr) -> Self {
        Self {
            address: address.to_owned(),
            verbs: Verbs::new(),
            others: Vec::new(),
            // The server remembers some of those of other processes.
            xid: std::process::id() << 16,
        }
    }

    /// What a connection is asked for with. The other end repeats what finds no Receive.
    fn offer() -> Acceptance {
        Acceptance {
            private_data: Vec::new(),
            receives: 160,
            receive_size: THRESHOLD,
            send_size: 8192,
            data_size: MEMORY_SIZE,
            rnr_retries: 7,
            ack_timeout: 0,
        }
    }

    /// The same for a connection that carries next to nothing. There may be many.
    fn small_offer() -> Acceptance {
        Acceptance {
            receives: 4,
            send_size: 1024,
            data_size: 0,
            ..Self::offer()
        }
    }

    /// Connects, in place of the connection before.
    fn connect(&mut self) -> Result {
        self.connect_with(&Self::offer())
    }

    /// The same with other parameters.
    fn connect_with(&mut self, offer: &Acceptance) -> Result {
        self.verbs.connect(&self.address, PORT, offer, true)
    }

    /// Another connection, which stays until the process ends.
    fn connect_another(&mut self, offer: &Acceptance, establish: bool) -> Result<&mut Verbs> {
        let mut verbs = Verbs::new();
        verbs.connect(&self.address, PORT, offer, establish)?;
        self.others.push(verbs);
        self.others
            .last_mut()
            .ok_or_else(|| "there is no connection".to_owned())
    }

    /// Another connection, of the process's own, which has a Receive for one message only: the
    /// server is asked to repeat others for ever.
    fn connect_for_one_reply(&self) -> Result<Verbs> {
        let offer = Acceptance {
            receives: 1,
            ..Self::offer()
        };
        let mut verbs = Verbs::new();
        verbs.connect(&self.address, PORT, &offer, true)?;
        Ok(verbs)
    }

    /// A segment of the memory that the server may use.
    fn segment(&mut self, length: u32) -> Segment {
        segment_of(&mut self.verbs, length)
    }

    fn next_xid(&mut self) -> u32 {
        self.xid += 1;
        self.xid
    }

    /// Sends a Call, without waiting for the Reply.
    fn send(&mut self, call: &Call) -> Result {
        let xid = self.next_xid();
        self.verbs.send(&call.encode(xid), None)
    }

    /// The outcome of the next message.
    fn outcome(&mut self, limit: Duration) -> Result<String> {
        outcome_of(&mut self.verbs, limit)
    }

    /// Sends a Call: what comes of it.
    fn call(&mut self, call: &Call) -> Result<String> {
        self.send(call)?;
        self.outcome(LIMIT)
    }

    /// Sends the bytes as they are: what comes of them.
    fn bytes(&mut self, bytes: &[u8], limit: Duration) -> Result<String> {
        self.verbs.send(bytes, None)?;
        self.outcome(limit)
    }
}

/// A segment of the memory that the server may use by this connection.
fn segment_of(verbs: &mut Verbs, length: u32) -> Segment {
    let (offset, handle) = verbs.memory();
    Segment {
        handle,
        length,
        offset,
    }
}

/// The end of a connection. The server has to be the one that ends it: if this end did so first,
/// that would be what the server takes for the cause.
fn end_of(verbs: &mut Verbs) -> Result<String> {
    let is_ended = verbs.is_ended(LIMIT)?;
    Ok(if is_ended { "ended" } else { "left" }.to_owned())
}

/// What the next message from the server says, in a word.
fn outcome_of(verbs: &mut Verbs, limit: Duration) -> Result<String> {
    let bytes = match verbs.receive(limit)? {
        Waited::For(bytes) => bytes,
        Waited::Ended => return end_of(verbs),
        Waited::TimedOut => return Ok("silence".to_owned()),
    };
    verbs.post_receive()?;
    Ok(word_of(&bytes))
}

/// What a message from the server says, in a word.
fn word_of(bytes: &[u8]) -> String {
    if word_at(bytes, 12) == 4 {
        return match word_at(bytes, 16) {
            1 => "err_vers".to_owned(),
            2 => "err_chunk".to_owned(),
            other => format!("rdma_error_{other}"),
        };
    }
    let payload = payload_of(bytes);
    // The status of an accepted RPC Reply (RFC 5531 section 9).
    match word_at(payload, 20) {
        _ if payload.len() < 24 => "short".to_owned(),
        0 => "answered".to_owned(),
        4 => "garbage_args".to_owned(),
        other => format!("rpc_{other}"),
    }
}

/// The outcome of a comparison.
fn verdict(is_same: bool) -> String {
    if is_same { "same" } else { "different" }.to_owned()
}

/// The inline RPC message behind a header whose lists are well formed.
fn payload_of(message: &[u8]) -> &[u8] {
    let mut at = 16;
    while word_at(message, at) == 1 {
        at += 24;
    }
    at += 4;
    while word_at(message, at) == 1 {
        at += 8 + 16 * word_at(message, at + 4) as usize;
    }
    at += 4;
    if word_at(message, at) == 1 {
        at += 4 + 16 * word_at(message, at + 4) as usize;
    }
    message.get(at + 4..).unwrap_or(&[])
}
