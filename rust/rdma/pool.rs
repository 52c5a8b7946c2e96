// SPDX-License-Identifier: GPL-2.0

//! Contexts of work requests, allocated on demand and reused.

use super::qp::Qp;
use core::{cell::Cell, ptr::NonNull};
use kernel::{
    new_spinlock,
    prelude::*,
    sync::{
        atomic::{Atomic, Relaxed},
        SpinLock,
    },
};

/// The links by which a context is kept in its [`Pool`].
///
/// # Invariants
///
/// Only the pool uses them, with its lock held.
pub(crate) struct Links<T> {
    /// The next context in the list of all.
    all: Cell<*mut T>,
    /// The next context in the list of idle ones.
    idle: Cell<*mut T>,
}

impl<T> Links<T> {
    /// Links of a context that is in no pool.
    pub(super) const fn new() -> Self {
        Self {
            all: Cell::new(core::ptr::null_mut()),
            idle: Cell::new(core::ptr::null_mut()),
        }
    }
}

/// An object that can be kept in a pool.
///
/// # Safety
///
/// [`Self::links`] always returns the same object, which nobody but the pool uses.
pub(crate) unsafe trait Pooled: Send + Sized {
    /// Its links.
    fn links(&self) -> &Links<Self>;
}

/// Contexts of one kind. All of them are freed with the pool, whether lent out or not: the borrower
/// of a context has to keep the pool alive.
///
/// # Invariants
///
/// All contexts came from `KBox::into_raw`, and are linked from `all`; `idle` links some of them.
#[pin_data(PinnedDrop)]
pub(crate) struct Pool<T: Pooled> {
    #[pin]
    lists: SpinLock<Lists<T>>,
    numbers: Atomic<u32>,
}

struct Lists<T> {
    all: *mut T,
    idle: *mut T,
    /// How many there are, and how many of them are idle.
    count: u32,
    idle_count: u32,
    /// The most that were lent out at once lately.
    most: u32,
}

/// Contexts that are kept in any case.
const KEPT: u32 = 2;

// SAFETY: Each context is owned by the pool, or by one borrower.
unsafe impl<T: Send> Send for Lists<T> {}

impl<T: Pooled> Pool<T> {
    /// An empty pool.
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            lists <- new_spinlock!(Lists {
                all: core::ptr::null_mut(),
                idle: core::ptr::null_mut(),
                count: 0,
                idle_count: 0,
                most: 0,
            }, "rpcrdma_contexts"),
            numbers: Atomic::new(0),
        })
    }

    /// A number that no other context of the pool has, unless four thousand million were made.
    pub(super) fn number(&self) -> u32 {
        self.numbers.fetch_add(1, Relaxed)
    }

    /// Lends out an idle context, which belongs to the caller until [`Self::put`].
    pub(super) fn take(&self) -> Option<NonNull<T>> {
        let mut lists = self.lists.lock();
        let context = NonNull::new(lists.idle)?;
        // SAFETY: All contexts of the pool are allocated (type invariant), and the lock, under
        // which alone their links are used, is held.
        lists.idle = unsafe { context.as_ref() }.links().idle.get();
        lists.idle_count = lists.idle_count.saturating_sub(1);
        lists.lent();
        Some(context)
    }

    /// Adds a context, which belongs to the caller until [`Self::put`].
    pub(super) fn add(&self, context: KBox<T>) -> NonNull<T> {
        let context = NonNull::from(KBox::leak(context));
        let mut lists = self.lists.lock();
        // SAFETY: The context is new, and nobody else knows of it.
        unsafe { context.as_ref() }.links().all.set(lists.all);
        lists.all = context.as_ptr();
        lists.count = lists.count.saturating_add(1);
        lists.lent();
        context
    }

    /// Takes back a context. Whenever none is lent out, frees those beyond the most that were lent
    /// out at once lately.
    ///
    /// # Safety
    ///
    /// It came from this pool, and the caller no longer uses it. Its requests are posted to the
    /// send queue of `qp` only, by [`Qp::post_send_beside`] or [`Qp::post_send_gated`]. These
    /// calls have ended, or the last request's link is always null.
    pub(super) unsafe fn put(&self, context: NonNull<T>, qp: &Qp) {
        let mut lists = self.lists.lock();
        // SAFETY: By the type's invariant; nobody uses the context.
        unsafe { context.as_ref() }.links().idle.set(lists.idle);
        lists.idle = context.as_ptr();
        lists.idle_count = lists.idle_count.saturating_add(1);
        if lists.idle_count != lists.count {
            return;
        }
        let kept = lists.most.max(KEPT);
        lists.most = lists.most.div_ceil(2);
        if lists.count <= kept {
            return;
        }
        let surplus = lists.cut(kept);
        drop(lists);
        // A request may complete while the provider has yet to look for one behind it.
        qp.wait_for_posting();
        // SAFETY: Nobody else knows of these, which came from `KBox::into_raw`.
        unsafe { free(surplus) };
    }

    /// How many contexts are lent out, and how many there are.
    pub(super) fn len(&self) -> (u32, u32) {
        let lists = self.lists.lock();
        (lists.count.saturating_sub(lists.idle_count), lists.count)
    }

    /// Passes all contexts to `end`.
    ///
    /// # Safety
    ///
    /// Nobody uses a context any longer, and none is added.
    pub(super) unsafe fn end_all(&self, mut end: impl FnMut(&mut T)) {
        let mut next = self.lists.lock().all;
        // SAFETY: `all` links contexts that came from `KBox::into_raw` (type invariant). Nobody
        // else uses one, and the list does not change (this function's contract).
        while let Some(context) = unsafe { next.as_mut() } {
            next = context.links().all.get();
            end(context);
        }
    }
}

impl<T: Pooled> Lists<T> {
    /// Records that one more is lent out.
    fn lent(&mut self) {
        self.most = self.most.max(self.count.saturating_sub(self.idle_count));
    }

    /// Cuts the list of all contexts after the first `kept`, and returns the rest. All are idle,
    /// and there are more than `kept`.
    fn cut(&mut self, kept: u32) -> *mut T {
        (self.count, self.idle_count) = (kept, kept);
        self.idle = self.all;
        let mut last = self.all;
        for _ in 1..kept {
            // SAFETY: By the pool's invariant there are more than these, none of which anybody
            // uses.
            let links = unsafe { (*last).links() };
            last = links.all.get();
            links.idle.set(last);
        }
        // SAFETY: `all` links more than `kept` contexts, so `last` is one of them. All are idle, so
        // nobody uses them.
        let links = unsafe { (*last).links() };
        links.idle.set(core::ptr::null_mut());
        links.all.replace(core::ptr::null_mut())
    }
}

/// Frees a list of contexts linked by `all`.
///
/// # Safety
///
/// They came from `KBox::into_raw`, and nobody uses them.
unsafe fn free<T: Pooled>(first: *mut T) {
    let mut next = first;
    while !next.is_null() {
        // SAFETY: The context came from `KBox::into_raw`, and nobody uses it (this function's
        // contract).
        let context = unsafe { KBox::from_raw(next) };
        next = context.links().all.get();
    }
}

#[pinned_drop]
impl<T: Pooled> PinnedDrop for Pool<T> {
    fn drop(self: Pin<&mut Self>) {
        let all = self.lists.lock().all;
        // SAFETY: The pool is dropped, and its borrowers have kept it alive for as long as they
        // used a context.
        unsafe { free(all) };
    }
}
