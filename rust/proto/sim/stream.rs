// SPDX-License-Identifier: GPL-2.0

//! RPC messages whose every byte is known to both upper layers.

use super::super::message::MessageType;
use super::super::plan::Parts;
use super::Direction;

/// The whole of one RPC message, as it is before reduction: head, bulk data, its round-up, the
/// rest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stream {
    /// The transaction.
    pub(crate) xid: u32,
    /// Whose Call it is, or is the Reply to.
    pub(crate) direction: Direction,
    /// Call or Reply.
    pub(crate) message_type: MessageType,
    /// Bytes of the parts. Those of the head are at least 8; those of the tail start with the
    /// round-up of the pages.
    pub(crate) len: Parts,
}

/// The round-up of `length` bytes, 0 to 3 (RFC 4506 section 4.10).
pub(crate) const fn round_up(length: u32) -> u32 {
    length.wrapping_neg() & 3
}

/// `number` as an index; larger than any buffer if it does not fit.
pub(crate) fn index(number: impl TryInto<usize>) -> usize {
    number.try_into().unwrap_or(usize::MAX)
}

/// `number` in 32 bits; the largest value if it does not fit.
pub(crate) fn short(number: impl TryInto<u32>) -> u32 {
    number.try_into().unwrap_or(u32::MAX)
}

impl Stream {
    /// Bytes of the message.
    pub(crate) fn total(&self) -> u32 {
        let Parts { head, pages, tail } = self.len;
        head.saturating_add(pages).saturating_add(tail)
    }

    /// The byte at offset `at`.
    fn byte(&self, at: u32) -> u8 {
        let word = match at {
            0..4 => self.xid,
            4..8 => match self.message_type {
                MessageType::Call => 0,
                MessageType::Reply => 1,
            },
            _ => return self.data(at),
        };
        let [a, b, c, d] = word.to_be_bytes();
        match at & 3 {
            0 => a,
            1 => b,
            2 => c,
            _ => d,
        }
    }

    /// The byte at offset `at`, behind the first two words.
    fn data(&self, at: u32) -> u8 {
        let pad = self.len.head.saturating_add(self.len.pages);
        if at.wrapping_sub(pad) < round_up(self.len.pages) {
            return 0;
        }
        let salt = match (self.direction, self.message_type) {
            (Direction::Forward, MessageType::Call) => 0x1000_0000,
            (Direction::Forward, MessageType::Reply) => 0x2000_0000,
            (Direction::Backward, MessageType::Call) => 0x3000_0000,
            (Direction::Backward, MessageType::Reply) => 0x4000_0000,
        };
        let mixed = (at ^ salt ^ self.xid.rotate_left(16)).wrapping_mul(0x9e37_79b1);
        let [_, _, _, high] = mixed.to_le_bytes();
        high
    }

    /// Writes the bytes from offset `at` on into all of `buffer`.
    pub(crate) fn fill(&self, at: u32, buffer: &mut [u8]) {
        for (offset, slot) in (at..).zip(buffer) {
            *slot = self.byte(offset);
        }
    }

    /// Whether `bytes` are those of the message from offset `at` on.
    pub(crate) fn matches(&self, at: u32, bytes: &[u8]) -> bool {
        let end = at.checked_add(short(bytes.len()));
        end.is_some_and(|end| end <= self.total())
            && (at..).zip(bytes).all(|(at, &byte)| byte == self.byte(at))
    }
}
