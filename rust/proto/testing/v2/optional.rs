// SPDX-License-Identifier: GPL-2.0

//! RDMA_OPTIONAL, by which Version Two is extended
//! (draft-cel-nfsv4-rpcrdma-version-two-00 sections 3.1 and 4.2).
//!
//! The base protocol defines no option, so that a receiver answers each of them with
//! RDMA_ERR_INVAL_OPTION.

use super::opaque::{put_opaque, take_opaque};
use crate::proto::testing::v2::VERSION_TWO;
use crate::proto::wire::header::{Credits, FixedHeader, Procedure, Xid};
use crate::proto::wire::malformed::Malformed;
use crate::proto::wire::xdr::{NoSpace, Reader, Writer};

/// The procedure of an RDMA_OPTIONAL message (`RDMA_OPTIONAL`).
pub(crate) const OPTIONAL: Procedure = Procedure::Undefined(5);

/// The body of an RDMA_OPTIONAL message. An RPC message may follow it in the same Send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Optional<'a> {
    /// The number of the optional operation (`rdma_opttype`).
    pub(crate) opttype: u32,
    /// Data that only the operation gives a meaning (`rdma_optinfo`), without its pad bytes.
    pub(crate) optinfo: &'a [u8],
}

impl<'a> Optional<'a> {
    /// Takes the body.
    ///
    /// # Errors
    ///
    /// Those of [`Reader::take_u32`] and [`take_opaque`].
    pub(crate) fn take(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(Self {
            opttype: reader.take_u32()?,
            optinfo: take_opaque(reader)?,
        })
    }

    /// Writes the message into `buffer` and returns its length in bytes, a multiple of four.
    ///
    /// # Errors
    ///
    /// [`NoSpace`] if it does not fit.
    pub(crate) fn encode(
        &self,
        buffer: &mut [u8],
        xid: Xid,
        credits: Credits,
    ) -> Result<usize, NoSpace> {
        let mut writer = Writer::new(buffer);
        let fixed = FixedHeader {
            xid,
            version: VERSION_TWO,
            credits,
            procedure: OPTIONAL,
        };
        fixed.put(&mut writer)?;
        writer.put_u32(self.opttype)?;
        put_opaque(&mut writer, self.optinfo)?;
        Ok(writer.position())
    }
}

#[cfg(any(test, rpcrdma_kunit))]
#[cfg_attr(rpcrdma_kunit, kernel::macros::kunit_tests(rpcrdma_proto_optional))]
mod tests {
    use super::super::decode::{encode_invalid_option, VersionTwo};
    use super::*;
    use crate::proto::message::Refused;
    use crate::proto::requester::decode::{decode_received, ReplyError};
    use crate::proto::responder::decode::{CallError, ResponderRefusal};
    use crate::proto::testing::responder::decode::decode_call;
    use crate::proto::wire::error::{ErrorBody, ErrorMessage};
    use crate::proto::wire::header::{Versions, VERSION_ONE};
    use crate::proto::wire::malformed::HeaderError;

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
        VersionTwo::decode(bytes, BOTH)?.err()
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
        let length = OPTION.encode(&mut buffer, Xid(0x2a), Credits::new(32));
        assert_eq!(length, Ok(32));
        assert_eq!(buffer, HELLO);

        let empty = Optional {
            optinfo: &[],
            ..OPTION
        };
        let length = empty.encode(&mut buffer, Xid(0x2a), Credits::new(32));
        assert_eq!(length, Ok(24));
        assert_eq!(
            buffer.get(16..24),
            Some([0, 0, 0, 7, 0, 0, 0, 0].as_slice())
        );
        let short = buffer.get_mut(..23).unwrap_or_default();
        let length = empty.encode(short, Xid(0x2a), Credits::new(32));
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
            let found = VersionTwo::decode(bytes.get(..end).unwrap_or_default(), BOTH);
            let found = match found {
                Some(Ok((
                    fixed,
                    VersionTwo::Optional {
                        header_len: 32,
                        option,
                        payload,
                    },
                ))) => Some((fixed.xid, option, payload)),
                _ => None,
            };
            assert_eq!(found, Some((Xid(0x2a), OPTION, rest)));
        }
    }

    /// Proves: V2-008, V2-009, V2-010, V2-012.
    #[test]
    fn either_end_refuses_every_option() {
        for opttype in [0, 7, 0x0700_0000, u32::MAX] {
            let option = Optional { opttype, ..OPTION };
            let mut bytes = [0; 40];
            let length = option.encode(&mut bytes, Xid(0x2a), Credits::new(32));
            assert_eq!(length, Ok(32));
            // Whatever follows: here it could be the start of an RPC message.
            for end in [32, 40] {
                let found = VersionTwo::decode(bytes.get(..end).unwrap_or_default(), BOTH);
                let found = match found {
                    Some(Ok((fixed, VersionTwo::Optional { option, .. }))) => {
                        Some((fixed.xid, option.opttype))
                    }
                    _ => None,
                };
                assert_eq!(found, Some((Xid(0x2a), opttype)));
            }
        }
        let mut answer = [0; 20];
        let length = encode_invalid_option(&mut answer, Xid(0x2a), Credits::new(32));
        assert_eq!(length, Ok(20));
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
            let why = refused.map(|refused| (refused.why.error, refused.why.at));
            assert_eq!(why, Some((HeaderError::Truncated, at)));
            let answer = refused.and_then(|refused| refused.answer(ErrorBody::Chunk));
            assert_eq!(answer, error(VERSION_TWO, ErrorBody::Chunk));
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
            assert!(VersionTwo::decode(&bytes, BOTH).is_none());
            let refused = decode_call(&bytes, BOTH).err();
            let answered = refused.map(|refused| refused.at_responder());
            let expected = error(version, body).map(ResponderRefusal::Answer);
            assert_eq!(answered, expected);
        }
        assert!(VersionTwo::decode(&HELLO, BOTH).is_some());
        assert!(VersionTwo::decode(&HELLO, Versions::ONE).is_none());
    }

    /// Proves: V2-016, V2-020.
    #[test]
    fn the_third_error_code_belongs_to_version_two() {
        let mut bytes = [0xffu8; 20];
        let length = encode_invalid_option(&mut bytes, Xid(0x2a), Credits::new(32));
        assert_eq!(length, Ok(20));
        assert_eq!(bytes.get(16..), Some([0, 0, 0, 3].as_slice()));
        for (version, code, good) in [(2, 3, true), (2, 4, false), (2, 0, false), (1, 3, false)] {
            if let Some(slot) = bytes.get_mut(7) {
                *slot = version;
            }
            if let Some(slot) = bytes.get_mut(19) {
                *slot = code;
            }
            let found = VersionTwo::decode(&bytes, BOTH);
            let found = matches!(found, Some(Ok((_, VersionTwo::InvalidOption { .. }))));
            assert_eq!(found, good);
            // The decoders of the roles, which are asked about the rest, do not know it.
            let refused = decode_call(&bytes, BOTH).err();
            let refusal = refused.map(|refused| (refused.why.error, refused.at_responder()));
            let code = CallError::Header(HeaderError::ErrorCode);
            assert_eq!(refusal, Some((code, ResponderRefusal::Discard)));
            let refused = decode_received(&bytes, BOTH).err();
            let why = refused.map(|refused| refused.why.error);
            assert_eq!(why, Some(ReplyError::Header(HeaderError::ErrorCode)));
        }
    }
}
