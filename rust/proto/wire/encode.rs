// SPDX-License-Identifier: GPL-2.0

//! Headers with chunk lists (RFC 8166 section 4.3).

use super::chunk::{ReadSegment, Segment};
use super::header::{Credits, FixedHeader, Procedure, Xid};
use super::xdr::{NoSpace, Writer};

/// Writes the header of an RDMA_MSG or RDMA_NOMSG into `buffer` and returns its length in bytes.
///
/// `reads` are the Read segments, with those of one chunk adjacent and the chunks by ascending
/// Position. Each item of `writes` is one Write chunk and `reply` is the Reply chunk; both are
/// written even if they have no segments.
///
/// # Errors
///
/// [`NoSpace`] if the header does not fit `buffer`.
pub(crate) fn encode_header<W, R>(
    buffer: &mut [u8],
    fixed: &FixedHeader,
    reads: impl IntoIterator<Item = ReadSegment>,
    writes: impl IntoIterator<Item = W>,
    reply: Option<R>,
) -> Result<usize, NoSpace>
where
    W: Iterator<Item = Segment>,
    R: Iterator<Item = Segment>,
{
    let mut writer = Writer::new(buffer);
    fixed.put(&mut writer)?;
    for entry in reads {
        writer.put_u32(1)?;
        writer.put_u32(entry.position)?;
        entry.segment.put(&mut writer)?;
    }
    writer.put_u32(0)?;
    for chunk in writes {
        put_chunk(&mut writer, chunk)?;
    }
    writer.put_u32(0)?;
    match reply {
        Some(chunk) => put_chunk(&mut writer, chunk)?,
        None => writer.put_u32(0)?,
    }
    Ok(writer.position())
}

/// Writes the header of an RDMA_MSG with three empty lists into `buffer` and returns its length,
/// [`MIN_HEADER_LEN`](super::header::MIN_HEADER_LEN). The RPC message follows it in the same Send.
///
/// Such are all backward messages (RFC 8167 section 5), in the version that the forward direction
/// uses, and the Reply to a Call that offers no memory.
///
/// # Errors
///
/// [`NoSpace`] if the header does not fit.
pub(crate) fn encode_inline(
    buffer: &mut [u8],
    version: u32,
    xid: Xid,
    credits: Credits,
) -> Result<usize, NoSpace> {
    let fixed = FixedHeader {
        xid,
        version,
        credits,
        procedure: Procedure::Msg,
    };
    let mut writer = Writer::new(buffer);
    fixed.put(&mut writer)?;
    writer.put_words([0; 3])?;
    Ok(writer.position())
}

/// Appends a Write chunk or Reply chunk: the flag for its presence, and a counted array of
/// segments.
fn put_chunk(
    writer: &mut Writer<'_>,
    segments: impl Iterator<Item = Segment>,
) -> Result<(), NoSpace> {
    writer.put_u32(1)?;
    let reserved = writer.reserve()?;
    let mut count = 0u32;
    for segment in segments {
        segment.put(writer)?;
        // A saturated count fits no buffer.
        count = count.saturating_add(1);
    }
    *reserved = count.to_be_bytes();
    Ok(())
}
