// SPDX-License-Identifier: GPL-2.0

//! Flow control by credits (RFC 8166 section 3.3.1).
//!
//! Credits count messages, not bytes, and each direction has its own (RFC 8167 section 4).

use crate::proto::wire::header::Credits;

/// How many Calls a requester may have outstanding on one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CreditWindow {
    requested: Credits,
    granted: Credits,
}

impl CreditWindow {
    /// Starts a connection whose Calls all ask for `requested` credits.
    ///
    /// One Call may be outstanding until the first Reply (RFC 8166 section 3.3.3).
    pub(crate) const fn new(requested: Credits) -> Self {
        Self {
            requested,
            granted: Credits::new(1),
        }
    }

    /// The credit word of every Call.
    pub(crate) const fn requested(&self) -> Credits {
        self.requested
    }

    /// Takes over the grant of a Reply, which may be higher or lower than the last one, and
    /// returns the new window.
    ///
    /// Only a Reply grants credits; an RDMA_ERROR and a backward Call do not.
    pub(crate) fn grant(&mut self, granted: Credits) -> u32 {
        self.granted = granted;
        self.window()
    }

    /// The most Calls that may be outstanding, from 1 to the requested number.
    pub(crate) fn window(&self) -> u32 {
        self.granted.get().min(self.requested.get())
    }
}
