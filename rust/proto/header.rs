// SPDX-License-Identifier: GPL-2.0

//! The four fixed words, the procedures and the bodies of RDMA_ERROR (RFC 8166 sections 4.2, 4.5).

use super::cursor::{Cause, Malformed, NoSpace, Reader, Writer};

/// Version word of RPC-over-RDMA Version One (RFC 8166 section 4.2.2).
pub(crate) const VERSION_ONE: u32 = 1;

/// Version word of RPC-over-RDMA Version Two (draft-cel-nfsv4-rpcrdma-version-two-00).
#[cfg(rpcrdma_selftest)]
pub(crate) const VERSION_TWO: u32 = 2;

/// Bytes of the four fixed words, the same in every version (RFC 8166 section 4.2).
pub(crate) const FIXED_LEN: usize = 16;

/// Bytes of the smallest RDMA_MSG or RDMA_NOMSG header: the fixed words and three empty lists.
pub(crate) const MIN_HEADER_LEN: u32 = 28;

/// `rdma_err` of an unsupported version (RFC 8166 section 4.5.1).
const ERR_VERS: u32 = 1;

/// `rdma_err` of a header that cannot be decoded or used (RFC 8166 section 4.5.2).
const ERR_CHUNK: u32 = 2;

/// `rdma_err` of an option that the receiver does not support (Version Two section 3.1).
#[cfg(rpcrdma_selftest)]
const ERR_INVAL_OPTION: u32 = 3;

/// A transaction identifier, the same number as in the RPC header (RFC 8166 section 4.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Xid(pub(crate) u32);

/// A credit value, requested or granted, never 0 (RFC 8166 sections 3.3.1 and 4.2.3).
///
/// The credit word may not be 0 on the wire. A received 0 counts as 1, as otherwise the
/// connection could not make progress any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Credits(u32);

impl Credits {
    /// Makes a credit value; 0 becomes 1.
    pub(crate) const fn new(value: u32) -> Self {
        Self(if value == 0 { 1 } else { value })
    }

    /// The number of messages, at least 1.
    pub(crate) const fn get(self) -> u32 {
        self.0
    }
}

/// The versions that an endpoint supports, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Versions {
    /// Lowest version.
    pub(crate) low: u32,
    /// Highest version.
    pub(crate) high: u32,
}

impl Versions {
    /// An endpoint that speaks Version One only.
    pub(crate) const ONE: Self = Self {
        low: VERSION_ONE,
        high: VERSION_ONE,
    };

    /// An endpoint that speaks Versions One and Two.
    #[cfg(rpcrdma_selftest)]
    pub(crate) const ONE_AND_TWO: Self = Self {
        low: VERSION_ONE,
        high: VERSION_TWO,
    };

    /// Whether `version` is supported.
    pub(crate) const fn contains(self, version: u32) -> bool {
        self.low <= version && version <= self.high
    }
}

/// What follows the fixed words (RFC 8166 section 4.2.4, Version Two section 4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Procedure {
    /// RDMA_MSG: chunk lists, then the RPC message or what the chunks leave of it.
    Msg,
    /// RDMA_NOMSG: chunk lists only; a chunk holds the RPC message.
    Nomsg,
    /// RDMA_MSGP, retired: never sent, refused when received.
    Msgp,
    /// RDMA_DONE, retired: never sent, refused when received.
    Done,
    /// RDMA_ERROR: an [`ErrorBody`].
    Error,
    /// RDMA_OPTIONAL, of Version Two only: an [`super::optional::Optional`].
    #[cfg(rpcrdma_selftest)]
    Optional,
    /// A value that the version does not define.
    Undefined(u32),
}

impl Procedure {
    /// Names the value of the fourth word in a message of `version`.
    const fn from_wire(version: u32, word: u32) -> Self {
        match (version, word) {
            (_, 0) => Self::Msg,
            (_, 1) => Self::Nomsg,
            (_, 2) => Self::Msgp,
            (_, 3) => Self::Done,
            (_, 4) => Self::Error,
            #[cfg(rpcrdma_selftest)]
            (VERSION_TWO, 5) => Self::Optional,
            (_, other) => Self::Undefined(other),
        }
    }

    /// The value of the fourth word.
    const fn to_wire(self) -> u32 {
        match self {
            Self::Msg => 0,
            Self::Nomsg => 1,
            Self::Msgp => 2,
            Self::Done => 3,
            Self::Error => 4,
            #[cfg(rpcrdma_selftest)]
            Self::Optional => 5,
            Self::Undefined(other) => other,
        }
    }
}

/// The four fixed words of every message of every version (RFC 8166 section 4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FixedHeader {
    /// The transaction.
    pub(crate) xid: Xid,
    /// The version word, whatever it was.
    pub(crate) version: u32,
    /// Credits requested by a Call, granted by a Reply.
    pub(crate) credits: Credits,
    /// What follows.
    pub(crate) procedure: Procedure,
}

impl FixedHeader {
    /// Takes the fixed words; their values are not checked.
    ///
    /// # Errors
    ///
    /// [`Cause::Truncated`] if they are not all there.
    pub(crate) fn take(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let [xid, version, credits, procedure] = reader.take_four()?;
        Ok(Self {
            xid: Xid(xid),
            version,
            credits: Credits::new(credits),
            procedure: Procedure::from_wire(version, procedure),
        })
    }

    /// Appends the fixed words.
    ///
    /// # Errors
    ///
    /// [`NoSpace`] if they do not fit.
    pub(crate) fn put(&self, writer: &mut Writer<'_>) -> Result<(), NoSpace> {
        writer.put_four([
            self.xid.0,
            self.version,
            self.credits.get(),
            self.procedure.to_wire(),
        ])
    }
}

/// The body of an RDMA_ERROR message (RFC 8166 section 4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorBody {
    /// ERR_VERS: the version is not supported; these are. The range of a peer may be empty.
    Version(Versions),
    /// ERR_CHUNK, also known as RDMA_ERR_BADHEADER and RDMA_ERR_BAD_HEADER: the header cannot be
    /// decoded or used.
    Chunk,
    /// RDMA_ERR_INVAL_OPTION, of Version Two only: the option is not supported.
    #[cfg(rpcrdma_selftest)]
    InvalidOption,
}

impl ErrorBody {
    /// Takes the body of a received RDMA_ERROR of `version`.
    ///
    /// # Errors
    ///
    /// [`Cause::ErrorCode`] for a code that the version does not define, [`Cause::Truncated`] if
    /// the body is not all there.
    pub(crate) fn take(reader: &mut Reader<'_>, version: u32) -> Result<Self, Malformed> {
        let at = reader.position();
        match (version, reader.take_u32()?) {
            (_, ERR_VERS) => Ok(Self::Version(Versions {
                low: reader.take_u32()?,
                high: reader.take_u32()?,
            })),
            (_, ERR_CHUNK) => Ok(Self::Chunk),
            #[cfg(rpcrdma_selftest)]
            (VERSION_TWO, ERR_INVAL_OPTION) => Ok(Self::InvalidOption),
            _ => Err(Malformed::new(Cause::ErrorCode, at)),
        }
    }

    /// Appends the body.
    fn put(self, writer: &mut Writer<'_>) -> Result<(), NoSpace> {
        match self {
            Self::Version(Versions { low, high }) => {
                writer.put_u32(ERR_VERS)?;
                writer.put_u32(low)?;
                writer.put_u32(high)
            }
            Self::Chunk => writer.put_u32(ERR_CHUNK),
            #[cfg(rpcrdma_selftest)]
            Self::InvalidOption => writer.put_u32(ERR_INVAL_OPTION),
        }
    }
}

/// An RDMA_ERROR message, sent or received (RFC 8166 section 4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ErrorMessage {
    /// The transaction that failed.
    pub(crate) xid: Xid,
    /// The version word of the refused message, even of an unsupported one.
    pub(crate) version: u32,
    /// What was wrong.
    pub(crate) body: ErrorBody,
}

impl ErrorMessage {
    /// Writes the message into `buffer` and returns its length, 20 or 28 bytes.
    ///
    /// No text says what the credit word of an error means; `credits` is the value in effect.
    ///
    /// # Errors
    ///
    /// [`NoSpace`] if the message does not fit.
    pub(crate) fn encode(&self, buffer: &mut [u8], credits: Credits) -> Result<usize, NoSpace> {
        let mut writer = Writer::new(buffer);
        let fixed = FixedHeader {
            xid: self.xid,
            version: self.version,
            credits,
            procedure: Procedure::Error,
        };
        fixed.put(&mut writer)?;
        self.body.put(&mut writer)?;
        Ok(writer.position())
    }
}

#[cfg(any(test, rpcrdma_kunit))]
#[cfg_attr(rpcrdma_kunit, kernel::macros::kunit_tests(rpcrdma_proto_header))]
mod tests {
    use super::*;

    const VERSION_REFUSED: [u8; 28] = [
        0xa1, 0xb2, 0xc3, 0xd4, 0, 0, 0, 3, 0, 0, 0, 0x10, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0, 1, 0,
        0, 0, 1,
    ];

    const HEADER_REFUSED: [u8; 20] = [
        0xa1, 0xb2, 0xc3, 0xd4, 0, 0, 0, 1, 0, 0, 0, 0x10, 0, 0, 0, 4, 0, 0, 0, 2,
    ];

    /// Proves: V1-090, V1-123, V1-124, V1-125, V1-130.
    #[test]
    fn error_messages_have_the_exact_words() {
        let mut buffer = [0xffu8; 28];
        let version = ErrorMessage {
            xid: Xid(0xa1b2_c3d4),
            version: 3,
            body: ErrorBody::Version(Versions::ONE),
        };
        assert_eq!(version.encode(&mut buffer, Credits::new(16)), Ok(28));
        assert_eq!(buffer, VERSION_REFUSED);

        let mut buffer = [0xffu8; 20];
        let chunk = ErrorMessage {
            version: VERSION_ONE,
            body: ErrorBody::Chunk,
            ..version
        };
        assert_eq!(chunk.encode(&mut buffer, Credits::new(16)), Ok(20));
        assert_eq!(buffer, HEADER_REFUSED);
        assert_eq!(version.encode(&mut buffer, Credits::new(16)), Err(NoSpace));
    }

    /// Proves: V1-088.
    #[test]
    fn fixed_words_round_trip() {
        let mut reader = Reader::new(&HEADER_REFUSED);
        let fixed = FixedHeader {
            xid: Xid(0xa1b2_c3d4),
            version: 1,
            credits: Credits::new(16),
            procedure: Procedure::Error,
        };
        assert_eq!(FixedHeader::take(&mut reader), Ok(fixed));
        assert_eq!(
            ErrorBody::take(&mut reader, VERSION_ONE),
            Ok(ErrorBody::Chunk)
        );

        let mut buffer = [0u8; FIXED_LEN];
        let mut writer = Writer::new(&mut buffer);
        assert_eq!(fixed.put(&mut writer), Ok(()));
        assert_eq!(HEADER_REFUSED.first_chunk(), Some(&buffer));
    }

    /// Proves: V1-089, V2-015.
    #[test]
    fn procedures_keep_their_values() {
        let named = [
            Procedure::Msg,
            Procedure::Nomsg,
            Procedure::Msgp,
            Procedure::Done,
            Procedure::Error,
        ];
        for version in [VERSION_ONE, VERSION_TWO, 3] {
            for (word, name) in (0..).zip(named) {
                assert_eq!(Procedure::from_wire(version, word), name);
            }
            for word in [0, 1, 2, 3, 4, 5, 6, 0x0100_0000, u32::MAX] {
                assert_eq!(Procedure::from_wire(version, word).to_wire(), word);
            }
        }
        assert_eq!(Procedure::from_wire(VERSION_TWO, 5), Procedure::Optional);
        for (version, word) in [(VERSION_ONE, 5), (3, 5), (VERSION_TWO, 6)] {
            let undefined = Procedure::Undefined(word);
            assert_eq!(Procedure::from_wire(version, word), undefined);
        }
    }

    /// Proves: V1-016, V1-023, BD-008.
    #[test]
    fn zero_credits_count_as_one() {
        assert_eq!(Credits::new(0).get(), 1);
        assert_eq!(Credits::new(u32::MAX).get(), u32::MAX);
    }
}
