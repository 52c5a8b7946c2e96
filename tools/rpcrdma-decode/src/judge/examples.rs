// SPDX-License-Identifier: GPL-2.0

//! Messages that the core encodes, and captures of them, for tests.

use std::net::IpAddr;

use super::fault::Fault;
use super::Judge;
use crate::proto::wire::chunk::{ReadSegment, Segment};
use crate::proto::wire::encode::encode_header;
use crate::proto::wire::encode::encode_inline;
use crate::proto::wire::error::{ErrorBody, ErrorMessage};
use crate::proto::wire::header::{Credits, FixedHeader, Procedure, Xid, VERSION_ONE};
use crate::proto::wire::private_data::{InlineSize, PrivateData};
use crate::roce::{Content, End, Item, Path};

/// A Call or a Reply.
#[derive(Clone)]
pub(super) struct Sent {
    pub(super) xid: u32,
    pub(super) version: u32,
    pub(super) credits: u32,
    pub(super) procedure: Procedure,
    pub(super) reads: Vec<ReadSegment>,
    pub(super) writes: Vec<Vec<Segment>>,
    pub(super) reply: Vec<Segment>,
    /// The RPC message behind the XID.
    pub(super) rpc: Vec<u8>,
}

pub(super) fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

pub(super) fn segment(handle: u32, length: u32) -> Segment {
    Segment {
        handle,
        length,
        offset: 0x1000,
    }
}

/// A Read segment whose chunk belongs behind 40 bytes of an RPC header and a count.
pub(super) fn read(length: u32) -> ReadSegment {
    ReadSegment {
        position: 44,
        segment: segment(1, length),
    }
}

/// A Call of the procedure NULL.
pub(super) fn call(xid: u32) -> Sent {
    Sent {
        xid,
        version: VERSION_ONE,
        credits: 32,
        procedure: Procedure::Msg,
        reads: vec![],
        writes: vec![],
        reply: vec![],
        rpc: words(&[0, 2, 100_003, 3, 0, 0, 0, 0, 0]),
    }
}

/// A Call with an argument of so many bytes, which Read segments have.
pub(super) fn reading(length: u32, reads: &[ReadSegment]) -> Sent {
    let mut call = call(7);
    call.reads = reads.to_vec();
    call.rpc.extend(words(&[length]));
    call
}

/// Its Reply, or another end's.
pub(super) fn reply(xid: u32, credits: u32) -> Sent {
    Sent {
        credits,
        rpc: words(&[1, 0, 0, 0, 0]),
        ..call(xid)
    }
}

impl Sent {
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut buffer = vec![0; 1 << 16];
        let fixed = FixedHeader {
            xid: Xid(self.xid),
            version: self.version,
            credits: Credits::new(self.credits),
            procedure: self.procedure,
        };
        let writes = self.writes.iter().map(|chunk| chunk.iter().copied());
        let reply = Some(self.reply.iter().copied()).filter(|_| !self.reply.is_empty());
        let length = encode_header(
            &mut buffer,
            &fixed,
            self.reads.iter().copied(),
            writes,
            reply,
        );
        buffer.truncate(length.unwrap());
        if self.credits == 0 {
            buffer[8..12].fill(0);
        }
        if self.procedure == Procedure::Msg {
            buffer.extend(words(&[self.xid]));
            buffer.extend(&self.rpc);
        }
        buffer
    }
}

pub(super) fn error(xid: u32) -> Vec<u8> {
    let mut buffer = [0; 20];
    let error = ErrorMessage {
        xid: Xid(xid),
        version: VERSION_ONE,
        body: ErrorBody::Chunk,
    };
    assert_eq!(error.encode(&mut buffer, Credits::new(1)), Ok(20));
    buffer.to_vec()
}

/// A message of the backward direction: 0 for a Call, 1 for a Reply.
pub(super) fn backward(xid: u32, credits: u32, message_type: u32) -> Vec<u8> {
    let mut buffer = [0; 28];
    let length = encode_inline(&mut buffer, VERSION_ONE, Xid(xid), Credits::new(credits));
    assert_eq!(length, Ok(28));
    let mut bytes = buffer.to_vec();
    bytes.extend(words(&[xid, message_type, 0, 0, 0, 0]));
    bytes
}

const CLIENT: [u8; 4] = [192, 0, 2, 2];
const SERVER: [u8; 4] = [192, 0, 2, 1];

/// A capture of one connection.
pub(super) struct Wire {
    judge: Judge,
    psn: u32,
}

impl Wire {
    /// One that begins in the middle.
    pub(super) fn later() -> Self {
        Self {
            judge: Judge::default(),
            psn: 0xff_fffe,
        }
    }

    /// One with the connection's beginning, where each end tells how much it can receive, if
    /// anything.
    pub(super) fn telling(receives: [Option<u32>; 2]) -> Self {
        let mut wire = Self::later();
        let said = |receive: Option<u32>| {
            receive.map(|bytes| PrivateData {
                receive: InlineSize::from_bytes(bytes).unwrap(),
                ..PrivateData::DEFAULT
            })
        };
        for (from_client, name, id, peer_id, qp) in [
            (true, "REQ", 71, None, 17),
            (false, "REP", 81, Some(71), 18),
            // What comes twice is one beginning.
            (false, "REP", 81, Some(71), 18),
        ] {
            let content = Content::Cm {
                name,
                private_data: said(receives[usize::from(!from_client)]),
                end: Some(End { id, peer_id, qp }),
            };
            assert_eq!(wire.take(from_client, content), []);
        }
        wire
    }

    pub(super) fn new() -> Self {
        Self::telling([Some(4096); 2])
    }

    fn take(&mut self, from_client: bool, content: Content) -> Vec<Fault> {
        let [source, destination] = match from_client {
            true => [CLIENT, SERVER],
            false => [SERVER, CLIENT],
        };
        self.judge.take(&Item {
            path: Some(Path {
                frame: 1,
                time: None,
                source: IpAddr::from(source),
                destination: IpAddr::from(destination),
                qp: if from_client { 18 } else { 17 },
                psn: self.psn,
            }),
            content,
        })
    }

    /// The next message, which invalidates a handle.
    pub(super) fn invalidates(
        &mut self,
        from_client: bool,
        bytes: Vec<u8>,
        handle: Option<u32>,
    ) -> Vec<Fault> {
        self.psn = (self.psn + 1) & 0xff_ffff;
        self.again(from_client, bytes, handle)
    }

    pub(super) fn again(
        &mut self,
        from_client: bool,
        bytes: Vec<u8>,
        handle: Option<u32>,
    ) -> Vec<Fault> {
        let content = Content::Message {
            bytes,
            complete: true,
            invalidates: handle,
        };
        self.take(from_client, content)
    }

    /// The next message, of which not all bytes were captured.
    pub(super) fn cut(&mut self, from_client: bool, sent: &Sent) -> Vec<Fault> {
        self.psn = (self.psn + 1) & 0xff_ffff;
        let content = Content::Message {
            bytes: sent.bytes()[..20].to_vec(),
            complete: false,
            invalidates: None,
        };
        self.take(from_client, content)
    }

    pub(super) fn client(&mut self, sent: &Sent) -> Vec<Fault> {
        self.invalidates(true, sent.bytes(), None)
    }

    pub(super) fn server(&mut self, sent: &Sent) -> Vec<Fault> {
        self.invalidates(false, sent.bytes(), None)
    }
}

/// What is wrong with a message without a connection.
pub(super) fn alone(sent: &Sent) -> Vec<Fault> {
    Judge::default().take(&Item {
        path: None,
        content: Content::Message {
            bytes: sent.bytes(),
            complete: true,
            invalidates: None,
        },
    })
}
