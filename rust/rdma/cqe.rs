// SPDX-License-Identifier: GPL-2.0

//! Completion handles (`struct ib_cqe`), embedded in what they complete.

use crate::bindings;
use core::{marker::PhantomData, ptr::NonNull};
use kernel::types::Opaque;

/// A completion handle, which is a field of the `T` that it completes. `ID` tells the handles of a
/// type apart that has several.
#[repr(transparent)]
pub(super) struct Cqe<T, const ID: u64 = 0> {
    raw: bindings::ib_cqe,
    container: PhantomData<fn(&T)>,
}

impl<T: Complete<ID>, const ID: u64> Cqe<T, ID> {
    /// A handle that calls [`Complete::complete`] of what contains it.
    pub(super) const fn new() -> Self {
        Self {
            raw: bindings::ib_cqe {
                done: Some(done::<T, ID>),
            },
            container: PhantomData,
        }
    }
}

/// A type with a completion handle in it. Implemented by [`impl_has_cqe`].
///
/// # Safety
///
/// `OFFSET` is that of a field of type [`Cqe<Self, ID>`].
pub(super) unsafe trait HasCqe<const ID: u64 = 0>: Sized {
    /// Where the handle is, in bytes from the start.
    const OFFSET: usize;

    /// The pointer for `wr_cqe` of a work request that is to complete `this`.
    fn wr_cqe(this: *const Self) -> *mut bindings::ib_cqe {
        this.wrapping_byte_add(Self::OFFSET).cast_mut().cast()
    }
}

/// Says which field is the completion handle.
macro_rules! impl_has_cqe {
    ($(impl$({$($generics:tt)*})? HasCqe<$id:literal> for $self:ty { self.$field:ident })*) => {$(
        // SAFETY: The field has this type, or the assertion does not compile.
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

/// What happens when a work request completes.
pub(super) trait Complete<const ID: u64 = 0>: HasCqe<ID> {
    /// Takes the completion `wc` of a work request that `this` has posted. On the RDMA core's
    /// completion workqueue, in process context; completions of one queue come one at a time.
    ///
    /// # Safety
    ///
    /// `this` is what the request's `wr_cqe` was made from ([`HasCqe::wr_cqe`]), and the request
    /// has completed just now. The queue pair is not destroyed yet.
    unsafe fn complete(this: NonNull<Self>, cq: &Opaque<bindings::ib_cq>, wc: &bindings::ib_wc);
}

/// The completion handler of a [`Cqe<T, ID>`].
///
/// # Safety
///
/// As the RDMA core calls it: `cq` and `wc` are valid during the call, and `wc.wr_cqe` is that of
/// the work request that completed.
unsafe extern "C" fn done<T: Complete<ID>, const ID: u64>(
    cq: *mut bindings::ib_cq,
    wc: *mut bindings::ib_wc,
) {
    // SAFETY: Both are valid during the call.
    let (cq, wc) = unsafe { (&*cq.cast(), &*wc) };
    // SAFETY: All requests that the RDMA core polls have a `wr_cqe`. Only those have a handle with
    // this function that name the handle in a `T`, so the pointer is within one.
    unsafe {
        let this = wc.__bindgen_anon_1.wr_cqe.cast::<T>();
        T::complete(NonNull::new_unchecked(this.byte_sub(T::OFFSET)), cq, wc);
    }
}
