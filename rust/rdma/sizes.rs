// SPDX-License-Identifier: GPL-2.0

//! How large the queues of a queue pair are.

use super::{qp::Capacities, send::RESERVED};

/// How large the queues of a queue pair are.
#[derive(Clone, Copy)]
pub(crate) struct QpSizes {
    /// The most send buffers.
    pub(crate) sends: u32,
    /// Bytes in each send buffer.
    pub(crate) send_size: u32,
    /// Receive buffers that are always posted or hold a message.
    pub(crate) receives: u32,
    /// Bytes in each receive buffer.
    pub(crate) receive_size: u32,
    /// Calls that can have regions registered, one slot each.
    pub(crate) slots: u32,
    /// Regions that one Call can have.
    pub(crate) regions: u32,
}

impl QpSizes {
    /// Work requests that the send queue can have to hold: registrations and Sends of the ring,
    /// invalidations, the reserved Sends, and one for the drain.
    pub(crate) fn send_requests(&self) -> u32 {
        let ring = self.sends.saturating_mul(self.regions.saturating_add(1));
        let invalidations = self.slots.saturating_mul(self.regions);
        // CAST: A few.
        let others = (RESERVED as u32).saturating_add(1);
        ring.saturating_add(invalidations).saturating_add(others)
    }

    /// Work requests that the receive queue can have to hold, one for the drain among them.
    pub(crate) fn receive_requests(&self) -> u32 {
        self.receive_buffers().saturating_add(1)
    }

    /// Completions that the completion queue can have to hold, which both queues share.
    pub(crate) fn completions(&self) -> u32 {
        self.send_requests().saturating_add(self.receive_requests())
    }

    /// Receive buffers with those beyond `receives`, because some wait for a batch to be complete.
    pub(super) fn receive_buffers(&self) -> u32 {
        self.receives
            .saturating_add(self.receive_batch().saturating_sub(1))
    }

    /// How many Receives are posted together: what rings the doorbell costs as much for one.
    pub(super) fn receive_batch(&self) -> u32 {
        (self.receives / 4).clamp(1, 32)
    }

    /// What the queue pair has to hold.
    pub(super) fn capacities(&self) -> Capacities {
        Capacities {
            send_requests: self.send_requests(),
            receive_requests: self.receive_requests(),
            transfers: 0,
            send_sge: 1,
        }
    }
}
