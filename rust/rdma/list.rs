// SPDX-License-Identifier: GPL-2.0

//! A doubly linked list of boxes, linked through a field of theirs.

use core::{
    marker::PhantomData,
    mem::ManuallyDrop,
    ptr::{null_mut, NonNull},
};
use kernel::prelude::*;

/// The links of an object that can be on a [`List`], one at a time.
pub(crate) struct Links<T> {
    next: *mut T,
    prev: *mut T,
}

impl<T> Links<T> {
    /// Links of an object that is on no list.
    pub(super) const fn new() -> Self {
        Self {
            next: null_mut(),
            prev: null_mut(),
        }
    }
}

// SAFETY: Only the list that an object is on uses its links.
unsafe impl<T> Send for Links<T> {}

/// An object that can be on a [`List`].
///
/// # Safety
///
/// [`Self::links`] is the address of a field of `this`, always the same one, which only [`List`]
/// uses.
pub(crate) unsafe trait Linked: Sized {
    /// The address of the links.
    ///
    /// # Safety
    ///
    /// `this` points to an object.
    unsafe fn links(this: *mut Self) -> *mut Links<Self>;
}

/// A value that can be on a [`List`].
pub(super) struct Node<T> {
    links: Links<Self>,
    pub(super) value: T,
}

impl<T> Node<T> {
    /// Allocates one. May sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new(value: T) -> Result<KBox<Self>> {
        let links = Links::new();
        Ok(KBox::new(Self { links, value }, GFP_KERNEL)?)
    }
}

// SAFETY: Always the field `links`.
unsafe impl<T> Linked for Node<T> {
    unsafe fn links(this: *mut Self) -> *mut Links<Self> {
        // SAFETY: `this` points to a node (this function's contract).
        unsafe { &raw mut (*this).links }
    }
}

/// Boxes in order.
///
/// # Invariants
///
/// `first` and `last` are null, or `first` leads by `next` to `last`, and `last` by `prev` to
/// `first`. There are `len` objects, each of which came from `KBox::into_raw`, and belongs to this
/// list.
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
        // SAFETY: `first` is null or an object of this list (type invariant).
        unsafe { self.first.as_ref() }
    }

    /// The objects in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        let mut next = self.first;
        core::iter::from_fn(move || {
            // SAFETY: `next` is null or an object of this list (type invariant).
            unsafe {
                let object = next.as_ref()?;
                next = (*T::links(next)).next;
                Some(object)
            }
        })
    }

    /// Removes the first object that satisfies a condition.
    pub(super) fn remove_first(&mut self, is_it: impl FnMut(&&T) -> bool) -> Option<KBox<T>> {
        let object = self.iter().find(is_it).map(NonNull::from)?;
        // SAFETY: It is on this list.
        Some(unsafe { self.remove(object) })
    }

    /// Appends an object.
    pub(crate) fn push_back(&mut self, object: KBox<T>) {
        let mut list = Self::new();
        list.push_front(object);
        self.append(&mut list);
    }

    /// Inserts an object at the front.
    pub(crate) fn push_front(&mut self, object: KBox<T>) {
        let (object, next) = (KBox::into_raw(object), self.first);
        // SAFETY: `object` is a valid object, and `first` is null or one of this list (type
        // invariant).
        unsafe {
            T::links(object).write(Links {
                next,
                prev: null_mut(),
            });
            if next.is_null() {
                self.last = object;
            } else {
                (*T::links(next)).prev = object;
            }
        }
        self.first = object;
        self.len = self.len.wrapping_add(1);
    }

    /// Removes the first object.
    pub(crate) fn pop_front(&mut self) -> Option<KBox<T>> {
        let first = NonNull::new(self.first)?;
        // SAFETY: `first` is an object of this list (type invariant).
        Some(unsafe { self.remove(first) })
    }

    /// Removes an object.
    ///
    /// # Safety
    ///
    /// It is on this list.
    pub(super) unsafe fn remove(&mut self, object: NonNull<T>) -> KBox<T> {
        // SAFETY: The object and its neighbours are on this list (this function's contract, type
        // invariant), and came from `KBox::into_raw`.
        unsafe {
            let Links { next, prev } = T::links(object.as_ptr()).read();
            if prev.is_null() {
                self.first = next;
            } else {
                (*T::links(prev)).next = next;
            }
            if next.is_null() {
                self.last = prev;
            } else {
                (*T::links(next)).prev = prev;
            }
            self.len = self.len.wrapping_sub(1);
            KBox::from_raw(object.as_ptr())
        }
    }

    /// Moves all objects of `other` behind those of this list.
    pub(crate) fn append(&mut self, other: &mut Self) {
        if self.is_empty() {
            return core::mem::swap(self, other);
        }
        let other = ManuallyDrop::new(other.take());
        if other.is_empty() {
            return;
        }
        // SAFETY: `last` and `other.first` are objects of these lists (type invariant).
        unsafe {
            (*T::links(self.last)).next = other.first;
            (*T::links(other.first)).prev = self.last;
        }
        self.last = other.last;
        self.len = self.len.wrapping_add(other.len);
    }

    /// Takes all objects.
    pub(crate) fn take(&mut self) -> Self {
        core::mem::replace(self, Self::new())
    }
}

impl<T: Linked> Drop for List<T> {
    fn drop(&mut self) {
        while self.pop_front().is_some() {}
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
