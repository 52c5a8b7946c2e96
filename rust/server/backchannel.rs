// SPDX-License-Identifier: GPL-2.0

//! The backward direction (RFC 8167): nfsd's Calls to its clients.

use super::{
    connection::Connection, incoming::IncomingCalls, sizes::BACKWARD_CREDITS, stats::SentMessage,
};
use crate::{
    error::Cause,
    proto::wire::{
        encode::encode_inline,
        header::{Credits, Xid},
    },
    rdma::{AcceptedQp, NoRoom, Patience},
    sunrpc::{
        server::{BcClass, BcConnection, BcRqst},
        SendError, IDENT_BACKWARD,
    },
};
use kernel::{pr_warn_once, prelude::*};

static CLASS: BcClass<Connection> = BcClass::new(c"rdma backchannel", IDENT_BACKWARD);

impl BcConnection for Connection {
    const CREDITS: u32 = BACKWARD_CREDITS;

    fn bc_class() -> &'static BcClass<Self> {
        &CLASS
    }

    fn bc_sendto(&self, call: &BcRqst<'_>) -> Result<(), SendError> {
        let result = send(&self.parts.qp, call);
        if result == Err(SendError::TooLarge) {
            pr_warn_once!(
                "a callback of {} bytes is too long for its client\n",
                call.len()
            );
        }
        result
    }

    fn overdue(&self) {
        self.parts.events().close(Cause::TimedOut);
    }
}

/// Sends a Call, once there is a Receive for its Reply.
fn send(qp: &AcceptedQp<IncomingCalls>, call: &BcRqst<'_>) -> Result<(), SendError> {
    let incoming = qp.context();
    let (version, thresholds) = incoming.agreed();
    // The client has had no Reply that tells the version. sunrpc tries again soon.
    let version = version.ok_or(SendError::NoMemory)?;
    let mut outgoing = qp.outgoing().map_err(|_| SendError::NoMemory)?;
    let room = usize::try_from(thresholds.send).map_err(|_| SendError::TooLarge)?;
    let room = room.min(outgoing.bytes().len());
    let buffer = outgoing
        .bytes()
        .get_mut(..room)
        .ok_or(SendError::TooLarge)?;
    let credits = Credits::new(BACKWARD_CREDITS);
    let header = encode_inline(buffer, version, Xid(call.xid()), credits)
        .map_err(|_| SendError::TooLarge)?;
    let end = header.saturating_add(call.len());
    let to = buffer.get_mut(header..end).ok_or(SendError::TooLarge)?;
    call.copy_out(to).map_err(|_| SendError::Failed)?;
    incoming
        .post_all_receives(qp)
        .map_err(|error| match error {
            ENOMEM => SendError::NoMemory,
            _ => SendError::NotConnected,
        })?;
    // Whoever ends an RPC client of sunrpc, such as a thread of nfsd, waits for this.
    let sent = outgoing.send(end, None, Patience::Overtake, SentMessage::BackwardCall);
    sent.map_err(|reason| match reason {
        NoRoom::TooMany => SendError::Failed,
        NoRoom::Full => {
            incoming.events.check_sends();
            SendError::NoMemory
        }
        NoRoom::TimedOut => SendError::NotConnected,
        NoRoom::Closed => {
            if !incoming.xprt().is_closing() {
                incoming.events.note(Cause::PostFailed);
            }
            SendError::NotConnected
        }
    })
}
