// SPDX-License-Identifier: GPL-2.0

//! The send lock and the objects it guards: sunrpc's `XPRT_LOCKED` bit, under which a transport
//! connects, sends and closes.

use super::xprt::Xprt;
use core::cell::UnsafeCell;
use kernel::{
    new_spinlock,
    prelude::*,
    sync::{Arc, SpinLock},
};

/// The send lock of a transport, held.
///
/// One is created for each callback that sunrpc makes with the lock held: `send_request`, the
/// worker of `connect`, `close` and `destroy`. Nothing else can create one, in particular not the
/// transport of a server's backward direction, whose `close` is called by `svc_delete_xprt` without
/// the lock.
///
/// # Invariants
///
/// The send lock of `xprt` is held on behalf of this object, and there is no other such object for
/// `xprt`.
pub(crate) struct SendLock<'a> {
    xprt: &'a Xprt,
}

impl<'a> SendLock<'a> {
    /// Declares that the send lock of `xprt` is held.
    ///
    /// # Safety
    ///
    /// The type's invariants hold for all of `'a`.
    pub(super) unsafe fn new(xprt: &'a Xprt) -> Self {
        // INVARIANT: The send lock of `xprt` is held for all of `'a`, and there is no other such
        // object for `xprt` (this function's contract).
        Self { xprt }
    }

    /// Lets what was sent before count as sent on an earlier connection.
    pub(super) fn next_cookie(&mut self) {
        let raw = self.xprt.as_raw();
        // SAFETY: The transport is valid, and by the type's invariant the lock that guards the
        // cookie is held. Others read it without the lock.
        unsafe {
            let cookie = (*raw).connect_cookie.wrapping_add(1);
            (&raw mut (*raw).connect_cookie).write_volatile(cookie);
        }
    }

    /// The transport whose lock this is.
    pub(super) fn xprt(&self) -> &'a Xprt {
        self.xprt
    }
}

/// A shared object that is replaced by holders of the send lock only. Others may access it at any
/// time, under a spinlock.
#[pin_data]
pub(crate) struct SendLocked<T> {
    #[pin]
    object: SpinLock<Option<Arc<T>>>,
}

impl<T> SendLocked<T> {
    /// No object at first.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            object <- new_spinlock!(None, "rpcrdma_current"),
        })
    }

    /// Replaces the object, and returns the old one.
    pub(crate) fn replace(&self, _lock: &mut SendLock<'_>, new: Option<Arc<T>>) -> Option<Arc<T>> {
        core::mem::replace(&mut *self.object.lock(), new)
    }

    /// A counted reference to the object. Does not sleep.
    pub(crate) fn get(&self) -> Option<Arc<T>> {
        self.object.lock().clone()
    }

    /// Calls `look` on the object under the spinlock: it must not sleep, nor drop a counted
    /// reference to the object.
    pub(crate) fn inspect<R>(&self, look: impl FnOnce(Option<&Arc<T>>) -> R) -> R {
        look(self.object.lock().as_ref())
    }
}

/// An object that only the holder of one transport's send lock may access.
///
/// # Invariants
///
/// `object` is accessed only with the send lock held.
pub(crate) struct SendOwned<T> {
    /// The address of the transport, for comparison.
    xprt: usize,
    object: UnsafeCell<Option<T>>,
}

// SAFETY: The send lock allows only one thread at a time to access the object.
unsafe impl<T: Send> Sync for SendOwned<T> {}

impl<T> SendOwned<T> {
    /// No object at first. The send lock is that of `xprt`.
    pub(crate) fn new(xprt: &Xprt) -> Self {
        Self {
            xprt: xprt.as_raw().addr(),
            object: UnsafeCell::new(None),
        }
    }

    /// The object, for as long as the send lock is held. `None` under another transport's lock.
    pub(crate) fn get<'a>(&'a self, lock: &'a mut SendLock<'_>) -> Option<&'a mut T> {
        if self.xprt != lock.xprt.as_raw().addr() {
            return None;
        }
        // SAFETY: By the invariant of `SendLock` there is no other one for this transport, and this
        // one is mutably borrowed for as long as the object is.
        unsafe { &mut *self.object.get() }.as_mut()
    }

    /// Replaces the object, and returns the old one. Under another transport's lock nothing is
    /// replaced, and `new` is returned.
    pub(crate) fn replace(&self, lock: &mut SendLock<'_>, new: Option<T>) -> Option<T> {
        if self.xprt != lock.xprt.as_raw().addr() {
            return new;
        }
        // SAFETY: By the invariant of `SendLock` there is no other one for this transport, and this
        // one is mutably borrowed during the call.
        core::mem::replace(unsafe { &mut *self.object.get() }, new)
    }
}
