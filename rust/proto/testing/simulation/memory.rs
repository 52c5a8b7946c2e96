// SPDX-License-Identifier: GPL-2.0

//! The requester's memory, and who may reach it.
//!
//! Each RPC has two buffers and its own regions. A region is free, registered or invalidated, and
//! only one that is not registered can become free. The responder reaches nothing but registered
//! regions, within their bounds and the way they allow.

use super::payload::{index, short};
use super::random::Random;
use super::{Failure, BUFFER_LEN, REGIONS_PER_RPC};
use crate::proto::wire::chunk::Segment;

/// What a region lets the responder do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rights {
    /// RDMA Read.
    Read,
    /// RDMA Write.
    Write,
}

/// The two buffers of an RPC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Buffer {
    /// The Call as the upper layer wrote it.
    Call,
    /// Where the upper layer wants the Reply.
    Reply,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    Registered,
    Invalidated,
}

/// A memory region.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Region {
    state: State,
    rights: Rights,
    generation: u32,
    segment: Segment,
    /// Where in all memory it starts.
    start: usize,
}

impl Region {
    /// What an unused place of the storage holds.
    pub(crate) const NONE: Self = Self {
        state: State::Free,
        rights: Rights::Read,
        generation: 0,
        segment: Segment {
            handle: 0,
            length: 0,
            offset: 0,
        },
        start: 0,
    };
}

/// All memory of the requester that can be registered.
pub(crate) struct Memory<'a> {
    bytes: &'a mut [u8],
    regions: &'a mut [Region],
}

/// The bytes that no honest responder leaves where it has placed something.
const UNTOUCHED: u8 = 0xee;

impl<'a> Memory<'a> {
    /// Memory without a registered region.
    pub(crate) fn new(bytes: &'a mut [u8], regions: &'a mut [Region]) -> Self {
        regions.fill(Region::NONE);
        Self { bytes, regions }
    }

    /// Where a buffer of an RPC starts.
    fn start(rpc: usize, buffer: Buffer) -> usize {
        let buffers = rpc.saturating_mul(2);
        let number = match buffer {
            Buffer::Call => buffers,
            Buffer::Reply => buffers.saturating_add(1),
        };
        number.saturating_mul(BUFFER_LEN)
    }

    /// The first `length` bytes of a buffer.
    ///
    /// # Errors
    ///
    /// [`Failure::Storage`] if it is not that long.
    pub(crate) fn buffer(
        &mut self,
        rpc: usize,
        buffer: Buffer,
        length: u32,
    ) -> Result<&mut [u8], Failure> {
        let start = Self::start(rpc, buffer);
        let rest = self.bytes.get_mut(start..).ok_or(Failure::Storage)?;
        let whole = rest.get_mut(..BUFFER_LEN).ok_or(Failure::Storage)?;
        whole.get_mut(..index(length)).ok_or(Failure::Storage)
    }

    /// Makes the first `length` bytes of the Reply's buffer such that every change is seen.
    ///
    /// # Errors
    ///
    /// Those of [`Memory::buffer`].
    pub(crate) fn clear_reply(&mut self, rpc: usize, length: u32) -> Result<(), Failure> {
        self.buffer(rpc, Buffer::Reply, length)?.fill(UNTOUCHED);
        Ok(())
    }

    /// Whether `length` bytes of the Reply's buffer from `from` on are as they were.
    pub(crate) fn is_untouched(&mut self, rpc: usize, from: u32, length: u32) -> bool {
        let end = from.saturating_add(length);
        self.buffer(rpc, Buffer::Reply, end)
            .ok()
            .and_then(|bytes| bytes.get(index(from)..))
            .is_some_and(|bytes| bytes.iter().all(|&byte| byte == UNTOUCHED))
    }

    /// The regions of an RPC.
    fn of(&self, rpc: usize) -> &[Region] {
        let rest = self.regions.get(rpc.saturating_mul(REGIONS_PER_RPC)..);
        rest.and_then(|rest| rest.get(..REGIONS_PER_RPC))
            .unwrap_or_default()
    }

    fn of_mut(&mut self, rpc: usize) -> &mut [Region] {
        let rest = self.regions.get_mut(rpc.saturating_mul(REGIONS_PER_RPC)..);
        rest.and_then(|rest| rest.get_mut(..REGIONS_PER_RPC))
            .unwrap_or_default()
    }

    /// Registers `length` bytes of a buffer from `from` on, in the next free region of the RPC.
    ///
    /// # Errors
    ///
    /// [`Failure::Storage`] if the RPC has no free region.
    pub(crate) fn register(
        &mut self,
        random: &mut Random<'_>,
        generation: u32,
        rpc: usize,
        (buffer, from, length): (Buffer, u32, u32),
        rights: Rights,
    ) -> Result<(), Failure> {
        let first = rpc.saturating_mul(REGIONS_PER_RPC);
        let next = self.of(rpc).iter().position(|r| r.state == State::Free);
        let number = next.ok_or(Failure::Storage)?.saturating_add(first);
        let region = self.regions.get_mut(number).ok_or(Failure::Storage)?;
        let highest = u64::MAX - u64::from(length.saturating_sub(1));
        let offset = match random.below(4) {
            0 => 0,
            1 => highest,
            _ => random.next().min(highest),
        };
        // The low half finds the region; the high half is never that of its last registration.
        let changed = (region.segment.handle >> 16).wrapping_add(random.between(1, 0xfffe));
        *region = Region {
            state: State::Registered,
            rights,
            generation,
            segment: Segment {
                handle: (changed << 16) | (short(number) & 0xffff),
                length,
                offset,
            },
            start: Self::start(rpc, buffer).saturating_add(index(from)),
        };
        Ok(())
    }

    /// The regions of an RPC that are not free, in the order in which they were registered.
    pub(crate) fn segments(&self, rpc: usize) -> impl Iterator<Item = Segment> + Clone + '_ {
        let used = |region: &&Region| region.state != State::Free;
        self.of(rpc).iter().filter(used).map(|r| r.segment)
    }

    /// A registered region of an RPC, if it has one.
    pub(crate) fn registered(&self, rpc: usize) -> Option<u32> {
        let registered = |region: &&Region| region.state == State::Registered;
        Some(self.of(rpc).iter().find(registered)?.segment.handle)
    }

    /// Whether the RPC has a registered region with this handle.
    pub(crate) fn is_registered(&self, rpc: usize, handle: u32) -> bool {
        self.of(rpc)
            .iter()
            .any(|r| r.state == State::Registered && r.segment.handle == handle)
    }

    /// The RPC that a handle was made for.
    pub(crate) fn rpc_of(handle: u32) -> usize {
        index(handle & 0xffff) / REGIONS_PER_RPC
    }

    /// Finds the registered region that a handle names on a connection.
    fn find(&mut self, generation: u32, handle: u32) -> Option<&mut Region> {
        let region = self.regions.get_mut(index(handle & 0xffff))?;
        let found = region.state == State::Registered
            && region.segment.handle == handle
            && region.generation == generation;
        found.then_some(region)
    }

    /// Invalidates a region, locally or because the responder says so; false if there is none.
    pub(crate) fn invalidate(&mut self, generation: u32, handle: u32) -> bool {
        let found = self.find(generation, handle);
        found.is_some_and(|region| {
            region.state = State::Invalidated;
            true
        })
    }

    /// Invalidates all regions of an RPC.
    pub(crate) fn invalidate_rpc(&mut self, rpc: usize) {
        for region in self.of_mut(rpc) {
            if region.state == State::Registered {
                region.state = State::Invalidated;
            }
        }
    }

    /// Invalidates all that the responder could reach by a connection, which is over.
    pub(crate) fn invalidate_all(&mut self, generation: u32) {
        for region in self.regions.iter_mut() {
            if region.state == State::Registered && region.generation == generation {
                region.state = State::Invalidated;
            }
        }
    }

    /// Frees the regions of an RPC.
    ///
    /// # Errors
    ///
    /// [`Failure::Fence`] if the responder could still reach one.
    pub(crate) fn release(&mut self, rpc: usize) -> Result<(), Failure> {
        if let Some(handle) = self.registered(rpc) {
            return Err(Failure::Fence { rpc, handle });
        }
        for region in self.of_mut(rpc) {
            region.state = State::Free;
        }
        Ok(())
    }

    /// Whether any region is not free.
    pub(crate) fn is_leaking(&self) -> bool {
        self.regions.iter().any(|r| r.state != State::Free)
    }

    /// The bytes that the responder reaches, or nothing if it may not.
    pub(crate) fn reach(
        &mut self,
        generation: u32,
        handle: u32,
        (offset, length): (u64, u32),
        rights: Rights,
    ) -> Option<&mut [u8]> {
        let &mut Region {
            segment,
            start,
            rights: allowed,
            ..
        } = self.find(generation, handle)?;
        let from = offset.checked_sub(segment.offset)?;
        let end = from.checked_add(u64::from(length))?;
        if allowed != rights || end > u64::from(segment.length) {
            return None;
        }
        let rest = self.bytes.get_mut(start.checked_add(index(from))?..)?;
        rest.get_mut(..index(length))
    }
}
