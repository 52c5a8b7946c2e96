// SPDX-License-Identifier: GPL-2.0

//! Where the bytes of a Call's RPC message are when it is put together (RFC 8166 section 3.4.5).

use super::budget::Excess;
use super::refusal::CallError;
use crate::proto::wire::chunk::ReadList;

/// Bytes by which XDR rounds up an item of `length` bytes.
pub(super) const fn round_up(length: u64) -> u64 {
    length.wrapping_neg() & 3
}

/// Bytes of an item of `length` bytes with its round-up.
pub(super) const fn padded(length: u64) -> u64 {
    length.saturating_add(round_up(length))
}

/// The error for a message whose length does not fit 32 bits.
const TOO_LONG: CallError = CallError::Budget(Excess::ReadBytes);

/// Which bytes of the RPC message stay in the Receive buffer, and which are in pages.
///
/// The message is the first `head` bytes of the inline part, the pages, and the rest of the inline
/// part. If there is one Read chunk beside an inline part, the pages hold the chunk's data, so that
/// nothing is copied. If there are more, or one at Position Zero, the pages hold the whole message,
/// with what is inline copied into its place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StreamLayout {
    /// Bytes before the pages, the first ones of the inline part.
    pub(crate) head: u32,
    /// Bytes in pages, round-up included; 0 if nothing is to be read.
    pub(crate) pages: u32,
    /// Bytes after the pages, which follow the head in the inline part.
    pub(crate) tail: u32,
    /// Read chunks, the one at Position Zero included.
    pub(crate) read_chunks: u32,
    /// Whether the pages have bytes that do not come from a Read chunk: round-up that a chunk
    /// leaves out, or what is inline.
    pub(crate) is_mixed: bool,
}

impl StreamLayout {
    /// The layout of a Call with this inline part and Read list.
    ///
    /// # Errors
    ///
    /// [`CallError::PositionRange`], or [`CallError::Budget`] if there are more than `most` Read
    /// chunks or the message is too long for a 32-bit length.
    pub(crate) fn new(
        payload: Option<&[u8]>,
        reads: &ReadList<'_>,
        most: u32,
    ) -> Result<Self, CallError> {
        let in_range = |bytes: u64| u32::try_from(bytes).map_err(|_| TOO_LONG);
        let inline = u32::try_from(payload.map_or(0, <[u8]>::len)).map_err(|_| TOO_LONG)?;
        let mut base = u64::from(inline);
        let (mut offset, mut count) = (0u64, 0u32);
        // Where the last chunk that has bytes is, and its length with its round-up.
        let (mut position, mut length) = (0, 0);
        let (mut with_bytes, mut is_rounded) = (0u32, false);
        for chunk in reads.chunks() {
            count = count.saturating_add(1);
            if count > most {
                return Err(CallError::Budget(Excess::ReadChunks));
            }
            let bytes = chunk.length();
            if bytes > 0 {
                with_bytes = with_bytes.saturating_add(1);
                position = chunk.position;
                length = padded(bytes);
                is_rounded |= length != bytes;
            }
            if chunk.position == 0 {
                base = bytes;
                continue;
            }
            let gap = u64::from(chunk.position).checked_sub(offset);
            let rest = gap.and_then(|gap| base.checked_sub(gap));
            base = rest.ok_or(CallError::PositionRange)?;
            offset = u64::from(chunk.position).saturating_add(padded(bytes));
        }
        let total = in_range(offset.saturating_add(base))?;
        Ok(match (payload, with_bytes) {
            (Some(_), 0) => Self {
                head: total,
                read_chunks: count,
                ..Self::default()
            },
            (Some(_), 1) => Self {
                head: position,
                pages: in_range(length)?,
                tail: inline.saturating_sub(position),
                read_chunks: count,
                is_mixed: is_rounded,
            },
            _ => Self {
                pages: total,
                read_chunks: count,
                is_mixed: is_rounded || payload.is_some(),
                ..Self::default()
            },
        })
    }

    /// Bytes of the whole RPC message.
    pub(crate) const fn total(&self) -> u32 {
        // A layout is only made if this is in range.
        self.head
            .saturating_add(self.pages)
            .saturating_add(self.tail)
    }
}
