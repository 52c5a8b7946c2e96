// SPDX-License-Identifier: GPL-2.0

//! What Calls may ask of a responder (RFC 8166 section 4.5.2).
//!
//! The specification limits only the Send. A responder that takes every Call lets its peer choose
//! how much memory, how many work requests and how much time one message costs.

use crate::proto::wire::chunk::Lists;

/// The most results of one Reply that are placed directly, and so the most Write chunks that are
/// of use.
pub(crate) const MAX_RESULTS: u32 = 8;

/// The most segments in one list of a Call: twice as many as Linux requesters put into one.
pub(crate) const MAX_SEGMENTS: u32 = 32;

/// The most Read chunks in a Call.
pub(crate) const MAX_READ_CHUNKS: u32 = 16;

/// The most that the chunk lists of one Call may hold. All numbers may be 0.
///
/// A segment without bytes counts like any other. Segments may overlap unnoticed: the
/// memory is the requester's, and each segment costs this end what it is counted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallBudget {
    /// Segments of the Read list.
    pub(crate) read_segments: u32,
    /// Read chunks, which are the different Positions.
    pub(crate) read_chunks: u32,
    /// Bytes of all Read chunks together, and of what is put into pages with them: what follows a
    /// Read chunk, or all of a message that is put together of several.
    pub(crate) read_bytes: u32,
    /// Write chunks; never more than [`MAX_RESULTS`].
    pub(crate) write_chunks: u32,
    /// Segments of one Write chunk.
    pub(crate) write_segments: u32,
    /// Segments of the Reply chunk.
    pub(crate) reply_segments: u32,
}

/// Which limit of the budget a Call exceeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Excess {
    /// [`CallBudget::read_segments`].
    ReadSegments,
    /// [`CallBudget::read_chunks`].
    ReadChunks,
    /// [`CallBudget::read_bytes`], or a stream of more bytes than 32 bits can count.
    ReadBytes,
    /// [`CallBudget::write_chunks`].
    WriteChunks,
    /// [`CallBudget::write_segments`].
    WriteSegments,
    /// [`CallBudget::reply_segments`].
    ReplySegments,
}

impl CallBudget {
    /// What one Call may ask for, if RPC messages have up to `max_message` bytes.
    pub(crate) const fn new(max_message: u32) -> Self {
        Self {
            read_segments: MAX_SEGMENTS,
            read_chunks: MAX_READ_CHUNKS,
            read_bytes: max_message,
            write_chunks: MAX_RESULTS,
            write_segments: MAX_SEGMENTS,
            reply_segments: MAX_SEGMENTS,
        }
    }

    /// Compares all lists with the budget, except the number of Read chunks, which takes a walk.
    ///
    /// # Errors
    ///
    /// The first [`Excess`].
    pub(super) fn check(&self, lists: &Lists<'_>) -> Result<(), Excess> {
        if lists.reads.count() > self.read_segments {
            return Err(Excess::ReadSegments);
        }
        if lists.reads.length() > u64::from(self.read_bytes) {
            return Err(Excess::ReadBytes);
        }
        if lists.writes.count() > self.write_chunks.min(MAX_RESULTS) {
            return Err(Excess::WriteChunks);
        }
        let mut chunks = lists.writes.chunks();
        if chunks.any(|chunk| chunk.count() > self.write_segments) {
            return Err(Excess::WriteSegments);
        }
        match lists.reply {
            Some(chunk) if chunk.count() > self.reply_segments => Err(Excess::ReplySegments),
            _ => Ok(()),
        }
    }
}
