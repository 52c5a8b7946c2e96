// SPDX-License-Identifier: GPL-2.0

//! The backward direction (RFC 8167): nfsd's Calls to its clients.

use super::{
    sendto::SendInfo,
    sizes::BACKWARD_CREDITS,
    transport::{Connection, Owner},
};
use crate::{
    error::Cause,
    proto::wire::{
        encode::encode_inline,
        header::{Credits, Xid},
    },
    sunrpc::{
        server::{BcClass, BcConnection},
        SendError, XdrBuf,
    },
};
use kernel::{alloc::flags::__GFP_NOWARN, pr_warn_once, prelude::*};

static CLASS: BcClass<Connection> = BcClass::new(c"rdma backchannel");

impl BcConnection for Connection {
    const CREDITS: u32 = BACKWARD_CREDITS;

    fn bc_class() -> &'static BcClass<Self> {
        &CLASS
    }

    fn bc_sendto(&self, xid: u32, call: &XdrBuf<'_>) -> Result<(), SendError> {
        send(&self.qp, Xid(xid), call).map_err(|error| match error {
            ENOMEM => SendError::NoMemory,
            EPIPE => SendError::NotConnected,
            _ => {
                let (peer, bytes) = (self.qp.user().peer, call.len());
                pr_warn_once!(
                    "client {peer}: a callback of {bytes} bytes is too long for it: raise \
                     max_req_size here and rdma_max_inline_read there\n"
                );
                SendError::TooLarge
            }
        })
    }

    fn overdue(&self) {
        self.qp.user().force_close(Cause::TimedOut);
    }
}

/// Sends a Call, once there is a Receive for its Reply. Does not wait: the thread that ends an RPC
/// client of sunrpc, perhaps one of nfsd, waits for this.
///
/// # Errors
///
/// `ENOMEM`, `EPIPE`; others if the message is too long.
fn send(qp: &Owner, xid: Xid, call: &XdrBuf<'_>) -> Result {
    let (conn, flags) = (qp.user(), GFP_NOWAIT | __GFP_NOWARN);
    let (version, thresholds) = conn.agreed();
    // The client has had no Reply that says the version. sunrpc tries again soon.
    let version = version.ok_or(ENOMEM)?;
    let mut ctxt = qp.get_send_ctxt(flags)?;
    let most = usize::try_from(thresholds.send)?.min(ctxt.bytes().len());
    let buffer = ctxt.bytes().get_mut(..most).ok_or(EMSGSIZE)?;
    let credits = Credits::new(BACKWARD_CREDITS);
    let header = encode_inline(buffer, version, xid, credits).map_err(|_| EMSGSIZE)?;
    let end = header.saturating_add(call.len());
    call.copy_out(0, buffer.get_mut(header..end).ok_or(EMSGSIZE)?)?;
    conn.post_all_recvs(qp, flags)?;
    *ctxt.data() = SendInfo::BackwardCall;
    Ok(ctxt.post_send(end, None)?)
}
