// SPDX-License-Identifier: GPL-2.0

//! What a Call offers: which regions are in which chunk.

use super::fabric::Fabric;
use super::form::Form;
use super::memory::{Buffer, Memory, Rights};
use super::payload::{short, ITEMS};
use super::rpc::Rpc;
use super::Failure;
use crate::proto::testing::simulation::plan_general::{CallPiece, ReplyPiece};
use crate::proto::wire::chunk::{ReadSegment, Segment};

/// The Write chunk of an item.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WriteChunk {
    /// Where in the Reply's buffer it starts.
    pub(crate) start: u32,
    /// Bytes; 0 if there is no such chunk.
    pub(crate) capacity: u32,
    regions: usize,
}

/// Each Write chunk, with the bytes that lie in it without a gap.
pub(crate) type Placed = [(WriteChunk, u64); ITEMS];

/// The chunks of a Call. Its regions are in the order of the fields.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offer {
    /// Regions of the Position Zero chunk.
    zero: usize,
    /// Position and regions of each other Read chunk.
    reads: [(u32, usize); ITEMS],
    /// The Write chunks.
    pub(crate) writes: [WriteChunk; ITEMS],
    /// Regions of the Reply chunk, which starts where the Reply's buffer does.
    reply: usize,
}

impl Offer {
    /// No chunk.
    pub(crate) const NONE: Self = Self {
        zero: 0,
        reads: [(0, 0); ITEMS],
        writes: [WriteChunk {
            start: 0,
            capacity: 0,
            regions: 0,
        }; ITEMS],
        reply: 0,
    };

    /// Registers what `form` asks for.
    ///
    /// # Errors
    ///
    /// [`Failure::Storage`].
    pub(crate) fn register(
        fabric: &mut Fabric<'_>,
        memory: &mut Memory<'_>,
        generation: u32,
        number: usize,
        (rpc, form): (&Rpc, &Form),
    ) -> Result<Self, Failure> {
        let mut offer = Self::NONE;
        let mut add = |memory: &mut Memory<'_>, buffer, (start, length), rights| {
            let largest = match buffer {
                Buffer::Call => rpc.region.0,
                Buffer::Reply => rpc.region.1,
            };
            let (mut from, mut left): (u32, u32) = (start, length);
            let mut regions = 0;
            while left != 0 {
                let length = left.min(largest);
                let extent = (buffer, from, length);
                memory.register(&mut fabric.random, generation, number, extent, rights)?;
                (from, left) = (from + length, left - length);
                regions += 1;
            }
            Ok::<usize, Failure>(regions)
        };

        let parts = rpc.call.parts();
        for (part, piece) in parts.iter().zip(form.call) {
            if let CallPiece::PositionZero { skip } = piece {
                let extent = (part.start + skip, part.len.saturating_sub(skip));
                offer.zero += add(memory, Buffer::Call, extent, Rights::Read)?;
            }
        }
        let mut reads = offer.reads.iter_mut();
        for (part, piece) in parts.iter().zip(form.call) {
            if let CallPiece::ReadChunk { position } = piece {
                let extent = (part.start, part.len);
                let regions = add(memory, Buffer::Call, extent, Rights::Read)?;
                *reads.next().ok_or(Failure::Storage)? = (position, regions);
            }
        }

        let in_chunk = rpc.largest.parts().into_iter().zip(form.reply);
        let in_chunk = in_chunk.filter(|(_, piece)| *piece == ReplyPiece::ReplyChunk);
        let in_chunk = in_chunk.map(|(part, _)| part.len);
        let mut start = in_chunk.clone().sum();
        let mut writes = offer.writes.iter_mut();
        for piece in form.reply {
            if let ReplyPiece::WriteChunk { capacity, .. } = piece {
                let extent = (start, capacity);
                *writes.next().ok_or(Failure::Storage)? = WriteChunk {
                    start,
                    capacity,
                    regions: add(memory, Buffer::Reply, extent, Rights::Write)?,
                };
                start += capacity;
            }
        }
        memory.clear_reply(number, start)?;
        start = 0;
        for len in in_chunk {
            offer.reply += add(memory, Buffer::Reply, (start, len), Rights::Write)?;
            start += len;
        }
        Ok(offer)
    }

    /// The Read list that `segments`, those of all regions, have in them.
    pub(crate) fn read_list<I: Iterator<Item = Segment> + Clone>(
        &self,
        segments: I,
    ) -> impl Iterator<Item = ReadSegment> + Clone {
        let chunks = [(0, self.zero)].into_iter().chain(self.reads);
        let positions =
            chunks.flat_map(|(position, regions)| core::iter::repeat_n(position, regions));
        positions
            .zip(segments)
            .map(|(position, segment)| ReadSegment { position, segment })
    }

    /// The Write chunks.
    pub(crate) fn write_list<I: Iterator<Item = Segment> + Clone>(
        &self,
        segments: I,
    ) -> [impl Iterator<Item = Segment> + Clone; ITEMS] {
        let mut skipped = self.reads();
        self.writes.map(|chunk| {
            let before = skipped;
            skipped += chunk.regions;
            segments.clone().skip(before).take(chunk.regions)
        })
    }

    /// The Reply chunk.
    pub(crate) fn reply_chunk<I: Iterator<Item = Segment> + Clone>(
        &self,
        segments: I,
    ) -> impl Iterator<Item = Segment> + Clone {
        let writes: usize = self.writes.iter().map(|chunk| chunk.regions).sum();
        segments.skip(self.reads() + writes).take(self.reply)
    }

    /// Regions of the Read list.
    fn reads(&self) -> usize {
        let reads: usize = self.reads.iter().map(|(_, regions)| regions).sum();
        self.zero + reads
    }

    /// Counts the Call by its chunks.
    pub(crate) fn count(&self, fabric: &mut Fabric<'_>) {
        let tally = &mut fabric.tally;
        let chunks = self.reads.iter().filter(|(_, regions)| *regions != 0);
        tally.read_chunks += u64::from(short(chunks.count()));
        tally.position_zero += u64::from(self.zero != 0);
    }
}
