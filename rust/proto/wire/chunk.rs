// SPDX-License-Identifier: GPL-2.0

//! Segments, the Read list, the Write list and the Reply chunk (RFC 8166 sections 3.4 and 4.3).
//!
//! A decoded list borrows the bytes of the message. They were checked completely when the list was
//! created, so walking it cannot fail, and may be repeated.

use crate::proto::wire::malformed::{HeaderError, Malformed};
use crate::proto::wire::xdr::{NoSpace, Reader, Writer};

/// Bytes of a plain segment on the wire.
pub(crate) const SEGMENT_LEN: usize = 16;

/// The lowest Position of a chunk that is not the whole message. Below it are the XID and the
/// message type, which identify the message and are never in a chunk.
pub(crate) const MIN_POSITION: u32 = 8;

/// Registered memory that the responder may reach (RFC 8166 section 3.4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    /// The steering tag of the registration (R_key, STag).
    pub(crate) handle: u32,
    /// Length in bytes.
    pub(crate) length: u32,
    /// Address or offset of the first byte, as the registration gives it.
    pub(crate) offset: u64,
}

impl Segment {
    /// Takes one segment.
    ///
    /// # Errors
    ///
    /// [`HeaderError::Truncated`] if it is not all there, [`HeaderError::SegmentWrap`] if its last
    /// byte lies beyond the 64-bit address space.
    fn take(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let segment = Self::take_unchecked(reader)?;
        let last = u64::from(segment.length.saturating_sub(1));
        if segment.offset.checked_add(last).is_none() {
            let at = reader.position().saturating_sub(size_of::<u64>());
            return Err(Malformed::new(HeaderError::SegmentWrap, at));
        }
        Ok(segment)
    }

    /// As [`Self::take`], for a segment that was checked before.
    fn take_unchecked(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let [handle, length, high, low] = reader.take_four()?;
        Ok(Self {
            handle,
            length,
            offset: (u64::from(high) << 32) | u64::from(low),
        })
    }

    /// Appends the segment.
    pub(super) fn put(&self, writer: &mut Writer<'_>) -> Result<(), NoSpace> {
        let [a, b, c, d, e, f, g, h] = self.offset.to_be_bytes();
        let high = u32::from_be_bytes([a, b, c, d]);
        let low = u32::from_be_bytes([e, f, g, h]);
        writer.put_four([self.handle, self.length, high, low])
    }
}

/// A segment of a Read chunk (RFC 8166 section 3.4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReadSegment {
    /// Where the chunk starts in the unreduced Payload stream, in bytes, a multiple of four.
    pub(crate) position: u32,
    /// The memory.
    pub(crate) segment: Segment,
}

impl ReadSegment {
    /// Takes one Read segment, without the flag word before it.
    ///
    /// # Errors
    ///
    /// [`HeaderError::PositionAlignment`], [`HeaderError::PositionInRpcHeader`], and those of
    /// [`Segment::take`].
    fn take(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let at = reader.position();
        let position = reader.take_u32()?;
        if position & 3 != 0 {
            return Err(Malformed::new(HeaderError::PositionAlignment, at));
        }
        if (1..MIN_POSITION).contains(&position) {
            return Err(Malformed::new(HeaderError::PositionInRpcHeader, at));
        }
        Ok(Self {
            position,
            segment: Segment::take(reader)?,
        })
    }

    /// Takes the flag word and the Read segment after it, of a list that was checked before; `None`
    /// at its end.
    fn take_next(reader: &mut Reader<'_>) -> Option<Self> {
        if !reader.take_flag().ok()? {
            return None;
        }
        Some(Self {
            position: reader.take_u32().ok()?,
            segment: Segment::take_unchecked(reader).ok()?,
        })
    }
}

/// The sum of the lengths of `segments`, in bytes.
fn total_length(segments: impl Iterator<Item = Segment>) -> u64 {
    segments.fold(0, |sum, segment| {
        u64::saturating_add(sum, u64::from(segment.length))
    })
}

/// A received Read list (RFC 8166 section 4.3.1).
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadList<'a> {
    entries: Reader<'a>,
    /// Whether no Position is lower than the previous one.
    is_ordered: bool,
    /// The lowest and the highest Position.
    lowest: u32,
    highest: u32,
    count: u32,
    length: u64,
}

/// The most segments of a Read list whose Positions are out of order; no known requester sends such
/// lists. The time to sort them grows with the square of their number.
pub(crate) const MAX_UNORDERED: u32 = 32;

impl<'a> ReadList<'a> {
    /// The empty list whose terminating word is next in `entries`, and is not looked at again.
    pub(crate) const fn empty(entries: Reader<'a>) -> Self {
        Self::begin(entries.cut())
    }

    /// The list that begins next in `entries`, with no segments added yet.
    const fn begin(entries: Reader<'a>) -> Self {
        Self {
            entries,
            is_ordered: true,
            lowest: u32::MAX,
            highest: 0,
            count: 0,
            length: 0,
        }
    }

    /// Takes a Read list with its terminating word.
    ///
    /// # Errors
    ///
    /// [`HeaderError::Flag`], [`HeaderError::PositionOrder`] if more than [`MAX_UNORDERED`]
    /// segments are not in the order of their Positions, and those of [`ReadSegment::take`].
    fn take(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        let mut list = Self::begin(*reader);
        while reader.take_flag()? {
            let at = reader.position();
            list.add(ReadSegment::take(reader)?);
            if !list.is_ordered && list.count > MAX_UNORDERED {
                return Err(Malformed::new(HeaderError::PositionOrder, at));
            }
        }
        Ok(list)
    }

    /// Takes note of the next segment.
    #[inline(always)]
    fn add(&mut self, ReadSegment { position, segment }: ReadSegment) {
        // As long as it is in order, the last one is the highest.
        self.is_ordered &= position >= self.highest;
        self.lowest = self.lowest.min(position);
        self.highest = self.highest.max(position);
        self.count = self.count.saturating_add(1);
        self.length = self.length.saturating_add(u64::from(segment.length));
    }

    /// Whether the list has no segment.
    pub(crate) const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether all segments are one chunk, at least one.
    pub(crate) const fn is_one_chunk(&self) -> bool {
        self.lowest == self.highest
    }

    /// Whether there is a Position Zero chunk.
    pub(crate) const fn has_position_zero(&self) -> bool {
        self.lowest == 0
    }

    /// The number of segments.
    pub(crate) const fn count(&self) -> u32 {
        self.count
    }

    /// The sum of the lengths of all segments, in bytes.
    pub(crate) const fn length(&self) -> u64 {
        self.length
    }

    /// The segments, in the order of the list.
    pub(crate) fn segments(&self) -> impl Iterator<Item = ReadSegment> + Clone + 'a {
        let mut entries = self.entries;
        core::iter::from_fn(move || ReadSegment::take_next(&mut entries))
    }

    /// The chunks by ascending Position.
    ///
    /// Segments of one Position need not be adjacent in the list. An ordered list is walked once;
    /// any other list, which is short, is walked for each chunk.
    pub(crate) const fn chunks(&self) -> ReadChunks<'a> {
        ReadChunks {
            list: *self,
            ahead: self.entries,
            last: None,
        }
    }

    /// Length in bytes of the chunk at `position`, 0 if there is none.
    pub(crate) fn length_at(&self, position: u32) -> u64 {
        let chunk = self.segments().filter(|entry| entry.position == position);
        total_length(chunk.map(|entry| entry.segment))
    }

    /// Whether a chunk is longer than the 32-bit count that XDR has for it.
    fn has_oversized_chunk(&self) -> bool {
        let limit = u64::from(u32::MAX);
        // The sum of any legitimate list is in range.
        self.length > limit && self.chunks().any(|chunk| chunk.length > limit)
    }
}

/// A Read chunk: all segments of a Read list that have the same Position (RFC 8166 section 3.4.5).
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadChunk<'a> {
    /// Where it starts in the unreduced Payload stream, in bytes.
    pub(crate) position: u32,
    /// The sum of the lengths of its segments, in bytes.
    pub(crate) length: u64,
    /// The list from its first segment on.
    entries: Reader<'a>,
    is_ordered: bool,
}

impl<'a> ReadChunk<'a> {
    /// The segments, in the order of the list.
    pub(crate) const fn segments(&self) -> ReadChunkSegments<'a> {
        ReadChunkSegments {
            entries: self.entries,
            position: self.position,
            is_ordered: self.is_ordered,
        }
    }
}

/// The segments of a [`ReadChunk`].
#[derive(Clone, Debug)]
pub(crate) struct ReadChunkSegments<'a> {
    entries: Reader<'a>,
    position: u32,
    is_ordered: bool,
}

impl Iterator for ReadChunkSegments<'_> {
    type Item = Segment;

    fn next(&mut self) -> Option<Segment> {
        while let Some(entry) = ReadSegment::take_next(&mut self.entries) {
            if entry.position == self.position {
                return Some(entry.segment);
            }
            if self.is_ordered {
                self.entries = Reader::new(&[]);
            }
        }
        None
    }
}

/// The chunks of a [`ReadList`].
#[derive(Clone, Debug)]
pub(crate) struct ReadChunks<'a> {
    list: ReadList<'a>,
    /// For an ordered list, the part that was not visited yet.
    ahead: Reader<'a>,
    /// For any other list, the Position of the last chunk.
    last: Option<u32>,
}

impl<'a> Iterator for ReadChunks<'a> {
    type Item = ReadChunk<'a>;

    fn next(&mut self) -> Option<ReadChunk<'a>> {
        let list = &self.list;
        let is_ordered = list.is_ordered;
        if is_ordered {
            let entries = self.ahead;
            let ReadSegment { position, segment } = ReadSegment::take_next(&mut self.ahead)?;
            if list.is_one_chunk() {
                self.ahead = Reader::new(&[]);
                return Some(ReadChunk {
                    position,
                    length: list.length,
                    entries,
                    is_ordered,
                });
            }
            let mut length = u64::from(segment.length);
            let mut rest = self.ahead;
            while let Some(entry) = ReadSegment::take_next(&mut rest) {
                if entry.position != position {
                    break;
                }
                length = length.saturating_add(u64::from(entry.segment.length));
                self.ahead = rest;
            }
            return Some(ReadChunk {
                position,
                length,
                entries,
                is_ordered,
            });
        }
        let last = self.last;
        let position = list
            .segments()
            .map(|entry| entry.position)
            .filter(|&position| last.is_none_or(|last| position > last))
            .min()?;
        self.last = Some(position);
        Some(ReadChunk {
            position,
            length: list.length_at(position),
            entries: list.entries,
            is_ordered,
        })
    }
}

/// A received Write chunk or Reply chunk (RFC 8166 section 3.4.6).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chunk<'a> {
    segments: Reader<'a>,
}

impl<'a> Chunk<'a> {
    /// Takes a counted array of segments.
    ///
    /// # Errors
    ///
    /// [`HeaderError::SegmentCount`] if the array runs past the end of the message, and those of
    /// [`Segment::take`].
    fn take(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        let chunk = Self::take_unchecked(reader)?;
        let mut unchecked = chunk.segments;
        while !unchecked.rest().is_empty() {
            Segment::take(&mut unchecked)?;
        }
        Ok(chunk)
    }

    /// As [`Self::take`], for an array whose segments were checked before, or will be.
    fn take_unchecked(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        let start = *reader;
        let segments = usize::try_from(reader.take_u32()?)
            .ok()
            .and_then(|count| count.checked_mul(SEGMENT_LEN))
            .and_then(|bytes| reader.sub(bytes).ok())
            .ok_or_else(|| Malformed::new(HeaderError::SegmentCount, start.position()))?;
        Ok(Self { segments })
    }

    /// The number of segments.
    pub(crate) fn count(&self) -> u32 {
        // The count was a word of the message.
        u32::try_from(self.segments.rest().len() / SEGMENT_LEN).unwrap_or(u32::MAX)
    }

    /// The sum of the lengths of the segments, in bytes.
    pub(crate) fn length(&self) -> u64 {
        total_length(self.segments())
    }

    /// The segments, in array order.
    pub(crate) const fn segments(&self) -> Segments<'a> {
        Segments(self.segments)
    }
}

/// The segments of a [`Chunk`].
#[derive(Clone, Debug)]
pub(crate) struct Segments<'a>(Reader<'a>);

impl Iterator for Segments<'_> {
    type Item = Segment;

    #[inline]
    fn next(&mut self) -> Option<Segment> {
        Segment::take_unchecked(&mut self.0).ok()
    }
}

/// A received Write list (RFC 8166 section 4.3.2).
#[derive(Clone, Copy, Debug)]
pub(crate) struct WriteList<'a> {
    entries: Reader<'a>,
}

impl<'a> WriteList<'a> {
    /// The empty list whose terminating word is next in `entries`, and is not looked at again.
    const fn empty(entries: Reader<'a>) -> Self {
        Self {
            entries: entries.cut(),
        }
    }

    /// Takes a Write list with its terminating word.
    ///
    /// # Errors
    ///
    /// [`HeaderError::Flag`] and those of [`Chunk::take`].
    fn take(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        let entries = *reader;
        while reader.take_flag()? {
            Chunk::take(reader)?;
        }
        Ok(Self { entries })
    }

    /// Where the list starts, in bytes from the start of the message.
    pub(crate) const fn position(&self) -> usize {
        self.entries.position()
    }

    /// Whether the list has no chunk.
    pub(crate) fn is_empty(&self) -> bool {
        let mut entries = self.entries;
        entries.take_flag() != Ok(true)
    }

    /// The chunks, in the order of the list.
    pub(crate) const fn chunks(&self) -> WriteChunks<'a> {
        WriteChunks(self.entries)
    }
}

/// The chunks of a [`WriteList`].
#[derive(Clone, Debug)]
pub(crate) struct WriteChunks<'a>(Reader<'a>);

impl<'a> Iterator for WriteChunks<'a> {
    type Item = Chunk<'a>;

    #[inline]
    fn next(&mut self) -> Option<Chunk<'a>> {
        if self.0.take_flag().ok()? {
            Chunk::take_unchecked(&mut self.0).ok()
        } else {
            None
        }
    }
}

/// The three chunk lists of a received header, in wire order (RFC 8166 section 4.3).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lists<'a> {
    /// The Read list.
    pub(crate) reads: ReadList<'a>,
    /// The Write list.
    pub(crate) writes: WriteList<'a>,
    /// The Reply chunk, if there is one.
    pub(crate) reply: Option<Chunk<'a>>,
}

impl<'a> Lists<'a> {
    /// Takes the lists and checks them completely.
    ///
    /// # Errors
    ///
    /// [`HeaderError::ReadChunkLength`] at the end of the header, and those of the lists.
    pub(crate) fn take(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        // Most messages have no chunks: three flags that are 0, one for each empty list.
        match Self::take_none(reader) {
            Some(none) => Ok(none),
            None => Self::take_some(reader),
        }
    }

    /// Takes three lists if all of them are empty, otherwise nothing.
    #[inline(always)]
    pub(crate) fn take_none(reader: &mut Reader<'a>) -> Option<Self> {
        let reads = ReadList::empty(*reader);
        let mut entries = *reader;
        if !reader.take_zeroes::<12>() || !entries.take_zeroes::<4>() {
            return None;
        }
        Some(Self {
            reads,
            writes: WriteList::empty(entries),
            reply: None,
        })
    }

    /// As [`Self::take`], for lists that are not all empty.
    #[inline(always)]
    pub(crate) fn take_some(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        let reads = ReadList::take(reader)?;
        let writes = WriteList::take(reader)?;
        let reply = if reader.take_flag()? {
            Some(Chunk::take(reader)?)
        } else {
            None
        };
        if reads.has_oversized_chunk() {
            let end = reader.position();
            return Err(Malformed::new(HeaderError::ReadChunkLength, end));
        }
        Ok(Self {
            reads,
            writes,
            reply,
        })
    }

    /// Whether all three lists are empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.reads.is_empty() && self.writes.is_empty() && self.reply.is_none()
    }

    /// Where the lists are, for a caller that keeps the message.
    pub(crate) fn index(&self) -> ListIndex {
        let segments = self.reply.map(|chunk| chunk.segments.position());
        ListIndex {
            reads_at: self.reads.entries.position(),
            is_ordered: self.reads.is_ordered,
            lowest: self.reads.lowest,
            highest: self.reads.highest,
            reads_count: self.reads.count,
            reads_length: self.reads.length,
            writes_at: self.writes.entries.position(),
            reply_at: segments.and_then(|at| at.checked_sub(size_of::<u32>())),
            has_results: !self.writes.is_empty() || self.reply.is_some(),
        }
    }
}

/// The offsets of a message's three lists, which are not checked a second time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListIndex {
    reads_at: usize,
    is_ordered: bool,
    lowest: u32,
    highest: u32,
    reads_count: u32,
    reads_length: u64,
    writes_at: usize,
    reply_at: Option<usize>,
    has_results: bool,
}

impl ListIndex {
    /// As [`ReadList::count`] and [`ReadList::length`].
    pub(crate) const fn reads(&self) -> (u32, u64) {
        (self.reads_count, self.reads_length)
    }

    /// Whether there is a Write chunk or a Reply chunk.
    pub(crate) const fn has_results(&self) -> bool {
        self.has_results
    }

    /// The lists of `message`, which is the message that this was made from; `None` if it is
    /// shorter. In another message the lists end where they can no longer be decoded.
    pub(crate) fn lists<'a>(&self, message: &'a [u8]) -> Option<Lists<'a>> {
        let reply = match self.reply_at {
            None => None,
            Some(at) => Some(Chunk::take_unchecked(&mut Reader::at(message, at)?).ok()?),
        };
        Some(Lists {
            reads: ReadList {
                entries: Reader::at(message, self.reads_at)?,
                is_ordered: self.is_ordered,
                lowest: self.lowest,
                highest: self.highest,
                count: self.reads_count,
                length: self.reads_length,
            },
            writes: WriteList {
                entries: Reader::at(message, self.writes_at)?,
            },
            reply,
        })
    }
}
