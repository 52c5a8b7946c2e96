// SPDX-License-Identifier: GPL-2.0

//! RDMA_OPTIONAL, by which Version Two is extended
//! (draft-cel-nfsv4-rpcrdma-version-two-00 sections 3.1 and 4.2).
//!
//! A receiver answers an option that it does not support with RDMA_ERR_INVAL_OPTION, and uses
//! nothing of the message. The base protocol defines no option, and none is supported.

use crate::proto::wire::header::Procedure;
use crate::proto::wire::malformed::HeaderError;
use crate::proto::wire::xdr::Reader;

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
    /// Decodes the body.
    ///
    /// # Errors
    ///
    /// Those of [`Reader::decode_u32`] and [`decode_opaque`].
    pub(crate) fn decode(reader: &mut Reader<'a>) -> Result<Self, HeaderError> {
        Ok(Self {
            opttype: reader.decode_u32()?,
            optinfo: decode_opaque(reader)?,
        })
    }
}

/// Decodes counted opaque data (RFC 4506 section 4.10) with its 0 to 3 pad bytes, whose values
/// do not matter, and returns the data.
///
/// # Errors
///
/// [`HeaderError::Truncated`] at the count if there is none, or if fewer bytes are left than it
/// says, padding included.
pub(crate) fn decode_opaque<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], HeaderError> {
    let mut next = *reader;
    let length = usize::try_from(next.decode_u32()?).map_err(|_| HeaderError::Truncated)?;
    let padded = length.checked_next_multiple_of(4);
    let bytes = next.decode_bytes(padded.ok_or(HeaderError::Truncated)?)?;
    *reader = next;
    bytes.get(..length).ok_or(HeaderError::Truncated)
}

#[cfg(any(test, rpcrdma_kunit))]
#[cfg_attr(rpcrdma_kunit, kernel::macros::kunit_tests(rpcrdma_proto_opaque))]
mod tests {
    use super::*;

    /// Proves: V1-004, V1-056.
    #[test]
    fn opaque_data_ends_inside_the_message() {
        let mut reader = Reader::new(&[0, 0, 0, 1, 7, 0xff, 0xff, 0xff, 0, 0, 0, 9]);
        assert_eq!(decode_opaque(&mut reader), Ok([7].as_slice()));
        assert_eq!(reader.decode_u32(), Ok(9));
        assert_eq!(decode_opaque(&mut reader), Err(HeaderError::Truncated));
        assert_eq!(reader.position(), 12);
        // The last pad byte is missing, more is announced than a message can have, and a length
        // whose round-up does not fit a word.
        let refused: [&[u8]; 4] = [
            &[0, 0, 0, 5, 1, 2, 3, 4, 5, 0, 0],
            &[0x7f, 0xff, 0xff, 0xff, 1, 2, 3, 4],
            &[0x80, 0, 0, 0, 1, 2, 3, 4],
            &[0xff, 0xff, 0xff, 0xff, 1, 2, 3, 4],
        ];
        for bytes in refused {
            let mut reader = Reader::new(bytes);
            assert_eq!(decode_opaque(&mut reader), Err(HeaderError::Truncated));
            assert_eq!(reader.position(), 0);
        }
    }
}
