// SPDX-License-Identifier: GPL-2.0

//! The send queue: a ring of buffers in which messages leave.
//!
//! Sends complete in the order in which they were posted, so one counter tells
//! which buffers are free. Only every few Sends asks for a completion. Most buffers
//! are made when they are first needed. A few are reserved for what cannot wait for
//! the ring, nor for its owner.

use super::{
    completion::{Completions, WcStatus},
    cqe::{impl_has_cqe, Complete, Cqe, HasCqe},
    dma::DmaBuffer,
    mr::{Mapped, MrList},
    qp::Qp,
    queue_pair::QueuePair,
    ring::{span, Ring},
    Pd,
};
use crate::{
    bindings::{self, Word},
    trace,
};
use core::{cell::UnsafeCell, mem::ManuallyDrop, ptr::NonNull};
use kernel::{
    alloc::Flags,
    dma::DataDirection,
    prelude::*,
    sync::atomic::{Acquire, Atomic, Relaxed, Release},
    sync::Arc,
    types::Opaque,
};

/// How many Sends are reserved. Who answers one message at a time needs two: the answer before may
/// have arrived without its completion.
pub(super) const RESERVED: usize = 4;

/// The most Sends that have completed without telling so: one in as many asks for its completion.
pub(crate) const MAX_UNSIGNALED: u32 = 16;

/// The most buffers that are made with the ring, so that Sends do not depend on memory. Half as many
/// Calls at the same time never lack one, as the completions of the other half are still to come.
const FIRST_BUFFERS: u32 = 2 * MAX_UNSIGNALED;

/// A buffer, and what of the Send from it is the same each time.
struct Message {
    buffer: DmaBuffer,
    request: bindings::ib_send_wr,
    sge: bindings::ib_sge,
}

/// A place in the ring.
///
/// # Invariants
///
/// `qp` is the queue pair that has the ring.
struct Slot<C: Completions> {
    cqe: Cqe<Self>,
    qp: NonNull<QueuePair<C>>,
    /// The number of the Send that was last posted from here. Before the first round, that of the
    /// round before.
    number: Word<u32>,
    /// Nothing until it is needed.
    message: UnsafeCell<Option<Message>>,
}

impl_has_cqe! {
    impl{C: Completions} HasCqe<0> for Slot<C> { self.cqe }
    impl{C: Completions} HasCqe<0> for Reserved<C> { self.cqe }
}

// SAFETY: The message is its owner's, the number a `Word`, and the rest is only read.
unsafe impl<C: Completions> Sync for Slot<C> {}
// SAFETY: Nothing in a slot is tied to a thread.
unsafe impl<C: Completions> Send for Slot<C> {}

/// A buffer beside the ring.
///
/// # Invariants
///
/// `qp` is the queue pair that has the buffer. While it `is_busy` the message belongs to the device or to
/// a [`ReservedSend`].
struct Reserved<C: Completions> {
    cqe: Cqe<Self>,
    qp: NonNull<QueuePair<C>>,
    is_busy: Atomic<bool>,
    message: UnsafeCell<Message>,
}

// SAFETY: The message is its owner's, and the rest is only read, or atomic.
unsafe impl<C: Completions> Sync for Reserved<C> {}
// SAFETY: Nothing in it is tied to a thread.
unsafe impl<C: Completions> Send for Reserved<C> {}

/// The ring, and the reserved Sends.
///
/// # Invariants
///
/// `slots` is not changed after construction. Of the Sends numbered from `completed` up to, not
/// including, the [`Sender`]'s next one all that its [`Ring`] did not pass over are with the device,
/// and so are the messages of their slots. All others belong to the `Sender`.
#[pin_data]
pub(super) struct SendQueue<C: Completions> {
    slots: KVVec<Slot<C>>,
    /// How many of them have a buffer, from the first one; the `Sender` adds to it.
    buffers: Word<u32>,
    /// Bytes in each buffer.
    size: usize,
    /// The number of the first Send whose completion is not known.
    completed: Atomic<u32>,
    reserved: [Reserved<C>; RESERVED],
    /// A Send is signalled if its number has none of these bits.
    unsignaled_mask: u32,
}

impl<C: Completions> SendQueue<C> {
    /// Makes a ring for `count` buffers of `size` bytes, as part of `qp`.
    pub(super) fn new<'a>(
        pd: &'a Arc<Pd>,
        count: u32,
        size: u32,
        qp: NonNull<QueuePair<C>>,
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
                    let slot = Slot {
                        cqe: Cqe::new(),
                        qp,
                        number: Word::new(index.wrapping_sub(span(count))),
                        message: UnsafeCell::new(message),
                    };
                    slots.push(slot, GFP_KERNEL)?;
                }
                slots
            },
            buffers: Word::new(first),
            completed: Atomic::new(0),
            reserved: {
                let reserved = || -> Result<Reserved<C>> {
                    Ok(Reserved {
                        cqe: Cqe::new(),
                        qp,
                        is_busy: Atomic::new(false),
                        message: UnsafeCell::new(Message::new(pd, *size, GFP_KERNEL)?),
                    })
                };
                [reserved()?, reserved()?, reserved()?, reserved()?]
            },
            // At least once a round: the ring cannot fill up without a completion on its way.
            unsignaled_mask: (span(first) / 2).saturating_sub(1),
        }? Error)
    }

    /// A reserved Send, unless all are in use.
    pub(super) fn reserved<'a>(&'a self, qp: &'a Qp) -> Option<ReservedSend<'a, C>> {
        let mut reserved = self.reserved.iter();
        let reserved = reserved.find(|reserved| !reserved.is_busy.xchg(true, Acquire))?;
        // INVARIANT: It was free, so it is this object's until it is free again.
        Some(ReservedSend { reserved, qp })
    }

    /// Gives the slot at `index` a buffer, the first one that has none; whether there was memory.
    /// Does not sleep.
    ///
    /// # Safety
    ///
    /// The caller is the [`Sender`], and no Send from that slot was posted.
    unsafe fn add_buffer(&self, pd: &Arc<Pd>, index: u32) -> bool {
        let slot = usize::try_from(index)
            .ok()
            .and_then(|index| self.slots.get(index));
        let (Some(slot), Ok(message)) = (slot, Message::new(pd, self.size, GFP_NOWAIT)) else {
            return false;
        };
        // SAFETY: The slot is the caller's.
        unsafe { *slot.message.get() = Some(message) };
        self.buffers.set(index.saturating_add(1));
        true
    }

    /// How many buffers are with the device as far as is known, and how many there are.
    pub(super) fn posted(&self) -> (usize, usize) {
        // CAST: A u32 always fits the kernel's usize.
        let buffers = self.buffers.get() as usize;
        let span = u32::try_from(self.slots.len()).map_or(0, span);
        let completed = self.completed.load(Relaxed);
        let is_posted = |slot: &&Slot<C>| slot.number.get().wrapping_sub(completed) < span;
        let slots = self.slots.iter().take(buffers);
        (slots.filter(is_posted).count(), buffers)
    }
}

/// A signalled Send of the ring has completed, and with it all before.
impl<C: Completions> Complete for Slot<C> {
    unsafe fn complete(this: NonNull<Self>, cq: &Opaque<bindings::ib_cq>, wc: &bindings::ib_wc) {
        // SAFETY: The slot and the queue pair, which has the slot, wait for the request that has just
        // completed.
        let (slot, qp) = unsafe { (this.as_ref(), this.as_ref().qp.as_ref()) };
        let number = slot.number.get();
        trace::xprtrdma_wc_send(cq, number, wc);
        if let Some(status) = WcStatus::failure(wc) {
            return qp.context().failed(status);
        }
        let completed = &qp.send_queue().completed;
        completed.store(number.wrapping_add(1), Release);
        qp.context().send_space();
    }
}

/// A reserved Send has completed.
impl<C: Completions> Complete for Reserved<C> {
    unsafe fn complete(this: NonNull<Self>, cq: &Opaque<bindings::ib_cq>, wc: &bindings::ib_wc) {
        // SAFETY: As above.
        let (reserved, qp) = unsafe { (this.as_ref(), this.as_ref().qp.as_ref()) };
        trace::xprtrdma_wc_send(cq, RESERVED_NUMBER, wc);
        reserved.is_busy.store(false, Release);
        if let Some(status) = WcStatus::failure(wc) {
            qp.context().failed(status);
        }
    }
}

/// The number that trace events have for a reserved Send.
const RESERVED_NUMBER: u32 = u32::MAX;

impl<C: Completions> Slot<C> {
    /// The message, if there is one.
    ///
    /// # Safety
    ///
    /// It is the caller's, who has no other reference to it.
    #[allow(clippy::mut_from_ref)]
    unsafe fn message(&self) -> Option<&mut Message> {
        // SAFETY: The caller's promise.
        unsafe { &mut *self.message.get() }.as_mut()
    }
}

impl Message {
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

    /// Has `post` put a Send of the first `length` bytes on the queue of `qp`, to complete `wr_cqe`. The
    /// message is the device's from here on, even if that fails.
    ///
    /// # Safety
    ///
    /// Nobody else gets the message before the device has given it back.
    unsafe fn send(
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
        let (qp, message) = (qp.as_opaque(), self.buffer.first(length));
        trace::xprtrdma_post_send(qp, number, message, signaled);
        post(request).inspect_err(|&error| trace::xprtrdma_post_send_err(qp, error))
    }
}

/// A reserved Send, to build a message in.
///
/// # Invariants
///
/// `reserved` is busy for this object, and of the queue pair `qp`.
pub(crate) struct ReservedSend<'a, C: Completions> {
    reserved: &'a Reserved<C>,
    qp: &'a Qp,
}

impl<C: Completions> ReservedSend<'_, C> {
    /// The bytes of the message, to be filled from the start.
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: By the type's invariant the message is this object's, which is borrowed for change.
        unsafe { &mut *self.reserved.message.get() }.buffer.bytes()
    }

    /// Sends the first `length` bytes.
    ///
    /// # Errors
    ///
    /// As [`Qp::post_send_beside`]. The connection is of no use after one.
    pub(crate) fn send(self, length: usize) -> Result {
        // It stays in use until the completion.
        let this = ManuallyDrop::new(self);
        let wr_cqe = Reserved::wr_cqe(this.reserved);
        // SAFETY: By the type's invariant the message is this object's, which ends here.
        let message = unsafe { &mut *this.reserved.message.get() };
        // SAFETY: The message is the device's until the completion, and stays in use until then.
        unsafe {
            let post = |send: &mut bindings::ib_send_wr| this.qp.post_send_beside(send);
            message.send(this.qp, wr_cqe, length, (RESERVED_NUMBER, true), post)
        }
    }
}

/// A message that was not sent.
impl<C: Completions> Drop for ReservedSend<'_, C> {
    fn drop(&mut self) {
        self.reserved.is_busy.store(false, Release);
    }
}

/// Who sends from the ring of a queue pair: there is one for each.
///
/// # Invariants
///
/// `ring` has the number of the next Send of `qp`, and nobody else knows the next one.
pub(crate) struct Sender<C: Completions> {
    qp: Arc<QueuePair<C>>,
    ring: Ring,
}

impl<C: Completions> Sender<C> {
    /// The sender of a new queue pair.
    pub(super) fn new(qp: Arc<QueuePair<C>>) -> Self {
        let queue = qp.send_queue();
        // INVARIANT: The first Send has number 0.
        let ring = Ring::new(
            u32::try_from(queue.slots.len()).unwrap_or(0),
            queue.buffers.get(),
        );
        Self { qp, ring }
    }

    /// The queue pair.
    pub(crate) fn qp(&self) -> &Arc<QueuePair<C>> {
        &self.qp
    }

    /// Whether a buffer is not with the device; if not, the next [`Completions::send_space`] says
    /// when to ask again.
    pub(crate) fn has_room(&mut self) -> bool {
        let queue = self.qp.send_queue();
        self.ring.has_room(
            || queue.completed.load(Acquire),
            // SAFETY: This is the sender, and Sends leave only from slots with a buffer.
            |index| unsafe { queue.add_buffer(self.qp.qp().pd(), index) },
        )
    }

    /// The buffer for the next Send. If there is none, `full` is called before another look.
    #[inline(always)]
    pub(crate) fn buffer(&mut self, full: impl FnOnce(&mut Self)) -> Option<SendBuffer<'_, C>> {
        if !self.has_room() {
            full(self);
            if !self.has_room() {
                return None;
            }
        }
        let queue = self.qp.send_queue();
        // CAST: A u32 always fits the kernel's usize.
        let slot = queue.slots.get(self.ring.slot() as usize)?;
        // SAFETY: The next Send's message is not with the device, as just checked, and it is lent
        // out no more than once at a time, as is this object.
        let message = unsafe { slot.message() }?;
        // INVARIANT: As above.
        Some(SendBuffer {
            slot,
            message,
            qp: &self.qp,
            ring: &mut self.ring,
        })
    }
}

/// Ends the connection, waits until every work request has completed, and destroys all regions that
/// the peer could reach. May sleep; not to be dropped in a completion or CM event.
impl<C: Completions> Drop for Sender<C> {
    fn drop(&mut self) {
        // SAFETY: Nobody else sends from the ring, and this object ends here.
        unsafe { self.qp.drain() };
    }
}

/// A buffer of the ring to build a message in.
///
/// # Invariants
///
/// `slot` is that of the next Send in `ring`, which is that of the queue pair's sender.
/// `message` is the slot's.
pub(crate) struct SendBuffer<'a, C: Completions> {
    qp: &'a QueuePair<C>,
    slot: &'a Slot<C>,
    message: &'a mut Message,
    ring: &'a mut Ring,
}

impl<'a, C: Completions> SendBuffer<'a, C> {
    /// The queue pair.
    pub(crate) fn qp(&self) -> &'a QueuePair<C> {
        self.qp
    }

    /// The bytes of the message, to be filled from the start.
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        self.message.buffer.bytes()
    }

    /// Sends the first `length` bytes.
    ///
    /// # Errors
    ///
    /// As [`Qp::post_send`]. The connection is of no use after one.
    pub(crate) fn send(self, length: usize) -> Result {
        // SAFETY: The sender owns the send queue. The Send's buffer is the device's from here on.
        self.post(length, |qp, send| unsafe { qp.qp().post_send(send) })
    }

    /// Registers `regions`, in slot `index`, and sends the first `length` bytes, in one chain.
    /// `publish` changes what the slot keeps beside them, before they can be invalidated.
    ///
    /// # Errors
    ///
    /// As [`Qp::post_send`]. The connection is of no use after one.
    pub(crate) fn register_and_send(
        self,
        length: usize,
        regions: MrList<Mapped>,
        index: usize,
        publish: impl FnOnce(&mut C::Slot),
    ) -> Result {
        // SAFETY: The sender owns the send queue. All are parts of the queue pair. The Send's buffer is
        // the device's from here on.
        self.post(length, |qp, send| unsafe {
            let failed = qp.unsignaled();
            qp.registered()
                .post(qp.qp(), failed, index, regions, send, publish)
        })
    }

    /// Builds the Send of this buffer, for `post` to put on the queue.
    #[inline(always)]
    fn post(
        self,
        length: usize,
        post: impl FnOnce(&QueuePair<C>, &mut bindings::ib_send_wr) -> Result,
    ) -> Result {
        let Self {
            qp,
            slot,
            message,
            ring,
        } = self;
        let number = ring.next();
        // If the post fails, the message may be with the device all the same, and the number is
        // used up.
        ring.advance();
        slot.number.set(number);
        let signaled = number & qp.send_queue().unsignaled_mask == 0;
        let wr_cqe = Slot::wr_cqe(slot);
        // SAFETY: The ring does not come back to the slot before the message is given back.
        unsafe {
            message.send(qp.qp(), wr_cqe, length, (number, signaled), |send| {
                post(qp, send)
            })
        }
    }
}
