// SPDX-License-Identifier: GPL-2.0

//! C objects that `rdma/` and `sunrpc/` pass to each other through the roles.

use super::{
    __kernel_sockaddr_storage as sockaddr_storage, net, page, rpcrdma_net_cookie, sockaddr,
};
use core::{ffi::c_void, num::NonZeroUsize, ptr::NonNull};
use kernel::{
    page::PAGE_SIZE,
    sync::atomic::{Acquire, Atomic, Relaxed, Release},
    types::Opaque,
};

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
        // SAFETY: `Net` is transparent over `net`; the caller guarantees the rest.
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

/// A copy of a socket address of any family.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct SocketAddress(sockaddr_storage);

// SAFETY: The address is plain bytes. The union contains a pointer for alignment only.
unsafe impl Send for SocketAddress {}
// SAFETY: As above.
unsafe impl Sync for SocketAddress {}

impl SocketAddress {
    /// Wraps a complete address.
    pub(crate) fn new(storage: sockaddr_storage) -> Self {
        Self(storage)
    }

    /// The C structure.
    pub(crate) fn storage(&self) -> &sockaddr_storage {
        &self.0
    }

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
        let mut bytes = [0; 28];
        let length = self.len().min(bytes.len());
        // SAFETY: The storage is longer than this, and all of its bytes are initialised: sunrpc and
        // the connection manager fill addresses into zeroes.
        unsafe {
            core::ptr::copy_nonoverlapping(
                (&raw const self.0).cast::<u8>(),
                bytes.as_mut_ptr(),
                length,
            );
        }
        // The port, behind the family.
        if let Some(port) = bytes.get_mut(2..4) {
            port.fill(0);
        }
        Host(bytes)
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
        // SAFETY: Guaranteed by the caller, and there is room, as just checked.
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

/// An endpoint's address without its port.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Host([u8; 28]);

/// A message that is owned by this object.
///
/// # Safety
///
/// [`Self::memory`] returns the same memory each time until the object is dropped, even if the
/// object is moved, and nobody else uses that memory meanwhile.
pub(crate) unsafe trait OwnedMessage: Send + Sized + 'static {
    /// The location of the message, and its length in bytes. Its bytes may be written to.
    fn memory(&mut self) -> (NonNull<u8>, usize);

    /// Converts the object to a pointer.
    fn into_raw(self) -> NonNull<c_void>;

    /// Undoes [`Self::into_raw`].
    ///
    /// # Safety
    ///
    /// `raw` came from `into_raw` of this type, and is not used again.
    unsafe fn from_raw(raw: NonNull<c_void>) -> Self;
}

/// Counts the regions through which devices, and thus peers, can reach the memory of one RPC.
///
/// The fence is built on this: `sunrpc/` neither completes an RPC nor frees its memory before the
/// count is zero, whatever the transport does.
pub(crate) struct Exposure(Atomic<u32>);

impl Exposure {
    /// For memory that no device can reach.
    pub(crate) fn new() -> Self {
        Self(Atomic::new(0))
    }

    /// Whether no device can reach the memory any longer.
    pub(crate) fn is_over(&self) -> bool {
        // Pairs with the release in `Exposed::drop`: what the device wrote is visible.
        self.0.load(Acquire) == 0
    }
}

/// One region's contribution to an [`Exposure`], until it is dropped.
///
/// # Invariants
///
/// The pointer is valid: the owner of the memory keeps it until the count is zero, and this object
/// is counted.
pub(crate) struct Exposed(NonNull<Exposure>);

// SAFETY: The count is atomic.
unsafe impl Send for Exposed {}

impl Drop for Exposed {
    fn drop(&mut self) {
        // SAFETY: By the type's invariant; nothing uses the memory after the count has been
        // dropped.
        unsafe { self.0.as_ref() }.0.fetch_sub(1, Release);
    }
}

/// The location of the bytes of a [`MessagePart`].
#[derive(Clone, Copy)]
pub(crate) enum Memory {
    /// An array of pages, and the offset of the first byte from the start of the first page, which
    /// can exceed the page size.
    Pages(NonNull<*mut page>, usize),
    /// Physically contiguous memory.
    Linear(NonNull<u8>),
}

/// A part of an RPC message that can be registered.
///
/// # Invariants
///
/// `memory` has `length` bytes, at least one. They stay allocated for all of `'a`, and afterwards
/// until `exposure`, which is that of the RPC, is over; if they are `counted`, only as long as
/// their pages are referenced, and all of these can be referenced.
#[derive(Clone, Copy)]
pub(crate) struct MessagePart<'a> {
    memory: Memory,
    length: usize,
    exposure: &'a Exposure,
    counted: bool,
}

impl<'a> MessagePart<'a> {
    /// Describes a part; returns `None` if it is empty.
    ///
    /// # Safety
    ///
    /// The type's invariants hold.
    pub(crate) unsafe fn new(
        memory: Memory,
        length: usize,
        exposure: &'a Exposure,
        counted: bool,
    ) -> Option<Self> {
        // INVARIANT: Guaranteed by the caller, and the length is checked.
        (length != 0).then_some(Self {
            memory,
            length,
            exposure,
            counted,
        })
    }

    /// Whether whoever maps the bytes must take references to their pages.
    pub(crate) fn is_counted(&self) -> bool {
        self.counted
    }

    /// Keeps the bytes allocated, and the RPC waiting, until the returned object is dropped.
    pub(crate) fn expose(&self) -> Exposed {
        self.exposure.0.fetch_add(1, Relaxed);
        // INVARIANT: Just counted, while the borrow keeps the memory.
        Exposed(NonNull::from(self.exposure))
    }

    /// As [`Self::expose`], for all of `parts`. Returns `None` if there are no parts, or if they do
    /// not all belong to one RPC.
    pub(crate) fn expose_all(parts: &[Option<Self>]) -> Option<Exposed> {
        let mut parts = parts.iter().flatten();
        let first = parts.next()?;
        parts
            .all(|part| core::ptr::eq(part.exposure, first.exposure))
            .then(|| first.expose())
    }

    /// The location of the bytes.
    pub(crate) fn memory(&self) -> Memory {
        self.memory
    }

    /// Length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// Offset of the first byte within its page.
    fn offset(&self) -> usize {
        match self.memory {
            Memory::Pages(_, base) => base % PAGE_SIZE,
            Memory::Linear(start) => start.as_ptr().addr() % PAGE_SIZE,
        }
    }

    /// How many scatterlist elements are needed to describe the bytes.
    pub(crate) fn element_count(&self) -> usize {
        match self.memory {
            Memory::Linear(_) => 1,
            Memory::Pages(..) => self
                .offset()
                .saturating_add(self.length)
                .div_ceil(PAGE_SIZE),
        }
    }

    /// How many regions are needed for the bytes, if each holds `bytes` bytes in whole pages.
    pub(crate) fn region_count(&self, bytes: NonZeroUsize) -> usize {
        let touched = self.offset().saturating_add(self.length);
        // Most parts need one, and a division is slow.
        if touched <= bytes.get() {
            return 1;
        }
        let rest = usize::from(touched % bytes != 0);
        (touched / bytes).saturating_add(rest)
    }

    /// Splits off what lies beyond the first pages, which are `bytes` long; returns `None` if
    /// nothing does.
    pub(crate) fn split_off(&mut self, bytes: usize) -> Option<Self> {
        let first = bytes.saturating_sub(self.offset());
        if first == 0 || self.length <= first {
            return None;
        }
        let memory = match self.memory {
            Memory::Pages(array, base) => Memory::Pages(array, base.saturating_add(first)),
            // SAFETY: `first` is less than the length, so the result is within the same memory.
            Memory::Linear(start) => Memory::Linear(unsafe { start.add(first) }),
        };
        // INVARIANT: Both parts lie within the original one, and neither is empty.
        let length = self.length.saturating_sub(first);
        self.length = first;
        Some(Self {
            memory,
            length,
            ..*self
        })
    }
}
