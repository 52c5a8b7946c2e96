// SPDX-License-Identifier: GPL-2.0

//! Where the parts of a Reply go: a responder's choice from what the Call offers
//! (RFC 8166 sections 3.4.6, 3.5 and 4.3.2).

use crate::proto::testing::responder::decode::ReceivedCall;
use crate::proto::wire::chunk::Chunk;
use crate::proto::wire::encode::header_len;
use crate::proto::wire::header::Procedure;

/// A stretch of a Reply. The RPC message is its parts, one after the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReplyPart {
    /// Bytes.
    pub(crate) len: u32,
    /// Whether it is one data item, without its length word and its padding, that the upper layer
    /// binding lets be placed directly (RFC 8166 section 6.1).
    pub(crate) eligible: bool,
}

/// Where a part of a Reply goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Inline, without its first `skip` bytes, 0 to 3: the padding of an item in a Write chunk.
    Inline {
        /// The bytes that are not sent.
        skip: u32,
    },
    /// Into the Write chunk with this number, counted from 0.
    WriteChunk(u32),
    /// Into the Reply chunk, without its first `skip` bytes, 0 to 3.
    ReplyChunk {
        /// The bytes that are not written.
        skip: u32,
    },
}

/// The chunks of the Call are too small for the Reply. The answer is an RDMA_ERROR with
/// [`ErrorBody::Chunk`](super::header::ErrorBody::Chunk), before anything is written (RFC 8166
/// section 4.5.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReplyTooLarge;

/// How a Reply of `R` parts travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Placement<const R: usize> {
    /// The parts, in their order.
    pub(crate) places: [Place; R],
    /// Bytes of the transport header, which returns all chunks of the Call.
    pub(crate) header_len: u32,
    /// Bytes that follow the header in the same Send.
    pub(crate) inline_len: u32,
    /// Bytes in the Reply chunk, 0 if it is not used.
    pub(crate) reply_chunk_len: u64,
    parts: [ReplyPart; R],
}

impl<const R: usize> Placement<R> {
    /// The procedure of the Reply.
    pub(crate) fn procedure(&self) -> Procedure {
        if self.reply_chunk_len > 0 {
            Procedure::Nomsg
        } else {
            Procedure::Msg
        }
    }

    /// Bytes in the Write chunk with the number `index`, 0 if it is not used. What
    /// [`Chunk::filled`] returns for them is what the Reply says of the chunk.
    pub(crate) fn write_len(&self, index: u32) -> u64 {
        let mut places = self.places.iter().zip(&self.parts);
        let used = places.find(|(place, _)| **place == Place::WriteChunk(index));
        used.map_or(0, |(_, part)| u64::from(part.len))
    }
}

impl Chunk<'_> {
    /// The sum of the segment lengths in bytes.
    pub(crate) fn length(&self) -> u64 {
        self.segments().fold(0, |sum, segment| {
            u64::saturating_add(sum, u64::from(segment.length))
        })
    }
}

impl ReceivedCall<'_> {
    /// Chooses where the parts of the Reply go, which has no more than `threshold` bytes in its
    /// Send.
    ///
    /// An item that may be placed directly and has bytes goes into the next Write chunk, until
    /// there are no more of the one or the other. A Write chunk without segments takes its turn,
    /// and leaves the item where it is. What then does not fit inline goes into the Reply chunk.
    ///
    /// # Errors
    ///
    /// [`ReplyTooLarge`] if a chunk is too small, or there is none where one is needed.
    pub(crate) fn place_reply<const R: usize>(
        &self,
        parts: &[ReplyPart; R],
        threshold: u32,
    ) -> Result<Placement<R>, ReplyTooLarge> {
        let chunk = self.lists.reply;
        let segments = |chunk: Chunk<'_>| {
            let segments = chunk.segments();
            segments.fold(0, |n, _| u32::saturating_add(n, 1))
        };
        let writes = self.lists.writes.chunks();
        let header = header_len(0, writes.map(segments), chunk.map(segments));
        let header_len = u32::try_from(header).map_err(|_| ReplyTooLarge)?;
        let room = u64::from(threshold.checked_sub(header_len).ok_or(ReplyTooLarge)?);

        let (mut places, rest) = self.reduce(parts)?;
        let mut placement = Placement {
            places,
            header_len,
            inline_len: 0,
            reply_chunk_len: 0,
            parts: *parts,
        };
        if rest <= room {
            placement.inline_len = u32::try_from(rest).map_err(|_| ReplyTooLarge)?;
            return Ok(placement);
        }
        if chunk.map_or(0, |chunk| chunk.length()) < rest {
            return Err(ReplyTooLarge);
        }
        for place in &mut places {
            if let Place::Inline { skip } = *place {
                *place = Place::ReplyChunk { skip };
            }
        }
        placement.places = places;
        placement.reply_chunk_len = rest;
        Ok(placement)
    }

    /// Fills the Write chunks. All that is in none counts as inline; how many bytes that is.
    fn reduce<const R: usize>(
        &self,
        parts: &[ReplyPart; R],
    ) -> Result<([Place; R], u64), ReplyTooLarge> {
        let mut chunks = (0u32..u32::MAX).zip(self.lists.writes.chunks());
        let mut places = [Place::Inline { skip: 0 }; R];
        let mut rest = 0u64;
        let mut padding = 0;
        for (part, place) in parts.iter().zip(&mut places) {
            let chunk = if part.eligible && part.len > 0 {
                chunks.next()
            } else {
                None
            };
            let usable = chunk.filter(|(_, chunk)| chunk.segments().next().is_some());
            if let Some((index, chunk)) = usable {
                if chunk.length() < u64::from(part.len) {
                    return Err(ReplyTooLarge);
                }
                *place = Place::WriteChunk(index);
                padding = part.len.wrapping_neg() & 3;
            } else {
                let skip = part.len.min(padding);
                padding = padding.saturating_sub(skip);
                *place = Place::Inline { skip };
                rest = rest.saturating_add(u64::from(part.len.saturating_sub(skip)));
            }
        }
        Ok((places, rest))
    }
}

#[cfg(any(test, rpcrdma_kunit))]
#[cfg_attr(rpcrdma_kunit, kernel::macros::kunit_tests(rpcrdma_proto_placement))]
mod tests {
    use super::*;
    use crate::proto::testing::responder::decode::{decode_call, ReceivedByResponder};
    use crate::proto::wire::chunk::Segment;
    use crate::proto::wire::encode::{put_read_list, put_reply_chunk, put_write_list};
    use crate::proto::wire::header::{Credits, FixedHeader, Versions, Xid, VERSION_ONE};
    use crate::proto::wire::xdr::Writer;

    const fn part(len: u32) -> ReplyPart {
        ReplyPart {
            len,
            eligible: false,
        }
    }

    const fn item(len: u32) -> ReplyPart {
        ReplyPart {
            len,
            eligible: true,
        }
    }

    fn segments(lengths: &[u32]) -> impl Iterator<Item = Segment> + Clone + '_ {
        lengths.iter().map(|&length| Segment {
            handle: 1,
            length,
            offset: 0,
        })
    }

    /// Places a Reply for a Call that offers these segment lengths; `None` if the Call is bad.
    fn place<const R: usize>(
        writes: &[&[u32]],
        chunk: Option<&[u32]>,
        parts: [ReplyPart; R],
    ) -> Option<Result<Placement<R>, ReplyTooLarge>> {
        let mut bytes = [0; 512];
        let mut writer = Writer::new(&mut bytes);
        let fixed = FixedHeader {
            xid: Xid(0),
            version: VERSION_ONE,
            credits: Credits::new(1),
            procedure: Procedure::Msg,
        };
        fixed.put(&mut writer).ok()?;
        put_read_list(&mut writer, []).ok()?;
        put_write_list(&mut writer, writes.iter().map(|lengths| segments(lengths))).ok()?;
        put_reply_chunk(&mut writer, chunk.map(segments)).ok()?;
        let end = writer.position().checked_add(8)?;
        match decode_call(bytes.get(..end)?, Versions::ONE) {
            Ok(ReceivedByResponder::Call(call)) => Some(call.place_reply(&parts, 1024)),
            _ => None,
        }
    }

    /// The places, the procedure and the bytes in the Send.
    fn found<const R: usize>(
        placement: Option<Result<Placement<R>, ReplyTooLarge>>,
    ) -> Option<([Place; R], Procedure, u32)> {
        let placement = placement?.ok()?;
        let procedure = placement.procedure();
        Some((placement.places, procedure, placement.inline_len))
    }

    const INLINE: Place = Place::Inline { skip: 0 };
    const WHOLE: Place = Place::ReplyChunk { skip: 0 };
    const TOO_LARGE: Option<ReplyTooLarge> = Some(ReplyTooLarge);

    /// Proves: V1-073, V1-115.
    #[test]
    fn what_fits_comes_inline() {
        let parts = [part(996)];
        assert_eq!(
            found(place(&[], None, parts)),
            Some(([INLINE], Procedure::Msg, 996))
        );
        let parts = [part(900)];
        let offered = found(place(&[], Some(&[4096]), parts));
        assert_eq!(offered, Some(([INLINE], Procedure::Msg, 900)));
        // Without a Write list nothing is placed directly.
        let parts = [part(128), item(500), part(4)];
        assert_eq!(
            found(place(&[], None, parts)),
            Some(([INLINE; 3], Procedure::Msg, 632))
        );
    }

    /// Proves: V1-067, V1-069, V1-081, V1-107.
    #[test]
    fn items_go_into_write_chunks_without_their_padding() {
        let parts = [part(128), item(5), part(3 + 4)];
        let placement = place(&[&[4096, 4096]], Some(&[65536]), parts);
        let places = [INLINE, Place::WriteChunk(0), Place::Inline { skip: 3 }];
        assert_eq!(found(placement), Some((places, Procedure::Msg, 132)));
        let placement = placement.and_then(Result::ok);
        assert_eq!(placement.map(|placement| placement.write_len(0)), Some(5));
        assert_eq!(placement.map(|placement| placement.write_len(1)), Some(0));
        let header = 28 + (8 + 32) + (4 + 16);
        assert_eq!(
            placement.map(|placement| placement.header_len),
            Some(header)
        );
    }

    /// Proves: V1-082, V1-083, V1-084.
    #[test]
    fn what_does_not_fit_goes_into_the_reply_chunk() {
        let large = [part(976 + 1)];
        let placement = place(&[], Some(&[1024]), large);
        assert_eq!(found(placement), Some(([WHOLE], Procedure::Nomsg, 0)));
        let parts = [part(1200), item(8190), part(2 + 4)];
        let placement = place(&[&[8192]], Some(&[1000, 204]), parts);
        let places = [WHOLE, Place::WriteChunk(0), Place::ReplyChunk { skip: 2 }];
        assert_eq!(found(placement), Some((places, Procedure::Nomsg, 0)));
        let length = placement
            .and_then(Result::ok)
            .map(|placement| placement.reply_chunk_len);
        assert_eq!(length, Some(1204));
        // Items without a Write chunk go with the rest.
        let placement = place(&[], Some(&[65536]), parts);
        let places = [WHOLE; 3];
        assert_eq!(found(placement), Some((places, Procedure::Nomsg, 0)));
    }

    /// Proves: V1-071, V1-108.
    #[test]
    fn write_chunks_are_used_in_the_order_of_the_items_with_data() {
        let parts = [part(128), item(4), item(8), item(12)];
        let two: &[&[u32]] = &[&[4096], &[4096]];
        let places = [INLINE, Place::WriteChunk(0), Place::WriteChunk(1), INLINE];
        let placement = place(two, None, parts);
        assert_eq!(found(placement), Some((places, Procedure::Msg, 140)));
        let parts = [part(128), item(0), item(8), item(0)];
        let places = [INLINE, INLINE, Place::WriteChunk(0), INLINE];
        let placement = place(two, None, parts);
        assert_eq!(found(placement), Some((places, Procedure::Msg, 128)));
        let lengths = placement
            .and_then(Result::ok)
            .map(|p| [p.write_len(0), p.write_len(1)]);
        assert_eq!(lengths, Some([8, 0]));
        // A chunk without segments takes its turn.
        let parts = [part(128), item(4), item(8)];
        let places = [INLINE, INLINE, Place::WriteChunk(1)];
        let placement = place(&[&[], &[4096]], None, parts);
        assert_eq!(found(placement), Some((places, Procedure::Msg, 132)));
    }

    /// Proves: V1-137.
    #[test]
    fn chunks_that_are_too_small_are_noticed_before_they_are_used() {
        let error = |writes: &[&[u32]], chunk: Option<&[u32]>, parts: [ReplyPart; 3]| {
            place(writes, chunk, parts).and_then(Result::err)
        };
        let large = [part(8000), item(0), part(192)];
        assert_eq!(error(&[], Some(&[4096]), large), TOO_LARGE);
        assert_eq!(error(&[], Some(&[4096, 4095]), large), TOO_LARGE);
        assert_eq!(error(&[], Some(&[4096, 4096]), large), None);
        assert_eq!(error(&[], None, large), TOO_LARGE);
        // A sum in 32 bits would be 0.
        assert_eq!(error(&[], Some(&[1 << 31, 1 << 31]), large), None);
        let item = [part(128), item(8193), part(3)];
        assert_eq!(error(&[&[8192]], Some(&[65536]), item), TOO_LARGE);
        assert_eq!(error(&[&[8192, 1]], None, item), None);
    }
}
