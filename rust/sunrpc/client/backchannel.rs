// SPDX-License-Identifier: GPL-2.0

//! Backward Calls (RFC 8167): requests that the peer sends and this end answers.
//!
//! A Call is copied out of its receive buffer, which does not wait for the service, so a burst of
//! Calls never uses up the posted Receives.

use super::xprt::Xprt;
use crate::{bindings, trace};
use kernel::{
    alloc::flags::__GFP_NOWARN, new_spinlock, page::PAGE_SIZE, prelude::*, sync::SpinLock,
};

/// The largest backward message in bytes. The service encodes up to a page regardless of the limit
/// it is given.
pub(super) const MESSAGE_SIZE: usize = PAGE_SIZE;

/// sunrpc's request for one backward Call that has arrived, with the memory of its messages.
#[repr(C)]
pub(super) struct BackchannelRqst {
    /// First, because sunrpc returns the request by this pointer.
    rqst: bindings::rpc_rqst,
    /// The transport's word for the Call, returned unchanged to `send_backward`.
    bc_cookie: u64,
    call: KVec<u8>,
    reply: KVec<u8>,
}

// SAFETY: A request is only handed between threads as a whole.
unsafe impl Send for BackchannelRqst {}

/// The requests that a transport has for backward Calls.
#[pin_data]
pub(crate) struct Backchannel {
    /// Without capacity until a session needs them.
    #[pin]
    idle: SpinLock<KVec<KBox<BackchannelRqst>>>,
}

impl Backchannel {
    /// Without requests.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            idle <- new_spinlock!(KVec::new(), "rpcrdma_backward"),
        })
    }

    /// Allocates `count` requests, unless there are some.
    pub(super) fn provision(&self, count: usize) -> Result {
        if self.is_served() {
            return Ok(());
        }
        let mut rqsts = KVec::with_capacity(count, GFP_KERNEL)?;
        for _ in 0..count {
            rqsts.push(BackchannelRqst::new()?, GFP_KERNEL)?;
        }
        let mut idle = self.idle.lock();
        if idle.capacity() == 0 {
            core::mem::swap(&mut *idle, &mut rqsts);
        }
        // If there are some now, these are freed outside the lock.
        drop(idle);
        Ok(())
    }

    /// Whether backward Calls are served at all.
    pub(crate) fn is_served(&self) -> bool {
        self.idle.lock().capacity() != 0
    }

    pub(super) fn give_back(&self, rqst: KBox<BackchannelRqst>) {
        // The capacity suffices: it was taken from here.
        let surplus = self.idle.lock().push_within_capacity(rqst);
        drop(surplus);
    }

    /// Passes a backward Call to the callback service; returns false if there is no service, or no
    /// request is left. `bc_cookie` is returned unchanged to
    /// [`ClientTransport::send_backward`](super::ClientTransport::send_backward). Process context;
    /// does not sleep.
    pub(crate) fn receive(&self, xprt: &Xprt, bc_cookie: u64, xid: u32, message: &[u8]) -> bool {
        let Some(mut rqst) = self.idle.lock().pop() else {
            return false;
        };
        if rqst.prepare(xprt, bc_cookie, xid, message).is_err() {
            self.give_back(rqst);
            return false;
        }
        trace::xprtrdma_cb_call(xprt.id(), xid);
        let rqst = KBox::into_raw(rqst);
        // SAFETY: The request is complete, and if it is queued `bc_free_rqst` returns it. Otherwise
        // this thread still owns it.
        unsafe {
            let is_queued = bindings::rpcrdma_bc_enqueue(rqst.cast());
            if !is_queued {
                self.give_back(KBox::from_raw(rqst));
            }
            is_queued
        }
    }
}

impl BackchannelRqst {
    fn new() -> Result<KBox<Self>> {
        let flags = GFP_KERNEL | __GFP_NOWARN;
        Ok(KBox::new(
            Self {
                rqst: bindings::rpc_rqst::default(),
                bc_cookie: 0,
                call: KVec::with_capacity(MESSAGE_SIZE, flags)?,
                reply: KVec::from_elem(0, MESSAGE_SIZE, flags)?,
            },
            GFP_KERNEL,
        )?)
    }

    /// Sets up the request for one Call.
    fn prepare(&mut self, xprt: &Xprt, bc_cookie: u64, xid: u32, message: &[u8]) -> Result {
        if message.len() > self.call.capacity() {
            return Err(EMSGSIZE);
        }
        self.call.clear();
        self.call.extend_from_slice(message, GFP_ATOMIC)?;
        let length = u32::try_from(message.len())?;
        self.bc_cookie = bc_cookie;
        let rqst = &mut self.rqst;
        *rqst = bindings::rpc_rqst::default();
        rqst.rq_xprt = xprt.as_raw();
        rqst.rq_xid = xid.to_be();
        // Only forward Calls take credits (RFC 8167 section 4). With rq_cong set,
        // xprt_request_enqueue_transmit() queues it before requests that wait for a credit.
        rqst.rq_cong = 1;
        rqst.rq_bc_pa_state = usize::try_from(bindings::RPC_BC_PA_IN_USE).map(|bit| 1 << bit)?;
        rqst.rq_private_buf.len = length;
        rqst.rq_rcv_buf.head[0].iov_base = self.call.as_mut_ptr().cast();
        rqst.rq_rcv_buf.head[0].iov_len = message.len();
        rqst.rq_rcv_buf.len = length;
        rqst.rq_rcv_buf.buflen = length;
        rqst.rq_snd_buf.head[0].iov_base = self.reply.as_mut_ptr().cast();
        rqst.rq_snd_buf.head[0].iov_len = self.reply.len();
        rqst.rq_snd_buf.buflen = u32::try_from(self.reply.len())?;
        Ok(())
    }
}

/// Whether a request is a backward one.
///
/// # Safety
///
/// `rqst` belongs to this module.
pub(super) unsafe fn is_backward(rqst: *const bindings::rpc_rqst) -> bool {
    // SAFETY: The request is valid; the bit is set before sunrpc sees a backward request, and does
    // not change.
    unsafe { (*rqst).rq_bc_pa_state >> bindings::RPC_BC_PA_IN_USE & 1 != 0 }
}

/// The `bc_cookie` with which the Call of a backward request arrived.
///
/// # Safety
///
/// `rqst` is a backward request of this module.
pub(super) unsafe fn bc_cookie(rqst: *const bindings::rpc_rqst) -> u64 {
    // SAFETY: The request is the first member of a `BackchannelRqst`, which only `prepare` changes.
    unsafe { (*rqst.cast::<BackchannelRqst>()).bc_cookie }
}
