// SPDX-License-Identifier: GPL-2.0

//! Receives: buffers that belong to the device until a message arrives in them.

use super::{
    cqe::{impl_has_cqe, Complete, CqRef, Cqe, HasCqe},
    dma::DmaBuffer,
    Pd,
};
use crate::bindings::{self, OwnedMessage};
use core::{
    cell::UnsafeCell, ffi::c_void, marker::PhantomData, mem::offset_of, mem::ManuallyDrop,
    ptr::NonNull,
};
use kernel::{alloc::Flags, dma::DataDirection, error::to_result, prelude::*, sync::Arc};

/// State that the user of a queue pair keeps with each message.
pub(crate) trait Note: Default + Send {
    /// Drops what belongs to the message: its buffer is used for another one. Does not sleep.
    fn clear(&mut self);
}

impl Note for () {
    fn clear(&mut self) {}
}

/// An object that owns a queue pair, and is passed the messages that arrive there.
///
/// # Safety
///
/// [`Self::posted`] always returns the same table, which is part of the object, and dropped after
/// its queue pair. The object is pinned, and is not dropped before its Receives have completed,
/// except those that a provider has lost.
pub(crate) unsafe trait ReceiveOwner: Sized {
    /// State that the owner's user keeps with each message.
    type Note: Note;

    /// A Receive has completed. If it succeeded, `message` holds what arrived.
    ///
    /// # Safety
    ///
    /// Called by the handler of that completion, `wc`.
    unsafe fn received(&self, message: CompletedReceive<Self>, wc: &bindings::ib_wc);

    /// Emits the trace event for a completion, `wc`, of the Receive with this number.
    fn trace(cq: &CqRef, index: u32, wc: &bindings::ib_wc);

    /// The Receives that the device holds.
    fn posted(&self) -> &PostedReceives<Self>;

    /// The protection domain.
    fn pd(&self) -> &Arc<Pd>;
}

/// The Receives of one owner that the device holds, by their number. A provider may lose Receives
/// with a device that fails; those that never complete are freed with this object.
///
/// # Invariants
///
/// A pointer is null, or came from `KBox::into_raw` of a Receive that was posted and has not
/// completed. Each element belongs to the owner of the Receive with its number, of which there is
/// only one.
pub(crate) struct PostedReceives<O: ReceiveOwner>(KVVec<UnsafeCell<*mut Receive<O>>>);

impl<O: ReceiveOwner> PostedReceives<O> {
    /// A table for `count` Receives, none of which is posted.
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

    /// Sets whether the device holds the Receive with this number: `receive` is its pointer, or
    /// null.
    ///
    /// # Safety
    ///
    /// The caller owns the Receive with this number. `receive` satisfies the type's invariant.
    unsafe fn set(&self, index: u32, receive: *mut Receive<O>) {
        // CAST: A u32 always fits the kernel's usize.
        if let Some(posted) = self.0.get(index as usize) {
            // SAFETY: By the type's invariant the pointer belongs to the caller.
            unsafe { *posted.get() = receive };
        }
    }
}

/// The owner's queue pair has been destroyed, and no longer refers to the Receives that it held.
impl<O: ReceiveOwner> Drop for PostedReceives<O> {
    fn drop(&mut self) {
        for posted in &mut self.0 {
            let receive = *posted.get_mut();
            if !receive.is_null() {
                // SAFETY: By the type's invariant; no completion returns it any longer.
                drop(unsafe { KBox::from_raw(receive) });
            }
        }
    }
}

/// A buffer for one message to `owner`, with the work request that posts it. Posting it transfers
/// its ownership to the device; its completion transfers it back.
///
/// # Invariants
///
/// The first `length` bytes of `buffer` are a message, and belong to the CPU. While the Receive is
/// posted, `owner` is valid: the owner waits for its Receives before it is freed.
pub(super) struct Receive<O: ReceiveOwner> {
    cqe: Cqe<Self>,
    request: bindings::ib_recv_wr,
    sge: bindings::ib_sge,
    buffer: DmaBuffer,
    length: usize,
    /// Distinguishes the owner's Receives in trace events.
    index: u32,
    owner: NonNull<O>,
    /// The message behind this one. Not the request's own link: the Receive may complete while the
    /// call that has posted it is still going on, and has yet to follow that link.
    behind: *mut Self,
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
                behind: core::ptr::null_mut(),
                note: O::Note::default(),
            },
            flags,
        )?;
        // From here on the Receive does not move.
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

    /// Passes the buffer to the device as the CPU has left it, in case the CPU has written to it.
    pub(super) fn give_to_device(&self) {
        self.buffer.sync_for_device(self.length);
    }

    /// The number that distinguishes the owner's Receives.
    pub(super) fn index(&self) -> u32 {
        self.index
    }
}

impl<O: ReceiveOwner> Drop for Receive<O> {
    fn drop(&mut self) {
        // Behind what its completion saw of the call that had posted it.
        // SAFETY: A barrier can be anywhere.
        unsafe { bindings::smp_mb() };
    }
}

impl<O: ReceiveOwner> Complete for Receive<O> {
    unsafe fn complete(this: NonNull<Self>, cq: &CqRef, wc: &bindings::ib_wc) {
        // SAFETY: `Receives::post` gave up the ownership of the Receive, and its completion returns
        // it.
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
        // The length is undefined if the completion failed.
        receive.length = match length.filter(|_| wc.status == bindings::ib_wc_status_IB_WC_SUCCESS)
        {
            Some(length) if length <= receive.buffer.len() => {
                receive.buffer.sync_for_cpu(length);
                // INVARIANT: The device has written that many bytes.
                length
            }
            _ => 0,
        };
        // SAFETY: This is the handler of the completion.
        unsafe { owner.received(CompletedReceive(receive), wc) };
    }
}

/// A message that arrived, in its buffer.
pub(crate) struct CompletedReceive<O: ReceiveOwner>(KBox<Receive<O>>);

// SAFETY: The message may be read, and its buffer freed, from any thread; only completion handlers
// use the owner.
unsafe impl<O: ReceiveOwner> Send for CompletedReceive<O> {}

impl<O: ReceiveOwner> CompletedReceive<O> {
    /// The bytes of the message.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.0.buffer.first(self.0.length)
    }

    /// The number that distinguishes the owner's Receives.
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

    /// The Receive, to be posted again, if it belongs to `owner`. What was kept with the message is
    /// dropped.
    pub(super) fn into_receive(mut self, owner: &O) -> Option<KBox<Receive<O>>> {
        self.0.note.clear();
        // An earlier owner may have had the same address, but then it had another protection
        // domain, which this Receive keeps alive.
        let is_owner = core::ptr::eq(self.0.owner.as_ptr(), owner)
            && Arc::ptr_eq(self.0.buffer.pd(), owner.pd());
        is_owner.then_some(self.0)
    }
}

// SAFETY: The bytes are in a buffer that the message owns, which has at least that many.
unsafe impl<O: ReceiveOwner + 'static> OwnedMessage for CompletedReceive<O> {
    type Note = O::Note;

    fn memory(&mut self) -> (NonNull<u8>, usize) {
        let receive = &mut *self.0;
        let length = receive.length;
        let bytes = receive.buffer.bytes();
        (NonNull::from(&mut *bytes).cast(), length.min(bytes.len()))
    }

    fn with_note(&mut self) -> (&[u8], &mut O::Note) {
        CompletedReceive::with_note(self)
    }

    fn into_raw(self) -> NonNull<c_void> {
        NonNull::from(KBox::leak(self.0)).cast()
    }

    unsafe fn from_raw(raw: NonNull<c_void>) -> Self {
        // SAFETY: `raw` came from `into_raw`, which leaked the `KBox` of a Receive, and is not used
        // again (this function's contract).
        Self(unsafe { KBox::from_raw(raw.as_ptr().cast()) })
    }
}

/// Receives of one owner that are posted together.
///
/// # Invariants
///
/// `first` is null or the request of a Receive from `KBox::into_raw`, whose `next` leads to another
/// such request; there are `count` of them, and the object owns them all.
pub(super) struct Receives<O: ReceiveOwner> {
    first: *mut bindings::ib_recv_wr,
    count: usize,
    receive: PhantomData<KBox<Receive<O>>>,
}

// SAFETY: A Receive that is not posted may be owned by any thread.
unsafe impl<O: ReceiveOwner> Send for Receives<O> {}

impl<O: ReceiveOwner> Receives<O> {
    /// An empty chain.
    pub(super) const fn new() -> Self {
        Self {
            first: core::ptr::null_mut(),
            count: 0,
            receive: PhantomData,
        }
    }

    /// How many Receives there are.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Adds a Receive.
    pub(super) fn push(&mut self, mut receive: KBox<Receive<O>>) {
        receive.request.next = self.first;
        receive.length = 0;
        let receive = KBox::into_raw(receive);
        // INVARIANT: The object owns what it has just taken over.
        // SAFETY: The Receive is valid; only takes the address of a field.
        self.first = unsafe { &raw mut (*receive).request };
        self.count = self.count.wrapping_add(1);
    }

    /// Removes a Receive.
    pub(super) fn pop(&mut self) -> Option<KBox<Receive<O>>> {
        if self.first.is_null() {
            return None;
        }
        // SAFETY: By the type's invariant this is the request of a Receive that this object owns.
        unsafe {
            let receive = self.first.byte_sub(offset_of!(Receive<O>, request)).cast();
            self.first = (*self.first).next;
            self.count = self.count.wrapping_sub(1);
            Some(KBox::from_raw(receive))
        }
    }

    /// Posts all Receives.
    ///
    /// # Safety
    ///
    /// They belong to `owner`, whose queue pair is `qp`. The owner waits for everything posted
    /// there before it is freed.
    ///
    /// # Errors
    ///
    /// Whatever the provider returns, and the Receives that it did not accept.
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
        // SAFETY: Nobody else owns the requests or their buffers until they complete. Where the CPU
        // may have written to a buffer, its owner has synchronised it for the device.
        let status = unsafe { bindings::rpcrdma_ib_post_recv(qp, this.first, &mut rest) };
        to_result(status).map_err(|error| {
            // SAFETY: The provider has not accepted these.
            unsafe { Self::note(owner, rest.cast_mut(), false) };
            // INVARIANT: The provider has accepted those before the one that it reports; if it
            // reports none, they are freed with the owner. Only the drop uses the others, which
            // ignores the count.
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
    /// Records whether the device holds the Receives of a chain.
    ///
    /// # Safety
    ///
    /// As for [`PostedReceives::set`], for each Receive of the chain that starts at the request
    /// `first`.
    unsafe fn note(owner: &O, first: *mut bindings::ib_recv_wr, is_posted: bool) {
        let mut next = first;
        while !next.is_null() {
            // SAFETY: This is the request of a Receive from `KBox::into_raw` (type invariant). The
            // caller owns it, and posts it if `is_posted` (this function's contract).
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

/// Messages in the order of their arrival.
///
/// # Invariants
///
/// `first` is null, or a Receive from `KBox::into_raw`, whose `behind` leads to another one, up to
/// `last`. The object owns them all, with their messages.
pub(crate) struct Messages<O: ReceiveOwner> {
    first: *mut Receive<O>,
    last: *mut Receive<O>,
    receive: PhantomData<KBox<Receive<O>>>,
}

// SAFETY: Any thread may read the messages and free their buffers; only completion handlers use the
// owner.
unsafe impl<O: ReceiveOwner> Send for Messages<O> {}

impl<O: ReceiveOwner> Messages<O> {
    /// No messages.
    pub(crate) const fn new() -> Self {
        Self {
            first: core::ptr::null_mut(),
            last: core::ptr::null_mut(),
            receive: PhantomData,
        }
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_null()
    }

    /// Appends a message.
    pub(crate) fn push(&mut self, message: CompletedReceive<O>) {
        let mut receive = message.0;
        receive.behind = core::ptr::null_mut();
        let receive = KBox::into_raw(receive);
        if self.last.is_null() {
            self.first = receive;
        } else {
            // SAFETY: By the type's invariant this object owns the Receive.
            unsafe { (*self.last).behind = receive };
        }
        // INVARIANT: The object owns what it has just taken over.
        self.last = receive;
    }

    /// What the owner's user keeps with the first message.
    pub(crate) fn first_note(&self) -> Option<&O::Note> {
        // SAFETY: By the type's invariant this object owns the Receive, if there is one.
        unsafe { self.first.as_ref() }.map(|receive| &receive.note)
    }

    /// Removes the first message.
    pub(crate) fn pop(&mut self) -> Option<CompletedReceive<O>> {
        if self.first.is_null() {
            return None;
        }
        // SAFETY: By the type's invariant this object owns the Receive, which came from
        // `KBox::into_raw`.
        let receive = unsafe { KBox::from_raw(self.first) };
        self.first = receive.behind;
        if self.first.is_null() {
            self.last = core::ptr::null_mut();
        }
        Some(CompletedReceive(receive))
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
