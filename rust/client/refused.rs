// SPDX-License-Identifier: GPL-2.0

//! Messages that are no Reply that can be used: RDMA_ERROR, malformed ones, late ones.

use super::{
    ep::Ep,
    reply::{claim, finish, Outcome},
    v2::Refusal,
};
use crate::{
    error::Cause,
    proto::{
        message::Refused,
        requester::decode::{ReplyError, RequesterRefusal},
        wire::{
            error::{ErrorBody, ErrorMessage},
            header::Xid,
            malformed::HeaderError,
        },
    },
    rdma::{CqContext, RecvBox, RemoteInvalidation},
    sunrpc::client::{NotPinned, PinnedRqst},
    trace,
};

/// Takes an RDMA_ERROR: it ends its Call, or has it sent again in another version.
pub(super) fn rdma_error(
    cx: &mut CqContext<'_, Ep>,
    error: &ErrorMessage,
    message: RecvBox<Ep>,
    invalidated: Option<RemoteInvalidation<'_>>,
) {
    let ep = cx.user();
    let (transport, stats) = (&ep.transport, &ep.transport.stats);
    let rqst = match transport.xprt.pin(error.xid.0) {
        Ok(rqst) => rqst,
        Err(NotPinned::Taken) => {
            ep.close_if_hopeless();
            return drop_unexpected(cx, message);
        }
        Err(NotPinned::Unknown) => {
            match (error.body, &ep.v2) {
                (ErrorBody::Version(versions), Some(v2)) => {
                    match v2.refused(ep, error.xid, versions) {
                        // There is nothing to send again: the version that is tried now is that
                        // of the connection.
                        Refusal::Resend => {
                            if let Some(terms) = v2.terms() {
                                ep.replied(error.xid, terms.version);
                            }
                        }
                        Refusal::Reconnect => ep.wait.close(Cause::HigherVersion),
                        Refusal::Final => {}
                    }
                }
                (ErrorBody::Version(_), None) => {}
                (ErrorBody::Chunk | ErrorBody::InvalidOption, _) => ep.failed(error.xid),
            }
            ep.close_if_hopeless();
            return drop_late(cx, message);
        }
    };
    match error.body {
        ErrorBody::Version(versions) => {
            stats.vers_errors_received.increment();
            trace::xprtrdma_err_vers(&rqst, versions.low, versions.high);
            let v2 = ep.v2.as_ref();
            match v2.map_or(Refusal::Final, |v2| v2.refused(ep, error.xid, versions)) {
                Refusal::Resend if invalidated.is_none() => {
                    return resend(cx, rqst, message);
                }
                // sunrpc sends the Call again.
                Refusal::Reconnect if invalidated.is_none() => {
                    ep.wait.close(Cause::HigherVersion);
                    drop(rqst);
                    return cx.repost(message);
                }
                _ => {}
            }
        }
        ErrorBody::Chunk => {
            stats.chunk_errors_received.increment();
            trace::xprtrdma_err_chunk(&transport.xprt, &rqst);
        }
        ErrorBody::InvalidOption => stats.option_errors_received.increment(),
    }
    fail(cx, rqst, error.xid, message, invalidated);
}

/// Sends the first Call again, in the version that is tried now. Its task keeps waiting for a
/// Reply.
fn resend(cx: &mut CqContext<'_, Ep>, rqst: PinnedRqst<'_>, message: RecvBox<Ep>) {
    let ep = cx.user();
    let ctxt = cx.get_send_ctxt().ok();
    let sent = ctxt.and_then(|mut ctxt| {
        let length = ep.v2.as_ref()?.copy_first(ctxt.bytes())?;
        ctxt.post_send(length, None).ok()
    });
    if sent.is_some() {
        (ep.transport.stats.version_fallbacks).increment();
    } else {
        ep.wait.close(Cause::PostFailed);
    }
    // Its memory could not be freed until here.
    drop(rqst);
    cx.repost(message);
}

/// Fails the Call to which an error or a malformed Reply belongs.
fn fail(
    cx: &mut CqContext<'_, Ep>,
    rqst: PinnedRqst<'_>,
    xid: Xid,
    message: RecvBox<Ep>,
    invalidated: Option<RemoteInvalidation<'_>>,
) {
    let qp = cx.qp();
    let Some(claim) = claim(qp, &rqst, xid, invalidated, |_| Outcome::Failed) else {
        qp.user().close_if_hopeless();
        return drop_unexpected(cx, message);
    };
    // Before the Call gives its credit back.
    qp.user().failed(xid);
    finish(cx, rqst, message, claim);
}

/// Handles a message that cannot be used: answers it, fails the Call that it is the Reply to, or
/// discards it.
pub(super) fn bad_header(
    cx: &mut CqContext<'_, Ep>,
    refused: &Refused<ReplyError>,
    message: RecvBox<Ep>,
    invalidated: Option<RemoteInvalidation<'_>>,
) {
    let qp = cx.qp();
    let transport = &qp.user().transport;
    match refused.why.error {
        ReplyError::Header(HeaderError::Short) => {
            trace::xprtrdma_reply_short_err(&transport.xprt, message.bytes())
        }
        ReplyError::Header(HeaderError::Version) => {
            trace::xprtrdma_reply_vers_err(&transport.xprt, message.bytes())
        }
        _ => trace::xprtrdma_reply_hdr_err(&transport.xprt, message.bytes()),
    }
    let xid = refused.fixed.map(|fixed| fixed.xid);
    let pinned = xid.map_or(Err(NotPinned::Unknown), |xid| {
        Ok((xid, transport.xprt.pin(xid.0)?))
    });
    let is_awaited = !matches!(pinned, Err(NotPinned::Unknown));
    let awaited = pinned.ok();
    let refusal = refused.at_requester(is_awaited, transport.backchannel.is_served());
    match (refusal, awaited) {
        (RequesterRefusal::EndCall, Some((xid, rqst))) => {
            return fail(cx, rqst, xid, message, invalidated);
        }
        (RequesterRefusal::Answer(error), _) => answer(cx, &error),
        (_, awaited) => {
            if let (ReplyError::Header(HeaderError::ErrorCode), Some((_, rqst))) =
                (refused.why.error, awaited)
            {
                transport.stats.unknown_errors_received.increment();
                trace::xprtrdma_err_unrecognized(&transport.xprt, &rqst);
            }
        }
    }
    drop_message(cx, message);
}

/// Sends an RDMA_ERROR. While all Send contexts are in use, the peer is not told, which is
/// allowed.
fn answer(cx: &mut CqContext<'_, Ep>, error: &ErrorMessage) {
    let ep = cx.user();
    let Ok(mut ctxt) = cx.get_send_ctxt() else {
        return;
    };
    let Ok(length) = error.encode(ctxt.bytes(), ep.requested_credits()) else {
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
pub(super) fn drop_late(cx: &mut CqContext<'_, Ep>, message: RecvBox<Ep>) {
    cx.user().transport.xprt.late_reply();
    drop_unexpected(cx, message);
}

/// Discards a Reply or error that no Call waits for.
pub(super) fn drop_unexpected(cx: &mut CqContext<'_, Ep>, message: RecvBox<Ep>) {
    let qp = cx.qp();
    let ep = qp.user();
    trace::xprtrdma_reply_rqst_err(&ep.transport.xprt, message.bytes());
    drop_message(cx, message);
}

/// Discards a message.
fn drop_message(cx: &mut CqContext<'_, Ep>, message: RecvBox<Ep>) {
    let ep = cx.user();
    ep.transport.stats.dropped_messages.increment();
    cx.repost(message);
}
