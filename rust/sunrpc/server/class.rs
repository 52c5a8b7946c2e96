// SPDX-License-Identifier: GPL-2.0

//! Classes of server transports: what sunrpc finds by a name such as "rdma".

use super::{ops::ListenerOps, transport::SvcListener};
use crate::bindings;
use core::{cell::UnsafeCell, marker::PhantomData};
use kernel::{
    error::to_result,
    prelude::*,
    str::{CStr, CStrExt},
    sync::atomic::{Atomic, Relaxed},
};

/// The class of the listeners `L` and what these accept (`struct svc_xprt_class`), and of no other
/// transports. It is a static because they point to it.
///
/// # Invariants
///
/// `raw` is only changed by the thread that has set `was_registered`, and from then on by sunrpc.
pub(crate) struct SvcClass<L> {
    raw: UnsafeCell<bindings::svc_xprt_class>,
    was_registered: Atomic<bool>,
    listener: PhantomData<fn(L)>,
}

// SAFETY: By the type's invariant only one thread at a time changes the class, and sunrpc locks
// what it changes.
unsafe impl<L> Sync for SvcClass<L> {}

impl<L: SvcListener> SvcClass<L> {
    /// A class with this name and this number, which no other class has, for RPCs with up to
    /// `max_payload` bytes of data.
    pub(crate) const fn new(name: &'static CStr, ident: i32, max_payload: u32) -> Self {
        // SAFETY: The C structure is valid when zeroed.
        let mut raw: bindings::svc_xprt_class =
            unsafe { core::mem::MaybeUninit::zeroed().assume_init() };
        raw.xcl_name = name.to_bytes_with_nul().as_ptr();
        raw.xcl_ident = ident;
        raw.xcl_max_payload = max_payload;
        raw.xcl_ops = &ListenerOps::<L>::OPS;
        Self {
            raw: UnsafeCell::new(raw),
            was_registered: Atomic::new(false),
            listener: PhantomData,
        }
    }

    /// The C structure.
    pub(super) fn as_raw(&self) -> *mut bindings::svc_xprt_class {
        self.raw.get()
    }

    /// Registers the class.
    ///
    /// # Errors
    ///
    /// `EBUSY` the second time, `EEXIST` if another module has registered a class of this name.
    pub(crate) fn register(
        &'static self,
        module: &'static ThisModule,
    ) -> Result<SvcRegistration<L>> {
        if self.was_registered.xchg(true, Relaxed) {
            return Err(EBUSY);
        }
        let raw = self.as_raw();
        // SAFETY: By the type's invariant no other thread changes the class, and sunrpc does not
        // know of it yet. When it is registered it is complete, and it is a static.
        unsafe {
            (*raw).xcl_owner = module.as_ptr();
            to_result(bindings::svc_reg_xprt_class(raw)).inspect_err(|_| {
                let name = CStr::from_char_ptr((*raw).xcl_name);
                pr_err!("another module has registered the server class \"{name}\": unload it\n");
            })?;
        }
        // INVARIANT: It was just registered.
        Ok(SvcRegistration(self))
    }
}

/// A class known to sunrpc until this object is dropped. Each of its transports holds a reference
/// to the module.
///
/// # Invariants
///
/// The class is registered.
pub(crate) struct SvcRegistration<L: SvcListener>(&'static SvcClass<L>);

impl<L: SvcListener> Drop for SvcRegistration<L> {
    fn drop(&mut self) {
        // SAFETY: The class is a static, and is registered (type invariant).
        unsafe { bindings::svc_unreg_xprt_class(self.0.as_raw()) };
    }
}
