// SPDX-License-Identifier: GPL-2.0

//! The sending side of a queue pair: it owns the ring of Sends, and ends the connection.

use super::{
    client_send::{Message, RingSlot},
    cm::{Bound, CmId},
    cqe::HasCqe,
    mr::{Mapped, MrList},
    queue_pair::{Completions, QueuePair},
    ring::Ring,
    sizes::QpSizes,
    Pd,
};
use crate::bindings;
use kernel::{prelude::*, sync::Arc};

/// The owner of a queue pair's send ring. Each queue pair has exactly one.
///
/// # Invariants
///
/// `ring` holds the number of the next Send of `qp`; nobody else posts Sends of the ring.
pub(crate) struct Sender<C: Completions> {
    qp: Arc<QueuePair<C>>,
    ring: Ring,
}

impl<C: Completions> Sender<C> {
    /// Creates the queue pair of `id`, with the user's `context`, and posts its Receives. May
    /// sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, or whatever the provider returns, such as `EINVAL` for queues that are too large.
    pub(crate) fn create(
        id: CmId<Bound>,
        pd: &Arc<Pd>,
        sizes: &QpSizes,
        context: impl PinInit<C, Error>,
    ) -> Result<Self> {
        // From here on, dropping the sender waits for everything that is posted.
        let sender = Self::new(QueuePair::new(id, pd, sizes, context)?);
        // SAFETY: The queue pair is new, and nobody else has it.
        unsafe { sender.qp().post_first(pd)? };
        Ok(sender)
    }

    /// The sender of a new queue pair.
    fn new(qp: Arc<QueuePair<C>>) -> Self {
        let (slots, buffers) = qp.send_queue().len();
        // INVARIANT: The first Send has number 0.
        let ring = Ring::new(slots, buffers);
        Self { qp, ring }
    }

    /// The queue pair.
    pub(crate) fn qp(&self) -> &Arc<QueuePair<C>> {
        &self.qp
    }

    /// Whether a send buffer is free; if not, the next [`Completions::send_space`] says when to ask
    /// again.
    pub(crate) fn has_room(&mut self) -> bool {
        let queue = self.qp.send_queue();
        self.ring.has_room(
            || queue.completed(),
            // SAFETY: This is the sender, and Sends are posted only from slots with a buffer.
            |index| unsafe { queue.add_buffer(self.qp.qp().pd(), index) },
        )
    }

    /// The buffer for the next Send. If there is none, `full` is called before looking once more.
    pub(crate) fn buffer(&mut self, full: impl FnOnce(&mut Self)) -> Option<SendBuffer<'_, C>> {
        if !self.has_room() {
            full(self);
            if !self.has_room() {
                return None;
            }
        }
        let queue = self.qp.send_queue();
        let slot = queue.slot(self.ring.slot())?;
        // SAFETY: The next Send's message does not belong to the device, as just checked, and it is
        // lent out only once at a time, as this object is borrowed mutably.
        let message = unsafe { slot.message() }?;
        // INVARIANT: `slot` is that of the ring's next Send, and `message` is the slot's.
        Some(SendBuffer {
            slot,
            message,
            qp: &self.qp,
            ring: &mut self.ring,
        })
    }
}

/// Ends the connection, waits until every work request has completed, and destroys all regions that
/// the peer could reach. May sleep; must not be dropped in a completion or CM event handler.
impl<C: Completions> Drop for Sender<C> {
    fn drop(&mut self) {
        // SAFETY: Nobody else sends from the ring, and this object is being dropped.
        unsafe { self.qp.drain() };
    }
}

/// A buffer of the ring, in which a message is built.
///
/// # Invariants
///
/// `slot` is that of the next Send in `ring`, which is the ring of the queue pair's sender.
/// `message` is the slot's.
pub(crate) struct SendBuffer<'a, C: Completions> {
    qp: &'a QueuePair<C>,
    slot: &'a RingSlot<QueuePair<C>>,
    message: &'a mut Message,
    ring: &'a mut Ring,
}

impl<'a, C: Completions> SendBuffer<'a, C> {
    /// The queue pair.
    pub(crate) fn qp(&self) -> &'a QueuePair<C> {
        self.qp
    }

    /// The buffer for the message, which begins at its start.
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        self.message.bytes()
    }

    /// Sends the first `length` bytes.
    ///
    /// # Errors
    ///
    /// As for [`Qp::post_send`]. The connection is unusable after an error.
    pub(crate) fn send(self, length: usize) -> Result {
        // SAFETY: The sender owns the send queue. The Send's buffer belongs to the device from here
        // on.
        self.post(length, |qp, send| unsafe { qp.qp().post_send(send) })
    }

    /// Registers `regions` in slot `index` and sends the first `length` bytes, in one chain.
    /// `publish` changes what the slot keeps for the user, before the regions can be invalidated.
    ///
    /// # Errors
    ///
    /// As for [`Qp::post_send`]. The connection is unusable after an error.
    pub(crate) fn register_and_send(
        self,
        length: usize,
        regions: MrList<Mapped>,
        index: usize,
        publish: impl FnOnce(&mut C::Slot),
    ) -> Result {
        // SAFETY: The sender owns the send queue. All of these are parts of the queue pair. The
        // Send's buffer belongs to the device from here on.
        self.post(length, |qp, send| unsafe {
            let failed = qp.unsignaled();
            qp.registered()
                .post(qp.qp(), failed, index, regions, send, publish)
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
            ring,
        } = self;
        let number = ring.next();
        // If posting fails, the message may belong to the device all the same, and the number is
        // used up.
        ring.advance();
        slot.number.set(number);
        let signaled = qp.send_queue().is_signaled(number);
        let wr_cqe = RingSlot::wr_cqe(slot);
        // SAFETY: The ring does not return to the slot before the device has returned the message.
        unsafe {
            message.send(qp.qp(), wr_cqe, length, (number, signaled), |send| {
                post(qp, send)
            })
        }
    }
}
