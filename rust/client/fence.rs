// SPDX-License-Identifier: GPL-2.0

//! The fence where no Reply provides it: for Calls whose task is gone, and at the end of a
//! connection.

use super::{
    chunks::Chunks,
    connection::{Connection, SentCall},
};
use crate::{
    error::Cause,
    proto::wire::header::Xid,
    rdma::{Invalidation, QueuePair, Sender},
    sunrpc::client::Rqst,
    trace,
};

/// Waits until the peer has lost access to the memory of the Call `rqst`, whose task is gone.
/// May sleep.
pub(super) fn fence(qp: &QueuePair<Connection>, cookie: u64, rqst: &Rqst) {
    let (connection, chunks) = (qp.context(), Chunks::of(qp));
    let xid = rqst.xid();
    let Some(SentCall::WithChunks(index)) = connection.sent(cookie) else {
        return;
    };
    if chunks.abandon(index, xid) {
        trace::xprtrdma_mrs_zap(&connection.transport.xprt, rqst);
        connection.version.abandoned(Xid(xid));
        match connection.invalidate(qp, index) {
            Invalidation::Empty => chunks.release(index, xid),
            Invalidation::Posted => {}
            Invalidation::Failed => {
                chunks.keep_until_end(index);
                connection.end(Cause::PostFailed);
            }
        }
    }
    chunks.wait(index, xid);
}

/// Ends a connection, and waits until the peer has lost all access to this host's memory. May
/// sleep.
pub(super) fn shut_down(sender: Sender<Connection>) {
    let qp = sender.qp().clone();
    let connection = qp.context();
    connection.expect_end();
    drop(sender);
    connection.regions.close();
    Chunks::of(&qp).revoke();
}
