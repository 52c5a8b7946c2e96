// SPDX-License-Identifier: GPL-2.0

//! The RPC message of a Call as a responder puts it together again (RFC 8166 section 3.4.5).

use core::iter::from_fn;

use super::call::ReceivedCall;
use super::layout::{padded, round_up};
use crate::proto::wire::chunk::Segment;

/// Where a piece of the RPC message comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The inline part, from this byte of it on.
    Inline(u32),
    /// The requester's memory, by RDMA Read.
    Read {
        /// The steering tag.
        handle: u32,
        /// Address or offset of the first byte.
        offset: u64,
    },
    /// Zero bytes that the responder supplies, as the chunk before goes without its XDR round-up
    /// (RFC 8166 section 3.4.5.1).
    RoundUp,
}

/// A stretch of the RPC message, which is never empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StreamPiece {
    /// Where it is in the message, in bytes.
    pub(crate) at: u32,
    /// Bytes.
    pub(crate) length: u32,
    /// Where it comes from.
    pub(crate) source: Source,
}

impl Source {
    /// The bytes of a segment.
    const fn read(segment: Segment) -> (u64, Self) {
        let Segment { handle, offset, .. } = segment;
        // CAST: No lossless conversion is const.
        (segment.length as u64, Self::Read { handle, offset })
    }

    /// What follows the first `bytes` bytes.
    fn skip(self, bytes: u64) -> Option<Self> {
        Some(match self {
            Self::Inline(from) => Self::Inline(from.checked_add(u32::try_from(bytes).ok()?)?),
            Self::Read { handle, offset } => Self::Read {
                handle,
                // What is left has no byte if the address space ends here.
                offset: offset.wrapping_add(bytes),
            },
            Self::RoundUp => Self::RoundUp,
        })
    }
}

impl<'a> ReceivedCall<'a> {
    /// The pieces of the RPC message, in its order.
    ///
    /// Pieces that are not inline are in the pages of the layout, at their place less the head.
    /// Inline ones have to be copied there if the layout has pages but no head.
    // An iterator made of adapters has a type whose name is too long for the kernel's symbols.
    pub(crate) fn stream(&self) -> impl Iterator<Item = StreamPiece> + 'a {
        let mut chunks = self
            .lists
            .reads
            .chunks()
            .filter(|chunk| chunk.position != 0);
        let mut next = chunks.next();
        let (mut segments, mut padding) = (None, 0);
        // The part of the message that is in no Read chunk of its own: what is inline, or the
        // Position Zero chunk. The first bytes and the segments after these.
        // CAST: A usize always fits 64 bits.
        let inline = self.payload.map_or(0, |payload| payload.len() as u64);
        let mut begun = (inline, Source::Inline(0));
        let mut base = self.lists.reads.chunk(0).segments();
        let mut at = 0u32;
        from_fn(move || loop {
            let (length, source) = if let Some(segment) = segments.as_mut().and_then(Iterator::next)
            {
                Source::read(segment)
            } else if padding > 0 {
                (core::mem::take(&mut padding), Source::RoundUp)
            } else if let Some(chunk) = next.filter(|chunk| chunk.position <= at) {
                segments = Some(chunk.segments());
                padding = round_up(chunk.length());
                next = chunks.next();
                continue;
            } else if begun.0 > 0 {
                let gap = next.map_or(u32::MAX, |chunk| chunk.position.saturating_sub(at));
                let (left, source) = begun;
                let length = left.min(gap.into());
                begun = (left.saturating_sub(length), source.skip(length)?);
                (length, source)
            } else {
                begun = Source::read(base.next()?);
                continue;
            };
            if length > 0 {
                let length = u32::try_from(length).ok()?;
                let piece = StreamPiece { at, length, source };
                at = at.checked_add(length)?;
                return Some(piece);
            }
        })
    }

    /// The pieces of [`Self::stream`] that are to be read: where each goes in the pages of the
    /// layout, and the requester's memory, which has at least one byte.
    pub(crate) fn reads(&self) -> impl Iterator<Item = (u32, Segment)> + '_ {
        let head = self.index.layout.head;
        self.stream().filter_map(move |piece| match piece.source {
            Source::Read { handle, offset } => {
                let segment = Segment {
                    handle,
                    length: piece.length,
                    offset,
                };
                Some((piece.at.saturating_sub(head), segment))
            }
            Source::Inline(_) | Source::RoundUp => None,
        })
    }

    /// Whether the Read chunks are after the header of the RPC Call, in which nothing may be in a
    /// chunk, and the word before each can be the byte count of what the chunk holds, as in all
    /// Upper Layer Bindings whose items are counted arrays (RFC 8267 has no others). If not, the
    /// Call is answered with GARBAGE_ARGS (RFC 8166 sections 3.4.4 and 4.5.2). With RPCSEC_GSS
    /// nothing may be in a chunk unless the arguments follow as they are (RFC 8166 section 8.2.2).
    ///
    /// Words that come in a Position Zero chunk are not looked at, nor are Read chunks if none has
    /// bytes.
    pub(crate) fn has_counts(&self) -> bool {
        let Some(payload) = self.payload.filter(|_| self.index.layout.pages > 0) else {
            return true;
        };
        let mut chunks = self.lists.reads.chunks();
        let first = chunks.clone().next();
        if first.is_some_and(|first| !is_after_header(payload, first.position)) {
            return false;
        }
        // Bytes of the message that are not inline, and inline ones before the last chunk.
        let (mut reduced, mut last) = (0u64, 0);
        chunks.all(|chunk| {
            let inline = u64::from(chunk.position).checked_sub(reduced);
            let end = inline.and_then(|inline| usize::try_from(inline).ok());
            let between = end.and_then(|end| payload.get(last..end));
            reduced = reduced.saturating_add(padded(chunk.length()));
            last = end.unwrap_or(payload.len());
            let count = between.and_then(<[u8]>::last_chunk);
            count.is_some_and(|&count| is_data_of(chunk.length(), u32::from_be_bytes(count)))
        })
    }
}

/// Whether the first Read chunk, at `position`, and the count before it are arguments of the Call
/// that begins with `payload`: sunrpc expects the header (RFC 5531 section 9) in one piece, and if
/// RPCSEC_GSS protects the arguments or has its own, they are in no chunk.
fn is_after_header(payload: &[u8], position: u32) -> bool {
    let end = usize::try_from(position).ok();
    let before = end.and_then(|end| payload.get(..end.checked_sub(4)?));
    before.is_some_and(|before| has_header(before).is_some())
}

/// Whether `bytes` begin with the header of an RPC Call whose arguments may be in chunks.
fn has_header(bytes: &[u8]) -> Option<()> {
    const RPCSEC_GSS: [u8; 4] = 6u32.to_be_bytes();
    let credential = bytes.get(24..)?;
    let (flavor, rest) = auth(credential)?;
    if flavor == RPCSEC_GSS && !is_unprotected(credential) {
        return None;
    }
    auth(rest).map(|_| ())
}

/// The flavor of a credential or verifier at the start of `bytes`, and what follows its body.
fn auth(bytes: &[u8]) -> Option<([u8; 4], &[u8])> {
    /// The most bytes in a body.
    const MOST: u32 = 400;
    let (&[a, b, c, d, length @ ..], rest) = bytes.split_first_chunk::<8>()?;
    let length = u32::from_be_bytes(length);
    if length > MOST {
        return None;
    }
    let padded = usize::try_from(length.wrapping_add(3) & !3).ok()?;
    Some(([a, b, c, d], rest.get(padded..)?))
}

/// Whether a credential of RPCSEC_GSS, with flavor and length, is that of a Call whose arguments
/// follow as they are: RPCSEC_GSS_DATA with rpc_gss_svc_none (RFC 2203 section 5).
fn is_unprotected(credential: &[u8]) -> bool {
    const DATA: [u8; 4] = 0u32.to_be_bytes();
    const NONE: [u8; 4] = 1u32.to_be_bytes();
    let word = |at: usize| credential.get(at..)?.first_chunk();
    word(12) == Some(&DATA) && word(20) == Some(&NONE)
}

/// Whether a Read chunk of `length` bytes can be the data of a counted array of `count` bytes:
/// with its XDR round-up or without.
pub(crate) fn is_data_of(length: u64, count: u32) -> bool {
    let count = u64::from(count);
    length == count || length == padded(count)
}
