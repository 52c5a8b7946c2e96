// SPDX-License-Identifier: GPL-2.0

//! XDR words over byte slices (RFC 4506).
//!
//! All words are 32 bits, big-endian. Neither cursor can index: a reader returns what is there or
//! says where the message ended, and a writer refuses what does not fit.

use super::malformed::HeaderError;

/// A cursor over received bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
    /// The position of the end of `rest`.
    end: usize,
}

impl<'a> Reader<'a> {
    /// Starts at the first byte of `message`.
    pub(crate) const fn new(message: &'a [u8]) -> Self {
        Self {
            rest: message,
            end: message.len(),
        }
    }

    /// Offset of the next byte from the start of the message.
    pub(crate) const fn position(&self) -> usize {
        self.end.saturating_sub(self.rest.len())
    }

    /// All bytes that were not decoded yet.
    pub(crate) const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Decodes the next `count` bytes.
    ///
    /// # Errors
    ///
    /// [`HeaderError::Truncated`] if fewer are left.
    pub(crate) fn decode_bytes(&mut self, count: usize) -> Result<&'a [u8], HeaderError> {
        let (taken, rest) = self
            .rest
            .split_at_checked(count)
            .ok_or(HeaderError::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }

    /// Decodes one word.
    ///
    /// # Errors
    ///
    /// [`HeaderError::Truncated`] if fewer than four bytes are left.
    pub(crate) fn decode_u32(&mut self) -> Result<u32, HeaderError> {
        let (word, rest) = self
            .rest
            .split_first_chunk()
            .ok_or(HeaderError::Truncated)?;
        self.rest = rest;
        Ok(u32::from_be_bytes(*word))
    }

    /// Decodes `N` words.
    ///
    /// # Errors
    ///
    /// [`HeaderError::Truncated`] at the first word that is not there.
    pub(crate) fn decode_words<const N: usize>(&mut self) -> Result<[u32; N], HeaderError> {
        let mut words = [0; N];
        for word in &mut words {
            *word = self.decode_u32()?;
        }
        Ok(words)
    }

    /// Decodes the flag word of XDR optional data, which must be 0 or 1 (RFC 4506 section 4.19).
    ///
    /// # Errors
    ///
    /// [`HeaderError::Flag`] for another value, [`HeaderError::Truncated`] if there is no word.
    pub(crate) fn decode_flag(&mut self) -> Result<bool, HeaderError> {
        match self.decode_u32()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(HeaderError::Flag),
        }
    }

    /// Ends the decoding of a message that must have no more bytes.
    ///
    /// # Errors
    ///
    /// [`HeaderError::Trailing`] if bytes are left.
    pub(crate) const fn finish(self) -> Result<(), HeaderError> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(HeaderError::Trailing)
        }
    }
}

/// The buffer is too small for what is being encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoSpace;

/// A cursor over a buffer that is to be filled. After it has refused something, it refuses
/// everything.
#[derive(Debug)]
pub(crate) struct Writer<'a> {
    rest: &'a mut [u8],
    /// The length of the whole buffer.
    size: usize,
}

impl<'a> Writer<'a> {
    /// Starts at the first byte of `buffer`.
    pub(crate) fn new(buffer: &'a mut [u8]) -> Self {
        Self {
            size: buffer.len(),
            rest: buffer,
        }
    }

    /// Number of bytes written so far, if nothing was refused.
    pub(crate) const fn position(&self) -> usize {
        self.size.saturating_sub(self.rest.len())
    }

    /// Reserves `N` bytes, to be filled in later.
    ///
    /// # Errors
    ///
    /// [`NoSpace`] if fewer are left.
    pub(super) fn reserve<const N: usize>(&mut self) -> Result<&'a mut [u8; N], NoSpace> {
        let rest = core::mem::take(&mut self.rest);
        let (reserved, rest) = rest.split_first_chunk_mut().ok_or(NoSpace)?;
        self.rest = rest;
        Ok(reserved)
    }

    /// Appends one word.
    ///
    /// # Errors
    ///
    /// [`NoSpace`] if fewer than four bytes are left.
    pub(crate) fn put_u32(&mut self, word: u32) -> Result<(), NoSpace> {
        *self.reserve()? = word.to_be_bytes();
        Ok(())
    }

    /// Appends a word of 64 bits.
    ///
    /// # Errors
    ///
    /// [`NoSpace`] if fewer than eight bytes are left.
    pub(crate) fn put_u64(&mut self, word: u64) -> Result<(), NoSpace> {
        *self.reserve()? = word.to_be_bytes();
        Ok(())
    }

    /// Appends `N` words.
    ///
    /// # Errors
    ///
    /// [`NoSpace`] if they do not all fit.
    pub(crate) fn put_words<const N: usize>(&mut self, words: [u32; N]) -> Result<(), NoSpace> {
        words.into_iter().try_for_each(|word| self.put_u32(word))
    }
}

#[cfg(any(test, rpcrdma_kunit))]
#[cfg_attr(rpcrdma_kunit, kernel::macros::kunit_tests(rpcrdma_proto_cursor))]
mod tests {
    use super::*;

    /// Proves: V1-003.
    #[test]
    fn words_are_big_endian() {
        let mut buffer = [0u8; 20];
        let mut writer = Writer::new(&mut buffer);
        let four = [0x0506_0708, 0x090a_0b0c, 0x0d0e_0f10, 0x1112_1314];
        assert_eq!(writer.put_u32(0x0102_0304), Ok(()));
        assert_eq!(writer.put_words(four), Ok(()));
        assert_eq!(writer.position(), 20);
        assert!(buffer.iter().copied().eq(1..=20));

        let mut reader = Reader::new(&buffer);
        assert_eq!(reader.decode_u32(), Ok(0x0102_0304));
        assert_eq!(reader.decode_words(), Ok(four));
        assert_eq!(reader.finish(), Ok(()));
    }

    #[test]
    fn reader_says_where_the_message_ends() {
        let mut reader = Reader::new(&[0, 0, 0, 1, 0, 0, 0, 2, 0, 0]);
        let truncated = HeaderError::Truncated;
        assert_eq!(reader.decode_u32(), Ok(1));
        // The first of the four words is there, the second is not.
        assert_eq!(reader.decode_words::<4>(), Err(truncated));
        assert_eq!(truncated.position(reader.position()), 8);
        assert_eq!(reader.decode_bytes(3), Err(truncated));
        assert_eq!(reader.finish(), Err(HeaderError::Trailing));
        assert_eq!(HeaderError::Trailing.position(reader.position()), 8);
        assert_eq!(reader.decode_bytes(2), Ok([0u8, 0].as_slice()));
        assert_eq!(reader.decode_u32(), Err(truncated));
        assert_eq!(truncated.position(reader.position()), 10);
    }

    /// Proves: V1-101.
    #[test]
    fn flags_are_zero_or_one() {
        let mut reader = Reader::new(&[0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0]);
        assert_eq!(reader.decode_flag(), Ok(false));
        assert_eq!(reader.decode_flag(), Ok(true));
        assert_eq!(reader.decode_flag(), Err(HeaderError::Flag));
        assert_eq!(HeaderError::Flag.position(reader.position()), 8);
    }

    #[test]
    fn writer_refuses_what_does_not_fit() {
        let mut buffer = [0xaau8; 6];
        let mut writer = Writer::new(&mut buffer);
        assert_eq!(writer.put_u32(1), Ok(()));
        assert_eq!(writer.position(), 4);
        assert_eq!(writer.put_words([2; 4]), Err(NoSpace));
        assert_eq!(writer.put_u32(3), Err(NoSpace));
        assert_eq!(buffer, [0, 0, 0, 1, 0xaa, 0xaa]);
    }
}
