// SPDX-License-Identifier: GPL-2.0

//! The header of a Reply (RFC 8166 section 3.5).

use crate::proto::wire::chunk::{Chunk, Segment};
use crate::proto::wire::encode::encode_header;
use crate::proto::wire::header::FixedHeader;
use crate::proto::wire::xdr::NoSpace;

/// Writes the header of a Reply into `buffer` and returns its length in bytes.
///
/// `writes` and `reply` are all chunks of the Call, the unused ones included, with the lengths
/// that were placed; see [`Chunk::filled`].
///
/// # Errors
///
/// [`NoSpace`] if the header does not fit.
pub(crate) fn encode_reply<W>(
    buffer: &mut [u8],
    fixed: &FixedHeader,
    writes: impl IntoIterator<Item = W>,
    reply: Option<impl Iterator<Item = Segment> + Clone>,
) -> Result<usize, NoSpace>
where
    W: Iterator<Item = Segment> + Clone,
{
    encode_header(buffer, fixed, [], writes, reply)
}

impl<'a> Chunk<'a> {
    /// The segments with the lengths that a responder returns after it placed `length` bytes:
    /// filled in array order, 0 from there on (RFC 8166 section 3.4.6).
    pub(crate) fn filled(&self, length: u64) -> impl Iterator<Item = Segment> + Clone + 'a {
        let mut left = length;
        self.segments().map(move |segment| {
            let used = u32::try_from(left).map_or(segment.length, |n| n.min(segment.length));
            left = left.saturating_sub(u64::from(used));
            Segment {
                length: used,
                ..segment
            }
        })
    }
}
