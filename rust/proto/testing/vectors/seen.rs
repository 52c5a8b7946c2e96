// SPDX-License-Identifier: GPL-2.0

//! What the core makes of the bytes of a row, compared with the tags of the row.

use super::context::{lengths, numbers, Context};
use crate::proto::message::{Body, Message};
use crate::proto::requester::decode::{decode_received, Received, RequesterRefusal};
use crate::proto::responder::decode::ReceivedByResponder;
use crate::proto::responder::refusal::ResponderRefusal;
use crate::proto::testing::options::OptionMessage;
use crate::proto::testing::responder::decode::decode_call;
use crate::proto::wire::chunk::{Chunk, Lists};
use crate::proto::wire::error::{ErrorBody, ErrorMessage};
use crate::proto::wire::header::{Credits, FixedHeader, Versions};
use crate::proto::wire::private_data::PrivateData;

/// What the core made of the bytes of a row.
#[derive(Debug)]
pub(super) struct Seen<'a> {
    bytes: &'a [u8],
    /// The outcome word.
    pub(super) outcome: &'static str,
    /// Where the message was found to be bad.
    refused_at: Option<usize>,
    /// The RDMA_ERROR to send.
    answer: Option<ErrorMessage>,
    /// Whether the Call with the XID of the message ends, if a requester waits for one.
    call_ends: Option<bool>,
    /// The message, if it decodes.
    message: Option<Message<'a>>,
    /// The message, if it is an RDMA_OPTIONAL.
    option: Option<OptionMessage<'a>>,
    /// The CM private message and its offset.
    private: Option<(usize, PrivateData)>,
}

impl<'a> Seen<'a> {
    fn new(bytes: &'a [u8], versions: Versions) -> Self {
        Self {
            bytes,
            outcome: "",
            refused_at: None,
            answer: None,
            message: Message::decode(bytes, versions).ok(),
            option: OptionMessage::decode(bytes, versions).and_then(Result::ok),
            call_ends: None,
            private: None,
        }
    }

    /// The outcome of private data.
    pub(super) fn private_data(bytes: &'a [u8]) -> Self {
        let private = PrivateData::find(bytes);
        Self {
            outcome: match private {
                Some(_) => "accept",
                None => "no-private-data",
            },
            private,
            ..Self::new(bytes, Versions::ONE)
        }
    }

    /// What a requester in the state `context` does with `bytes`.
    pub(super) fn at_requester(bytes: &'a [u8], context: &Context<'_>) -> Self {
        let mut seen = Self::new(bytes, context.versions);
        if bytes.len() > context.threshold {
            seen.outcome = "close";
            return seen;
        }
        let good = match decode_received(bytes, context.versions) {
            Err(refused) => {
                let xid = refused.fixed.map(|fixed| fixed.xid.0);
                let awaited = xid.is_some_and(|xid| context.call(xid).is_some());
                let refusal = refused.at_requester(awaited, context.backward);
                seen.call_ends = awaited.then_some(refusal == RequesterRefusal::EndCall);
                seen.refuse(
                    refused.at,
                    match refusal {
                        RequesterRefusal::Answer(error) => Some(error),
                        RequesterRefusal::Discard | RequesterRefusal::EndCall => None,
                    },
                );
                return seen;
            }
            Ok(Received::Error(error)) => context.call(error.xid.0).is_some(),
            Ok(Received::BackwardCall(_)) => context.backward,
            Ok(Received::Reply(reply)) => context.call(reply.fixed.xid.0).is_some_and(|offer| {
                let result = reply.reconcile(offer.writes(), lengths(offer.reply));
                result.is_ok()
            }),
        };
        seen.outcome = if good { "accept" } else { "discard" };
        seen
    }

    /// What a responder in the state `context` does with `bytes`.
    pub(super) fn at_responder(bytes: &'a [u8], context: &Context<'_>) -> Self {
        let mut seen = Self::new(bytes, context.versions);
        if bytes.len() > context.threshold {
            seen.outcome = "close";
            return seen;
        }
        let good = match decode_call(bytes, context.versions) {
            Err(refused) => {
                let (answer, garbage) = match refused.at_responder() {
                    ResponderRefusal::Discard => (None, false),
                    ResponderRefusal::Answer(error) => (Some(error), false),
                    ResponderRefusal::GarbageArgs(_) => (None, true),
                };
                seen.refuse(refused.at, answer);
                if garbage {
                    seen.outcome = "GARBAGE_ARGS";
                }
                return seen;
            }
            Ok(ReceivedByResponder::Call(_)) => true,
            Ok(
                ReceivedByResponder::BackwardReply {
                    fixed: FixedHeader { xid, .. },
                    ..
                }
                | ReceivedByResponder::Error(ErrorMessage { xid, .. }),
            ) => context.backward_call(xid.0),
        };
        seen.outcome = if good { "accept" } else { "discard" };
        seen
    }

    /// Notes where the message was found to be bad, and what is sent because of it.
    fn refuse(&mut self, at: usize, answer: Option<ErrorMessage>) {
        self.refused_at = Some(at);
        self.answer = answer;
        self.outcome = match answer.map(|answer| answer.body) {
            None => "discard",
            Some(ErrorBody::Version(_)) => "ERR_VERS",
            Some(ErrorBody::Chunk) => "ERR_BADHEADER",
            Some(ErrorBody::InvalidOption) => "ERR_INVAL_OPTION",
        };
    }

    /// Whether `expected`, one value of a `chk` tag, is true; `None` if the message has no such
    /// value, or there is none of that name.
    pub(super) fn has(&self, expected: &str) -> Option<bool> {
        if let Some((_, at)) = expected.split_once('@') {
            // Of a refusal only the offset counts.
            return Some(self.refused_at? == at.parse::<usize>().ok()?);
        }
        let same = |value: &str, found: usize| value.parse() == Ok(found);
        match expected.split_once('=') {
            None => self.has_list(expected),
            Some(("len", value)) => Some(same(value, self.bytes.len())),
            Some(("call", "ends")) => self.call_ends,
            Some(("call", "waits")) => self.call_ends.map(|ends| !ends),
            Some(("off", value)) => Some(same(value, self.private?.0)),
            Some((key @ ("R" | "send" | "recv"), value)) => {
                let (_, message) = self.private?;
                let found = match key {
                    "R" => u32::from(message.remote_invalidation),
                    "send" => message.send.bytes(),
                    _ => message.receive.bytes(),
                };
                Some(value.parse() == Ok(found))
            }
            Some((key, value)) => self.has_value(key, value),
        }
    }

    /// Whether the message has `value` under `key`.
    fn has_value(&self, key: &str, value: &str) -> Option<bool> {
        let same = |found: usize| value.parse() == Ok(found);
        let same_word = |found: u32| value.parse() == Ok(found);
        match (key, self.option) {
            ("pay", Some(message)) => return Some(same(message.payload.len())),
            ("opttype", Some(message)) => return Some(same_word(message.option.opttype)),
            ("optlen", Some(message)) => return Some(same(message.option.optinfo.len())),
            _ => {}
        }
        let message = self.message?;
        Some(match (key, message.body) {
            ("hdr", Body::Msg { .. } | Body::Nomsg { .. }) => same(message.header_len),
            ("pay", Body::Msg { payload, .. }) => same(payload.len()),
            ("pay", Body::Nomsg { .. }) => same(0),
            ("err", Body::Error(ErrorBody::Version(_))) => same(1),
            ("err", Body::Error(ErrorBody::Chunk)) => same(2),
            ("err", Body::Error(ErrorBody::InvalidOption)) => same(3),
            ("low", Body::Error(ErrorBody::Version(range))) => same_word(range.low),
            ("high", Body::Error(ErrorBody::Version(range))) => same_word(range.high),
            ("extra", Body::Error(_)) => same(self.bytes.len().checked_sub(message.header_len)?),
            _ => return None,
        })
    }

    /// Whether the message has the chunk list `expected`, one of `R[44:8,…]`, `W[8,…;…]`,
    /// `P(8,…)` and `P-`.
    fn has_list(&self, expected: &str) -> Option<bool> {
        let (Body::Msg { lists, .. } | Body::Nomsg { lists }) = self.message?.body else {
            return None;
        };
        let Lists {
            reads,
            writes,
            reply,
        } = lists;
        if expected == "P-" {
            return Some(reply.is_none());
        }
        if let Some(list) = expected.strip_prefix("P(") {
            return Some(has_segments(&reply?, list.strip_suffix(')')?));
        }
        if let Some(list) = expected.strip_prefix("R[") {
            let items = list.strip_suffix(']')?.split(',');
            let expected = items.filter(|item| !item.is_empty()).map(|item| {
                let (position, length) = item.split_once(':')?;
                Some((position.parse().ok()?, length.parse().ok()?))
            });
            let found = reads.segments();
            let found = found.map(|entry| Some((entry.position, entry.segment.length)));
            return Some(expected.eq(found));
        }
        let list = expected.strip_prefix("W[")?.strip_suffix(']')?;
        if list.is_empty() {
            // One chunk without segments looks the same.
            let mut chunks = writes.chunks();
            return Some(chunks.all(|chunk| has_segments(&chunk, "")));
        }
        let mut found = writes.chunks();
        let mut expected = list.split(';');
        let same = expected.all(|list| found.next().is_some_and(|c| has_segments(&c, list)));
        Some(same && found.next().is_none())
    }

    /// Whether the answer has the hexadecimal `words`, in which `?` stands for any digit.
    pub(super) fn answered(&self, words: &str) -> bool {
        let mut buffer = [0; 28];
        let length = self
            .answer
            .and_then(|answer| answer.encode(&mut buffer, Credits::new(32)).ok());
        let Some(sent) = length.and_then(|length| buffer.get(..length)) else {
            return false;
        };
        let found = sent.iter().flat_map(|byte| [byte >> 4, byte & 15]);
        let expected = words.chars().filter(|digit| !digit.is_whitespace());
        let mut found = found.map(u32::from);
        let mut same = true;
        for digit in expected {
            let Some(found) = found.next() else {
                return false;
            };
            same = same && (digit == '?' || digit.to_digit(16) == Some(found));
        }
        same && found.next().is_none()
    }
}

/// Whether `chunk` has segments with the lengths in `list`.
fn has_segments(chunk: &Chunk<'_>, list: &str) -> bool {
    let found = chunk.segments().map(|segment| Some(segment.length));
    numbers(list).eq(found)
}
