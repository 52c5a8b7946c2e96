// SPDX-License-Identifier: GPL-2.0

//! What the send lock guards: sunrpc's `XPRT_LOCKED` bit, under which a transport connects, sends
//! and closes.

use super::xprt::Xprt;
use core::cell::UnsafeCell;
use kernel::{
    new_spinlock,
    prelude::*,
    sync::{Arc, SpinLock},
};

/// The send lock of a transport, held.
///
/// There is one for what sunrpc calls with the lock: `send_request`, the worker of `connect`,
/// `close` and `destroy`. Nothing else can make one, above all no transport of a server's backward
/// direction, whose `close` is called by `svc_delete_xprt` without the lock.
///
/// # Invariants
///
/// Nobody else has the send lock of `xprt`, and this is the only object that says so.
pub(crate) struct SendLock<'a> {
    xprt: &'a Xprt,
}

impl<'a> SendLock<'a> {
    /// Says that the send lock of `xprt` is held.
    ///
    /// # Safety
    ///
    /// As the type's invariants say, for all of `'a`.
    pub(super) unsafe fn new(xprt: &'a Xprt) -> Self {
        // INVARIANT: The caller's promise.
        Self { xprt }
    }

    /// The transport whose lock it is.
    pub(super) fn xprt(&self) -> &'a Xprt {
        self.xprt
    }
}

/// A shared object that comes and goes under the send lock of one transport, and that others may
/// see at any time, under a spinlock.
///
/// # Invariants
///
/// `object` is changed only with both locks held, and looked at with the spinlock.
#[pin_data]
pub(crate) struct SendLocked<T> {
    /// The address of the transport, for comparison.
    xprt: usize,
    #[pin]
    changes: SpinLock<()>,
    object: UnsafeCell<Option<Arc<T>>>,
}

// SAFETY: The locks give out shared references and counts only.
unsafe impl<T: Send + Sync> Send for SendLocked<T> {}
// SAFETY: As above; by the type's invariant nothing changes under a reader.
unsafe impl<T: Send + Sync> Sync for SendLocked<T> {}

impl<T> SendLocked<T> {
    /// No object, under the send lock of `xprt`.
    pub(crate) fn new(xprt: &Xprt) -> impl PinInit<Self> {
        let xprt = xprt.as_raw().addr();
        pin_init!(Self {
            xprt,
            changes <- new_spinlock!((), "rpcrdma_current"),
            object: UnsafeCell::new(None),
        })
    }

    /// Puts another object, or none, in place of the one that is there; that one, or, under another
    /// transport's lock, the new one.
    pub(crate) fn replace(&self, lock: &mut SendLock<'_>, new: Option<Arc<T>>) -> Option<Arc<T>> {
        if self.xprt != lock.xprt.as_raw().addr() {
            return new;
        }
        let _guard = self.changes.lock();
        // SAFETY: Both locks are held.
        core::mem::replace(unsafe { &mut *self.object.get() }, new)
    }

    /// The object, to keep. Does not sleep.
    pub(crate) fn get(&self) -> Option<Arc<T>> {
        self.inspect(|object| object.cloned())
    }

    /// Looks at the object under the spinlock: `look` must not sleep, nor drop a count of it.
    pub(crate) fn inspect<R>(&self, look: impl FnOnce(Option<&Arc<T>>) -> R) -> R {
        let _guard = self.changes.lock();
        // SAFETY: By the type's invariant nobody changes the object while the spinlock is held.
        look(unsafe { &*self.object.get() }.as_ref())
    }
}

/// An object of who holds the send lock of one transport.
///
/// # Invariants
///
/// `object` is looked at only with the send lock held.
pub(crate) struct SendOwned<T> {
    /// The address of the transport, for comparison.
    xprt: usize,
    object: UnsafeCell<Option<T>>,
}

// SAFETY: The send lock lets one thread at a time see the object.
unsafe impl<T: Send> Sync for SendOwned<T> {}

impl<T> SendOwned<T> {
    /// No object, under the send lock of `xprt`.
    pub(crate) fn new(xprt: &Xprt) -> Self {
        Self {
            xprt: xprt.as_raw().addr(),
            object: UnsafeCell::new(None),
        }
    }

    /// The object, for as long as the send lock is held. Nothing under another transport's lock.
    pub(crate) fn get<'a>(&'a self, lock: &'a mut SendLock<'_>) -> Option<&'a mut T> {
        if self.xprt != lock.xprt.as_raw().addr() {
            return None;
        }
        // SAFETY: By the invariant of `SendLock` there is no other for this transport, and this one
        // is borrowed for change as long as the object.
        unsafe { &mut *self.object.get() }.as_mut()
    }

    /// Puts another object, or none, in place of the one that is there; that one, or, under another
    /// transport's lock, the new one.
    pub(crate) fn replace(&self, lock: &mut SendLock<'_>, new: Option<T>) -> Option<T> {
        if self.xprt != lock.xprt.as_raw().addr() {
            return new;
        }
        // SAFETY: As above.
        core::mem::replace(unsafe { &mut *self.object.get() }, new)
    }
}
