// SPDX-License-Identifier: GPL-2.0

//! A linked list of boxes, linked through a field of theirs.
//!
//! The kernel crate's list takes counted references (`ListArc`), which give no `&mut`. Contexts of
//! Sends and Receives, and MRs, have one owner, who writes to them without a lock.

use core::{
    cell::UnsafeCell,
    marker::PhantomData,
    mem::ManuallyDrop,
    ptr::{null_mut, NonNull},
};
use kernel::prelude::*;

/// The link of an object that can be on a [`List`], one at a time, to the next object there.
pub(crate) struct Link<T>(UnsafeCell<*mut T>);

impl<T> Link<T> {
    /// The link of an object that is on no list.
    pub(super) const fn new() -> Self {
        Self(UnsafeCell::new(null_mut()))
    }
}

// SAFETY: Only the list that an object is on uses its link.
unsafe impl<T> Send for Link<T> {}

/// An object that can be on a [`List`].
///
/// # Safety
///
/// [`Self::link`] returns a field of `self`, always the same one, which only [`List`] uses.
pub(crate) unsafe trait Linked: Sized {
    /// The link.
    fn link(&self) -> &Link<Self>;
}

/// A value that can be on a [`List`].
pub(super) struct Node<T> {
    link: Link<Self>,
    pub(super) value: T,
}

impl<T> Node<T> {
    /// Allocates one. May sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new(value: T) -> Result<KBox<Self>> {
        let link = Link::new();
        Ok(KBox::new(Self { link, value }, GFP_KERNEL)?)
    }
}

// SAFETY: Always the field `link`.
unsafe impl<T> Linked for Node<T> {
    fn link(&self) -> &Link<Self> {
        &self.link
    }
}

/// Boxes in order.
///
/// # Invariants
///
/// `first` and `last` are null, or the links lead from `first` to `last`, whose link is null. There
/// are `len` objects, each of which came from `KBox::into_raw`, and belongs to this list.
pub(crate) struct List<T: Linked> {
    first: *mut T,
    last: *mut T,
    len: u32,
    boxes: PhantomData<KBox<T>>,
}

// SAFETY: The list owns its objects, as a vector of boxes would.
unsafe impl<T: Linked + Send> Send for List<T> {}

impl<T: Linked> List<T> {
    /// An empty list.
    pub(crate) const fn new() -> Self {
        Self {
            first: null_mut(),
            last: null_mut(),
            len: 0,
            boxes: PhantomData,
        }
    }

    /// How many objects there are.
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// Whether the list is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_null()
    }

    /// The first object.
    pub(crate) fn first(&self) -> Option<&T> {
        self.iter().next()
    }

    /// The objects in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> + Clone {
        let mut next = self.first;
        core::iter::from_fn(move || {
            // SAFETY: `next` is null or an object of this list (type invariant).
            unsafe {
                let object = next.as_ref()?;
                next = *object.link().0.get();
                Some(object)
            }
        })
    }

    /// Appends an object.
    pub(crate) fn push_back(&mut self, object: KBox<T>) {
        // SAFETY: The object is on no list.
        unsafe { *object.link().0.get() = null_mut() };
        let object = KBox::into_raw(object);
        // SAFETY: The object is no other list's, and its link is null.
        unsafe { self.join(object, object, 1) };
    }

    /// Inserts an object at the front.
    pub(crate) fn push_front(&mut self, object: KBox<T>) {
        let mut rest = self.take();
        self.push_back(object);
        self.append(&mut rest);
    }

    /// Removes the first object.
    pub(crate) fn pop_front(&mut self) -> Option<KBox<T>> {
        self.remove_first(|_| true)
    }

    /// Removes the first object that satisfies a condition.
    pub(super) fn remove_first(&mut self, is_it: impl Fn(&T) -> bool) -> Option<KBox<T>> {
        let (mut before, mut object) = (null_mut::<T>(), self.first);
        // SAFETY: `before` and `object` are null or objects of this list, which came from
        // `KBox::into_raw` (type invariant).
        unsafe {
            while !is_it(object.as_ref()?) {
                before = object;
                object = *(*object).link().0.get();
            }
            let next = *(*object).link().0.get();
            match before.as_ref() {
                Some(before) => *before.link().0.get() = next,
                None => self.first = next,
            }
            if next.is_null() {
                self.last = before;
            }
            self.len = self.len.wrapping_sub(1);
            Some(KBox::from_raw(object))
        }
    }

    /// Removes the object at this address.
    pub(super) fn take_object(&mut self, at: NonNull<T>) -> Option<KBox<T>> {
        self.remove_first(|object| core::ptr::eq(object, at.as_ptr()))
    }

    /// Moves all objects of `other` to the end of this list.
    pub(crate) fn append(&mut self, other: &mut Self) {
        if !other.is_empty() {
            let other = ManuallyDrop::new(other.take());
            // SAFETY: These are the objects of a list that is not used any more.
            unsafe { self.join(other.first, other.last, other.len) };
        }
    }

    /// Appends `len` objects, which the links lead through.
    ///
    /// # Safety
    ///
    /// They are the objects of a list (type invariant), and belong to no other one.
    unsafe fn join(&mut self, first: *mut T, last: *mut T, len: u32) {
        // SAFETY: `last` is null or an object of this list, and only the list uses its link.
        unsafe {
            match self.last.as_ref() {
                Some(last) => *last.link().0.get() = first,
                None => self.first = first,
            }
        }
        self.last = last;
        self.len = self.len.wrapping_add(len);
    }

    /// Takes all objects.
    pub(crate) fn take(&mut self) -> Self {
        core::mem::replace(self, Self::new())
    }
}

impl<T: Linked> Drop for List<T> {
    fn drop(&mut self) {
        while let Some(object) = self.pop_front() {
            drop(object);
        }
    }
}

#[cfg(rpcrdma_kunit)]
#[kernel::macros::kunit_tests(rpcrdma_list)]
mod tests {
    use super::*;

    /// A list of these values.
    fn list(values: &[u32]) -> List<Node<u32>> {
        let mut list = List::new();
        for &value in values {
            list.push_back(Node::new(value).unwrap());
        }
        list
    }

    /// Checks the values of a list, and empties it from the front.
    fn check(mut list: List<Node<u32>>, values: &[u32]) {
        assert_eq!(usize::try_from(list.len()), Ok(values.len()));
        assert!(list
            .iter()
            .map(|node| node.value)
            .eq(values.iter().copied()));
        for &value in values {
            assert_eq!(list.first().map(|node| node.value), Some(value));
            assert_eq!(list.pop_front().map(|node| node.value), Some(value));
        }
        assert!(list.is_empty() && list.pop_front().is_none());
    }

    #[test]
    fn objects_are_removed_anywhere() {
        for (value, rest) in [(1, [2, 3]), (2, [1, 3]), (3, [1, 2])] {
            let mut list = list(&[1, 2, 3]);
            let removed = list.remove_first(|node| node.value == value);
            assert_eq!(removed.map(|node| node.value), Some(value));
            assert!(list.remove_first(|node| node.value == value).is_none());
            // The ends are right as well.
            list.push_back(Node::new(4).unwrap());
            list.push_front(Node::new(0).unwrap());
            check(list, &[0, rest[0], rest[1], 4]);
        }
    }

    #[test]
    fn lists_are_joined() {
        for (first, second, all) in [
            (&[][..], &[][..], &[][..]),
            (&[], &[1, 2], &[1, 2]),
            (&[1, 2], &[], &[1, 2]),
            (&[1, 2], &[3], &[1, 2, 3]),
        ] {
            let (mut list, mut other) = (list(first), list(second));
            list.append(&mut other);
            check(other, &[]);
            let taken = list.take();
            check(list, &[]);
            check(taken, all);
        }
    }
}
