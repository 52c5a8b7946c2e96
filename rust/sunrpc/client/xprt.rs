// SPDX-License-Identifier: GPL-2.0

//! Transports (`struct rpc_xprt`): the object itself, and the services of sunrpc that a transport
//! uses.

use crate::{
    bindings::{self, Net, SocketAddress},
    sunrpc::{
        rpc_xprt::{self, jiffies, Base, RpcXprt},
        ReclaimScope,
    },
};
use core::{num::NonZeroUsize, ptr::NonNull};
use kernel::{fmt, prelude::*, seq_file::SeqFile, seq_print, time::msecs_to_jiffies};

/// What the allocations of all transports begin with.
#[repr(C)]
pub(super) struct XprtAllocation {
    pub(super) base: Base,
    /// The queue of attempts to connect.
    pub(super) attempts: *mut bindings::workqueue_struct,
    /// Buffers for RPCs, from the transport's creation to its end. While one of these is left, an
    /// RPC allocates none, and so waits for no memory.
    pub(super) reserve: *mut bindings::mempool_t,
    /// Checks whether the responder has owed the Replies of orphaned Calls for too long.
    pub(super) overdue: bindings::delayed_work,
}

/// A transport.
///
/// # Invariants
///
/// A reference to an `Xprt` points to a valid [`XprtAllocation`], which begins a
/// [`TypedAllocation`](super::implementation::TypedAllocation).
#[repr(transparent)]
pub(crate) struct Xprt(RpcXprt);

impl core::ops::Deref for Xprt {
    type Target = RpcXprt;

    fn deref(&self) -> &RpcXprt {
        &self.0
    }
}

impl Xprt {
    /// Borrows a transport from C.
    ///
    /// # Safety
    ///
    /// `ptr` is one of this module's transports, and stays valid for all of `'a`.
    pub(super) unsafe fn from_raw<'a>(ptr: *mut bindings::rpc_xprt) -> &'a Self {
        // SAFETY: `ptr` is one of this module's transports, and stays valid for all of `'a` (this
        // function's contract). `Xprt` is transparent over `RpcXprt`, and that over `rpc_xprt`.
        unsafe { &*ptr.cast() }
    }

    /// The allocation that contains the C object.
    pub(super) fn allocation(&self) -> *mut XprtAllocation {
        self.as_raw().cast()
    }

    /// The reserve of buffers, which exists as long as the transport.
    pub(super) fn reserve(&self) -> *mut bindings::mempool_t {
        // SAFETY: By the type's invariant the allocation is valid.
        unsafe { (*self.allocation()).reserve }
    }

    /// Increments `connect_cookie`. The caller holds the send lock.
    pub(super) fn next_cookie(&self) {
        let raw = self.as_raw();
        // SAFETY: The transport is valid, and only the holder of the send lock changes the cookie.
        // Others read it without the lock.
        unsafe {
            let cookie = (*raw).connect_cookie.wrapping_add(1);
            (&raw mut (*raw).connect_cookie).write_volatile(cookie);
        }
    }

    /// Prints the columns of mountstats that all transports have, the first 10, in the order that
    /// `nfsstat` and similar tools expect.
    pub(super) fn print_stats(&self, seq: &SeqFile) {
        let hz = NonZeroUsize::new(msecs_to_jiffies(1000)).unwrap_or(NonZeroUsize::MIN);
        // SAFETY: The transport is valid. The numbers are informational, and may change at any
        // time.
        let (stat, last_used) = unsafe {
            let raw = self.as_raw();
            let stat = (&raw const (*raw).stat).read_volatile();
            (stat, (&raw const (*raw).last_used).read_volatile())
        };
        let idle = if self.is_connected() {
            jiffies().wrapping_sub(last_used)
        } else {
            0
        };
        seq_print!(
            seq,
            "\txprt:\trdma 0 {} {} {} {} {} {} {} {} {} ",
            stat.bind_count,
            stat.connect_count,
            stat.connect_time / hz,
            idle / hz,
            stat.sends,
            stat.recvs,
            stat.bad_xids,
            stat.req_u,
            stat.bklog_u,
        );
    }

    /// Logs a warning with the peer's address and port, and the transport's number.
    pub(crate) fn log_warning(&self, text: fmt::Arguments<'_>) {
        let peer = self.address();
        let (port, id) = (peer.port(), self.id());
        pr_warn!("server {peer} port {port} (xprt {id}): {text}\n");
    }

    /// The peer's address.
    pub(crate) fn address(&self) -> SocketAddress {
        // SAFETY: The transport is valid; the address is plain memory inside it. sunrpc may change
        // the port, and by sysfs the whole address, with the transport locked: an attempt to
        // connect sees all of that or nothing. Others may see a part, which makes a wrong address.
        SocketAddress(unsafe { (&raw const (*self.as_raw()).addr).read_volatile() })
    }

    /// The number by which sysfs and debugfs identify the transport.
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

    /// sunrpc's state of the connection, in one word.
    pub(crate) fn state(&self) -> &'static str {
        if self.has(bindings::XPRT_CLOSE_WAIT) {
            "closing"
        } else if self.is_connected() {
            "connected"
        } else if self.has(bindings::XPRT_CONNECTING) {
            "connecting"
        } else {
            "disconnected"
        }
    }

    /// The scope in which the transport allocates: NOFS, as writing back pages may wait for this
    /// transport, and with the reserves of memory if it carries swap.
    pub(crate) fn reclaim_scope(&self) -> ReclaimScope {
        // SAFETY: The transport is valid; the counter is an int, so it is read without tearing.
        let swapper = unsafe { (&raw const (*self.as_raw()).swapper.counter).read_volatile() };
        ReclaimScope::nofs(swapper != 0)
    }

    /// Requests that the connection be closed, by the holder of the send lock or by a worker. Does
    /// not sleep.
    pub(crate) fn force_disconnect(&self) {
        // SAFETY: The transport is valid.
        unsafe { bindings::xprt_force_disconnect(self.as_raw()) };
    }

    /// Makes the sender wait for [`Self::write_space`]. Called under the lock under which others
    /// return what it lacks, before they call that.
    pub(crate) fn wait_for_space(&self) {
        // SAFETY: The transport is valid.
        unsafe { bindings::xprt_wait_for_buffer_space(self.as_raw()) };
    }

    /// Wakes the sender that waits for space, if one does.
    pub(crate) fn write_space(&self) {
        // SAFETY: The transport is valid.
        unsafe { bindings::xprt_write_space(self.as_raw()) };
    }

    /// How long an attempt to connect may take, in jiffies.
    pub(crate) fn connect_timeout(&self) -> usize {
        // SAFETY: The transport is valid; another mount may lower this word concurrently.
        unsafe { core::ptr::read_volatile(&raw const (*self.as_raw()).connect_timeout) }
    }

    /// The longest pause before an attempt to connect, in jiffies.
    pub(crate) fn max_reconnect_timeout(&self) -> usize {
        // SAFETY: The transport is valid; another mount may lower this word concurrently.
        unsafe { core::ptr::read_volatile(&raw const (*self.as_raw()).max_reconnect_timeout) }
    }

    /// How many connections the transport has had.
    pub(crate) fn connect_count(&self) -> usize {
        // SAFETY: The transport is valid; the thread that connects may change the count.
        unsafe { (&raw const (*self.as_raw()).stat.connect_count).read_volatile() }
    }

    /// How many RPCs wait for a Reply, sent or not, and the age of the oldest in milliseconds.
    pub(crate) fn calls_outstanding(&self) -> (u32, i64) {
        // SAFETY: Always safe to call.
        let now = unsafe { bindings::ktime_get() };
        let mut oldest = now;
        // SAFETY: The transport is valid.
        let count = unsafe { bindings::rpcrdma_rpc_oldest(self.as_raw(), &mut oldest) };
        (count, now.wrapping_sub(oldest) / 1_000_000)
    }

    /// The peer has sent a message: the next attempt to connect is not delayed.
    pub(crate) fn reset_reconnect_delay(&self) {
        // SAFETY: The transport is valid. The thread that connects may change this word, each
        // of them by one access: if this one is lost, the next message repeats it.
        unsafe { (&raw mut (*self.as_raw()).reestablish_timeout).write_volatile(0) };
    }
}

/// A transport's memory, which keeps the class, and thus the module, until it is freed.
///
/// # Invariants
///
/// `ptr` came from [`rpc_xprt::allocate`] for a [`TypedAllocation`], and belongs to this object.
pub(crate) struct OwnedXprt {
    ptr: NonNull<XprtAllocation>,
}

// SAFETY: `Xprt` is `Send`, and only the drop uses the allocation otherwise.
unsafe impl Send for OwnedXprt {}
// SAFETY: `Xprt` is `Sync`, and a shared reference gives access to nothing else.
unsafe impl Sync for OwnedXprt {}

impl OwnedXprt {
    /// Takes over the allocation that `setup` made.
    ///
    /// # Safety
    ///
    /// The type's invariants hold.
    pub(super) unsafe fn new(ptr: NonNull<XprtAllocation>) -> Self {
        // INVARIANT: `ptr` is an allocation from `allocate`, and now belongs to this object (this
        // function's contract).
        Self { ptr }
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
        // called, and the strings are freed after their last RCU readers.
        unsafe {
            let raw = self.ptr.as_ptr();
            bindings::mempool_destroy((*raw).reserve);
            rpc_xprt::free(raw.cast());
        }
    }
}
