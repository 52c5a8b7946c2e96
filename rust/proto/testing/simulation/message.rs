// SPDX-License-Identifier: GPL-2.0

//! Messages on their way, and in the hands of those who sent or received them.

use super::{Direction, End, Failure, MESSAGE_LEN};

/// What the sender of a message means by it. The fabric counts credits by it, and does not look
/// into the message but for the credit word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A Call.
    Call(Direction),
    /// A Reply, which brings a grant.
    Reply(Direction),
    /// A Reply that its receiver has to refuse.
    BadReply(Direction),
    /// A Reply of a version that its receiver does not know.
    UnknownReply,
    /// An RDMA_ERROR that ends a Call.
    Error(Direction),
    /// Anything else.
    Other,
}

impl Kind {
    /// Whether its sender takes it for a forward Reply that tells the version.
    pub(crate) fn is_forward_reply(self) -> bool {
        matches!(
            self,
            Self::Reply(Direction::Forward)
                | Self::BadReply(Direction::Forward)
                | Self::UnknownReply
        )
    }
}

/// What is known of a message beside its bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message {
    /// Who gets it.
    pub(crate) to: End,
    /// On which connection.
    pub(crate) generation: u32,
    /// Bytes.
    pub(crate) length: usize,
    /// What it is.
    pub(crate) kind: Kind,
    /// The handle that its arrival invalidates.
    pub(crate) invalidate: Option<u32>,
}

impl Message {
    /// A message that is not written yet.
    pub(crate) const NONE: Self = Self {
        to: End::Requester,
        generation: 0,
        length: 0,
        kind: Kind::Other,
        invalidate: None,
    };
}

/// All messages.
pub(crate) struct Messages<'a> {
    bytes: &'a mut [u8],
    slots: &'a mut [Option<Message>],
}

impl<'a> Messages<'a> {
    /// No message.
    pub(crate) fn new(bytes: &'a mut [u8], slots: &'a mut [Option<Message>]) -> Self {
        slots.fill(None);
        Self { bytes, slots }
    }

    /// Takes a free slot.
    ///
    /// # Errors
    ///
    /// [`Failure::Storage`] if there is none.
    pub(crate) fn take(&mut self) -> Result<usize, Failure> {
        let free = self.slots.iter().position(Option::is_none);
        let slot = free.ok_or(Failure::Storage)?;
        self.describe(slot, Message::NONE);
        Ok(slot)
    }

    /// Frees a slot.
    pub(crate) fn free(&mut self, slot: usize) {
        if let Some(place) = self.slots.get_mut(slot) {
            *place = None;
        }
    }

    /// Whether any slot is in use.
    pub(crate) fn is_leaking(&self) -> bool {
        self.slots.iter().any(Option::is_some)
    }

    /// What is known of a message.
    pub(crate) fn about(&self, slot: usize) -> Message {
        self.slots
            .get(slot)
            .copied()
            .flatten()
            .unwrap_or(Message::NONE)
    }

    /// Sets what is known of a message.
    pub(crate) fn describe(&mut self, slot: usize, message: Message) {
        if let Some(place) = self.slots.get_mut(slot) {
            *place = Some(message);
        }
    }

    /// The bytes of a message.
    pub(crate) fn bytes(&self, slot: usize) -> &[u8] {
        let start = slot.saturating_mul(MESSAGE_LEN);
        let length = self.about(slot).length;
        let rest = self.bytes.get(start..).unwrap_or_default();
        rest.get(..length).unwrap_or_default()
    }

    /// The buffer of a message to be written.
    pub(crate) fn buffer(&mut self, slot: usize) -> &mut [u8] {
        let start = slot.saturating_mul(MESSAGE_LEN);
        let rest = self.bytes.get_mut(start..).unwrap_or_default();
        rest.get_mut(..MESSAGE_LEN).unwrap_or_default()
    }

    /// The bytes of one message, and the buffer of another one.
    pub(crate) fn pair(&mut self, read: usize, write: usize) -> (&[u8], &mut [u8]) {
        let length = self.about(read).length;
        let (start, other) = (read.min(write), read.max(write));
        let middle = other.saturating_mul(MESSAGE_LEN).min(self.bytes.len());
        let (low, high) = self.bytes.split_at_mut(middle);
        let low = low.get_mut(start.saturating_mul(MESSAGE_LEN)..);
        let (low, high) = (low.unwrap_or_default(), high);
        let (from, to) = if read < write {
            (low, high)
        } else {
            (high, low)
        };
        let from: &[u8] = from;
        (
            from.get(..length).unwrap_or_default(),
            to.get_mut(..MESSAGE_LEN).unwrap_or_default(),
        )
    }

    /// One word of a message as it is on the wire, 0 if it is not there.
    pub(crate) fn word(&self, slot: usize, number: usize) -> u32 {
        let bytes = self.bytes(slot).get(number.saturating_mul(4)..);
        let word = bytes.unwrap_or_default().first_chunk();
        word.map_or(0, |word| u32::from_be_bytes(*word))
    }
}
