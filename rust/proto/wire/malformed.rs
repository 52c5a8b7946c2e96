// SPDX-License-Identifier: GPL-2.0

//! Why a received message is refused.

use super::header::FIXED_LEN;

/// Why a received message is refused. The words in parentheses are those of the test vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeaderError {
    /// Fewer bytes than the four fixed words (`short`).
    Short,
    /// The version word is outside the supported range (`vers`).
    Version,
    /// The procedure is retired or undefined (`proc`).
    Procedure,
    /// The message ended before the header did (`trunc`).
    Truncated,
    /// An XDR optional-data flag is neither 0 nor 1 (`bool`).
    Flag,
    /// A segment count is larger than the bytes present allow (`count`).
    SegmentCount,
    /// A segment runs past the end of a 64-bit address space (`wrap`).
    SegmentWrap,
    /// A Position is not a multiple of four (`pos_align`).
    PositionAlignment,
    /// The Read chunks are longer than a 32-bit count can express (`sum`).
    ReadListLength,
    /// RDMA_MSG without a Payload, or with one that is shorter than an XID and a message type
    /// (`nopayload`, `shortpayload`).
    ShortPayload,
    /// The XIDs of the transport header and of the RPC header differ (`xid`).
    XidMismatch,
    /// The RPC message type is neither CALL nor REPLY.
    MessageType,
    /// RDMA_MSG with a Position Zero Read chunk: two different Payloads (`pz_in_msg`).
    PositionZeroInMsg,
    /// A Read chunk in place of the XID or the message type, by which messages are identified.
    PositionInRpcHeader,
    /// RDMA_NOMSG with three empty lists (`nochunks`).
    NoChunks,
    /// Bytes after the header of an RDMA_NOMSG message (`trailing`).
    Trailing,
    /// An RDMA_ERROR with an undefined error code (`errcode`).
    ErrorCode,
    /// An RDMA_OPTIONAL whose option this endpoint does not support (`option`).
    UnknownOption,
}

impl HeaderError {
    /// Offset of the offending word, in bytes from the start of the message, if decoding has
    /// stopped at byte `end`.
    pub(crate) const fn position(self, end: usize) -> usize {
        match self {
            Self::Version => 4,
            Self::Procedure => 12,
            // It concerns the whole header.
            Self::PositionZeroInMsg | Self::NoChunks | Self::UnknownOption => FIXED_LEN,
            // The word was decoded, and then checked.
            Self::Flag
            | Self::SegmentCount
            | Self::PositionAlignment
            | Self::PositionInRpcHeader
            | Self::ErrorCode => end.saturating_sub(4),
            // An offset has two words.
            Self::SegmentWrap => end.saturating_sub(8),
            // The second word of the Payload, at which the decoder stops.
            Self::MessageType => end.saturating_add(4),
            Self::Short
            | Self::Truncated
            | Self::ReadListLength
            | Self::ShortPayload
            | Self::XidMismatch
            | Self::Trailing => end,
        }
    }
}
