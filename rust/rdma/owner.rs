// SPDX-License-Identifier: GPL-2.0

//! The hardware objects of a queue pair, from their creation to the drain.

use super::{
    cm::{Bound, CmId},
    cq::{Cq, CqContext},
    device::NeedsMr,
    list::List,
    mr_slots::MrSlots,
    qp::{QpCaps, QpUser, QueuePair},
    recv::RecvQueue,
    rw::{needs_mr, transfer_requests},
    send::SendQueue,
    send_ctxt::SendCtxt,
    Pd,
};
use crate::bindings;
use core::{cell::UnsafeCell, mem::ManuallyDrop, num::NonZeroU32, ops::Deref, ptr::NonNull};
use kernel::{
    container_of,
    dma::DataDirection,
    error::to_result,
    new_condvar, new_delayed_work, new_spinlock,
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
    /// As [`super::device::Attributes::region_pages`].
    pub(super) region_pages: NonZeroU32,
    /// For which ranges the RDMA core registers memory.
    needs_mr: NeedsMr,
}

/// What one end asks of the other when it connects.
pub(crate) struct ConnectParam<'a> {
    /// Octets for the peer (RFC 8797).
    pub(crate) private_data: &'a [u8],
    /// RDMA Reads by the peer that this end accepts at a time.
    pub(crate) responder_resources: u8,
    /// RDMA Reads that this end may have outstanding.
    pub(crate) initiator_depth: u8,
}

impl ConnectParam<'_> {
    /// The C structure, which points to the private data.
    fn to_raw(&self) -> Result<bindings::rdma_conn_param> {
        Ok(bindings::rdma_conn_param {
            private_data: self.private_data.as_ptr().cast(),
            private_data_len: u8::try_from(self.private_data.len()).map_err(|_| EINVAL)?,
            responder_resources: self.responder_resources,
            initiator_depth: self.initiator_depth,
            retry_count: RETRIES,
            rnr_retry_count: RNR_RETRIES,
            ..Default::default()
        })
    }
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

/// How often this end repeats lost packets (a field of the fabric with a maximum of 7): a lost
/// packet is not a lost connection.
const RETRIES: u8 = 6;

/// The longest time after which this end repeats what the peer of an accepted connection does not
/// acknowledge: 4.3 seconds (4.096 us * 2^n), more than fabrics need. The peer's connect request
/// asks for one, which can be 2.4 hours: so long a peer that is gone would keep what was sent to
/// it.
const MAX_ACK_TIMEOUT: u8 = 20;

impl<U: QpUser> CqContext<'_, U> {
    /// Tells the connection manager that a message has arrived from the peer, whose handshake is
    /// thus over: the datagram that it waits for may be lost. Does not sleep.
    pub(crate) fn notify_established(&self) {
        // SAFETY: A completion is being handled, so the identifier is valid; it was accepted. An
        // error means that the connection is established or ends, or that memory is short; the next
        // message notifies it again. With iWARP it needs no notification.
        let _ = unsafe {
            bindings::rdma_notify(
                self.qp().hw().id.as_raw(),
                bindings::ib_event_type_IB_EVENT_COMM_EST,
            )
        };
    }
}

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
        let rdma_ctxs = caps.max_rdma_ctxs(&id, pd);
        let limit = pd.device().attributes().max_qp_wr;
        // The work queues have an entry for the drain each.
        let sq_size = (caps.send_entries)
            .saturating_add(transfer_requests(&id, rdma_ctxs))
            .saturating_add(1)
            .min(limit);
        let cq_size = sq_size.saturating_add(caps.receives).saturating_add(1);
        let sq_entries = sq_size.saturating_sub(1);
        let cq = Cq::new(pd, cq_size, memory.as_mut_ptr())?;
        let hw = Hw::new(id, pd, cq, caps, rdma_ctxs)?;
        // SAFETY: `hw.qp` is a live QP (invariant of `Hw`), and its number does not change.
        let number = unsafe { hw.qp.as_ref().qp_num };
        let mrs = if hw.needs_mr.reads {
            rdma_ctxs
        } else {
            u32::MAX
        };
        // INVARIANT: `hw` is moved into the object that is returned.
        let qp = memory.pin_init_with(try_pin_init!(QueuePair {
            send <- new_spinlock!(SendQueue::new(sq_entries, mrs), "rpcrdma_send"),
            recv <- new_spinlock!(RecvQueue::new(pd.clone()), "rpcrdma_recv"),
            mrs <- MrSlots::new(caps.slots),
            returned <- new_condvar!("rpcrdma_returned"),
            n_pending: Atomic::new(0),
            cid: Atomic::new(0),
            watchdog <- new_delayed_work!(),
            caps: *caps,
            sq_entries,
            needs_mr: hw.needs_mr,
            region_pages: hw.region_pages,
            number,
            cq_number: hw.cq.number(),
            user,
            hw: UnsafeCell::new(ManuallyDrop::new(hw)),
        }? Error))?;
        let owner = Self(qp.into());
        owner.make_sends(pd, caps.first_sends)?;
        Ok(owner)
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

    /// Asks the peer for a connection. May sleep.
    ///
    /// # Errors
    ///
    /// Whatever the connection manager returns at once; a later failure is reported as an event.
    pub(crate) fn connect(&self, parameters: &ConnectParam<'_>) -> Result {
        let mut raw = parameters.to_raw()?;
        // SAFETY: The identifier is valid.
        to_result(unsafe { bindings::rdma_set_min_rnr_timer(self.id().as_raw(), RNR_TIMER) })?;
        // SAFETY: The identifier is valid. The call copies the parameters.
        to_result(unsafe { bindings::rdma_connect(self.id().as_raw(), &mut raw) })
    }

    /// Accepts the connection that the peer requested. May sleep.
    ///
    /// # Errors
    ///
    /// Whatever the connection manager returns, such as `EINVAL` if the peer is already gone.
    pub(crate) fn accept(&self, parameters: &ConnectParam<'_>) -> Result {
        let mut raw = parameters.to_raw()?;
        raw.rnr_retry_count = RNR_FOR_EVER;
        let id = self.id().as_raw();
        // SAFETY: The identifier is valid; the parameters are copied during the calls, and the
        // attributes are only written to.
        unsafe {
            to_result(bindings::rdma_set_min_rnr_timer(id, RNR_TIMER))?;
            // What the peer has asked for; 0 on iWARP, whose TCP has its own.
            let mut wanted = bindings::ib_qp_attr {
                qp_state: bindings::ib_qp_state_IB_QPS_RTS,
                ..Default::default()
            };
            // If this fails, so does `rdma_accept`.
            let _ = bindings::rdma_init_qp_attr(id, &mut wanted, &mut 0);
            if wanted.timeout > MAX_ACK_TIMEOUT {
                to_result(bindings::rdma_set_ack_timeout(id, MAX_ACK_TIMEOUT))?;
            }
            bindings::rdma_lock_handler(id);
            let status = bindings::rdma_accept(id, &mut raw);
            bindings::rdma_unlock_handler(id);
            to_result(status)
        }
    }

    /// Ends the connection. The queue pair goes to the error state. May sleep.
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
/// objects. No handler runs any more afterwards, even if the device has refused to stop, as some do
/// for good. May sleep; must not be dropped in a completion handler or CM event handler.
impl<U: QpUser> Drop for QpOwner<U> {
    fn drop(&mut self) {
        let qp = &*self.0;
        self.disconnect();
        let pd = qp.recv.lock().pd.take();
        qp.close();
        self.stop_watchdog();
        let hw = self.hw();
        // SAFETY: By the type's invariant; the queues have room for the drain's requests, and
        // nothing is posted after these.
        let stopped = unsafe {
            let qp = hw.qp.as_ptr();
            let stopped = to_result(bindings::rpcrdma_ib_modify_qp_err(qp));
            // The core would only warn then; a drain of the device's own may know what to do.
            if stopped.is_ok() || (*(*qp).device).ops.drain_sq.is_some() {
                bindings::ib_drain_rq(qp);
                bindings::ib_drain_sq(qp);
            }
            stopped
        };
        hw.cq.disable();
        match stopped {
            // A provider did not ask the device: cxgb4 finds the queue pair terminated by the peer.
            Ok(()) | Err(EINVAL) => {}
            Err(error) => hw.pd.set_unstoppable(error),
        }
        // Nobody posts registrations any longer, and requests of the peer find no working queue
        // pair.
        qp.mrs.destroy();
        qp.drop_pending();
        let contexts = self.take_contexts();
        let receives = qp.recv.lock().take_all();
        // SAFETY: Nobody uses the hardware objects any more (invariant of `QueuePair`): the queues
        // are closed, no context is lent, no handler runs, and this is the owner.
        unsafe { ManuallyDrop::drop(&mut *qp.hw.get()) };
        // A device that has refused to stop may have used them until here.
        drop((contexts, receives, pd));
    }
}

impl<U: QpUser> QpOwner<U> {
    /// Has the watchdog not run again, and waits until it does not.
    fn stop_watchdog(&self) {
        let this = Arc::as_ptr(&self.0);
        // SAFETY: The work is part of a valid object.
        let was_queued = unsafe {
            let work = <QueuePair<U> as HasWork<QueuePair<U>>>::raw_get_work(this.cast_mut());
            let work = Work::raw_get(work);
            bindings::disable_delayed_work_sync(container_of!(work, bindings::delayed_work, work))
        };
        if was_queued {
            // SAFETY: The reference that the queue had, which will not be used any more.
            drop(unsafe { Arc::from_raw(this) });
        }
    }

    /// Takes all contexts, once none is lent, and unmaps what they have mapped.
    fn take_contexts(&self) -> List<SendCtxt<U>> {
        let qp = &*self.0;
        let mut sq = qp.send.lock();
        while sq.lent != 0 {
            qp.returned.wait(&mut sq);
        }
        let mut used = sq.posted.take();
        used.append(&mut sq.unsignalled);
        let mut taken = sq.idle.take();
        drop(sq);
        // A device that does not even take the command to stop may still write: pages are lost. The
        // RDMA core wants its MRs back all the same.
        let is_lost = self.pd().is_unstoppable();
        while let Some(mut ctxt) = used.pop_front() {
            // SAFETY: No completion is handled any more. The hardware objects exist.
            unsafe { ctxt.give_up(qp, is_lost) };
            taken.push_back(ctxt);
        }
        taken
    }
}

impl Hw {
    /// Whether each range takes an MR of the RDMA core: RDMA Reads if it comes from the device.
    pub(super) fn registers(&self, direction: DataDirection) -> bool {
        if direction == DataDirection::FromDevice {
            self.needs_mr.reads
        } else {
            self.needs_mr.writes
        }
    }

    /// Gives the identifier a queue pair, its only one: nobody else has the identifier.
    fn new(id: CmId<Bound>, pd: &Arc<Pd>, cq: Cq, caps: &QpCaps, rdma_ctxs: u32) -> Result<Self> {
        let mut attr = bindings::ib_qp_init_attr {
            send_cq: cq.as_raw(),
            recv_cq: cq.as_raw(),
            cap: bindings::ib_qp_cap {
                // Where the RDMA core adds requests for ranges, it applies the limit to the sum.
                max_send_wr: caps
                    .send_entries
                    .saturating_add(1)
                    .min(pd.device().attributes().max_qp_wr),
                max_recv_wr: caps.receives.saturating_add(1),
                max_send_sge: caps.send_sge,
                max_recv_sge: 1,
                max_rdma_ctxs: rdma_ctxs,
                ..Default::default()
            },
            sq_sig_type: bindings::ib_sig_type_IB_SIGNAL_REQ_WR,
            qp_type: bindings::ib_qp_type_IB_QPT_RC,
            event_handler: id.qp_event_handler(),
            qp_context: id.as_raw().cast(),
            port_num: id.port(),
            ..Default::default()
        };
        // SAFETY: Identifier, PD and CQ are valid; the call rejects a PD of another device. The
        // attributes are only used during the call; the identifier, which is the context of events,
        // is destroyed after the queue pair.
        to_result(unsafe { bindings::rdma_create_qp(id.as_raw(), pd.as_raw(), &mut attr) })?;
        // SAFETY: The call has given the identifier a queue pair.
        let qp = NonNull::new(unsafe { (*id.as_raw()).qp }).ok_or(ENODEV)?;
        let needs_mr = match rdma_ctxs {
            0 => NeedsMr::NONE,
            // SAFETY: This is the queue pair of the identifier.
            _ => unsafe { needs_mr(qp, &id, pd) },
        };
        // INVARIANT: The queue pair was just created with these.
        Ok(Self {
            qp,
            needs_mr,
            region_pages: pd.device().attributes().region_pages(),
            cq,
            id,
            pd: pd.clone(),
        })
    }
}

impl Drop for Hw {
    fn drop(&mut self) {
        // SAFETY: This is the identifier's queue pair (type invariant), which nobody uses.
        unsafe { bindings::rdma_destroy_qp(self.id.as_raw()) };
    }
}
