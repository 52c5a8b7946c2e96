// SPDX-License-Identifier: GPL-2.0

//! The rows that hold an RPC-over-RDMA message: the state of the receiver, and what it does.

use std::collections::BTreeSet;

use crate::proto::call::{decode_call, ReceivedByResponder};
use crate::proto::chunk::Chunk;
use crate::proto::header::{Credits, ErrorBody, ErrorMessage, Versions};
use crate::proto::message::{Body, Message, Refusal, Refused};
use crate::proto::reply::{decode_received, Received};

use super::Seen;

/// Write chunks that a row may offer.
const MAX_WRITE_CHUNKS: usize = 8;

/// A forward Call that is outstanding.
#[derive(Clone, Debug, Default)]
struct Offer {
    xid: u32,
    writes: Vec<Vec<u32>>,
    reply: Vec<u32>,
}

/// The state of the receiver.
#[derive(Clone, Debug)]
pub(super) struct Context {
    versions: Versions,
    threshold: usize,
    backward: bool,
    backward_calls: Vec<u32>,
    /// The forward Calls; `None` is one that has the XID of the message and offers no chunks.
    calls: Option<Vec<Offer>>,
}

impl Context {
    /// Reads a `ctx:` tag; the empty one is the default state of an endpoint that supports
    /// `versions` and has Receives of `threshold` bytes.
    pub(super) fn parse(text: &str, versions: Versions, threshold: usize) -> Result<Self, String> {
        let mut context = Self {
            versions,
            threshold,
            backward: true,
            backward_calls: Vec::new(),
            calls: None,
        };
        for item in text.split_whitespace() {
            context
                .parse_item(item)
                .ok_or_else(|| format!("bad ctx: {item}"))?;
        }
        Ok(context)
    }

    fn parse_item(&mut self, item: &str) -> Option<()> {
        let (key, value) = item.split_once('=')?;
        match key {
            "vers" => {
                let (low, high) = value.split_once('-')?;
                self.versions = Versions {
                    low: low.parse().ok()?,
                    high: high.parse().ok()?,
                };
            }
            "thr" => self.threshold = value.parse().ok()?,
            "bc" => self.backward = value != "0",
            "bcalls" => self.backward_calls.push(parse_xid(value)?),
            "calls" => {
                let calls = self.calls.get_or_insert_default();
                if value != "none" {
                    calls.push(Offer::parse(value)?);
                }
            }
            _ => return None,
        }
        Some(())
    }

    /// The forward Call with this XID.
    fn call(&self, xid: u32) -> Option<Offer> {
        match &self.calls {
            None => Some(Offer {
                xid,
                ..Offer::default()
            }),
            Some(calls) => calls.iter().find(|call| call.xid == xid).cloned(),
        }
    }
}

impl Offer {
    /// Reads `xid[:w(caps;caps)][:p(caps)]`.
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split(':');
        let mut offer = Self {
            xid: parse_xid(parts.next()?)?,
            ..Self::default()
        };
        for part in parts {
            let (kind, list) = part.strip_suffix(')')?.split_once('(')?;
            let chunks: Option<Vec<Vec<u32>>> = list
                .split(';')
                .map(|chunk| chunk.split(',').map(|length| length.parse().ok()).collect())
                .collect();
            match (kind, chunks?) {
                ("w", chunks) if chunks.len() <= MAX_WRITE_CHUNKS => offer.writes = chunks,
                ("p", chunks) => offer.reply = chunks.into_iter().next()?,
                _ => return None,
            }
        }
        Some(offer)
    }
}

fn parse_xid(text: &str) -> Option<u32> {
    u32::from_str_radix(text, 16).ok()
}

/// What a requester in the state `context` does with `bytes`.
pub(super) fn at_requester(bytes: &[u8], context: &Context) -> Seen {
    let mut seen = Seen {
        facts: facts(bytes, context.versions),
        ..Seen::default()
    };
    if bytes.len() > context.threshold {
        seen.outcome = "close";
        return seen;
    }
    let good = match decode_received(bytes, context.versions) {
        Err(refused) => {
            let xid = refused.fixed.map(|fixed| fixed.xid.0);
            let awaited = xid.is_some_and(|xid| context.call(xid).is_some());
            let refusal = refused.at_requester(awaited, context.backward);
            seen.refuse(&refused, Some(refusal));
            return seen;
        }
        Ok(Received::Error(error)) => context.call(error.xid.0).is_some(),
        Ok(Received::BackwardCall(_)) => context.backward,
        Ok(Received::Reply(reply)) => context.call(reply.xid.0).is_some_and(|offer| {
            let writes: [_; MAX_WRITE_CHUNKS] = std::array::from_fn(|index| {
                let lengths = offer.writes.get(index).map_or([].as_slice(), Vec::as_slice);
                lengths.iter().copied()
            });
            reply.reconcile(writes, offer.reply.iter().copied()).is_ok()
        }),
    };
    seen.outcome = if good { "accept" } else { "discard" };
    seen
}

/// What a responder in the state `context` does with `bytes`.
pub(super) fn at_responder(bytes: &[u8], context: &Context) -> Seen {
    let mut seen = Seen {
        facts: facts(bytes, context.versions),
        ..Seen::default()
    };
    if bytes.len() > context.threshold {
        seen.outcome = "close";
        return seen;
    }
    let good = match decode_call(bytes, context.versions) {
        Err(refused) => {
            seen.refuse(&refused, refused.at_responder());
            return seen;
        }
        Ok(ReceivedByResponder::Call(_)) => true,
        Ok(ReceivedByResponder::BackwardReply { xid, .. })
        | Ok(ReceivedByResponder::Error(ErrorMessage { xid, .. })) => {
            context.backward_calls.contains(&xid.0)
        }
    };
    seen.outcome = if good { "accept" } else { "discard" };
    seen
}

impl Seen {
    /// Notes a refusal and what is sent because of it; `None` is an RPC-level Reply.
    fn refuse(&mut self, refused: &Refused, refusal: Option<Refusal>) {
        self.facts.insert(format!("fail@{}", refused.why.at));
        self.outcome = match refusal {
            Some(Refusal::Discard) => "discard",
            None => "GARBAGE_ARGS",
            Some(Refusal::Answer(message)) => {
                let mut buffer = [0; 28];
                let length = message.encode(&mut buffer, Credits::new(32)).unwrap();
                self.answer = Some(buffer[..length].to_vec());
                match message.body {
                    ErrorBody::Version(_) => "ERR_VERS",
                    ErrorBody::Chunk => "ERR_BADHEADER",
                    ErrorBody::InvalidOption => "ERR_INVAL_OPTION",
                }
            }
        };
    }
}

/// What is in the message, written as the `chk` tags write it.
fn facts(bytes: &[u8], versions: Versions) -> BTreeSet<String> {
    let mut facts = BTreeSet::from([format!("len={}", bytes.len())]);
    let Ok(message) = Message::decode(bytes, versions) else {
        return facts;
    };
    let (lists, payload) = match message.body {
        Body::Msg { lists, payload, .. } => (lists, payload),
        Body::Nomsg { lists } => (lists, [].as_slice()),
        Body::Error(body) => {
            facts.insert(format!("extra={}", bytes.len() - message.header_len));
            match body {
                ErrorBody::Version(Versions { low, high }) => facts.extend([
                    "err=1".to_owned(),
                    format!("low={low}"),
                    format!("high={high}"),
                ]),
                ErrorBody::Chunk => facts.extend(["err=2".to_owned()]),
                ErrorBody::InvalidOption => facts.extend(["err=3".to_owned()]),
            }
            return facts;
        }
        Body::Optional { option, payload } => {
            facts.extend([
                format!("opttype={}", option.opttype),
                format!("optlen={}", option.optinfo.len()),
                format!("pay={}", payload.len()),
            ]);
            return facts;
        }
    };
    let entries = lists.reads.segments();
    let reads = entries.map(|entry| format!("{}:{}", entry.position, entry.segment.length));
    let writes = lists.writes.chunks().map(|chunk| lengths(&chunk));
    facts.extend([
        format!("hdr={}", message.header_len),
        format!("pay={}", payload.len()),
        format!("R[{}]", reads.collect::<Vec<_>>().join(",")),
        format!("W[{}]", writes.collect::<Vec<_>>().join(";")),
        match lists.reply {
            Some(chunk) => format!("P({})", lengths(&chunk)),
            None => "P-".to_owned(),
        },
    ]);
    facts
}

/// The segment lengths of `chunk`.
fn lengths(chunk: &Chunk<'_>) -> String {
    let lengths = chunk.segments().map(|segment| segment.length.to_string());
    lengths.collect::<Vec<_>>().join(",")
}
