// SPDX-License-Identifier: GPL-2.0

//! RPC messages whose every byte is known to both upper layers.

use super::Direction;
use crate::proto::message::MessageType;
use crate::proto::testing::simulation::plan_general::Piece;

/// The parts of an RPC message. Every other one is a data item, and the part behind an item starts
/// with its XDR round-up.
pub(crate) const PARTS: usize = 5;

/// The data items of an RPC message.
pub(crate) const ITEMS: usize = 2;

/// What an RPC message consists of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Bytes of each part, of the first one at least 8.
    pub(crate) len: [u32; PARTS],
    /// Whether each item may be placed directly.
    pub(crate) eligible: [bool; ITEMS],
}

/// A part of an RPC message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    /// Where it starts, in bytes.
    pub(crate) start: u32,
    /// Bytes.
    pub(crate) len: u32,
    /// Bytes at its start that round up the item before.
    pub(crate) pad: u32,
    /// Whether it may be placed directly.
    pub(crate) eligible: bool,
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

impl Layout {
    /// A message without items.
    pub(crate) const fn plain(length: u32) -> Self {
        Self {
            len: [length, 0, 0, 0, 0],
            eligible: [false; ITEMS],
        }
    }

    /// Bytes of the message.
    pub(crate) fn total(&self) -> u32 {
        self.len.iter().sum()
    }

    /// The parts in their order.
    pub(crate) fn parts(&self) -> [Part; PARTS] {
        let [a, first, b, second, c] = self.len;
        let [is_first, is_second] = self.eligible;
        let mut start = 0;
        [
            (a, 0, false),
            (first, 0, is_first),
            (b, round_up(first), false),
            (second, 0, is_second),
            (c, round_up(second), false),
        ]
        .map(|(len, pad, eligible)| {
            let part = Part {
                start,
                len,
                pad,
                eligible,
            };
            start += len;
            part
        })
    }

    /// The parts as a plan wants them, with regions of at most `region` bytes.
    pub(crate) fn pieces(&self, region: u32) -> [Piece; PARTS] {
        self.parts().map(|part| Piece {
            len: part.len,
            segments: part.len.div_ceil(region.max(1)),
            eligible: part.eligible,
        })
    }
}

/// The whole of one RPC message as it is before reduction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Payload {
    /// The transaction.
    pub(crate) xid: u32,
    /// Whose Call it is, or is the Reply to.
    pub(crate) direction: Direction,
    /// Call or Reply.
    pub(crate) message_type: MessageType,
    /// What it consists of.
    pub(crate) layout: Layout,
}

impl Payload {
    /// Bytes of the message.
    pub(crate) fn total(&self) -> u32 {
        self.layout.total()
    }

    /// The bytes from offset `at` on. Round-up is zero, as a responder supplies it.
    fn bytes(&self, at: u32) -> impl Iterator<Item = u8> {
        let [a, b, c, d] = self.xid.to_be_bytes();
        let (last, salt) = match (self.direction, self.message_type) {
            (Direction::Forward, MessageType::Call) => (0, 0x1000_0000),
            (Direction::Forward, MessageType::Reply) => (1, 0x2000_0000),
            (Direction::Backward, MessageType::Call) => (0, 0x3000_0000),
            (Direction::Backward, MessageType::Reply) => (1, 0x4000_0000),
        };
        let mut start = [a, b, c, d, 0, 0, 0, last].into_iter().skip(index(at));
        let key = salt ^ self.xid.rotate_left(16);
        let [_, _, second, _, third] = self.layout.parts();
        (at..).map(move |at| {
            let is_pad = |part: &Part| at.wrapping_sub(part.start) < part.pad;
            if let Some(byte) = start.next() {
                byte
            } else if is_pad(&second) || is_pad(&third) {
                0
            } else {
                let mixed = (at ^ key).wrapping_mul(0x9e37_79b1);
                let [_, _, _, high] = mixed.to_le_bytes();
                high
            }
        })
    }

    /// Writes the bytes from offset `at` on into all of `buffer`.
    pub(crate) fn fill(&self, at: u32, buffer: &mut [u8]) {
        for (slot, byte) in buffer.iter_mut().zip(self.bytes(at)) {
            *slot = byte;
        }
    }

    /// Whether `bytes` are those of the message from offset `at` on.
    pub(crate) fn matches(&self, at: u32, bytes: &[u8]) -> bool {
        let end = at.checked_add(short(bytes.len()));
        end.is_some_and(|end| end <= self.total())
            && bytes
                .iter()
                .zip(self.bytes(at))
                .all(|(byte, expected)| *byte == expected)
    }

    /// Whether `bytes` are the whole message.
    pub(crate) fn is(&self, bytes: &[u8]) -> bool {
        short(bytes.len()) == self.total() && self.matches(0, bytes)
    }
}
