// SPDX-License-Identifier: GPL-2.0

//! Server transports (`struct svc_xprt`): the object itself, and the services of sunrpc that a
//! transport uses.

use super::backchannel::Bc;
use crate::bindings::{self, Net, SocketAddress};
use core::{ffi::c_void, marker::PhantomData, ptr::NonNull};
use kernel::{
    prelude::*,
    sync::{aref::ARef, rcu, Arc, ArcBorrow},
    types::Opaque,
};

/// The memory of one transport. It has owners in this module ([`OwnedSvcXprt`]), sunrpc from when
/// the transport is published until `xpo_free`, and the transport for backward Calls.
#[pin_data]
#[repr(C)]
pub(super) struct SvcMemory {
    /// First, because sunrpc identifies the allocation by this pointer.
    #[pin]
    xprt: Opaque<bindings::svc_xprt>,
    /// An `Arc<T>` of the [`SvcTransport`](super::SvcTransport), from when it is published until
    /// `xpo_free`.
    transport: Opaque<*mut c_void>,
    #[pin]
    bc: Bc,
}

// SAFETY: sunrpc does its own locking of transports.
unsafe impl Send for SvcMemory {}
// SAFETY: sunrpc does its own locking of transports.
unsafe impl Sync for SvcMemory {}

/// A server transport.
///
/// # Invariants
///
/// A reference to a `SvcXprt` points to the `xprt` of a valid [`SvcMemory`], which is in an `Arc`.
#[repr(transparent)]
pub(crate) struct SvcXprt(Opaque<bindings::svc_xprt>);

// SAFETY: sunrpc does its own locking of transports.
unsafe impl Send for SvcXprt {}
// SAFETY: sunrpc does its own locking of transports.
unsafe impl Sync for SvcXprt {}

impl SvcXprt {
    /// Borrows a transport from C.
    ///
    /// # Safety
    ///
    /// `ptr` is one of this module's transports, and stays valid for all of `'a`.
    pub(super) unsafe fn from_raw<'a>(ptr: *mut bindings::svc_xprt) -> &'a Self {
        // SAFETY: `ptr` is one of this module's transports, so it begins an `SvcMemory` in an
        // `Arc`, and stays valid for all of `'a` (this function's contract). `SvcXprt` is
        // transparent over `svc_xprt`.
        unsafe { &*ptr.cast() }
    }

    /// The C pointer.
    pub(super) fn as_raw(&self) -> *mut bindings::svc_xprt {
        self.0.get()
    }

    /// Where the pointer to the implementation is.
    fn transport_slot(&self) -> *mut *mut c_void {
        let memory = self.as_raw().cast::<SvcMemory>().cast_const();
        // SAFETY: The memory is valid (type invariant).
        unsafe { &(*memory).transport }.get()
    }

    /// The memory, for one more owner.
    pub(super) fn memory(&self) -> Arc<SvcMemory> {
        // SAFETY: The pointer is that of an `Arc` (type invariant), whose count is not 0.
        unsafe { ArcBorrow::from_raw(self.as_raw().cast::<SvcMemory>().cast_const()) }.into()
    }

    /// The backward direction.
    pub(crate) fn bc(&self) -> &Bc {
        let memory = self.as_raw().cast::<SvcMemory>().cast_const();
        // SAFETY: The memory is valid (type invariant).
        unsafe { &(*memory).bc }
    }

    /// The implementation.
    ///
    /// # Safety
    ///
    /// The transport is a `T`, and was published.
    pub(super) unsafe fn transport<T>(&self) -> ArcBorrow<'_, T> {
        // SAFETY: `publish` stored the pointer of an `Arc<T>`, which stays until `xpo_free`.
        unsafe { ArcBorrow::from_raw((*self.transport_slot()).cast::<T>()) }
    }

    /// Undoes [`NewXprt::publish`], if the transport was published: returns the
    /// implementation.
    ///
    /// # Safety
    ///
    /// `this` is a valid transport of this module, made for a `T`, to which sunrpc no longer has a
    /// reference. It is not used after the call.
    pub(super) unsafe fn take_transport<T>(this: *mut bindings::svc_xprt) -> Option<Arc<T>> {
        // SAFETY: `this` is a valid transport for a `T`, to which sunrpc has no reference, so no
        // other thread uses the pointer to its implementation (this function's contract). If that
        // is not null, `publish` stored the pointer of an `Arc<T>` there, and left sunrpc a count
        // of the memory's `Arc`.
        unsafe {
            let transport = Self::from_raw(this)
                .transport_slot()
                .replace(core::ptr::null_mut());
            let transport = NonNull::new(transport)?.cast::<T>();
            drop(Arc::from_raw(this.cast::<SvcMemory>().cast_const()));
            Some(Arc::from_raw(transport.as_ptr()))
        }
    }

    /// Whether the transport is closed, or about to be.
    pub(crate) fn is_closing(&self) -> bool {
        self.has(bindings::XPT_CLOSE) || self.has(bindings::XPT_DEAD)
    }

    /// Whether a flag of `xpt_flags` is set.
    pub(super) fn has(&self, number: u32) -> bool {
        // SAFETY: The transport is valid; the flags are read at once, as test_bit() does.
        let flags = unsafe { core::ptr::read_volatile(&raw const (*self.as_raw()).xpt_flags) };
        flags >> number & 1 != 0
    }

    pub(super) fn set(&self, number: u32) {
        // CAST: A bit number.
        // SAFETY: The transport is valid, and its flags are only changed by atomic operations.
        unsafe {
            bindings::set_bit(number as usize, &raw mut (*self.as_raw()).xpt_flags);
        }
    }

    pub(super) fn clear(&self, number: u32) {
        // CAST: A bit number.
        // SAFETY: The transport is valid, and its flags are only changed by atomic operations.
        unsafe {
            bindings::clear_bit(number as usize, &raw mut (*self.as_raw()).xpt_flags);
        }
    }

    /// Sets XPT_DATA: a thread can take a Call. [`Self::enqueue`] is to be called next.
    pub(crate) fn set_data(&self) {
        self.set(bindings::XPT_DATA);
    }

    /// Clears XPT_DATA: no thread can take a Call.
    pub(crate) fn clear_data(&self) {
        self.clear(bindings::XPT_DATA);
    }

    /// Sets XPT_CONN, and wakes a thread: a connection waits to be accepted. Does not sleep.
    pub(crate) fn wake_for_connection(&self) {
        self.set(bindings::XPT_CONN);
        self.enqueue();
    }

    /// Wakes a thread to look at the transport, if it is not busy and a flag says that there is
    /// something to do. Does not sleep.
    ///
    /// No wake-up is lost, whatever locks the caller holds: the flag and XPT_BUSY are bits of one
    /// word. If svc_xprt_ready() finds XPT_BUSY, the thread that clears it in svc_xprt_received()
    /// finds the flag.
    ///
    /// svc_xprt_enqueue() uses a pool of the service after another thread can have closed the
    /// transport. nfsd frees the pools in svc_destroy(), a grace period after it has closed all
    /// transports: in between nfsd_shutdown_net() waits for percpu_ref_kill_and_confirm(). A
    /// service that was never started has listeners only, and these end after the handlers that
    /// call this.
    pub(crate) fn enqueue(&self) {
        let _pools = rcu::read_lock();
        // SAFETY: The transport is valid (type invariant). Once sunrpc has closed it, it is marked
        // as busy for good, so the call leaves it alone.
        unsafe { bindings::svc_xprt_enqueue(self.as_raw()) };
    }

    /// Makes a thread close the transport, as [`Self::enqueue`] wakes one. Called in any context.
    pub(crate) fn deferred_close(&self) {
        let _pools = rcu::read_lock();
        // SAFETY: The transport is valid (type invariant). Once sunrpc has closed it, it is marked
        // as busy for good, so the call leaves it alone.
        unsafe { bindings::svc_xprt_deferred_close(self.as_raw()) };
    }

    /// Closes the transport, in this thread unless another one is using it. May sleep.
    pub(crate) fn close(&self) {
        // SAFETY: The transport is valid (type invariant). Once sunrpc has closed it, it is marked
        // as busy for good, so the call leaves it alone.
        unsafe { bindings::svc_xprt_close(self.as_raw()) };
    }
}

/// A connection `T` that a thread of the service is about to accept on this listener.
pub(crate) struct Accepting<'a, T> {
    listener: &'a SvcXprt,
    ops: &'static bindings::svc_xprt_ops,
    connection: PhantomData<fn(T)>,
}

impl<'a, T> Accepting<'a, T> {
    /// Declares that a thread of the listener's service accepts a connection.
    ///
    /// # Safety
    ///
    /// It does so for all of `'a`. `ops` are those for a `T`, which is what the listener accepts.
    pub(super) unsafe fn new(listener: &'a SvcXprt, ops: &'static bindings::svc_xprt_ops) -> Self {
        Self {
            listener,
            ops,
            connection: PhantomData,
        }
    }

    /// A transport for a connection between these addresses.
    ///
    /// The peer chooses its port freely, and another one after each reconnect: without the port,
    /// nfsd's reply cache recognises the client.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn transport(
        self,
        local: &SocketAddress,
        peer: &SocketAddress,
    ) -> Result<NewXprt<'a, T>> {
        // SAFETY: The listener is valid, and its service is about to accept a `T` for all of `'a`,
        // for which these are the operations.
        let this = unsafe {
            let raw = self.listener.as_raw();
            let (net, class, serv) = ((*raw).xpt_net, (*raw).xpt_class, (*raw).xpt_server);
            NewXprt::new(net, class, serv, self.ops, local)?
        };
        if local.host() == peer.host() {
            this.xprt.set(bindings::XPT_LOCAL);
        }
        // SAFETY: The transport is new, and no other thread knows of it. The address is complete,
        // and the size is that of the buffer.
        unsafe {
            let raw = this.xprt.as_raw();
            (*raw).xpt_remote = peer.0;
            (*raw).xpt_remotelen = peer.len();
            bindings::rpcrdma_rpc_set_port((&raw mut (*raw).xpt_remote).cast(), 0);
            let text = &mut (*raw).xpt_remotebuf;
            bindings::rpc_ntop(peer.as_raw(), text.as_mut_ptr().cast(), text.len());
        }
        Ok(this)
    }
}

/// A transport for a `T` that sunrpc does not know yet.
pub(crate) struct NewXprt<'a, T> {
    xprt: OwnedSvcXprt,
    ops: &'static bindings::svc_xprt_ops,
    transport: PhantomData<fn(T) -> &'a ()>,
}

/// A transport as the callback in which it was published returns it to sunrpc.
pub(crate) struct Published<'a>(pub(super) *mut bindings::svc_xprt, PhantomData<&'a ()>);

impl<'a, T> NewXprt<'a, T> {
    /// A transport of a service at `local`, with the operations of the class until
    /// [`Self::publish`].
    ///
    /// # Safety
    ///
    /// Network namespace and service are valid, and the service stays so as long as sunrpc has the
    /// transport. This module has registered the class. Until the end of `'a` this thread is in the
    /// callback that returns a `T` of the class to this service; `ops` are those for a `T`.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) unsafe fn new(
        net: *mut bindings::net,
        class: *mut bindings::svc_xprt_class,
        serv: *mut bindings::svc_serv,
        ops: &'static bindings::svc_xprt_ops,
        local: &SocketAddress,
    ) -> Result<Self> {
        // SAFETY: `net`, `class` and `serv` are valid (this function's contract). `svc_xprt_init`
        // initialises all of the C object.
        let xprt =
            unsafe { Opaque::ffi_init(|raw| bindings::svc_xprt_init(net, class, raw, serv)) };
        let memory = pin_init!(SvcMemory {
            xprt <- xprt,
            transport: Opaque::new(core::ptr::null_mut()),
            bc <- Bc::new(),
        });
        let memory = Arc::pin_init(memory, GFP_KERNEL)?;
        // SAFETY: Namespace and service are valid. The length does not change while the service has
        // transports.
        let (net, max_message) = unsafe { (Net::from_raw(net).into(), (*serv).sv_max_mesg) };
        let xprt = OwnedSvcXprt {
            memory,
            net,
            max_message,
        };
        // All RDMA fabrics have some congestion control (RFC 8881 section 2.9.1).
        xprt.set(bindings::XPT_CONG_CTRL);
        // SAFETY: The transport is new, and no other thread knows of it.
        unsafe {
            (*xprt.as_raw()).xpt_local = local.0;
            (*xprt.as_raw()).xpt_locallen = local.len();
        }
        Ok(Self {
            xprt,
            ops,
            transport: PhantomData,
        })
    }

    /// The transport, for the `T`.
    pub(crate) fn owned(&self) -> OwnedSvcXprt {
        self.xprt.clone()
    }

    /// Sets the local port. Trace events of sunrpc may copy the address at the same time: only its
    /// length must not change.
    pub(crate) fn set_local_port(&self, port: u16) {
        // SAFETY: The transport is valid, and only this thread changes its address.
        unsafe {
            let local = &raw mut (*self.xprt.as_raw()).xpt_local;
            bindings::rpcrdma_rpc_set_port(local.cast(), port);
        }
    }

    /// Publishes `transport`. From now on sunrpc owns the memory too.
    pub(crate) fn publish(self, transport: Arc<T>) -> Published<'a> {
        let raw = self.xprt.as_raw();
        let pointer = Arc::into_raw(transport).cast::<c_void>().cast_mut();
        let _ = Arc::into_raw(self.xprt.memory.clone());
        // SAFETY: The transport is new, and only its own events, which do not read these fields,
        // know of it. It is marked as busy: of its operations sunrpc calls no more than
        // `has_wspace`, which all tables have.
        unsafe {
            (*raw).xpt_ops = self.ops;
            self.xprt.transport_slot().write(pointer);
        }
        Published(raw, PhantomData)
    }
}

impl<T> Drop for NewXprt<'_, T> {
    fn drop(&mut self) {
        let raw = self.xprt.as_raw();
        // SAFETY: Only this thread knows of the transport. If it was not published, this drops the
        // reference with which the count starts. sunrpc drops a reference to the module with it,
        // and the caller of the callback will drop one too. The class has an owner, to which the
        // caller's code belongs. `xpo_free` of the class finds no transport, and leaves the memory
        // alone.
        unsafe {
            if (*self.xprt.transport_slot()).is_null() {
                bindings::rpcrdma_module_get((*(*raw).xpt_class).xcl_owner);
                bindings::svc_xprt_put(raw);
            }
        }
    }
}

/// A transport's memory, and what does not change in it.
#[derive(Clone)]
pub(crate) struct OwnedSvcXprt {
    memory: Arc<SvcMemory>,
    /// The network namespace of the service, to which sunrpc drops its reference before the
    /// transport's end.
    pub(crate) net: ARef<Net>,
    /// The longest RPC message of the service, in bytes.
    pub(crate) max_message: u32,
}

impl core::ops::Deref for OwnedSvcXprt {
    type Target = SvcXprt;

    fn deref(&self) -> &SvcXprt {
        // SAFETY: The memory is in an `Arc`, and valid as long as `self`.
        unsafe { SvcXprt::from_raw(self.memory.xprt.get()) }
    }
}
