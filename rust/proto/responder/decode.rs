// SPDX-License-Identifier: GPL-2.0

//! What a responder receives (RFC 8166 section 3.5).

use super::budget::{CallBudget, Excess};
use super::call::{CallIndex, ReceivedCall};
use super::layout::{padded, StreamLayout};
use super::refusal::CallError;
use crate::proto::message::{Body, Message, MessageType, Refused};
use crate::proto::wire::error::ErrorMessage;
use crate::proto::wire::header::{FixedHeader, Versions};

/// A message as a responder received it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ReceivedByResponder<'a> {
    /// A forward Call.
    Call(ReceivedCall<'a>),
    /// The Reply to a backward Call: to be used only if one with this XID is outstanding.
    BackwardReply {
        /// Which backward Call it answers, and how many backward credits it grants.
        fixed: FixedHeader,
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
pub(crate) fn decode_call<'a>(
    bytes: &'a [u8],
    versions: Versions,
    budget: &CallBudget,
) -> Result<ReceivedByResponder<'a>, Refused<CallError>> {
    let message =
        Message::decode(bytes, versions).map_err(|refused| refused.map(CallError::Header))?;
    let refuse = |error| message.refuse(error, versions);
    let fixed = message.fixed;
    let (lists, payload) = match message.body {
        Body::Error(body) => {
            return Ok(ReceivedByResponder::Error(fixed.error(body)));
        }
        Body::Msg {
            lists,
            payload,
            message_type: MessageType::Reply,
        } => {
            if !lists.is_empty() {
                return Err(refuse(CallError::ChunksInBackwardReply));
            }
            return Ok(ReceivedByResponder::BackwardReply { fixed, payload });
        }
        Body::Msg { lists, payload, .. } => (lists, Some(payload)),
        Body::Nomsg { lists } => (lists, None),
    };
    if payload.is_none() && lists.reads.chunk(0).length() == 0 {
        return Err(refuse(CallError::NoPositionZero));
    }
    let excess = |excess| refuse(CallError::Budget(excess));
    budget.check(&lists).map_err(excess)?;
    let layout = StreamLayout::new(payload, &lists.reads, budget.read_chunks).map_err(refuse)?;
    // With several Read chunks what is inline is copied to pages as well, and with one what follows
    // it.
    let in_pages = u64::from(layout.pages).saturating_add(layout.tail.into());
    if layout.pages > 0 && in_pages > padded(budget.read_bytes.into()) {
        return Err(excess(Excess::ReadBytes));
    }
    let index = CallIndex {
        xid: fixed.xid,
        version: fixed.version,
        credits: fixed.credits,
        layout,
        header_len: message.header_len,
        message_len: bytes.len(),
        reads: (lists.reads.count(), lists.reads.length()),
        offers_memory: lists.offers_memory(),
        is_inline: payload.is_some(),
    };
    Ok(ReceivedByResponder::Call(ReceivedCall {
        index,
        lists,
        payload,
    }))
}
