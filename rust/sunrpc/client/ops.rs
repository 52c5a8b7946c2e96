// SPDX-License-Identifier: GPL-2.0

//! The operations table: translates each callback from C pointers to a call of a
//! [`ClientTransport`].

use super::{
    backchannel::{self, BackchannelRqst, MESSAGE_SIZE},
    buffer, connect, credits,
    implementation::ClientTransport,
    rqst::Rqst,
    timer,
    xprt::Xprt,
};
use crate::{
    bindings,
    sunrpc::{
        address_strings,
        rpc_xprt::RpcXprt,
        send_error::{end_task, SendError},
        XdrBuf,
    },
    trace,
};
use core::marker::PhantomData;
use kernel::{
    ffi::{c_char, c_int, c_ushort},
    prelude::*,
    seq_file::SeqFile,
    sync::{Arc, ArcBorrow},
};

/// `struct rpc_xprt_ops` for `T`.
pub(super) struct XprtOps<T: ClientTransport>(PhantomData<T>);

impl<T: ClientTransport> XprtOps<T> {
    /// The table.
    pub(super) const OPS: bindings::rpc_xprt_ops = bindings::rpc_xprt_ops {
        reserve_xprt: Some(bindings::xprt_reserve_xprt_cong),
        release_xprt: Some(bindings::xprt_release_xprt_cong),
        alloc_slot: Some(bindings::xprt_alloc_slot),
        free_slot: Some(bindings::xprt_free_slot),
        prepare_request: Some(credits::prepare_request),
        release_request: Some(credits::release_request),
        wait_for_reply_request: Some(timer::wait_for_reply),
        rpcbind: Some(bindings::rpcb_getport_async),
        set_port: Some(address_strings::set_port),
        connect: Some(connect::connect),
        get_srcaddr: Some(Self::source_address),
        get_srcport: Some(Self::source_port),
        buf_alloc: Some(Self::buf_alloc),
        buf_free: Some(Self::buf_free),
        send_request: Some(Self::send_request),
        timer: Some(timer::timer::<T>),
        close: Some(Self::close),
        destroy: Some(Self::destroy),
        set_connect_timeout: Some(connect::set_connect_timeout),
        print_stats: Some(Self::print_stats),
        enable_swap: Some(Self::enable_swap),
        disable_swap: Some(Self::disable_swap),
        inject_disconnect: Some(Self::inject_disconnect),
        bc_setup: Some(Self::bc_setup),
        bc_maxpayload: Some(Self::bc_maxpayload),
        bc_num_slots: Some(Self::bc_num_slots),
        bc_free_rqst: Some(Self::bc_free_rqst),
        ..pin_init::zeroed()
    };

    /// The transport, and its implementation.
    ///
    /// # Safety
    ///
    /// `raw` is one of this module's transports, was made for a `T`, and stays valid for all of
    /// `'a`. Its setup has succeeded.
    unsafe fn parts<'a>(raw: *mut bindings::rpc_xprt) -> (&'a Xprt, ArcBorrow<'a, T>) {
        // SAFETY: `raw` is a valid transport for a `T` whose setup has succeeded (this function's
        // contract).
        unsafe {
            let xprt = Xprt::from_raw(raw);
            (xprt, xprt.transport::<T>())
        }
    }

    /// Task context, may sleep if the task's flags allow it. Returns zero, or `-ENOMEM`, after
    /// which sunrpc soon tries again.
    ///
    /// # Safety
    ///
    /// - `task` has a request, of one of this module's transports, which only the callee uses
    ///   during the call.
    /// - The request has no buffer.
    unsafe extern "C" fn buf_alloc(task: *mut bindings::rpc_task) -> c_int {
        // SAFETY: The task is valid and has a request, which only this callback uses.
        // The request's transport is one of this module's.
        let attached = unsafe {
            let rqst = &mut *(*task).tk_rqstp;
            buffer::attach(rqst, Xprt::from_raw(rqst.rq_xprt).reserve())
        };
        attached.map_or_else(|error| error.to_errno(), |()| 0)
    }

    /// Frees the memory after the peer has lost its access to it. Task context without locks; may
    /// sleep.
    ///
    /// # Safety
    ///
    /// - `task` has a request, of a transport that was made for a `T`. Only the callee uses the
    ///   request during the call, and it no longer waits for a Reply.
    /// - The request has a buffer from [`Self::buf_alloc`], which is not used after the call.
    unsafe extern "C" fn buf_free(task: *mut bindings::rpc_task) {
        // SAFETY: The task is valid and has a forward request with a buffer, which only this
        // callback uses. Its transport is valid, and its setup has succeeded.
        unsafe {
            let raw = (*task).tk_rqstp;
            let (xprt, transport) = Self::parts((*raw).rq_xprt);
            transport.fence(Rqst::from_raw(raw));
            buffer::detach(&mut *raw, xprt.reserve());
        }
    }

    /// Process context; the send lock is held, possibly by another task than the request's.
    ///
    /// # Safety
    ///
    /// - `raw` has a task, is pinned, and is a forward request with a buffer, or a backward one.
    /// - Its transport was made for a `T`, and stays allocated during the call.
    /// - The send lock of the transport is held for this call.
    unsafe extern "C" fn send_request(raw: *mut bindings::rpc_rqst) -> c_int {
        // SAFETY: The request is pinned during the callback, and so is its transport, whose setup
        // has succeeded.
        let (xprt, transport) = unsafe { Self::parts((*raw).rq_xprt) };
        // SAFETY: sunrpc holds the send lock for this call.
        let sender = unsafe { xprt.sender::<T>() }.as_mut();
        let Some(sender) = sender.filter(|_| xprt.is_connected()) else {
            return SendError::NotConnected.to_errno();
        };
        // SAFETY: The request belongs to this callback, and has a task. It is a backward one with
        // an encoded Reply, or a forward one of this transport with its buffer.
        let sent = unsafe {
            if backchannel::is_backward(raw) {
                let (xid, reply) = XdrBuf::sent_by(raw);
                transport.send_backward(sender, xid, &reply, backchannel::bc_cookie(raw))
            } else {
                xprt.forget_earlier_credit(raw);
                xprt.send_with_credit(raw, || transport.send(sender, Rqst::from_raw(raw)))
            }
        };
        match sent {
            Ok(()) => 0,
            Err(error @ (SendError::TooLarge | SendError::Failed)) => {
                // sunrpc would fail the RPC of the task that is sending, which may be another one.
                // SAFETY: The request is valid and has a task.
                unsafe { end_task(raw, error.to_errno()) };
                0
            }
            Err(error) => error.to_errno(),
        }
    }

    /// `xprt_autoclose()`, with the send lock held. Also called when the transport is already
    /// closed.
    ///
    /// # Safety
    ///
    /// - `raw` is one of this module's transports, made for a `T`, and stays allocated during the
    ///   call.
    /// - Its send lock is held for this call.
    unsafe extern "C" fn close(raw: *mut bindings::rpc_xprt) {
        // SAFETY: The transport is valid during the callback, and its setup has succeeded. sunrpc
        // holds the send lock for this call.
        unsafe {
            let xprt = Xprt::from_raw(raw);
            let _scope = xprt.reclaim_scope();
            xprt.close::<T>();
            xprt.disconnect_done();
        }
    }

    /// The last reference is gone. The send lock is held for good; runs on a system worker, may
    /// sleep.
    ///
    /// # Safety
    ///
    /// - `raw` is one of this module's transports, and stays allocated during the call.
    /// - It was made for a `T`. There is no reference to it, and none can be taken. None of its
    ///   work is queued.
    /// - Its send lock is held, and never released.
    /// - The caller is the transport's `task_cleanup`, which is not queued again.
    unsafe extern "C" fn destroy(raw: *mut bindings::rpc_xprt) {
        // SAFETY: The transport is valid, and its `work` is not queued: an attempt to connect would
        // hold a reference.
        unsafe { Xprt::from_raw(raw).queue_end(Self::finish) };
    }

    /// Ends a transport, on the class's queue. May sleep.
    ///
    /// # Safety
    ///
    /// Called for the work that [`Self::destroy`] queued.
    unsafe extern "C" fn finish(work: *mut bindings::work_struct) {
        // SAFETY: The work is that of a transport that has no other user, and that stays as long
        // as `transport`.
        let (xprt, transport) = unsafe {
            let xprt = Xprt::from_raw(RpcXprt::of_work(work));
            (xprt, Arc::from(xprt.transport::<T>()))
        };
        // Reclaim may wait for others on the same queue.
        let _scope = xprt.reclaim_scope();
        // SAFETY: Setup has initialised the work, which is not queued again.
        unsafe { bindings::cancel_delayed_work_sync(&raw mut (*xprt.allocation()).overdue) };
        // The callback that queued this work may still be about to return. The last reference to
        // the module may go with the transport, and the callback's code with it.
        // SAFETY: The callback is called by this work of sunrpc, which is not queued again.
        unsafe { bindings::cancel_work_sync(&raw mut (*xprt.as_raw()).task_cleanup) };
        // SAFETY: sunrpc holds the send lock for good. The implementation has no other user.
        unsafe {
            xprt.close::<T>();
            (*xprt.typed::<T>()).transport.assume_init_drop();
        }
        // Within the scope.
        drop(transport);
    }

    /// The reader of the seq_file holds a reference to the transport.
    ///
    /// # Safety
    ///
    /// - `raw` is one of this module's transports, made for a `T`, and stays allocated during the
    ///   call.
    /// - `seq` is valid, and belongs to the calling thread.
    unsafe extern "C" fn print_stats(raw: *mut bindings::rpc_xprt, seq: *mut bindings::seq_file) {
        // SAFETY: Transport and file are valid during the callback, and the transport's setup has
        // succeeded.
        let ((xprt, transport), seq) = unsafe { (Self::parts(raw), SeqFile::from_raw(seq)) };
        xprt.print_stats(seq);
        transport.print_stats(seq);
    }

    /// Process context. Counts the users of swap, whose allocations may use reserves.
    ///
    /// # Safety
    ///
    /// - `raw` is one of this module's transports, and stays allocated during the call.
    unsafe extern "C" fn enable_swap(raw: *mut bindings::rpc_xprt) -> c_int {
        // SAFETY: The transport is valid during the callback.
        unsafe { bindings::atomic_inc(&raw mut (*raw).swapper) };
        0
    }

    /// Undoes [`Self::enable_swap`].
    ///
    /// # Safety
    ///
    /// - `raw` is one of this module's transports, and stays allocated during the call.
    unsafe extern "C" fn disable_swap(raw: *mut bindings::rpc_xprt) {
        // SAFETY: The transport is valid during the callback.
        unsafe { bindings::atomic_dec(&raw mut (*raw).swapper) };
    }

    /// Fault injection: task context, after a task has finished sending. The send lock need not be
    /// held, as another task may have sent the request.
    ///
    /// # Safety
    ///
    /// - `raw` is one of this module's transports, made for a `T`, and stays allocated during the
    ///   call.
    unsafe extern "C" fn inject_disconnect(raw: *mut bindings::rpc_xprt) {
        // SAFETY: The transport is valid during the callback, and its setup has succeeded.
        let (xprt, transport) = unsafe { Self::parts(raw) };
        trace::xprtrdma_op_inject_dsc(xprt.id());
        transport.disconnect();
    }

    /// `get_srcaddr`: prints the local address into `buffer`, terminated; returns its length, or
    /// `-ENOTCONN`. Process context, may sleep.
    ///
    /// # Safety
    ///
    /// - `raw` is one of this module's transports, made for a `T`, and stays allocated during the
    ///   call.
    /// - `buffer` has `size` bytes.
    unsafe extern "C" fn source_address(
        raw: *mut bindings::rpc_xprt,
        buffer: *mut c_char,
        size: usize,
    ) -> c_int {
        // SAFETY: The reader holds a reference to the transport, whose setup has succeeded.
        let source = unsafe { Self::parts(raw) }.1.source();
        let length = source.map_or(0, |source| {
            // SAFETY: The address is complete, and the buffer has `size` bytes.
            unsafe { bindings::rpc_ntop(source.as_raw(), buffer, size) }
        });
        match c_int::try_from(length) {
            Ok(length) if length > 0 => length,
            _ => SendError::NotConnected.to_errno(),
        }
    }

    /// `get_srcport`: the local port, 0 without a connection. Process context, may sleep.
    ///
    /// # Safety
    ///
    /// - `raw` is one of this module's transports, made for a `T`, and stays allocated during the
    ///   call.
    unsafe extern "C" fn source_port(raw: *mut bindings::rpc_xprt) -> c_ushort {
        // SAFETY: The reader holds a reference to the transport, whose setup has succeeded.
        let source = unsafe { Self::parts(raw) }.1.source();
        source.map_or(0, |source| source.port())
    }
}

/// The callbacks for backward requests.
impl<T: ClientTransport> XprtOps<T> {
    /// Prepares the back channel when a session is created. Process context, may sleep.
    ///
    /// # Safety
    ///
    /// - `raw` is one of this module's transports, made for a `T`, and stays allocated during the
    ///   call.
    unsafe extern "C" fn bc_setup(raw: *mut bindings::rpc_xprt, requests: u32) -> c_int {
        // SAFETY: The transport is valid during the callback, and its setup has succeeded.
        let (xprt, transport) = unsafe { Self::parts(raw) };
        trace::xprtrdma_cb_setup(xprt.id(), requests);
        kernel::error::from_result(|| {
            let slots = usize::try_from(T::BACKWARD_SLOTS)?;
            transport.backchannel().provision(slots.saturating_mul(2))?;
            Ok(0)
        })
    }

    /// Under RCU, does not sleep.
    ///
    /// # Safety
    ///
    /// - `raw` is one of this module's transports, made for a `T`, and stays allocated during the
    ///   call.
    unsafe extern "C" fn bc_maxpayload(raw: *mut bindings::rpc_xprt) -> usize {
        // SAFETY: The transport is valid during the callback, and its setup has succeeded.
        let (_, transport) = unsafe { Self::parts(raw) };
        transport.backward_payload().min(MESSAGE_SIZE)
    }

    /// Under RCU, does not sleep.
    extern "C" fn bc_num_slots(_raw: *mut bindings::rpc_xprt) -> u32 {
        T::BACKWARD_SLOTS
    }

    /// The service no longer needs a request. Process context.
    ///
    /// # Safety
    ///
    /// - `raw` is the `rqst` of a [`BackchannelRqst`] that `Backchannel::receive` gave away, and
    ///   that is not used any longer.
    /// - Its transport was created for a `T`, and sunrpc passes on to this function the reference
    ///   to it that `rpcrdma_bc_enqueue` took.
    unsafe extern "C" fn bc_free_rqst(raw: *mut bindings::rpc_rqst) {
        // SAFETY: The request came from `receive`, which gave it away. Its transport is valid:
        // sunrpc took the reference that is dropped last here.
        unsafe {
            let xprt = (*raw).rq_xprt;
            let rqst = KBox::from_raw(raw.cast::<BackchannelRqst>());
            Xprt::from_raw(xprt)
                .transport::<T>()
                .backchannel()
                .give_back(rqst);
            bindings::xprt_put(xprt);
        }
    }
}
