// SPDX-License-Identifier: GPL-2.0

//! RDMA_ERROR and its bodies (RFC 8166 section 4.5, Version Two sections 3.1 and 4.2).

use super::header::{Credits, FixedHeader, Procedure, Versions, Xid, VERSION_TWO};
use super::malformed::HeaderError;
use super::xdr::{NoSpace, Reader, Writer};

/// `rdma_err` of an unsupported version (RFC 8166 section 4.5.1).
const ERR_VERS: u32 = 1;

/// `rdma_err` of a header that cannot be decoded or used (RFC 8166 section 4.5.2).
const ERR_CHUNK: u32 = 2;

/// `rdma_err` of an option that the receiver does not support (Version Two section 3.1).
const ERR_INVAL_OPTION: u32 = 3;

/// The body of an RDMA_ERROR message (RFC 8166 section 4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorBody {
    /// ERR_VERS: the version is not supported; these versions are. The range of a peer may be
    /// empty.
    Version(Versions),
    /// ERR_CHUNK, also known as RDMA_ERR_BADHEADER and RDMA_ERR_BAD_HEADER: the header cannot be
    /// decoded or used.
    Chunk,
    /// RDMA_ERR_INVAL_OPTION, of Version Two only: the option is not supported.
    InvalidOption,
}

impl ErrorBody {
    /// Decodes the body of a received RDMA_ERROR of `version`.
    ///
    /// # Errors
    ///
    /// [`HeaderError::ErrorCode`] for a code that the version does not define,
    /// [`HeaderError::Truncated`] if the body is not all there.
    pub(crate) fn decode(reader: &mut Reader<'_>, version: u32) -> Result<Self, HeaderError> {
        match reader.decode_u32()? {
            ERR_VERS => Ok(Self::Version(Versions {
                low: reader.decode_u32()?,
                high: reader.decode_u32()?,
            })),
            ERR_CHUNK => Ok(Self::Chunk),
            ERR_INVAL_OPTION if version == VERSION_TWO => Ok(Self::InvalidOption),
            _ => Err(HeaderError::ErrorCode),
        }
    }

    /// Appends the body.
    fn put(self, writer: &mut Writer<'_>) -> Result<(), NoSpace> {
        match self {
            Self::Version(Versions { low, high }) => writer.put_words([ERR_VERS, low, high]),
            Self::Chunk => writer.put_u32(ERR_CHUNK),
            Self::InvalidOption => writer.put_u32(ERR_INVAL_OPTION),
        }
    }
}

/// An RDMA_ERROR message, sent or received (RFC 8166 section 4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ErrorMessage {
    /// The transaction that failed.
    pub(crate) xid: Xid,
    /// The version word of the refused message, even if the version is unsupported.
    pub(crate) version: u32,
    /// What was wrong.
    pub(crate) body: ErrorBody,
}

impl FixedHeader {
    /// An RDMA_ERROR with the same XID and version (RFC 8166 section 4.5).
    pub(crate) const fn error(&self, body: ErrorBody) -> ErrorMessage {
        ErrorMessage {
            xid: self.xid,
            version: self.version,
            body,
        }
    }
}

impl ErrorMessage {
    /// Writes the message into `buffer` and returns its length, 20 or 28 bytes.
    ///
    /// No RFC says what the credit word of an error means; `credits` is the value in effect.
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
#[cfg_attr(rpcrdma_kunit, kernel::macros::kunit_tests(rpcrdma_proto_error))]
mod tests {
    use super::super::header::{FIXED_LEN, VERSION_ONE};
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

    #[test]
    fn bodies_are_read_back() {
        for (bytes, body) in [
            (
                VERSION_REFUSED.as_slice(),
                ErrorBody::Version(Versions::ONE),
            ),
            (HEADER_REFUSED.as_slice(), ErrorBody::Chunk),
        ] {
            let mut reader = Reader::new(bytes);
            assert!(FixedHeader::decode(&mut reader).is_ok());
            assert_eq!(reader.position(), FIXED_LEN);
            assert_eq!(ErrorBody::decode(&mut reader, VERSION_ONE), Ok(body));
        }
    }
}
