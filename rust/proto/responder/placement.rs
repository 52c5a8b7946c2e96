// SPDX-License-Identifier: GPL-2.0

//! Where the parts of a Reply go: a responder's choice from what the Call offers
//! (RFC 8166 sections 3.4.6, 3.5 and 4.3.2).
//!
//! The upper layer names each result that may be placed directly while it encodes the Reply, and
//! [`Placement::place`] gives it a Write chunk. When the Reply is complete, [`Placement::finish`]
//! decides about the rest.

use super::budget::MAX_RESULTS;
use super::call::ReceivedCall;
use crate::proto::wire::chunk::Segment;
use crate::proto::wire::header::Procedure;
use core::iter::from_fn;

/// [`MAX_RESULTS`] as the length of an array.
// CAST: A u32 always fits the kernel's usize.
const RESULTS: usize = MAX_RESULTS as usize;

/// The Reply fits neither inline nor into the Reply chunk, or one of its results is larger than its
/// Write chunk. The answer is an RDMA_ERROR with
/// [`ErrorBody::Chunk`](crate::proto::wire::error::ErrorBody::Chunk), before anything is written
/// (RFC 8166 section 4.5.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReplyTooLarge;

/// Bytes of an RPC message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    /// Where they start, in bytes from the start of the message.
    pub(crate) at: u32,
    /// How many they are.
    pub(crate) length: u32,
}

impl Range {
    /// The first byte after them.
    const fn end(&self) -> u32 {
        self.at.saturating_add(self.length)
    }

    /// The first byte after them and their padding.
    const fn padded_end(&self) -> u32 {
        self.end().saturating_add(self.length.wrapping_neg() & 3)
    }
}

/// Which results of one Reply are in which Write chunk, so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placement {
    /// What is in the Write chunk of the same number, in the order of the Reply; no bytes if the
    /// chunk has no segments.
    results: [Range; RESULTS],
    /// Write chunks that had their turn.
    count: usize,
    /// Where the first result ends that is larger than the Write chunk whose turn it was.
    too_large: u32,
}

/// The placement of a Reply that has no results yet.
impl Default for Placement {
    fn default() -> Self {
        Self {
            results: [Range { at: 0, length: 0 }; RESULTS],
            count: 0,
            too_large: Self::NONE,
        }
    }
}

impl Placement {
    /// No result is too large: a Reply has fewer bytes.
    const NONE: u32 = u32::MAX;

    /// What is in each Write chunk that had its turn, up to the last one for which `is_kept` holds.
    fn used(&self, is_kept: impl Fn(&Range) -> bool) -> &[Range] {
        let mut used = self.results.get(..self.count).unwrap_or(&self.results);
        while let [first @ .., last] = used {
            if is_kept(last) {
                break;
            }
            used = first;
        }
        used
    }

    /// Places the result of `length` bytes that starts at byte `at` of the RPC message. Returns the
    /// number of its Write chunk, counted from 0. A result for which there is none stays in the
    /// message, and so does one without bytes, which uses up no chunk.
    ///
    /// Write chunks are used in their order. One without segments takes its turn, and leaves the
    /// result where it is. A result that starts before the end of earlier ones takes their place:
    /// the upper layer has discarded those, and encodes anew from there. For one that is larger
    /// than its chunk, [`Self::finish`] fails unless the upper layer discards it.
    ///
    /// Not to be called for RPCs with integrity or privacy, in which nothing is eligible (RFC 8166
    /// section 8.2.2).
    pub(crate) fn place(&mut self, call: &ReceivedCall<'_>, at: u32, length: u32) -> Option<u32> {
        // It takes the place of earlier ones that are not before it.
        let is_before = |result: &Range| result.at < at && result.end() <= at;
        self.count = self.used(is_before).len();
        if self.too_large > at {
            self.too_large = Self::NONE;
        }
        let chunk = call.lists.writes.chunks().nth(self.count);
        let (Some(chunk), Some(place), true) =
            (chunk, self.results.get_mut(self.count), length > 0)
        else {
            return None;
        };
        let number = u32::try_from(self.count).ok();
        let is_usable = chunk.count() > 0;
        if is_usable && chunk.length() < u64::from(length) {
            self.too_large = self.too_large.min(at.saturating_add(length));
            return None;
        }
        *place = Range {
            at,
            length: if is_usable { length } else { 0 },
        };
        self.count = self.count.saturating_add(1);
        number.filter(|_| is_usable)
    }

    /// Decides how the Reply travels: an RPC message of `length` bytes, with no more than
    /// `threshold` bytes in its Send.
    ///
    /// What is in no Write chunk comes inline if it fits there, or else goes into the Reply chunk.
    /// Results that are not entirely within the message were discarded by the upper layer.
    ///
    /// # Errors
    ///
    /// [`ReplyTooLarge`] if the Reply chunk or a Write chunk is too small, or there is no Reply
    /// chunk where one is needed.
    pub(crate) fn finish(
        &self,
        call: &ReceivedCall<'_>,
        length: u32,
        threshold: u32,
    ) -> Result<ReplyPlan<'_>, ReplyTooLarge> {
        if self.too_large <= length {
            return Err(ReplyTooLarge);
        }
        let mut plan = ReplyPlan {
            header_len: call.reply_header_len().ok_or(ReplyTooLarge)?,
            inline_len: 0,
            reply_chunk_len: 0,
            length,
            results: self.used(|result| result.end() <= length),
        };
        let rest = plan
            .rest()
            .fold(0, |sum, range| u32::saturating_add(sum, range.length));
        let room = threshold
            .checked_sub(plan.header_len)
            .ok_or(ReplyTooLarge)?;
        if rest <= room {
            plan.inline_len = rest;
            return Ok(plan);
        }
        match call.lists.reply {
            Some(chunk) if chunk.length() >= u64::from(rest) => plan.reply_chunk_len = rest,
            _ => return Err(ReplyTooLarge),
        }
        Ok(plan)
    }
}

/// How a Reply travels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReplyPlan<'a> {
    /// Bytes of the transport header, which returns all chunks of the Call.
    pub(crate) header_len: u32,
    /// Bytes that follow the header in the same Send.
    pub(crate) inline_len: u32,
    /// Bytes in the Reply chunk, 0 if it is not used.
    pub(crate) reply_chunk_len: u32,
    length: u32,
    /// What is in each Write chunk that had its turn.
    results: &'a [Range],
}

impl<'a> ReplyPlan<'a> {
    /// The procedure of the Reply.
    pub(crate) const fn procedure(&self) -> Procedure {
        if self.reply_chunk_len > 0 {
            Procedure::Nomsg
        } else {
            Procedure::Msg
        }
    }

    /// What is in each Write chunk that had its turn, without XDR padding: no bytes if it has no
    /// segments.
    pub(crate) fn results(&self) -> impl Iterator<Item = Range> + Clone + 'a {
        self.results.iter().copied()
    }

    /// The parts of the RPC message that are in no Write chunk, without the padding of what is in
    /// one: the bytes that are sent inline, or that go into the Reply chunk.
    pub(crate) fn rest(&self) -> Rest<'a> {
        Rest {
            results: self.results.iter(),
            at: 0,
            length: self.length,
        }
    }

    /// The RDMA Writes of the Reply to `call`, chunk by chunk: where in the RPC message the bytes
    /// start, and the memory that they go to, exactly as long as they are, at least one byte. Each
    /// chunk is filled from its start, and has room, as was checked for the plan.
    // An iterator made of adapters has a type whose name is too long for the kernel's symbols.
    pub(crate) fn rdma_writes<'b>(
        &self,
        call: &ReceivedCall<'b>,
    ) -> impl Iterator<Item = (u32, Segment)> + 'b
    where
        'a: 'b,
    {
        let plan = *self;
        let mut results = call.lists.writes.chunks().zip(self.results);
        let mut reply = call.lists.reply.filter(|_| plan.reply_chunk_len > 0);
        // What is left of the range that is being written, and of the segment that it goes to.
        let (mut range, mut room) = (Range { at: 0, length: 0 }, NO_SEGMENT);
        let (mut ranges, mut segments) = (Rest::one(&range), None);
        from_fn(move || {
            while range.length == 0 {
                if let Some(next) = ranges.next() {
                    range = next;
                    continue;
                }
                let (chunk, next) = match results.next() {
                    Some((chunk, result)) => (chunk, Rest::one(result)),
                    None => (reply.take()?, plan.rest()),
                };
                (ranges, segments, room) = (next, Some(chunk.segments()), NO_SEGMENT);
            }
            while room.length == 0 {
                room = segments.as_mut()?.next()?;
            }
            let length = range.length.min(room.length);
            let write = (range.at, Segment { length, ..room });
            range.at = range.at.saturating_add(length);
            range.length = range.length.saturating_sub(length);
            room.length = room.length.saturating_sub(length);
            // What is left has no byte if the address space ends here.
            room.offset = room.offset.wrapping_add(u64::from(length));
            Some(write)
        })
    }
}

/// A segment that is used up.
const NO_SEGMENT: Segment = Segment {
    handle: 0,
    length: 0,
    offset: 0,
};

/// See [`ReplyPlan::rest`].
#[derive(Clone, Debug)]
pub(crate) struct Rest<'a> {
    results: core::slice::Iter<'a, Range>,
    /// The first byte that was not looked at.
    at: u32,
    /// The length of the RPC message.
    length: u32,
}

impl Rest<'_> {
    /// The bytes of one result.
    fn one(result: &Range) -> Self {
        Self {
            results: [].as_slice().iter(),
            at: result.at,
            length: result.end(),
        }
    }
}

impl Iterator for Rest<'_> {
    type Item = Range;

    fn next(&mut self) -> Option<Range> {
        loop {
            let (end, next) = match self.results.next() {
                Some(result) if result.length == 0 => continue,
                Some(result) => (result.at, result.padded_end()),
                // The message may end without the padding of its last item.
                None if self.at < self.length => (self.length, self.length),
                None => return None,
            };
            let at = core::mem::replace(&mut self.at, next);
            let length = end.saturating_sub(at);
            if length > 0 {
                return Some(Range { at, length });
            }
        }
    }
}
