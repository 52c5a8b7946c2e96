// SPDX-License-Identifier: GPL-2.0

//! RDMA_OPTIONAL messages as they are, supported or not, and how they are written: no transport
//! sends one.

use crate::proto::message::Refused;
use crate::proto::v2::options::{Optional, OPTIONAL};
use crate::proto::wire::header::{Credits, FixedHeader, Versions, Xid, VERSION_TWO};
use crate::proto::wire::xdr::{NoSpace, Reader, Writer};

/// An RDMA_OPTIONAL message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OptionMessage<'a> {
    /// The fixed words.
    pub(crate) fixed: FixedHeader,
    /// Bytes of the transport header.
    pub(crate) header_len: usize,
    /// The option.
    pub(crate) option: Optional<'a>,
    /// What follows it.
    pub(crate) payload: &'a [u8],
}

impl<'a> OptionMessage<'a> {
    /// Decodes `bytes`, if it is such a message and `versions` has Version Two.
    ///
    /// # Errors
    ///
    /// What a role refuses such a message for that does not decode.
    pub(crate) fn decode(bytes: &'a [u8], versions: Versions) -> Option<Result<Self, Refused>> {
        let mut reader = Reader::new(bytes);
        let fixed = FixedHeader::decode(&mut reader).ok()?;
        let is_optional = fixed.procedure == OPTIONAL && fixed.version == VERSION_TWO;
        if !is_optional || !versions.contains(VERSION_TWO) {
            return None;
        }
        let option = Optional::decode(&mut reader);
        let message = option.map(|option| Self {
            fixed,
            header_len: reader.position(),
            option,
            payload: reader.rest(),
        });
        Some(message.map_err(|error| Refused {
            error,
            at: error.position(reader.position()),
            fixed: Some(fixed),
            versions,
        }))
    }
}

/// Writes an RDMA_OPTIONAL message without a Payload into `buffer` and returns its length in bytes,
/// a multiple of four.
///
/// # Errors
///
/// [`NoSpace`] if it does not fit.
pub(crate) fn encode_option(
    option: &Optional<'_>,
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
    writer.put_u32(option.opttype)?;
    put_opaque(&mut writer, option.optinfo)?;
    Ok(writer.position())
}

/// Appends counted opaque data and the 0 to 3 zero bytes that round it up to a whole word
/// (RFC 4506 section 4.10).
///
/// # Errors
///
/// [`NoSpace`] if it does not fit, or is longer than a 32-bit count can say.
fn put_opaque(writer: &mut Writer<'_>, bytes: &[u8]) -> Result<(), NoSpace> {
    writer.put_u32(u32::try_from(bytes.len()).map_err(|_| NoSpace)?)?;
    for word in bytes.chunks(4) {
        let mut padded = [0; 4];
        for (slot, byte) in padded.iter_mut().zip(word) {
            *slot = *byte;
        }
        writer.put_u32(u32::from_be_bytes(padded))?;
    }
    Ok(())
}

#[cfg(any(test, rpcrdma_kunit))]
#[cfg_attr(rpcrdma_kunit, kernel::macros::kunit_tests(rpcrdma_proto_put_opaque))]
mod tests {
    use super::*;
    use crate::proto::v2::options::decode_opaque;

    /// Proves: V1-004.
    #[test]
    fn opaque_data_is_counted_and_padded() {
        let encoded: [&[u8]; 5] = [
            &[0, 0, 0, 0],
            &[0, 0, 0, 1, b'h', 0, 0, 0],
            &[0, 0, 0, 2, b'h', b'e', 0, 0],
            &[0, 0, 0, 4, b'h', b'e', b'l', b'l'],
            &[0, 0, 0, 5, b'h', b'e', b'l', b'l', b'o', 0, 0, 0],
        ];
        for expected in encoded {
            let count = expected.get(3).copied().map_or(0, usize::from);
            let data = b"hello".get(..count).unwrap_or_default();
            let mut buffer = [0xaau8; 12];
            let mut writer = Writer::new(&mut buffer);
            assert_eq!(put_opaque(&mut writer, data), Ok(()));
            assert_eq!(writer.position(), expected.len());
            assert_eq!(buffer.get(..expected.len()), Some(expected));
            let mut reader = Reader::new(expected);
            assert_eq!(decode_opaque(&mut reader), Ok(data));
            assert_eq!(reader.finish(), Ok(()));

            let short = buffer.get_mut(1..expected.len()).unwrap_or_default();
            assert_eq!(put_opaque(&mut Writer::new(short), data), Err(NoSpace));
        }
    }
}
