// SPDX-License-Identifier: GPL-2.0

//! RDMA_ERROR; malformed and late messages.

use super::{
    ep::Ep,
    reply::{claim, finish, Outcome, PendingReply},
};
use crate::{
    error::Cause,
    proto::{
        message::Refused,
        requester::decode::{ReplyError, RequesterRefusal},
        v2::requester::NegotiationAction,
        wire::{
            error::{ErrorBody, ErrorMessage},
            header::Xid,
            malformed::HeaderError,
        },
    },
    rdma::{CqContext, RecvBox, RemoteInvalidation},
    sunrpc::client::{ForwardRqst, NotPinned, PinnedRqst},
    trace,
};

/// Handles an RDMA_ERROR, which ends its Call, or has it sent again in another version.
pub(super) fn rdma_error(
    cx: &mut CqContext<'_, Ep>,
    error: &ErrorMessage,
    rep: RecvBox<Ep>,
    proof: Option<RemoteInvalidation<'_, Ep>>,
) {
    let ep = cx.user();
    let (transport, stats) = (&ep.transport, &ep.transport.stats);
    let pinned = transport.xprt.pin(error.xid.0);
    if matches!(pinned, Err(NotPinned::Taken)) {
        return drop_unexpected(cx, rep);
    }
    let action = match (error.body, &ep.v2) {
        (ErrorBody::Version(range), Some(v2)) => v2.err_vers(ep, error.xid, range),
        _ => None,
    };
    if action == Some(NegotiationAction::Reconnect) && proof.is_none() {
        ep.state.force_disconnect(Cause::HigherVersion);
    }
    let Ok(rqst) = pinned else {
        match action {
            // There is nothing to send again: this is the version of the connection.
            Some(NegotiationAction::Resend(version)) => ep.replied(error.xid, version),
            _ => ep.call_failed(error.xid),
        }
        return drop_late(cx, rep);
    };
    match error.body {
        ErrorBody::Version(versions) => {
            stats.vers_errors_received.increment();
            trace::xprtrdma_err_vers(&rqst, versions.low, versions.high);
        }
        ErrorBody::Chunk => {
            stats.chunk_errors_received.increment();
            trace::xprtrdma_err_chunk(transport.xprt.id(), &rqst);
        }
        ErrorBody::InvalidOption => stats.option_errors_received.increment(),
    }
    match action {
        Some(NegotiationAction::Resend(_)) if proof.is_none() => resend(cx, rqst, rep),
        // sunrpc sends the Call again.
        Some(NegotiationAction::Reconnect) if proof.is_none() => {
            drop(rqst);
            cx.repost(rep);
        }
        _ => fail(cx, rqst, rep, proof),
    }
}

/// Sends the first Call again, in the version that is tried now. Its task keeps waiting for a
/// Reply.
fn resend(cx: &mut CqContext<'_, Ep>, rqst: PinnedRqst, rep: RecvBox<Ep>) {
    let ep = cx.user();
    let ctxt = cx.get_send_ctxt().ok();
    let sent = ctxt.and_then(|mut ctxt| {
        let length = ep.v2.as_ref()?.copy_first(ctxt.bytes())?;
        ctxt.post_send(length, None).ok()
    });
    if sent.is_some() {
        (ep.transport.stats.version_fallbacks).increment();
    } else {
        ep.state.force_disconnect(Cause::PostFailed);
    }
    // Pinned until here: buf_free would invalidate the MRs that the repeated Call names.
    drop(rqst);
    cx.repost(rep);
}

/// Fails the Call to which an error or a malformed Reply belongs.
fn fail(
    cx: &mut CqContext<'_, Ep>,
    rqst: PinnedRqst,
    rep: RecvBox<Ep>,
    proof: Option<RemoteInvalidation<'_, Ep>>,
) {
    let qp = cx.qp();
    let Some(result) = claim(qp, &rqst, proof, |_| Outcome::Failed) else {
        return drop_unexpected(cx, rep);
    };
    // Before the Call gives its credit back.
    qp.user().call_failed(Xid(rqst.xid()));
    finish(cx, PendingReply { rqst, rep, result });
}

/// Handles a message that cannot be used: answers it, fails the Call that it is the Reply to, or
/// discards it.
pub(super) fn bad_header(
    cx: &mut CqContext<'_, Ep>,
    refused: &Refused<ReplyError>,
    rep: RecvBox<Ep>,
    proof: Option<RemoteInvalidation<'_, Ep>>,
) {
    let qp = cx.qp();
    let transport = &qp.user().transport;
    match refused.error {
        ReplyError::Header(HeaderError::Short) => {
            trace::xprtrdma_reply_short_err(transport.xprt.id(), rep.bytes())
        }
        ReplyError::Header(HeaderError::Version) => {
            trace::xprtrdma_reply_vers_err(transport.xprt.id(), rep.bytes())
        }
        _ => trace::xprtrdma_reply_hdr_err(transport.xprt.id(), rep.bytes()),
    }
    let pinned = refused.fixed.map(|fixed| transport.xprt.pin(fixed.xid.0));
    let is_awaited = matches!(pinned, Some(Ok(_) | Err(NotPinned::Taken)));
    let refusal = refused.at_requester(is_awaited, transport.backchannel.is_served());
    match (refusal, pinned) {
        (RequesterRefusal::EndCall, Some(Ok(rqst))) => {
            return fail(cx, rqst, rep, proof);
        }
        (RequesterRefusal::Answer(error), _) => send_error(cx, &error),
        (_, Some(Ok(rqst))) if refused.error == ReplyError::Header(HeaderError::ErrorCode) => {
            transport.stats.unknown_errors_received.increment();
            trace::xprtrdma_err_unrecognized(transport.xprt.id(), &rqst);
        }
        // Certainly a Reply.
        (_, Some(Err(NotPinned::Unknown))) if refused.error == ReplyError::ReadList => {
            return drop_late(cx, rep);
        }
        _ => {}
    }
    drop_message(cx, rep);
}

/// Sends an RDMA_ERROR, unless all Send contexts are in use.
fn send_error(cx: &mut CqContext<'_, Ep>, error: &ErrorMessage) {
    let ep = cx.user();
    let Ok(mut ctxt) = cx.get_send_ctxt() else {
        return;
    };
    let Ok(length) = error.encode(ctxt.bytes(), ep.requested) else {
        return;
    };
    if ctxt.post_send(length, None).is_ok() {
        let stats = &ep.transport.stats;
        match error.body {
            ErrorBody::Version(_) => stats.vers_errors_sent.increment(),
            ErrorBody::Chunk => stats.chunk_errors_sent.increment(),
            ErrorBody::InvalidOption => stats.option_errors_sent.increment(),
        }
    }
}

/// Discards a Reply or error for a Call that is gone, if there was one.
pub(super) fn drop_late(cx: &mut CqContext<'_, Ep>, rep: RecvBox<Ep>) {
    cx.user().transport.xprt.late_reply();
    drop_unexpected(cx, rep);
}

/// Discards a Reply or error that no Call waits for.
pub(super) fn drop_unexpected(cx: &mut CqContext<'_, Ep>, rep: RecvBox<Ep>) {
    trace::xprtrdma_reply_rqst_err(cx.user().transport.xprt.id(), rep.bytes());
    drop_message(cx, rep);
}

/// Discards a message.
fn drop_message(cx: &mut CqContext<'_, Ep>, rep: RecvBox<Ep>) {
    cx.user().transport.stats.dropped_messages.increment();
    cx.repost(rep);
}
