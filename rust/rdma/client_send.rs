// SPDX-License-Identifier: GPL-2.0

//! The send queue: a ring of buffers from which messages are sent.
//!
//! Sends complete in the order in which they were posted, so one counter tells which buffers are
//! free. Only one Send in several requests a completion. Most buffers are allocated when they are
//! first needed. A few are reserved for messages that can wait neither for the ring nor for its
//! owner.

use super::{
    cq::WcStatus,
    cqe::{impl_has_cqe, Complete, CqRef, Cqe, HasCqe},
    dma::DmaBuffer,
    raw_qp::Qp,
    ring::{span, MAX_UNSIGNALED},
    Pd,
};
use crate::{
    bindings::{self, RelaxedCell},
    trace,
};
use core::{cell::UnsafeCell, mem::ManuallyDrop, ptr::NonNull};
use kernel::{
    alloc::Flags,
    dma::DataDirection,
    prelude::*,
    sync::atomic::{Acquire, Atomic, Relaxed, Release},
    sync::Arc,
};

/// How many Sends are reserved. Answering one message at a time takes two: the previous answer may
/// have arrived before its Send completes.
pub(super) const RESERVED: usize = 4;

/// The most buffers that are allocated with the ring, so that Sends do not depend on memory. With
/// half as many Calls outstanding a buffer is always free, even while the completions of the other
/// half are still to come.
const FIRST_BUFFERS: u32 = 2 * MAX_UNSIGNALED;

/// An object that owns a queue pair with a ring of Sends.
///
/// # Safety
///
/// The object is pinned, and is not dropped before all Sends of its [`SendQueue`] have completed.
pub(crate) unsafe trait SendOwner: Sized {
    /// The signalled Send with this number has completed, and with it all Sends before it.
    ///
    /// # Safety
    ///
    /// Called by the handler of that completion.
    unsafe fn sent(&self, number: u32);

    /// A Send failed or was flushed.
    fn failed(&self, status: WcStatus);
}

/// A buffer for a message, and the constant part of the Send that posts it.
pub(super) struct Message {
    buffer: DmaBuffer,
    request: bindings::ib_send_wr,
    sge: bindings::ib_sge,
}

/// A slot of the ring.
///
/// # Invariants
///
/// `owner` contains the ring.
pub(super) struct RingSlot<O: SendOwner> {
    cqe: Cqe<Self>,
    owner: NonNull<O>,
    /// The number of the Send that was last posted from here. Before the first round, the number
    /// that it would have had in the round before.
    pub(super) number: RelaxedCell<u32>,
    /// `None` until it is needed.
    message: UnsafeCell<Option<Message>>,
}

impl_has_cqe! {
    impl{O: SendOwner} HasCqe<0> for RingSlot<O> { self.cqe }
    impl{O: SendOwner} HasCqe<0> for Reserved<O> { self.cqe }
}

// SAFETY: The message belongs to its owner, the number is a `RelaxedCell`, and the rest is only
// read.
unsafe impl<O: SendOwner> Sync for RingSlot<O> {}
// SAFETY: Nothing in a slot is tied to a thread.
unsafe impl<O: SendOwner> Send for RingSlot<O> {}

/// A buffer outside the ring.
///
/// # Invariants
///
/// `owner` contains the buffer. While it `is_busy` the message belongs to the device or to a
/// [`ReservedSend`].
struct Reserved<O: SendOwner> {
    cqe: Cqe<Self>,
    owner: NonNull<O>,
    /// The number of its Send in trace events.
    number: u32,
    is_busy: Atomic<bool>,
    message: UnsafeCell<Message>,
}

// SAFETY: The message belongs to its owner, and the rest is only read, or atomic.
unsafe impl<O: SendOwner> Sync for Reserved<O> {}
// SAFETY: Nothing in it is tied to a thread.
unsafe impl<O: SendOwner> Send for Reserved<O> {}

/// The ring, and the reserved Sends.
///
/// # Invariants
///
/// `slots` does not change after construction. Of the Sends numbered from `completed` up to, but
/// not including, the [`super::Sender`]'s next one, all whose slot the ring did not skip may be
/// outstanding, and the messages of their slots belong to the device. All other messages belong to
/// the `Sender`.
#[pin_data]
pub(super) struct SendQueue<O: SendOwner> {
    slots: KVVec<RingSlot<O>>,
    /// How many slots there are.
    count: u32,
    /// How many of them have a buffer, counted from the first; the `Sender` adds to them.
    buffers: RelaxedCell<u32>,
    /// Bytes in each buffer.
    size: usize,
    /// The number of the first Send that is not known to have completed.
    completed: Atomic<u32>,
    reserved: [Reserved<O>; RESERVED],
    /// A Send is signalled if none of these bits is set in its number.
    unsignaled_mask: u32,
}

impl<O: SendOwner + 'static> SendQueue<O> {
    /// Creates a ring for `count` buffers of `size` bytes.
    ///
    /// # Safety
    ///
    /// The result is part of `owner`.
    pub(super) unsafe fn new<'a>(
        pd: &'a Arc<Pd>,
        count: u32,
        size: u32,
        owner: NonNull<O>,
    ) -> impl PinInit<Self, Error> + 'a {
        let first = count.min(FIRST_BUFFERS);
        try_pin_init!(Self {
            size: usize::try_from(size)?,
            slots: {
                let mut slots = KVVec::with_capacity(usize::try_from(count)?, GFP_KERNEL)?;
                for index in 0..count {
                    let message = if index < first {
                        Some(Message::new(pd, *size, GFP_KERNEL)?)
                    } else {
                        None
                    };
                    // INVARIANT: The ring is part of `owner` (this function's contract).
                    let slot = RingSlot {
                        cqe: Cqe::new(),
                        owner,
                        number: RelaxedCell::new(index.wrapping_sub(span(count))),
                        message: UnsafeCell::new(message),
                    };
                    slots.push(slot, GFP_KERNEL)?;
                }
                slots
            },
            count,
            buffers: RelaxedCell::new(first),
            completed: Atomic::new(0),
            reserved: {
                let reserved = |number| -> Result<Reserved<O>> {
                    // INVARIANT: It is part of `owner` (this function's contract), and free.
                    Ok(Reserved {
                        cqe: Cqe::new(),
                        owner,
                        number,
                        is_busy: Atomic::new(false),
                        message: UnsafeCell::new(Message::new(pd, *size, GFP_KERNEL)?),
                    })
                };
                [
                    reserved(u32::MAX)?,
                    reserved(u32::MAX - 1)?,
                    reserved(u32::MAX - 2)?,
                    reserved(u32::MAX - 3)?,
                ]
            },
            // At least once a round: the ring cannot fill up without an outstanding signalled Send.
            unsignaled_mask: (span(first) / 2).saturating_sub(1),
        }? Error)
    }

    /// A reserved Send, unless all are in use.
    pub(super) fn reserved<'a>(&'a self, qp: &'a Qp) -> Option<ReservedSend<'a, O>> {
        let mut reserved = self.reserved.iter();
        let reserved = reserved.find(|reserved| !reserved.is_busy.xchg(true, Acquire))?;
        // INVARIANT: It was free, so it belongs to this object until it is free again.
        Some(ReservedSend { reserved, qp })
    }

    /// Allocates a buffer for the slot at `index`, the first slot that has none; returns whether
    /// there was memory. Does not sleep.
    ///
    /// # Safety
    ///
    /// The caller is the [`super::Sender`], and no Send was posted from that slot.
    pub(super) unsafe fn add_buffer(&self, pd: &Arc<Pd>, index: u32) -> bool {
        let slot = usize::try_from(index)
            .ok()
            .and_then(|index| self.slots.get(index));
        let (Some(slot), Ok(message)) = (slot, Message::new(pd, self.size, GFP_NOWAIT)) else {
            return false;
        };
        // SAFETY: No Send was posted from this slot, so its message belongs to the `Sender` (type
        // invariant), which is the caller (this function's contract).
        unsafe { *slot.message.get() = Some(message) };
        self.buffers.set(index.saturating_add(1));
        true
    }

    /// The slot at `index` of the ring.
    pub(super) fn slot(&self, index: u32) -> Option<&RingSlot<O>> {
        // CAST: A u32 always fits the kernel's usize.
        self.slots.get(index as usize)
    }

    /// How many slots the ring has, and how many of them have a buffer.
    pub(super) fn len(&self) -> (u32, u32) {
        (self.count, self.buffers.get())
    }

    /// The number of the first Send that is not known to have completed.
    pub(super) fn completed(&self) -> u32 {
        self.completed.load(Acquire)
    }

    /// Records that the Send with this number has completed, and with it all Sends before it.
    ///
    /// # Safety
    ///
    /// It has just completed.
    pub(super) unsafe fn complete(&self, number: u32) {
        self.completed.store(number.wrapping_add(1), Release);
    }

    /// Whether the Send with this number requests a completion.
    pub(super) fn is_signaled(&self, number: u32) -> bool {
        number & self.unsignaled_mask == 0
    }

    /// How many buffers may be held by the device, and how many there are.
    pub(super) fn posted(&self) -> (usize, usize) {
        // CAST: A u32 always fits the kernel's usize.
        let buffers = self.buffers.get() as usize;
        let span = span(self.count);
        let completed = self.completed.load(Relaxed);
        let is_posted = |slot: &&RingSlot<O>| slot.number.get().wrapping_sub(completed) < span;
        let slots = self.slots.iter().take(buffers);
        (slots.filter(is_posted).count(), buffers)
    }
}

/// A signalled Send of the ring has completed, and with it all Sends before it.
impl<O: SendOwner> Complete for RingSlot<O> {
    unsafe fn complete(this: NonNull<Self>, cq: &CqRef, wc: &bindings::ib_wc) {
        // SAFETY: The owner contains the slot (type invariant). It is pinned, and is not dropped
        // before all its Sends have completed (contract of `SendOwner`), of which this is one.
        let (slot, owner) = unsafe { (this.as_ref(), this.as_ref().owner.as_ref()) };
        let number = slot.number.get();
        trace::xprtrdma_wc_send(cq, number, wc);
        match WcStatus::failure(wc) {
            // SAFETY: This is the handler of that completion.
            None => unsafe { owner.sent(number) },
            Some(status) => owner.failed(status),
        }
    }
}

/// A reserved Send has completed.
impl<O: SendOwner> Complete for Reserved<O> {
    unsafe fn complete(this: NonNull<Self>, cq: &CqRef, wc: &bindings::ib_wc) {
        // SAFETY: The owner contains the buffer (type invariant). It is pinned, and is not dropped
        // before all its Sends have completed (contract of `SendOwner`), of which this is one.
        let (reserved, owner) = unsafe { (this.as_ref(), this.as_ref().owner.as_ref()) };
        trace::xprtrdma_wc_send(cq, reserved.number, wc);
        reserved.is_busy.store(false, Release);
        if let Some(status) = WcStatus::failure(wc) {
            owner.failed(status);
        }
    }
}

impl<O: SendOwner> RingSlot<O> {
    /// The message, if there is one.
    ///
    /// # Safety
    ///
    /// It belongs to the caller, who has no other reference to it.
    #[allow(clippy::mut_from_ref)]
    pub(super) unsafe fn message(&self) -> Option<&mut Message> {
        // SAFETY: The message belongs to the caller, who has no other reference to it (this
        // function's contract).
        unsafe { &mut *self.message.get() }.as_mut()
    }
}

impl Message {
    /// The buffer for the message, which begins at its start.
    pub(super) fn bytes(&mut self) -> &mut [u8] {
        self.buffer.bytes()
    }

    /// Allocates a buffer of `size` bytes.
    fn new(pd: &Arc<Pd>, size: usize, flags: Flags) -> Result<Self> {
        let buffer = DmaBuffer::new(pd, size, DataDirection::ToDevice, flags)?;
        Ok(Self {
            sge: buffer.sge(0, size).ok_or(EINVAL)?,
            buffer,
            request: bindings::ib_send_wr {
                num_sge: 1,
                opcode: bindings::ib_wr_opcode_IB_WR_SEND,
                ..Default::default()
            },
        })
    }

    /// Calls `post` to put a Send of the first `length` bytes on the queue of `qp`, which completes
    /// to `wr_cqe`. The message belongs to the device from here on, even if posting fails.
    ///
    /// # Safety
    ///
    /// Nobody else accesses the message before the device has returned it.
    pub(super) unsafe fn send(
        &mut self,
        qp: &Qp,
        wr_cqe: *mut bindings::ib_cqe,
        length: usize,
        (number, signaled): (u32, bool),
        post: impl FnOnce(&mut bindings::ib_send_wr) -> Result,
    ) -> Result {
        if length > self.buffer.len() {
            return Err(EINVAL);
        }
        self.sge.length = u32::try_from(length)?;
        let request = &mut self.request;
        request.__bindgen_anon_1.wr_cqe = ManuallyDrop::new(wr_cqe);
        request.sg_list = &raw mut self.sge;
        request.send_flags = if signaled {
            bindings::ib_send_flags_IB_SEND_SIGNALED
        } else {
            0
        };
        self.buffer.sync_for_device(length);
        let message = self.buffer.first(length);
        trace::xprtrdma_post_send(qp, number, message, signaled);
        post(request).inspect_err(|&error| trace::xprtrdma_post_send_err(qp, error))
    }
}

/// A reserved Send, in which a message is built.
///
/// # Invariants
///
/// `reserved` is busy on behalf of this object, and belongs to the queue pair `qp`.
pub(crate) struct ReservedSend<'a, O: SendOwner> {
    reserved: &'a Reserved<O>,
    qp: &'a Qp,
}

impl<O: SendOwner> ReservedSend<'_, O> {
    /// The buffer for the message, which begins at its start.
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: By the type's invariant the message belongs to this object, which is borrowed
        // mutably.
        unsafe { &mut *self.reserved.message.get() }.buffer.bytes()
    }

    /// Sends the first `length` bytes.
    ///
    /// # Errors
    ///
    /// As for [`Qp::post_send_beside`]. The connection is unusable after an error.
    pub(crate) fn send(self, length: usize) -> Result {
        // It stays in use until the completion.
        let this = ManuallyDrop::new(self);
        let wr_cqe = Reserved::wr_cqe(this.reserved);
        // SAFETY: By the type's invariant the message belongs to this object, which ends here.
        let message = unsafe { &mut *this.reserved.message.get() };
        // SAFETY: The message belongs to the device until the completion, and stays in use until
        // then.
        unsafe {
            let post = |send: &mut bindings::ib_send_wr| this.qp.post_send_beside(send);
            message.send(this.qp, wr_cqe, length, (this.reserved.number, true), post)
        }
    }
}

/// A message that was not sent.
impl<O: SendOwner> Drop for ReservedSend<'_, O> {
    fn drop(&mut self) {
        self.reserved.is_busy.store(false, Release);
    }
}
