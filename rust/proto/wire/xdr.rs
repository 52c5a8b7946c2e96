// SPDX-License-Identifier: GPL-2.0

//! XDR words over byte slices (RFC 4506).
//!
//! All words are 32 bits, big-endian. Neither cursor can index: a reader returns what is there or
//! says where the message ended, and a writer refuses what does not fit.

use super::malformed::{HeaderError, Malformed};

/// A cursor over received bytes.
///
/// Positions count from the start of the message, even in sub-readers.
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

    /// Starts at byte `position` of `message`, `None` beyond its end.
    pub(crate) fn at(message: &'a [u8], position: usize) -> Option<Self> {
        Some(Self {
            rest: message.get(position..)?,
            end: message.len(),
        })
    }

    /// An empty reader at the same position.
    pub(crate) const fn cut(self) -> Self {
        Self {
            rest: &[],
            end: self.position(),
        }
    }

    /// Offset of the next byte from the start of the message.
    pub(crate) const fn position(&self) -> usize {
        self.end.saturating_sub(self.rest.len())
    }

    /// All bytes that were not taken yet.
    pub(crate) const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Takes the next `count` bytes.
    ///
    /// # Errors
    ///
    /// [`HeaderError::Truncated`] if fewer are left; nothing is taken then.
    pub(crate) fn take_bytes(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self
            .rest
            .split_at_checked(count)
            .ok_or(Malformed::new(HeaderError::Truncated, self.position()))?;
        self.rest = rest;
        Ok(taken)
    }

    /// Takes the next `count` bytes as a reader of their own.
    ///
    /// # Errors
    ///
    /// [`HeaderError::Truncated`] if fewer are left.
    pub(crate) fn sub(&mut self, count: usize) -> Result<Self, Malformed> {
        let end = self.position().saturating_add(count);
        let rest = self.take_bytes(count)?;
        Ok(Self { rest, end })
    }

    /// Takes the next `N` bytes.
    fn take_array<const N: usize>(&mut self) -> Result<&'a [u8; N], Malformed> {
        let Some((array, rest)) = self.rest.split_first_chunk() else {
            let words = self.rest.len() / 4;
            let missing = self.position().saturating_add(words.saturating_mul(4));
            return Err(Malformed::new(HeaderError::Truncated, missing));
        };
        self.rest = rest;
        Ok(array)
    }

    /// Takes one word.
    ///
    /// # Errors
    ///
    /// [`HeaderError::Truncated`] if fewer than four bytes are left.
    pub(crate) fn take_u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_be_bytes(*self.take_array()?))
    }

    /// Takes four words at once.
    ///
    /// # Errors
    ///
    /// [`HeaderError::Truncated`] at the first word that is not there; nothing is taken then.
    pub(crate) fn take_four(&mut self) -> Result<[u32; 4], Malformed> {
        #[rustfmt::skip]
        let [a0, a1, a2, a3, b0, b1, b2, b3, c0, c1, c2, c3, d0, d1, d2, d3] =
            *self.take_array()?;
        Ok([
            u32::from_be_bytes([a0, a1, a2, a3]),
            u32::from_be_bytes([b0, b1, b2, b3]),
            u32::from_be_bytes([c0, c1, c2, c3]),
            u32::from_be_bytes([d0, d1, d2, d3]),
        ])
    }

    /// Takes `N` zero bytes if they come next, otherwise nothing.
    pub(crate) fn take_zeroes<const N: usize>(&mut self) -> bool {
        match self.rest.split_first_chunk() {
            Some((bytes, rest)) if *bytes == [0u8; N] => {
                self.rest = rest;
                true
            }
            _ => false,
        }
    }

    /// Takes the flag word of XDR optional data, which must be 0 or 1 (RFC 4506 section 4.19).
    ///
    /// # Errors
    ///
    /// [`HeaderError::Flag`] for another value, [`HeaderError::Truncated`] if there is no word.
    pub(crate) fn take_flag(&mut self) -> Result<bool, Malformed> {
        let before = *self;
        match self.take_u32()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed::new(HeaderError::Flag, before.position())),
        }
    }

    /// Ends the decoding of a message that must have no more bytes.
    ///
    /// # Errors
    ///
    /// [`HeaderError::Trailing`] if bytes are left.
    pub(crate) const fn finish(self) -> Result<(), Malformed> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(Malformed::new(HeaderError::Trailing, self.position()))
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

    /// Leaves room for `N` bytes.
    fn reserve<const N: usize>(&mut self) -> Result<&'a mut [u8; N], NoSpace> {
        let rest = core::mem::take(&mut self.rest);
        if rest.len() < N {
            return Err(NoSpace);
        }
        let (room, rest) = rest.split_first_chunk_mut().ok_or(NoSpace)?;
        self.rest = rest;
        Ok(room)
    }

    /// Leaves room for a word, to be filled in later.
    ///
    /// # Errors
    ///
    /// [`NoSpace`] if fewer than four bytes are left.
    pub(crate) fn reserve_u32(&mut self) -> Result<&'a mut [u8; 4], NoSpace> {
        self.reserve()
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

    /// Appends four words at once.
    ///
    /// # Errors
    ///
    /// [`NoSpace`] if fewer than sixteen bytes are left.
    pub(crate) fn put_four(&mut self, words: [u32; 4]) -> Result<(), NoSpace> {
        let mut room: &mut [u8] = self.reserve::<16>()?;
        for word in words {
            let (slot, rest) = room.split_first_chunk_mut().ok_or(NoSpace)?;
            *slot = word.to_be_bytes();
            room = rest;
        }
        Ok(())
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
        assert_eq!(writer.put_four(four), Ok(()));
        assert_eq!(writer.position(), 20);
        assert!(buffer.iter().copied().eq(1..=20));

        let mut reader = Reader::new(&buffer);
        assert_eq!(reader.take_u32(), Ok(0x0102_0304));
        assert_eq!(reader.take_four(), Ok(four));
        assert_eq!(reader.finish(), Ok(()));
    }

    #[test]
    fn reader_says_where_the_message_ends() {
        let mut reader = Reader::new(&[0, 0, 0, 1, 0, 0, 0, 2, 0, 0]);
        let ended = |at| Malformed::new(HeaderError::Truncated, at);
        assert_eq!(reader.take_u32(), Ok(1));
        // The first of the four words is there, the second is not.
        assert_eq!(reader.take_four(), Err(ended(8)));
        assert_eq!(reader.take_u32(), Ok(2));
        assert_eq!(reader.take_bytes(3), Err(ended(8)));
        assert_eq!(
            reader.finish(),
            Err(Malformed::new(HeaderError::Trailing, 8))
        );
        assert_eq!(reader.take_bytes(2), Ok([0u8, 0].as_slice()));
        assert_eq!(reader.take_u32(), Err(ended(10)));
    }

    #[test]
    fn sub_reader_keeps_positions_and_bounds() {
        let mut reader = Reader::new(&[0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3]);
        assert_eq!(reader.take_u32(), Ok(1));
        let sub = reader.sub(4);
        assert!(sub.is_ok());
        if let Ok(mut sub) = sub {
            assert_eq!(sub.position(), 4);
            assert_eq!(sub.take_u32(), Ok(2));
            assert_eq!(
                sub.take_u32(),
                Err(Malformed::new(HeaderError::Truncated, 8))
            );
        }
        assert_eq!(reader.take_u32(), Ok(3));
        assert!(reader.sub(1).is_err());
        assert!(reader.rest().is_empty());
    }

    /// Proves: V1-101.
    #[test]
    fn flags_are_zero_or_one() {
        let mut reader = Reader::new(&[0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0]);
        assert_eq!(reader.take_flag(), Ok(false));
        assert_eq!(reader.take_flag(), Ok(true));
        assert_eq!(
            reader.take_flag(),
            Err(Malformed::new(HeaderError::Flag, 8))
        );
    }

    #[test]
    fn zeroes_are_taken_all_or_none() {
        let mut reader = Reader::new(&[0, 0, 0, 0, 0, 1, 0, 0]);
        assert!(!reader.take_zeroes::<6>());
        assert_eq!(reader.position(), 0);
        assert!(reader.take_zeroes::<4>());
        assert_eq!(reader.position(), 4);
        assert_eq!(reader.take_u32(), Ok(0x0001_0000));
        assert!(!reader.take_zeroes::<1>());
    }

    #[test]
    fn writer_refuses_what_does_not_fit() {
        let mut buffer = [0xaau8; 6];
        let mut writer = Writer::new(&mut buffer);
        assert_eq!(writer.put_u32(1), Ok(()));
        assert_eq!(writer.position(), 4);
        assert_eq!(writer.put_four([2; 4]), Err(NoSpace));
        assert_eq!(writer.put_u32(3), Err(NoSpace));
        assert_eq!(buffer, [0, 0, 0, 1, 0xaa, 0xaa]);
    }
}
