// SPDX-License-Identifier: GPL-2.0

//! C objects that `rdma/` and `sunrpc/` pass to each other through the roles.

use super::{__kernel_sockaddr_storage as sockaddr_storage, net, rpcrdma_net_cookie, sockaddr};
use core::{ffi::c_void, ptr::NonNull};
use kernel::{sync::aref::AlwaysRefCounted, types::Opaque};

/// A network namespace.
///
/// # Invariants
///
/// A reference to a `Net` points to a live `struct net`.
#[repr(transparent)]
pub(crate) struct Net(Opaque<net>);

impl Net {
    /// Borrows a network namespace from C.
    ///
    /// # Safety
    ///
    /// `ptr` is valid, and a reference to the namespace is held for all of `'a`.
    pub(crate) unsafe fn from_raw<'a>(ptr: *mut net) -> &'a Self {
        // SAFETY: `ptr` is a namespace to which a reference is held for all of `'a` (this
        // function's contract), and `Net` is transparent over `net`.
        unsafe { &*ptr.cast() }
    }

    /// The C pointer, for calls of the connection manager.
    pub(crate) fn as_raw(&self) -> *mut net {
        self.0.get()
    }

    /// The number of the namespace, which no other one has or will have.
    pub(crate) fn cookie(&self) -> u64 {
        // SAFETY: By the type's invariant the namespace is live, and its number never changes.
        unsafe { rpcrdma_net_cookie(self.as_raw()) }
    }
}

// SAFETY: A `struct net` is reference counted and does its own locking.
unsafe impl Sync for Net {}
// SAFETY: A `struct net` may be used, and its last reference dropped, by any thread.
unsafe impl Send for Net {}

// SAFETY: The namespace is live as long as its count is not zero.
unsafe impl AlwaysRefCounted for Net {
    fn inc_ref(&self) {
        // SAFETY: By the type's invariant the namespace is live.
        unsafe { super::rpcrdma_get_net(self.as_raw()) };
    }

    unsafe fn dec_ref(obj: NonNull<Self>) {
        // SAFETY: `obj` is a live namespace, and the caller gives up one reference to it (contract
        // of `dec_ref`).
        unsafe { super::rpcrdma_put_net(obj.cast().as_ptr()) };
    }
}

/// A copy of a socket address of any family.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct SocketAddress(pub(crate) sockaddr_storage);

// SAFETY: The address is plain bytes. The union contains a pointer for alignment only.
unsafe impl Send for SocketAddress {}
// SAFETY: No method changes the address through `&self`.
unsafe impl Sync for SocketAddress {}

impl SocketAddress {
    /// The length of the structure for its address family.
    pub(crate) fn len(&self) -> usize {
        // SAFETY: Every arm of the union starts with the family.
        let family = unsafe { (*(&raw const self.0).cast::<sockaddr>()).sa_family };
        match u32::from(family) {
            // include/uapi/linux/in.h and in6.h.
            super::AF_INET => 16,
            super::AF_INET6 => 28,
            _ => 0,
        }
    }

    /// The host, whatever the port.
    pub(crate) fn host(&self) -> Host {
        Host(*self)
    }

    /// Copies an address of `length` bytes; returns `None` if no address can be that long.
    ///
    /// # Safety
    ///
    /// `length` bytes at `from` are valid.
    pub(crate) unsafe fn copy_from(from: *const sockaddr, length: usize) -> Option<Self> {
        if length > size_of::<sockaddr_storage>() {
            return None;
        }
        let mut storage = sockaddr_storage::default();
        // SAFETY: By the contract `length` bytes at `from` are valid, and `storage` has as many.
        unsafe {
            core::ptr::copy_nonoverlapping(
                from.cast::<u8>(),
                (&raw mut storage).cast::<u8>(),
                length,
            );
        }
        Some(Self(storage))
    }

    /// The C pointer, valid as long as `self` is borrowed. No callee writes through it.
    pub(crate) fn as_raw(&self) -> *mut sockaddr {
        core::ptr::from_ref(self).cast_mut().cast()
    }
}

/// An endpoint's address, to be compared without its port.
#[derive(Clone, Copy)]
pub(crate) struct Host(SocketAddress);

impl Eq for Host {}

impl PartialEq for Host {
    fn eq(&self, other: &Self) -> bool {
        // SAFETY: Both are complete addresses.
        unsafe { super::rpcrdma_rpc_cmp_addr(self.0.as_raw(), other.0.as_raw()) }
    }
}

/// A message that is owned by this object.
///
/// # Safety
///
/// [`Self::memory`] returns the same memory each time until the object is dropped, even if the
/// object is moved, and nothing else uses that memory meanwhile.
pub(crate) unsafe trait OwnedMessage: Send + Sized + 'static {
    /// State that is kept with the message.
    type Data;

    /// The location of the message, and its length in bytes. Its bytes may be written to.
    fn memory(&mut self) -> (NonNull<u8>, usize);

    /// The bytes of the message, and what is kept with it.
    fn with_data(&mut self) -> (&[u8], &mut Self::Data);

    /// Converts the object to a pointer.
    fn into_raw(self) -> NonNull<c_void>;

    /// Undoes [`Self::into_raw`].
    ///
    /// # Safety
    ///
    /// `raw` came from `into_raw` of this type, and is not used again.
    unsafe fn from_raw(raw: NonNull<c_void>) -> Self;
}
