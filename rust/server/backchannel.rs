// SPDX-License-Identifier: GPL-2.0

//! The backward direction (RFC 8167): nfsd's Calls to its clients.

use super::{
    sendto::SendInfo,
    sizes::BACKWARD_CREDITS,
    transport::{Connection, Qp},
};
use crate::{
    error::Cause,
    proto::wire::{
        encode::encode_inline,
        header::{Credits, Xid},
    },
    rdma::SqError,
    sunrpc::{
        server::{BcClass, BcConnection, BcRqst},
        SendError, IDENT_BACKWARD,
    },
};
use kernel::{alloc::flags::__GFP_NOWARN, pr_warn_once, prelude::*};

static CLASS: BcClass<Connection> = BcClass::new(c"rdma backchannel", IDENT_BACKWARD);

impl BcConnection for Connection {
    const CREDITS: u32 = BACKWARD_CREDITS;

    fn bc_class() -> &'static BcClass<Self> {
        &CLASS
    }

    fn bc_sendto(&self, call: &BcRqst<'_>) -> Result<(), SendError> {
        let result = send(self.qp(), call);
        if result == Err(SendError::TooLarge) {
            pr_warn_once!(
                "a callback of {} bytes is too long for its client\n",
                call.len()
            );
        }
        result
    }

    fn overdue(&self) {
        self.conn().force_close(Cause::TimedOut);
    }
}

/// Sends a Call, once there is a Receive for its Reply. Does not wait: whoever ends an RPC client
/// of sunrpc, such as a thread of nfsd, waits for this.
fn send(qp: &Qp, call: &BcRqst<'_>) -> Result<(), SendError> {
    let (conn, flags) = (qp.user(), GFP_NOWAIT | __GFP_NOWARN);
    let (version, thresholds) = conn.agreed();
    // The client has had no Reply that tells the version. sunrpc tries again soon.
    let version = version.ok_or(SendError::NoMemory)?;
    let mut ctxt = qp.get_send_ctxt(flags).map_err(to_send_error)?;
    let most = usize::try_from(thresholds.send).map_err(|_| SendError::TooLarge)?;
    let most = most.min(ctxt.bytes().len());
    let buffer = ctxt.bytes().get_mut(..most).ok_or(SendError::TooLarge)?;
    let credits = Credits::new(BACKWARD_CREDITS);
    let header = encode_inline(buffer, version, Xid(call.xid()), credits)
        .map_err(|_| SendError::TooLarge)?;
    let end = header.saturating_add(call.len());
    let to = buffer.get_mut(header..end).ok_or(SendError::TooLarge)?;
    call.copy_out(to).map_err(|_| SendError::Failed)?;
    conn.post_all_recvs(qp, flags)
        .map_err(|error| match error {
            ENOMEM => SendError::NoMemory,
            _ => SendError::NotConnected,
        })?;
    *ctxt.data() = SendInfo::BackwardCall;
    ctxt.post_send(end, None).map_err(to_send_error)
}

/// Why a Call was not handed over.
fn to_send_error(error: SqError) -> SendError {
    match error {
        SqError::NoMem => SendError::NoMemory,
        SqError::TooMany => SendError::Failed,
        SqError::Full | SqError::Closed => SendError::NotConnected,
    }
}
