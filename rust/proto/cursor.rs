// SPDX-License-Identifier: GPL-2.0

//! XDR words over byte slices (RFC 4506).
//!
//! All words are 32 bits, big-endian. Neither cursor can index: a reader gives out what is there
//! or says where the message ended, a writer refuses what does not fit.

/// Why a received message is refused. The words in brackets are those of the test vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// Fewer bytes than the four fixed words have (`short`).
    Short,
    /// The version word is outside the supported range (`vers`).
    Version,
    /// The procedure is retired or undefined (`proc`).
    Procedure,
    /// The message ended before the header did (`trunc`).
    Truncated,
    /// An XDR optional-data flag is neither 0 nor 1 (`bool`).
    Flag,
    /// A segment count is larger than the bytes present allow (`count`).
    SegmentCount,
    /// A segment runs past the end of a 64-bit address space (`wrap`).
    SegmentWrap,
    /// A Position is not a multiple of four (`pos_align`).
    PositionAlignment,
    /// Read segments are out of order, and too many to sort.
    PositionOrder,
    /// A Read chunk is longer than a 32-bit count can say (`sum`).
    ReadChunkLength,
    /// RDMA_MSG without a Payload, or with less of one than an XID and a message type
    /// (`nopayload`, `shortpayload`).
    ShortPayload,
    /// The XIDs of the transport header and of the RPC header differ (`xid`).
    XidMismatch,
    /// The RPC message type is neither CALL nor REPLY.
    MessageType,
    /// RDMA_MSG with a Position Zero Read chunk: two different Payloads (`pz_in_msg`).
    PositionZeroInMsg,
    /// RDMA_NOMSG with three empty lists (`nochunks`).
    NoChunks,
    /// Bytes after the header of an RDMA_NOMSG message (`trailing`).
    Trailing,
    /// An RDMA_ERROR with an undefined error code (`errcode`).
    ErrorCode,
    /// A Reply with a Read list; only requesters expose memory.
    ReadListInReply,
    /// A backward Call with a chunk list (RFC 8167 section 5).
    ChunksInBackwardCall,
    /// RDMA_NOMSG at a responder without a Position Zero chunk that holds bytes (`no_pz`).
    #[cfg(rpcrdma_selftest)]
    NoPositionZero,
    /// A Read chunk outside the Payload stream, or overlapping another one.
    #[cfg(rpcrdma_selftest)]
    PositionRange,
    /// Counted opaque data with its padding runs past the end of the message (`optlen`).
    #[cfg(rpcrdma_selftest)]
    OpaqueLength,
    /// RDMA_OPTIONAL with an option that this end does not support.
    #[cfg(rpcrdma_selftest)]
    UnknownOption,
    /// A backward Reply with a chunk list (RFC 8167 section 5).
    #[cfg(rpcrdma_selftest)]
    ChunksInBackwardReply,
}

/// A refused message: the cause, and where in the message it was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed {
    /// The cause.
    pub(crate) cause: Cause,
    /// Offset of the offending word, in bytes from the start of the message.
    pub(crate) at: usize,
}

impl Malformed {
    /// Builds the error for `cause` at byte `at`.
    pub(crate) const fn new(cause: Cause, at: usize) -> Self {
        Self { cause, at }
    }
}

/// A cursor over received bytes.
///
/// Positions count from the start of the message, in sub-readers too.
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

    /// All bytes that were not taken yet.
    pub(crate) const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Takes the next `count` bytes.
    ///
    /// # Errors
    ///
    /// [`Cause::Truncated`] if fewer are left; nothing is taken then.
    pub(crate) fn take_bytes(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self
            .rest
            .split_at_checked(count)
            .ok_or(Malformed::new(Cause::Truncated, self.position()))?;
        self.rest = rest;
        Ok(taken)
    }

    /// Takes the next `count` bytes as a reader of their own.
    ///
    /// # Errors
    ///
    /// [`Cause::Truncated`] if fewer are left.
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
            return Err(Malformed::new(Cause::Truncated, missing));
        };
        self.rest = rest;
        Ok(array)
    }

    /// Takes one word.
    ///
    /// # Errors
    ///
    /// [`Cause::Truncated`] if fewer than four bytes are left.
    pub(crate) fn take_u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_be_bytes(*self.take_array()?))
    }

    /// Takes four words at once.
    ///
    /// # Errors
    ///
    /// [`Cause::Truncated`] at the first word that is not there; nothing is taken then.
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

    /// Takes `N` zero bytes if they come next, and nothing otherwise.
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
    /// [`Cause::Flag`] for another value, [`Cause::Truncated`] if there is no word.
    pub(crate) fn take_flag(&mut self) -> Result<bool, Malformed> {
        let before = *self;
        match self.take_u32()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed::new(Cause::Flag, before.position())),
        }
    }

    /// Takes counted opaque data (RFC 4506 section 4.10) with its 0 to 3 pad bytes, whose values
    /// do not matter, and returns the data.
    ///
    /// # Errors
    ///
    /// [`Cause::OpaqueLength`] at the count if fewer bytes are left than it says, padding
    /// included; [`Cause::Truncated`] if there is no count.
    #[cfg(rpcrdma_selftest)]
    pub(crate) fn take_opaque(&mut self) -> Result<&'a [u8], Malformed> {
        let too_long = Malformed::new(Cause::OpaqueLength, self.position());
        let length = usize::try_from(self.take_u32()?).map_err(|_| too_long)?;
        let padded = length.checked_next_multiple_of(4).ok_or(too_long)?;
        let bytes = self.take_bytes(padded).map_err(|_| too_long)?;
        bytes.get(..length).ok_or(too_long)
    }

    /// Ends the decoding of a message that must have no more bytes.
    ///
    /// # Errors
    ///
    /// [`Cause::Trailing`] if bytes are left.
    pub(crate) const fn finish(self) -> Result<(), Malformed> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(Malformed::new(Cause::Trailing, self.position()))
        }
    }
}

/// The buffer is too small for what is being encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoSpace;

/// A cursor over a buffer to be filled. After the first refusal it refuses everything.
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

    /// Appends counted opaque data and the 0 to 3 zero bytes that round it up to a whole word
    /// (RFC 4506 section 4.10).
    ///
    /// # Errors
    ///
    /// [`NoSpace`] if it does not fit, or is longer than a 32-bit count can say.
    #[cfg(rpcrdma_selftest)]
    pub(crate) fn put_opaque(&mut self, bytes: &[u8]) -> Result<(), NoSpace> {
        self.put_u32(u32::try_from(bytes.len()).map_err(|_| NoSpace)?)?;
        for word in bytes.chunks(4) {
            let mut padded = [0; 4];
            for (slot, byte) in padded.iter_mut().zip(word) {
                *slot = *byte;
            }
            self.put_u32(u32::from_be_bytes(padded))?;
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
        let ended = |at| Malformed::new(Cause::Truncated, at);
        assert_eq!(reader.take_u32(), Ok(1));
        // The first of the four words is there, the second is not.
        assert_eq!(reader.take_four(), Err(ended(8)));
        assert_eq!(reader.take_u32(), Ok(2));
        assert_eq!(reader.take_bytes(3), Err(ended(8)));
        assert_eq!(reader.finish(), Err(Malformed::new(Cause::Trailing, 8)));
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
            assert_eq!(sub.take_u32(), Err(Malformed::new(Cause::Truncated, 8)));
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
        assert_eq!(reader.take_flag(), Err(Malformed::new(Cause::Flag, 8)));
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
            assert_eq!(writer.put_opaque(data), Ok(()));
            assert_eq!(writer.position(), expected.len());
            assert_eq!(buffer.get(..expected.len()), Some(expected));
            let mut reader = Reader::new(expected);
            assert_eq!(reader.take_opaque(), Ok(data));
            assert_eq!(reader.finish(), Ok(()));

            let short = buffer.get_mut(1..expected.len()).unwrap_or_default();
            assert_eq!(Writer::new(short).put_opaque(data), Err(NoSpace));
        }
    }

    /// Proves: V1-004, V1-056.
    #[test]
    fn opaque_data_ends_inside_the_message() {
        let mut reader = Reader::new(&[0, 0, 0, 1, 7, 0xff, 0xff, 0xff, 0, 0, 0, 9]);
        assert_eq!(reader.take_opaque(), Ok([7].as_slice()));
        assert_eq!(reader.take_u32(), Ok(9));
        assert_eq!(
            reader.take_opaque(),
            Err(Malformed::new(Cause::Truncated, 12))
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
            let too_long = Malformed::new(Cause::OpaqueLength, 0);
            assert_eq!(Reader::new(bytes).take_opaque(), Err(too_long));
        }
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
