// SPDX-License-Identifier: GPL-2.0

//! The send queue: a ring of buffers in which messages leave.
//!
//! Sends complete in the order in which they were posted, so one counter tells
//! which buffers are free. Only every few Sends asks for a completion. A few buffers
//! beside the ring are for what cannot wait for the ring, nor for who sends from it.

use super::{
    completion::{Cqe, Done},
    dma::{Direction, DmaBuffer},
    mr::{Mapped, MrList},
    Completions, Pd, QueuePair,
};
use crate::{
    bindings::{self, Word},
    trace,
};
use core::{cell::UnsafeCell, mem::ManuallyDrop};
use kernel::{
    error::to_result,
    new_spinlock,
    prelude::*,
    sync::atomic::{Acquire, Atomic, Relaxed, Release},
    sync::{Arc, SpinLock},
};

/// Buffers beside the ring. Who answers one message at a time needs two: the answer before may
/// have arrived without its completion.
pub(super) const BESIDE: usize = 4;

/// One buffer.
struct Slot {
    cqe: Cqe,
    buffer: DmaBuffer,
    /// The number of the Send that was last posted from this buffer. Before the first round, that
    /// of the round before.
    number: Word<u32>,
    /// What of the Send is the same each time.
    request: UnsafeCell<bindings::ib_send_wr>,
    sge: UnsafeCell<bindings::ib_sge>,
}

// SAFETY: The work request handles are only read after construction, the request is its owner's.
unsafe impl Sync for Slot {}
// SAFETY: Nothing in a slot is tied to a thread.
unsafe impl Send for Slot {}

/// The ring.
///
/// # Invariants
///
/// `slots` is not changed after construction; its length is a power of two. The Sends numbered
/// from `completed` up to, not including, the [`Sender`]'s next one are with the device, and so are
/// their buffers, `number % slots.len()`. All others belong to the `Sender`. A buffer of `last`
/// belongs to the device or to a [`LastSendBuffer`] while its `last_is_busy`. A slot's request belongs
/// to the buffer's owner.
#[pin_data]
pub(super) struct SendQueue {
    slots: KVVec<Slot>,
    /// The number of the first Send whose completion is not known.
    completed: Atomic<u32>,
    last: [Slot; BESIDE],
    last_is_busy: [Atomic<bool>; BESIDE],
    /// Whether who is not the `Sender` may still post; closed before the drain, and held while
    /// posting. A `Sender` ends before the drain.
    #[pin]
    gate: SpinLock<bool>,
    /// Completes what is not signalled, in case it fails.
    unsignaled: Cqe,
    /// A Send is signalled if its number has none of these bits.
    unsignaled_mask: u32,
}

impl SendQueue {
    /// Allocates `count` buffers of `size` bytes. Signalled Sends are completed by `done`, those
    /// beside the ring by `last_done`, unsignalled requests, should they fail, by `failed`.
    pub(super) fn new<'a>(
        pd: &'a Arc<Pd>,
        count: u32,
        size: u32,
        done: Done,
        last_done: Done,
        failed: Done,
    ) -> impl PinInit<Self, Error> + 'a {
        try_pin_init!(Self {
            slots: {
                if !count.is_power_of_two() {
                    return Err(EINVAL);
                }
                let ring = count;
                let count = usize::try_from(count)?;
                let size = usize::try_from(size)?;
                let mut slots = KVVec::with_capacity(count, GFP_KERNEL)?;
                for index in 0..count {
                    let number = u32::try_from(index)?.wrapping_sub(ring);
                    slots.push(Slot::new(pd, size, Cqe::new(done, index), number)?, GFP_KERNEL)?;
                }
                slots
            },
            completed: Atomic::new(0),
            last: {
                let size = usize::try_from(size)?;
                let slot = |index| Slot::new(pd, size, Cqe::new(last_done, index), 0);
                [slot(0)?, slot(1)?, slot(2)?, slot(3)?]
            },
            last_is_busy: [const { Atomic::new(false) }; BESIDE],
            gate <- new_spinlock!(true, "rpcrdma_send_gate"),
            unsignaled: Cqe::new(failed, 0),
            // Four times a round: the ring cannot fill up without a completion on its way.
            unsignaled_mask: (count / 4).saturating_sub(1),
        }? Error)
    }

    /// A buffer beside the ring, unless all are in use.
    pub(super) fn last_buffer(&self, qp: *mut bindings::ib_qp) -> Option<LastSendBuffer<'_>> {
        let buffers = self.last.iter().zip(&self.last_is_busy).enumerate();
        // INVARIANT: It was free, so it is this object's from here on.
        buffers
            .filter(|(_, (_, is_busy))| !is_busy.xchg(true, Acquire))
            .map(|(index, (slot, _))| LastSendBuffer {
                queue: self,
                slot,
                index,
                qp,
            })
            .next()
    }

    /// Takes note that the Send from the buffer at `index` beside the ring has completed.
    pub(super) fn complete_last(&self, index: usize) {
        if let Some(is_busy) = self.last_is_busy.get(index) {
            is_busy.store(false, Release);
        }
    }

    /// The index of Send `number`'s slot.
    fn index(&self, number: u32) -> usize {
        // CAST: A u32 always fits the kernel's usize.
        number as usize & self.slots.len().wrapping_sub(1)
    }

    /// Takes note that the Send from the buffer at `index` has completed, and with it all before.
    pub(super) fn complete(&self, index: usize) {
        if let Some(slot) = self.slots.get(index) {
            let number = slot.number.get();
            self.completed.store(number.wrapping_add(1), Release);
        }
    }

    /// How many buffers are with the device as far as is known, and how many there are.
    pub(super) fn posted(&self) -> (usize, usize) {
        let completed = self.completed.load(Relaxed);
        let is_posted = |slot: &&Slot| {
            let age = slot.number.get().wrapping_sub(completed);
            usize::try_from(age).is_ok_and(|age| age < self.slots.len())
        };
        (
            self.slots.iter().filter(is_posted).count(),
            self.slots.len(),
        )
    }

    /// The completion handle for requests that are not signalled.
    pub(super) fn unsignaled(&self) -> &Cqe {
        &self.unsignaled
    }

    /// Posts a chain beside the [`Sender`], unless the queue is closed.
    ///
    /// # Safety
    ///
    /// As [`post`]; `qp` is the queue pair of this queue.
    ///
    /// # Errors
    ///
    /// `EPIPE` if the queue is closed; otherwise as [`post`].
    pub(super) unsafe fn post(
        &self,
        qp: *mut bindings::ib_qp,
        first: *const bindings::ib_send_wr,
    ) -> Result {
        let gate = self.gate.lock();
        if !*gate {
            return Err(EPIPE);
        }
        // SAFETY: The caller's promise.
        unsafe { post(qp, first) }
    }

    /// Ends all posting but the [`Sender`]'s.
    pub(super) fn close(&self) {
        *self.gate.lock() = false;
    }
}

/// Posts a chain.
///
/// # Safety
///
/// `qp` is valid. `first` is a chain whose requests and what they name stay valid: the requests
/// during the call, their memory until they complete.
///
/// # Errors
///
/// What the provider answers, after which some of the chain may be posted, so that the connection
/// has to end.
pub(super) unsafe fn post(qp: *mut bindings::ib_qp, first: *const bindings::ib_send_wr) -> Result {
    // SAFETY: The caller's promise.
    match unsafe { bindings::rpcrdma_ib_post_send(qp, first) } {
        0 => Ok(()),
        errno => to_result(errno),
    }
}

impl Slot {
    /// Allocates a buffer of `size` bytes, whose Sends are completed by `cqe`.
    fn new(pd: &Arc<Pd>, size: usize, cqe: Cqe, number: u32) -> Result<Self> {
        let buffer = DmaBuffer::new(pd, size, Direction::ToDevice)?;
        Ok(Self {
            cqe,
            sge: UnsafeCell::new(buffer.sge(0, size).ok_or(EINVAL)?),
            buffer,
            number: Word::new(number),
            request: UnsafeCell::new(bindings::ib_send_wr {
                num_sge: 1,
                opcode: bindings::ib_wr_opcode_IB_WR_SEND,
                ..Default::default()
            }),
        })
    }

    /// The bytes of the buffer.
    ///
    /// # Safety
    ///
    /// The caller has the buffer for itself during `'a`.
    unsafe fn bytes<'a>(&self) -> &'a mut [u8] {
        // SAFETY: The buffer is initialised; the rest is the caller's promise.
        unsafe { core::slice::from_raw_parts_mut(self.buffer.start().as_ptr(), self.buffer.len()) }
    }

    /// Has `post` put a Send of the first `length` bytes on the queue of `qp`. The buffer is the
    /// device's from here on, even if that fails.
    ///
    /// # Safety
    ///
    /// The caller has the buffer, and with it the request.
    unsafe fn send(
        &self,
        qp: *mut bindings::ib_qp,
        index: usize,
        length: usize,
        signaled: bool,
        post: impl FnOnce(&mut bindings::ib_send_wr) -> Result,
    ) -> Result {
        if length > self.buffer.len() {
            return Err(EINVAL);
        }
        // SAFETY: The caller's promise.
        let (request, sge) = unsafe { (&mut *self.request.get(), &mut *self.sge.get()) };
        sge.length = u32::try_from(length)?;
        request.__bindgen_anon_1.wr_cqe = ManuallyDrop::new(self.cqe.as_raw());
        request.sg_list = sge;
        request.send_flags = if signaled {
            bindings::ib_send_flags_IB_SEND_SIGNALED
        } else {
            0
        };
        self.buffer.sync_for_device(length);
        // SAFETY: The queue pair is valid. The buffer is initialised, and the length is checked.
        let (qp, message) = unsafe {
            let start = self.buffer.start().as_ptr();
            (&*qp.cast(), core::slice::from_raw_parts(start, length))
        };
        trace::xprtrdma_post_send(qp, index, message, signaled);
        post(request).inspect_err(|&error| trace::xprtrdma_post_send_err(qp, error))
    }
}

/// A buffer beside the ring, to build a message in.
///
/// # Invariants
///
/// `slot` is that of `queue.last` at `index`. Its buffer is not with the device, and nobody else has
/// it.
pub(crate) struct LastSendBuffer<'a> {
    queue: &'a SendQueue,
    slot: &'a Slot,
    index: usize,
    qp: *mut bindings::ib_qp,
}

impl LastSendBuffer<'_> {
    /// The bytes of the message, to be filled from the start.
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: By the type's invariant.
        unsafe { self.slot.bytes() }
    }

    /// Sends the first `length` bytes.
    ///
    /// # Errors
    ///
    /// As [`SendQueue::post`]. The connection is of no use after one.
    pub(crate) fn send(self, length: usize) -> Result {
        let (queue, slot, qp) = (self.queue, self.slot, self.qp);
        let index = queue.slots.len().saturating_add(self.index);
        core::mem::forget(self);
        // SAFETY: `qp` is this queue's. The buffer is the device's until the completion.
        let post = |send: &mut bindings::ib_send_wr| unsafe { queue.post(qp, send) };
        // SAFETY: By the type's invariant.
        unsafe { slot.send(qp, index, length, true, post) }
    }
}

/// A message that was not sent.
impl Drop for LastSendBuffer<'_> {
    fn drop(&mut self) {
        self.queue.complete_last(self.index);
    }
}

/// Who sends from the ring of a queue pair: there is one for each.
///
/// # Invariants
///
/// `next` is the number of the next Send of `qp`, and nobody else knows the next one. The buffers of
/// the Sends from `next` up to, not including, `limit` are not with the device.
pub(crate) struct Sender<C: Completions> {
    qp: Arc<QueuePair<C>>,
    next: u32,
    limit: u32,
}

impl<C: Completions> Sender<C> {
    /// The sender of a new queue pair.
    pub(super) fn new(qp: Arc<QueuePair<C>>) -> Self {
        // INVARIANT: The first Send has number 0.
        Self {
            qp,
            next: 0,
            limit: 0,
        }
    }

    /// The queue pair.
    pub(crate) fn qp(&self) -> &Arc<QueuePair<C>> {
        &self.qp
    }

    /// Whether a buffer is not with the device; if not, the next [`Completions::send_space`] says
    /// when to ask again.
    pub(crate) fn has_room(&mut self) -> bool {
        if self.next == self.limit {
            let queue = self.qp.send_queue();
            let count = u32::try_from(queue.slots.len()).unwrap_or(0);
            // INVARIANT: What has completed is free for another round.
            self.limit = queue.completed.load(Acquire).wrapping_add(count);
        }
        self.next != self.limit
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
        let index = queue.index(self.next);
        // INVARIANT: The next Send's buffer is not with the device, as just checked.
        Some(SendBuffer {
            slot: queue.slots.get(index)?,
            index,
            qp: &self.qp,
            next: &mut self.next,
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
/// `slot`, at `index`, is that of Send `next`, and not with the device; `next` is that of the queue
/// pair's sender.
pub(crate) struct SendBuffer<'a, C: Completions> {
    qp: &'a QueuePair<C>,
    slot: &'a Slot,
    index: usize,
    next: &'a mut u32,
}

impl<'a, C: Completions> SendBuffer<'a, C> {
    /// The queue pair.
    pub(crate) fn qp(&self) -> &'a QueuePair<C> {
        self.qp
    }

    /// The bytes of the message, to be filled from the start.
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: By the type's invariant the device does not have the buffer, and this object has
        // the only sender.
        unsafe { self.slot.bytes() }
    }

    /// Sends the first `length` bytes.
    ///
    /// # Errors
    ///
    /// As [`post`]. The connection is of no use after one.
    pub(crate) fn send(self, length: usize) -> Result {
        // SAFETY: The queue pair is valid. The Send's buffer is the device's from here on.
        self.post(length, |qp, send| unsafe { post(qp.as_raw(), send) })
    }

    /// Registers `regions`, in slot `index`, and sends the first `length` bytes, in one chain.
    /// `publish` changes what the slot keeps beside them, before they can be invalidated.
    ///
    /// # Errors
    ///
    /// As [`post`]. The connection is of no use after one.
    pub(crate) fn register_and_send(
        self,
        length: usize,
        regions: MrList<Mapped>,
        index: usize,
        publish: impl FnOnce(&mut C::Slot),
    ) -> Result {
        let failed = self.qp.send_queue().unsignaled();
        // SAFETY: The lists are the queue pair's. The Send's buffer is the device's from here on.
        self.post(length, |qp, send| unsafe {
            qp.registered()
                .post(qp.as_raw(), failed, index, regions, send, publish)
        })
    }

    /// Builds the Send of this buffer, for `post` to put on the queue.
    fn post(
        self,
        length: usize,
        post: impl FnOnce(&QueuePair<C>, &mut bindings::ib_send_wr) -> Result,
    ) -> Result {
        let Self {
            qp,
            slot,
            index,
            next,
        } = self;
        let number = *next;
        // INVARIANT: If the post fails, the buffer may be with the device all the same, and the
        // number is used up.
        *next = number.wrapping_add(1);
        slot.number.set(number);
        let signaled = number & qp.send_queue().unsignaled_mask == 0;
        // SAFETY: By the type's invariant; the number was this object's.
        unsafe { slot.send(qp.as_raw(), index, length, signaled, |send| post(qp, send)) }
    }
}
