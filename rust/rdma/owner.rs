// SPDX-License-Identifier: GPL-2.0

//! The hardware objects of a queue pair, from their creation to the drain.

use super::{
    cm::{Bound, CmId},
    cq::{Cq, Cqe},
    list::List,
    mr_slots::MrSlots,
    qp::{QpCaps, QpUser, QueuePair},
    recv::RecvQueue,
    rw::{registers_writes, transfer_requests},
    send::SendQueue,
    send_ctxt::SendCtxt,
    Pd,
};
use crate::bindings;
use core::{cell::UnsafeCell, ffi::c_void, mem::ManuallyDrop, ops::Deref, ptr::NonNull};
use kernel::{
    container_of,
    error::to_result,
    new_delayed_work, new_spinlock,
    prelude::*,
    sync::{atomic::Atomic, Arc, UniqueArc},
    workqueue::{HasWork, Work},
};

/// The hardware objects of a queue pair.
///
/// # Invariants
///
/// `qp` is a queue pair that this object owns: that of `id`, in the protection domain `pd`, whose
/// completions go to `cq`.
pub(super) struct Hw {
    pub(super) qp: NonNull<bindings::ib_qp>,
    cq: Cq,
    pub(super) id: CmId<Bound>,
    pub(super) pd: Arc<Pd>,
}

/// What both roles ask of the peer when they connect: to repeat a Send that finds no Receive
/// `rnr_retries` times. It gets `private_data` (RFC 8797).
fn conn_param(private_data: &[u8], rnr_retries: u8) -> Result<bindings::rdma_conn_param> {
    Ok(bindings::rdma_conn_param {
        private_data: private_data.as_ptr().cast(),
        private_data_len: u8::try_from(private_data.len()).map_err(|_| EINVAL)?,
        rnr_retry_count: rnr_retries,
        ..Default::default()
    })
}

/// How long the peer is asked to wait before it repeats a Send that found no Receive: 1.28 ms
/// (encoded as in the InfiniBand specification, volume 1, table 45).
const RNR_TIMER: u8 = 14;

/// How often the peer is asked to repeat such a Send. Credits keep Receives posted for Replies; a
/// burst of backward Calls or late Replies may find none for a moment, which should cost a pause,
/// not the connection.
const RNR_RETRIES: u8 = 6;

/// The value for repeating it for ever: a requester that sends more than it was granted, or finds
/// no Receive because memory is short, waits.
const RNR_FOR_EVER: u8 = 7;

/// How often both ends repeat lost packets, as the connecting one says (a field of the fabric with
/// a maximum of 7): a lost packet is not a lost connection.
const RETRIES: u8 = 6;

/// The owner of a queue pair, which ends the connection when it is dropped.
pub(crate) struct QpOwner<U: QpUser>(Arc<QueuePair<U>>);

impl<U: QpUser> QpOwner<U> {
    /// Creates the queue pair of `id`. May sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, or whatever the provider returns, such as `EINVAL` for queues that are too large.
    pub(crate) fn new(id: CmId<Bound>, pd: &Arc<Pd>, caps: &QpCaps, user: Arc<U>) -> Result<Self> {
        let mut memory = UniqueArc::<QueuePair<U>>::new_uninit(GFP_KERNEL)?;
        let rdma_ctxs = caps.max_rdma_ctxs(&id);
        let attributes = pd.device().attributes();
        // The work queues have an entry for the drain each.
        let sq_size = (caps.max_send_wr)
            .saturating_add(transfer_requests(&id, rdma_ctxs))
            .saturating_add(1)
            .min(attributes.max_qp_wr);
        let cq_size = sq_size.saturating_add(caps.max_recv_wr).saturating_add(1);
        let sq_entries = sq_size.saturating_sub(1);
        // SAFETY: The memory becomes the queue pair below. Its last reference goes after the owner,
        // which disables the CQ.
        let cq = unsafe { Cq::new(pd, cq_size, memory.as_mut_ptr())? };
        let mut attr = bindings::ib_qp_init_attr {
            send_cq: cq.as_raw(),
            recv_cq: cq.as_raw(),
            cap: bindings::ib_qp_cap {
                // Where the RDMA core adds requests for ranges, it applies the limit to the sum.
                max_send_wr: (caps.max_send_wr.saturating_add(1)).min(attributes.max_qp_wr),
                max_recv_wr: caps.max_recv_wr.saturating_add(1),
                max_send_sge: caps.max_send_sge,
                max_recv_sge: 1,
                max_rdma_ctxs: rdma_ctxs,
                ..Default::default()
            },
            sq_sig_type: bindings::ib_sig_type_IB_SIGNAL_REQ_WR,
            qp_type: bindings::ib_qp_type_IB_QPT_RC,
            event_handler: Some(qp_event_handler::<U>),
            qp_context: Arc::as_ptr(&user).cast_mut().cast(),
            port_num: id.port(),
            ..Default::default()
        };
        // SAFETY: Identifier, PD and CQ are valid; the call rejects a PD of another device. The
        // attributes are only used during the call; the user, which is the context of events, is
        // dropped after the queue pair.
        to_result(unsafe { bindings::rdma_create_qp(id.as_raw(), pd.as_raw(), &mut attr) })?;
        // SAFETY: The call has given the identifier a queue pair, its only one.
        let qp = NonNull::new(unsafe { (*id.as_raw()).qp }).ok_or(ENODEV)?;
        let pd = pd.clone();
        // INVARIANT: The queue pair was just created with these.
        let hw = Hw { qp, cq, id, pd };
        // SAFETY: `hw.qp` is a live QP (invariant of `Hw`), and its number does not change.
        let number = unsafe { hw.qp.as_ref().qp_num };
        // SAFETY: This is a live CQ, and its number does not change.
        let cq_number = unsafe { (*hw.cq.as_raw()).res.id };
        // A connection that reserves MRs works in any case.
        let registers_writes = rdma_ctxs != 0 && registers_writes(&hw).unwrap_or(true);
        let write_mrs = if registers_writes { rdma_ctxs } else { 0 };
        let read_mrs = if hw.id.is_iwarp() {
            rdma_ctxs
        } else {
            write_mrs
        };
        let mut sends = List::new();
        for _ in 0..caps.first_sends {
            sends.push_back(SendCtxt::new(&hw.pd, caps.send_size, GFP_KERNEL)?);
        }
        let sq = SendQueue::new(sq_entries, read_mrs, sends);
        // Should `mrs` fail, `hw` is dropped there, and `user` only at the end of this function.
        let context = &user;
        // INVARIANT: `hw` is moved into the object that is returned.
        let qp = memory.pin_init_with(try_pin_init!(QueuePair {
            send <- new_spinlock!(sq, "rpcrdma_send"),
            recv <- new_spinlock!(RecvQueue::new(), "rpcrdma_recv"),
            mrs <- MrSlots::new(caps.slots),
            cid: Atomic::new(0),
            watchdog <- new_delayed_work!(),
            check: Cqe::new(),
            caps: *caps,
            sq_entries,
            read_mrs,
            write_mrs,
            region_pages: attributes.region_pages(),
            number,
            cq_number,
            user: context.clone(),
            hw: UnsafeCell::new(ManuallyDrop::new(hw)),
        }? Error))?;
        Ok(Self(qp.into()))
    }

    /// The identifier of the connection.
    pub(crate) fn id(&self) -> &CmId<Bound> {
        &self.hw().id
    }

    /// The protection domain.
    pub(crate) fn pd(&self) -> &Arc<Pd> {
        &self.hw().pd
    }

    /// The hardware objects.
    fn hw(&self) -> &Hw {
        // SAFETY: This is the owner, which exists (invariant of `QueuePair`).
        unsafe { self.0.hw() }
    }

    /// rdma_connect(): the peer may have `responder_resources` RDMA Reads outstanding, this end
    /// none. May sleep.
    ///
    /// # Errors
    ///
    /// Whatever the connection manager returns now; a later failure is reported as an event.
    pub(crate) fn connect(&self, private_data: &[u8], responder_resources: u8) -> Result {
        let mut raw = conn_param(private_data, RNR_RETRIES)?;
        raw.responder_resources = responder_resources;
        raw.retry_count = RETRIES;
        // SAFETY: The identifier is valid.
        to_result(unsafe { bindings::rdma_set_min_rnr_timer(self.id().as_raw(), RNR_TIMER) })?;
        // SAFETY: The identifier is valid. The call copies the parameters.
        to_result(unsafe { bindings::rdma_connect(self.id().as_raw(), &mut raw) })
    }

    /// rdma_accept(): this end may have `initiator_depth` RDMA Reads outstanding, the peer none.
    /// May sleep.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the peer is already gone, or whatever the connection manager returns.
    pub(crate) fn accept(&self, private_data: &[u8], initiator_depth: u8) -> Result {
        let mut raw = conn_param(private_data, RNR_FOR_EVER)?;
        raw.initiator_depth = initiator_depth;
        let id = self.id().as_raw();
        QueuePair::start_watchdog(&self.0);
        // SAFETY: The identifier is valid; the parameters are copied during the call.
        let accepted = unsafe {
            to_result(bindings::rdma_set_min_rnr_timer(id, RNR_TIMER))?;
            bindings::rdma_lock_handler(id);
            let status = bindings::rdma_accept(id, &mut raw);
            bindings::rdma_unlock_handler(id);
            to_result(status)
        };
        accepted.map_err(|error| match error.to_errno().unsigned_abs() {
            // siw, of a peer that is gone.
            bindings::ECONNRESET => EINVAL,
            _ => error,
        })
    }

    /// Ends the connection. The queue pair goes to the error state. A peer whose handshake is not
    /// over for the connection manager is told when the identifier is destroyed. May sleep.
    pub(crate) fn disconnect(&self) {
        // SAFETY: The identifier is valid. An error means that there is no connection to end.
        let _ = unsafe { bindings::rdma_disconnect(self.id().as_raw()) };
    }
}

impl<U: QpUser> Deref for QpOwner<U> {
    type Target = Arc<QueuePair<U>>;

    fn deref(&self) -> &Arc<QueuePair<U>> {
        &self.0
    }
}

/// Ends the connection, waits until every work request has completed, and destroys the hardware
/// objects. No handler runs any more afterwards, even if the device has refused to stop
/// ([`Pd::set_unstoppable`]). May sleep; must not be dropped in a completion handler or CM event
/// handler.
impl<U: QpUser> Drop for QpOwner<U> {
    fn drop(&mut self) {
        let qp = &*self.0;
        self.disconnect();
        qp.recv.lock().is_open = false;
        self.close_sq();
        let this = Arc::as_ptr(&self.0);
        // SAFETY: The work is part of a valid object. The watchdog does not run after this.
        let was_queued = unsafe {
            let work = <QueuePair<U> as HasWork<QueuePair<U>>>::raw_get_work(this.cast_mut());
            let work = Work::raw_get(work);
            bindings::disable_delayed_work_sync(container_of!(work, bindings::delayed_work, work))
        };
        if was_queued {
            // SAFETY: The reference that the queue had, which will not be used any more.
            drop(unsafe { Arc::from_raw(this) });
        }
        let hw = self.hw();
        // SAFETY: By the type's invariant; the queues have room for the drain's requests, and
        // nothing is posted after these.
        let (stopped, is_cxgb4) = unsafe {
            let qp = hw.qp.as_ptr();
            let device = (*qp).device;
            let stopped = to_result(bindings::rpcrdma_ib_modify_qp_err(qp));
            // The core would only warn then; a drain of the device's own may know what to do.
            if stopped.is_ok() || (*device).ops.drain_sq.is_some() {
                bindings::ib_drain_rq(qp);
                bindings::ib_drain_sq(qp);
            }
            let cxgb4 = bindings::rdma_driver_id_RDMA_DRIVER_CXGB4;
            (stopped, (*device).ops.driver_id == cxgb4)
        };
        hw.cq.disable();
        match stopped {
            // cxgb4 does not ask the device: it finds the queue pair terminated by the peer.
            Err(EINVAL) if is_cxgb4 => {}
            Err(error) => hw.pd.set_unstoppable(error),
            Ok(()) => {}
        }
        // No registrations are posted any longer, and requests of the peer find no working queue
        // pair.
        qp.mrs.destroy();
        let mut sq = qp.send.lock();
        let mut used = sq.posted.take();
        used.append(&mut sq.unsignalled);
        let mut contexts = sq.idle.take();
        drop(sq);
        // A device that has refused to stop may use pages even when the queue pair is destroyed:
        // they stay mapped, and are leaked. The RDMA core then warns about the MRs of its pool that
        // are in use.
        let is_lost = hw.pd.is_unstoppable();
        while let Some(mut ctxt) = used.pop_front() {
            qp.user.pages_put(&ctxt.data, ctxt.pages.len());
            if is_lost {
                core::mem::forget(core::mem::take(&mut ctxt.pages));
            } else {
                // SAFETY: The ranges were added with these objects. The queue pair was drained.
                unsafe { ctxt.rw.release(hw) };
            }
            contexts.push_back(ctxt);
        }
        let mut rq = qp.recv.lock();
        let receives = (rq.idle.take(), rq.posted.take());
        drop(rq);
        // SAFETY: The hardware objects are not used any more (invariant of `QueuePair`): the queues
        // are closed, no handler runs, and this is the owner, which is not borrowed.
        unsafe { ManuallyDrop::drop(&mut *qp.hw.get()) };
        // A device that has refused to stop may have used them until here.
        drop((contexts, receives));
    }
}

impl Drop for Hw {
    fn drop(&mut self) {
        // SAFETY: This is the identifier's queue pair (type invariant), which is not used any more.
        unsafe { bindings::rdma_destroy_qp(self.id.as_raw()) };
    }
}

/// Handles an event of a queue pair, in any context.
///
/// # Safety
///
/// Called by the provider only, for a queue pair whose user is `user`.
unsafe extern "C" fn qp_event_handler<U: QpUser>(
    event: *mut bindings::ib_event,
    user: *mut c_void,
) {
    // SAFETY: The event is valid during the call, and the user as long as there is the queue pair.
    let (event, user) = unsafe { ((*event).event, &*user.cast::<U>()) };
    match event {
        // No failure.
        bindings::ib_event_type_IB_EVENT_PATH_MIG
        | bindings::ib_event_type_IB_EVENT_COMM_EST
        | bindings::ib_event_type_IB_EVENT_SQ_DRAINED
        | bindings::ib_event_type_IB_EVENT_QP_LAST_WQE_REACHED => {}
        event => user.qp_event(event),
    }
}
