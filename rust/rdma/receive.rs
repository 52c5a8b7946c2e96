// SPDX-License-Identifier: GPL-2.0

//! The receive queue: buffers that belong to the device until a message fills one.

use super::{
    completion::{Cqe, Done},
    dma::{Direction, DmaBuffer},
    Pd,
};
use crate::{bindings, trace};
use core::mem::ManuallyDrop;
use kernel::{
    error::to_result,
    new_spinlock,
    prelude::*,
    sync::atomic::{Atomic, Relaxed},
    sync::{Arc, SpinLock},
};

/// Buffers that go back to the device together: what rings the doorbell costs as much for one.
const BATCH: u32 = 8;

/// Buffers beyond those that are always posted, because others wait for a batch to be complete.
pub(super) const SPARE: u32 = BATCH - 1;

/// One posted buffer.
struct Slot {
    cqe: Cqe,
    buffer: DmaBuffer,
    /// Whether the device has the buffer; only for people.
    posted: Atomic<bool>,
}

/// A message that arrived, in its buffer, which the device gets back by
/// [`super::QueuePair::recycle`].
///
/// # Invariants
///
/// The buffer at `index` of the queue at `queue` is not posted, and `length` of its bytes are the
/// message.
pub(crate) struct ReceivedMessage {
    queue: usize,
    index: usize,
    length: usize,
}

/// Buffers on their way back to the device.
struct Returned {
    /// Whether posting is still allowed; closed before the drain.
    open: bool,
    /// How many of `indexes` there are.
    count: usize,
    indexes: [usize; BATCH as usize],
}

/// The buffers of a receive queue.
///
/// # Invariants
///
/// `slots` is not changed after construction, so that its elements do not move. A slot's buffer
/// belongs to the device from [`Self::post`] to the completion of that request, to a
/// [`ReceivedMessage`] from there on, which [`Self::recycle`] ends, and to `returned` after that.
#[pin_data]
pub(super) struct ReceiveQueue {
    slots: KVVec<Slot>,
    #[pin]
    returned: SpinLock<Returned>,
}

// SAFETY: The work request handles are only read after construction.
unsafe impl Sync for Slot {}
// SAFETY: Nothing in a slot is tied to a thread.
unsafe impl Send for Slot {}

impl ReceiveQueue {
    /// Allocates buffers of `size` bytes, of which `count` are always posted or hold a message.
    /// Their requests are completed by `done`.
    pub(super) fn new<'a>(
        pd: &'a Arc<Pd>,
        count: u32,
        size: u32,
        done: Done,
    ) -> impl PinInit<Self, Error> + 'a {
        try_pin_init!(Self {
            slots: {
                let count = usize::try_from(count.saturating_add(SPARE))?;
                let size = usize::try_from(size)?;
                let mut slots = KVVec::with_capacity(count, GFP_KERNEL)?;
                for index in 0..count {
                    slots.push(
                        Slot {
                            cqe: Cqe::new(done, index),
                            buffer: DmaBuffer::new(pd, size, Direction::FromDevice)?,
                            posted: Atomic::new(false),
                        },
                        GFP_KERNEL,
                    )?;
                }
                slots
            },
            returned <- new_spinlock!(Returned {
                open: true,
                count: 0,
                indexes: [0; BATCH as usize],
            }, "rpcrdma_returned_receives"),
        }? Error)
    }

    /// Takes the buffer at `index` over from the device, with the message in it; nothing if the
    /// device claims to have written more than there is room for.
    ///
    /// # Safety
    ///
    /// The request of the buffer has completed with success, and was not taken before.
    pub(super) unsafe fn take(&self, index: usize, length: u32) -> Option<ReceivedMessage> {
        let slot = self.slots.get(index)?;
        let length = usize::try_from(length).ok()?;
        if length > slot.buffer.len() {
            return None;
        }
        slot.posted.store(false, Relaxed);
        slot.buffer.sync_for_cpu(length);
        // INVARIANT: The request has completed, and the length fits.
        Some(ReceivedMessage {
            queue: self.address(),
            index,
            length,
        })
    }

    /// How many buffers the device has, and how many there are.
    pub(super) fn posted(&self) -> (usize, usize) {
        let posted = self.slots.iter().filter(|slot| slot.posted.load(Relaxed));
        (posted.count(), self.slots.len())
    }

    /// The bytes of a message.
    pub(super) fn bytes<'a>(&'a self, message: &'a ReceivedMessage) -> &'a [u8] {
        let Some(slot) = self.slots.get(message.index) else {
            return &[];
        };
        if message.queue != self.address() {
            return &[];
        }
        let length = message.length.min(slot.buffer.len());
        // SAFETY: The buffer is initialised and long enough; by the message's invariant the device
        // does not have it, nor gets it as long as the message is borrowed.
        unsafe { core::slice::from_raw_parts(slot.buffer.start().as_ptr(), length) }
    }

    /// Gives a message's buffer back, for the device to get with the next batch.
    ///
    /// # Safety
    ///
    /// `qp` is the queue pair of this queue.
    ///
    /// # Errors
    ///
    /// `EINVAL` for another queue's message; otherwise what the provider answers.
    pub(super) unsafe fn recycle(
        &self,
        qp: *mut bindings::ib_qp,
        message: ReceivedMessage,
    ) -> Result {
        if message.queue != self.address() {
            return Err(EINVAL);
        }
        // SAFETY: The message, which ends here, owned the buffer.
        unsafe { self.give(qp, message.index) }
    }

    /// What tells a message of this queue from another's.
    fn address(&self) -> usize {
        core::ptr::from_ref(self).addr()
    }

    /// Gives the buffers to the device, for the first time, as far as they fill batches.
    ///
    /// # Safety
    ///
    /// `qp` is the queue pair of this queue, and no buffer was posted before.
    ///
    /// # Errors
    ///
    /// What the provider answers.
    pub(super) unsafe fn post_all(&self, qp: *mut bindings::ib_qp) -> Result {
        for index in 0..self.slots.len() {
            // SAFETY: The caller's promise.
            unsafe { self.give(qp, index)? };
        }
        Ok(())
    }

    /// Adds the buffer at `index` to those on their way back, and posts them if they are a batch.
    /// Does nothing once the queue is closed.
    ///
    /// # Safety
    ///
    /// `qp` is the queue pair of this queue, and the caller owns the buffer.
    ///
    /// # Errors
    ///
    /// What the provider answers.
    unsafe fn give(&self, qp: *mut bindings::ib_qp, index: usize) -> Result {
        let mut returned = self.returned.lock();
        if !returned.open {
            return Ok(());
        }
        let at = returned.count;
        *returned.indexes.get_mut(at).ok_or(EINVAL)? = index;
        let count = at.saturating_add(1);
        if count < returned.indexes.len() {
            returned.count = count;
            return Ok(());
        }
        returned.count = 0;
        // SAFETY: `returned` owned the buffers, and is locked.
        unsafe { self.post(qp, &returned.indexes) }
    }

    /// Gives buffers to the device, as one chain.
    ///
    /// # Safety
    ///
    /// `qp` is the queue pair of this queue, and the caller owns the buffers.
    ///
    /// # Errors
    ///
    /// What the provider answers.
    unsafe fn post(&self, qp: *mut bindings::ib_qp, indexes: &[usize; BATCH as usize]) -> Result {
        let mut sges: [bindings::ib_sge; BATCH as usize] = Default::default();
        let mut requests: [bindings::ib_recv_wr; BATCH as usize] = Default::default();
        let mut first = core::ptr::null_mut();
        // SAFETY: The queue pair is valid.
        let traced = unsafe { &*qp.cast() };
        for ((&index, sge), request) in indexes.iter().zip(&mut sges).zip(&mut requests) {
            let slot = self.slots.get(index).ok_or(EINVAL)?;
            slot.buffer.sync_for_device(slot.buffer.len());
            *sge = slot.buffer.sge(0, slot.buffer.len()).ok_or(EINVAL)?;
            *request = bindings::ib_recv_wr {
                next: first,
                __bindgen_anon_1: bindings::ib_recv_wr__bindgen_ty_1 {
                    wr_cqe: ManuallyDrop::new(slot.cqe.as_raw()),
                },
                sg_list: sge,
                num_sge: 1,
            };
            first = request;
            slot.posted.store(true, Relaxed);
            trace::xprtrdma_post_recv(traced, index);
        }
        trace::xprtrdma_post_recvs(traced, indexes.len());
        // SAFETY: The queue pair is the caller's promise. Buffers and completion handles live in
        // `slots`, which `QueuePair` drops after its queue pair. The requests themselves are
        // copied.
        to_result(unsafe { bindings::rpcrdma_ib_post_recv(qp, first) })
            .inspect_err(|&error| trace::xprtrdma_post_recvs_err(traced, error))
    }

    /// Ends all posting.
    pub(super) fn close(&self) {
        self.returned.lock().open = false;
    }
}
