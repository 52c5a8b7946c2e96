// SPDX-License-Identifier: GPL-2.0

//! Tests of RDMA_OPTIONAL and of the third error code.

#[cfg_attr(rpcrdma_kunit, kernel::macros::kunit_tests(rpcrdma_proto_optional))]
mod tests {
    use crate::proto::message::{Message, Refused};
    use crate::proto::requester::decode::{
        decode_received, Received, ReplyError, RequesterRefusal,
    };
    use crate::proto::responder::decode::ReceivedByResponder;
    use crate::proto::responder::refusal::{CallError, ResponderRefusal};
    use crate::proto::testing::options::{encode_option, OptionMessage};
    use crate::proto::testing::responder::decode::decode_call;
    use crate::proto::v2::options::Optional;
    use crate::proto::wire::error::{ErrorBody, ErrorMessage};
    use crate::proto::wire::header::{Credits, Versions, Xid, VERSION_ONE, VERSION_TWO};
    use crate::proto::wire::malformed::HeaderError;
    use crate::proto::wire::xdr::NoSpace;

    const HELLO: [u8; 32] = [
        0, 0, 0, 0x2a, 0, 0, 0, 2, 0, 0, 0, 0x20, 0, 0, 0, 5, 0, 0, 0, 7, 0, 0, 0, 5, b'h', b'e',
        b'l', b'l', b'o', 0, 0, 0,
    ];

    const OPTION: Optional<'static> = Optional {
        opttype: 7,
        optinfo: b"hello",
    };

    const BOTH: Versions = Versions::ONE_AND_TWO;

    /// What is refused of an option, and how.
    fn refused(bytes: &[u8]) -> Option<Refused> {
        Message::decode(bytes, BOTH).err()
    }

    /// The answer to a message of `version` with the XID of `HELLO`.
    fn error(version: u32, body: ErrorBody) -> Option<ErrorMessage> {
        Some(ErrorMessage {
            xid: Xid(0x2a),
            version,
            body,
        })
    }

    /// Proves: V1-085, V2-007, V2-014, V2-015.
    #[test]
    fn options_have_the_exact_words() {
        let mut buffer = [0xffu8; 32];
        let length = encode_option(&OPTION, &mut buffer, Xid(0x2a), Credits::new(32));
        assert_eq!(length, Ok(32));
        assert_eq!(buffer, HELLO);

        let empty = Optional {
            optinfo: &[],
            ..OPTION
        };
        let length = encode_option(&empty, &mut buffer, Xid(0x2a), Credits::new(32));
        assert_eq!(length, Ok(24));
        assert_eq!(
            buffer.get(16..24),
            Some([0, 0, 0, 7, 0, 0, 0, 0].as_slice())
        );
        let short = buffer.get_mut(..23).unwrap_or_default();
        let length = encode_option(&empty, short, Xid(0x2a), Credits::new(32));
        assert_eq!(length, Err(NoSpace));
    }

    /// Proves: V2-022.
    #[test]
    fn a_payload_may_follow() {
        let mut bytes = [9; 40];
        for (slot, byte) in bytes.iter_mut().zip(HELLO) {
            *slot = byte;
        }
        for (end, rest) in [(32, [].as_slice()), (40, &[9; 8])] {
            let bytes = bytes.get(..end).unwrap_or_default();
            let found = OptionMessage::decode(bytes, BOTH).and_then(Result::ok);
            let found = found.map(|found| (found.header_len, found.option, found.payload));
            assert_eq!(found, Some((32, OPTION, rest)));
        }
    }

    /// Proves: V2-008, V2-009, V2-010, V2-012.
    #[test]
    fn either_end_refuses_every_option() {
        for opttype in [0, 7, 0x0700_0000, u32::MAX] {
            let option = Optional { opttype, ..OPTION };
            let mut bytes = [0; 40];
            let length = encode_option(&option, &mut bytes, Xid(0x2a), Credits::new(32));
            assert_eq!(length, Ok(32));
            // Whatever follows: here it could be the start of an RPC message.
            for end in [32, 40] {
                let bytes = bytes.get(..end).unwrap_or_default();
                let answer = error(VERSION_TWO, ErrorBody::InvalidOption);
                let refused = decode_call(bytes, BOTH).err();
                let at_responder = refused.map(|refused| refused.at_responder());
                assert_eq!(at_responder, answer.map(ResponderRefusal::Answer));
                // It is no Reply, even if a Call has its XID.
                for awaited in [false, true] {
                    let refused = decode_received(bytes, BOTH).err();
                    let at_requester = refused.map(|refused| refused.at_requester(awaited, false));
                    assert_eq!(at_requester, answer.map(RequesterRefusal::Answer));
                }
            }
        }
        let mut answer = [0; 20];
        let length = error(VERSION_TWO, ErrorBody::InvalidOption)
            .map(|error| error.encode(&mut answer, Credits::new(32)));
        assert_eq!(length, Some(Ok(20)));
        let words = [
            0, 0, 0, 0x2a, 0, 0, 0, 2, 0, 0, 0, 32, 0, 0, 0, 4, 0, 0, 0, 3,
        ];
        assert_eq!(answer, words);
    }

    /// Proves: V2-006, V2-011.
    #[test]
    fn a_broken_option_is_a_bad_header() {
        for length in 16..HELLO.len() {
            let bytes = HELLO.get(..length).unwrap_or_default();
            let at = if length < 20 { 16 } else { 20 };
            let refused = refused(bytes);
            let why = refused.map(|refused| (refused.error, refused.at));
            assert_eq!(why, Some((HeaderError::Truncated, at)));
            let answer = refused.and_then(|refused| refused.answer(ErrorBody::Chunk));
            assert_eq!(answer, error(VERSION_TWO, ErrorBody::Chunk));
            let refused = decode_received(bytes, BOTH).err();
            let at_requester = refused.map(|refused| refused.at_requester(true, false));
            assert_eq!(at_requester, answer.map(RequesterRefusal::Answer));
        }
    }

    /// Proves: V2-015, V2-018, V2-019.
    #[test]
    fn other_procedures_and_versions_do_not_have_it() {
        for (at, value, version, body) in [
            (7, 1, VERSION_ONE, ErrorBody::Chunk),
            (7, 3, 3, ErrorBody::Version(BOTH)),
            (15, 2, VERSION_TWO, ErrorBody::Chunk),
            (15, 3, VERSION_TWO, ErrorBody::Chunk),
            (15, 6, VERSION_TWO, ErrorBody::Chunk),
            (12, 0xff, VERSION_TWO, ErrorBody::Chunk),
        ] {
            let mut bytes = HELLO;
            if let Some(slot) = bytes.get_mut(at) {
                *slot = value;
            }
            assert!(OptionMessage::decode(&bytes, BOTH).is_none());
            let refused = decode_call(&bytes, BOTH).err();
            let answered = refused.map(|refused| refused.at_responder());
            let expected = error(version, body).map(ResponderRefusal::Answer);
            assert_eq!(answered, expected);
        }
        assert!(OptionMessage::decode(&HELLO, BOTH).is_some());
        assert!(OptionMessage::decode(&HELLO, Versions::ONE).is_none());
    }

    /// Proves: V2-016, V2-020.
    #[test]
    fn the_third_error_code_belongs_to_version_two() {
        let mut bytes = [0xffu8; 20];
        let length = error(VERSION_TWO, ErrorBody::InvalidOption)
            .map(|error| error.encode(&mut bytes, Credits::new(32)));
        assert_eq!(length, Some(Ok(20)));
        assert_eq!(bytes.get(16..), Some([0, 0, 0, 3].as_slice()));
        for (version, code, good) in [(2, 3, true), (2, 4, false), (2, 0, false), (1, 3, false)] {
            if let Some(slot) = bytes.get_mut(7) {
                *slot = version;
            }
            if let Some(slot) = bytes.get_mut(19) {
                *slot = code;
            }
            let at_responder = decode_call(&bytes, BOTH);
            let at_requester = decode_received(&bytes, BOTH);
            if good {
                let expected = error(VERSION_TWO, ErrorBody::InvalidOption);
                let found = match at_responder {
                    Ok(ReceivedByResponder::Error(error)) => Some(error),
                    _ => None,
                };
                assert_eq!(found, expected);
                let found = match at_requester {
                    Ok(Received::Error(error)) => Some(error),
                    _ => None,
                };
                assert_eq!(found, expected);
                continue;
            }
            let refusal = at_responder.err();
            let refusal = refusal.map(|refused| (refused.error, refused.at_responder()));
            let code = CallError::Header(HeaderError::ErrorCode);
            assert_eq!(refusal, Some((code, ResponderRefusal::Discard)));
            let why = at_requester.err().map(|refused| refused.error);
            assert_eq!(why, Some(ReplyError::Header(HeaderError::ErrorCode)));
        }
    }
}
