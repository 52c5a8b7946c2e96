// SPDX-License-Identifier: GPL-2.0

//! The part of a transport's allocation that its implementation determines.

use super::{
    ops::ClientTransport,
    xprt::{Allocation, Xprt},
};
use core::mem::MaybeUninit;
use kernel::sync::{Arc, ArcBorrow};

/// The allocation of a transport that a `T` implements.
#[repr(C)]
pub(super) struct TypedAllocation<T: ClientTransport> {
    allocation: Allocation,
    /// Initialised by setup, and dropped by the end of the transport.
    pub(super) transport: MaybeUninit<Arc<T>>,
    /// The sender of the connection. The send lock guards it.
    pub(super) sender: Option<T::Sender>,
}

impl Xprt {
    /// The allocation with the implementation.
    ///
    /// # Safety
    ///
    /// The transport was made for a `T`.
    pub(super) unsafe fn typed<T: ClientTransport>(&self) -> *mut TypedAllocation<T> {
        self.as_raw().cast()
    }

    /// The implementation.
    ///
    /// # Safety
    ///
    /// The transport was made for a `T`, and its setup has succeeded.
    pub(super) unsafe fn transport<T: ClientTransport>(&self) -> ArcBorrow<'_, T> {
        // SAFETY: Setup has initialised the field, which is dropped only when there are no other
        // callers.
        let transport = unsafe { (*self.typed::<T>()).transport.assume_init_ref() };
        transport.as_arc_borrow()
    }

    /// The sender of the connection, if there is one.
    ///
    /// # Safety
    ///
    /// The transport was made for a `T`. Its send lock (sunrpc's `XPRT_LOCKED` bit) is held for all
    /// of `'a`, and the holder has no other reference from this function.
    pub(super) unsafe fn sender<'a, T: ClientTransport>(&self) -> &'a mut Option<T::Sender> {
        // SAFETY: The send lock allows only its holder to access the field (this function's
        // contract).
        unsafe { &mut (*self.typed::<T>()).sender }
    }

    /// Closes the connection, if there is one. May sleep.
    ///
    /// # Safety
    ///
    /// As for [`Self::sender`], and the transport's setup has succeeded.
    pub(super) unsafe fn close<T: ClientTransport>(&self) {
        // SAFETY: The transport was made for a `T`, and its send lock is held (this function's
        // contract).
        if let Some(sender) = unsafe { self.sender::<T>() }.take() {
            // SAFETY: The transport was made for a `T`, and its setup has succeeded (this
            // function's contract).
            unsafe { self.transport::<T>() }.close(sender);
        }
    }
}
