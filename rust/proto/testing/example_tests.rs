// SPDX-License-Identifier: GPL-2.0

//! Tests with exact words: the examples of RFC 8166 section 4.7, and small messages.

#[cfg_attr(rpcrdma_kunit, kernel::macros::kunit_tests(rpcrdma_proto_examples))]
mod tests {
    use crate::proto::requester::decode::{decode_received, Received};
    use crate::proto::requester::encode::encode_call;
    use crate::proto::requester::plan::{plan, CallForm, Parts, PlanLimits, RpcShape, Side};
    use crate::proto::responder::call::ReceivedCall;
    use crate::proto::responder::decode::ReceivedByResponder;
    use crate::proto::responder::refusal::{CallError, ResponderRefusal};
    use crate::proto::responder::stream::Source;
    use crate::proto::testing::responder::decode::decode_call;
    use crate::proto::wire::chunk::{Lists, ReadSegment, Segment};
    use crate::proto::wire::encode::{encode_header, encode_inline};
    use crate::proto::wire::header::{
        Credits, FixedHeader, Procedure, Versions, Xid, FIXED_LEN, VERSION_ONE, VERSION_TWO,
    };
    use crate::proto::wire::malformed::HeaderError;
    use crate::proto::wire::xdr::{Reader, Writer};

    /// The most words of a message here.
    const WORDS: usize = 64;

    /// Bytes that are compared as words, so that a failure can be read.
    struct Message {
        words: [u32; WORDS],
        count: usize,
        bytes: [u8; 4 * WORDS],
    }

    impl Message {
        fn words(&self) -> &[u32] {
            self.words.get(..self.count).unwrap_or_default()
        }

        fn bytes(&self) -> &[u8] {
            let length = self.count.saturating_mul(4);
            self.bytes.get(..length).unwrap_or_default()
        }

        /// What `write` puts into a buffer.
        fn written(write: impl FnOnce(&mut [u8]) -> Option<usize>) -> Option<Self> {
            let mut bytes = [0; 4 * WORDS];
            let length = write(&mut bytes)?;
            let mut words = [0; WORDS];
            for (word, slot) in bytes.chunks_exact(4).zip(&mut words) {
                *slot = u32::from_be_bytes(*word.first_chunk()?);
            }
            let count = length.checked_div(4)?;
            (length % 4 == 0).then_some(Self {
                words,
                count,
                bytes,
            })
        }

        /// These words.
        fn of(words: &[u32]) -> Option<Self> {
            Self::written(|buffer| {
                let mut writer = Writer::new(buffer);
                for word in words {
                    writer.put_u32(*word).ok()?;
                }
                Some(writer.position())
            })
        }
    }

    /// A header with these lists.
    fn header(
        reads: &[ReadSegment],
        writes: &[&[Segment]],
        reply: Option<&[Segment]>,
    ) -> Option<Message> {
        let fixed = fixed(VERSION_ONE, Procedure::Msg);
        let reads = reads.iter().copied();
        let writes = writes.iter().map(|chunk| chunk.iter().copied());
        let reply = reply.map(|chunk| chunk.iter().copied());
        Message::written(|buffer| encode_header(buffer, &fixed, reads, writes, reply).ok())
    }

    /// Whether a header with these lists has exactly these words in the place of the lists.
    fn writes(
        reads: &[ReadSegment],
        writes: &[&[Segment]],
        reply: Option<&[Segment]>,
        words: &[&[u32]],
    ) -> bool {
        let message = header(reads, writes, reply);
        message.is_some_and(|message| {
            let lists = message.words().iter().skip(4);
            lists.eq(words.iter().copied().flatten())
        })
    }

    const fn segment(handle: u32, length: u32, offset: u64) -> Segment {
        Segment {
            handle,
            length,
            offset,
        }
    }

    const fn read(position: u32, segment: Segment) -> ReadSegment {
        ReadSegment { position, segment }
    }

    const fn fixed(version: u32, procedure: Procedure) -> FixedHeader {
        FixedHeader {
            xid: Xid(0xa1b2_c3d4),
            version,
            credits: Credits::new(32),
            procedure,
        }
    }

    const NONE: core::iter::Empty<Segment> = core::iter::empty();

    /// The words of an RPC Call of the NULL procedure of NFS version 3.
    const NULL_CALL: [u32; 10] = [0xa1b2_c3d4, 0, 2, 100_003, 3, 0, 0, 0, 0, 0];

    /// The words of its Reply.
    const NULL_REPLY: [u32; 6] = [0xa1b2_c3d4, 1, 0, 0, 0, 0];

    /// Proves: V1-036, V1-048, V1-059, V1-112, V1-147, V2-017.
    #[test]
    fn lists_have_the_words_of_the_specification() {
        let first = segment(0x1111_1111, 0x400, 0x7f00_0000_1000);
        let second = segment(0x2222_2222, 0x400, 0x7f00_0000_2000);
        let third = segment(0x3333_3333, 0x64, 0x7f00_0000_3000);
        let entries = [read(44, first), read(44, second), read(44, third)];
        let list = [
            1,
            44,
            0x1111_1111,
            0x400,
            0x7f00,
            0x1000,
            1,
            44,
            0x2222_2222,
            0x400,
            0x7f00,
            0x2000,
            1,
            44,
            0x3333_3333,
            0x64,
            0x7f00,
            0x3000,
            0,
        ];
        assert!(writes(&entries, &[], None, &[&list, &[0, 0]]));
        let entries = [
            read(44, first),
            read(1144, segment(0x2222_2222, 0x800, 0x7f00_0000_2000)),
        ];
        let list = [
            1,
            44,
            0x1111_1111,
            0x400,
            0x7f00,
            0x1000,
            1,
            0x478,
            0x2222_2222,
            0x800,
            0x7f00,
            0x2000,
            0,
        ];
        assert!(writes(&entries, &[], None, &[&list, &[0, 0]]));
        assert!(writes(&[], &[], None, &[&[0, 0, 0]]));

        let chunks: [&[Segment]; 2] = [
            &[
                segment(0x1111_1111, 0x1000, 0x7f00_0000_1000),
                segment(0x2222_2222, 0x1000, 0x7f00_0000_2000),
                third,
            ],
            &[
                segment(0x4444_4444, 0x2000, 0x7f00_0001_0000),
                segment(0x5555_5555, 0x2000, 0x7f00_0002_0000),
            ],
        ];
        let list = [
            1,
            3,
            0x1111_1111,
            0x1000,
            0x7f00,
            0x1000,
            0x2222_2222,
            0x1000,
            0x7f00,
            0x2000,
            0x3333_3333,
            0x64,
            0x7f00,
            0x3000,
            1,
            2,
            0x4444_4444,
            0x2000,
            0x7f00,
            0x1_0000,
            0x5555_5555,
            0x2000,
            0x7f00,
            0x2_0000,
            0,
        ];
        assert!(writes(&[], &chunks, None, &[&[0], &list, &[0]]));

        let chunk = [
            segment(0x1111_1111, 0x1_0000, 0x7f00_0001_0000),
            segment(0x2222_2222, 0x1000, 0x7f00_0002_0000),
        ];
        let words = [
            1,
            2,
            0x1111_1111,
            0x1_0000,
            0x7f00,
            0x1_0000,
            0x2222_2222,
            0x1000,
            0x7f00,
            0x2_0000,
        ];
        assert!(writes(&[], &[], Some(&chunk), &[&[0, 0], &words]));
    }

    /// Proves: V1-001, V1-003, V1-010, V1-011, V1-088, V1-097, V1-098, V1-104, V1-105, V2-001.
    /// Proves: V2-014.
    #[test]
    fn the_smallest_messages_have_28_bytes_of_header() {
        for version in [VERSION_ONE, VERSION_TWO] {
            let call = Message::written(|buffer| {
                let fixed = fixed(version, Procedure::Msg);
                encode_call(buffer, &fixed, [], [NONE; 0], NONE).ok()
            });
            let words = [0xa1b2_c3d4, version, 32, 0, 0, 0, 0];
            assert_eq!(call.as_ref().map(Message::words), Some(words.as_slice()));
        }
        let mut words = [0; 17];
        let header = [0xa1b2_c3d4, VERSION_ONE, 32, 0, 0, 0, 0];
        for (slot, word) in words.iter_mut().zip(header.into_iter().chain(NULL_CALL)) {
            *slot = word;
        }
        let message = Message::of(&words);
        let bytes = message.as_ref().map(Message::bytes).unwrap_or_default();
        assert_eq!(bytes.get(4..8), Some([0, 0, 0, 1].as_slice()));
        let call = call(bytes);
        assert_eq!(call.map(|call| call.index.header_len), Some(28));
        let payload = call.and_then(|call| call.payload);
        assert_eq!(payload.map(<[u8]>::len), Some(40));
        // The RPC message follows at once, with the XID and then the message type.
        assert_eq!(bytes.get(28..32), bytes.get(..4));
        assert_eq!(bytes.get(32..36), Some([0; 4].as_slice()));

        for (slot, word) in words.iter_mut().skip(7).zip(NULL_REPLY) {
            *slot = word;
        }
        let message = Message::of(words.get(..13).unwrap_or_default());
        let bytes = message.as_ref().map(Message::bytes).unwrap_or_default();
        let received = decode_received(bytes, Versions::ONE);
        let reply = match received {
            Ok(Received::Reply(reply)) => Some((reply.fixed.xid.0, reply.header_len)),
            _ => None,
        };
        assert_eq!(reply, Some((0xa1b2_c3d4, 28)));
    }

    /// The memory that the Read segments of the examples name.
    const DATA: Source = Source::Read {
        handle: 1,
        offset: 0,
    };

    /// The pieces of a Call: where, how long, and where from.
    fn pieces<'a>(call: &ReceivedCall<'a>) -> impl Iterator<Item = (u32, u32, Source)> + 'a {
        let stream = call.stream();
        stream.map(|piece| (piece.at, piece.length, piece.source))
    }

    /// The Call in `bytes`.
    fn call(bytes: &[u8]) -> Option<ReceivedCall<'_>> {
        match decode_call(bytes, Versions::ONE) {
            Ok(ReceivedByResponder::Call(call)) => Some(call),
            _ => None,
        }
    }

    /// Proves: V1-003, V1-130, V1-131, V1-164.
    #[test]
    fn little_endian_words_are_another_version() {
        let words = [0xa1b2_c3d4, VERSION_ONE, 32, 0, 0, 0, 0, 0xa1b2_c3d4, 0];
        let mut version_only = words;
        if let Some(word) = version_only.get_mut(1) {
            *word = word.swap_bytes();
        }
        for words in [version_only, words.map(u32::swap_bytes)] {
            let message = Message::of(&words);
            let bytes = message.as_ref().map(Message::bytes).unwrap_or_default();
            let refused = decode_call(bytes, Versions::ONE).err();
            assert_eq!(
                refused.map(|refused| refused.error),
                Some(CallError::Header(HeaderError::Version))
            );
            let answer = refused.map(|refused| refused.at_responder());
            let echoed = match answer {
                Some(ResponderRefusal::Answer(error)) => Some(error.version),
                _ => None,
            };
            assert_eq!(echoed, Some(VERSION_ONE.swap_bytes()));
        }
    }

    /// Proves: V1-005, V1-120.
    #[test]
    fn handles_and_offsets_may_have_any_value() {
        for segment in [
            segment(u32::MAX, 1, u64::MAX),
            segment(0, u32::MAX, 0),
            segment(1, 0x1_0000, 0xffff_ffff_ffff_0000),
            segment(u32::MAX, 0, u64::MAX),
        ] {
            let message = header(&[read(8, segment)], &[&[segment]], Some(&[segment]));
            let bytes = message.as_ref().map(Message::bytes).unwrap_or_default();
            let lists = Lists::decode(&mut Reader::new(bytes.get(FIXED_LEN..).unwrap_or_default()));
            assert!(lists.is_ok());
            let Ok(lists) = lists else { return };
            assert!(lists.reads.segments().eq([read(8, segment)]));
            let mut chunks = lists.writes.chunks().chain(lists.reply);
            assert!(chunks.all(|chunk| chunk.segments().eq([segment])));
        }
    }

    /// Proves: V1-039, V1-041, V1-042, V1-045, V1-046, V1-050, V1-052, V1-053.
    #[test]
    fn a_chunk_takes_the_data_and_leaves_the_word_before_it() {
        // An opaque item of 3003 bytes: its count, or the word that says that it is there, is the
        // last one of the first part.
        let shape = RpcShape {
            call: Side {
                len: Parts {
                    head: 44,
                    pages: 3003,
                    tail: 1 + 8,
                },
                segments: Parts {
                    head: 1,
                    pages: 3,
                    tail: 1,
                },
                pages_eligible: true,
            },
            reply: Side::default(),
        };
        let limits = PlanLimits {
            inline_send: 1024,
            inline_receive: 1024,
            max_segments: 16,
        };
        let plan = plan(&shape, &limits);
        let form = CallForm::ReadChunk {
            position: 44,
            tail_skip: 1,
        };
        let expected = Ok((form, Procedure::Msg, 44 + 8));
        assert_eq!(
            plan.map(|plan| (plan.call, plan.procedure(), plan.inline_len)),
            expected
        );

        let message = Message::written(|buffer| {
            let lengths = [1000, 1001, 1002].into_iter();
            let reads = lengths.map(|length| read(44, segment(1, length, 0)));
            let fixed = fixed(VERSION_ONE, Procedure::Msg);
            let header = encode_call(buffer, &fixed, reads, [NONE; 0], NONE).ok()?;
            let mut writer = Writer::new(buffer.get_mut(header..)?);
            for word in NULL_CALL.into_iter().chain([3003, 7, 8]) {
                writer.put_u32(word).ok()?;
            }
            header.checked_add(writer.position())
        });
        let bytes = message.as_ref().map(Message::bytes).unwrap_or_default();
        let call = call(bytes);
        assert!(call.is_some());
        let Some(call) = call else { return };
        let count = call.payload.and_then(|payload| payload.get(40..44));
        assert_eq!(count, Some([0, 0, 0x0b, 0xbb].as_slice()));
        assert_eq!(call.payload.map(<[u8]>::len), Some(44 + 8));
        let stream = [
            (0, 44, Source::Inline(0)),
            (44, 1000, DATA),
            (1044, 1001, DATA),
            (2045, 1002, DATA),
            (3047, 1, Source::RoundUp),
            (3048, 8, Source::Inline(44)),
        ];
        assert!(pieces(&call).eq(stream));
        assert!(call.has_counts());
    }

    /// Proves: V1-077, V1-078, V1-080.
    #[test]
    fn a_small_call_may_be_a_long_one() {
        let message = Message::written(|buffer| {
            let fixed = fixed(VERSION_ONE, Procedure::Nomsg);
            let reads = [read(0, segment(1, 40, 0))];
            encode_call(buffer, &fixed, reads, [NONE; 0], NONE).ok()
        });
        let bytes = message.as_ref().map(Message::bytes).unwrap_or_default();
        assert_eq!(bytes.len(), 52);
        let call = call(bytes);
        assert_eq!(call.map(|call| call.payload.is_some()), Some(false));
        let stream = call.map(|call| pieces(&call).eq([(0, 40, DATA)]));
        assert_eq!(stream, Some(true));
    }

    /// Proves: BD-008, BD-021, BD-022, BD-023, BD-024, BD-025, BD-026, BD-027.
    #[test]
    fn backward_messages_have_no_chunks_and_the_agreed_version() {
        for version in [VERSION_ONE, VERSION_TWO] {
            for (message_type, credits) in [(0, 2), (1, 0)] {
                let message = Message::written(|buffer| {
                    let credits = Credits::new(credits);
                    let header = encode_inline(buffer, version, Xid(0x51), credits).ok()?;
                    let mut writer = Writer::new(buffer.get_mut(header..)?);
                    writer.put_u32(0x51).ok()?;
                    writer.put_u32(message_type).ok()?;
                    header.checked_add(writer.position())
                });
                let words = [
                    0x51,
                    version,
                    credits.max(1),
                    0,
                    0,
                    0,
                    0,
                    0x51,
                    message_type,
                ];
                assert_eq!(message.as_ref().map(Message::words), Some(words.as_slice()));
                let bytes = message.as_ref().map(Message::bytes).unwrap_or_default();
                let versions = Versions::ONE_AND_TWO;
                let at_client = matches!(
                    decode_received(bytes, versions),
                    Ok(Received::BackwardCall(call)) if call.fixed.version == version
                );
                assert_eq!(at_client, message_type == 0);
                let at_server = matches!(
                    decode_call(bytes, versions),
                    Ok(ReceivedByResponder::BackwardReply { .. })
                );
                assert_eq!(at_server, message_type == 1);
            }
        }
    }
}
