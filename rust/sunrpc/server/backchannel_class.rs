// SPDX-License-Identifier: GPL-2.0

//! The class of the transports for backward Calls. To sunrpc they are transports of an RPC client,
//! over a connection that was accepted by a listener.
//!
//! They are created connected, and never reconnect: the client does so, and nfsd creates another
//! one for the new connection. nfsd has a reference to the connection while it creates one, and
//! until it has ended the RPCs of which it knows. Other RPCs may outlive that reference. So a
//! transport keeps the memory of the connection's `svc_xprt`, and uses the connection with a
//! reference of its own: [`BcXprtOps::with_connection`].

use super::{
    backchannel::{disconnect, is_overdue, release_request},
    transport::{SvcConnection, SvcListener},
    xprt::{SvcMemory, SvcXprt},
};
use crate::{
    bindings,
    sunrpc::{
        queue::ReclaimScope,
        registration::{Class, ClassRegistration, ClassUser, IDENT_BACKWARD},
        rpc_xprt::{self, Base, RpcXprt},
        send_error::SendError,
        XdrBuf,
    },
};
use core::{marker::PhantomData, mem::ManuallyDrop, ptr::NonNull};
use kernel::{
    ffi::c_int,
    prelude::*,
    str::CStr,
    sync::{
        atomic::{Atomic, Release},
        Arc,
    },
};

/// The class of the backward transports over connections `C`, and of no other transports. It is a
/// static because they point to it.
pub(crate) struct BcClass<C>(Class, PhantomData<fn(C)>);

impl<C: BcConnection> BcClass<C> {
    /// As for [`Class::new`].
    pub(crate) const fn new(name: &'static CStr) -> Self {
        Self(Class::new(name, IDENT_BACKWARD, [c"", c""]), PhantomData)
    }

    /// As for [`Class::enter`].
    pub(crate) fn enter(&'static self) -> Option<ClassUser> {
        self.0.enter()
    }
}

/// A connection whose service may call the client.
pub(crate) trait BcConnection: SvcConnection {
    /// Calls that can be outstanding, if the client grants as many.
    const CREDITS: u32;

    /// The class of the transports for these Calls.
    fn bc_class() -> &'static BcClass<Self>;

    /// Sends the Call of a request. Task context, in a [`ReclaimScope::noio`]; may sleep.
    ///
    /// # Errors
    ///
    /// [`SendError`]; after [`SendError::NotConnected`] no further Call is sent, and after
    /// [`SendError::TooLarge`] and [`SendError::Failed`] the Call waits for its timeout.
    fn bc_sendto(&self, xid: u32, call: &XdrBuf<'_>) -> Result<(), SendError>;

    /// The client has owed Replies for too long, and the connection has to end. As
    /// [`Self::bc_sendto`].
    fn overdue(&self);
}

/// Registers the class of the backward transports over connections accepted by an `L`.
///
/// # Errors
///
/// `EBUSY` the second time, `EEXIST` if another module has registered the class, `ENOMEM`.
pub(crate) fn register_bc<L: SvcListener<Connection: BcConnection>>(
    module: &'static ThisModule,
) -> Result<ClassRegistration> {
    let class = &L::Connection::bc_class().0;
    // SAFETY: `setup` looks at what the arguments refer to. The transports have nothing in common.
    unsafe { class.register(setup::<L>, module, c"rpcrdma_service", core::ptr::null()) }
}

/// The allocation of one transport.
#[repr(C)]
struct BcAllocation {
    base: Base,
    /// The memory of the connection's `svc_xprt`.
    svc: ManuallyDrop<Arc<SvcMemory>>,
}

/// `setup`: creates a transport for a connection. Process context, may sleep.
///
/// # Safety
///
/// - `args` is valid, its namespace is referenced, and its address has as many bytes as it says.
/// - The server transport in it is null, or the caller has a reference to it, or to another
///   transport of this class for it, which keeps its memory (`add_xprt` in sysfs).
unsafe extern "C" fn setup<L: SvcListener<Connection: BcConnection>>(
    args: *mut bindings::xprt_create,
) -> *mut bindings::rpc_xprt {
    // SAFETY: `args` and the server transport in it are valid (this function's contract, which is
    // also that of `create`).
    unsafe { create::<L>(&*args) }.unwrap_or_else(|error| error.to_ptr())
}

/// # Safety
///
/// As for [`setup`].
unsafe fn create<L: SvcListener<Connection: BcConnection>>(
    args: &bindings::xprt_create,
) -> Result<*mut bindings::rpc_xprt> {
    let svc = NonNull::new(args.bc_xprt).ok_or(EINVAL)?.as_ptr();
    // SAFETY: The memory of the server transport is valid. Only listeners `L` and what these accept
    // have the class.
    let svc = unsafe {
        if (*svc).xpt_class != L::class().as_raw() {
            return Err(EINVAL);
        }
        SvcXprt::from_raw(svc)
    };
    if svc.has(bindings::XPT_LISTENER) {
        return Err(EINVAL);
    }
    let user = L::Connection::bc_class().enter().ok_or(EIO)?;
    let credits = L::Connection::CREDITS;
    // SAFETY: A `BcAllocation` begins with a `Base`. Until it is added only this thread knows of
    // it, and only its end uses `svc`. The arguments are valid during the callback. The transport
    // is removed when it ends. The caller's reference to the server transport keeps sunrpc from
    // dropping the one in `xpt_bc_xprt` meanwhile. Release: who finds the transport there
    // finds what this function has set.
    unsafe {
        let ops = &BcXprtOps::<L::Connection>::OPS;
        let allocation = rpc_xprt::allocate::<BcAllocation>(args, user, ops, credits)?.as_ptr();
        let raw = allocation.cast::<bindings::rpc_xprt>();
        (*raw).prot = IDENT_BACKWARD;
        (*raw).bc_xprt = args.bc_xprt;
        let xprt = RpcXprt::from_raw(raw);
        xprt.set(bindings::XPRT_BOUND);
        xprt.set(bindings::XPRT_CONNECTED);
        svc.bc().add(xprt).inspect_err(|_| rpc_xprt::free(raw))?;
        (&raw mut (*allocation).svc).write(ManuallyDrop::new(svc.memory()));
        let found = Atomic::from_ptr(&raw mut (*svc.as_raw()).xpt_bc_xprt);
        found.store(bindings::xprt_get(raw), Release);
        Ok(raw)
    }
}

/// `struct rpc_xprt_ops` for the backward direction of a `T`.
struct BcXprtOps<T>(PhantomData<T>);

impl<T: BcConnection> BcXprtOps<T> {
    const OPS: bindings::rpc_xprt_ops = bindings::rpc_xprt_ops {
        reserve_xprt: Some(bindings::xprt_reserve_xprt_cong),
        release_xprt: Some(bindings::xprt_release_xprt_cong),
        alloc_slot: Some(bindings::xprt_alloc_slot),
        free_slot: Some(bindings::xprt_free_slot),
        release_request: Some(release_request),
        wait_for_reply_request: Some(bindings::xprt_wait_for_reply_request_def),
        buf_alloc: Some(Self::buf_alloc),
        buf_free: Some(Self::buf_free),
        prepare_request: Some(Self::prepare_request),
        send_request: Some(Self::send_request),
        close: Some(Self::close),
        destroy: Some(Self::destroy),
        print_stats: Some(Self::print_stats),
        inject_disconnect: Some(Self::inject_disconnect),
        ..pin_init::zeroed()
    };

    /// Calls `with` for the connection, with a reference to its `svc_xprt`, unless it was closed or
    /// sunrpc has dropped the last one. Task context, in a [`ReclaimScope::noio`]; may sleep: this
    /// reference may have become the last one.
    ///
    /// # Safety
    ///
    /// `raw` is a transport with this table, and stays allocated during the call.
    unsafe fn with_connection<R>(
        raw: *mut bindings::rpc_xprt,
        with: impl FnOnce(&SvcXprt, &T) -> R,
    ) -> Option<R> {
        let _scope = ReclaimScope::noio();
        // SAFETY: The transport keeps the memory of the server transport. Setup has checked the
        // type of that, and as nfsd knows of it, it was published.
        unsafe {
            let svc = SvcXprt::from_raw((*raw).bc_xprt);
            let is_connected = RpcXprt::from_raw(raw).is_connected();
            if !is_connected || !bindings::rpcrdma_svc_xprt_get_unless_zero(svc.as_raw()) {
                return None;
            }
            let result = with(svc, &svc.transport::<T>());
            bindings::svc_xprt_put(svc.as_raw());
            Some(result)
        }
    }

    /// Task context; may sleep, but not wait for pages that a client on the same machine has to
    /// write back over this connection. Returns zero, or `-ENOMEM`, after which sunrpc soon tries
    /// again.
    ///
    /// # Safety
    ///
    /// - `task` has a request, of a transport with this table, which no other thread uses
    ///   during the call.
    /// - The request has no buffer.
    unsafe extern "C" fn buf_alloc(task: *mut bindings::rpc_task) -> c_int {
        let _scope = ReclaimScope::noio();
        // SAFETY: `task` has a request of a valid transport, and no other thread uses the
        // request during the call (this function's contract).
        unsafe {
            let rqst = (*task).tk_rqstp;
            let size = (*rqst).rq_callsize.saturating_add((*rqst).rq_rcvsize);
            let buffer = bindings::rpcrdma_rpc_buf_alloc(size);
            if buffer.is_null() {
                return ENOMEM.to_errno();
            }
            (*rqst).rq_buffer = buffer;
            (*rqst).rq_rbuffer = buffer.wrapping_byte_add((*rqst).rq_callsize);
        }
        0
    }

    /// Task context.
    ///
    /// # Safety
    ///
    /// - `task` has a request with a buffer from [`Self::buf_alloc`], which is not used after the
    ///   call.
    unsafe extern "C" fn buf_free(task: *mut bindings::rpc_task) {
        // SAFETY: The request's buffer came from `buf_alloc`, and is not used after the call (this
        // function's contract). The connection sends a copy of it.
        unsafe { bindings::kfree((*(*task).tk_rqstp).rq_buffer) };
    }

    /// Called for either buffer of a Call before that is queued: from then on sunrpc lets it wait
    /// for a credit without asking again. Task context; may sleep.
    ///
    /// # Safety
    ///
    /// - `raw` is a request of a transport with this table, which stays allocated during the call.
    unsafe extern "C" fn prepare_request(
        raw: *mut bindings::rpc_rqst,
        _buffer: *mut bindings::xdr_buf,
    ) -> c_int {
        // SAFETY: The request is valid during the callback, and so is the transport.
        unsafe {
            let raw = (*raw).rq_xprt;
            if is_overdue(RpcXprt::from_raw(raw)) {
                Self::with_connection(raw, |_, connection| connection.overdue());
            }
        }
        0
    }

    /// Process context; the send lock is held, possibly by another task than the request's. May
    /// sleep.
    ///
    /// # Safety
    ///
    /// - `raw` has a task, is pinned, and is an encoded request of a transport with this table,
    ///   which stays allocated during the call.
    /// - The send lock of the transport is held for this call.
    unsafe extern "C" fn send_request(raw: *mut bindings::rpc_rqst) -> c_int {
        // SAFETY: The request is pinned during the callback; its transport is valid.
        let xprt = unsafe { RpcXprt::from_raw((*raw).rq_xprt) };
        let send = |svc: &SvcXprt, connection: &T| -> Result<(), SendError> {
            if svc.is_closing() {
                return Err(SendError::NoMemory);
            }
            // SAFETY: The request is pinned, has a task, and belongs to the transport, whose send
            // lock is held. Before the post, after which the Reply can change the request.
            unsafe {
                xprt.send_with_credit(raw, || {
                    let (xid, call) = XdrBuf::sent_by(raw);
                    let sent = (*raw).rq_xmit_bytes_sent.wrapping_add(call.len());
                    (*raw).rq_xmit_bytes_sent = sent;
                    (*raw).rq_xtime = bindings::ktime_get();
                    connection.bc_sendto(xid, &call).inspect_err(|&error| {
                        if error == SendError::NotConnected {
                            svc.deferred_close();
                        }
                    })
                })
            }
        };
        // SAFETY: The transport is valid.
        let sent = unsafe { Self::with_connection(xprt.as_raw(), send) };
        match sent.unwrap_or(Err(SendError::NotConnected)) {
            // If it failed it waits for its timeout, as if it had been sent: nfsd repeats what has
            // failed without a pause.
            Ok(()) | Err(SendError::TooLarge | SendError::Failed) => 0,
            // Retry after 250 ms, until a thread has disconnected the transport: nfsd would repeat
            // a failed Call immediately.
            Err(SendError::NotConnected) if xprt.is_connected() => SendError::NoMemory.to_errno(),
            Err(error) => error.to_errno(),
        }
    }

    /// Called by the thread that closes the connection, without the send lock, or by
    /// `xprt_autoclose()`, with it. Does not sleep.
    ///
    /// # Safety
    ///
    /// - `raw` is a transport with this table, and stays allocated during the call.
    unsafe extern "C" fn close(raw: *mut bindings::rpc_xprt) {
        // SAFETY: The transport is valid during the callback.
        disconnect(unsafe { RpcXprt::from_raw(raw) });
    }

    /// The last reference is gone. Runs on a system worker, may sleep.
    ///
    /// # Safety
    ///
    /// - `raw` is a transport with this table, to which no user of sunrpc has a reference.
    /// - The caller is the transport's `task_cleanup`, which is not queued again.
    unsafe extern "C" fn destroy(raw: *mut bindings::rpc_xprt) {
        // SAFETY: The transport is valid, and its work is queued only here.
        unsafe { RpcXprt::from_raw(raw).queue_end(Self::finish) };
    }

    /// Ends a transport, on the class's queue. May sleep.
    ///
    /// # Safety
    ///
    /// Called for the work that [`Self::destroy`] queued.
    unsafe extern "C" fn finish(work: *mut bindings::work_struct) {
        // SAFETY: The work is that of a transport of which only its connection knows. The callback
        // that queued the work may be about to return: it must do so before the module can go.
        unsafe {
            let xprt = RpcXprt::of_work(work);
            bindings::cancel_work_sync(&raw mut (*xprt).task_cleanup);
            // sunrpc ends a transport that it cannot finish creating, whoever has references.
            let svc = (*xprt).bc_xprt;
            if (*svc).xpt_bc_xprt == xprt {
                (*svc).xpt_bc_xprt = core::ptr::null_mut();
            }
            SvcXprt::from_raw(svc).bc().remove();
            ManuallyDrop::drop(&mut (*xprt.cast::<BcAllocation>()).svc);
            rpc_xprt::free(xprt);
        }
    }

    /// Does nothing: sunrpc calls it for the transports of mounts only.
    extern "C" fn print_stats(_raw: *mut bindings::rpc_xprt, _seq: *mut bindings::seq_file) {}

    /// Fault injection: task context, after a task has finished sending.
    ///
    /// # Safety
    ///
    /// - `raw` is a transport with this table, and stays allocated during the call.
    unsafe extern "C" fn inject_disconnect(raw: *mut bindings::rpc_xprt) {
        // SAFETY: The transport is valid.
        unsafe { Self::with_connection(raw, |svc, _| svc.deferred_close()) };
    }
}
