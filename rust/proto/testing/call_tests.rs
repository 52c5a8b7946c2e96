// SPDX-License-Identifier: GPL-2.0

//! Tests of whole Call messages, from encoder to decoder.

#[cfg_attr(rpcrdma_kunit, kernel::macros::kunit_tests(rpcrdma_proto_call))]
mod tests {
    use crate::proto::message::Refused;
    use crate::proto::requester::encode::encode_call;
    use crate::proto::requester::plan::header_len;
    use crate::proto::responder::call::ReceivedCall;
    use crate::proto::responder::decode::ReceivedByResponder;
    use crate::proto::responder::refusal::{CallError, ResponderRefusal};
    use crate::proto::testing::responder::decode::decode_call;
    use crate::proto::wire::chunk::{ReadList, ReadSegment, Segment};
    use crate::proto::wire::encode::encode_inline;
    use crate::proto::wire::error::{ErrorBody, ErrorMessage};
    use crate::proto::wire::header::{
        Credits, FixedHeader, Procedure, Versions, Xid, VERSION_ONE, VERSION_TWO,
    };
    use crate::proto::wire::malformed::HeaderError;
    use crate::proto::wire::xdr::NoSpace;

    const XID: u32 = 0xa1b2_c3d4;

    /// A Call with one segment in each of the three lists and the first words of an RPC Call.
    const ALL_LISTS: [u8; 104] = [
        0xa1, 0xb2, 0xc3, 0xd4, 0, 0, 0, 1, 0, 0, 0, 0x20, 0, 0, 0, 0, // fixed words
        0, 0, 0, 1, 0, 0, 0, 8, 0x11, 0x11, 0x11, 0x11, 0, 0, 0x10, 0, // Read list
        0, 0, 0x7f, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, // its end
        0, 0, 0, 1, 0, 0, 0, 1, 0x22, 0x22, 0x22, 0x22, 0, 0, 0x20, 0, // Write list
        0, 0, 0x7f, 0, 0, 0, 0x20, 0, 0, 0, 0, 0, // its end
        0, 0, 0, 1, 0, 0, 0, 1, 0x33, 0x33, 0x33, 0x33, 0, 1, 0, 0, // Reply chunk
        0, 0, 0x7f, 0, 0, 0, 0x30, 0, // its offset
        0xa1, 0xb2, 0xc3, 0xd4, 0, 0, 0, 0, // the RPC XID and CALL
    ];

    const READ: Segment = Segment {
        handle: 0x1111_1111,
        length: 4096,
        offset: 0x7f00_0000_1000,
    };

    const WRITE: Segment = Segment {
        handle: 0x2222_2222,
        length: 8192,
        offset: 0x7f00_0000_2000,
    };

    const REPLY: Segment = Segment {
        handle: 0x3333_3333,
        length: 65536,
        offset: 0x7f00_0000_3000,
    };

    const MSG: FixedHeader = FixedHeader {
        xid: Xid(XID),
        version: VERSION_ONE,
        credits: Credits::new(32),
        procedure: Procedure::Msg,
    };

    fn read_at(position: u32) -> ReadSegment {
        ReadSegment {
            position,
            segment: READ,
        }
    }

    /// The Positions and lengths of the Read chunks.
    fn read_chunks<'a>(reads: &ReadList<'a>) -> impl Iterator<Item = (u32, u64)> + 'a {
        reads.chunks().map(|chunk| (chunk.position, chunk.length()))
    }

    /// The Call in `bytes`, or `None` for any other message.
    fn call(bytes: &[u8]) -> Option<ReceivedCall<'_>> {
        match decode_call(bytes, Versions::ONE) {
            Ok(ReceivedByResponder::Call(call)) => Some(call),
            _ => None,
        }
    }

    /// The refusal of `bytes`, or `None` if they are a good message.
    fn refused(bytes: &[u8]) -> Option<Refused<CallError>> {
        decode_call(bytes, Versions::ONE).err()
    }

    /// The cause and the place for which `bytes` are refused.
    fn why(bytes: &[u8]) -> Option<(CallError, usize)> {
        refused(bytes).map(|refused| (refused.error, refused.at))
    }

    /// `ALL_LISTS` with `word` written at byte `at`.
    fn changed(at: usize, word: u32) -> Option<[u8; 104]> {
        let mut bytes = ALL_LISTS;
        let slot = bytes.get_mut(at..)?.first_chunk_mut()?;
        *slot = word.to_be_bytes();
        Some(bytes)
    }

    /// Proves: V1-037, V1-085, V1-088, V1-091.
    #[test]
    fn encoder_writes_the_exact_words() {
        let mut buffer = [0xffu8; 96];
        let length = encode_call(
            &mut buffer,
            &MSG,
            [read_at(8)],
            [[WRITE].into_iter()],
            [REPLY].into_iter(),
        );
        assert_eq!(length, Ok(96));
        assert_eq!(ALL_LISTS.first_chunk(), Some(&buffer));
        assert_eq!(header_len(1, [1], Some(1)), 96);
    }

    /// Proves: V1-038, V1-098.
    #[test]
    fn encoder_leaves_out_chunks_without_segments() {
        let mut buffer = [0xffu8; 28];
        let none = core::iter::empty::<Segment>();
        let length = encode_call(&mut buffer, &MSG, [], [none.clone(), none.clone()], none);
        assert_eq!(length, Ok(28));
        assert_eq!(buffer.get(16..), Some([0u8; 12].as_slice()));
        assert_eq!(header_len(0, [], None), 28);
    }

    #[test]
    fn encoder_refuses_every_short_buffer() {
        for length in 0..96 {
            let mut buffer = [0u8; 96];
            let short = buffer.get_mut(..length).unwrap_or_default();
            let one = [WRITE].into_iter();
            let result = encode_call(short, &MSG, [read_at(8)], [one.clone()], one);
            assert_eq!(result, Err(NoSpace));
        }
    }

    #[test]
    fn header_length_does_not_wrap() {
        let most = u32::MAX;
        let expected = 28 + 24 * u64::from(most) + 2 * (8 + 16 * u64::from(most)) + 4;
        assert_eq!(header_len(most, [most, most], Some(0)), expected);
    }

    #[test]
    fn decoder_gives_the_lists_back_any_number_of_times() {
        let decoded = call(&ALL_LISTS);
        assert!(decoded.is_some());
        let Some(decoded) = decoded else { return };
        assert_eq!(decoded.index.xid, Xid(XID));
        assert_eq!(decoded.index.version, VERSION_ONE);
        assert_eq!(decoded.index.credits.get(), 32);
        assert_eq!(decoded.index.header_len, 96);
        assert_eq!(decoded.payload.map(<[u8]>::len), Some(8));
        let lists = decoded.lists;
        for _ in 0..2 {
            assert!(lists.reads.segments().eq([read_at(8)]));
            assert!(read_chunks(&lists.reads).eq([(8, 4096)]));
            let mut chunks = lists.writes.chunks();
            assert!(chunks.next().is_some_and(|c| c.segments().eq([WRITE])));
            assert!(chunks.next().is_none());
            let reply = lists.reply.map(|chunk| chunk.segments().eq([REPLY]));
            assert_eq!(reply, Some(true));
        }
    }

    /// Proves: V1-103, V1-129, V1-132.
    #[test]
    fn every_truncated_call_is_refused() {
        for length in 0..ALL_LISTS.len() {
            let bytes = ALL_LISTS.get(..length).unwrap_or_default();
            let refused = refused(bytes);
            assert!(refused.is_some_and(|refused| refused.at <= length));
            let silent = refused.map(|refused| refused.at_responder() == ResponderRefusal::Discard);
            assert_eq!(silent, Some(length < 16));
        }
    }

    /// Proves: V1-092, V1-093, V1-094, V1-095, V1-096, V1-131, V1-133.
    #[test]
    fn each_fault_has_its_cause_and_place() {
        for (at, word, cause, place) in [
            (4, 2, CallError::Header(HeaderError::Version), 4),
            (12, 2, CallError::Header(HeaderError::Procedure), 12),
            (12, 3, CallError::Header(HeaderError::Procedure), 12),
            (12, 5, CallError::Header(HeaderError::Procedure), 12),
            (12, 1, CallError::Header(HeaderError::Trailing), 96),
            (16, 2, CallError::Header(HeaderError::Flag), 16),
            (20, 6, CallError::Header(HeaderError::PositionAlignment), 20),
            (
                20,
                4,
                CallError::Header(HeaderError::PositionInRpcHeader),
                20,
            ),
            (20, 0, CallError::Header(HeaderError::PositionZeroInMsg), 16),
            (20, 12, CallError::PositionRange, 16),
            (44, 0x0100_0000, CallError::Header(HeaderError::Flag), 44),
            (
                48,
                u32::MAX,
                CallError::Header(HeaderError::SegmentCount),
                48,
            ),
            (
                48,
                0x1000_0001,
                CallError::Header(HeaderError::SegmentCount),
                48,
            ),
            (76, 3, CallError::Header(HeaderError::SegmentCount), 76),
            (96, XID ^ 1, CallError::Header(HeaderError::XidMismatch), 96),
            (100, 2, CallError::Header(HeaderError::MessageType), 100),
        ] {
            let bytes = changed(at, word);
            let found = bytes.as_ref().and_then(|bytes| why(bytes));
            assert_eq!(found, Some((cause, place)));
        }
    }

    /// Proves: V1-120.
    #[test]
    fn segments_end_within_the_address_space() {
        let mut bytes = ALL_LISTS;
        for (low, good) in [(0xf0u8, true), (0xf1, false), (0xff, false)] {
            // 4096 bytes from fffffffffffff000 fill the address space to its last byte.
            for (slot, byte) in bytes.iter_mut().skip(32).zip([0xff; 6]) {
                *slot = byte;
            }
            if let Some(slot) = bytes.get_mut(38) {
                *slot = low;
            }
            if let Some(slot) = bytes.get_mut(39) {
                *slot = 0;
            }
            assert_eq!(call(&bytes).is_some(), good);
            let expected = (!good).then_some((CallError::Header(HeaderError::SegmentWrap), 32));
            assert_eq!(why(&bytes), expected);
        }
    }

    /// Proves: V1-051.
    #[test]
    fn read_segments_group_by_position_in_any_order() {
        let mut buffer = [0u8; 128];
        let at = |position, length| ReadSegment {
            position,
            segment: Segment { length, ..READ },
        };
        // The second chunk takes up four bytes of the stream, one of them round-up.
        let entries = [at(44, 8), at(0, 40), at(40, 3), at(44, 1)];
        let fixed = FixedHeader {
            procedure: Procedure::Nomsg,
            ..MSG
        };
        let none = core::iter::empty::<Segment>();
        let length = encode_call(&mut buffer, &fixed, entries, [none.clone()], none);
        assert_eq!(length, Ok(124));
        let decoded = call(buffer.get(..124).unwrap_or_default());
        assert!(decoded.is_some());
        let Some(decoded) = decoded else { return };
        assert!(decoded.lists.reads.segments().eq(entries));
        let chunks = read_chunks(&decoded.lists.reads);
        assert!(chunks.eq([(0, 40), (40, 3), (44, 9)]));
        assert_eq!(decoded.payload, None);
    }

    #[test]
    fn read_chunks_add_up_in_64_bits() {
        let mut buffer = [0u8; 80];
        let half = |position| ReadSegment {
            position,
            segment: Segment {
                length: 1 << 31,
                ..READ
            },
        };
        let fixed = FixedHeader {
            procedure: Procedure::Nomsg,
            ..MSG
        };
        // Two chunks are each in range, and together more than any budget has.
        let long = CallError::Header(HeaderError::ReadListLength);
        for position in [0, 1 << 30] {
            let none = core::iter::empty::<Segment>();
            let entries = [half(0), half(position)];
            let length = encode_call(&mut buffer, &fixed, entries, [none.clone()], none);
            assert_eq!(length, Ok(76));
            assert_eq!(why(buffer.get(..76).unwrap_or_default()), Some((long, 76)));
        }
    }

    /// Proves: BD-003, BD-005, BD-029.
    #[test]
    fn backward_messages_are_told_from_calls() {
        let mut buffer = [0u8; 36];
        assert_eq!(
            encode_inline(&mut buffer, VERSION_ONE, Xid(XID), Credits::new(2)),
            Ok(28)
        );
        for (slot, byte) in buffer
            .iter_mut()
            .skip(28)
            .zip([0xa1, 0xb2, 0xc3, 0xd4, 0, 0, 0, 1])
        {
            *slot = byte;
        }
        let reply = match decode_call(&buffer, Versions::ONE) {
            Ok(ReceivedByResponder::BackwardReply { fixed, payload }) => {
                Some((fixed.xid, fixed.version, fixed.credits.get(), payload.len()))
            }
            _ => None,
        };
        assert_eq!(reply, Some((Xid(XID), VERSION_ONE, 2, 8)));

        let mut buffer = [0u8; 20];
        let sent = ErrorMessage {
            xid: Xid(XID),
            version: VERSION_ONE,
            body: ErrorBody::Chunk,
        };
        assert_eq!(sent.encode(&mut buffer, Credits::new(2)), Ok(20));
        let error = match decode_call(&buffer, Versions::ONE) {
            Ok(ReceivedByResponder::Error(error)) => Some(error),
            _ => None,
        };
        assert_eq!(error, Some(sent));

        // A backward Reply with a chunk is dropped: the whole ALL_LISTS, made a Reply.
        let refused = changed(100, 1).and_then(|bytes| refused(&bytes));
        let why = refused.map(|refused| refused.error);
        assert_eq!(why, Some(CallError::ChunksInBackwardReply));
        let outcome = refused.map(|refused| refused.at_responder());
        assert_eq!(outcome, Some(ResponderRefusal::Discard));
    }

    /// Proves: V1-121, V1-124, V1-130, V1-132, V1-134.
    #[test]
    fn responder_answers_by_cause() {
        let answer = |at, word| {
            let bytes = changed(at, word)?;
            match refused(&bytes)?.at_responder() {
                ResponderRefusal::Answer(message) => {
                    Some((message.xid, message.version, message.body))
                }
                _ => None,
            }
        };
        let vers = ErrorBody::Version(Versions::ONE);
        assert_eq!(answer(4, 7), Some((Xid(XID), 7, vers)));
        assert_eq!(answer(12, 3), Some((Xid(XID), 1, ErrorBody::Chunk)));
        assert_eq!(answer(16, 2), Some((Xid(XID), 1, ErrorBody::Chunk)));
        assert_eq!(answer(100, 9), None);
        let garbage = changed(20, 12).and_then(|bytes| refused(&bytes));
        let garbage = garbage.map(|refused| refused.at_responder());
        let error = ErrorMessage {
            xid: Xid(XID),
            version: 1,
            body: ErrorBody::Chunk,
        };
        assert_eq!(garbage, Some(ResponderRefusal::GarbageArgs(error)));
    }

    /// A responder that requires Version Two says so in the version that it was asked in.
    /// Proves: V1-124, V1-130.
    #[test]
    fn a_responder_may_speak_version_two_alone() {
        let refused = |version| {
            let bytes = changed(4, version)?;
            decode_call(&bytes, Versions::TWO).err()
        };
        let answer = ErrorMessage {
            xid: Xid(XID),
            version: VERSION_ONE,
            body: ErrorBody::Version(Versions::TWO),
        };
        let outcome = refused(VERSION_ONE).map(|refused| refused.at_responder());
        assert_eq!(outcome, Some(ResponderRefusal::Answer(answer)));
        assert_eq!(refused(VERSION_TWO), None);
    }

    /// Proves: V2-014, V2-017.
    #[test]
    fn version_two_has_the_same_lists() {
        let bytes = changed(4, VERSION_TWO);
        let bytes = bytes.as_ref().map_or([].as_slice(), |bytes| bytes);
        assert_eq!(
            why(bytes),
            Some((CallError::Header(HeaderError::Version), 4))
        );

        let mut buffer = [0xffu8; 96];
        let fixed = FixedHeader {
            version: VERSION_TWO,
            ..MSG
        };
        let length = encode_call(
            &mut buffer,
            &fixed,
            [read_at(8)],
            [[WRITE].into_iter()],
            [REPLY].into_iter(),
        );
        assert_eq!(length, Ok(96));
        assert_eq!(bytes.first_chunk(), Some(&buffer));
        let decoded = decode_call(bytes, Versions::ONE_AND_TWO);
        let call = match decoded {
            Ok(ReceivedByResponder::Call(call)) => Some(call),
            _ => None,
        };
        assert_eq!(call.map(|call| call.index.version), Some(VERSION_TWO));
        let reads = call.map(|call| call.lists.reads.segments().eq([read_at(8)]));
        assert_eq!(reads, Some(true));
    }
}
