// SPDX-License-Identifier: GPL-2.0

//! Tests of [`crate::proto::responder::stream`].

#[cfg_attr(rpcrdma_kunit, kernel::macros::kunit_tests(rpcrdma_proto_stream))]
mod tests {
    use crate::proto::requester::encode::encode_call;
    use crate::proto::responder::budget::CallBudget;
    use crate::proto::responder::budget::Excess;
    use crate::proto::responder::call::ReceivedCall;
    use crate::proto::responder::decode::{decode_call, ReceivedByResponder};
    use crate::proto::responder::refusal::CallError;
    use crate::proto::responder::stream::*;
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

    /// A Call with Read segments of these Positions and lengths, and with these inline bytes or
    /// else a Position Zero chunk. The handle of a segment is its number, its offset ten times as
    /// much.
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
                Err(refused) => Some(Err(refused.error)),
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

    /// Bytes before the pages, in them and behind them.
    const fn layout(head: u32, pages: u32, tail: u32) -> [u32; 3] {
        [head, pages, tail]
    }

    /// Checks the layout and the pieces of a Call with so many inline bytes.
    fn check(
        reads: &[(u32, u32)],
        inline: Option<usize>,
        layout: [u32; 3],
        pieces: &[StreamPiece],
    ) {
        let zeroes = [0; 64];
        let sent = Sent::new(reads, inline.and_then(|length| zeroes.get(..length)));
        let call = sent.as_ref().and_then(Sent::call).and_then(Result::ok);
        let found = call.map(|call| call.index.layout);
        let sizes = found.map(|found| [found.head, found.pages, found.tail]);
        assert_eq!(sizes, Some(layout));
        // Pages are completed only if the layout says that something is to be put there.
        let is_whole = layout[0] == 0 && layout[2] == 0;
        let is_added = |piece: &StreamPiece| match piece.source {
            Source::Inline(_) => is_whole,
            Source::RoundUp => true,
            Source::Read { .. } => false,
        };
        let is_mixed = found.is_some_and(|found| found.is_mixed);
        assert!(is_mixed || !pieces.iter().any(is_added));
        let chunks = call.map(|call| call.lists.reads.chunks().count());
        let counted = found.and_then(|found| usize::try_from(found.read_chunks).ok());
        assert_eq!(counted, chunks);
        assert_eq!(
            call.map(|call| call.stream().eq(pieces.iter().copied())),
            Some(true)
        );
        let reads = pieces.iter().filter_map(|piece| match piece.source {
            Source::Read { handle, offset } => {
                let length = piece.length;
                let at = piece.at.checked_sub(layout[0])?;
                Some((
                    at,
                    Segment {
                        handle,
                        length,
                        offset,
                    },
                ))
            }
            Source::Inline(_) | Source::RoundUp => None,
        });
        assert_eq!(call.map(|call| call.reads().eq(reads)), Some(true));
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
        // The message is not rounded up, it is no item.
        check(&[(0, 41)], None, layout(0, 41, 0), &[read(0, 41, 0, 0)]);
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
        // The chunk is where the first segment ends.
        let pieces = [read(0, 12, 0, 0), read(12, 8, 2, 0), read(20, 16, 1, 0)];
        check(
            &[(0, 12), (0, 16), (12, 8)],
            None,
            layout(0, 36, 0),
            &pieces,
        );
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
        // There is nothing to put anywhere.
        assert_eq!(has_counts([100, 0], &[(44, 0)]), Some(true));
    }

    /// Proves: V1-043.
    #[test]
    fn no_chunk_is_in_the_header_of_the_call() {
        // A Call whose credential and verifier have these words, and a Read chunk with as many
        // bytes as the word before it says.
        let is_taken = |flavor: u32, credential: &[u32], verifier: &[u32], position: usize| {
            let mut inline = [0; 128];
            let sizes = [credential, verifier].map(|words| u32::try_from(words.len() * 4));
            let [of_credential, of_verifier] = sizes;
            let header = [flavor, of_credential.ok()?]
                .into_iter()
                .chain(credential.iter().copied());
            let header = header
                .chain([0, of_verifier.ok()?])
                .chain(verifier.iter().copied());
            let places = inline.get_mut(24..)?.chunks_exact_mut(4);
            for (place, word) in places.zip(header.chain([100; 4])) {
                place.copy_from_slice(&word.to_be_bytes());
            }
            let count = inline
                .get(position - 4..)?
                .first_chunk()
                .map(|&word| u32::from_be_bytes(word))?;
            let reads = [(u32::try_from(position).ok()?, count)];
            Some(Sent::new(&reads, Some(&inline))?.call()?.ok()?.has_counts())
        };
        // In front of the credential's body, in it, in the verifier, at the arguments' start, and
        // behind their first word.
        assert_eq!(is_taken(1, &[28; 7], &[], 32), Some(false));
        assert_eq!(is_taken(1, &[28; 7], &[], 44), Some(false));
        assert_eq!(is_taken(1, &[28; 7], &[8; 2], 68), Some(false));
        assert_eq!(is_taken(1, &[28; 7], &[8; 2], 76), Some(false));
        assert_eq!(is_taken(1, &[28; 7], &[8; 2], 80), Some(true));
        assert_eq!(is_taken(0, &[], &[], 44), Some(true));
        // RPCSEC_GSS_DATA without integrity and privacy, with them, and another procedure.
        assert_eq!(is_taken(6, &[1, 0, 7, 1, 0], &[], 64), Some(true));
        assert_eq!(is_taken(6, &[1, 0, 7, 2, 0], &[], 64), Some(false));
        assert_eq!(is_taken(6, &[1, 0, 7, 3, 0], &[], 64), Some(false));
        assert_eq!(is_taken(6, &[1, 1, 7, 1, 0], &[], 64), Some(false));
        // A credential and a verifier that do not end within the message.
        let is_taken = |length: usize| {
            let mut inline = [0; 128];
            for (at, word) in [(length, u32::MAX), (96, 100)] {
                let place = inline.get_mut(at..)?.first_chunk_mut()?;
                *place = u32::to_be_bytes(word);
            }
            Some(
                Sent::new(&[(100, 100)], Some(&inline))?
                    .call()?
                    .ok()?
                    .has_counts(),
            )
        };
        assert_eq!(is_taken(28), Some(false));
        assert_eq!(is_taken(36), Some(false));
        assert_eq!(is_taken(120), Some(true));
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
