// SPDX-License-Identifier: GPL-2.0

//! Backward Calls (RFC 8167): requests that the peer sends and this end answers.
//!
//! A Call is copied out of its receive buffer, which can go back to the device at once; a burst
//! of Calls therefore never uses up the posted Receives.

use super::{
    class::ClientTransport,
    rqst::Rqst,
    xprt::{CountedXprt, Xprt},
};
use crate::{bindings, trace};
use kernel::{
    alloc::flags::__GFP_NOWARN, ffi::c_int, new_spinlock, page::PAGE_SIZE, prelude::*,
    sync::SpinLock,
};

/// The largest backward message in bytes. The service encodes up to a page, whatever it is told.
const MESSAGE_SIZE: usize = PAGE_SIZE;

/// One backward request.
#[repr(C)]
struct BackwardCall {
    /// First, because sunrpc gives the request back by this pointer.
    rqst: bindings::rpc_rqst,
    /// The connection that the Call came on, by the transport's number for it.
    connection: u64,
    call: KVec<u8>,
    reply: KVec<u8>,
}

// SAFETY: A request is handed between threads whole.
unsafe impl Send for BackwardCall {}

/// The backward requests of a transport.
#[pin_data]
pub(crate) struct BackwardCalls {
    #[pin]
    pool: SpinLock<Pool>,
}

struct Pool {
    idle: KVec<KBox<BackwardCall>>,
    /// Requests that exist, idle or not.
    allocated: usize,
    /// Requests that may exist; zero without a back channel.
    limit: usize,
}

impl BackwardCalls {
    /// No back channel yet.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            pool <- new_spinlock!(Pool {
                idle: KVec::new(),
                allocated: 0,
                limit: 0,
            }, "rpcrdma_backward"),
        })
    }

    /// Lets `limit` requests exist, and makes those that do not.
    fn provision(&self, limit: usize) -> Result {
        let mut idle = KVec::with_capacity(limit, GFP_KERNEL)?;
        let mut pool = self.pool.lock();
        if pool.limit == 0 {
            pool.limit = limit;
            core::mem::swap(&mut pool.idle, &mut idle);
        }
        let mut missing = pool.limit.saturating_sub(pool.allocated);
        pool.allocated = pool.limit;
        drop(pool);
        while missing > 0 {
            let made = BackwardCall::new(GFP_KERNEL);
            let Ok(call) = made else {
                let mut pool = self.pool.lock();
                pool.allocated = pool.allocated.saturating_sub(missing);
                return Err(ENOMEM);
            };
            self.give_back(call);
            missing = missing.saturating_sub(1);
        }
        Ok(())
    }

    /// Frees up to `count` idle requests, and ends the service with the last one.
    fn retire(&self, count: usize) {
        for _ in 0..count {
            let mut pool = self.pool.lock();
            let call = pool.idle.pop();
            if call.is_some() {
                pool.allocated = pool.allocated.saturating_sub(1);
            }
            if pool.allocated == 0 {
                pool.limit = 0;
            }
            // Freed outside the lock.
            drop(pool);
            if call.is_none() {
                break;
            }
        }
    }

    /// Whether backward Calls are served at all.
    pub(crate) fn is_served(&self) -> bool {
        self.pool.lock().limit != 0
    }

    fn take(&self) -> Option<KBox<BackwardCall>> {
        self.pool.lock().idle.pop()
    }

    fn give_back(&self, call: KBox<BackwardCall>) {
        let mut pool = self.pool.lock();
        let surplus = pool.idle.push_within_capacity(call).err();
        if surplus.is_some() {
            pool.allocated = pool.allocated.saturating_sub(1);
        }
        drop(pool);
    }

    /// Hands a backward Call to the callback service; false if there is none, or no request left.
    /// `connection` is what [`BackwardReply::connection`](super::BackwardReply::connection) returns
    /// for its Reply. Process context; does not sleep.
    pub(crate) fn receive(&self, xprt: &Xprt, connection: u64, xid: u32, message: &[u8]) -> bool {
        // sunrpc takes a reference for the request, which may come back at once: it is not to be the
        // last one here, where the transport's end would wait for this completion.
        let Some(counted) = CountedXprt::new(xprt) else {
            return false;
        };
        let is_received = self.enqueue(&counted, connection, xid, message);
        counted.put_deferred();
        is_received
    }

    fn enqueue(&self, xprt: &Xprt, connection: u64, xid: u32, message: &[u8]) -> bool {
        // SAFETY: The transport is valid. The pointer is only compared; sunrpc looks again.
        if unsafe { core::ptr::read_volatile(&raw const (*xprt.as_raw()).bc_serv) }.is_null() {
            return false;
        }
        let Some(mut call) = self.take() else {
            return false;
        };
        if call.prepare(xprt, connection, xid, message).is_err() {
            self.give_back(call);
            return false;
        }
        trace::xprtrdma_cb_call(xprt, xid);
        let call = KBox::into_raw(call);
        // SAFETY: The request is complete, and comes back through `bc_free_rqst`, before which
        // sunrpc keeps a reference to the transport: it gets one, as the caller has one.
        unsafe { bindings::xprt_enqueue_bc_request(&raw mut (*call).rqst) };
        true
    }
}

impl BackwardCall {
    fn new(flags: kernel::alloc::Flags) -> Result<KBox<Self>> {
        Ok(KBox::new(
            Self {
                rqst: bindings::rpc_rqst::default(),
                connection: 0,
                call: KVec::with_capacity(MESSAGE_SIZE, flags | __GFP_NOWARN)?,
                reply: KVec::from_elem(0, MESSAGE_SIZE, flags | __GFP_NOWARN)?,
            },
            flags,
        )?)
    }

    /// Makes the request that of one Call.
    fn prepare(&mut self, xprt: &Xprt, connection: u64, xid: u32, message: &[u8]) -> Result {
        if message.len() > self.call.capacity() {
            return Err(EMSGSIZE);
        }
        self.call.clear();
        self.call.extend_from_slice(message, GFP_ATOMIC)?;
        let length = u32::try_from(message.len())?;
        self.connection = connection;
        let rqst = &mut self.rqst;
        *rqst = bindings::rpc_rqst::default();
        rqst.rq_xprt = xprt.as_raw();
        rqst.rq_xid = xid.to_be();
        // The credits are the forward Calls' (RFC 8167 section 4). As if it had one, the Reply is
        // not kept waiting behind those that have none.
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

/// The operations table with the callbacks of the backward direction.
pub(super) const fn with_callbacks<T: ClientTransport>(
    mut ops: bindings::rpc_xprt_ops,
) -> bindings::rpc_xprt_ops {
    ops.bc_setup = Some(setup::<T>);
    ops.bc_maxpayload = Some(max_payload::<T>);
    ops.bc_num_slots = Some(slots::<T>);
    ops.bc_free_rqst = Some(free::<T>);
    ops.bc_destroy = Some(destroy::<T>);
    ops
}

/// Whether a request is a backward one.
pub(super) fn is_backward(rqst: &Rqst) -> bool {
    // SAFETY: The request is valid; the bit is set before sunrpc sees a backward request, and does
    // not change.
    unsafe { (*rqst.as_raw()).rq_bc_pa_state >> bindings::RPC_BC_PA_IN_USE & 1 != 0 }
}

/// The connection that the Call of a backward request came on.
///
/// # Safety
///
/// `rqst` is a backward request of this module's.
pub(super) unsafe fn connection_of(rqst: &Rqst) -> u64 {
    // SAFETY: The request is the first member of a `BackwardCall`, which only `prepare` changes.
    unsafe { (*rqst.as_raw().cast::<BackwardCall>()).connection }
}

/// `bc_setup`: process context, may sleep; at session creation.
///
/// # Safety
///
/// - `raw` is a transport of this module's, made for a `T`, and stays allocated during the call.
unsafe extern "C" fn setup<T: ClientTransport>(
    raw: *mut bindings::rpc_xprt,
    requests: u32,
) -> c_int {
    // SAFETY: The transport is valid during the callback, its setup has succeeded.
    let (xprt, transport) = unsafe {
        let xprt = Xprt::from_raw(raw);
        (xprt, xprt.transport::<T>())
    };
    trace::xprtrdma_cb_setup(xprt, requests);
    kernel::error::from_result(|| {
        let slots = usize::try_from(T::backward_slots())?;
        transport.backward().provision(slots.saturating_mul(2))?;
        Ok(0)
    })
}

/// `bc_maxpayload`: under RCU, does not sleep.
///
/// # Safety
///
/// - `raw` is a transport of this module's, made for a `T`, and stays allocated during the call.
unsafe extern "C" fn max_payload<T: ClientTransport>(raw: *mut bindings::rpc_xprt) -> usize {
    // SAFETY: The transport is valid during the callback.
    unsafe { Xprt::from_raw(raw).transport::<T>() }
        .backward_payload()
        .min(MESSAGE_SIZE)
}

/// `bc_num_slots`: under RCU, does not sleep.
extern "C" fn slots<T: ClientTransport>(_raw: *mut bindings::rpc_xprt) -> u32 {
    T::backward_slots()
}

/// `bc_free_rqst`: the service is done with a request. Process context.
///
/// # Safety
///
/// - `raw` is the `rqst` of a [`BackwardCall`] that [`BackwardCalls::receive`] has given away, and that
///   nobody uses any more.
/// - Its transport was made for a `T`, and sunrpc leaves the reference to it that
///   `xprt_enqueue_bc_request` took to this function.
unsafe extern "C" fn free<T: ClientTransport>(raw: *mut bindings::rpc_rqst) {
    // SAFETY: The request came from `receive`, which gave it away, and its transport is valid: sunrpc
    // took the reference for it that is given back last.
    unsafe {
        let xprt = (*raw).rq_xprt;
        let call = KBox::from_raw(raw.cast::<BackwardCall>());
        Xprt::from_raw(xprt)
            .transport::<T>()
            .backward()
            .give_back(call);
        bindings::xprt_put(xprt);
    }
}

/// `bc_destroy`: process context; at the end of a session, for `count` requests, and at the end of
/// the transport, for all.
///
/// # Safety
///
/// - `raw` is a transport of this module's, made for a `T`, and stays allocated during the call. It is called
///   before `destroy` for the last time.
unsafe extern "C" fn destroy<T: ClientTransport>(raw: *mut bindings::rpc_xprt, count: u32) {
    // SAFETY: The transport is valid during the callback.
    let transport = unsafe { Xprt::from_raw(raw).transport::<T>() };
    // CAST: A u32 always fits the kernel's usize.
    transport.backward().retire(count as usize);
}
