// SPDX-License-Identifier: GPL-2.0

//! The operations table: from C pointers to one call of [`ClientTransport`].

use super::{
    address_strings, backchannel, buffer, class,
    class::{ClientTransport, SendError},
    connect,
    send_lock::SendLock,
    BackwardReply, Rqst, Xprt,
};
use crate::{bindings, trace};
use core::marker::PhantomData;
use kernel::{ffi::c_int, seq_file::SeqFile, sync::Arc};

/// `struct rpc_xprt_ops` for `T`.
pub(super) struct VTable<T: ClientTransport>(PhantomData<T>);

impl<T: ClientTransport> VTable<T> {
    const OPS: bindings::rpc_xprt_ops = backchannel::with_callbacks::<T>(bindings::rpc_xprt_ops {
        reserve_xprt: Some(bindings::xprt_reserve_xprt_cong),
        release_xprt: Some(bindings::xprt_release_xprt_cong),
        alloc_slot: Some(bindings::xprt_alloc_slot),
        free_slot: Some(bindings::xprt_free_slot),
        release_request: Some(Xprt::release_request),
        wait_for_reply_request: Some(bindings::xprt_wait_for_reply_request_def),
        rpcbind: Some(bindings::rpcb_getport_async),
        set_port: Some(address_strings::set_port),
        connect: Some(connect::connect),
        get_srcaddr: Some(address_strings::source_address::<T>),
        get_srcport: Some(address_strings::source_port::<T>),
        buf_alloc: Some(buffer::alloc),
        buf_free: Some(buffer::free::<T>),
        send_request: Some(Self::send_request),
        timer: Some(Self::timer),
        close: Some(Self::close),
        destroy: Some(Self::destroy),
        set_connect_timeout: Some(class::set_connect_timeout),
        print_stats: Some(Self::print_stats),
        enable_swap: Some(Self::enable_swap),
        disable_swap: Some(Self::disable_swap),
        inject_disconnect: Some(Self::inject_disconnect),
        ..pin_init::zeroed()
    });

    /// The table, which lives as long as the module.
    pub(super) fn ops() -> &'static bindings::rpc_xprt_ops {
        &Self::OPS
    }

    /// Process context; the send lock is held, maybe by another task than the request's.
    ///
    /// # Safety
    ///
    /// - `raw` has a task, is pinned, and is a forward request with a buffer, or a [`BackwardReply`]'s.
    /// - Its transport was made for a `T`, and stays allocated during the call.
    /// - The send lock of the transport is held for this call.
    unsafe extern "C" fn send_request(raw: *mut bindings::rpc_rqst) -> c_int {
        // SAFETY: The request is pinned during the callback, and so is its transport.
        let (rqst, xprt) = unsafe { (Rqst::from_raw(raw), Xprt::from_raw((*raw).rq_xprt)) };
        // SAFETY: Setup of the transport has succeeded.
        let transport = unsafe { xprt.transport::<T>() };
        if !xprt.is_connected() {
            return SendError::NotConnected.to_errno();
        }
        // SAFETY: sunrpc has taken the lock for this call.
        let mut lock = unsafe { SendLock::new(xprt) };
        let sent = match BackwardReply::new(rqst) {
            Some(reply) => transport.send_backward(&mut lock, &reply),
            None => {
                rqst.set_reply_owed(true);
                let sent = transport.send(&mut lock, rqst);
                if sent.is_err() {
                    rqst.set_reply_owed(false);
                }
                sent
            }
        };
        match sent {
            Ok(()) => 0,
            Err(error) => Self::not_sent(rqst, error),
        }
    }

    /// What `send_request` returns for an error.
    #[cold]
    fn not_sent(rqst: &Rqst, error: SendError) -> c_int {
        if matches!(error, SendError::TooLarge | SendError::Failed) {
            // sunrpc would end the RPC whose task sends, which may be another one.
            rqst.end_rpc(error);
            return 0;
        }
        error.to_errno()
    }

    /// A request has timed out. Task context. The connection that it was sent on may be gone.
    ///
    /// # Safety
    ///
    /// - `raw` is a transport of this module's, made for a `T`, and stays allocated during the call.
    /// - `task` has a request of it, which is not released meanwhile.
    unsafe extern "C" fn timer(raw: *mut bindings::rpc_xprt, task: *mut bindings::rpc_task) {
        // SAFETY: Transport and task are valid during the callback, the task has a request, and setup
        // of the transport has succeeded.
        let (xprt, rqst, transport) = unsafe {
            let xprt = Xprt::from_raw(raw);
            (
                xprt,
                Rqst::from_raw((*task).tk_rqstp),
                xprt.transport::<T>(),
            )
        };
        if rqst.is_of_connection(xprt) {
            transport.timed_out();
        }
    }

    /// The send lock is held; a worker of sunrpc's, or a sender. Also called when closed already.
    ///
    /// # Safety
    ///
    /// - `raw` is a transport of this module's, made for a `T`, and stays allocated during the call.
    /// - Its send lock is held for this call.
    unsafe extern "C" fn close(raw: *mut bindings::rpc_xprt) {
        // SAFETY: The transport is valid during the callback, its setup has succeeded.
        let (xprt, transport) = unsafe {
            let xprt = Xprt::from_raw(raw);
            (xprt, xprt.transport::<T>())
        };
        // SAFETY: sunrpc has taken the lock for this call.
        transport.close(&mut unsafe { SendLock::new(xprt) });
        // A connection that nobody needs takes them along.
        xprt.spare_buffers().clear();
        xprt.disconnect_done();
    }

    /// The last reference is gone. The send lock is held for ever; a worker of the system, may sleep.
    ///
    /// The rest is left to the module's own queue: with the transport goes its reference to the
    /// module, whose unloading waits for that queue to be done, but not for the system's.
    ///
    /// # Safety
    ///
    /// - `raw` is a transport of this module's, and stays allocated during the call.
    /// - It was made for a `T`, nobody has a reference to it, and nobody gets one. No work of it is queued.
    /// - Its send lock is held, and never given back.
    /// - The caller is the transport's `task_cleanup`, which is not queued again.
    unsafe extern "C" fn destroy(raw: *mut bindings::rpc_xprt) {
        // SAFETY: The transport is valid, and nobody else uses it: an attempt to connect would have a
        // reference.
        unsafe {
            let xprt = Xprt::from_raw(raw);
            let work = &raw mut (*xprt.allocation()).work;
            bindings::rpcrdma_init_delayed_work(work, Some(Self::finish));
            xprt.enqueue(work, 0);
        }
    }

    /// The end of a transport, on the module's queue. May sleep.
    ///
    /// # Safety
    ///
    /// Called for the work that [`Self::destroy`] has queued.
    unsafe extern "C" fn finish(work: *mut bindings::work_struct) {
        // SAFETY: The work is that of a transport, which nobody else uses. Setup left one count.
        let (xprt, transport) = unsafe {
            let allocation = Xprt::of_work(work);
            let transport = (*allocation).transport.cast::<T>();
            (Xprt::from_raw(allocation.cast()), Arc::from_raw(transport))
        };
        // SAFETY: Setup has initialised the work, which nobody queues any more.
        unsafe { bindings::cancel_delayed_work_sync(&raw mut (*xprt.allocation()).shares.overdue) };
        // The callback that has queued this may still be about to return. With the last reference to
        // the module, which may go with the transport, its code could go as well.
        // SAFETY: The callback is called by this work of sunrpc's, which nobody queues again.
        unsafe { bindings::cancel_work_sync(&raw mut (*xprt.as_raw()).task_cleanup) };
        // SAFETY: sunrpc has taken the lock, for good. The transport stays as long as `transport`.
        transport.close(&mut unsafe { SendLock::new(xprt) });
    }

    /// A seq_file's reader holds a reference to the transport.
    ///
    /// # Safety
    ///
    /// - `raw` is a transport of this module's, made for a `T`, and stays allocated during the call.
    /// - `seq` is valid, and the calling thread's.
    unsafe extern "C" fn print_stats(raw: *mut bindings::rpc_xprt, seq: *mut bindings::seq_file) {
        // SAFETY: Transport and file are valid during the callback.
        let (xprt, seq) = unsafe { (Xprt::from_raw(raw), SeqFile::from_raw(seq)) };
        xprt.print_stats(seq);
        // SAFETY: Setup of the transport has succeeded.
        unsafe { xprt.transport::<T>() }.print_stats(seq);
    }

    /// Process context. Counts users of swap, for the allocations that swap waits for.
    ///
    /// # Safety
    ///
    /// - `raw` is a transport of this module's, and stays allocated during the call.
    unsafe extern "C" fn enable_swap(raw: *mut bindings::rpc_xprt) -> c_int {
        // SAFETY: The transport is valid during the callback.
        unsafe { bindings::atomic_inc(&raw mut (*raw).swapper) };
        0
    }

    /// Undoes [`Self::enable_swap`].
    ///
    /// # Safety
    ///
    /// - `raw` is a transport of this module's, and stays allocated during the call.
    unsafe extern "C" fn disable_swap(raw: *mut bindings::rpc_xprt) {
        // SAFETY: The transport is valid during the callback.
        unsafe { bindings::atomic_dec(&raw mut (*raw).swapper) };
    }

    /// Fault injection: task context, when a task is done with sending. The send lock need not be
    /// held, as another task may have sent its request.
    ///
    /// # Safety
    ///
    /// - `raw` is a transport of this module's, made for a `T`, and stays allocated during the call.
    unsafe extern "C" fn inject_disconnect(raw: *mut bindings::rpc_xprt) {
        // SAFETY: The transport is valid during the callback, its setup has succeeded.
        let (xprt, transport) = unsafe {
            let xprt = Xprt::from_raw(raw);
            (xprt, xprt.transport::<T>())
        };
        trace::xprtrdma_op_inject_dsc(xprt);
        transport.disconnect();
    }
}
