// SPDX-License-Identifier: GPL-2.0

//! The receive queue: buffers that belong to the device until a message fills one.

use super::{
    completion::{Cqe, Done},
    dma::DmaBuffer,
    Pd,
};
use crate::{bindings, trace};
use core::{cell::UnsafeCell, mem::ManuallyDrop, ptr::NonNull};
use kernel::{
    dma::DataDirection,
    error::to_result,
    prelude::*,
    sync::{
        atomic::{Atomic, Relaxed},
        Arc,
    },
};

/// How many of `count` buffers go back to the device together: what rings the doorbell costs as
/// much for one.
fn batch(count: u32) -> u32 {
    (count / 4).clamp(1, 32)
}

/// Buffers beyond the `count` that are always posted or hold a message, because others wait for a
/// batch to be complete.
pub(super) fn spare(count: u32) -> u32 {
    batch(count).saturating_sub(1)
}

/// One buffer, with the request that posts it.
struct Slot {
    cqe: Cqe,
    buffer: DmaBuffer,
    request: UnsafeCell<bindings::ib_recv_wr>,
    sge: bindings::ib_sge,
}

/// A message that arrived, in its buffer, which the device gets back by
/// [`super::QueuePair::recycle`].
///
/// # Invariants
///
/// The buffer at `index` of the queue with the number `queue` is not posted, and the `length` bytes
/// from `start`, its first one, are the message.
pub(crate) struct ReceivedMessage {
    queue: u64,
    index: usize,
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: The buffer may be read from any thread.
unsafe impl Send for ReceivedMessage {}

/// Buffers on their way back to the device.
struct Returned {
    /// How many there are.
    count: usize,
    /// Their requests, as a chain.
    first: *mut bindings::ib_recv_wr,
}

/// The number of the next receive queue.
static NEXT_NUMBER: Atomic<u64> = Atomic::new(0);

/// The buffers of a receive queue.
///
/// # Invariants
///
/// `slots` is not changed after construction, so that its elements do not move; each request names
/// its slot's `cqe` and `sge`. A slot's buffer and request belong to the device from the post to the
/// completion of that request, to a [`ReceivedMessage`] from there on, which [`Self::recycle`] ends,
/// and to `returned` after that. `returned` belongs to who makes the queue pair, and from then on to
/// its completions, of which one at a time is handled.
pub(super) struct ReceiveQueue {
    /// Tells messages of this queue from those of any other, past ones included.
    number: u64,
    slots: KVVec<Slot>,
    /// How many are posted together.
    batch: usize,
    returned: UnsafeCell<Returned>,
}

// SAFETY: The work request handles are only read after construction, the rest is its owner's.
unsafe impl Sync for ReceiveQueue {}
// SAFETY: Nothing in the queue is tied to a thread.
unsafe impl Send for ReceiveQueue {}

impl ReceiveQueue {
    /// Allocates buffers of `size` bytes, of which `count` are always posted or hold a message.
    /// Their requests are completed by `done`.
    ///
    /// # Errors
    ///
    /// `ENOMEM` if the memory cannot be had.
    pub(super) fn new(pd: &Arc<Pd>, count: u32, size: u32, done: Done) -> Result<Self> {
        let batch = usize::try_from(batch(count))?;
        let count = usize::try_from(count.saturating_add(spare(count)))?;
        let size = usize::try_from(size)?;
        let mut slots = KVVec::with_capacity(count, GFP_KERNEL)?;
        for index in 0..count {
            let buffer = DmaBuffer::new(pd, size, DataDirection::FromDevice, GFP_KERNEL)?;
            slots.push(
                Slot {
                    cqe: Cqe::new(done, index),
                    sge: buffer.sge(0, size).ok_or(EINVAL)?,
                    buffer,
                    request: UnsafeCell::new(bindings::ib_recv_wr::default()),
                },
                GFP_KERNEL,
            )?;
        }
        // From here on they do not move.
        for slot in &mut slots {
            slot.request = UnsafeCell::new(bindings::ib_recv_wr {
                next: core::ptr::null_mut(),
                __bindgen_anon_1: bindings::ib_recv_wr__bindgen_ty_1 {
                    wr_cqe: ManuallyDrop::new(slot.cqe.as_raw()),
                },
                sg_list: &raw mut slot.sge,
                num_sge: 1,
            });
        }
        Ok(Self {
            number: NEXT_NUMBER.fetch_add(1, Relaxed),
            slots,
            batch,
            returned: UnsafeCell::new(Returned {
                count: 0,
                first: core::ptr::null_mut(),
            }),
        })
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
        slot.buffer.sync_for_cpu(length);
        // INVARIANT: The request has completed, and the length fits.
        Some(ReceivedMessage {
            queue: self.number,
            index,
            start: slot.buffer.start(),
            length,
        })
    }

    /// How many buffers the device has, or has just filled, and how many there are.
    pub(super) fn posted(&self) -> (usize, usize) {
        let count = self.slots.len();
        // SAFETY: The queue is valid; a word for people, which may be a little behind.
        let returned = unsafe { (&raw const (*self.returned.get()).count).read_volatile() };
        (count.saturating_sub(returned), count)
    }

    /// The bytes of a message.
    pub(super) fn bytes<'a>(&'a self, message: &'a ReceivedMessage) -> &'a [u8] {
        if message.queue != self.number {
            return &[];
        }
        // SAFETY: The buffer is this queue's, and initialised; by the message's invariant the device
        // does not have it, nor gets it as long as the message is borrowed.
        unsafe { core::slice::from_raw_parts(message.start.as_ptr(), message.length) }
    }

    /// Gives a message's buffer back, for the device to get with the next batch.
    ///
    /// # Safety
    ///
    /// `qp` is the queue pair of this queue, one of whose completions is being handled.
    ///
    /// # Errors
    ///
    /// `EINVAL` for another queue's message; otherwise what the provider answers.
    pub(super) unsafe fn recycle(
        &self,
        qp: *mut bindings::ib_qp,
        message: ReceivedMessage,
    ) -> Result {
        if message.queue != self.number {
            return Err(EINVAL);
        }
        // SAFETY: The message, which ends here, owned the buffer.
        unsafe { self.give(qp, message.index) }
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
    ///
    /// # Safety
    ///
    /// `qp` is the queue pair of this queue, and the caller owns the buffer and `returned`.
    ///
    /// # Errors
    ///
    /// What the provider answers.
    unsafe fn give(&self, qp: *mut bindings::ib_qp, index: usize) -> Result {
        let slot = self.slots.get(index).ok_or(EINVAL)?;
        // SAFETY: The queue pair is valid.
        let traced = unsafe { &*qp.cast() };
        let request = slot.request.get();
        // SAFETY: The caller owns `returned`, and the buffer with its request.
        let returned = unsafe {
            let returned = &mut *self.returned.get();
            (*request).next = returned.first;
            returned
        };
        returned.first = request;
        returned.count = returned.count.saturating_add(1);
        trace::xprtrdma_post_recv(traced, index);
        if returned.count < self.batch {
            return Ok(());
        }
        trace::xprtrdma_post_recvs(traced, returned.count);
        returned.count = 0;
        let first = core::mem::replace(&mut returned.first, core::ptr::null_mut());
        // SAFETY: The queue pair is the caller's promise. `returned` owned the buffers and requests
        // of the chain. They live in `slots`, which `QueuePair` drops after its queue pair. The CPU
        // has not written to the buffers, so that there is nothing to sync.
        to_result(unsafe { bindings::rpcrdma_ib_post_recv(qp, first) })
            .inspect_err(|&error| trace::xprtrdma_post_recvs_err(traced, error))
    }
}
