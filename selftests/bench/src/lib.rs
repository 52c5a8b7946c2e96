// SPDX-License-Identifier: GPL-2.0

//! Typical headers, to measure how long the protocol core in `rust/proto` takes for each.
//!
//! The core is included by path, so that what is measured is what the kernel module runs.

#[allow(
    dead_code,
    reason = "the core serves the transport, of which only the headers are here"
)]
#[path = "../../../rust/proto/mod.rs"]
mod proto;

use std::iter;

use proto::requester::decode::{decode_received, Received};
use proto::requester::encode::encode_call;
use proto::responder::budget::CallBudget;
use proto::responder::decode::{decode_call, ReceivedByResponder};
use proto::responder::encode::encode_reply;
use proto::wire::chunk::Segment;
use proto::wire::header::{Credits, FixedHeader, Procedure, Versions, Xid, VERSION_ONE};

/// The RPCs: a name, and the segments of the Write chunk, 0 for none.
pub const RPCS: [(&str, u32); 4] = [
    ("NULL", 0),
    ("READ with 1 segment", 1),
    ("READ with 4 segments", 4),
    ("READ with 16 segments", 16),
];

/// What is measured: a name, and the function.
pub const OPERATIONS: [(&str, fn(&mut Rpc) -> usize); 4] = [
    ("encode_call", encode_call_of),
    ("decode_call", decode_call_of),
    ("encode_reply", encode_reply_of),
    ("decode_reply", decode_reply_of),
];

/// Bytes of each segment.
const SEGMENT_LEN: u32 = 65536;

/// Bytes of the RPC message behind each header, as a READ of NFSv4.2 has them.
const PAYLOAD_LEN: usize = 128;

/// Bytes of the largest header, and more.
const BUFFER_LEN: usize = 1024;

const FIXED: FixedHeader = FixedHeader {
    xid: Xid(0x1234_5678),
    version: VERSION_ONE,
    credits: Credits::new(128),
    procedure: Procedure::Msg,
};

/// What the Calls need, and more.
const BUDGET: CallBudget = CallBudget {
    read_segments: 64,
    read_chunks: 16,
    read_bytes: 1 << 22,
    write_chunks: 4,
    write_segments: 64,
    reply_segments: 64,
};

/// The two headers of an RPC, each with a message behind it.
#[derive(Debug)]
pub struct Rpc {
    fixed: FixedHeader,
    segments: Vec<Segment>,
    call: Vec<u8>,
    reply: Vec<u8>,
    buffer: [u8; BUFFER_LEN],
}

impl Rpc {
    /// An RPC whose data goes to a Write chunk of `segments` segments.
    ///
    /// # Panics
    ///
    /// If one operation does not understand another.
    pub fn new(segments: u32) -> Self {
        let segment = |index: u32| Segment {
            handle: 0x100 + index,
            length: SEGMENT_LEN,
            offset: u64::from(FIXED.xid.0) << 32 | u64::from(index * SEGMENT_LEN),
        };
        let mut rpc = Self {
            fixed: FIXED,
            segments: (0..segments).map(segment).collect(),
            call: Vec::new(),
            reply: Vec::new(),
            buffer: [0; BUFFER_LEN],
        };
        let length = encode_call_of(&mut rpc);
        rpc.call = rpc.message(length, 0);
        let length = encode_reply_of(&mut rpc);
        rpc.reply = rpc.message(length, 1);
        let count = |number| usize::try_from(number).unwrap();
        assert_eq!(decode_call_of(&mut rpc), count(segments.min(1)));
        assert_eq!(decode_reply_of(&mut rpc), count(segments * SEGMENT_LEN));
        rpc
    }

    /// The header in the buffer, and an RPC message of that type behind it.
    fn message(&self, header_len: usize, message_type: u32) -> Vec<u8> {
        let mut message = self.buffer[..header_len].to_vec();
        message.extend(FIXED.xid.0.to_be_bytes());
        message.extend(message_type.to_be_bytes());
        message.resize(header_len + PAYLOAD_LEN, 0);
        message
    }
}

/// Encodes the Call as the requester does; its length.
#[inline(never)]
fn encode_call_of(rpc: &mut Rpc) -> usize {
    let write = rpc.segments.iter().copied();
    encode_call(&mut rpc.buffer, &rpc.fixed, [], [write], iter::empty()).unwrap()
}

/// Encodes the Reply as a responder does, with all segments filled; its length.
#[inline(never)]
fn encode_reply_of(rpc: &mut Rpc) -> usize {
    let write = (!rpc.segments.is_empty()).then(|| rpc.segments.iter().copied());
    encode_reply(
        &mut rpc.buffer,
        &rpc.fixed,
        write,
        None::<iter::Empty<Segment>>,
    )
    .unwrap()
}

/// Decodes the Call as a responder does; the number of its Write chunks.
#[inline(never)]
fn decode_call_of(rpc: &mut Rpc) -> usize {
    match decode_call(&rpc.call, Versions::ONE, &BUDGET) {
        Ok(ReceivedByResponder::Call(call)) => call.lists.writes.chunks().count(),
        _ => usize::MAX,
    }
}

/// Decodes the Reply as the requester does, and compares it with what the Call offered; the bytes
/// that were placed.
#[inline(never)]
fn decode_reply_of(rpc: &mut Rpc) -> usize {
    let Ok(Received::Reply(reply)) = decode_received(&rpc.reply, Versions::ONE) else {
        return usize::MAX;
    };
    let offered = rpc.segments.iter().map(|segment| segment.length);
    let delivered = reply.reconcile([offered], iter::empty()).unwrap();
    usize::try_from(delivered.writes[0].total).unwrap()
}
