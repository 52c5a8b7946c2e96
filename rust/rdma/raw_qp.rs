// SPDX-License-Identifier: GPL-2.0

//! A queue pair: its capacities, posting on it, and draining it.

use super::{
    cm::{Bound, CmId},
    cqe::CqRef,
    device::NeedsMr,
    needs_mr::{needs_mr, transfer_requests},
    old_cq::Cq,
    receive::{ReceiveOwner, Receives},
    Pd,
};
use crate::{
    bindings,
    trace::{TraceCq, TraceQp},
};
use core::{num::NonZeroU32, ptr::NonNull};
use kernel::{
    error::to_result,
    new_spinlock,
    prelude::*,
    sync::{
        atomic::{Acquire, Atomic, Relaxed, Release},
        Arc, SpinLock,
    },
};

/// An error of the provider. `EPIPE` would say that nothing was posted, as the queue pair is being
/// drained.
fn by_provider(error: Error) -> Error {
    if error == EPIPE {
        EIO
    } else {
        error
    }
}

/// The capacities of a queue pair.
#[derive(Clone, Copy)]
pub(super) struct Capacities {
    /// Work requests in the send queue, including one for the drain.
    pub(super) send_requests: u32,
    /// Work requests in the receive queue, including one for the drain.
    pub(super) receive_requests: u32,
    /// RDMA Reads and Writes that this end may have outstanding. For these the RDMA core adds work
    /// requests to the send queue, and memory regions where the fabric needs them.
    pub(super) transfers: u32,
    /// Elements in the scatter/gather list of one work request of the send queue.
    pub(super) send_sge: u32,
}

impl Capacities {
    /// The actual capacity of the send queue of a connection with `id`, including the work requests
    /// that the RDMA core adds for transfers (`rdma_rw_init_qp()`).
    pub(super) fn send_queue(&self, id: &CmId<Bound>, pd: &Pd) -> u32 {
        let added = transfer_requests(id, self.transfers);
        let limit = pd.device().attributes().max_qp_wr;
        self.send_requests.saturating_add(added).min(limit)
    }
}

/// What one end asks of the other when it connects.
pub(crate) struct ConnectParameters<'a> {
    /// Octets for the peer (RFC 8797).
    pub(crate) private_data: &'a [u8],
    /// RDMA Reads by the peer that this end accepts at a time.
    pub(crate) responder_resources: u8,
    /// RDMA Reads that this end may have outstanding.
    pub(crate) initiator_depth: u8,
}

impl ConnectParameters<'_> {
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

/// A reliable connected queue pair.
///
/// # Invariants
///
/// `ptr` is a queue pair that this object owns. It is the queue pair of `id`, in the protection
/// domain `pd`, and its completions go to `cq`.
#[pin_data(PinnedDrop)]
pub(crate) struct Qp {
    ptr: NonNull<bindings::ib_qp>,
    /// Whether Receives may be posted.
    #[pin]
    receive_gate: SpinLock<bool>,
    /// Whether anybody but the owner of the send queue may post there.
    #[pin]
    send_gate: SpinLock<bool>,
    /// Whether a call of [`Self::post_receives`] is posting now.
    is_posting_receives: Atomic<bool>,
    /// Whether a call of [`Self::post_send_beside`] is posting now.
    is_posting: Atomic<bool>,
    /// As [`needs_mr`].
    needs_mr: NeedsMr,
    /// As [`Self::region_pages`].
    region_pages: NonZeroU32,
    // The queue pair is destroyed before these, in `drop`.
    id: CmId<Bound>,
    cq: Arc<Cq>,
    pd: Arc<Pd>,
}

// SAFETY: The RDMA core does its own locking; the gates are locks.
unsafe impl Send for Qp {}
// SAFETY: The RDMA core does its own locking; the gates are locks.
unsafe impl Sync for Qp {}

impl Qp {
    /// Creates the queue pair of `id`. Completions of both of its queues go to `cq`. May sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, or whatever the provider returns, such as `EINVAL` for queues that are too large.
    pub(super) fn new<'a>(
        id: CmId<Bound>,
        pd: &'a Arc<Pd>,
        cq: &'a Arc<Cq>,
        capacities: Capacities,
    ) -> impl PinInit<Self, Error> + 'a {
        try_pin_init!(Self {
            ptr: create(&id, pd, cq, capacities)?,
            receive_gate <- new_spinlock!(true, "rpcrdma_receive_gate"),
            send_gate <- new_spinlock!(true, "rpcrdma_send_gate"),
            is_posting_receives: Atomic::new(false),
            is_posting: Atomic::new(false),
            needs_mr: match capacities.transfers {
                0 => NeedsMr::NONE,
                // SAFETY: It was just created.
                _ => unsafe { needs_mr(*ptr, &id, pd) },
            },
            region_pages: pd.device().attributes().region_pages(),
            id,
            cq: cq.clone(),
            pd: pd.clone(),
        }? Error)
    }

    /// The identifier of the connection.
    pub(crate) fn id(&self) -> &CmId<Bound> {
        &self.id
    }

    /// The protection domain.
    pub(crate) fn pd(&self) -> &Arc<Pd> {
        &self.pd
    }

    /// Whether the RDMA core registers memory for transfers, or at least for RDMA Reads.
    pub(super) fn registers_transfers(&self) -> bool {
        self.needs_mr.reads
    }

    /// Whether it does so for RDMA Writes.
    pub(super) fn registers_writes(&self) -> bool {
        self.needs_mr.writes
    }

    /// As [`super::device::Attributes::region_pages`].
    pub(super) fn region_pages(&self) -> NonZeroU32 {
        self.region_pages
    }

    /// The number of the queue pair.
    pub(crate) fn number(&self) -> u32 {
        // SAFETY: `ptr` is a live QP (type invariant), and its number does not change.
        unsafe { self.ptr.as_ref().qp_num }
    }

    /// Asks the peer for a connection. May sleep.
    ///
    /// # Errors
    ///
    /// Whatever the connection manager returns at once; a later failure is reported as an event.
    pub(crate) fn connect(&self, parameters: &ConnectParameters<'_>) -> Result {
        let mut raw = parameters.to_raw()?;
        // SAFETY: The identifier is valid.
        to_result(unsafe { bindings::rdma_set_min_rnr_timer(self.id.as_raw(), RNR_TIMER) })?;
        // SAFETY: The identifier is valid. The call copies the parameters.
        to_result(unsafe { bindings::rdma_connect(self.id.as_raw(), &mut raw) })
    }

    /// Accepts the connection that the peer requested. May sleep.
    ///
    /// # Errors
    ///
    /// Whatever the connection manager returns, such as `EINVAL` if the peer is already gone.
    pub(super) fn accept(&self, parameters: &ConnectParameters<'_>) -> Result {
        let mut raw = parameters.to_raw()?;
        raw.rnr_retry_count = RNR_FOR_EVER;
        let id = self.id.as_raw();
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

    /// Tells the connection manager that a message has arrived from the peer, whose handshake is
    /// thus over. Does not sleep.
    pub(super) fn notify_established(&self) {
        // SAFETY: The identifier is valid, and was accepted. An error means that the connection is
        // established or ends, or that memory is short; the next message notifies it again. With
        // iWARP it needs no notification.
        let _ = unsafe {
            bindings::rdma_notify(self.id.as_raw(), bindings::ib_event_type_IB_EVENT_COMM_EST)
        };
    }

    /// Ends the connection. The queue pair goes to the error state. May sleep.
    pub(crate) fn disconnect(&self) {
        // SAFETY: The identifier is valid. An error means that there is no connection to end.
        let _ = unsafe { bindings::rdma_disconnect(self.id.as_raw()) };
    }

    /// Posts Receives of `owner`, unless the queue pair is being drained. Does not sleep.
    ///
    /// # Safety
    ///
    /// As for [`Receives::post`]; this is the owner's queue pair.
    ///
    /// # Errors
    ///
    /// `EPIPE` during or after the drain, or whatever the provider returns; and the Receives that
    /// were not posted.
    pub(super) unsafe fn post_receives<O: ReceiveOwner>(
        &self,
        owner: &O,
        receives: Receives<O>,
    ) -> Result<(), (Error, Receives<O>)> {
        let gate = self.receive_gate.lock();
        if !*gate {
            return Err((EPIPE, receives));
        }
        self.is_posting_receives.store(true, Relaxed);
        // SAFETY: `receives` belong to `owner`, whose queue pair this is (this function's
        // contract), and which waits for them before it is freed (contract of `ReceiveOwner`). The
        // open gate is held, so the drain has not begun, and will wait for what is posted now.
        let posted = unsafe { receives.post(owner, self.as_raw()) };
        self.is_posting_receives.store(false, Release); // Pairs with the drop of a Receive.
        posted.map_err(|(error, rest)| (by_provider(error), rest))
    }

    /// Waits until the call of [`Self::post_receives`] has ended by which a Receive was posted that
    /// has completed: the provider may have yet to look for one behind it. Whoever then frees the
    /// Receive needs a full barrier before. Does not sleep.
    pub(super) fn wait_for_posting_receives(&self) {
        // As in `wait_for_posting_beside`.
        if self.is_posting_receives.load(Relaxed) {
            drop(self.receive_gate.lock());
        }
    }

    /// Posts a chain on the send queue on behalf of somebody other than the queue's owner, unless
    /// the queue pair is being drained. Does not sleep.
    ///
    /// # Safety
    ///
    /// As for [`Self::post_send`], except that the caller need not own the send queue.
    ///
    /// # Errors
    ///
    /// `EPIPE` during or after the drain; otherwise as for [`Self::post_send`].
    pub(super) unsafe fn post_send_beside(&self, first: *const bindings::ib_send_wr) -> Result {
        let gate = self.send_gate.lock();
        if !*gate {
            return Err(EPIPE);
        }
        self.is_posting.store(true, Relaxed);
        // SAFETY: The requests of `first` stay valid during the call, and their memory until they
        // complete (this function's contract). The open gate is held, so the drain has not begun.
        let posted = unsafe { self.post_send(first) };
        self.is_posting.store(false, Release); // Pairs with `wait_for_posting_beside`.
        posted
    }

    /// The same for a chain whose completion waits with [`Self::wait_for_posting`].
    ///
    /// # Safety
    ///
    /// As for [`Self::post_send_beside`].
    ///
    /// # Errors
    ///
    /// As for [`Self::post_send_beside`].
    pub(super) unsafe fn post_send_gated(&self, first: *const bindings::ib_send_wr) -> Result {
        let gate = self.send_gate.lock();
        if !*gate {
            return Err(EPIPE);
        }
        // SAFETY: `first` is such a chain by this function's contract. The drain does not begin
        // while the gate is held.
        unsafe { self.post_send(first) }
    }

    /// Waits until the calls of [`Self::post_send_gated`] and of [`Self::post_send_beside`] that
    /// have begun have ended. Does not sleep.
    pub(super) fn wait_for_posting(&self) {
        drop(self.send_gate.lock());
    }

    /// Waits until the call of [`Self::post_send_beside`] has ended whose request has completed.
    /// Does not sleep.
    pub(super) fn wait_for_posting_beside(&self) {
        // Whoever sees the completion also sees what was stored before its request was posted: the
        // provider publishes a request with a barrier before its doorbell, or by a release.
        if self.is_posting.load(Acquire) {
            self.wait_for_posting();
        }
    }

    /// Posts a chain on the send queue. Does not sleep.
    ///
    /// # Safety
    ///
    /// The caller owns the send queue, so [`Self::drain`] is not running and has not run. `first`
    /// is a chain whose requests stay valid during the call; the memory that they refer to stays
    /// valid until they complete.
    ///
    /// # Errors
    ///
    /// Whatever the provider returns, but never `EPIPE`. Part of the chain may have been posted, so
    /// the connection has to end.
    pub(super) unsafe fn post_send(&self, first: *const bindings::ib_send_wr) -> Result {
        // SAFETY: `ptr` is a live QP (type invariant). The requests of `first` stay valid during
        // the call, and their memory until they complete (this function's contract).
        match unsafe { bindings::rpcrdma_ib_post_send(self.as_raw(), first) } {
            0 => Ok(()),
            errno => to_result(errno).map_err(by_provider),
        }
    }

    /// Ends the connection, closes both queues, and waits until every work request has completed.
    /// No handler of a completion runs any more when this returns, even if the device has refused
    /// to stop, as some do for good. May sleep; must not be called from a completion or CM event
    /// handler.
    ///
    /// # Safety
    ///
    /// The caller owns the send queue, and posts nothing there afterwards.
    pub(super) unsafe fn drain(&self) {
        self.disconnect();
        *self.receive_gate.lock() = false;
        *self.send_gate.lock() = false;
        // SAFETY: By the type's invariant; the queues have room for the drain's requests, and
        // nothing is posted behind these.
        let stopped = unsafe {
            let qp = self.as_raw();
            let stopped = to_result(bindings::rpcrdma_ib_modify_qp_err(qp));
            // The core would only warn then; a drain of the device's own may know what to do.
            if stopped.is_ok() || (*(*qp).device).ops.drain_sq.is_some() {
                bindings::ib_drain_rq(qp);
                bindings::ib_drain_sq(qp);
            }
            stopped
        };
        self.cq.disable();
        match stopped {
            // A provider did not ask the device: cxgb4 finds the queue pair terminated by the peer.
            Ok(()) | Err(EINVAL) => {}
            Err(error) => self.pd.set_unstoppable(error),
        }
    }

    /// The C pointer.
    pub(super) fn as_raw(&self) -> *mut bindings::ib_qp {
        self.ptr.as_ptr()
    }
}

impl TraceQp for Qp {
    fn queue(&self) -> u32 {
        // SAFETY: By the type's invariant; the queue pair keeps its completion queue.
        unsafe { CqRef::from_raw((*self.as_raw()).recv_cq) }.number()
    }
}

#[pinned_drop]
impl PinnedDrop for Qp {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: By the type's invariant this is the identifier's queue pair.
        unsafe { bindings::rdma_destroy_qp(self.id.as_raw()) };
    }
}

/// Gives the identifier a queue pair, its only one: nobody else has the identifier.
fn create(
    id: &CmId<Bound>,
    pd: &Pd,
    cq: &Cq,
    capacities: Capacities,
) -> Result<NonNull<bindings::ib_qp>> {
    let mut attr = bindings::ib_qp_init_attr {
        send_cq: cq.as_raw(),
        recv_cq: cq.as_raw(),
        cap: bindings::ib_qp_cap {
            // Where the RDMA core adds requests for transfers, it applies the limit to the sum.
            max_send_wr: capacities
                .send_requests
                .min(pd.device().attributes().max_qp_wr),
            max_recv_wr: capacities.receive_requests,
            max_send_sge: capacities.send_sge,
            max_recv_sge: 1,
            max_rdma_ctxs: capacities.transfers,
            ..Default::default()
        },
        sq_sig_type: bindings::ib_sig_type_IB_SIGNAL_REQ_WR,
        qp_type: bindings::ib_qp_type_IB_QPT_RC,
        event_handler: id.qp_event_handler(),
        qp_context: id.as_raw().cast(),
        port_num: id.port(),
        ..Default::default()
    };
    // SAFETY: Identifier, domain and completion queue are valid; the call rejects a domain of
    // another device. The attributes are only used during the call; the identifier, which is the
    // context of events, is destroyed after the queue pair.
    to_result(unsafe { bindings::rdma_create_qp(id.as_raw(), pd.as_raw(), &mut attr) })?;
    // SAFETY: The call has given the identifier a queue pair.
    NonNull::new(unsafe { (*id.as_raw()).qp }).ok_or(ENODEV)
}
