// SPDX-License-Identifier: GPL-2.0

//! The RPC message of a Call as a responder puts it together again (RFC 8166 section 3.4.5).

use super::budget::Excess;
use super::call::ReceivedCall;
use super::decode::CallError;
use crate::proto::wire::chunk::{ReadChunk, ReadChunkSegments, ReadChunks, ReadList, Segment};

/// Bytes by which XDR rounds up an item of `length` bytes.
const fn round_up(length: u64) -> u64 {
    length.wrapping_neg() & 3
}

/// Bytes of an item of `length` bytes with its round-up.
const fn padded(length: u64) -> u64 {
    length.saturating_add(round_up(length))
}

/// What a message is refused for whose length is not in the range of 32 bits.
const TOO_LONG: CallError = CallError::Budget(Excess::ReadBytes);

/// Which bytes of the RPC message stay in the Receive buffer, and which are in pages.
///
/// The message is the first `head` bytes of the inline part, the pages, and the rest of the inline
/// part. If there is one Read chunk beside an inline part, the pages hold what it has, so that
/// nothing is copied. If there are more, or one at Position Zero, they hold the whole message, what
/// is inline copied into its place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StreamLayout {
    /// Bytes before the pages, the first ones of the inline part.
    pub(crate) head: u32,
    /// Bytes in pages, round-up included; 0 if nothing is to be read.
    pub(crate) pages: u32,
    /// Bytes behind the pages, which follow the head in the inline part.
    pub(crate) tail: u32,
}

impl StreamLayout {
    /// The layout of a Call without Read chunks.
    ///
    /// # Errors
    ///
    /// [`CallError::Budget`] if the message is too long for a 32-bit length.
    pub(super) fn inline(payload: &[u8]) -> Result<Self, CallError> {
        let head = u32::try_from(payload.len());
        Ok(Self {
            head: head.map_err(|_| TOO_LONG)?,
            ..Self::default()
        })
    }

    /// The layout of a Call with this inline part and Read list.
    ///
    /// # Errors
    ///
    /// [`CallError::PositionRange`], or [`CallError::Budget`] if there are more than `most` Read
    /// chunks or the message is too long for a 32-bit length.
    pub(super) fn new(
        payload: Option<&[u8]>,
        reads: &ReadList<'_>,
        most: u32,
    ) -> Result<Self, CallError> {
        let in_range = |bytes: u64| u32::try_from(bytes).map_err(|_| TOO_LONG);
        let inline = Self::inline(payload.unwrap_or_default())?.head;
        let mut base = u64::from(inline);
        let (mut offset, mut count) = (0u64, 0u32);
        // Of the last chunk that has bytes: where it is, and how long with its round-up.
        let (mut position, mut length) = (0, 0);
        let mut with_bytes = 0u32;
        for chunk in reads.chunks() {
            count = count.saturating_add(1);
            if count > most {
                return Err(CallError::Budget(Excess::ReadChunks));
            }
            if chunk.length > 0 {
                with_bytes = with_bytes.saturating_add(1);
                position = chunk.position;
                length = padded(chunk.length);
            }
            if chunk.position == 0 {
                base = chunk.length;
                continue;
            }
            let gap = u64::from(chunk.position).checked_sub(offset);
            let rest = gap.and_then(|gap| base.checked_sub(gap));
            base = rest.ok_or(CallError::PositionRange)?;
            offset = u64::from(chunk.position).saturating_add(padded(chunk.length));
        }
        let total = in_range(offset.saturating_add(base))?;
        Ok(match (payload, with_bytes) {
            (Some(_), 0) => Self {
                head: total,
                ..Self::default()
            },
            (Some(_), 1) => Self {
                head: position,
                pages: in_range(length)?,
                tail: inline.saturating_sub(position),
            },
            _ => Self {
                pages: total,
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

/// Where a stretch of the RPC message comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The inline part, from this byte of it on.
    Inline(u32),
    /// The requester's memory, by RDMA Read.
    Read {
        /// The steering tag.
        handle: u32,
        /// Address or offset of the first byte.
        offset: u64,
    },
    /// Zero bytes that the responder supplies, as the chunk before goes without its XDR round-up
    /// (RFC 8166 section 3.4.5.1).
    RoundUp,
}

/// A stretch of the RPC message, which is never empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StreamPiece {
    /// Where it is in the message, in bytes.
    pub(crate) at: u32,
    /// Bytes.
    pub(crate) length: u32,
    /// Where it comes from.
    pub(crate) source: Source,
}

/// What is in no Read chunk of its own.
#[derive(Clone, Debug)]
enum Base<'a> {
    /// The inline part, of which so many bytes were taken.
    Inline(u32),
    /// The Position Zero chunk, and what is left of the segment that was begun.
    PositionZero(ReadChunkSegments<'a>, Option<Segment>),
}

impl Base<'_> {
    /// Takes the next bytes, at least one and no more than `most`, which is not 0.
    fn take(&mut self, most: u32) -> Option<(u32, Source)> {
        match self {
            Self::Inline(taken) => {
                let from = *taken;
                *taken = from.saturating_add(most);
                Some((most, Source::Inline(from)))
            }
            Self::PositionZero(segments, begun) => {
                let mut more = begun.take().into_iter().chain(segments);
                let segment = more.find(|segment| segment.length != 0)?;
                let length = segment.length.min(most);
                *begun = Some(Segment {
                    length: segment.length.saturating_sub(length),
                    // What is left has no byte if the address space ends here.
                    offset: segment.offset.wrapping_add(u64::from(length)),
                    ..segment
                });
                let Segment { handle, offset, .. } = segment;
                Some((length, Source::Read { handle, offset }))
            }
        }
    }
}

/// The pieces of an RPC message, from its first byte on.
#[derive(Clone, Debug)]
pub(crate) struct Stream<'a> {
    /// The Read chunks that come later, but the one at Position Zero.
    chunks: ReadChunks<'a>,
    /// The first of them.
    next: Option<ReadChunk<'a>>,
    /// What is left of the chunk that was begun.
    segments: Option<ReadChunkSegments<'a>>,
    /// What rounds it up.
    padding: u32,
    base: Base<'a>,
    /// Bytes of the message that come later.
    left: u32,
    /// Bytes of the message before this place.
    at: u32,
}

impl<'a> ReceivedCall<'a> {
    /// The pieces of the RPC message, in its order.
    ///
    /// Those that are not inline lie in the pages of the layout, at their place less the head. The
    /// inline ones are to be copied there if the layout has no head and has pages.
    pub(crate) fn stream(&self) -> Stream<'a> {
        let mut chunks = self.lists.reads.chunks();
        let mut next = chunks.next();
        let mut base = Base::Inline(0);
        if let (None, Some(zero)) = (self.payload, next) {
            base = Base::PositionZero(zero.segments(), None);
            next = chunks.next();
        }
        Stream {
            chunks,
            next,
            segments: None,
            padding: 0,
            base,
            left: self.layout.total(),
            at: 0,
        }
    }
}

impl ReceivedCall<'_> {
    /// Whether the word before each Read chunk can be the byte count of what the chunk holds, as
    /// in all Upper Layer Bindings whose items are counted arrays (RFC 8267 has no others). If
    /// not, the Call is answered with GARBAGE_ARGS (RFC 8166 sections 3.4.4 and 4.5.2).
    ///
    /// Words that come in a Position Zero chunk are not looked at.
    pub(crate) fn has_counts(&self) -> bool {
        let Some(payload) = self.payload else {
            return true;
        };
        // Bytes of the message that are not inline, and inline ones before the last chunk.
        let (mut reduced, mut last) = (0u64, 0);
        self.lists.reads.chunks().all(|chunk| {
            let inline = u64::from(chunk.position).checked_sub(reduced);
            let end = inline.and_then(|inline| usize::try_from(inline).ok());
            let between = end.and_then(|end| payload.get(last..end));
            reduced = reduced.saturating_add(padded(chunk.length));
            last = end.unwrap_or(payload.len());
            let count = between.and_then(<[u8]>::last_chunk);
            count.is_some_and(|&count| is_data_of(chunk.length, u32::from_be_bytes(count)))
        })
    }
}

impl Stream<'_> {
    /// The next piece, which has `length` bytes.
    fn piece(&mut self, length: u32, source: Source) -> Option<StreamPiece> {
        let at = self.at;
        self.left = self.left.checked_sub(length)?;
        self.at = at.checked_add(length)?;
        Some(StreamPiece { at, length, source })
    }
}

impl Iterator for Stream<'_> {
    type Item = StreamPiece;

    fn next(&mut self) -> Option<StreamPiece> {
        loop {
            if let Some(segments) = &mut self.segments {
                if let Some(segment) = segments.find(|segment| segment.length != 0) {
                    let Segment { handle, offset, .. } = segment;
                    return self.piece(segment.length, Source::Read { handle, offset });
                }
                self.segments = None;
                let padding = core::mem::take(&mut self.padding);
                if padding > 0 {
                    return self.piece(padding, Source::RoundUp);
                }
            }
            let gap = match &self.next {
                Some(chunk) => chunk.position.checked_sub(self.at)?,
                None => self.left,
            };
            if gap > 0 {
                let (length, source) = self.base.take(gap)?;
                return self.piece(length, source);
            }
            let chunk = self.next.take()?;
            self.next = self.chunks.next();
            self.segments = Some(chunk.segments());
            self.padding = u32::try_from(round_up(chunk.length)).ok()?;
        }
    }
}

/// Whether a Read chunk of `length` bytes can be the data of a counted array of `count` bytes:
/// with its XDR round-up or without.
fn is_data_of(length: u64, count: u32) -> bool {
    let count = u64::from(count);
    length == count || length == padded(count)
}

#[cfg(any(test, rpcrdma_kunit))]
#[cfg_attr(rpcrdma_kunit, kernel::macros::kunit_tests(rpcrdma_proto_stream))]
mod tests {
    use super::*;
    use crate::proto::requester::encode::encode_call;
    use crate::proto::responder::budget::CallBudget;
    use crate::proto::responder::decode::{decode_call, ReceivedByResponder};
    use crate::proto::wire::chunk::{ReadSegment, Segment};
    use crate::proto::wire::header::{Credits, FixedHeader, Procedure, Versions, Xid, VERSION_ONE};

    const BUDGET: CallBudget = CallBudget {
        read_segments: 5,
        read_chunks: 4,
        read_bytes: u32::MAX,
        write_chunks: 0,
        write_segments: 0,
        reply_segments: 0,
    };

    /// A Call with Read segments of these Positions and lengths, and with these inline bytes or else
    /// a Position Zero chunk. The handle of a segment is its number, its offset ten times as much.
    struct Sent {
        bytes: [u8; 256],
        length: usize,
    }

    impl Sent {
        fn new(reads: &[(u32, u32)], inline: Option<&[u8]>) -> Option<Self> {
            let mut bytes = [0; 256];
            let fixed = FixedHeader {
                xid: Xid(0),
                version: VERSION_ONE,
                credits: Credits::new(1),
                procedure: match inline {
                    Some(_) => Procedure::Msg,
                    None => Procedure::Nomsg,
                },
            };
            let entries = reads.iter().zip(0..);
            let entries = entries.map(|(&(position, length), handle)| ReadSegment {
                position,
                segment: Segment {
                    handle,
                    length,
                    offset: u64::from(handle).checked_mul(10).unwrap_or(0),
                },
            });
            let none = core::iter::empty::<Segment>();
            let header = encode_call(&mut bytes, &fixed, entries, [none.clone()], none).ok()?;
            let inline = inline.unwrap_or_default();
            let length = header.checked_add(inline.len())?;
            bytes.get_mut(header..length)?.copy_from_slice(inline);
            Some(Self { bytes, length })
        }

        fn call(&self) -> Option<Result<ReceivedCall<'_>, CallError>> {
            let bytes = self.bytes.get(..self.length)?;
            match decode_call(bytes, Versions::ONE, &BUDGET) {
                Ok(ReceivedByResponder::Call(call)) => Some(Ok(call)),
                Ok(_) => None,
                Err(refused) => Some(Err(refused.why.error)),
            }
        }
    }

    const fn inline(at: u32, length: u32, from: u32) -> StreamPiece {
        let source = Source::Inline(from);
        StreamPiece { at, length, source }
    }

    /// From the start of a segment, or behind its first `skip` bytes.
    fn read(at: u32, length: u32, handle: u32, skip: u64) -> StreamPiece {
        let offset = u64::from(handle)
            .checked_mul(10)
            .and_then(|n| n.checked_add(skip));
        let offset = offset.unwrap_or(0);
        let source = Source::Read { handle, offset };
        StreamPiece { at, length, source }
    }

    const fn zeroes(at: u32, length: u32) -> StreamPiece {
        let source = Source::RoundUp;
        StreamPiece { at, length, source }
    }

    const fn layout(head: u32, pages: u32, tail: u32) -> StreamLayout {
        StreamLayout { head, pages, tail }
    }

    /// Checks the layout and the pieces of a Call with so many inline bytes.
    fn check(
        reads: &[(u32, u32)],
        inline: Option<usize>,
        layout: StreamLayout,
        pieces: &[StreamPiece],
    ) {
        let zeroes = [0; 64];
        let sent = Sent::new(reads, inline.and_then(|length| zeroes.get(..length)));
        let call = sent.as_ref().and_then(Sent::call).and_then(Result::ok);
        assert_eq!(call.map(|call| call.layout), Some(layout));
        assert_eq!(
            call.map(|call| call.stream().eq(pieces.iter().copied())),
            Some(true)
        );
    }

    /// Proves: V1-033, V1-049, V1-051.
    #[test]
    fn chunks_go_where_their_positions_say() {
        check(&[], Some(40), layout(40, 0, 0), &[inline(0, 40, 0)]);
        let pieces = [inline(0, 44, 0), read(44, 8, 0, 0)];
        check(&[(44, 8)], Some(44), layout(44, 8, 0), &pieces);
        let pieces = [inline(0, 8, 0), read(8, 8, 0, 0), inline(16, 36, 8)];
        check(&[(8, 8)], Some(44), layout(8, 8, 36), &pieces);
        let pieces = [
            inline(0, 44, 0),
            read(44, 3, 0, 0),
            read(47, 5, 2, 0),
            inline(52, 4, 44),
        ];
        check(
            &[(44, 3), (44, 0), (44, 5)],
            Some(48),
            layout(44, 8, 4),
            &pieces,
        );
        // The Position of the second counts the bytes of the first.
        let pieces = [
            inline(0, 44, 0),
            read(44, 8, 0, 0),
            inline(52, 4, 44),
            read(56, 4, 1, 0),
        ];
        check(&[(44, 8), (56, 4)], Some(48), layout(0, 60, 0), &pieces);
        let pieces = [
            inline(0, 44, 0),
            read(44, 3, 1, 0),
            read(47, 5, 2, 0),
            inline(52, 4, 44),
            read(56, 4, 0, 0),
        ];
        check(
            &[(56, 4), (44, 3), (44, 5)],
            Some(48),
            layout(0, 60, 0),
            &pieces,
        );
        let pieces = [inline(0, 44, 0), read(44, 8, 0, 0), read(52, 4, 1, 0)];
        check(&[(44, 8), (52, 4)], Some(44), layout(0, 56, 0), &pieces);
        // Nothing is to be read.
        check(
            &[(44, 0)],
            Some(48),
            layout(48, 0, 0),
            &[inline(0, 44, 0), inline(44, 4, 44)],
        );
        // The other one has no bytes.
        let pieces = [inline(0, 44, 0), inline(44, 4, 44), read(48, 4, 1, 0)];
        check(&[(44, 0), (48, 4)], Some(48), layout(48, 4, 0), &pieces);
    }

    /// Proves: V1-033, V1-051, V1-084.
    #[test]
    fn chunks_are_cut_out_of_a_position_zero_chunk() {
        check(&[(0, 40)], None, layout(0, 40, 0), &[read(0, 40, 0, 0)]);
        let pieces = [read(0, 5, 0, 0), read(5, 43, 2, 0)];
        check(&[(0, 5), (0, 0), (0, 43)], None, layout(0, 48, 0), &pieces);
        // The second segment of four goes on behind the chunk.
        let pieces = [
            read(0, 30, 0, 0),
            read(30, 14, 2, 0),
            read(44, 8, 1, 0),
            read(52, 4, 2, 14),
            read(56, 4, 3, 0),
        ];
        let reads = [(0, 30), (44, 8), (0, 18), (56, 4)];
        check(&reads, None, layout(0, 60, 0), &pieces);
        let sorted = [(0, 30), (0, 18), (44, 8), (56, 4)];
        let pieces = [
            read(0, 30, 0, 0),
            read(30, 14, 1, 0),
            read(44, 8, 2, 0),
            read(52, 4, 1, 14),
            read(56, 4, 3, 0),
        ];
        check(&sorted, None, layout(0, 60, 0), &pieces);
    }

    /// Proves: V1-052, V1-053, V1-054.
    #[test]
    fn the_responder_rounds_up() {
        for (length, padding) in [(3003, 1), (3002, 2), (3001, 3)] {
            let pieces = [
                inline(0, 44, 0),
                read(44, length, 0, 0),
                zeroes(3048 - padding, padding),
                inline(3048, 4, 44),
            ];
            check(&[(44, length)], Some(48), layout(44, 3004, 4), &pieces);
        }
        let pieces = [inline(0, 44, 0), read(44, 3004, 0, 0), inline(3048, 4, 44)];
        check(&[(44, 3004)], Some(48), layout(44, 3004, 4), &pieces);
        let pieces = [
            inline(0, 44, 0),
            read(44, 5, 0, 0),
            zeroes(49, 3),
            read(52, 4, 1, 0),
            inline(56, 4, 44),
        ];
        check(&[(44, 5), (52, 4)], Some(48), layout(0, 60, 0), &pieces);
        // Behind the last byte, too, as a requester that sends it inline must.
        let pieces = [inline(0, 44, 0), read(44, 5, 0, 0), zeroes(49, 3)];
        check(&[(44, 5)], Some(44), layout(44, 8, 0), &pieces);
    }

    /// Proves: V1-134.
    #[test]
    fn chunks_outside_the_stream_are_refused() {
        let refused = |reads: &[_], inline: Option<usize>| {
            let zeroes = [0; 64];
            let sent = Sent::new(reads, inline.and_then(|length| zeroes.get(..length)));
            sent.as_ref().and_then(Sent::call).and_then(Result::err)
        };
        const OUTSIDE: Option<CallError> = Some(CallError::PositionRange);
        assert_eq!(refused(&[(48, 8)], Some(44)), OUTSIDE);
        assert_eq!(refused(&[(44, 8), (48, 8)], Some(48)), OUTSIDE);
        assert_eq!(refused(&[(44, 5), (48, 8)], Some(48)), OUTSIDE);
        assert_eq!(refused(&[(44, 8), (60, 8)], Some(48)), OUTSIDE);
        assert_eq!(refused(&[(0, 40), (44, 8)], None), OUTSIDE);
        assert_eq!(refused(&[(0xffff_fffc, 8)], Some(44)), OUTSIDE);
        assert_eq!(refused(&[(44, u32::MAX - 4), (48, 4)], Some(48)), OUTSIDE);
        let long = Some(CallError::Budget(Excess::ReadBytes));
        assert_eq!(refused(&[(44, u32::MAX)], Some(48)), long);
        assert_eq!(refused(&[(44, u32::MAX - 43)], Some(44)), long);
        assert_eq!(refused(&[(44, u32::MAX - 47)], Some(44)), None);
    }

    /// Proves: V1-043.
    #[test]
    fn a_chunk_has_as_many_bytes_as_the_word_before_it_says() {
        let has_counts = |counts: [u32; 2], reads: &[_]| {
            let mut inline = [0; 52];
            for (place, count) in [40, 44].into_iter().zip(counts) {
                if let Some(slot) = inline.get_mut(place..).and_then(<[u8]>::first_chunk_mut) {
                    *slot = count.to_be_bytes();
                }
            }
            let sent = Sent::new(reads, Some(&inline))?;
            Some(sent.call()?.ok()?.has_counts())
        };
        assert_eq!(has_counts([0, 0], &[]), Some(true));
        assert_eq!(has_counts([100, 0], &[(44, 100)]), Some(true));
        assert_eq!(has_counts([100, 0], &[(44, 99)]), Some(false));
        assert_eq!(has_counts([0, 100], &[(44, 100)]), Some(false));
        // The second count comes behind the first chunk.
        assert_eq!(has_counts([5, 7], &[(44, 5), (56, 7)]), Some(true));
        assert_eq!(has_counts([5, 7], &[(56, 7), (44, 5)]), Some(true));
        assert_eq!(has_counts([5, 6], &[(44, 5), (56, 7)]), Some(false));
        // A chunk right behind another one has no count.
        assert_eq!(has_counts([8, 8], &[(44, 8), (52, 8)]), Some(false));
    }

    /// Proves: V1-043.
    #[test]
    fn the_length_of_a_chunk_is_the_count_or_its_round_up() {
        for (count, length, good) in [
            (4096, 4096, true),
            (4096, 4092, false),
            (4096, 4104, false),
            (5, 5, true),
            (5, 8, true),
            (5, 6, false),
            (5, 4, false),
            (5, 12, false),
            (0, 0, true),
            (0, 4, false),
            (u32::MAX, 0x1_0000_0000, true),
            (u32::MAX, 0, false),
        ] {
            assert_eq!(is_data_of(length, count), good);
        }
    }
}
