// SPDX-License-Identifier: GPL-2.0

//! Server transports (`struct svc_xprt`): the object itself, and the services of sunrpc that a
//! transport uses.

use super::backchannel::Bc;
use crate::bindings::{self, Net, SocketAddress};
use core::{ffi::c_void, ptr::NonNull};
use kernel::{
    prelude::*,
    sync::{
        aref::ARef,
        atomic::{Atomic, Relaxed},
        Arc, ArcBorrow,
    },
    types::Opaque,
};

/// The numbers of the flags in `svc_xprt.xpt_flags`.
pub(super) mod flag {
    use crate::bindings;

    /// A connection waits to be accepted.
    pub(in super::super) const CONN: u32 = bindings::XPT_CONN;
    /// A Call waits for a thread.
    pub(in super::super) const DATA: u32 = bindings::XPT_DATA;
    /// The transport is to be closed.
    pub(in super::super) const CLOSE: u32 = bindings::XPT_CLOSE;
    /// The transport is closed.
    pub(in super::super) const DEAD: u32 = bindings::XPT_DEAD;
    /// The transport is a listener.
    pub(in super::super) const LISTENER: u32 = bindings::XPT_LISTENER;
    /// Client and service are on one machine.
    pub(in super::super) const LOCAL: u32 = bindings::XPT_LOCAL;
    /// The transport has congestion control, as NFSv4 requires.
    pub(in super::super) const CONG_CTRL: u32 = bindings::XPT_CONG_CTRL;
}

/// The memory of one transport. It has an owner in this module ([`OwnedSvcXprt`]), sunrpc from when
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

    /// Calls `with` while it holds a reference, unless sunrpc has dropped the last one. May sleep:
    /// this reference may have become the last one.
    pub(super) fn with_reference<R>(&self, with: impl FnOnce() -> R) -> Option<R> {
        // SAFETY: The memory is valid (type invariant), and the reference is dropped below.
        if !unsafe { bindings::rpcrdma_svc_xprt_get_unless_zero(self.as_raw()) } {
            return None;
        }
        let result = with();
        // SAFETY: The reference was taken above.
        unsafe { bindings::svc_xprt_put(self.as_raw()) };
        Some(result)
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

    /// Undoes [`OwnedSvcXprt::publish`], if the transport was published: returns the
    /// implementation.
    ///
    /// # Safety
    ///
    /// `this` is a valid transport of this module, made for a `T`, to which sunrpc no longer has a
    /// reference. It is not used after the call.
    pub(super) unsafe fn take_transport<T>(this: *mut bindings::svc_xprt) -> Option<Arc<T>> {
        // SAFETY: `this` is a valid transport for a `T`, to which sunrpc has no reference, so
        // nobody else uses the pointer to its implementation (this function's contract). If that is
        // not null, `publish` stored the pointer of an `Arc<T>` there, and left sunrpc a count of
        // the memory's `Arc`.
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
        const MASK: usize = 1 << flag::CLOSE | 1 << flag::DEAD;
        self.flags() & MASK != 0
    }

    /// The flags, which may change at any time.
    pub(super) fn flags(&self) -> usize {
        // SAFETY: The transport is valid; the flags are read at once, as test_bit() does.
        unsafe { core::ptr::read_volatile(&raw const (*self.as_raw()).xpt_flags) }
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

    /// Whether client and service are on one machine.
    pub(super) fn is_local(&self) -> bool {
        self.flags() >> flag::LOCAL & 1 != 0
    }

    /// Sets XPT_DATA: a thread can take a Call. To be followed by [`Self::enqueue`].
    pub(crate) fn set_data(&self) {
        self.set(flag::DATA);
    }

    /// Clears XPT_DATA: no thread can take a Call.
    pub(crate) fn clear_data(&self) {
        self.clear(flag::DATA);
    }

    /// Sets XPT_CONN: a connection waits to be accepted. To be followed by [`Self::enqueue`].
    pub(crate) fn set_conn(&self) {
        self.set(flag::CONN);
    }

    /// Wakes a thread to look at the transport, if it is not busy and a flag says that there is
    /// something to do. Does not sleep.
    pub(crate) fn enqueue(&self) {
        // SAFETY: The transport is valid (type invariant). After its last reference is gone it is
        // marked as busy for good, so the call leaves it alone.
        unsafe { bindings::svc_xprt_enqueue(self.as_raw()) };
    }

    /// Makes a thread close the transport. Does not sleep.
    pub(crate) fn close(&self) {
        // SAFETY: The transport is valid (type invariant). After its last reference is gone it is
        // marked as busy for good, so the call leaves it alone.
        unsafe { bindings::svc_xprt_deferred_close(self.as_raw()) };
    }

    /// Closes the transport, in this thread unless another one is using it. May sleep.
    pub(crate) fn close_now(&self) {
        // SAFETY: The transport is valid (type invariant). After its last reference is gone it is
        // marked as busy for good, so the call leaves it alone.
        unsafe { bindings::svc_xprt_close(self.as_raw()) };
    }
}

/// Proof that a thread of the service is about to accept a connection on this listener.
pub(crate) struct Accepting<'a>(&'a SvcXprt);

impl<'a> Accepting<'a> {
    /// Declares that a thread of the listener's service accepts a connection.
    ///
    /// # Safety
    ///
    /// It does so as long as this object exists.
    pub(super) unsafe fn new(listener: &'a SvcXprt) -> Self {
        Self(listener)
    }
}

/// A transport's memory, and what sunrpc needs of it until it is published.
pub(crate) struct OwnedSvcXprt {
    memory: Arc<SvcMemory>,
    /// The network namespace of the service, to which sunrpc drops its reference before the
    /// transport's end.
    net: ARef<Net>,
    /// The longest RPC message of the service, in bytes.
    max_message: u32,
    /// Whether sunrpc has the reference with which the count starts.
    is_published: Atomic<bool>,
}

impl OwnedSvcXprt {
    /// A transport of `serv` in `net`, with the operations of the class until [`Self::publish`].
    ///
    /// # Safety
    ///
    /// `net` and `serv` are valid, and `serv` stays so as long as sunrpc has the transport. `class`
    /// is one that this module has registered.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    unsafe fn new(
        net: *mut bindings::net,
        class: *mut bindings::svc_xprt_class,
        serv: *mut bindings::svc_serv,
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
        let this = Self {
            memory,
            net,
            max_message,
            is_published: Atomic::new(false),
        };
        // All RDMA fabrics have some congestion control (RFC 8881 section 2.9.1).
        this.set(flag::CONG_CTRL);
        Ok(this)
    }

    /// A listener of `serv` in `net`, at `address`.
    ///
    /// # Safety
    ///
    /// As for [`Self::new`].
    pub(super) unsafe fn listener(
        net: *mut bindings::net,
        class: *mut bindings::svc_xprt_class,
        serv: *mut bindings::svc_serv,
        address: &SocketAddress,
    ) -> Result<Self> {
        // SAFETY: `net`, `class` and `serv` are what `new` requires (this function's contract).
        let this = unsafe { Self::new(net, class, serv)? };
        this.set(flag::LISTENER);
        this.set_local(address);
        this.name(b"listener");
        Ok(this)
    }

    /// A connection between these addresses that was accepted by `listener`.
    ///
    /// The peer chooses its port freely, and another one after each reconnect: without the port,
    /// nfsd's reply cache recognises the client.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn connection(
        listener: &Accepting<'_>,
        local: &SocketAddress,
        peer: &SocketAddress,
    ) -> Result<Self> {
        // SAFETY: The listener is valid, and is one of this module's transports; its service is
        // about to accept a connection.
        let this = unsafe {
            let raw = listener.0.as_raw();
            Self::new((*raw).xpt_net, (*raw).xpt_class, (*raw).xpt_server)?
        };
        this.set_local(local);
        // SAFETY: Both addresses are complete.
        if unsafe { bindings::rpcrdma_rpc_cmp_addr(local.as_raw(), peer.as_raw()) } {
            this.set(flag::LOCAL);
        }
        let mut text = [0u8; 64];
        // SAFETY: The transport is new, and nobody else knows of it. The address is complete, and
        // the size is that of the buffer.
        unsafe {
            let raw = this.as_raw();
            (*raw).xpt_remote = *peer.storage();
            (*raw).xpt_remotelen = peer.len();
            bindings::rpcrdma_rpc_set_port((&raw mut (*raw).xpt_remote).cast(), 0);
            bindings::rpc_ntop(peer.as_raw(), text.as_mut_ptr().cast(), text.len());
        }
        this.name(text.split(|&byte| byte == 0).next().unwrap_or(b"?"));
        Ok(this)
    }

    /// The network namespace of the service.
    pub(crate) fn net(&self) -> &Net {
        &self.net
    }

    /// The longest RPC message of the service, in bytes.
    pub(crate) fn max_message(&self) -> u32 {
        self.max_message
    }

    /// Sets the peer's name in messages for users.
    fn name(&self, text: &[u8]) {
        // SAFETY: The transport is new, and nobody else knows of it.
        let buffer = unsafe { &mut (*self.as_raw()).xpt_remotebuf };
        let room = buffer.len().saturating_sub(1);
        buffer.fill(0);
        for (to, from) in buffer.iter_mut().zip(text.iter().take(room)) {
            *to = *from;
        }
    }

    /// Sets the local address.
    fn set_local(&self, local: &SocketAddress) {
        // SAFETY: The transport is new, and nobody else knows of it.
        unsafe {
            (*self.as_raw()).xpt_local = *local.storage();
            (*self.as_raw()).xpt_locallen = local.len();
        }
    }

    /// Sets the local port, before the transport is published. Trace events of sunrpc may copy the
    /// address at the same time: only its length must not change.
    pub(super) fn set_local_port(&self, port: u16) {
        // SAFETY: The transport is valid, and only this thread changes its address.
        unsafe {
            let local = &raw mut (*self.as_raw()).xpt_local;
            bindings::rpcrdma_rpc_set_port(local.cast(), port);
        }
    }

    /// Whether this is a new connection of the service and the network namespace of `listener`.
    pub(super) fn is_accepted_by(&self, listener: &SvcXprt) -> bool {
        let (own, other) = (self.as_raw(), listener.as_raw());
        // SAFETY: Both are valid, and these fields never change.
        let is_same = unsafe {
            (*own).xpt_class == (*other).xpt_class
                && (*own).xpt_server == (*other).xpt_server
                && (*own).xpt_net == (*other).xpt_net
        };
        is_same && self.flags() >> flag::LISTENER & 1 == 0
    }

    /// Publishes `transport` with its operations; returns the pointer to give to sunrpc, or null if
    /// a transport was published before. From now on sunrpc owns the memory too.
    ///
    /// # Safety
    ///
    /// The operations are those for a `T`.
    pub(super) unsafe fn publish<T>(
        &self,
        transport: Arc<T>,
        ops: &'static bindings::svc_xprt_ops,
    ) -> *mut bindings::svc_xprt {
        if self.is_published.xchg(true, Relaxed) {
            return core::ptr::null_mut();
        }
        let raw = self.as_raw();
        let pointer = Arc::into_raw(transport).cast::<c_void>().cast_mut();
        let _ = Arc::into_raw(self.memory.clone());
        // SAFETY: The transport is new, and only its own events, which do not read these fields,
        // know of it. It is marked as busy: of its operations nobody calls more than `has_wspace`,
        // which all tables have.
        unsafe {
            (*raw).xpt_ops = ops;
            self.transport_slot().write(pointer);
        }
        raw
    }
}

impl core::ops::Deref for OwnedSvcXprt {
    type Target = SvcXprt;

    fn deref(&self) -> &SvcXprt {
        // SAFETY: The memory is in an `Arc`, and valid as long as `self`.
        unsafe { SvcXprt::from_raw(self.memory.xprt.get()) }
    }
}

impl Drop for OwnedSvcXprt {
    fn drop(&mut self) {
        if !self.is_published.load(Relaxed) {
            // sunrpc drops a reference to the module with that to the transport, and whoever asked
            // for a new transport will drop one too.
            // SAFETY: The class has an owner, to which the caller's code belongs. Its `xpo_free`
            // finds no transport, and leaves the memory alone.
            unsafe {
                bindings::rpcrdma_module_get((*(*self.as_raw()).xpt_class).xcl_owner);
                bindings::svc_xprt_put(self.as_raw());
            }
        }
    }
}
