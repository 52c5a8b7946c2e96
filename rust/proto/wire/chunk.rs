// SPDX-License-Identifier: GPL-2.0

//! Segments, the Read list, the Write list and the Reply chunk (RFC 8166 sections 3.4 and 4.3).
//!
//! A decoded list borrows the bytes of the message. They were checked completely when the list was
//! decoded, so that iterating over it cannot fail, and may be repeated.

use core::iter::from_fn;

use crate::proto::wire::malformed::HeaderError;
use crate::proto::wire::xdr::{NoSpace, Reader, Writer};

/// Bytes of a plain segment on the wire.
const SEGMENT_LEN: usize = 16;

/// Bytes of an entry of a Read list on the wire.
pub(crate) const READ_ENTRY_LEN: u32 = 24;

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
    /// Decodes one segment.
    ///
    /// # Errors
    ///
    /// [`HeaderError::Truncated`] if it is not all there, [`HeaderError::SegmentWrap`] if its last
    /// byte lies beyond the 64-bit address space.
    fn decode(reader: &mut Reader<'_>) -> Result<Self, HeaderError> {
        let [handle, length] = reader.decode_words()?;
        let [high, low] = reader.decode_words()?;
        let offset = (u64::from(high) << 32) | u64::from(low);
        let last = u64::from(length.saturating_sub(1));
        if offset.checked_add(last).is_none() {
            return Err(HeaderError::SegmentWrap);
        }
        Ok(Self {
            handle,
            length,
            offset,
        })
    }

    /// Appends the segment.
    pub(super) fn put(&self, writer: &mut Writer<'_>) -> Result<(), NoSpace> {
        writer.put_words([self.handle, self.length])?;
        writer.put_u64(self.offset)
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
    /// Decodes the next entry of a Read list; `None` at its end.
    ///
    /// # Errors
    ///
    /// [`HeaderError::Flag`], [`HeaderError::PositionAlignment`],
    /// [`HeaderError::PositionInRpcHeader`], and those of [`Segment::decode`].
    fn decode(reader: &mut Reader<'_>) -> Result<Option<Self>, HeaderError> {
        if !reader.decode_flag()? {
            return Ok(None);
        }
        let position = reader.decode_u32()?;
        if position & 3 != 0 {
            return Err(HeaderError::PositionAlignment);
        }
        if (1..MIN_POSITION).contains(&position) {
            return Err(HeaderError::PositionInRpcHeader);
        }
        Ok(Some(Self {
            position,
            segment: Segment::decode(reader)?,
        }))
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
    /// Its bytes, and what follows it.
    entries: &'a [u8],
    count: u32,
    length: u64,
    /// The lowest and the highest Position; the first is greater if the list is empty.
    positions: (u32, u32),
}

impl<'a> ReadList<'a> {
    /// Decodes a Read list with its terminating word.
    ///
    /// # Errors
    ///
    /// Those of [`ReadSegment::decode`].
    fn decode(reader: &mut Reader<'a>) -> Result<Self, HeaderError> {
        let mut list = Self {
            entries: reader.rest(),
            count: 0,
            length: 0,
            positions: (u32::MAX, 0),
        };
        while let Some(entry) = ReadSegment::decode(reader)? {
            list.count = list.count.saturating_add(1);
            list.length = list.length.saturating_add(entry.segment.length.into());
            let (lowest, highest) = list.positions;
            list.positions = (lowest.min(entry.position), highest.max(entry.position));
        }
        Ok(list)
    }

    /// Whether the list has no segment.
    pub(crate) const fn is_empty(&self) -> bool {
        self.count == 0
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
        let mut entries = Reader::new(self.entries);
        from_fn(move || ReadSegment::decode(&mut entries).ok()?)
    }

    /// Whether the list has a Position Zero chunk.
    pub(crate) const fn has_position_zero(&self) -> bool {
        self.positions.0 == 0
    }

    /// The chunks by ascending Position. The list is searched for each but the first: its segments
    /// may be in any order.
    pub(crate) fn chunks(&self) -> impl Iterator<Item = ReadChunk<'a>> + Clone + 'a {
        let list = *self;
        let (lowest, highest) = list.positions;
        let mut next = (lowest <= highest).then_some(lowest);
        from_fn(move || {
            let position = next?;
            let later = |entry: &ReadSegment| entry.position > position;
            next = if position < highest {
                let positions = list.segments().filter(later).map(|entry| entry.position);
                positions.min()
            } else {
                None
            };
            Some(list.chunk(position))
        })
    }

    /// The chunk at `position`, which has no segments if there is none.
    pub(crate) const fn chunk(&self, position: u32) -> ReadChunk<'a> {
        ReadChunk {
            position,
            list: *self,
        }
    }
}

/// A Read chunk: all segments of a Read list that have the same Position (RFC 8166 section 3.4.5).
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadChunk<'a> {
    /// Where it starts in the unreduced Payload stream, in bytes.
    pub(crate) position: u32,
    list: ReadList<'a>,
}

impl<'a> ReadChunk<'a> {
    /// The sum of the lengths of its segments, in bytes.
    pub(crate) fn length(&self) -> u64 {
        if self.list.positions == (self.position, self.position) {
            self.list.length
        } else {
            total_length(self.segments())
        }
    }

    /// The segments, in the order of the list.
    pub(crate) fn segments(&self) -> impl Iterator<Item = Segment> + Clone + 'a {
        let (position, mut entries) = (self.position, self.list.segments());
        from_fn(move || {
            let entry = entries.find(|entry| entry.position == position)?;
            Some(entry.segment)
        })
    }
}

/// A received Write chunk or Reply chunk (RFC 8166 section 3.4.6).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chunk<'a> {
    segments: &'a [u8],
}

impl<'a> Chunk<'a> {
    /// Decodes a counted array of segments.
    ///
    /// # Errors
    ///
    /// [`HeaderError::SegmentCount`] if the array runs past the end of the message, and those of
    /// [`Segment::decode`].
    fn decode(reader: &mut Reader<'a>) -> Result<Self, HeaderError> {
        let count = reader.decode_u32()?;
        let segments = usize::try_from(count)
            .ok()
            .and_then(|count| count.checked_mul(SEGMENT_LEN))
            .and_then(|bytes| reader.rest().get(..bytes))
            .ok_or(HeaderError::SegmentCount)?;
        for _ in 0..count {
            Segment::decode(reader)?;
        }
        Ok(Self { segments })
    }

    /// The number of segments.
    pub(crate) fn count(&self) -> u32 {
        // The count was a word of the message.
        u32::try_from(self.segments.len() / SEGMENT_LEN).unwrap_or(u32::MAX)
    }

    /// The sum of the lengths of the segments, in bytes.
    pub(crate) fn length(&self) -> u64 {
        total_length(self.segments())
    }

    /// The segments, in array order.
    pub(crate) fn segments(&self) -> impl Iterator<Item = Segment> + Clone + 'a {
        let mut segments = Reader::new(self.segments);
        from_fn(move || Segment::decode(&mut segments).ok())
    }
}

/// A received Write list (RFC 8166 section 4.3.2).
#[derive(Clone, Copy, Debug)]
pub(crate) struct WriteList<'a> {
    /// Its bytes, and what follows it.
    entries: &'a [u8],
    count: u32,
}

impl<'a> WriteList<'a> {
    /// Decodes a Write list with its terminating word.
    ///
    /// # Errors
    ///
    /// [`HeaderError::Flag`] and those of [`Chunk::decode`].
    fn decode(reader: &mut Reader<'a>) -> Result<Self, HeaderError> {
        let (entries, mut count) = (reader.rest(), 0u32);
        while decode_optional_chunk(reader)?.is_some() {
            count = count.saturating_add(1);
        }
        Ok(Self { entries, count })
    }

    /// The number of chunks.
    pub(crate) const fn count(&self) -> u32 {
        self.count
    }

    /// The chunks, in the order of the list.
    pub(crate) fn chunks(&self) -> impl Iterator<Item = Chunk<'a>> + Clone + 'a {
        let mut entries = Reader::new(self.entries);
        from_fn(move || decode_optional_chunk(&mut entries).ok()?)
    }
}

/// Decodes the next entry of a Write list, or a Reply chunk: a chunk, if the flag before it is set.
fn decode_optional_chunk<'a>(reader: &mut Reader<'a>) -> Result<Option<Chunk<'a>>, HeaderError> {
    if reader.decode_flag()? {
        return Chunk::decode(reader).map(Some);
    }
    Ok(None)
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
    /// Decodes the lists and checks them completely.
    ///
    /// # Errors
    ///
    /// [`HeaderError::ReadListLength`] at the end of the header, and those of the lists.
    pub(crate) fn decode(reader: &mut Reader<'a>) -> Result<Self, HeaderError> {
        let lists = Self {
            reads: ReadList::decode(reader)?,
            writes: WriteList::decode(reader)?,
            reply: decode_optional_chunk(reader)?,
        };
        if lists.reads.length() > u64::from(u32::MAX) {
            return Err(HeaderError::ReadListLength);
        }
        Ok(lists)
    }

    /// Whether all three lists are empty.
    pub(crate) const fn is_empty(&self) -> bool {
        self.reads.is_empty() && !self.offers_memory()
    }

    /// Whether there is memory for a Reply: a Write chunk, or the Reply chunk.
    pub(crate) const fn offers_memory(&self) -> bool {
        self.writes.count != 0 || self.reply.is_some()
    }

    /// The Write chunks and the Reply chunk.
    pub(crate) fn chunks(&self) -> impl Iterator<Item = Chunk<'a>> + Clone + 'a {
        self.writes.chunks().chain(self.reply)
    }

    /// All segments of the Write chunks and the Reply chunk.
    pub(crate) fn segments(&self) -> impl Iterator<Item = Segment> + Clone + 'a {
        self.chunks().flat_map(|chunk| chunk.segments())
    }
}
