// SPDX-License-Identifier: GPL-2.0

//! What a responder receives (RFC 8166 section 3.5).

use super::budget::CallBudget;
use super::call::ReceivedCall;
use super::layout::StreamLayout;
use super::refusal::CallError;
use crate::proto::message::{check_payload, Body, Message, MessageType, Refused};
use crate::proto::wire::chunk::{Lists, ReadList};
use crate::proto::wire::error::ErrorMessage;
use crate::proto::wire::header::{
    Credits, FixedHeader, Procedure, Versions, Xid, FIXED_LEN, VERSION_ONE,
};
use crate::proto::wire::xdr::Reader;

/// A message as a responder received it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ReceivedByResponder<'a> {
    /// A forward Call.
    Call(ReceivedCall<'a>),
    /// The Reply to a backward Call: to be used only if one with this XID is outstanding.
    BackwardReply {
        /// The backward transaction.
        xid: Xid,
        /// The version word.
        version: u32,
        /// Backward credits granted.
        credits: Credits,
        /// The RPC message.
        payload: &'a [u8],
    },
    /// The end of a backward Call: to be used only if one with this XID is outstanding.
    Error(ErrorMessage),
}

/// Decodes `bytes`, one message that a responder received, and compares it with `budget`.
///
/// # Errors
///
/// A [`Refused`] whose [`Refused::at_responder`] says what to send. It has the XID of any message
/// with a whole fixed header.
#[inline]
pub(crate) fn decode_call<'a>(
    bytes: &'a [u8],
    versions: Versions,
    budget: &CallBudget,
) -> Result<ReceivedByResponder<'a>, Refused<CallError>> {
    // Nearly all are of Version One, and there is nothing to look up for an endpoint that has it.
    match ReceivedCall::take(bytes, Versions::ONE, budget) {
        Some(call) if versions.contains(VERSION_ONE) => Ok(ReceivedByResponder::Call(call)),
        _ => decode_other(bytes, versions, budget),
    }
}

/// [`decode_call`] of what need not be a Call by RDMA_MSG of Version One.
#[inline(never)]
fn decode_other<'a>(
    bytes: &'a [u8],
    versions: Versions,
    budget: &CallBudget,
) -> Result<ReceivedByResponder<'a>, Refused<CallError>> {
    // With Version One alone it was tried.
    let has_others = versions.high != VERSION_ONE;
    match has_others.then(|| ReceivedCall::take(bytes, versions, budget)) {
        Some(Some(call)) => Ok(ReceivedByResponder::Call(call)),
        _ => decode_any(bytes, versions, budget),
    }
}

/// [`decode_call`] of a message that need not be a Call, nor well formed.
fn decode_any<'a>(
    bytes: &'a [u8],
    versions: Versions,
    budget: &CallBudget,
) -> Result<ReceivedByResponder<'a>, Refused<CallError>> {
    let message =
        Message::decode(bytes, versions).map_err(|refused| refused.map(CallError::Header))?;
    let refuse = |error| message.refuse(error, FIXED_LEN, versions);
    let fixed = message.fixed;
    let (lists, payload) = match message.body {
        Body::Error(body) => {
            return Ok(ReceivedByResponder::Error(ErrorMessage {
                xid: fixed.xid,
                version: fixed.version,
                body,
            }));
        }
        Body::Msg {
            lists,
            payload,
            message_type: MessageType::Reply,
        } => {
            if !lists.is_empty() {
                return Err(refuse(CallError::ChunksInBackwardReply));
            }
            return Ok(ReceivedByResponder::BackwardReply {
                xid: fixed.xid,
                version: fixed.version,
                credits: fixed.credits,
                payload,
            });
        }
        Body::Msg { lists, payload, .. } => (lists, Some(payload)),
        Body::Nomsg { lists } => (lists, None),
        Body::Optional(option) => match option {},
    };
    let layout = judge(&lists, payload, budget).map_err(refuse)?;
    Ok(ReceivedByResponder::Call(ReceivedCall {
        xid: fixed.xid,
        version: fixed.version,
        credits: fixed.credits,
        header_len: message.header_len,
        lists,
        payload,
        layout,
    }))
}

/// What a responder expects of a Call beyond a good header.
fn judge(
    lists: &Lists<'_>,
    payload: Option<&[u8]>,
    budget: &CallBudget,
) -> Result<StreamLayout, CallError> {
    if payload.is_none() && lists.reads.length_at(0) == 0 {
        return Err(CallError::NoPositionZero);
    }
    budget.check(lists).map_err(CallError::Budget)?;
    StreamLayout::new(payload, &lists.reads, budget.read_chunks)
}

impl<'a> ReceivedCall<'a> {
    /// Decodes a Call in an RDMA_MSG of Version One without chunks, as most are. `None` for anything
    /// else.
    #[inline(always)]
    pub(crate) fn take_plain(bytes: &'a [u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        let fixed = FixedHeader::take(&mut reader).ok()?;
        if fixed.procedure != Procedure::Msg || fixed.version != VERSION_ONE {
            return None;
        }
        let lists = Lists::take_none(&mut reader)?;
        if check_payload(reader, &fixed) != Ok(MessageType::Call) {
            return None;
        }
        let payload = reader.rest();
        Some(Self {
            xid: fixed.xid,
            version: fixed.version,
            credits: fixed.credits,
            header_len: reader.position(),
            lists,
            payload: Some(payload),
            layout: StreamLayout::inline(payload).ok()?,
        })
    }

    /// Decodes a Call in an RDMA_MSG with no Read chunk or one, without the checks that other
    /// messages need, which takes a fraction of the time. `None` for anything else.
    // For each of its two callers, of which one is rare.
    #[inline(always)]
    fn take(bytes: &'a [u8], versions: Versions, budget: &CallBudget) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        let fixed = FixedHeader::take(&mut reader).ok()?;
        if fixed.procedure != Procedure::Msg || !versions.contains(fixed.version) {
            return None;
        }
        let reads = ReadList::empty(reader);
        let Some((writes, reply)) = Lists::take_without_reads(&mut reader) else {
            return Self::take_reduced(bytes, &fixed, budget);
        };
        let lists = Lists {
            reads,
            writes,
            reply,
        };
        if check_payload(reader, &fixed) != Ok(MessageType::Call) {
            return None;
        }
        if !lists.is_empty() {
            budget.check(&lists).ok()?;
        }
        let payload = reader.rest();
        Some(Self {
            xid: fixed.xid,
            version: fixed.version,
            credits: fixed.credits,
            header_len: reader.position(),
            lists,
            payload: Some(payload),
            layout: StreamLayout::inline(payload).ok()?,
        })
    }

    /// [`Self::take`] with one Read chunk, behind these fixed words.
    #[inline(never)]
    fn take_reduced(bytes: &'a [u8], fixed: &FixedHeader, budget: &CallBudget) -> Option<Self> {
        let mut reader = Reader::at(bytes, FIXED_LEN)?;
        let lists = Lists::take(&mut reader).ok()?;
        if !lists.reads.is_one_chunk() || lists.reads.has_position_zero() {
            return None;
        }
        if check_payload(reader, fixed) != Ok(MessageType::Call) {
            return None;
        }
        budget.check(&lists).ok()?;
        let payload = reader.rest();
        if budget.read_chunks == 0 {
            return None;
        }
        let layout = StreamLayout::with_one(payload, &lists.reads)?;
        Some(Self {
            xid: fixed.xid,
            version: fixed.version,
            credits: fixed.credits,
            header_len: reader.position(),
            lists,
            payload: Some(payload),
            layout,
        })
    }
}
