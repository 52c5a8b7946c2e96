// SPDX-License-Identifier: GPL-2.0

//! From a message to a Call that nfsd executes.

use super::{
    rw, sendto,
    transport::{Owner, Qp, RecvBox, SvcxprtRdma},
    PAGE_SIZE,
};
use crate::{
    proto::{
        message::Refused,
        responder::{
            call::{CallIndex, ReceivedCall},
            decode::{decode_call, ReceivedByResponder},
            placement::Placement,
            refusal::{CallError, ResponderRefusal},
        },
        wire::{
            error::ErrorBody,
            header::{Xid, VERSION_ONE},
            malformed::HeaderError,
        },
    },
    rdma::CqContext,
    sunrpc::{
        server::{Receiving, SvcCall},
        PageVec,
    },
    trace,
};
use kernel::time::{Instant, Monotonic};

/// What a message is.
pub(super) enum Decoded {
    /// A Call.
    Call(CallIndex),
    /// A message that a thread answers in place of nfsd.
    Refuse(ResponderRefusal),
}

impl Default for Decoded {
    fn default() -> Self {
        Self::Refuse(ResponderRefusal::Discard)
    }
}

/// What is kept with a message from when it is decoded until it is answered.
#[derive(Default)]
pub(crate) struct CallInfo {
    pub(super) what: Decoded,
    /// Pages of RDMA Reads for the Call that are yet to be done.
    pub(super) pages_to_read: u32,
    /// What they have read, for [`CallIndex::layout`].
    pub(super) pages: Option<PageVec>,
    /// Which results are in which Write chunk.
    pub(super) placement: Placement,
    /// MRs that are reserved for the RDMA Reads, or for the Writes of the Reply.
    pub(super) mrs: u32,
    /// Whether a Reply or an error was handed over, or is about to be.
    pub(super) is_answered: bool,
    /// When it was queued, in jiffies.
    pub(super) arrival: usize,
    /// The time of the last completion that the Call waited for.
    pub(super) complete: Option<Instant<Monotonic>>,
}

impl CallInfo {
    /// The Call, if it is one.
    pub(super) fn index(&self) -> Option<&CallIndex> {
        match &self.what {
            Decoded::Call(index) => Some(index),
            _ => None,
        }
    }

    /// The XID of the Call.
    pub(super) fn xid(&self) -> Option<Xid> {
        self.index().map(|index| index.xid)
    }

    /// Pages that the RDMA Reads for the Call fill.
    pub(super) fn read_pages(&self) -> u32 {
        self.index()
            .map_or(0, |index| index.layout.pages.div_ceil(PAGE_SIZE))
    }

    /// Whether nfsd may execute the Call, which offers memory for the Reply.
    pub(super) fn offers_memory(&self) -> bool {
        self.pages_to_read == 0 && self.index().is_some_and(|index| index.offers_memory)
    }

    /// The most MRs of the RDMA core's pool that the next step takes: the RDMA Reads, or the Writes
    /// of the Reply.
    pub(super) fn needed_mrs(&self, qp: &Qp) -> u32 {
        match self.index() {
            Some(index) if self.pages_to_read > 0 => {
                qp.mrs_of_reads(index.read_ranges(), self.pages_to_read)
            }
            // What the Reply takes is known when nfsd has encoded it.
            Some(index) if index.offers_memory => qp.write_mrs,
            _ => 0,
        }
    }
}

/// A Receive has completed.
pub(super) fn received(cx: &mut CqContext<'_, SvcxprtRdma>, mut ctxt: RecvBox) {
    let (qp, conn) = (cx.qp(), cx.user());
    conn.stats.received();
    let number = ctxt.cid();
    let (bytes, info) = ctxt.with_data();
    info.complete = Some(Instant::now());
    let (requested, refusal, version) = match decode_call(bytes, conn.versions, &conn.budget) {
        Ok(ReceivedByResponder::Call(call)) => {
            trace_call(qp, number, bytes, &call);
            info.what = Decoded::Call(call.index);
            let refusal = refusal(qp, &call).inspect(|refusal| {
                if let ResponderRefusal::GarbageArgs(_) = refusal {
                    trace::svcrdma_decode_parse_err(qp.cq_number, number, bytes);
                }
            });
            (call.index.credits, refusal, call.index.version)
        }
        Ok(ReceivedByResponder::BackwardReply { fixed, payload }) => {
            // Its Call was in the version that is agreed on.
            if conn.agreed().0 == Some(fixed.version) {
                let (xid, credits) = (fixed.xid.0, fixed.credits.get());
                conn.svc.bc().handle_reply(xid, credits, payload);
            }
            return cx.repost(ctxt);
        }
        Ok(ReceivedByResponder::Error(error)) => {
            conn.svc.bc().handle_error(error.xid.0);
            return cx.repost(ctxt);
        }
        Err(refused) => {
            trace_refused(qp, number, bytes, &refused);
            let refusal = refused.at_responder();
            match refused.fixed {
                Some(fixed) if refusal != ResponderRefusal::Discard => {
                    (fixed.credits, Some(refusal), fixed.version)
                }
                _ => {
                    conn.stats.counters.refused_messages.increment();
                    return cx.repost(ctxt);
                }
            }
        }
    };
    // An RDMA_ERROR does not decide which version is spoken.
    let is_error = matches!(refusal, Some(ResponderRefusal::Answer(_)));
    if let Some(refusal) = refusal {
        conn.stats.counters.refused_messages.increment();
        info.what = Decoded::Refuse(refusal);
    }
    info.pages_to_read = info.read_pages();
    conn.queue(qp, ctxt, requested, |incoming| {
        if is_error {
            incoming.v2.error_sent();
        } else if version != VERSION_ONE {
            incoming.v2.called(&incoming.grants);
        }
    });
}

/// What to do with a Call in place of passing it to nfsd, if anything.
fn refusal(qp: &Qp, call: &ReceivedCall<'_>) -> Option<ResponderRefusal> {
    let conn = qp.user();
    if !call.has_counts() {
        return Some(ResponderRefusal::GarbageArgs(
            call.index.error(ErrorBody::Chunk),
        ));
    }
    let has_failed =
        conn.has_unanswerable && conn.listener.is_unanswerable(&conn.peer, call.index.xid);
    has_failed.then(|| ResponderRefusal::Answer(call.index.error(ErrorBody::Chunk)))
}

/// The RDMA Reads for a message are done, and have filled `pages`.
pub(super) fn reads_done(qp: &Qp, mut ctxt: RecvBox, pages: Option<PageVec>) {
    let number = ctxt.cid();
    let info = ctxt.with_data().1;
    let now = Instant::now();
    let before = info.complete.replace(now);
    if let (Some(index), Some(before)) = (info.index(), before) {
        let took = now - before;
        qp.user().stats.read(index, took);
        let (_, bytes) = index.reads;
        trace::svcrdma_wc_read(qp.cq_number, number, bytes, took);
    }
    info.pages = pages;
    info.pages_to_read = 0;
    qp.user().requeue(qp, ctxt);
}

/// `xpo_recvfrom`: returns the Call in a message that was taken, if it is complete.
pub(super) fn recvfrom(
    qp: &Owner,
    mut ctxt: RecvBox,
    rqst: &mut Receiving<'_>,
) -> Option<SvcCall<RecvBox>> {
    let info = ctxt.data();
    let refusal = match info.what {
        Decoded::Refuse(refusal) => refusal,
        Decoded::Call(_) if info.pages_to_read > 0 => {
            rw::post_reads(qp, ctxt, rqst);
            return None;
        }
        Decoded::Call(_) => match rw::finish_reads(&mut ctxt) {
            Ok(()) => return deliver(ctxt),
            Err(refusal) => {
                qp.user().stats.counters.refused_messages.increment();
                refusal
            }
        },
    };
    sendto::reject_call(qp, ctxt, refusal);
    None
}

/// Returns a complete Call in the form that sunrpc takes.
fn deliver(mut ctxt: RecvBox) -> Option<SvcCall<RecvBox>> {
    let info = ctxt.with_data().1;
    let index = info.index()?;
    let size = |length: u32| usize::try_from(length).ok();
    let (layout, start) = (index.layout, index.header_len);
    let split = start.checked_add(size(layout.head)?)?;
    let end = split.checked_add(size(layout.tail)?)?;
    let pages = match layout.pages {
        0 => None,
        length => Some((info.pages.take()?, size(length)?)),
    };
    Some(SvcCall {
        message: ctxt,
        head: start..split,
        pages,
        tail: split..end,
    })
}

/// `xpo_release_ctxt`: puts the Receive of a message, which was answered or will not be.
pub(super) fn release_ctxt(qp: &Qp, ctxt: RecvBox) {
    let info = ctxt.data();
    let (mrs, is_answered) = (info.mrs, info.is_answered);
    let (arrival, is_offering) = (info.arrival, info.offers_memory());
    qp.put_recv(ctxt);
    qp.unreserve(mrs);
    qp.user().end_call(arrival, is_offering);
    if !is_answered {
        qp.user().drop_call(qp);
    }
}

/// Emits the trace events of a Call that is good.
fn trace_call(qp: &Qp, number: u32, bytes: &[u8], call: &ReceivedCall<'_>) {
    let header = bytes.get(..call.index.header_len).unwrap_or(bytes);
    trace::svcrdma_decode_rqst(qp.cq_number, number, header);
    let (reads, writes) = (call.lists.reads.segments(), call.lists.segments());
    trace::svcrdma_segments(qp.cq_number, number, reads, writes);
}

/// Emits the trace event of a message that is refused.
fn trace_refused(qp: &Qp, number: u32, bytes: &[u8], refused: &Refused<CallError>) {
    match refused.error {
        CallError::Header(HeaderError::Short) => {
            trace::svcrdma_decode_short_err(qp.cq_number, number, bytes);
        }
        CallError::Header(HeaderError::Version) => {
            trace::svcrdma_decode_badvers_err(qp.cq_number, number, bytes);
        }
        CallError::Header(HeaderError::Procedure) => {
            trace::svcrdma_decode_badproc_err(qp.cq_number, number, bytes);
        }
        CallError::Header(HeaderError::MessageType) | CallError::ChunksInBackwardReply => {
            trace::svcrdma_decode_drop_err(qp.cq_number, number, bytes);
        }
        _ => trace::svcrdma_decode_parse_err(qp.cq_number, number, bytes),
    }
}
