// SPDX-License-Identifier: GPL-2.0

//! The chunks of a Reply compared with those that its Call offered (RFC 8166 sections 3.4.6 and
//! 4.3.2).

use super::decode::ReceivedReply;
use crate::proto::message::MIN_PAYLOAD_LEN;
use crate::proto::wire::chunk::Chunk;
use crate::proto::wire::xdr::Reader;

/// `reply_stat` of a Call that was accepted (RFC 5531 section 9).
const MSG_ACCEPTED: u32 = 0;

/// The most bytes that the body of a verifier may have (RFC 5531 section 8.2).
const MAX_VERIFIER_LEN: usize = 400;

/// Why the chunks of a Reply do not match those of its Call. The RPC fails, and nothing is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mismatch {
    /// More or fewer Write chunks than were offered, or a Reply chunk that was not offered.
    Chunks,
    /// More or fewer segments in a chunk than were offered.
    Segments,
    /// A segment came back longer than it was offered.
    Length,
    /// RDMA_MSG with bytes in the Reply chunk: two different Payloads.
    UsedReplyChunk,
    /// RDMA_NOMSG without a Reply chunk, or with less at its start than an RPC header has.
    NoPayload,
}

/// What the responder placed in one chunk, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Delivery {
    /// The sum of the returned lengths (RFC 8166 section 4.3.2).
    pub(crate) total: u64,
    /// The bytes that lie in the chunk's memory without a gap, counted from its start.
    ///
    /// A responder that fills the segments in order gives the same number as `total`. A smaller
    /// one means that a segment which was not full is followed by one that is not empty; memory
    /// beyond this number must not be taken for data.
    pub(crate) contiguous: u64,
}

impl Delivery {
    /// Whether a result for which a Write chunk was offered arrived inline: the chunk is empty, and
    /// `inline`, the RPC message in the Send, is longer than the `head` bytes that may precede the
    /// result. A responder must place such a result directly (RFC 8166 section 4.3.2), and a
    /// requester may assume that it has (section 6.1).
    ///
    /// `head` assumes a verifier as long as that of an earlier Reply. The actual verifier may be
    /// longer by its whole length.
    pub(crate) fn is_eligibility_violation(&self, inline: &[u8], head: usize) -> bool {
        self.total == 0
            && inline.len() > head
            && inline.len().saturating_sub(head) > verifier_len(inline)
    }

    /// Whether the result was placed directly, and the `head` bytes for what precedes it are too
    /// few for `inline`, as the verifier is longer than that of an earlier Reply: the last words
    /// before the result would be looked for in it. Nothing but round-up follows such a result.
    pub(crate) fn is_after_longer_verifier(&self, inline: &[u8], head: usize) -> bool {
        let excess = inline.len().saturating_sub(head);
        self.total != 0 && excess > 3 && excess & !3 <= verifier_len(inline)
    }

    /// Compares a returned chunk with the segment lengths that were offered.
    ///
    /// # Errors
    ///
    /// [`Mismatch::Segments`] and [`Mismatch::Length`].
    fn measure(chunk: &Chunk<'_>, offered: impl Iterator<Item = u32>) -> Result<Self, Mismatch> {
        let mut delivery = Self::default();
        let mut gap = false;
        let mut returned = chunk.segments();
        for capacity in offered {
            let length = returned.next().ok_or(Mismatch::Segments)?.length;
            if length > capacity {
                return Err(Mismatch::Length);
            }
            let bytes = u64::from(length);
            delivery.total = delivery.total.saturating_add(bytes);
            if !gap {
                delivery.contiguous = delivery.contiguous.saturating_add(bytes);
            }
            gap |= length < capacity;
        }
        match returned.next() {
            Some(_) => Err(Mismatch::Segments),
            None => Ok(delivery),
        }
    }
}

/// What a Reply delivered by RDMA Write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Delivered<const N: usize> {
    /// The Write chunks; zero bytes for one that was not offered or not used.
    pub(crate) writes: [Delivery; N],
    /// The Reply chunk; zero bytes if none was offered or the Reply is inline.
    pub(crate) reply: Delivery,
}

impl ReceivedReply<'_> {
    /// Compares the returned chunks with the offered ones.
    ///
    /// Each item of `writes` is one Write chunk and `reply` is the Reply chunk, both as the
    /// segment lengths in bytes that the Call had; no segments means that no such chunk was
    /// offered.
    ///
    /// The numbers of chunks and segments must be the offered ones and no length may have grown. A
    /// list that was left out counts as unused. A segment after the last byte of the data need not
    /// have the length 0. Handles and offsets are not compared, because the
    /// data is where this end registered it, whatever they say.
    ///
    /// # Errors
    ///
    /// Any [`Mismatch`].
    pub(crate) fn reconcile<const N: usize>(
        &self,
        writes: [impl Iterator<Item = u32> + Clone; N],
        reply: impl Iterator<Item = u32> + Clone,
    ) -> Result<Delivered<N>, Mismatch> {
        let mut delivered = Delivered {
            writes: [Delivery::default(); N],
            reply: Delivery::default(),
        };
        if self.writes.count() != 0 {
            let mut returned = self.writes.chunks();
            for (delivery, offered) in delivered.writes.iter_mut().zip(writes) {
                if is_offered(&offered) {
                    let chunk = returned.next().ok_or(Mismatch::Chunks)?;
                    *delivery = Delivery::measure(&chunk, offered)?;
                }
            }
            if returned.next().is_some() {
                return Err(Mismatch::Chunks);
            }
        }
        if let Some(chunk) = self.chunk {
            if !is_offered(&reply) {
                return Err(Mismatch::Chunks);
            }
            delivered.reply = Delivery::measure(&chunk, reply)?;
        }
        match self.payload {
            None if delivered.reply.contiguous < MIN_PAYLOAD_LEN => Err(Mismatch::NoPayload),
            Some(_) if delivered.reply.total != 0 => Err(Mismatch::UsedReplyChunk),
            _ => Ok(delivered),
        }
    }
}

/// Length in bytes of the body of an RPC Reply's verifier, with its padding (RFC 5531 section 9),
/// but at most the maximum; 0 if there is none.
fn verifier_len(rpc: &[u8]) -> usize {
    let mut reader = Reader::new(rpc);
    match reader.decode_words() {
        Ok([_xid, _reply, MSG_ACCEPTED, _flavor, length]) => {
            let length = usize::try_from(length).unwrap_or(MAX_VERIFIER_LEN);
            length.min(MAX_VERIFIER_LEN).saturating_add(3) & !3
        }
        _ => 0,
    }
}

/// Whether the Call had a chunk with these segment lengths, as one without segments is not sent.
fn is_offered(lengths: &(impl Iterator<Item = u32> + Clone)) -> bool {
    lengths.clone().next().is_some()
}
