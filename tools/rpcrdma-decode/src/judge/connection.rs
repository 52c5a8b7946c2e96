// SPDX-License-Identifier: GPL-2.0

//! One connection, and what is wrong with its messages.

use std::net::IpAddr;

use super::calls::Calls;
use super::fault::Fault;
use crate::proto::message::{Body, Message, Refused};
use crate::proto::requester::decode::{decode_received, Received, ReplyError};
use crate::proto::responder::budget::CallBudget;
use crate::proto::responder::decode::{decode_call, ReceivedByResponder};
use crate::proto::responder::refusal::{CallError, ResponderRefusal};
use crate::proto::wire::header::{FixedHeader, Procedure, Versions};
use crate::proto::wire::private_data::{PrivateData, Thresholds};
use crate::proto::wire::xdr::Reader;
use crate::roce::End;

/// What a server of rpcrdma.ko takes, but for the bytes of data, which depend on its service.
const BUDGET: CallBudget = CallBudget::new(u32::MAX);

/// Who has sent a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sender {
    /// The end that has asked for the connection.
    Client,
    /// The other one.
    Server,
}

/// A connection.
pub(super) struct Connection {
    pub(super) client: IpAddr,
    pub(super) server: IpAddr,
    /// What the connection manager has told, if its beginning was captured.
    pub(super) opening: Option<Opening>,
    pub(super) forward: Calls,
    backward: Calls,
    /// Whether the stream of each end is known.
    pub(super) has_streams: [bool; 2],
}

/// How a connection began.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Opening {
    pub(super) ends: [End; 2],
    /// What each end has said about itself.
    pub(super) said: [PrivateData; 2],
}

impl Connection {
    /// One of `client` with `server`, which both have streams if its beginning was captured, and of
    /// which only the client's is known otherwise.
    pub(super) fn new(client: IpAddr, server: IpAddr, opening: Option<Opening>) -> Self {
        let calls = || opening.map_or_else(Calls::default, |_| Calls::new());
        Self {
            client,
            server,
            opening,
            forward: calls(),
            backward: calls(),
            has_streams: [true, opening.is_some()],
        }
    }

    /// A message was not captured whole: from here on it is as if the capture began later.
    pub(super) fn forget(&mut self) {
        let has_streams = self.has_streams;
        *self = Self {
            has_streams,
            ..Self::new(self.client, self.server, None)
        };
    }

    /// What is wrong with a message.
    pub(super) fn judge(
        &mut self,
        sender: Sender,
        bytes: &[u8],
        invalidates: Option<u32>,
    ) -> Vec<Fault> {
        let mut faults = Vec::new();
        if let Some(fixed) = fixed(bytes) {
            self.check_length(sender, fixed.version, bytes, &mut faults);
            let word = bytes.get(8..).and_then(<[u8]>::first_chunk);
            if fixed.procedure != Procedure::Error && word == Some(&[0; 4]) {
                faults.push(Fault::NoCredits);
            }
        }
        let answered = match sender {
            Sender::Client => self.from_client(bytes, &mut faults),
            Sender::Server => self.from_server(bytes, &mut faults),
        };
        if let Some(handle) = invalidates {
            let offers = answered.is_some_and(|call| has_handle(&call, handle));
            if !offers && (self.opening.is_some() || sender == Sender::Client) {
                faults.push(Fault::Invalidates(handle));
            }
        }
        faults
    }

    /// Compares the length of a message with what its receiver has said.
    fn check_length(&self, sender: Sender, version: u32, bytes: &[u8], faults: &mut Vec<Fault>) {
        let Some(Opening { said, .. }) = self.opening else {
            return;
        };
        let receiver = match sender {
            Sender::Client => said[1],
            Sender::Server => said[0],
        };
        let thresholds = Thresholds {
            send: receiver.receive.bytes(),
            ..Thresholds::DEFAULT
        };
        let threshold = thresholds.at_version(version).send;
        if u32::try_from(bytes.len()).is_ok_and(|length| length <= threshold) {
            return;
        }
        faults.push(Fault::TooLong { threshold });
    }

    /// A message of the client's. The Call that it answers, if it is a Reply.
    fn from_client(&mut self, bytes: &[u8], faults: &mut Vec<Fault>) -> Option<Vec<u8>> {
        let answered = match decode_call(bytes, Versions::ONE_AND_TWO, &BUDGET) {
            Ok(ReceivedByResponder::Call(call)) => {
                if !call.has_counts() {
                    faults.push(Fault::WrongCount);
                }
                self.forward.call(&fixed(bytes)?, bytes, faults);
                return None;
            }
            Ok(ReceivedByResponder::BackwardReply { fixed, .. }) => {
                self.backward.answer(fixed.xid, Some(fixed.credits))
            }
            Ok(ReceivedByResponder::Error(error)) => self.backward.answer(error.xid, None),
            Err(refused) => {
                self.refused(&refused, bytes, faults);
                return None;
            }
        };
        self.expect(answered.is_some(), faults);
        // What it answers offers nothing.
        None
    }

    /// A message that the server refuses, and counts as a Call if it has an answer for it.
    fn refused(&mut self, refused: &Refused<CallError>, bytes: &[u8], faults: &mut Vec<Fault>) {
        let error = refused.error;
        if !matches!(error, CallError::Header(_)) {
            faults.push(Fault::Refused(error));
        }
        if let Some(fixed) = refused.fixed {
            if refused.at_responder() != ResponderRefusal::Discard {
                self.forward.call(&fixed, bytes, faults);
            }
        }
    }

    /// A message of the server's. The Call that it answers, if it is a Reply.
    fn from_server(&mut self, bytes: &[u8], faults: &mut Vec<Fault>) -> Option<Vec<u8>> {
        match decode_received(bytes, Versions::ONE_AND_TWO) {
            Ok(Received::Reply(reply)) => {
                let fixed = reply.fixed;
                let call = self.forward.answer(fixed.xid, Some(fixed.credits));
                self.expect(call.is_some(), faults);
                call
            }
            Ok(Received::Error(error)) => {
                let call = self.forward.answer(error.xid, None);
                self.expect(call.is_some(), faults);
                None
            }
            Ok(Received::BackwardCall(call)) => {
                self.backward.call(&call.fixed, bytes, faults);
                None
            }
            Err(refused) => {
                if !matches!(refused.error, ReplyError::Header(_)) {
                    faults.push(Fault::RefusedReply(refused.error));
                }
                None
            }
        }
    }

    /// An answer has to be one to a Call, of which all are known if the beginning is.
    fn expect(&self, has_call: bool, faults: &mut Vec<Fault>) {
        if !has_call && self.opening.is_some() {
            faults.push(Fault::Unexpected);
        }
    }
}

/// The fixed words of a message.
fn fixed(bytes: &[u8]) -> Option<FixedHeader> {
    FixedHeader::decode(&mut Reader::new(bytes)).ok()
}

/// Whether a Call offers memory under this handle.
fn has_handle(call: &[u8], handle: u32) -> bool {
    let message = Message::decode(call, Versions::ONE_AND_TWO);
    let Ok(Body::Msg { lists, .. } | Body::Nomsg { lists }) = message.map(|message| message.body)
    else {
        return false;
    };
    let reads = lists.reads.segments().map(|entry| entry.segment);
    let chunks = lists.writes.chunks().chain(lists.reply);
    let mut all = reads.chain(chunks.flat_map(|chunk| chunk.segments()));
    all.any(|segment| segment.handle == handle)
}
