// SPDX-License-Identifier: GPL-2.0

//! The send queue: a ring of buffers in which messages leave.
//!
//! Sends complete in the order in which they were posted, so one counter tells
//! which buffers are free. Only every few Sends asks for a completion. Most buffers
//! are made when they are first needed. A few beside the ring are for what cannot
//! wait for the ring, nor for who sends from it.

use super::{
    completion::{Cqe, Done},
    dma::DmaBuffer,
    mr::{Mapped, MrList},
    ring::{span, Ring},
    Completions, Pd, QueuePair,
};
use crate::{
    bindings::{self, Word},
    trace,
};
use core::{cell::UnsafeCell, mem::ManuallyDrop};
use kernel::{
    alloc::Flags,
    dma::DataDirection,
    error::to_result,
    new_spinlock,
    prelude::*,
    sync::atomic::{Acquire, Atomic, Relaxed, Release},
    sync::{Arc, SpinLock},
};

/// Buffers beside the ring. Who answers one message at a time needs two: the answer before may
/// have arrived without its completion.
pub(super) const BESIDE: usize = 4;

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

/// A place in the queue.
struct Slot {
    cqe: Cqe,
    /// The number of the Send that was last posted from here. Before the first round, that of the
    /// round before.
    number: Word<u32>,
    /// Nothing until it is needed.
    message: UnsafeCell<Option<Message>>,
}

// SAFETY: The work request handles are only read after construction, the message is its owner's.
unsafe impl Sync for Slot {}
// SAFETY: Nothing in a slot is tied to a thread.
unsafe impl Send for Slot {}

/// The ring.
///
/// # Invariants
///
/// `slots` is not changed after construction. Of the Sends numbered from `completed` up to, not
/// including, the [`Sender`]'s next one all that its [`Ring`] did not pass over are with the device,
/// and so are the messages of their slots. All others belong to the `Sender`. A message of `last`
/// belongs to the device or to a [`LastSendBuffer`] while its `last_is_busy`.
#[pin_data]
pub(super) struct SendQueue {
    slots: KVVec<Slot>,
    /// How many of them have a buffer, from the first one; the `Sender` adds to it.
    buffers: Word<u32>,
    /// Bytes in each buffer.
    size: usize,
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
    /// Makes a ring for `count` buffers of `size` bytes. Signalled Sends are completed by `done`,
    /// those beside the ring by `last_done`, unsignalled requests, should they fail, by `failed`.
    pub(super) fn new<'a>(
        pd: &'a Arc<Pd>,
        count: u32,
        size: u32,
        done: Done,
        last_done: Done,
        failed: Done,
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
                    let cqe = Cqe::new(done, usize::try_from(index)?);
                    let slot = Slot::new(cqe, index.wrapping_sub(span(count)), message);
                    slots.push(slot, GFP_KERNEL)?;
                }
                slots
            },
            buffers: Word::new(first),
            completed: Atomic::new(0),
            last: {
                let slot = |index| -> Result<Slot> {
                    let message = Message::new(pd, *size, GFP_KERNEL)?;
                    Ok(Slot::new(Cqe::new(last_done, index), 0, Some(message)))
                };
                [slot(0)?, slot(1)?, slot(2)?, slot(3)?]
            },
            last_is_busy: [const { Atomic::new(false) }; BESIDE],
            gate <- new_spinlock!(true, "rpcrdma_send_gate"),
            unsignaled: Cqe::new(failed, 0),
            // At least once a round: the ring cannot fill up without a completion on its way.
            unsignaled_mask: (span(first) / 2).saturating_sub(1),
        }? Error)
    }

    /// A buffer beside the ring, unless all are in use.
    pub(super) fn last_buffer(&self, qp: *mut bindings::ib_qp) -> Option<LastSendBuffer<'_>> {
        let mut buffers = self.last.iter().zip(&self.last_is_busy).enumerate();
        let (index, (slot, _)) = buffers.find(|(_, (_, is_busy))| !is_busy.xchg(true, Acquire))?;
        // SAFETY: It was free, so it is this object's from here on, until it is free again.
        let message = unsafe { slot.message() }?;
        // INVARIANT: As above.
        Some(LastSendBuffer {
            queue: self,
            cqe: &slot.cqe,
            message,
            index,
            qp,
        })
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

    /// Takes note that the Send from the buffer at `index` beside the ring has completed.
    pub(super) fn complete_last(&self, index: usize) {
        if let Some(is_busy) = self.last_is_busy.get(index) {
            is_busy.store(false, Release);
        }
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
        // CAST: A u32 always fits the kernel's usize.
        let buffers = self.buffers.get() as usize;
        let span = u32::try_from(self.slots.len()).map_or(0, span);
        let completed = self.completed.load(Relaxed);
        let is_posted = |slot: &&Slot| slot.number.get().wrapping_sub(completed) < span;
        let slots = self.slots.iter().take(buffers);
        (slots.filter(is_posted).count(), buffers)
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
    /// A place whose Sends are completed by `cqe`.
    fn new(cqe: Cqe, number: u32, message: Option<Message>) -> Self {
        Self {
            cqe,
            number: Word::new(number),
            message: UnsafeCell::new(message),
        }
    }

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

    /// Has `post` put a Send of the first `length` bytes on the queue of `qp`. The message is the
    /// device's from here on, even if that fails.
    ///
    /// # Safety
    ///
    /// `qp` is valid. Nobody else gets the message before the device has given it back.
    unsafe fn send(
        &mut self,
        qp: *mut bindings::ib_qp,
        (cqe, index): (&Cqe, usize),
        length: usize,
        signaled: bool,
        post: impl FnOnce(&mut bindings::ib_send_wr) -> Result,
    ) -> Result {
        if length > self.buffer.len() {
            return Err(EINVAL);
        }
        self.sge.length = u32::try_from(length)?;
        let request = &mut self.request;
        request.__bindgen_anon_1.wr_cqe = ManuallyDrop::new(cqe.as_raw());
        request.sg_list = &raw mut self.sge;
        request.send_flags = if signaled {
            bindings::ib_send_flags_IB_SEND_SIGNALED
        } else {
            0
        };
        self.buffer.sync_for_device(length);
        // SAFETY: The caller's promise.
        let qp = unsafe { &*qp.cast() };
        let message = self.buffer.bytes().get(..length).unwrap_or_default();
        trace::xprtrdma_post_send(qp, index, message, signaled);
        post(request).inspect_err(|&error| trace::xprtrdma_post_send_err(qp, error))
    }
}

/// A buffer beside the ring, to build a message in.
///
/// # Invariants
///
/// `message` and `cqe` are those of `queue.last` at `index`. The message is not with the device.
pub(crate) struct LastSendBuffer<'a> {
    queue: &'a SendQueue,
    cqe: &'a Cqe,
    message: &'a mut Message,
    index: usize,
    qp: *mut bindings::ib_qp,
}

impl LastSendBuffer<'_> {
    /// The bytes of the message, to be filled from the start.
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        self.message.buffer.bytes()
    }

    /// Sends the first `length` bytes.
    ///
    /// # Errors
    ///
    /// As [`SendQueue::post`]. The connection is of no use after one.
    pub(crate) fn send(self, length: usize) -> Result {
        // It stays in use until the completion.
        let this = &mut *ManuallyDrop::new(self);
        let (queue, qp) = (this.queue, this.qp);
        let cqe = (this.cqe, queue.slots.len().saturating_add(this.index));
        // SAFETY: `qp` is this queue's. The message is the device's until the completion.
        let post = |send: &mut bindings::ib_send_wr| unsafe { queue.post(qp, send) };
        // SAFETY: `qp` is valid. The message stays in use until its completion.
        unsafe { this.message.send(qp, cqe, length, true, post) }
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
            |index| unsafe { queue.add_buffer(self.qp.pd(), index) },
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
        let index = self.ring.slot() as usize;
        let slot = queue.slots.get(index)?;
        // SAFETY: The next Send's message is not with the device, as just checked, and it is lent
        // out no more than once at a time, as is this object.
        let message = unsafe { slot.message() }?;
        // INVARIANT: As above.
        Some(SendBuffer {
            slot,
            message,
            index,
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
/// `slot`, at `index`, is that of the next Send in `ring`, which is that of the queue pair's sender.
/// `message` is the slot's.
pub(crate) struct SendBuffer<'a, C: Completions> {
    qp: &'a QueuePair<C>,
    slot: &'a Slot,
    message: &'a mut Message,
    index: usize,
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
            message,
            index,
            ring,
        } = self;
        let number = ring.next();
        // If the post fails, the message may be with the device all the same, and the number is
        // used up.
        ring.advance();
        slot.number.set(number);
        let signaled = number & qp.send_queue().unsignaled_mask == 0;
        let (cqe, raw) = ((&slot.cqe, index), qp.as_raw());
        // SAFETY: The queue pair is valid; the ring does not come back to the slot before.
        unsafe { message.send(raw, cqe, length, signaled, |send| post(qp, send)) }
    }
}
