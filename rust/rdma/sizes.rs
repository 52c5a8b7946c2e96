// SPDX-License-Identifier: GPL-2.0

//! The sizes of a queue pair's queues.

use super::{client_send::RESERVED, raw_qp::Capacities};

/// The sizes of a queue pair's queues.
#[derive(Clone, Copy)]
pub(crate) struct QpSizes {
    /// The largest number of send buffers.
    pub(crate) sends: u32,
    /// Bytes in each send buffer.
    pub(crate) send_size: u32,
    /// Receive buffers that are always posted or hold a message.
    pub(crate) receives: u32,
    /// Bytes in each receive buffer.
    pub(crate) receive_size: u32,
    /// Calls that can have registered regions, one slot each.
    pub(crate) slots: u32,
    /// Regions that one Call can have.
    pub(crate) regions: u32,
}

impl QpSizes {
    /// Work requests that the send queue may have to hold: registrations and Sends of the ring,
    /// invalidations, the reserved Sends, and one for the drain.
    pub(crate) fn send_requests(&self) -> u32 {
        let ring = self.sends.saturating_mul(self.regions.saturating_add(1));
        let invalidations = self.slots.saturating_mul(self.regions);
        // CAST: A small constant.
        let others = (RESERVED as u32).saturating_add(1);
        ring.saturating_add(invalidations).saturating_add(others)
    }

    /// Work requests that the receive queue may have to hold, including one for the drain.
    pub(crate) fn receive_requests(&self) -> u32 {
        self.receive_buffers().saturating_add(1)
    }

    /// Completions that the completion queue, which both queues share, may have to hold.
    pub(crate) fn completions(&self) -> u32 {
        self.send_requests().saturating_add(self.receive_requests())
    }

    /// Receive buffers, including those beyond `receives` that wait for a batch to be complete.
    pub(super) fn receive_buffers(&self) -> u32 {
        self.receives
            .saturating_add(self.receive_batch().saturating_sub(1))
    }

    /// How many Receives are posted together: ringing the doorbell costs the same for one as for
    /// many.
    pub(super) fn receive_batch(&self) -> u32 {
        (self.receives / 4).clamp(1, 32)
    }

    /// The capacities of the queue pair.
    pub(super) fn capacities(&self) -> Capacities {
        Capacities {
            send_requests: self.send_requests(),
            receive_requests: self.receive_requests(),
            transfers: 0,
            send_sge: 1,
        }
    }
}
