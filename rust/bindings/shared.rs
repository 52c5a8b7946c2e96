// SPDX-License-Identifier: GPL-2.0

//! C objects that `rdma/` and `sunrpc/` hand to each other through `client/`.

use super::{__kernel_sockaddr_storage as sockaddr_storage, net, page, sockaddr};
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
    /// `ptr` is valid, and the namespace is referenced for all of `'a`.
    pub(crate) unsafe fn from_raw<'a>(ptr: *mut net) -> &'a Self {
        // SAFETY: `Net` is transparent over `net`; the rest is the caller's promise.
        unsafe { &*ptr.cast() }
    }

    /// The C pointer, for calls into the RDMA CM.
    pub(crate) fn as_raw(&self) -> *mut net {
        self.0.get()
    }
}

// SAFETY: A `struct net` is reference counted and locked by its own means.
unsafe impl Sync for Net {}

/// A copy of an endpoint's socket address, of any family.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct SocketAddress(sockaddr_storage);

// SAFETY: The address is plain bytes. The pointer in the union only aligns it.
unsafe impl Send for SocketAddress {}
// SAFETY: As above.
unsafe impl Sync for SocketAddress {}

impl SocketAddress {
    /// Wraps a complete address.
    pub(crate) fn new(storage: sockaddr_storage) -> Self {
        Self(storage)
    }

    /// The address itself.
    pub(crate) fn storage(&self) -> &sockaddr_storage {
        &self.0
    }

    /// How many of its bytes count: those of its family's structure.
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

    /// Copies an address of which `length` bytes count; nothing if it is longer than any can be.
    ///
    /// # Safety
    ///
    /// So many bytes at `from` are valid.
    pub(crate) unsafe fn copy_from(from: *const sockaddr, length: usize) -> Option<Self> {
        if length > size_of::<sockaddr_storage>() {
            return None;
        }
        let mut storage = sockaddr_storage::default();
        // SAFETY: The caller's promise, and there is room, as just checked.
        unsafe {
            core::ptr::copy_nonoverlapping(
                from.cast::<u8>(),
                (&raw mut storage).cast::<u8>(),
                length,
            );
        }
        Some(Self(storage))
    }

    /// The C pointer, valid as long as `self` is borrowed. No callee writes to it.
    pub(crate) fn as_raw(&self) -> *mut sockaddr {
        core::ptr::from_ref(self).cast_mut().cast()
    }
}

/// A message that belongs to who has the object.
///
/// # Safety
///
/// [`Self::memory`] gives the same memory each time, until the object is dropped, wherever it is
/// moved, and nobody else uses it meanwhile.
pub(crate) unsafe trait OwnedMessage: Send + Sized + 'static {
    /// Where the message is, and how many bytes it has. They may be written to.
    fn memory(&mut self) -> (NonNull<u8>, usize);

    /// Leaves the object to a pointer.
    fn into_raw(self) -> NonNull<c_void>;

    /// Undoes [`Self::into_raw`].
    ///
    /// # Safety
    ///
    /// `raw` came from `into_raw` of this type, and is not used any more.
    unsafe fn from_raw(raw: NonNull<c_void>) -> Self;
}

/// Counts the regions through which devices, and with them peers, can reach the memory of one RPC.
///
/// This is what the fence stands on: `sunrpc/` neither completes an RPC nor frees its memory
/// before the count is zero, whatever the transport does.
pub(crate) struct Exposure(Atomic<u32>);

impl Exposure {
    /// Of memory that no device can reach.
    pub(crate) fn new() -> Self {
        Self(Atomic::new(0))
    }

    /// Whether no device can reach the memory any more.
    pub(crate) fn is_over(&self) -> bool {
        // Pairs with the release in `Exposed::drop`: what the device wrote is seen.
        self.0.load(Acquire) == 0
    }
}

/// One region's part in an [`Exposure`], until it is dropped.
///
/// # Invariants
///
/// The pointer is valid: its owner keeps the memory until the count is zero, and this object is
/// counted.
pub(crate) struct Exposed(NonNull<Exposure>);

// SAFETY: The count is atomic.
unsafe impl Send for Exposed {}

impl Drop for Exposed {
    fn drop(&mut self) {
        // SAFETY: By the type's invariant; nothing uses the memory after the count is given up.
        unsafe { self.0.as_ref() }.0.fetch_sub(1, Release);
    }
}

/// Where the bytes of a [`MessagePart`] are.
#[derive(Clone, Copy)]
pub(crate) enum Memory {
    /// Pages: the array, and the offset of the first byte from the start of the first page, which
    /// can exceed a page.
    Pages(NonNull<*mut page>, usize),
    /// Physically contiguous memory.
    Linear(NonNull<u8>),
}

/// A part of an RPC message that can be registered.
///
/// # Invariants
///
/// `memory` has `length` bytes, more than none. They stay allocated for all of `'a`, and after it
/// until `exposure`, which is the RPC's, is over; if they are `counted`, only as long as their
/// pages are referenced, all of which can be.
#[derive(Clone, Copy)]
pub(crate) struct MessagePart<'a> {
    memory: Memory,
    length: usize,
    exposure: &'a Exposure,
    counted: bool,
}

impl<'a> MessagePart<'a> {
    /// Describes a part; nothing if it is empty.
    ///
    /// # Safety
    ///
    /// As the type's invariant says.
    pub(crate) unsafe fn new(
        memory: Memory,
        length: usize,
        exposure: &'a Exposure,
        counted: bool,
    ) -> Option<Self> {
        // INVARIANT: The caller's promise, and the length is checked.
        (length != 0).then_some(Self {
            memory,
            length,
            exposure,
            counted,
        })
    }

    /// Whether who maps the bytes has to reference their pages.
    pub(crate) fn is_counted(&self) -> bool {
        self.counted
    }

    /// Keeps the bytes allocated, and the RPC waiting, until the result is dropped.
    pub(crate) fn expose(&self) -> Exposed {
        self.exposure.0.fetch_add(1, Relaxed);
        // INVARIANT: Counted just now, while the borrow keeps the memory.
        Exposed(NonNull::from(self.exposure))
    }

    /// The same for all of `parts`. Nothing if there is no part, or if they are not all of one RPC.
    pub(crate) fn expose_all(parts: &[Option<Self>]) -> Option<Exposed> {
        let mut parts = parts.iter().flatten();
        let first = parts.next()?;
        parts
            .all(|part| core::ptr::eq(part.exposure, first.exposure))
            .then(|| first.expose())
    }

    /// Where the bytes are.
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

    /// How many elements of a scatterlist describe the bytes.
    pub(crate) fn element_count(&self) -> usize {
        match self.memory {
            Memory::Linear(_) => 1,
            Memory::Pages(..) => self
                .offset()
                .saturating_add(self.length)
                .div_ceil(PAGE_SIZE),
        }
    }

    /// How many regions the bytes take, each of so many bytes of whole pages.
    pub(crate) fn region_count(&self, bytes: NonZeroUsize) -> usize {
        let touched = self.offset().saturating_add(self.length);
        // Most take one, and a division takes long.
        if touched <= bytes.get() {
            return 1;
        }
        let rest = usize::from(touched % bytes != 0);
        (touched / bytes).saturating_add(rest)
    }

    /// Splits off what lies beyond the first pages, which are `bytes` long, if there is anything.
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
        // INVARIANT: Both parts lie within what `self` was, and neither is empty.
        let length = self.length.saturating_sub(first);
        self.length = first;
        Some(Self {
            memory,
            length,
            ..*self
        })
    }
}
