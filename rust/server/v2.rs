// SPDX-License-Identifier: GPL-2.0

//! Version Two on one connection: which version is spoken, and its thresholds.

use super::transport::SvcxprtRdma;
use crate::{
    proto::{
        responder::grants::Grants,
        v2::responder::ResponderNegotiation,
        wire::{
            header::{Versions, VERSION_ONE, VERSION_TWO},
            private_data::Thresholds,
        },
    },
    trace,
};

/// What has been agreed on.
pub(super) struct VersionTwo {
    negotiation: ResponderNegotiation,
    /// Messages that were answered with an RDMA_ERROR and decide nothing.
    errors_sent: u64,
}

impl VersionTwo {
    /// A new connection, with these thresholds from private data.
    pub(super) fn new(thresholds: Thresholds) -> Self {
        Self {
            negotiation: ResponderNegotiation::new(thresholds),
            errors_sent: 0,
        }
    }

    /// Records a message that is answered with an RDMA_ERROR, and decides nothing.
    pub(super) fn error_sent(&mut self) {
        self.errors_sent = self.errors_sent.saturating_add(1);
    }

    /// Records a Call of Version Two, before `grants` counts it: the first Call decides.
    pub(super) fn called(&mut self, grants: &Grants) {
        let is_first = grants.received() <= self.errors_sent;
        self.negotiation.called(VERSION_TWO, is_first);
    }
}

impl SvcxprtRdma {
    /// The largest message to send in answer to one of `version`, in bytes.
    pub(super) fn threshold(&self, version: u32) -> u32 {
        if version == VERSION_ONE {
            return self.thresholds.send;
        }
        self.incoming.lock().v2.negotiation.thresholds(version).send
    }

    /// Records that a Reply in `version` is about to be sent.
    pub(super) fn replies_in(&self, version: u32) {
        if version != VERSION_ONE && self.incoming.lock().v2.negotiation.replied(version) {
            trace::svcrdma_version(self.number, version);
        }
    }

    /// Records that a Call in `version` is about to be answered with an RDMA_ERROR.
    pub(super) fn fails_in(&self, version: u32) {
        if version == VERSION_ONE {
            return;
        }
        let mut incoming = self.incoming.lock();
        // The Reply to another Call decides.
        let is_only = incoming.grants.received() <= incoming.v2.errors_sent.saturating_add(1);
        if is_only && incoming.v2.negotiation.failed() {
            incoming.v2.error_sent();
        }
    }

    /// The version that both ends speak, once that is known, and its thresholds. Until then the
    /// thresholds are those of Version One.
    pub(super) fn agreed(&self) -> (Option<u32>, Thresholds) {
        let incoming = self.incoming.lock();
        let has_replied =
            self.versions == Versions::ONE || incoming.grants.answered() > incoming.v2.errors_sent;
        let version = incoming.v2.negotiation.agreed(has_replied);
        let thresholds = match version {
            Some(version) => incoming.v2.negotiation.thresholds(version),
            None => self.thresholds,
        };
        (version, thresholds)
    }
}
