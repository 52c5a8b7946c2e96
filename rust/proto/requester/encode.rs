// SPDX-License-Identifier: GPL-2.0

//! The header of a Call (RFC 8166 section 3.5).

use crate::proto::wire::chunk::{ReadSegment, Segment};
use crate::proto::wire::encode::encode_header;
use crate::proto::wire::header::FixedHeader;
use crate::proto::wire::xdr::NoSpace;

/// Writes the header of a Call into `buffer` and returns its length in bytes.
///
/// `reads` are the Read segments, those of one chunk adjacent and the chunks by ascending
/// Position. Each item of `writes` is one Write chunk and `reply` is the Reply chunk; a chunk
/// without segments is left out, as it could hold nothing (RFC 8166 section 3.4.6).
///
/// The procedure in `fixed` is [`super::plan::Plan::procedure`].
///
/// # Errors
///
/// [`NoSpace`] if the header does not fit `buffer`.
pub(crate) fn encode_call<W>(
    buffer: &mut [u8],
    fixed: &FixedHeader,
    reads: impl IntoIterator<Item = ReadSegment>,
    writes: impl IntoIterator<Item = W>,
    reply: impl Iterator<Item = Segment> + Clone,
) -> Result<usize, NoSpace>
where
    W: Iterator<Item = Segment> + Clone,
{
    let has_segments = |chunk: &W| chunk.clone().next().is_some();
    let writes = writes.into_iter().filter(has_segments);
    let reply = reply.clone().next().map(|_| reply);
    encode_header(buffer, fixed, reads, writes, reply)
}
