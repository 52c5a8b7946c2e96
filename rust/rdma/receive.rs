// SPDX-License-Identifier: GPL-2.0

//! Receives: buffers that belong to the device until a message fills one.

use super::{
    cqe::{impl_has_cqe, Complete, Cqe, HasCqe},
    dma::DmaBuffer,
    Pd,
};
use crate::bindings::{self, OwnedMessage};
use core::{
    cell::UnsafeCell, ffi::c_void, marker::PhantomData, mem::offset_of, mem::ManuallyDrop,
    ptr::NonNull,
};
use kernel::{
    alloc::Flags, dma::DataDirection, error::to_result, prelude::*, sync::Arc, types::Opaque,
};

/// What has a queue pair, and gets the messages that arrive there.
pub(crate) trait ReceiveOwner: Sized {
    /// What the owner's user keeps with each message.
    type Note: Default + Send;

    /// A Receive has completed, with `message` in it if that was a success.
    ///
    /// # Safety
    ///
    /// Called by the handler of that completion, `wc`.
    unsafe fn received(&self, message: Received<Self>, wc: &bindings::ib_wc);

    /// Writes the trace event of a completion, `wc`, of the Receive with this number.
    fn trace(cq: &Opaque<bindings::ib_cq>, index: u32, wc: &bindings::ib_wc);

    /// The Receives that the device has.
    fn posted(&self) -> &PostedReceives<Self>;

    /// The protection domain.
    fn pd(&self) -> &Arc<Pd>;
}

/// The Receives of one owner that the device has, by their number. Those that it never completes,
/// as its provider may lose them with a device that fails, are freed with this object.
///
/// # Invariants
///
/// A pointer is null, or from `KBox::into_raw` of a Receive that was posted and has not completed.
/// Each belongs to who owns the Receive with its number, of which the owner has one.
pub(crate) struct PostedReceives<O: ReceiveOwner>(KVVec<UnsafeCell<*mut Receive<O>>>);

impl<O: ReceiveOwner> PostedReceives<O> {
    /// For `count` Receives, none of which is posted.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new(count: u32) -> Result<Self> {
        let mut posted = KVVec::with_capacity(usize::try_from(count)?, GFP_KERNEL)?;
        for _ in 0..count {
            posted.push(UnsafeCell::new(core::ptr::null_mut()), GFP_KERNEL)?;
        }
        Ok(Self(posted))
    }

    /// Takes note of who has the Receive with this number: the device, or nobody that is to be
    /// named.
    ///
    /// # Safety
    ///
    /// The caller owns the Receive with this number. `receive` is as the type's invariant says.
    #[inline(always)]
    unsafe fn set(&self, index: u32, receive: *mut Receive<O>) {
        // CAST: A u32 always fits the kernel's usize.
        if let Some(posted) = self.0.get(index as usize) {
            // SAFETY: By the type's invariant the pointer is the caller's.
            unsafe { *posted.get() = receive };
        }
    }
}

/// The owner's queue pair is gone, and with it what the device had.
impl<O: ReceiveOwner> Drop for PostedReceives<O> {
    fn drop(&mut self) {
        for posted in &mut self.0 {
            let receive = *posted.get_mut();
            if !receive.is_null() {
                // SAFETY: By the type's invariant; no completion gives it back any more.
                drop(unsafe { KBox::from_raw(receive) });
            }
        }
    }
}

/// A buffer for one message to `owner`, with the work request that posts it. Who posts it gives it
/// away; its completion gives it back.
///
/// # Invariants
///
/// The first `length` bytes of `buffer` are a message, which the device has handed to the CPU. Of a
/// Receive that is posted, `owner` is valid: it waits for its Receives before it goes.
pub(super) struct Receive<O: ReceiveOwner> {
    cqe: Cqe<Self>,
    request: bindings::ib_recv_wr,
    sge: bindings::ib_sge,
    buffer: DmaBuffer,
    length: usize,
    /// Tells it from others of the owner, in trace events.
    index: u32,
    owner: NonNull<O>,
    note: O::Note,
}

impl_has_cqe! {
    impl{O: ReceiveOwner} HasCqe<0> for Receive<O> { self.cqe }
}

impl<O: ReceiveOwner> Receive<O> {
    /// Allocates a buffer of `size` bytes for messages to `owner`.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new(
        pd: &Arc<Pd>,
        size: usize,
        index: u32,
        owner: NonNull<O>,
        flags: Flags,
    ) -> Result<KBox<Self>> {
        let buffer = DmaBuffer::new(pd, size, DataDirection::FromDevice, flags)?;
        let sge = buffer.sge(0, size).ok_or(EINVAL)?;
        // INVARIANT: There is no message.
        let mut receive = KBox::new(
            Self {
                cqe: Cqe::new(),
                request: bindings::ib_recv_wr::default(),
                sge,
                buffer,
                length: 0,
                index,
                owner,
                note: O::Note::default(),
            },
            flags,
        )?;
        // From here on it stays where it is.
        let this: *mut Self = &mut *receive;
        receive.request = bindings::ib_recv_wr {
            next: core::ptr::null_mut(),
            __bindgen_anon_1: bindings::ib_recv_wr__bindgen_ty_1 {
                wr_cqe: ManuallyDrop::new(Self::wr_cqe(this)),
            },
            // SAFETY: Only takes the address of a field.
            sg_list: unsafe { &raw mut (*this).sge },
            num_sge: 1,
        };
        Ok(receive)
    }

    /// Has the device see the buffer as the CPU has left it, if somebody may have written there.
    pub(super) fn give_to_device(&self) {
        self.buffer.sync_for_device(self.length);
    }

    /// What tells it from others of the owner.
    pub(super) fn index(&self) -> u32 {
        self.index
    }
}

impl<O: ReceiveOwner> Complete for Receive<O> {
    unsafe fn complete(this: NonNull<Self>, cq: &Opaque<bindings::ib_cq>, wc: &bindings::ib_wc) {
        // SAFETY: `Receives::post` gave the Receive away, which has come back by its completion.
        let mut receive = unsafe { KBox::from_raw(this.as_ptr()) };
        O::trace(cq, receive.index, wc);
        // SAFETY: By the type's invariant the owner is valid, as the Receive was posted until now.
        // This is the handler of its completion.
        let owner = unsafe {
            let owner = receive.owner.as_ref();
            owner.posted().set(receive.index, core::ptr::null_mut());
            owner
        };
        let length = usize::try_from(wc.byte_len).ok();
        // A failed completion says nothing of the length.
        receive.length = match length.filter(|_| wc.status == bindings::ib_wc_status_IB_WC_SUCCESS)
        {
            Some(length) if length <= receive.buffer.len() => {
                receive.buffer.sync_for_cpu(length);
                // INVARIANT: The device has written so many bytes.
                length
            }
            _ => 0,
        };
        // SAFETY: This is the handler of the completion.
        unsafe { owner.received(Received(receive), wc) };
    }
}

/// A message that arrived, in its buffer.
pub(crate) struct Received<O: ReceiveOwner>(KBox<Receive<O>>);

// SAFETY: The message may be read from any thread, and the buffer freed; the owner is only used by
// completions.
unsafe impl<O: ReceiveOwner> Send for Received<O> {}

impl<O: ReceiveOwner> Received<O> {
    /// The bytes of the message.
    #[inline(always)]
    pub(crate) fn bytes(&self) -> &[u8] {
        self.0.buffer.first(self.0.length)
    }

    /// The number of the Receive, which tells it from others of the owner.
    pub(crate) fn number(&self) -> u32 {
        self.0.index
    }

    /// What the owner's user keeps with the message.
    pub(crate) fn note(&self) -> &O::Note {
        &self.0.note
    }

    /// The bytes of the message, and what the owner's user keeps with it.
    pub(crate) fn with_note(&mut self) -> (&[u8], &mut O::Note) {
        let receive = &mut *self.0;
        (receive.buffer.first(receive.length), &mut receive.note)
    }

    /// The Receive, to be posted again, if it is one of `owner`.
    pub(super) fn into_receive(self, owner: &O) -> Option<KBox<Receive<O>>> {
        // An earlier owner may have had the same address, but the domain is this Receive's as well.
        let is_owner = core::ptr::eq(self.0.owner.as_ptr(), owner)
            && Arc::ptr_eq(self.0.buffer.pd(), owner.pd());
        is_owner.then_some(self.0)
    }
}

// SAFETY: The bytes are those of a buffer of its own, as many as the message has.
unsafe impl<O: ReceiveOwner + 'static> OwnedMessage for Received<O> {
    fn memory(&mut self) -> (NonNull<u8>, usize) {
        let receive = &mut *self.0;
        let length = receive.length;
        let bytes = receive.buffer.bytes();
        (NonNull::from(&mut *bytes).cast(), length.min(bytes.len()))
    }

    fn into_raw(self) -> NonNull<c_void> {
        NonNull::from(KBox::leak(self.0)).cast()
    }

    unsafe fn from_raw(raw: NonNull<c_void>) -> Self {
        // SAFETY: The caller's promise.
        Self(unsafe { KBox::from_raw(raw.as_ptr().cast()) })
    }
}

/// Receives of one owner that are posted together.
///
/// # Invariants
///
/// `first` is null or the request of a Receive from `KBox::into_raw`, whose `next` leads to another
/// such one; there are `count` of them, and the object owns them all.
pub(super) struct Receives<O: ReceiveOwner> {
    first: *mut bindings::ib_recv_wr,
    count: usize,
    receive: PhantomData<KBox<Receive<O>>>,
}

// SAFETY: A Receive that is not posted may be owned by any thread.
unsafe impl<O: ReceiveOwner> Send for Receives<O> {}

impl<O: ReceiveOwner> Receives<O> {
    /// None.
    pub(super) const fn new() -> Self {
        Self {
            first: core::ptr::null_mut(),
            count: 0,
            receive: PhantomData,
        }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Adds one.
    #[inline(always)]
    pub(super) fn push(&mut self, mut receive: KBox<Receive<O>>) {
        receive.request.next = self.first;
        receive.length = 0;
        let receive = KBox::into_raw(receive);
        // INVARIANT: The object owns what it has just taken over.
        // SAFETY: The Receive is valid; only takes the address of a field.
        self.first = unsafe { &raw mut (*receive).request };
        self.count = self.count.wrapping_add(1);
    }

    /// Takes one out.
    pub(super) fn pop(&mut self) -> Option<KBox<Receive<O>>> {
        if self.first.is_null() {
            return None;
        }
        // SAFETY: By the type's invariant this is the request of a Receive, which this object owns.
        unsafe {
            let receive = self.first.byte_sub(offset_of!(Receive<O>, request)).cast();
            self.first = (*self.first).next;
            self.count = self.count.wrapping_sub(1);
            Some(KBox::from_raw(receive))
        }
    }

    /// Gives all of them to the device.
    ///
    /// # Safety
    ///
    /// They are `owner`'s, whose queue pair is `qp`, and which waits for what is posted there
    /// before it goes.
    ///
    /// # Errors
    ///
    /// What the provider answers, and those that it has not taken.
    pub(super) unsafe fn post(
        self,
        owner: &O,
        qp: *mut bindings::ib_qp,
    ) -> Result<(), (Error, Self)> {
        let this = ManuallyDrop::new(self);
        if this.first.is_null() {
            return Ok(());
        }
        // SAFETY: The requests are this object's, and are posted below.
        unsafe { Self::note(owner, this.first, true) };
        let mut rest: *const bindings::ib_recv_wr = core::ptr::null();
        // SAFETY: The requests and their buffers are owned by nobody else until they complete.
        // Where the CPU may have written to a buffer, its owner has given it to the device.
        let status = unsafe { bindings::rpcrdma_ib_post_recv(qp, this.first, &mut rest) };
        to_result(status).map_err(|error| {
            // SAFETY: The provider has not taken these.
            unsafe { Self::note(owner, rest.cast_mut(), false) };
            // INVARIANT: The provider has taken those before the one that it names; if it names
            // none, they are freed with the owner. Of the others only the drop is used, which
            // counts nothing.
            let rest = Self {
                first: rest.cast_mut(),
                count: 0,
                receive: PhantomData,
            };
            (error, rest)
        })
    }
}

impl<O: ReceiveOwner> Receives<O> {
    /// Takes note that the device has the Receives of a chain, or has not.
    ///
    /// # Safety
    ///
    /// As [`PostedReceives::set`], for each Receive of the chain from the request `first` on.
    unsafe fn note(owner: &O, first: *mut bindings::ib_recv_wr, is_posted: bool) {
        let mut next = first;
        while !next.is_null() {
            // SAFETY: By the type's invariant this is the request of a Receive; the rest is the
            // caller's promise.
            unsafe {
                let receive: *mut Receive<O> =
                    next.byte_sub(offset_of!(Receive<O>, request)).cast();
                let posted = if is_posted {
                    receive
                } else {
                    core::ptr::null_mut()
                };
                owner.posted().set((*receive).index, posted);
                next = (*next).next;
            }
        }
    }
}

/// Messages in the order in which they arrived.
///
/// # Invariants
///
/// `first` is null, or the request of a Receive from `KBox::into_raw`, whose `next` leads to
/// another such one, up to `last`. The object owns them all, with their messages.
pub(crate) struct Messages<O: ReceiveOwner> {
    first: *mut bindings::ib_recv_wr,
    last: *mut bindings::ib_recv_wr,
    receive: PhantomData<KBox<Receive<O>>>,
}

// SAFETY: As for `Received`.
unsafe impl<O: ReceiveOwner> Send for Messages<O> {}

impl<O: ReceiveOwner> Messages<O> {
    /// None.
    pub(crate) const fn new() -> Self {
        Self {
            first: core::ptr::null_mut(),
            last: core::ptr::null_mut(),
            receive: PhantomData,
        }
    }

    /// Adds a message behind all others.
    pub(crate) fn push(&mut self, message: Received<O>) {
        let mut receive = message.0;
        receive.request.next = core::ptr::null_mut();
        let receive = KBox::into_raw(receive);
        // SAFETY: The Receive is valid; only takes the address of a field.
        let request = unsafe { &raw mut (*receive).request };
        if self.last.is_null() {
            self.first = request;
        } else {
            // SAFETY: By the type's invariant this is the request of a Receive of this object's.
            unsafe { (*self.last).next = request };
        }
        // INVARIANT: The object owns what it has just taken over.
        self.last = request;
    }

    /// Takes the first message out.
    pub(crate) fn pop(&mut self) -> Option<Received<O>> {
        if self.first.is_null() {
            return None;
        }
        // SAFETY: By the type's invariant this is the request of a Receive, which this object owns.
        unsafe {
            let receive = self.first.byte_sub(offset_of!(Receive<O>, request)).cast();
            self.first = (*self.first).next;
            if self.first.is_null() {
                self.last = core::ptr::null_mut();
            }
            Some(Received(KBox::from_raw(receive)))
        }
    }
}

impl<O: ReceiveOwner> Drop for Messages<O> {
    fn drop(&mut self) {
        while self.pop().is_some() {}
    }
}

impl<O: ReceiveOwner> Drop for Receives<O> {
    fn drop(&mut self) {
        while self.pop().is_some() {}
    }
}
