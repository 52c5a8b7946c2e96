// SPDX-License-Identifier: GPL-2.0

//! The Payload stream of a Call as a responder puts it together again (RFC 8166 section 3.4.5).

use crate::proto::testing::responder::decode::ReceivedCall;
use crate::proto::wire::chunk::ReadList;

/// A stretch of the Payload stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamPart {
    /// The next bytes that are in no Read chunk of their own: of what came inline, or of the
    /// Position Zero chunk.
    Rest(u64),
    /// All bytes of the Read chunk at this Position, and how many that are.
    Chunk(u32, u64),
    /// Zero bytes that the responder supplies, as the chunk before goes without its XDR round-up:
    /// 1 to 3.
    RoundUp(u64),
}

/// Walks the stream from its first byte on. Ends early at a chunk that does not fit in.
#[derive(Clone, Debug)]
struct Stream<I> {
    /// The Read chunks that are left, by ascending Position.
    chunks: I,
    /// The next one of them.
    next: Option<(u32, u64)>,
    /// Bytes of the stream before this place.
    offset: u64,
    /// Bytes that are in no chunk and come later.
    rest: u64,
    /// Bytes that round up the last chunk.
    round_up: u64,
}

/// The stream of a Call with this Read list and `rest` bytes that are in no chunk of their own.
fn stream<'a>(reads: &ReadList<'a>, rest: u64) -> Stream<impl Iterator<Item = (u32, u64)> + 'a> {
    let mut chunks = reads.chunks().filter(|&(position, _)| position != 0);
    Stream {
        next: chunks.next(),
        chunks,
        offset: 0,
        rest,
        round_up: 0,
    }
}

impl<I: Iterator<Item = (u32, u64)>> Iterator for Stream<I> {
    type Item = StreamPart;

    fn next(&mut self) -> Option<StreamPart> {
        let part = if self.round_up > 0 {
            let bytes = core::mem::take(&mut self.round_up);
            self.offset = self.offset.saturating_add(bytes);
            return Some(StreamPart::RoundUp(bytes));
        } else {
            self.next
        };
        let gap = match part {
            None => self.rest,
            Some((position, _)) => u64::from(position).checked_sub(self.offset)?,
        };
        if let (Some((position, length)), 0) = (part, gap) {
            self.next = self.chunks.next();
            self.offset = self.offset.saturating_add(length);
            self.round_up = length.wrapping_neg() & 3;
            return Some(StreamPart::Chunk(position, length));
        }
        self.rest = self.rest.checked_sub(gap)?;
        self.offset = self.offset.saturating_add(gap);
        (gap > 0).then_some(StreamPart::Rest(gap))
    }
}

/// Whether all Read chunks lie in the stream, side by side, if `rest` bytes of it are in no chunk
/// of their own.
pub(super) fn positions_fit(reads: &ReadList<'_>, rest: u64) -> bool {
    let mut stream = stream(reads, rest);
    while stream.next().is_some() {}
    stream.next.is_none()
}

/// Whether a Read chunk of `length` bytes can be the data of a counted array of `count` bytes:
/// with its XDR round-up or without. If not, the Call is answered with GARBAGE_ARGS (RFC 8166
/// sections 3.4.4 and 3.4.5).
pub(crate) fn is_data_of(length: u64, count: u32) -> bool {
    let count = u64::from(count);
    length == count || length == count.saturating_add(count.wrapping_neg() & 3)
}

impl<'a> ReceivedCall<'a> {
    /// The parts of the Payload stream, in their order.
    pub(crate) fn stream(&self) -> impl Iterator<Item = StreamPart> + 'a {
        stream(&self.lists.reads, self.rest())
    }

    /// Bytes of the RPC message that are in no Read chunk of their own.
    fn rest(&self) -> u64 {
        rest(self.payload, &self.lists.reads)
    }
}

/// Bytes of an RPC message that are in no Read chunk of their own: inline ones, or those of the
/// Position Zero chunk.
pub(super) fn rest(payload: Option<&[u8]>, reads: &ReadList<'_>) -> u64 {
    match payload {
        Some(payload) => u64::try_from(payload.len()).unwrap_or(u64::MAX),
        None => reads.length_at(0),
    }
}

#[cfg(any(test, rpcrdma_kunit))]
#[cfg_attr(rpcrdma_kunit, kernel::macros::kunit_tests(rpcrdma_proto_stream))]
mod tests {
    use super::*;
    use crate::proto::requester::encode::encode_call;
    use crate::proto::testing::responder::decode::{decode_call, ReceivedByResponder};
    use crate::proto::wire::chunk::{ReadSegment, Segment};
    use crate::proto::wire::header::{Credits, FixedHeader, Procedure, Versions, Xid, VERSION_ONE};

    /// Whether a Call with Read segments of these Positions and lengths, and with `rest` inline
    /// bytes or else a Position Zero chunk, has the stream `expected`; with none it is refused.
    fn has_stream(
        reads: &[(u32, u32)],
        rest: Option<usize>,
        expected: &[StreamPart],
    ) -> Option<bool> {
        let mut bytes = [0; 256];
        let fixed = FixedHeader {
            xid: Xid(0),
            version: VERSION_ONE,
            credits: Credits::new(1),
            procedure: match rest {
                Some(_) => Procedure::Msg,
                None => Procedure::Nomsg,
            },
        };
        let entries = reads.iter().map(|&(position, length)| ReadSegment {
            position,
            segment: Segment {
                handle: 1,
                length,
                offset: 0,
            },
        });
        let none = core::iter::empty::<Segment>();
        let header = encode_call(&mut bytes, &fixed, entries, [none.clone()], none).ok()?;
        let bytes = bytes.get(..header.checked_add(rest.unwrap_or(0))?)?;
        match decode_call(bytes, Versions::ONE) {
            Ok(ReceivedByResponder::Call(call)) => Some(call.stream().eq(expected.iter().copied())),
            Ok(_) => None,
            Err(_) => Some(expected.is_empty()),
        }
    }

    /// Proves: V1-033, V1-049, V1-051.
    #[test]
    fn chunks_go_where_their_positions_say() {
        use StreamPart::{Chunk, Rest};
        let same = |reads: &[_], rest, expected: &[_]| {
            assert_eq!(has_stream(reads, rest, expected), Some(true));
        };
        same(&[], Some(40), &[Rest(40)]);
        same(&[(44, 8)], Some(44), &[Rest(44), Chunk(44, 8)]);
        same(&[(8, 8)], Some(44), &[Rest(8), Chunk(8, 8), Rest(36)]);
        // The Position of the second counts the bytes of the first.
        let two = [Rest(44), Chunk(44, 8), Rest(4), Chunk(56, 4)];
        same(&[(44, 8), (56, 4)], Some(48), &two);
        same(&[(56, 4), (44, 3), (44, 5)], Some(48), &two);
        same(
            &[(44, 8), (52, 4)],
            Some(44),
            &[Rest(44), Chunk(44, 8), Chunk(52, 4)],
        );
        same(&[(0, 30), (44, 8), (0, 18), (56, 4)], None, &two);
        same(&[(44, 0)], Some(48), &[Rest(44), Chunk(44, 0), Rest(4)]);
    }

    /// Proves: V1-052, V1-053, V1-054.
    #[test]
    fn the_responder_rounds_up() {
        use StreamPart::{Chunk, Rest, RoundUp};
        let item = |len| Chunk(44, len);
        let same = |reads: &[_], expected: &[_]| {
            assert_eq!(has_stream(reads, Some(48), expected), Some(true));
        };
        same(&[(44, 3003)], &[Rest(44), item(3003), RoundUp(1), Rest(4)]);
        same(&[(44, 3002)], &[Rest(44), item(3002), RoundUp(2), Rest(4)]);
        same(&[(44, 3001)], &[Rest(44), item(3001), RoundUp(3), Rest(4)]);
        same(&[(44, 3004)], &[Rest(44), item(3004), Rest(4)]);
        let behind = [Rest(44), item(5), RoundUp(3), Chunk(52, 4), Rest(4)];
        same(&[(44, 5), (52, 4)], &behind);
    }

    /// Proves: V1-134.
    #[test]
    fn chunks_outside_the_stream_are_refused() {
        let refused = |reads: &[_], rest| {
            assert_eq!(has_stream(reads, rest, &[]), Some(true));
        };
        refused(&[(48, 8)], Some(44));
        refused(&[(44, 8), (48, 8)], Some(48));
        refused(&[(44, 5), (48, 8)], Some(48));
        refused(&[(44, 8), (60, 8)], Some(48));
        refused(&[(0, 40), (44, 8)], None);
        refused(&[(0xffff_fffc, 8)], Some(44));
        refused(&[(44, u32::MAX), (48, 4)], Some(48));
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
