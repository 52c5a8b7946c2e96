// SPDX-License-Identifier: GPL-2.0

//! Transports (`struct rpc_xprt`): the object itself, and what a transport asks of sunrpc.

use super::{allocation::Allocation, buffer::SpareBuffers};
use crate::{
    bindings::{self, Net, SocketAddress},
    sunrpc::{
        address_strings,
        registration::ClassUser,
        rpc_xprt::{self, SpinGuard},
    },
    trace,
};
use core::ptr::NonNull;
use kernel::{fmt, prelude::*, seq_file::SeqFile, types::Opaque, workqueue::Queue};

/// A transport.
///
/// # Invariants
///
/// A reference to an `Xprt` points to the `xprt` of a valid [`Allocation`].
#[repr(transparent)]
pub(crate) struct Xprt(Opaque<bindings::rpc_xprt>);

// SAFETY: sunrpc locks its transports by its own means.
unsafe impl Send for Xprt {}
// SAFETY: As above.
unsafe impl Sync for Xprt {}

/// A transport with a reference of its own. It is no `ARef`: a transport that ends is still
/// borrowed while its count is 0, and cannot be counted any more.
///
/// # Invariants
///
/// The transport is one of this module's, and is referenced once for this object.
pub(super) struct CountedXprt(NonNull<bindings::rpc_xprt>);

impl CountedXprt {
    /// Takes a reference, as long as there is another one.
    pub(super) fn new(xprt: &Xprt) -> Option<Self> {
        // SAFETY: The transport is valid; the call does not count from 0.
        let raw = unsafe { bindings::xprt_get(xprt.as_raw()) };
        // INVARIANT: Counted just now.
        NonNull::new(raw).map(Self)
    }

    /// Leaves the reference to the pointer.
    pub(super) fn into_raw(self) -> *mut bindings::rpc_xprt {
        core::mem::ManuallyDrop::new(self).0.as_ptr()
    }

    /// Undoes [`Self::into_raw`].
    ///
    /// # Safety
    ///
    /// `raw` came from `into_raw`, once.
    pub(super) unsafe fn from_raw(raw: NonNull<bindings::rpc_xprt>) -> Self {
        // INVARIANT: The caller's promise.
        Self(raw)
    }
}

impl core::ops::Deref for CountedXprt {
    type Target = Xprt;

    fn deref(&self) -> &Xprt {
        // SAFETY: By the type's invariant.
        unsafe { Xprt::from_raw(self.0.as_ptr()) }
    }
}

/// Does not sleep: if the reference is the last one, the module's workqueue gives it back. With it
/// the transport ends, which waits for whoever connects or closes.
impl Drop for CountedXprt {
    fn drop(&mut self) {
        // SAFETY: By the type's invariant the transport is valid, and one count is this object's.
        unsafe {
            if bindings::rpcrdma_xprt_put_unless_last(self.as_raw()) {
                return;
            }
            let allocation = self.allocation();
            bindings::rpcrdma_init_delayed_work(&raw mut (*allocation).put, Some(put));
            // The one reference that is left is that of the work.
            self.enqueue(&raw mut (*allocation).put, 0);
        }
    }
}

/// Gives the last reference to a transport back, on the module's workqueue.
///
/// # Safety
///
/// `work` is the `put` of an [`Allocation`], queued by the drop of a [`CountedXprt`].
unsafe extern "C" fn put(work: *mut bindings::work_struct) {
    // SAFETY: The work is that of a transport, which has one reference left, for this.
    unsafe {
        let delayed = kernel::container_of!(work, bindings::delayed_work, work);
        let allocation = kernel::container_of!(delayed, Allocation, put);
        bindings::xprt_put(&raw mut (*allocation).xprt);
    }
}

impl Xprt {
    /// Borrows a transport from C.
    ///
    /// # Safety
    ///
    /// `ptr` is one of this module's transports and stays so for all of `'a`.
    pub(super) unsafe fn from_raw<'a>(ptr: *mut bindings::rpc_xprt) -> &'a Self {
        // SAFETY: `Xprt` is transparent over `rpc_xprt`; the rest is the caller's promise.
        unsafe { &*ptr.cast() }
    }

    /// The C pointer.
    pub(super) fn as_raw(&self) -> *mut bindings::rpc_xprt {
        self.0.get()
    }

    /// What surrounds the C object.
    pub(super) fn allocation(&self) -> *mut Allocation {
        self.as_raw().cast()
    }

    /// Has the module's workqueue do `work`, so many jiffies from now.
    ///
    /// # Safety
    ///
    /// The work is one of this transport's [`Allocation`], and initialised. If it is queued
    /// already, it stays as it is.
    pub(super) unsafe fn enqueue(&self, work: *mut bindings::delayed_work, delay: usize) {
        // SAFETY: The allocation is valid, and has the queue since setup; the rest is the caller's
        // promise.
        unsafe { rpc_xprt::enqueue((*self.allocation()).queue, work, delay) };
    }

    /// The allocation whose work it is.
    ///
    /// # Safety
    ///
    /// `work` is that of an [`Allocation`].
    pub(super) unsafe fn of_work(work: *mut bindings::work_struct) -> *mut Allocation {
        // SAFETY: The caller's promise.
        unsafe {
            let delayed = kernel::container_of!(work, bindings::delayed_work, work);
            kernel::container_of!(delayed, Allocation, work)
        }
    }

    /// Buffers for RPCs to come.
    pub(super) fn spare_buffers(&self) -> &SpareBuffers {
        // SAFETY: By the type's invariant the allocation is valid; zeroes are no buffers.
        unsafe { &(*self.allocation()).spare_buffers }
    }

    /// The implementation.
    ///
    /// # Safety
    ///
    /// `T` is the type of all of this module's transports, and setup has succeeded.
    pub(super) unsafe fn transport<T>(&self) -> &T {
        // SAFETY: Setup stored an `Arc<T>`, which `destroy` takes back when nobody else calls.
        unsafe { &*(*self.allocation()).transport.cast::<T>() }
    }

    /// Writes the columns of mountstats that all transports have.
    pub(super) fn print_stats(&self, seq: &SeqFile) {
        // SAFETY: The transport is valid.
        unsafe { rpc_xprt::print_stats(self.as_raw(), seq) };
    }

    /// Writes one line of warning with the peer's address and port.
    pub(crate) fn log_warning(&self, text: fmt::Arguments<'_>) {
        let peer = self.address();
        pr_warn!("server {peer} port {}: {text}\n", peer.port());
    }

    /// The peer's address.
    pub(crate) fn address(&self) -> SocketAddress {
        // SAFETY: The transport is valid; the address is plain memory inside it.
        SocketAddress::new(unsafe { (*self.as_raw()).addr })
    }

    /// The number by which sysfs and debugfs name the transport.
    pub(crate) fn id(&self) -> u32 {
        // SAFETY: The transport is valid, and the number never changes.
        unsafe { (*self.as_raw()).id }
    }

    /// The network namespace of the mount.
    pub(crate) fn net(&self) -> &Net {
        // SAFETY: The transport holds a reference to its namespace.
        unsafe { Net::from_raw((*self.as_raw()).xprt_net) }
    }

    /// The most requests that can be outstanding.
    pub(crate) fn max_requests(&self) -> u32 {
        // SAFETY: The transport is valid, and the limit never changes.
        unsafe { (*self.as_raw()).max_reqs }
    }

    /// Whether the transport counts as connected.
    pub(crate) fn is_connected(&self) -> bool {
        // SAFETY: The transport is valid.
        unsafe { rpc_xprt::is_connected(self.as_raw()) }
    }

    /// The state bits, which change at any time.
    fn bits(&self) -> usize {
        // SAFETY: The transport is valid; the bits are read at once, as test_bit() does.
        unsafe { core::ptr::read_volatile(&raw const (*self.as_raw()).state) }
    }

    /// What sunrpc knows of the connection, in one word.
    pub(crate) fn state(&self) -> &'static str {
        let state = self.bits();
        let is = |bit: u32| state >> bit & 1 != 0;
        if is(bindings::XPRT_CLOSE_WAIT) {
            "closing"
        } else if is(bindings::XPRT_CONNECTED) {
            "connected"
        } else if is(bindings::XPRT_CONNECTING) {
            "connecting"
        } else {
            "disconnected"
        }
    }

    /// Whether swap space is reached over the transport.
    pub(crate) fn is_swapper(&self) -> bool {
        // SAFETY: The transport is valid; the counter is read without tearing, being an int.
        unsafe { core::ptr::read_volatile(&raw const (*self.as_raw()).swapper.counter) != 0 }
    }

    /// Asks for the connection to be closed, by whoever holds the send lock or by a worker. Does
    /// not sleep.
    pub(crate) fn force_disconnect(&self) {
        // SAFETY: The transport is valid.
        unsafe { bindings::xprt_force_disconnect(self.as_raw()) };
    }

    /// Makes the sender wait for [`Self::write_space`]. The caller looks once more, afterwards,
    /// whether what it lacked came back.
    pub(crate) fn wait_for_space(&self) {
        // SAFETY: The transport is valid.
        unsafe { bindings::xprt_wait_for_buffer_space(self.as_raw()) };
        // Pairs with the barrier in `write_space`: either the waker sees the wish, or the sender's
        // second look sees what came back.
        full_barrier();
    }

    /// Wakes the sender that waits for room.
    pub(crate) fn write_space(&self) {
        // Pairs with the barrier in `wait_for_space`.
        full_barrier();
        if self.bits() & (1 << bindings::XPRT_WRITE_SPACE) != 0 {
            // SAFETY: The transport is valid.
            unsafe { bindings::xprt_write_space(self.as_raw()) };
        }
    }

    /// How long a connect may take, in jiffies.
    pub(crate) fn connect_timeout(&self) -> usize {
        // SAFETY: The transport is valid; a word that another mount may lower meanwhile.
        unsafe { core::ptr::read_volatile(&raw const (*self.as_raw()).connect_timeout) }
    }

    /// The longest pause before an attempt to connect, in jiffies.
    pub(crate) fn max_reconnect_timeout(&self) -> usize {
        // SAFETY: The transport is valid; a word that another mount may lower meanwhile.
        unsafe { core::ptr::read_volatile(&raw const (*self.as_raw()).max_reconnect_timeout) }
    }

    /// How many connections the transport has had.
    pub(crate) fn connect_count(&self) -> usize {
        // SAFETY: The transport is valid; only a connect changes the count.
        unsafe { (*self.as_raw()).stat.connect_count }
    }

    /// Takes note of a sign of life, after which the next connect need not wait.
    pub(crate) fn peer_is_alive(&self) {
        // SAFETY: The transport is valid. Whoever connects may change the word at the same time,
        // each at once: if this is lost, the next message says it again.
        unsafe { (&raw mut (*self.as_raw()).reestablish_timeout).write_volatile(0) };
    }

    pub(super) fn queue_lock(&self) -> SpinGuard<'_> {
        // SAFETY: The transport is valid.
        unsafe { rpc_xprt::queue_lock(self.as_raw()) }
    }

    pub(super) fn transport_lock(&self) -> SpinGuard<'_> {
        // SAFETY: As above.
        unsafe { rpc_xprt::transport_lock(self.as_raw()) }
    }
}

/// A full memory barrier between CPUs. The kernel crate's own takes an argument from 7.3 on.
fn full_barrier() {
    // SAFETY: Always safe to call.
    unsafe { bindings::smp_mb() };
}

impl trace::TraceXprt for Xprt {
    fn id(&self) -> u32 {
        Xprt::id(self)
    }
}

impl trace::TraceXprt for OwnedXprt {
    fn id(&self) -> u32 {
        Xprt::id(self)
    }
}

/// A transport's memory. It keeps the class, and the module, last of all.
///
/// # Invariants
///
/// `ptr` came from `xprt_alloc` with the size of an [`Allocation`], is initialised, and belongs to
/// this object.
pub(crate) struct OwnedXprt {
    ptr: NonNull<Allocation>,
    user: ClassUser,
}

// SAFETY: As for `Xprt`.
unsafe impl Send for OwnedXprt {}
// SAFETY: As above.
unsafe impl Sync for OwnedXprt {}

impl OwnedXprt {
    /// Takes over what `setup` has allocated.
    ///
    /// # Safety
    ///
    /// As the type's invariants say.
    pub(super) unsafe fn new(ptr: NonNull<Allocation>, user: ClassUser) -> Self {
        // INVARIANT: The caller's promise.
        Self { ptr, user }
    }

    /// The workqueue of all transports.
    pub(crate) fn queue(&self) -> &Queue {
        // SAFETY: The queue is valid as long as `user`.
        unsafe { Queue::from_raw(self.user.queue()) }
    }
}

impl core::ops::Deref for OwnedXprt {
    type Target = Xprt;

    fn deref(&self) -> &Xprt {
        // SAFETY: By the type's invariant the allocation is valid as long as `self`.
        unsafe { Xprt::from_raw(self.ptr.as_ptr().cast()) }
    }
}

impl Drop for OwnedXprt {
    fn drop(&mut self) {
        // SAFETY: This object owns the allocation. Either sunrpc never saw it, or `destroy` was
        // called, and the strings' last readers are waited for.
        unsafe {
            let raw = self.ptr.as_ptr();
            (*raw).spare_buffers.clear();
            address_strings::free_strings(&mut (*raw).xprt);
            bindings::xprt_free(&raw mut (*raw).xprt);
        }
    }
}
