// SPDX-License-Identifier: GPL-2.0

//! Trace events of the server, defined in `trace/svcrdma.h`.

use super::{clip, word, Segment, TraceCq, TraceQp};
use crate::bindings::{ib_wc, ib_wc_status_IB_WC_SUCCESS, ib_wc_status_IB_WC_WR_FLUSH_ERR};
use kernel::prelude::*;

// Connections.
events! {
    /// A connection that a peer requested could not be accepted.
    fn svcrdma_accept_err(listener: u32, errno: i32) => (listener, errno);

    /// Both ends have agreed on another version than One.
    fn svcrdma_version(connection: u32, version: u32) => (connection, version);

    /// The device is being removed, and the connection closed.
    fn svcrdma_device_removal(connection: u32) => (connection);

    /// An event with this number (`enum ib_event_type`) has made the queue pair unusable.
    fn svcrdma_qp_error(connection: u32, event: u32) => (connection, event);
}

// Work requests.
events! {
    /// The Receive with this number is about to be posted.
    fn svcrdma_post_recv(qp: &impl TraceQp, cid: u32) => (qp.queue(), cid);

    /// The device has rejected Receives.
    fn svcrdma_rq_post_err(qp: &impl TraceQp, error: Error) => (qp.queue(), error.to_errno());

    /// A Send is posted.
    fn svcrdma_post_send(qp: &impl TraceQp, cid: u32, invalidate: Option<u32>) =>
        (qp.queue(), cid, 1, invalidate.unwrap_or(0));

    /// RDMA Writes are posted before the Send with this number.
    fn svcrdma_post_write_chunk(qp: &impl TraceQp, cid: u32, requests: u32) =>
        (qp.queue(), cid, requests);

    /// RDMA Reads are posted for the message in the Receive with this number.
    fn svcrdma_post_read_chunk(qp: &impl TraceQp, cid: u32, requests: u32) =>
        (qp.queue(), cid, requests);

    /// The device has rejected a chain of Writes and a Send, or of Reads.
    fn svcrdma_sq_post_err(qp: &impl TraceQp, error: Error) => (qp.queue(), error.to_errno());

    /// The send queue has no room for `needed` work requests.
    fn svcrdma_sq_full(qp: &impl TraceQp, needed: u32, used: u32, depth: u32) =>
        (qp.queue(), needed, used, depth);

    /// The RDMA Reads for the message in the Receive with this number have completed.
    fn svcrdma_wc_read(qp: &impl TraceQp, cid: u32, bytes: u64, nanoseconds: u64) =>
        (qp.queue(), cid, u32::try_from(bytes).unwrap_or(u32::MAX), nanoseconds);
}

/// The events of a completion: one each for success, a flush and an error.
macro_rules! completions {
    ($($(#[$doc:meta])* fn $name:ident => $flush:ident, $error:ident, ($($value:expr),*);)*) => {$(
        $(#[$doc])*
        #[inline(always)]
        pub(crate) fn $name(cq: &impl TraceCq, cid: u32, wc: &ib_wc) {
            #[expect(non_upper_case_globals, reason = "the names are those of C")]
            match wc.status {
                ib_wc_status_IB_WC_SUCCESS => emit!($name(cq.number(), cid $(, $value(wc))*)),
                ib_wc_status_IB_WC_WR_FLUSH_ERR => {
                    emit!($flush(cq.number(), cid, wc.status, wc.vendor_err));
                }
                _ => emit!($error(cq.number(), cid, wc.status, wc.vendor_err)),
            }
        }
    )*};
}

/// The length of a message that has arrived.
fn length(wc: &ib_wc) -> u32 {
    wc.byte_len
}

completions! {
    /// The Receive with this number has completed.
    fn svcrdma_wc_recv => svcrdma_wc_recv_flush, svcrdma_wc_recv_err, (length);
    /// The Send with this number has completed.
    fn svcrdma_wc_send => svcrdma_wc_send_flush, svcrdma_wc_send_err, ();
}

/// Defines the functions of events that show how a work request has failed.
macro_rules! failures {
    ($($(#[$doc:meta])* fn $name:ident => $flush:ident, $error:ident;)*) => {$(
        $(#[$doc])*
        #[inline(always)]
        pub(crate) fn $name(cq: &impl TraceCq, cid: u32, wc: &ib_wc) {
            if wc.status == ib_wc_status_IB_WC_WR_FLUSH_ERR {
                emit!($flush(cq.number(), cid, wc.status, wc.vendor_err));
            } else {
                emit!($error(cq.number(), cid, wc.status, wc.vendor_err));
            }
        }
    )*};
}

failures! {
    /// RDMA Reads have failed.
    fn svcrdma_wc_read_failed => svcrdma_wc_read_flush, svcrdma_wc_read_err;
    /// RDMA Writes before the Send with this number have failed.
    fn svcrdma_wc_write_failed => svcrdma_wc_write_flush, svcrdma_wc_write_err;
}

// Messages from requesters.
events! {
    /// `message` is a Call, with this many bytes of transport header.
    fn svcrdma_decode_rqst(qp: &impl TraceQp, cid: u32, message: &[u8], header: usize) => (
        qp.queue(),
        cid,
        word(message, 0),
        word(message, 1),
        word(message, 2),
        word(message, 3),
        clip(header),
    );

    /// A message is shorter than the fixed header fields.
    fn svcrdma_decode_short_err(qp: &impl TraceQp, cid: u32, message: &[u8]) =>
        (qp.queue(), cid, clip(message.len()));
}

/// Defines the functions of events that show the fixed header fields of a rejected `message`.
macro_rules! refusals {
    ($($(#[$doc:meta])* fn $name:ident;)*) => {
        events! {
            $(
                $(#[$doc])*
                fn $name(qp: &impl TraceQp, cid: u32, message: &[u8]) => (
                    qp.queue(),
                    cid,
                    word(message, 0),
                    word(message, 1),
                    word(message, 2),
                    word(message, 3),
                );
            )*
        }
    };
}

refusals! {
    /// A message has another version.
    fn svcrdma_decode_badvers_err;
    /// A message gets no answer.
    fn svcrdma_decode_drop_err;
    /// A message's procedure is unknown.
    fn svcrdma_decode_badproc_err;
    /// A message's header is malformed, or requests too much.
    fn svcrdma_decode_parse_err;
}

events! {
    /// An RDMA_ERROR with ERR_VERS ends the transaction.
    fn svcrdma_err_vers(xid: u32) => (xid);

    /// An RDMA_ERROR with ERR_CHUNK ends the transaction.
    fn svcrdma_err_chunk(xid: u32) => (xid);

    /// An RDMA_ERROR with RDMA_ERR_INVAL_OPTION answers an option.
    fn svcrdma_err_option(xid: u32) => (xid);

    /// A Reply could not be sent.
    fn svcrdma_send_err(qp: &impl TraceQp, xid: u32, error: Error) =>
        (qp.queue(), xid, error.to_errno());
}

/// The segments of a Call's chunks: `svcrdma_decode_rseg` and `svcrdma_decode_wseg`. `reads`
/// include their Positions.
#[inline(always)]
pub(crate) fn svcrdma_segments(
    qp: &impl TraceQp,
    cid: u32,
    reads: impl Iterator<Item = (u32, Segment)>,
    writes: impl Iterator<Item = Segment>,
) {
    if enabled!(svcrdma_decode_rseg) {
        write_reads(qp.queue(), cid, reads);
    }
    if enabled!(svcrdma_decode_wseg) {
        write_writes(qp.queue(), cid, writes);
    }
}

#[cold]
fn write_reads(queue: u32, cid: u32, reads: impl Iterator<Item = (u32, Segment)>) {
    for (number, (position, (handle, length, offset))) in (0u32..).zip(reads) {
        emit!(svcrdma_decode_rseg(
            queue, cid, number, position, handle, length, offset
        ));
    }
}

#[cold]
fn write_writes(queue: u32, cid: u32, writes: impl Iterator<Item = Segment>) {
    for (number, (handle, length, offset)) in (0u32..).zip(writes) {
        emit!(svcrdma_decode_wseg(
            queue, cid, number, handle, length, offset
        ));
    }
}

events! {
    /// An RDMA Write fills the first `length` bytes of a segment, for the Call in the Receive
    /// `cid`.
    fn svcrdma_encode_wseg(qp: &impl TraceQp, cid: u32, number: u32, segment: Segment) =>
        (qp.queue(), cid, number, segment.0, segment.1, segment.2);
}
