// SPDX-License-Identifier: GPL-2.0

//! The RDMA Reads of a Call, which a thread posts, and the RDMA Writes of a Reply.
//!
//! All that a thread allocates or maps for them waits for memory
//! ([`SvcxprtRdma::wait_for_memory`]). Any other error ends the connection.

use super::{
    recvfrom::Decoded,
    sendto,
    sendto::SendInfo,
    transport::{Owner, Qp, RecvBox, SvcxprtRdma},
};
use crate::{
    error::Cause,
    proto::{
        responder::{
            call::ReceivedCall, placement::ReplyPlan, refusal::ResponderRefusal, stream::Source,
        },
        wire::chunk::Segment,
    },
    rdma,
    sunrpc::{
        server::{Receiving, Replying},
        PageRange, PageVec,
    },
    trace,
};
use kernel::{
    dma::DataDirection,
    prelude::*,
    sync::atomic::Relaxed,
    time::{delay::fsleep, Delta},
};

/// The pause of a thread before it tries to allocate memory again.
const MEMORY_PAUSE: Delta = Delta::from_millis(10);

/// How often it tries before the connection ends.
const MEMORY_TRIES: u32 = 100;

/// A context for one chain.
pub(super) type SendBox<'a> = rdma::SendBox<'a, SvcxprtRdma>;

impl SvcxprtRdma {
    /// Calls `make` again while it fails for lack of memory, for a second or until the connection
    /// ends. May sleep.
    ///
    /// # Errors
    ///
    /// The last one of `make`.
    pub(super) fn wait_for_memory<T>(&self, mut make: impl FnMut() -> Result<T>) -> Result<T> {
        for _ in 0..MEMORY_TRIES {
            match make() {
                Err(ENOMEM) if !self.svc.is_closing() => fsleep(MEMORY_PAUSE),
                made => return made,
            }
        }
        Err(ENOMEM)
    }
}

/// Posts the RDMA Reads for a Call, into pages of the thread.
pub(super) fn post_reads(qp: &Owner, mut ctxt: RecvBox, rqst: &mut Receiving<'_>) {
    let conn = qp.user();
    let send_ctxt = map_reads(qp, &ctxt, rqst);
    let (cid, info) = (ctxt.cid(), ctxt.with_data().1);
    let reserved = core::mem::take(&mut info.mrs);
    match send_ctxt {
        Ok(mut send_ctxt) => {
            let unused = reserved.saturating_sub(send_ctxt.mrs());
            *send_ctxt.data() = SendInfo::Reads(ctxt);
            match send_ctxt.post_reads(cid) {
                Ok(()) => qp.unreserve(unused),
                // The reserved MRs are not given back: the connection ends.
                Err(_) => conn.fail(Cause::PostFailed),
            }
        }
        Err(_) => {
            conn.fail(Cause::LocalResources);
            qp.put_recv(ctxt);
        }
    }
}

/// Maps the RDMA Reads for a Call.
fn map_reads<'a>(qp: &'a Owner, ctxt: &RecvBox, rqst: &mut Receiving<'_>) -> Result<SendBox<'a>> {
    let index = ctxt.data().index().ok_or(EINVAL)?;
    let call = index.call(ctxt.bytes()).ok_or(EINVAL)?;
    let ranges = usize::try_from(index.read_ranges())?;
    let count = usize::try_from(ctxt.data().pages_to_read)?;
    let conn = qp.user();
    let mut send_ctxt = sendto::get_send_ctxt(qp)?;
    *send_ctxt.pages()? = conn.wait_for_memory(|| rqst.take_pages(count))?;
    // A Read that begins within a page shares that page with the Read before it.
    let elements = count.saturating_add(ranges);
    conn.wait_for_memory(|| send_ctxt.reserve_rw(DataDirection::FromDevice, ranges, elements))?;
    for (at, mut segment) in call.reads() {
        let range = PageRange::at(at, segment.length);
        add(qp, &mut send_ctxt, range, &mut segment)?;
    }
    Ok(send_ctxt)
}

/// Completes a Call with what is in its pages, if it has any.
///
/// # Errors
///
/// What to do with it in place of passing it to nfsd.
pub(super) fn finish_reads(ctxt: &mut RecvBox) -> Result<(), ResponderRefusal> {
    let (bytes, info) = ctxt.with_data();
    let (Decoded::Call(index), Some(pages)) = (&info.what, &mut info.pages) else {
        return Ok(());
    };
    if index.layout.is_mixed {
        let call = index.call(bytes).ok_or(ResponderRefusal::Discard)?;
        if !fill_gaps(&call, pages) {
            return Err(ResponderRefusal::Discard);
        }
    }
    if index.is_inline {
        return Ok(());
    }
    let mut start = [0; 8];
    let most = start.len();
    let start = usize::try_from(index.layout.total())
        .ok()
        .and_then(|length| start.get_mut(..length.min(most)))
        .ok_or(ResponderRefusal::Discard)?;
    if !pages.copy_first(start) {
        return Err(ResponderRefusal::Discard);
    }
    index.check_rpc_header(start)
}

/// Copies what was inline to its place between what was read; returns whether all of it has a
/// place.
fn fill_gaps(call: &ReceivedCall<'_>, pages: &mut PageVec) -> bool {
    let head = call.index.layout.head;
    let is_whole = head == 0 && call.index.layout.tail == 0;
    call.stream().all(|piece| {
        let bytes = match piece.source {
            Source::Inline(from) if is_whole => call.payload.and_then(|payload| {
                let from = usize::try_from(from).ok()?;
                payload
                    .get(from..)?
                    .get(..usize::try_from(piece.length).ok()?)
            }),
            Source::RoundUp => usize::try_from(piece.length)
                .ok()
                .and_then(|length| [0; 3].as_slice().get(..length)),
            Source::Inline(_) | Source::Read { .. } => return true,
        };
        let at = piece.at.saturating_sub(head);
        bytes.is_some_and(|bytes| pages.copy_in(at, bytes))
    })
}

/// Adds the RDMA Writes of the Reply to `call`, whose message has this `cid`, and moves the pages
/// of the Reply to the context, whose data is [`SendInfo::Reply`].
pub(super) fn add_writes(
    qp: &Qp,
    cid: u32,
    ctxt: &mut SendBox<'_>,
    rqst: Replying<'_>,
    plan: &ReplyPlan<'_>,
    call: &ReceivedCall<'_>,
) -> Result {
    let (conn, pages) = (qp.user(), ctxt.pages()?);
    let layout = rqst.move_pages(pages, |pages, count| {
        conn.wait_for_memory(|| pages.reserve(count, GFP_KERNEL))
    });
    let count = u32::try_from(pages.len())?;
    // `pages_put` subtracts them.
    conn.reply_load.add(count, Relaxed);
    conn.listener.reply_pages.add(count, Relaxed);
    let layout = layout?;
    // Head, pages and tail are in different ranges: two of the Writes may be split.
    let writes = plan.rdma_writes(call).count();
    let ranges = writes.saturating_add(2);
    // Each Write can begin and end within a page.
    let elements = layout.part_count().saturating_add(writes.saturating_mul(2));
    conn.wait_for_memory(|| ctxt.reserve_rw(DataDirection::ToDevice, ranges, elements))?;
    for (index, (at, mut target)) in (0..).zip(plan.rdma_writes(call)) {
        trace::svcrdma_encode_wseg(qp.cq_number, cid, index, 0, target);
        let length = target.length;
        layout.for_each_range(at, length, |range| add(qp, ctxt, range, &mut target))?;
    }
    Ok(())
}

/// Adds the transfer of `range` from or to `segment`, whose offset moves on.
fn add(qp: &Qp, ctxt: &mut SendBox<'_>, range: PageRange, segment: &mut Segment) -> Result {
    for range in range.split(qp.region_pages) {
        let (handle, offset) = (segment.handle, segment.offset);
        qp.user()
            .wait_for_memory(|| ctxt.add(range, handle, offset))?;
        segment.offset = offset.wrapping_add(range.length.into());
    }
    Ok(())
}
