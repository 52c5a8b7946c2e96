// SPDX-License-Identifier: GPL-2.0

//! Counted opaque data (RFC 4506 section 4.10).

use crate::proto::wire::malformed::{HeaderError, Malformed};
use crate::proto::wire::xdr::{NoSpace, Reader, Writer};

/// Takes counted opaque data (RFC 4506 section 4.10) with its 0 to 3 pad bytes, whose values
/// do not matter, and returns the data.
///
/// # Errors
///
/// [`HeaderError::Truncated`] at the count if there is none, or if fewer bytes are left than it
/// says, padding included.
pub(crate) fn take_opaque<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], Malformed> {
    let too_long = Malformed::new(HeaderError::Truncated, reader.position());
    let length = usize::try_from(reader.take_u32()?).map_err(|_| too_long)?;
    let padded = length.checked_next_multiple_of(4).ok_or(too_long)?;
    let bytes = reader.take_bytes(padded).map_err(|_| too_long)?;
    bytes.get(..length).ok_or(too_long)
}

/// Appends counted opaque data and the 0 to 3 zero bytes that round it up to a whole word
/// (RFC 4506 section 4.10).
///
/// # Errors
///
/// [`NoSpace`] if it does not fit, or is longer than a 32-bit count can say.
pub(crate) fn put_opaque(writer: &mut Writer<'_>, bytes: &[u8]) -> Result<(), NoSpace> {
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
#[cfg_attr(rpcrdma_kunit, kernel::macros::kunit_tests(rpcrdma_proto_opaque))]
mod tests {
    use super::*;

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
            assert_eq!(take_opaque(&mut reader), Ok(data));
            assert_eq!(reader.finish(), Ok(()));

            let short = buffer.get_mut(1..expected.len()).unwrap_or_default();
            assert_eq!(put_opaque(&mut Writer::new(short), data), Err(NoSpace));
        }
    }

    /// Proves: V1-004, V1-056.
    #[test]
    fn opaque_data_ends_inside_the_message() {
        let mut reader = Reader::new(&[0, 0, 0, 1, 7, 0xff, 0xff, 0xff, 0, 0, 0, 9]);
        assert_eq!(take_opaque(&mut reader), Ok([7].as_slice()));
        assert_eq!(reader.take_u32(), Ok(9));
        assert_eq!(
            take_opaque(&mut reader),
            Err(Malformed::new(HeaderError::Truncated, 12))
        );
        // The last pad byte is missing, more is announced than a message can have, and a length
        // whose round-up does not fit a word.
        let refused: [&[u8]; 4] = [
            &[0, 0, 0, 5, 1, 2, 3, 4, 5, 0, 0],
            &[0x7f, 0xff, 0xff, 0xff, 1, 2, 3, 4],
            &[0x80, 0, 0, 0, 1, 2, 3, 4],
            &[0xff, 0xff, 0xff, 0xff, 1, 2, 3, 4],
        ];
        for bytes in refused {
            let too_long = Malformed::new(HeaderError::Truncated, 0);
            assert_eq!(take_opaque(&mut Reader::new(bytes)), Err(too_long));
        }
    }
}
