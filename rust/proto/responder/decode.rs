// SPDX-License-Identifier: GPL-2.0

//! What a responder receives (RFC 8166 section 3.5).

use super::budget::{CallBudget, Excess};
use super::call::ReceivedCall;
use super::layout::{padded, StreamLayout};
use super::refusal::CallError;
use crate::proto::message::{check_payload, Body, Message, MessageType, Refused};
use crate::proto::wire::chunk::{Lists, ReadList};
use crate::proto::wire::error::ErrorMessage;
use crate::proto::wire::header::{Credits, FixedHeader, Procedure, Versions, Xid, FIXED_LEN};
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
pub(crate) fn decode_call<'a>(
    bytes: &'a [u8],
    versions: Versions,
    budget: &CallBudget,
) -> Result<ReceivedByResponder<'a>, Refused<CallError>> {
    let call = ReceivedCall::take_inline(bytes, versions, budget)
        .or_else(|| ReceivedCall::take_whole(bytes, versions, budget))
        .or_else(|| ReceivedCall::take_one_read(bytes, versions, budget))
        .or_else(|| ReceivedCall::take_reduced(bytes, versions, budget));
    match call {
        Some(call) => Ok(ReceivedByResponder::Call(call)),
        None => decode_any(bytes, versions, budget),
    }
}

/// [`decode_call`] for a message that may not be a Call, or not be well formed.
pub(crate) fn decode_any<'a>(
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
    let layout = StreamLayout::new(payload, &lists.reads, budget.read_chunks)?;
    match has_room(&layout, budget) {
        true => Ok(layout),
        false => Err(CallError::Budget(Excess::ReadBytes)),
    }
}

/// Whether there is room for what goes to pages: with several Read chunks, what is inline is copied
/// there as well, and with one, what follows it.
#[inline(always)]
fn has_room(layout: &StreamLayout, budget: &CallBudget) -> bool {
    let pages = u64::from(layout.pages);
    pages == 0 || pages.saturating_add(layout.tail.into()) <= padded(budget.read_bytes.into())
}

impl<'a> ReceivedCall<'a> {
    /// Whether a Read list may begin behind the fixed words: neither [`Self::take_inline`] nor
    /// [`Self::take_whole`] need be tried then.
    #[inline(always)]
    pub(crate) fn may_have_reads(bytes: &[u8]) -> bool {
        let flag = bytes.get(FIXED_LEN..).and_then(<[u8]>::first_chunk);
        flag.is_some_and(|&flag| u32::from_be_bytes(flag) != 0)
    }

    /// Decodes a Call in an RDMA_MSG without chunks, as most are. `None` for anything else, and for
    /// what [`decode_call`] refuses.
    #[inline(always)]
    pub(crate) fn take_inline(
        bytes: &'a [u8],
        versions: Versions,
        budget: &CallBudget,
    ) -> Option<Self> {
        let (fixed, mut reader) = take_fixed(bytes, versions)?;
        let lists = Lists::take_none(&mut reader)?;
        let layout = StreamLayout::inline(reader.rest()).ok()?;
        Self::with(fixed, lists, reader, layout, budget)
    }

    /// Decodes a Call in an RDMA_MSG without Read chunks. `None` for anything else, and for what
    /// [`decode_call`] refuses.
    #[inline(always)]
    pub(crate) fn take_whole(
        bytes: &'a [u8],
        versions: Versions,
        budget: &CallBudget,
    ) -> Option<Self> {
        let (fixed, mut reader) = take_fixed(bytes, versions)?;
        let reads = ReadList::empty(reader);
        let (writes, reply) = Lists::take_without_reads(&mut reader)?;
        let lists = Lists {
            reads,
            writes,
            reply,
        };
        let layout = StreamLayout::inline(reader.rest()).ok()?;
        Self::with(fixed, lists, reader, layout, budget)
    }

    /// Decodes a Call in an RDMA_MSG with one Read segment and no other chunk, as most Calls with
    /// Read segments have. `None` for anything else, and for what [`decode_call`] refuses.
    #[inline(always)]
    pub(crate) fn take_one_read(
        bytes: &'a [u8],
        versions: Versions,
        budget: &CallBudget,
    ) -> Option<Self> {
        let (fixed, mut reader) = take_fixed(bytes, versions)?;
        let lists = Lists::take_one_read(&mut reader)?;
        Self::with_one(fixed, lists, reader, budget)
    }

    /// Decodes a Call in an RDMA_MSG with one Read chunk, without the checks that other messages
    /// need. `None` for anything else, and for what [`decode_call`] refuses.
    #[inline(always)]
    pub(crate) fn take_reduced(
        bytes: &'a [u8],
        versions: Versions,
        budget: &CallBudget,
    ) -> Option<Self> {
        let (fixed, mut reader) = take_fixed(bytes, versions)?;
        let lists = Lists::take_some(&mut reader).ok()?;
        Self::with_one(fixed, lists, reader, budget)
    }

    /// [`Self::with`] for exactly one Read chunk.
    #[inline(always)]
    fn with_one(
        fixed: FixedHeader,
        lists: Lists<'a>,
        reader: Reader<'a>,
        budget: &CallBudget,
    ) -> Option<Self> {
        let reads = &lists.reads;
        if !reads.is_one_chunk() || reads.has_position_zero() || budget.read_chunks == 0 {
            return None;
        }
        let layout = StreamLayout::with_one(reader.rest(), reads)?;
        if !has_room(&layout, budget) {
            return None;
        }
        Self::with(fixed, lists, reader, layout, budget)
    }

    /// The Call of these fixed words and lists, if the rest of the message is its RPC message, and
    /// within the budget.
    #[inline(always)]
    fn with(
        fixed: FixedHeader,
        lists: Lists<'a>,
        reader: Reader<'a>,
        layout: StreamLayout,
        budget: &CallBudget,
    ) -> Option<Self> {
        if check_payload(reader, &fixed) != Ok(MessageType::Call) {
            return None;
        }
        budget.check(&lists).ok()?;
        Some(Self {
            xid: fixed.xid,
            version: fixed.version,
            credits: fixed.credits,
            header_len: reader.position(),
            lists,
            payload: Some(reader.rest()),
            layout,
        })
    }
}

/// Takes the fixed words of an RDMA_MSG of a version that is supported.
#[inline(always)]
fn take_fixed(bytes: &[u8], versions: Versions) -> Option<(FixedHeader, Reader<'_>)> {
    let mut reader = Reader::new(bytes);
    let fixed = FixedHeader::take(&mut reader).ok()?;
    let is_known = fixed.procedure == Procedure::Msg && versions.contains(fixed.version);
    is_known.then_some((fixed, reader))
}
