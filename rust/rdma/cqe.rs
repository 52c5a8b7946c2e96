// SPDX-License-Identifier: GPL-2.0

//! Completion handles (`struct ib_cqe`), embedded in the objects whose work requests they complete.

use crate::{bindings, trace::TraceCq};
use core::{marker::PhantomData, ptr::NonNull};
use kernel::types::Opaque;

/// A completion handle, which is a field of the `T` whose work requests it completes. `ID`
/// distinguishes the handles of a type that has several.
#[repr(transparent)]
pub(super) struct Cqe<T, const ID: u64 = 0> {
    raw: bindings::ib_cqe,
    container: PhantomData<fn(&T)>,
}

impl<T: Complete<ID>, const ID: u64> Cqe<T, ID> {
    /// A handle that calls [`Complete::complete`] on the object that contains it.
    pub(super) const fn new() -> Self {
        Self {
            raw: bindings::ib_cqe {
                done: Some(done::<T, ID>),
            },
            container: PhantomData,
        }
    }
}

/// A type that contains a completion handle. Implemented by [`impl_has_cqe`].
///
/// # Safety
///
/// `OFFSET` is the offset of a field of type [`Cqe<Self, ID>`].
pub(super) unsafe trait HasCqe<const ID: u64 = 0>: Sized {
    /// The offset of the handle in bytes.
    const OFFSET: usize;

    /// The `wr_cqe` of a work request whose completion goes to `this`.
    fn wr_cqe(this: *const Self) -> *mut bindings::ib_cqe {
        this.wrapping_byte_add(Self::OFFSET).cast_mut().cast()
    }
}

/// Names the field that is the completion handle.
macro_rules! impl_has_cqe {
    ($(impl$({$($generics:tt)*})? HasCqe<$id:literal> for $self:ty { self.$field:ident })*) => {$(
        // SAFETY: The field has this type, or the closure below does not compile.
        unsafe impl$(<$($generics)*>)? $crate::rdma::cqe::HasCqe<$id> for $self {
            const OFFSET: usize = {
                let _ = |this: &Self| -> *const $crate::rdma::cqe::Cqe<Self, $id> {
                    &raw const this.$field
                };
                core::mem::offset_of!(Self, $field)
            };
        }
    )*};
}
pub(super) use impl_has_cqe;

/// The completion queue of a completion that is being handled.
///
/// # Invariants
///
/// The queue is valid as long as this object is borrowed.
#[repr(transparent)]
pub(crate) struct CqRef(Opaque<bindings::ib_cq>);

impl CqRef {
    /// Borrows a completion queue from C.
    ///
    /// # Safety
    ///
    /// The type's invariants hold for all of `'a`.
    pub(super) unsafe fn from_raw<'a>(ptr: *mut bindings::ib_cq) -> &'a Self {
        // SAFETY: `ptr` is a CQ that stays valid for all of `'a` (this function's contract), and
        // `CqRef` is transparent over `ib_cq`.
        unsafe { &*ptr.cast() }
    }
}

impl TraceCq for CqRef {
    fn number(&self) -> u32 {
        // SAFETY: By the type's invariant; the number does not change.
        unsafe { (*self.0.get()).res.id }
    }
}

/// Handles the completion of a work request.
pub(super) trait Complete<const ID: u64 = 0>: HasCqe<ID> {
    /// Handles the completion `wc` of a work request that was posted with the handle in `this`.
    /// Runs on the RDMA core's completion workqueue, in process context; the completions of one
    /// queue, which only this module uses ([`super::cq::Cq`]), are handled one at a time.
    ///
    /// # Safety
    ///
    /// `this` is the pointer from which the request's `wr_cqe` was made ([`HasCqe::wr_cqe`]), and
    /// the request has just completed. The queue pair has not been destroyed yet.
    unsafe fn complete(this: NonNull<Self>, cq: &CqRef, wc: &bindings::ib_wc);
}

/// The completion handler of a [`Cqe<T, ID>`].
///
/// # Safety
///
/// Called only by the RDMA core: `cq` and `wc` are valid during the call, and `wc.wr_cqe` is that
/// of the work request that completed.
unsafe extern "C" fn done<T: Complete<ID>, const ID: u64>(
    cq: *mut bindings::ib_cq,
    wc: *mut bindings::ib_wc,
) {
    // SAFETY: Both are valid during the call.
    let (cq, wc) = unsafe { (CqRef::from_raw(cq), &*wc) };
    // SAFETY: The RDMA core calls the handler that it finds through the `wr_cqe` of the request.
    // Only handles within a `T` have this function as their handler, so the pointer is that of such
    // a handle.
    unsafe {
        let this = wc.__bindgen_anon_1.wr_cqe.cast::<T>();
        T::complete(NonNull::new_unchecked(this.byte_sub(T::OFFSET)), cq, wc);
    }
}
