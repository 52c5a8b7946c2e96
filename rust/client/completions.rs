// SPDX-License-Identifier: GPL-2.0

//! The completion handlers of a connection.

use super::{
    answered::{complete, AnsweredCall},
    chunks::{Chunks, Entry},
    connection::Connection,
    reply,
};
use crate::{
    error::Cause,
    rdma::{
        Completion, Completions, Idle, MrList, QueuePair, ReceivedMessage, RemoteInvalidation,
        WcStatus,
    },
};

impl Completions for Connection {
    type Slot = Entry;

    fn received(
        completion: &mut Completion<'_, Self>,
        message: ReceivedMessage<Self>,
        invalidated: Option<RemoteInvalidation<'_>>,
    ) {
        // Any message shows that the next attempt to connect need not be delayed.
        completion.qp().context().transport.xprt.peer_is_alive();
        reply::received(completion, message, invalidated);
    }

    fn send_space(&self) {
        self.transport.xprt.write_space();
    }

    fn invalidated(completion: &mut Completion<'_, Self>, index: usize, regions: MrList<Idle>) {
        let qp = completion.qp();
        let connection = qp.context();
        connection.regions.put_all(regions, None);
        if let Some(AnsweredCall { rqst, answer }) = Chunks::of(qp).invalidated(index) {
            rqst.resume(|rqst| complete(completion, rqst, answer));
        }
        connection.transport.xprt.write_space();
    }

    fn not_invalidated(&self, qp: &QueuePair<Self>, index: usize) {
        Chunks::of(qp).keep_until_end(index);
    }

    fn not_a_send(&self) {
        self.end(Cause::NotASend);
    }

    fn refused(&self) {
        self.end(Cause::PostFailed);
    }

    fn failed(&self, status: WcStatus) {
        if !status.is_flush() {
            self.transport.stats.failed_requests.increment();
        }
        self.end(Cause::WorkRequest);
    }
}
