// SPDX-License-Identifier: GPL-2.0

//! Selects the memory regions for a message, and maps them. The data of a chunk has a region
//! without gaps, which adapters reach faster than one with gaps. Only a message of several parts
//! that is sent as a whole is mapped into one region with gaps, if the device has such regions, so
//! that one invalidation, possibly a remote one, is enough.

use super::{
    connection::Connection,
    regions::{Capacity, WithGaps},
};
use crate::{
    proto::requester::plan::{CallForm, Plan, ReplyForm, Segments},
    rdma::{Access, Exposable, Idle, Mapped, Mr, MrList, RegionSize},
    sunrpc::client::{Rqst, RqstBuf, SendError},
};
use kernel::prelude::*;

/// Counts the regions of this capacity that a message needs, one for each segment.
pub(super) struct MessageRegions<'a> {
    pub(super) message: RqstBuf<'a>,
    pub(super) capacity: &'a Capacity,
}

impl Segments for MessageRegions<'_> {
    fn pages(&self) -> u32 {
        region_count(self.message.pages(), self.capacity.size)
    }

    fn all(&self) -> u64 {
        region_count_of_all(self.message, self.capacity)
    }
}

/// Counts the regions without gaps of this size that a part needs. A count that does not fit makes
/// the plan fail: no list has that many segments.
fn region_count(part: Option<Exposable<'_>>, size: RegionSize) -> u32 {
    part.map_or(0, |part| {
        u32::try_from(part.region_count(size)).unwrap_or(u32::MAX)
    })
}

/// The message is passed by value, so that the inputs of the plan need not be in memory.
fn region_count_of_all(message: RqstBuf<'_>, capacity: &Capacity) -> u64 {
    if capacity.has_gaps() && capacity.holds_whole(&message.parts()) {
        return 1;
    }
    let count = |part| u64::from(region_count(part, capacity.size));
    count(message.head())
        .saturating_add(count(message.pages()))
        .saturating_add(count(message.tail()))
}

/// Which regions have gaps: those onto which the Call, or the buffer for its Reply, is mapped as a
/// whole. The Call's region comes first, the Reply's last.
pub(super) fn with_gaps(
    call: Option<RqstBuf<'_>>,
    room: Option<RqstBuf<'_>>,
    capacity: &Capacity,
) -> WithGaps {
    let has_gaps = |message: RqstBuf<'_>| capacity.holds_whole(&message.parts());
    match (call.is_some_and(has_gaps), room.is_some_and(has_gaps)) {
        (false, false) => WithGaps::Neither,
        (true, false) => WithGaps::First,
        (false, true) => WithGaps::Last,
        (true, true) => WithGaps::Both,
    }
}

/// Maps the parts of the Call and of the buffer for its Reply that the plan names, in the order of
/// the lists, into regions taken from `idle`.
pub(super) fn map(
    connection: &Connection,
    rqst: &Rqst,
    reply: RqstBuf<'_>,
    plan: &Plan,
    idle: &mut MrList<Idle>,
    regions: &mut MrList<Mapped>,
) -> Result<(), SendError> {
    let (xid, capacity) = (rqst.xid(), connection.regions.capacity());
    let call = rqst.call();
    match plan.call {
        CallForm::Inline => {}
        CallForm::ReadChunk { .. } => {
            map_part(
                call.pages(),
                Access::RemoteRead,
                xid,
                capacity,
                idle,
                regions,
            )?;
        }
        CallForm::PositionZero => {
            map_whole(call, Access::RemoteRead, xid, capacity, idle, regions)?;
        }
    }
    match plan.reply {
        ReplyForm::Inline => Ok(()),
        ReplyForm::WriteChunk => map_part(
            reply.pages(),
            Access::RemoteWrite,
            xid,
            capacity,
            idle,
            regions,
        ),
        ReplyForm::ReplyChunk => {
            map_whole(reply, Access::RemoteWrite, xid, capacity, idle, regions)
        }
    }
}

/// Maps a message into one region, if it can have gaps, or part by part.
fn map_whole(
    message: RqstBuf<'_>,
    access: Access,
    xid: u32,
    capacity: &Capacity,
    idle: &mut MrList<Idle>,
    regions: &mut MrList<Mapped>,
) -> Result<(), SendError> {
    if capacity.has_gaps() {
        let parts = message.parts();
        if capacity.holds_whole(&parts) {
            let region = idle.pop().ok_or(SendError::Failed)?;
            let region = region.map_all(parts.iter().flatten(), access, xid);
            return keep(region, idle, regions);
        }
    }
    // Usually there is only one.
    let mut map = |part: Option<_>| {
        part.map_or(Ok(()), |part| {
            map_part(Some(part), access, xid, capacity, idle, regions)
        })
    };
    map(message.head())?;
    map(message.pages())?;
    map(message.tail())
}

/// Maps a part, if there is one, into as many regions as it needs.
fn map_part(
    part: Option<Exposable<'_>>,
    access: Access,
    xid: u32,
    capacity: &Capacity,
    idle: &mut MrList<Idle>,
    regions: &mut MrList<Mapped>,
) -> Result<(), SendError> {
    let mut next = part;
    while let Some(mut part) = next {
        next = part.split_off(capacity.size);
        // The regions were counted from the same parts.
        let region = idle.pop().ok_or(SendError::Failed)?;
        keep(region.map(&part, access, xid), idle, regions)?;
    }
    Ok(())
}

/// Moves a region to the list where it belongs after the attempt to map it.
fn keep(
    region: Result<Mr<Mapped>, (Mr<Idle>, Error)>,
    idle: &mut MrList<Idle>,
    regions: &mut MrList<Mapped>,
) -> Result<(), SendError> {
    match region {
        Ok(region) => {
            regions.push_back(region);
            Ok(())
        }
        Err((region, error)) => {
            idle.push_front(region);
            Err(if error == ENOMEM {
                SendError::NoMemory
            } else {
                SendError::Failed
            })
        }
    }
}
