// SPDX-License-Identifier: GPL-2.0

//! The receive queue of a queue pair. A Receive belongs to the device from the time that it is
//! posted until it completes, then to the owner of its [`RecvBox`].

use super::{
    cq::{Complete, CqContext, Cqe, RemoteInvalidation, WcStatus},
    dma::DmaBuffer,
    list::{Link, Linked, List},
    qp::{QpFailure, QpUser, QueuePair},
    send::SqError,
    Pd,
};
use crate::{
    bindings::{self, OwnedMessage},
    trace,
};
use core::{
    ffi::c_void,
    mem::{offset_of, ManuallyDrop},
    ptr::{null_mut, NonNull},
};
use kernel::{
    alloc::Flags,
    dma::DataDirection,
    error::to_result,
    prelude::*,
    sync::{Arc, SpinLockGuard},
};

/// So many Receives are posted together, by a client for Replies and by a server for what it has
/// granted: ringing the doorbell costs the same for one as for many. A server keeps as many idle
/// ones.
pub(crate) const RECV_BATCH: u32 = 8;

/// A buffer for one message, and the work request that posts it.
///
/// # Invariants
///
/// The first `length` bytes of `buffer` are a message. While the Receive is not posted, they belong
/// to the CPU.
pub(crate) struct RecvCtxt<U: QpUser> {
    link: Link<Self>,
    cqe: Cqe<Self>,
    wr: bindings::ib_recv_wr,
    sge: bindings::ib_sge,
    buffer: DmaBuffer,
    length: usize,
    cid: u32,
    data: U::Recv,
}

/// A Receive that is not posted. Dropping it frees it; [`QueuePair::put_recv`] keeps it.
pub(crate) type RecvBox<U> = KBox<RecvCtxt<U>>;

// SAFETY: A Receive that is not posted has one owner. Its pointers lead into itself.
unsafe impl<U: QpUser> Send for RecvCtxt<U> {}

// SAFETY: Always the field `link`.
unsafe impl<U: QpUser> Linked for RecvCtxt<U> {
    fn link(&self) -> &Link<Self> {
        &self.link
    }
}

/// The state of a receive queue.
///
/// # Invariants
///
/// The device may write to the Receives on `posted`, which are not touched until they have
/// completed, or until the queue pair is destroyed.
///
/// `is_open` goes from true to false once. Nothing is posted while it is false.
pub(super) struct RecvQueue<U: QpUser> {
    pub(super) is_open: bool,
    pub(super) idle: List<RecvCtxt<U>>,
    pub(super) posted: List<RecvCtxt<U>>,
    /// How many exist, until the connection ends.
    made: u32,
}

impl<U: QpUser> RecvQueue<U> {
    /// An open queue without Receives.
    pub(super) const fn new() -> Self {
        Self {
            is_open: true,
            idle: List::new(),
            posted: List::new(),
            made: 0,
        }
    }
}

impl<U: QpUser> RecvCtxt<U> {
    /// Allocates a buffer of `size` bytes.
    fn new(pd: &Arc<Pd>, size: u32, cid: u32, flags: Flags) -> Result<RecvBox<U>> {
        let buffer = DmaBuffer::new(pd, size, DataDirection::FromDevice, flags)?;
        // INVARIANT: There is no message.
        let ctxt = Self {
            link: Link::new(),
            cqe: Cqe::new(),
            wr: bindings::ib_recv_wr::default(),
            sge: buffer.sge(),
            buffer,
            length: 0,
            cid,
            data: U::Recv::default(),
        };
        Ok(KBox::new(ctxt, flags)?)
    }

    /// The bytes of the message.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.buffer.prefix(self.length)
    }

    /// What the user keeps with the message, until [`QueuePair::put_recv`].
    pub(crate) fn data(&self) -> &U::Recv {
        &self.data
    }

    /// The bytes of the message, and what the user keeps with it.
    pub(crate) fn with_data(&mut self) -> (&[u8], &mut U::Recv) {
        (self.buffer.prefix(self.length), &mut self.data)
    }

    /// Identifies the message in trace events.
    pub(crate) fn cid(&self) -> u32 {
        self.cid
    }
}

impl<U: QpUser> QueuePair<U> {
    /// Posts Receives until there are `target`, or as many as the queue holds, unless fewer than
    /// `batch` are missing. Makes new ones only if that many are missing after all idle ones are
    /// posted: the Receive of the Call that is being answered is about to be idle. May sleep if
    /// `flags` allow it.
    ///
    /// # Errors
    ///
    /// [`SqError::NoMem`]: those for which there was memory are posted. [`SqError::Closed`].
    pub(crate) fn post_recvs(&self, target: u32, batch: u32, flags: Flags) -> Result<(), SqError> {
        let target = target.min(self.caps.max_recv_wr);
        let mut rq = self.recv.lock();
        let missing = target.saturating_sub(rq.posted.len());
        if missing < batch {
            return Ok(());
        }
        let mut made = Ok(());
        if missing.saturating_sub(rq.idle.len()) >= batch {
            drop(rq);
            made = self.make_recvs(target, flags);
            rq = self.recv.lock();
        }
        // Others may have posted meanwhile.
        let missing = target.saturating_sub(rq.posted.len());
        self.post_idle(rq, missing)?;
        made
    }

    /// Makes Receives until `target` are posted or idle. Several threads may do so at a time.
    ///
    /// # Errors
    ///
    /// [`SqError::NoMem`], [`SqError::Closed`].
    fn make_recvs(&self, target: u32, flags: Flags) -> Result<(), SqError> {
        let mut rq = self.recv.lock();
        while rq.posted.len().saturating_add(rq.idle.len()) < target {
            if !rq.is_open {
                return Err(SqError::Closed);
            }
            // SAFETY: The queue is open, so the hardware objects exist (type invariant).
            let pd = unsafe { self.hw() }.pd.clone();
            drop(rq);
            let ctxt = RecvCtxt::new(&pd, self.caps.recv_size, self.next_cid(), flags);
            let ctxt = ctxt.map_err(|_| SqError::NoMem)?;
            rq = self.recv.lock();
            rq.made = rq.made.saturating_add(1);
            rq.idle.push_front(ctxt);
        }
        Ok(())
    }

    /// Puts a Receive on `idle` of `rq`, the queue of this queue pair, or returns it to be freed
    /// after unlocking.
    fn put_idle(&self, rq: &mut RecvQueue<U>, mut ctxt: RecvBox<U>) -> Option<RecvBox<U>> {
        // SAFETY: The queue is open, so the hardware objects exist (type invariant).
        let is_own = rq.is_open && Arc::ptr_eq(unsafe { &self.hw().pd }, ctxt.buffer.pd());
        if !is_own || (!U::IS_CLIENT && rq.idle.len() >= RECV_BATCH) {
            rq.made = rq.made.saturating_sub(1);
            return Some(ctxt);
        }
        // The CPU may have written to the message.
        ctxt.buffer.sync_for_device(ctxt.length);
        ctxt.length = 0;
        rq.idle.push_front(ctxt);
        None
    }

    /// Keeps a Receive to be posted again, without what the user has kept with it. Does not sleep.
    pub(crate) fn put_recv(&self, mut ctxt: RecvBox<U>) {
        ctxt.data = U::Recv::default();
        let mut rq = self.recv.lock();
        let surplus = self.put_idle(&mut rq, ctxt);
        drop(rq);
        drop(surplus);
    }

    /// How many Receives are posted, and how many exist.
    pub(crate) fn receives(&self) -> (u32, u32) {
        let rq = self.recv.lock();
        (rq.posted.len(), rq.made)
    }

    /// Posts up to `count` idle Receives, and unlocks the queue.
    ///
    /// # Errors
    ///
    /// [`SqError::Closed`], also if the provider refuses them, of which the user is notified: some
    /// may be posted then.
    fn post_idle(
        &self,
        mut rq: SpinLockGuard<'_, RecvQueue<U>>,
        count: u32,
    ) -> Result<(), SqError> {
        if !rq.is_open {
            return Err(SqError::Closed);
        }
        let (mut first, mut batch) = (null_mut(), List::new());
        while batch.len() < count {
            let Some(mut ctxt) = rq.idle.pop_front() else {
                break;
            };
            ctxt.wr = bindings::ib_recv_wr {
                next: first,
                __bindgen_anon_1: bindings::ib_recv_wr__bindgen_ty_1 {
                    wr_cqe: ManuallyDrop::new(RecvCtxt::wr_cqe(&*ctxt)),
                },
                sg_list: &raw mut ctxt.sge,
                num_sge: 1,
            };
            if U::IS_CLIENT {
                trace::xprtrdma_post_recv(self.cq_number, ctxt.cid);
            } else {
                trace::svcrdma_post_recv(self.cq_number, ctxt.cid);
            }
            first = &raw mut ctxt.wr;
            // In the order of the chain.
            batch.push_front(ctxt);
        }
        if batch.is_empty() {
            return Ok(());
        }
        if U::IS_CLIENT {
            trace::xprtrdma_post_recvs(self.cq_number, usize::try_from(batch.len()).unwrap_or(0));
        }
        rq.posted.append(&mut batch);
        // SAFETY: The queue is open, so the hardware objects exist. The Receives are on `posted`,
        // from which only their completions take them.
        let status = unsafe { bindings::rpcrdma_ib_post_recv(self.hw().qp.as_ptr(), first) };
        if let Err(error) = to_result(status) {
            rq.is_open = false;
            drop(rq);
            if U::IS_CLIENT {
                trace::xprtrdma_post_recvs_err(self.cq_number, error);
            } else {
                trace::svcrdma_rq_post_err(self.cq_number, error);
            }
            self.user.qp_failed(QpFailure::PostFailed);
            return Err(SqError::Closed);
        }
        Ok(())
    }
}

impl<U: QpUser> CqContext<'_, U> {
    /// Posts a Receive again, on a client once there are [`RECV_BATCH`]. Does not sleep.
    pub(crate) fn repost(&mut self, ctxt: RecvBox<U>) {
        let qp = self.qp();
        let mut rq = qp.recv.lock();
        let surplus = qp.put_idle(&mut rq, ctxt);
        let room = qp.caps.max_recv_wr.saturating_sub(rq.posted.len());
        let batch = if U::IS_CLIENT { RECV_BATCH } else { 1 };
        if rq.idle.len().min(room) >= batch {
            // If this fails, the connection ends.
            let _ = qp.post_idle(rq, batch);
        } else {
            drop(rq);
        }
        drop(surplus);
    }
}

// SAFETY: The field has this type. Only `post_idle` posts Receives, on a `QueuePair<U>`.
unsafe impl<U: QpUser> Complete for RecvCtxt<U> {
    type User = U;

    const OFFSET: usize = offset_of!(Self, cqe);

    unsafe fn complete(this: NonNull<Self>, cx: &mut CqContext<'_, U>, wc: &bindings::ib_wc) {
        let qp = cx.qp();
        let taken = qp.recv.lock().posted.take_object(this);
        let Some(mut ctxt) = taken else {
            return;
        };
        if U::IS_CLIENT {
            trace::xprtrdma_wc_receive(qp.cq_number, ctxt.cid, wc);
        } else {
            trace::svcrdma_wc_recv(qp.cq_number, ctxt.cid, wc);
        }
        if let Some(status) = WcStatus::failure(wc) {
            return qp.user.qp_failed(status.into());
        }
        // An RDMA Write With Immediate has written nothing to the Receive's buffer.
        if wc.opcode != bindings::ib_wc_opcode_IB_WC_RECV {
            return qp.user.qp_failed(QpFailure::NotASend);
        }
        let length = usize::try_from(wc.byte_len).unwrap_or(0);
        // INVARIANT: The device has written that many bytes.
        ctxt.length = length.min(ctxt.buffer.len());
        ctxt.buffer.sync_for_cpu(ctxt.length);
        // SAFETY: This is a successful Receive completion of this queue pair, and is being handled
        // until the end of this call.
        let inv = unsafe { RemoteInvalidation::from_completion(qp, wc) };
        U::received(cx, ctxt, inv);
    }
}

// SAFETY: The bytes are in a buffer that the Receive owns, which has at least that many.
unsafe impl<U: QpUser> OwnedMessage for RecvBox<U> {
    type Data = U::Recv;

    fn memory(&mut self) -> (NonNull<u8>, usize) {
        let length = self.length;
        let bytes = self.buffer.bytes();
        (NonNull::from(&mut *bytes).cast(), length.min(bytes.len()))
    }

    fn with_data(&mut self) -> (&[u8], &mut U::Recv) {
        RecvCtxt::with_data(self)
    }

    fn into_raw(self) -> NonNull<c_void> {
        NonNull::from(KBox::leak(self)).cast()
    }

    unsafe fn from_raw(raw: NonNull<c_void>) -> Self {
        // SAFETY: `raw` came from `into_raw`, which leaked the box of a Receive, and is not used
        // again (this function's contract).
        unsafe { KBox::from_raw(raw.as_ptr().cast()) }
    }
}
