// SPDX-License-Identifier: GPL-2.0

//! The four fixed words, the versions and the procedures (RFC 8166 section 4.2).

use crate::proto::wire::malformed::HeaderError;
use crate::proto::wire::xdr::{NoSpace, Reader, Writer};

/// Version word of RPC-over-RDMA Version One (RFC 8166 section 4.2.2).
pub(crate) const VERSION_ONE: u32 = 1;

/// Version word of RPC-over-RDMA Version Two (draft-cel-nfsv4-rpcrdma-version-two-00 section 4.2).
pub(crate) const VERSION_TWO: u32 = 2;

/// Bytes of the four fixed words, the same in every version (RFC 8166 section 4.2).
pub(crate) const FIXED_LEN: usize = 16;

/// Bytes of the smallest RDMA_MSG or RDMA_NOMSG header: the fixed words and three empty lists.
pub(crate) const MIN_HEADER_LEN: u32 = 28;

/// A transaction identifier, the same number as in the RPC header (RFC 8166 section 4.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Xid(pub(crate) u32);

/// A credit value, requested or granted, never 0 (RFC 8166 sections 3.3.1 and 4.2.3).
///
/// The credit word must not be 0 on the wire. A received 0 counts as 1, as otherwise the connection
/// could make no progress.
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

/// The range of versions that an endpoint supports, both bounds included.
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
    pub(crate) const ONE_AND_TWO: Self = Self {
        low: VERSION_ONE,
        high: VERSION_TWO,
    };

    /// An endpoint that speaks Version Two only.
    pub(crate) const TWO: Self = Self {
        low: VERSION_TWO,
        high: VERSION_TWO,
    };

    /// Whether `version` is supported.
    pub(crate) const fn contains(self, version: u32) -> bool {
        self.low <= version && version <= self.high
    }
}

/// What follows the fixed words (RFC 8166 section 4.2.4).
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
    /// RDMA_ERROR: an [`ErrorBody`](super::error::ErrorBody).
    Error,
    /// A value that Version One does not define. In Version Two 5 is RDMA_OPTIONAL.
    Undefined(u32),
}

impl Procedure {
    /// Interprets the fourth word of a message of `version`.
    const fn from_wire(word: u32) -> Self {
        match word {
            0 => Self::Msg,
            1 => Self::Nomsg,
            2 => Self::Msgp,
            3 => Self::Done,
            4 => Self::Error,
            other => Self::Undefined(other),
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
            Self::Undefined(other) => other,
        }
    }
}

/// The four fixed words of every message of every version (RFC 8166 section 4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FixedHeader {
    /// The transaction.
    pub(crate) xid: Xid,
    /// The version word, whatever its value.
    pub(crate) version: u32,
    /// Credits requested by a Call, granted by a Reply.
    pub(crate) credits: Credits,
    /// What follows.
    pub(crate) procedure: Procedure,
}

impl FixedHeader {
    /// Decodes the fixed words without checking their values.
    ///
    /// # Errors
    ///
    /// [`HeaderError::Truncated`] if they are not all there.
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self, HeaderError> {
        let [xid, version, credits, procedure] = reader.decode_words()?;
        Ok(Self {
            xid: Xid(xid),
            version,
            credits: Credits::new(credits),
            procedure: Procedure::from_wire(procedure),
        })
    }

    /// Appends the fixed words.
    ///
    /// # Errors
    ///
    /// [`NoSpace`] if they do not fit.
    pub(crate) fn put(&self, writer: &mut Writer<'_>) -> Result<(), NoSpace> {
        writer.put_words([
            self.xid.0,
            self.version,
            self.credits.get(),
            self.procedure.to_wire(),
        ])
    }
}

#[cfg(any(test, rpcrdma_kunit))]
#[cfg_attr(rpcrdma_kunit, kernel::macros::kunit_tests(rpcrdma_proto_header))]
mod tests {
    use super::*;

    /// The fixed words of an RDMA_ERROR.
    const FIXED: [u8; FIXED_LEN] = [
        0xa1, 0xb2, 0xc3, 0xd4, 0, 0, 0, 1, 0, 0, 0, 0x10, 0, 0, 0, 4,
    ];

    /// Proves: V1-088.
    #[test]
    fn fixed_words_round_trip() {
        let mut reader = Reader::new(&FIXED);
        let fixed = FixedHeader {
            xid: Xid(0xa1b2_c3d4),
            version: 1,
            credits: Credits::new(16),
            procedure: Procedure::Error,
        };
        assert_eq!(FixedHeader::decode(&mut reader), Ok(fixed));

        let mut buffer = [0u8; FIXED_LEN];
        let mut writer = Writer::new(&mut buffer);
        assert_eq!(fixed.put(&mut writer), Ok(()));
        assert_eq!(FIXED, buffer);
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
        for (word, name) in (0..).zip(named) {
            assert_eq!(Procedure::from_wire(word), name);
        }
        for word in [0, 1, 2, 3, 4, 5, 6, 0x0100_0000, u32::MAX] {
            assert_eq!(Procedure::from_wire(word).to_wire(), word);
        }
        assert_eq!(Procedure::from_wire(5), Procedure::Undefined(5));
    }

    /// Proves: V1-016, V1-023, BD-008.
    #[test]
    fn zero_credits_count_as_one() {
        assert_eq!(Credits::new(0).get(), 1);
        assert_eq!(Credits::new(u32::MAX).get(), u32::MAX);
    }
}
