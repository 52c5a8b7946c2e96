// SPDX-License-Identifier: GPL-2.0

//! The responder's side of the protocol: Calls come in, and Replies go out as they should or not.

use std::time::Duration;

use crate::proto::responder::decode::ReceivedByResponder;
use crate::proto::testing::responder::decode::decode_call;
use crate::proto::wire::chunk::{ReadSegment, Segment};
use crate::proto::wire::encode::encode_header;
use crate::proto::wire::header::{Credits, FixedHeader, Procedure, Versions, Xid, VERSION_ONE};
use crate::proto::wire::private_data::{InlineSize, PrivateData};
use crate::verbs::{Acceptance, Verbs, Waited, MEMORY_SIZE};
use crate::Result;

/// How long anything may take that has to come.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

/// `-EIO`, as the client's RPCs end with it.
pub(crate) const EIO: i32 = -5;

/// `-ETIMEDOUT`.
pub(crate) const ETIMEDOUT: i32 = -110;

/// `-ERESTARTSYS`, with which a task that is killed ends.
pub(crate) const ERESTARTSYS: i32 = -512;

/// `IBV_WC_WR_FLUSH_ERR` and `IBV_WC_RETRY_EXC_ERR`: what a request comes to when the connection
/// has ended before it, and when the other end has gone meanwhile.
const FLUSHED: u32 = 5;
const UNANSWERED: u32 = 12;

/// Receives that are posted, and credits that are granted, where neither is the subject.
pub(crate) const CREDITS: u32 = 160;

/// Credits that the client asks for: the default of `rdma_slot_table_entries`.
pub(crate) const REQUESTED: u32 = 128;

/// Bytes of the default inline threshold that this end tells.
pub(crate) const THRESHOLD: u32 = 4096;

/// Bytes of an RPC Reply before its results (RFC 5531 section 9), with an AUTH_NONE verifier.
pub(crate) const REPLY_LEN: usize = 24;

/// The procedures of the program that the client calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// No argument, no result.
    Null,
    /// Data as an argument that may be in a Read chunk.
    Write,
    /// Data as a result that may be in a Write chunk.
    Read,
    /// Data as an argument that may not be in a chunk of its own.
    Long,
    /// Data as a result that may not be in a chunk of its own.
    List,
    /// The last two together.
    Exchange,
    /// As [`Self::Null`]; the client's last Call.
    Done,
    /// Any Call of another program, such as NFS.
    Other,
}

impl Form {
    fn has_result(self) -> bool {
        matches!(self, Self::Read | Self::List | Self::Exchange)
    }
}

/// A forward Call, and what it has offered.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) xid: u32,
    pub(crate) version: u32,
    pub(crate) credits: u32,
    /// Bytes of the message, and of the part of the RPC message that came in it.
    pub(crate) message_len: usize,
    pub(crate) inline_len: usize,
    pub(crate) form: Form,
    /// The Read list.
    pub(crate) reads: Vec<ReadSegment>,
    /// The Write list.
    pub(crate) writes: Vec<Vec<Segment>>,
    /// The Reply chunk.
    pub(crate) reply: Option<Vec<Segment>>,
    /// The inline part of the RPC message, or the Position Zero chunk.
    pub(crate) payload: Vec<u8>,
    /// Bytes of data that the argument has, or that are wanted as the result.
    pub(crate) size: usize,
}

/// A message to send.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) xid: u32,
    pub(crate) version: u32,
    pub(crate) credits: u32,
    pub(crate) procedure: Procedure,
    pub(crate) reads: Vec<ReadSegment>,
    pub(crate) writes: Vec<Vec<Segment>>,
    pub(crate) reply: Option<Vec<Segment>>,
    pub(crate) payload: Vec<u8>,
}

impl Message {
    /// An RDMA_MSG of Version One with this RPC message and no chunks.
    pub(crate) fn inline(xid: u32, credits: u32, payload: Vec<u8>) -> Self {
        Self {
            xid,
            version: VERSION_ONE,
            credits,
            procedure: Procedure::Msg,
            reads: Vec::new(),
            writes: Vec::new(),
            reply: None,
            payload,
        }
    }

    /// The bytes on the wire.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut buffer = vec![0; 64 * 1024];
        let fixed = FixedHeader {
            xid: Xid(self.xid),
            version: self.version,
            credits: Credits::new(self.credits),
            procedure: self.procedure,
        };
        let writes = self.writes.iter().map(|chunk| chunk.iter().copied());
        let reply = self.reply.as_ref().map(|chunk| chunk.iter().copied());
        let reads = self.reads.iter().copied();
        let length = encode_header(&mut buffer, &fixed, reads, writes, reply)
            .expect("64 KiB hold any header");
        buffer.truncate(length);
        // A credit word of zero is one that the encoder does not write.
        if self.credits == 0 {
            buffer[8..12].fill(0);
        }
        buffer.extend_from_slice(&self.payload);
        buffer
    }
}

/// What the byte at `at` of all data is; the client knows it too.
fn data_byte(at: usize) -> u8 {
    (at % 251) as u8
}

/// `length` bytes of data.
pub(crate) fn data(length: usize) -> Vec<u8> {
    (0..length).map(data_byte).collect()
}

/// The same as an opaque item has it in a stream (RFC 4506 section 4.10).
fn padded(length: usize) -> Vec<u8> {
    let mut item = data(length);
    item.resize(length.next_multiple_of(4), 0);
    item
}

/// The words of an RPC message, or of a part of it.
pub(crate) fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// The word at byte `at`, or zero.
pub(crate) fn word_at(bytes: &[u8], at: usize) -> u32 {
    bytes
        .get(at..at + 4)
        .and_then(|word| word.try_into().ok())
        .map_or(0, u32::from_be_bytes)
}

/// The start of an accepted RPC Reply with success.
pub(crate) fn rpc_reply(xid: u32) -> Vec<u8> {
    words(&[xid, 1, 0, 0, 0, 0])
}

/// A message from the client.
#[derive(Clone, Debug)]
pub(crate) enum Received {
    Call(Call),
    BackwardReply(Vec<u8>),
    /// An RDMA_ERROR, as it came.
    Error(Vec<u8>),
}

/// The responder.
pub(crate) struct Peer {
    pub(crate) verbs: Verbs,
    /// How each Call ends at the client, in the order of the Calls: its status, and the length of
    /// the result's data if there is some.
    pub(crate) expected: Vec<String>,
    /// Backward Replies so far.
    pub(crate) backward_replies: Vec<Vec<u8>>,
    /// The version of the last one.
    pub(crate) backward_version: u32,
    /// Whether Receives are posted again at once.
    pub(crate) reposts: bool,
    /// The versions that the client may speak.
    pub(crate) versions: Versions,
    /// Whether the client's last Call was answered.
    pub(crate) finished: bool,
}

impl Peer {
    /// Listens on `port`.
    pub(crate) fn listen(port: u16) -> Self {
        Self {
            verbs: Verbs::listen(port),
            expected: Vec::new(),
            backward_replies: Vec::new(),
            backward_version: 0,
            reposts: true,
            versions: Versions::ONE,
            finished: false,
        }
    }

    /// Starts the next scenario.
    pub(crate) fn reset(&mut self) {
        self.verbs.disconnect();
        self.expected.clear();
        self.backward_replies.clear();
        self.reposts = true;
        self.versions = Versions::ONE;
        self.finished = false;
    }

    /// What an honest responder accepts a connection with.
    pub(crate) fn acceptance() -> Acceptance {
        let size = InlineSize::from_bytes(THRESHOLD).unwrap_or(InlineSize::DEFAULT);
        let own = PrivateData {
            send: size,
            receive: size,
            remote_invalidation: true,
        };
        Acceptance {
            private_data: own.encode().to_vec(),
            receives: CREDITS,
            receive_size: THRESHOLD,
            send_size: 128 * 1024,
            data_size: MEMORY_SIZE,
            // A Send too many ends the connection.
            rnr_retries: 0,
            ack_timeout: 0,
        }
    }

    /// Waits for a connection and accepts it.
    pub(crate) fn accept(&mut self) -> Result {
        self.accept_with(&Self::acceptance())
    }

    /// The same with other parameters.
    pub(crate) fn accept_with(&mut self, acceptance: &Acceptance) -> Result {
        self.request()?;
        self.verbs.accept(acceptance)
    }

    /// Waits for a request for a connection; its private data.
    pub(crate) fn request(&mut self) -> Result<Vec<u8>> {
        self.verbs
            .request(LIMIT)?
            .ok_or_else(|| "the client does not connect".to_owned())
    }

    /// The next message; nothing if the connection has ended.
    pub(crate) fn receive(&mut self) -> Result<Option<Received>> {
        match self.verbs.receive(LIMIT)? {
            Waited::For(bytes) => self.take(&bytes),
            Waited::Ended => Ok(None),
            Waited::TimedOut => Err("the client sends nothing".to_owned()),
        }
    }

    /// The next message, if it comes within this time.
    pub(crate) fn receive_for(&mut self, limit: Duration) -> Result<Option<Received>> {
        match self.verbs.receive(limit)? {
            Waited::For(bytes) => match self.take(&bytes)? {
                None => Err("the connection has ended".to_owned()),
                received => Ok(received),
            },
            Waited::Ended => Err("the connection has ended".to_owned()),
            Waited::TimedOut => Ok(None),
        }
    }

    /// What a message is; nothing if the connection has ended before all of it was here.
    fn take(&mut self, bytes: &[u8]) -> Result<Option<Received>> {
        if self.reposts {
            self.verbs.post_receive()?;
        }
        self.decode(bytes)
    }

    fn decode(&mut self, bytes: &[u8]) -> Result<Option<Received>> {
        // It repeats the version of the message that it is about, whatever that is.
        if word_at(bytes, 12) == 4 {
            return Ok(Some(Received::Error(bytes.to_vec())));
        }
        let decoded = decode_call(bytes, self.versions)
            .map_err(|refused| format!("the client sent {refused:?}: {bytes:02x?}"))?;
        let call = match decoded {
            ReceivedByResponder::Call(call) => call,
            ReceivedByResponder::BackwardReply { fixed, payload } => {
                self.backward_version = fixed.version;
                return Ok(Some(Received::BackwardReply(payload.to_vec())));
            }
            ReceivedByResponder::Error(_) => return Err("an RDMA_ERROR of another kind".to_owned()),
        };
        let reads: Vec<_> = call.lists.reads.segments().collect();
        let writes = call.lists.writes.chunks();
        let mut call = Call {
            xid: call.index.xid.0,
            version: call.index.version,
            credits: word_at(bytes, 8),
            message_len: bytes.len(),
            inline_len: call.payload.map_or(0, <[u8]>::len),
            form: Form::Other,
            writes: writes.map(|chunk| chunk.segments().collect()).collect(),
            reply: call.lists.reply.map(|chunk| chunk.segments().collect()),
            payload: call.payload.unwrap_or(&[]).to_vec(),
            reads,
            size: 0,
        };
        if call.payload.is_empty() {
            let Some(payload) = self.pull(&call, 0)? else {
                return Ok(None);
            };
            call.payload = payload;
        }
        // Program 0x20049000 is the test's (see selftests/modules/calls.c).
        if word_at(&call.payload, 12) == 0x2004_9000 {
            call.form = match word_at(&call.payload, 20) {
                0 => Form::Null,
                1 => Form::Write,
                2 => Form::Read,
                3 => Form::Long,
                4 => Form::List,
                5 => Form::Exchange,
                6 => Form::Done,
                other => return Err(format!("the client called procedure {other}")),
            };
            // Behind the header of an RPC Call with an AUTH_NONE credential and verifier.
            call.size = word_at(&call.payload, 40) as usize;
        }
        Ok(Some(Received::Call(call)))
    }

    /// Gets a Read chunk's bytes; nothing if the connection has ended meanwhile.
    fn pull(&mut self, call: &Call, position: u32) -> Result<Option<Vec<u8>>> {
        let mut bytes = Vec::new();
        for entry in call.reads.iter().filter(|entry| entry.position == position) {
            let segment = entry.segment;
            let mut part = vec![0; segment.length as usize];
            let status = self.verbs.read(&mut part, segment.offset, segment.handle)?;
            match status {
                0 => bytes.append(&mut part),
                FLUSHED | UNANSWERED => return Ok(None),
                _ => return Err(format!("an RDMA Read failed with {status}")),
            }
        }
        Ok(Some(bytes))
    }

    /// The next Call on this connection, or nothing if it has ended.
    pub(crate) fn call_or_end(&mut self) -> Result<Option<Call>> {
        loop {
            match self.receive()? {
                None => return Ok(None),
                Some(Received::Call(call)) => return Ok(Some(call)),
                Some(Received::BackwardReply(reply)) => self.backward_replies.push(reply),
                Some(Received::Error(error)) => {
                    return Err(format!("the client answered {error:02x?}"));
                }
            }
        }
    }

    /// The next Call, on this connection.
    pub(crate) fn call(&mut self) -> Result<Call> {
        self.call_or_end()?
            .ok_or_else(|| "the connection has ended".to_owned())
    }

    /// The same Call once more, on this connection.
    pub(crate) fn call_again(&mut self, call: &Call) -> Result<Call> {
        let again = self.call()?;
        if again.xid != call.xid {
            return Err("the Call did not go out again".to_owned());
        }
        Ok(again)
    }

    /// The next Call, on this connection or the next one.
    pub(crate) fn call_anywhere(&mut self) -> Result<Call> {
        loop {
            if let Some(call) = self.call_or_end()? {
                return Ok(call);
            }
            self.accept()?;
            self.greet()?;
        }
    }

    /// Sends something that no Call waits for. After a connection that brought nothing the client
    /// would be in no hurry to make the next one.
    pub(crate) fn greet(&mut self) -> Result {
        self.send(&words(&[0, 1, CREDITS, 0, 0, 0, 0, 0, 1]))
    }

    /// The next message, which is an RDMA_ERROR. Replies to earlier backward Calls may come before it:
    /// a thread of the client's service sends them.
    pub(crate) fn error(&mut self) -> Result<Vec<u8>> {
        loop {
            match self.receive()? {
                Some(Received::Error(error)) => return Ok(error),
                Some(Received::BackwardReply(reply)) => self.backward_replies.push(reply),
                other => return Err(format!("no RDMA_ERROR but {other:02x?}")),
            }
        }
    }

    /// The next message, which is a backward Reply.
    pub(crate) fn backward_reply(&mut self) -> Result {
        match self.receive()? {
            Some(Received::BackwardReply(reply)) => {
                self.backward_replies.push(reply);
                Ok(())
            }
            other => Err(format!("no backward Reply but {other:02x?}")),
        }
    }

    /// Waits until there is a line on standard input: the test goes on.
    pub(crate) fn wait_for_line(&mut self) -> Result {
        let read = std::io::stdin().read_line(&mut String::new());
        read.map(|_| ())
            .map_err(|error| format!("standard input: {error}"))
    }

    /// Waits for the end of the connection.
    pub(crate) fn end(&mut self) -> Result {
        match self.call_or_end()? {
            None => Ok(()),
            Some(call) => Err(format!("the connection goes on with {call:02x?}")),
        }
    }

    /// Does what a Call asks for; the Reply to it.
    pub(crate) fn reply(&mut self, call: &Call) -> Result<Message> {
        let mut message = Message {
            version: call.version,
            writes: call.writes.iter().map(|chunk| filled(chunk, 0)).collect(),
            reply: call.reply.as_ref().map(|chunk| filled(chunk, 0)),
            ..Message::inline(call.xid, CREDITS, rpc_reply(call.xid))
        };
        let size = call.size;
        match call.form {
            Form::Null | Form::Done | Form::Other => {}
            Form::Write => {
                let argument = match call.reads.first() {
                    Some(entry) => self
                        .pull(call, entry.position)?
                        .ok_or_else(|| "the connection has ended".to_owned())?,
                    None => call.payload.get(44..).unwrap_or(&[]).to_vec(),
                };
                check_data(&argument, size)?;
            }
            Form::Long | Form::Exchange => {
                check_data(call.payload.get(44..).unwrap_or(&[]), size)?;
            }
            Form::Read | Form::List => {}
        }
        if call.form.has_result() {
            message.payload.extend(words(&[size as u32]));
            match (&call.writes.first(), &call.reply) {
                (Some(chunk), _) => {
                    self.push(chunk, &data(size))?;
                    message.writes[0] = filled(chunk, size);
                }
                (None, Some(chunk)) => {
                    message.payload.extend(padded(size));
                    let payload = std::mem::take(&mut message.payload);
                    self.push(chunk, &payload)?;
                    message.reply = Some(filled(chunk, payload.len()));
                    message.procedure = Procedure::Nomsg;
                }
                (None, None) => message.payload.extend(padded(size)),
            }
        }
        Ok(message)
    }

    /// Writes to a chunk.
    pub(crate) fn push(&mut self, chunk: &[Segment], bytes: &[u8]) -> Result {
        let mut rest = bytes;
        for segment in chunk {
            let (part, left) = rest.split_at(rest.len().min(segment.length as usize));
            rest = left;
            if part.is_empty() {
                break;
            }
            let status = self.verbs.write(part, segment.offset, segment.handle)?;
            if status != 0 {
                return Err(format!("an RDMA Write failed with {status}"));
            }
        }
        if rest.is_empty() {
            Ok(())
        } else {
            Err("the chunk is too small".to_owned())
        }
    }

    /// Sends a message.
    pub(crate) fn send(&mut self, message: &[u8]) -> Result {
        self.verbs.send(message, None)
    }

    /// Answers a Call as one should.
    pub(crate) fn answer(&mut self, call: &Call) -> Result {
        let reply = self.reply(call)?;
        self.send(&reply.encode())?;
        self.succeeds(call);
        Ok(())
    }

    /// Notes that the next Call ends with `status`.
    pub(crate) fn ends(&mut self, status: i32) {
        self.expected.push(status.to_string());
    }

    /// Notes that the next Call ends well, with `length` bytes of data.
    pub(crate) fn gets(&mut self, length: usize) {
        self.expected.push(if length == 0 {
            "0".to_owned()
        } else {
            format!("0/{length}")
        });
    }

    /// Notes that a Call ends as one that is answered well.
    pub(crate) fn succeeds(&mut self, call: &Call) {
        self.gets(if call.form.has_result() { call.size } else { 0 });
    }

    /// Answers all Calls, on this connection and those that follow, up to the client's last one.
    pub(crate) fn serve(&mut self) -> Result {
        while !self.finished {
            let call = self.call_anywhere()?;
            self.answer(&call)?;
            self.finished = call.form == Form::Done;
        }
        self.verbs.flush().map(drop)
    }
}

/// A chunk with the lengths that say where `length` bytes are.
pub(crate) fn filled(chunk: &[Segment], length: usize) -> Vec<Segment> {
    let mut left = length;
    let used = |segment: &Segment| {
        let used = left.min(segment.length as usize);
        left -= used;
        Segment {
            length: used as u32,
            ..*segment
        }
    };
    chunk.iter().map(used).collect()
}

fn check_data(bytes: &[u8], size: usize) -> Result {
    if bytes.get(..size).is_some_and(|bytes| bytes == data(size)) {
        Ok(())
    } else {
        Err(format!("these are not the {size} bytes of the argument"))
    }
}
