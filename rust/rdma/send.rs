// SPDX-License-Identifier: GPL-2.0

//! The send queue: a ring of buffers in which messages leave.
//!
//! Sends complete in the order in which they were posted, so one counter tells
//! which buffers are free. Only every few Sends asks for a completion.

use super::{
    completion::{Cqe, Done},
    dma::{Direction, DmaBuffer},
    mr::{Mapped, MrList},
    registered::RegisteredLists,
    Pd,
};
use crate::{bindings, trace};
use core::mem::ManuallyDrop;
use kernel::{
    error::to_result,
    new_mutex, new_spinlock,
    prelude::*,
    sync::atomic::{Acquire, Atomic, Relaxed, Release},
    sync::lock::{mutex::MutexBackend, Guard},
    sync::{Arc, Mutex, SpinLock},
};

/// One buffer of the ring.
struct Slot {
    cqe: Cqe,
    buffer: DmaBuffer,
    /// The number of the Send that was last posted from this buffer. Before the first round, that
    /// of the round before.
    number: Atomic<u32>,
}

// SAFETY: The work request handles are only read after construction.
unsafe impl Sync for Slot {}
// SAFETY: Nothing in a slot is tied to a thread.
unsafe impl Send for Slot {}

/// The ring.
///
/// # Invariants
///
/// `slots` is not changed after construction; its length is a power of two. The Sends numbered
/// from `completed` up to, not including, `*producer` are with the device, and so are their
/// buffers, `number % slots.len()`. All others belong to who holds `producer`.
#[pin_data]
pub(super) struct SendQueue {
    slots: KVVec<Slot>,
    /// The number of the next Send.
    #[pin]
    producer: Mutex<u32>,
    /// The number of the first Send whose completion is not known.
    completed: Atomic<u32>,
    /// Whether posting is still allowed; closed before the drain. Held while posting, so that a
    /// chain is not torn apart.
    #[pin]
    gate: SpinLock<bool>,
    /// Completes what is not signalled, in case it fails.
    unsignaled: Cqe,
}

impl SendQueue {
    /// Allocates `count` buffers of `size` bytes. Signalled Sends are completed by `done`,
    /// unsignalled requests, should they fail, by `failed`.
    pub(super) fn new<'a>(
        pd: &'a Arc<Pd>,
        count: u32,
        size: u32,
        done: Done,
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
                    slots.push(
                        Slot {
                            cqe: Cqe::new(done, index),
                            buffer: DmaBuffer::new(pd, size, Direction::ToDevice)?,
                            number: Atomic::new(u32::try_from(index)?.wrapping_sub(ring)),
                        },
                        GFP_KERNEL,
                    )?;
                }
                slots
            },
            producer <- new_mutex!(0, "rpcrdma_send_producer"),
            completed: Atomic::new(0),
            gate <- new_spinlock!(true, "rpcrdma_send_gate"),
            unsignaled: Cqe::new(failed, 0),
        }? Error)
    }

    /// The buffer for the next Send, or nothing while no more than `spare` are not with the
    /// device. May sleep.
    pub(super) fn buffer<'a, U>(
        &'a self,
        qp: *mut bindings::ib_qp,
        registered: &'a RegisteredLists<U>,
        spare: usize,
    ) -> Option<SendBuffer<'a, U>> {
        let producer = self.producer.lock();
        let under_way = producer.wrapping_sub(self.completed.load(Acquire));
        if usize::try_from(under_way).ok()? >= self.slots.len().saturating_sub(spare) {
            return None;
        }
        // INVARIANT: The next Send's buffer is not with the device, as just checked.
        Some(SendBuffer {
            queue: self,
            registered,
            qp,
            producer,
        })
    }

    /// The index of Send `number`'s slot.
    fn index(&self, number: u32) -> usize {
        // CAST: A u32 always fits the kernel's usize.
        number as usize & self.slots.len().wrapping_sub(1)
    }

    /// The slot of Send `number`.
    fn slot(&self, number: u32) -> Option<&Slot> {
        self.slots.get(self.index(number))
    }

    /// Takes note that the Send from the buffer at `index` has completed, and with it all before.
    pub(super) fn complete(&self, index: usize) {
        if let Some(slot) = self.slots.get(index) {
            let number = slot.number.load(Relaxed);
            self.completed.store(number.wrapping_add(1), Release);
        }
    }

    /// How many buffers are with the device as far as is known, and how many there are.
    pub(super) fn posted(&self) -> (usize, usize) {
        let completed = self.completed.load(Relaxed);
        let is_posted = |slot: &&Slot| {
            let age = slot.number.load(Relaxed).wrapping_sub(completed);
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

    /// Posts a chain, unless the queue is closed.
    ///
    /// # Safety
    ///
    /// `qp` is the queue pair of this queue. `first` is a chain whose requests and what they name
    /// stay valid: the requests during the call, their memory until they complete.
    ///
    /// # Errors
    ///
    /// `EPIPE` if the queue is closed; otherwise what the provider answers, after which some
    /// of the chain may be posted, so that the connection has to end.
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
        to_result(unsafe { bindings::rpcrdma_ib_post_send(qp, first) })
    }

    /// Ends all posting.
    pub(super) fn close(&self) {
        *self.gate.lock() = false;
    }
}

/// A buffer to build a message in. Nobody else sends while it exists.
///
/// # Invariants
///
/// The slot of Send `*producer` is not with the device.
pub(crate) struct SendBuffer<'a, U> {
    queue: &'a SendQueue,
    registered: &'a RegisteredLists<U>,
    qp: *mut bindings::ib_qp,
    producer: Guard<'a, u32, MutexBackend>,
}

impl<U: Default + Send + Unpin> SendBuffer<'_, U> {
    /// The bytes of the message, to be filled from the start.
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        let Some(slot) = self.queue.slot(*self.producer) else {
            return &mut [];
        };
        // SAFETY: By the type's invariant the device does not have the buffer, and the lock on
        // the producer makes this the only user.
        unsafe { core::slice::from_raw_parts_mut(slot.buffer.start().as_ptr(), slot.buffer.len()) }
    }

    /// Sends the first `length` bytes.
    ///
    /// # Errors
    ///
    /// As [`SendQueue::post`]. The connection is of no use after one.
    pub(crate) fn send(self, length: usize) -> Result {
        let (queue, qp) = (self.queue, self.qp);
        // SAFETY: `qp` is this queue's. The Send's buffer is the device's from here on.
        self.post(length, |send| unsafe { queue.post(qp, send) })
    }

    /// Registers `regions`, in slot `index`, and sends the first `length` bytes, in one chain.
    /// `publish` changes what the slot keeps beside them, before they can be invalidated.
    ///
    /// # Errors
    ///
    /// As [`SendQueue::post`]. The connection is of no use after one.
    pub(crate) fn register_and_send(
        self,
        length: usize,
        regions: MrList<Mapped>,
        index: usize,
        publish: impl FnOnce(&mut U),
    ) -> Result {
        let (queue, qp, registered) = (self.queue, self.qp, self.registered);
        // SAFETY: `qp` is this queue's. The Send's buffer is the device's from here on.
        self.post(length, |send| unsafe {
            registered.post(qp, queue, index, regions, send, publish)
        })
    }

    /// Builds the Send of this buffer, for `post` to put on the queue.
    fn post(
        mut self,
        length: usize,
        post: impl FnOnce(&mut bindings::ib_send_wr) -> Result,
    ) -> Result {
        let number = *self.producer;
        let slot = self.queue.slot(number).ok_or(EINVAL)?;
        let mut sge = slot.buffer.sge(0, length).ok_or(EINVAL)?;
        // Four times a round: the ring cannot fill up without a completion on its way.
        let quarter = u32::try_from(self.queue.slots.len())? / 4;
        let signaled = quarter == 0 || number & quarter.wrapping_sub(1) == 0;
        let mut send = bindings::ib_send_wr {
            __bindgen_anon_1: bindings::ib_send_wr__bindgen_ty_1 {
                wr_cqe: ManuallyDrop::new(slot.cqe.as_raw()),
            },
            sg_list: &mut sge,
            num_sge: 1,
            opcode: bindings::ib_wr_opcode_IB_WR_SEND,
            send_flags: if signaled {
                bindings::ib_send_flags_IB_SEND_SIGNALED
            } else {
                0
            },
            ..Default::default()
        };
        slot.buffer.sync_for_device(length);
        slot.number.store(number, Relaxed);
        // SAFETY: The queue pair is valid. The buffer is initialised, its slot is not with the
        // device, and `sge` has checked the length.
        let (qp, message) = unsafe {
            let start = slot.buffer.start().as_ptr();
            (&*self.qp.cast(), core::slice::from_raw_parts(start, length))
        };
        trace::xprtrdma_post_send(qp, self.queue.index(number), message, signaled);
        // INVARIANT: If the post fails, the buffer may be with the device all the same, and the
        // number is used up.
        *self.producer = number.wrapping_add(1);
        post(&mut send).inspect_err(|&error| trace::xprtrdma_post_send_err(qp, error))
    }
}
