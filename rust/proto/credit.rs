// SPDX-License-Identifier: GPL-2.0

//! Flow control by credits (RFC 8166 section 3.3.1).
//!
//! Credits count messages, not bytes, and each direction has its own (RFC 8167 section 4).

use super::header::Credits;

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

    /// Starts over on a new connection, which knows nothing of the grants of the last one.
    #[cfg(rpcrdma_selftest)]
    pub(crate) fn reset(&mut self) {
        *self = Self::new(self.requested);
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

/// The credit word of a responder's Replies: what was asked for, within its own limit.
///
/// `limit` is the number of Receives that are posted for this connection.
#[cfg(rpcrdma_selftest)]
pub(crate) fn granted(requested: Credits, limit: Credits) -> Credits {
    Credits::new(requested.get().min(limit.get()))
}

#[cfg(any(test, rpcrdma_kunit))]
#[cfg_attr(rpcrdma_kunit, kernel::macros::kunit_tests(rpcrdma_proto_credit))]
mod tests {
    use super::*;

    #[test]
    fn one_call_until_the_first_reply() {
        let mut window = CreditWindow::new(Credits::new(32));
        assert_eq!(window.window(), 1);
        assert_eq!(window.requested().get(), 32);
        assert_eq!(window.grant(Credits::new(8)), 8);
        window.reset();
        assert_eq!(window.window(), 1);
        assert_eq!(window.requested().get(), 32);
    }

    #[test]
    fn grants_rise_and_fall_within_the_request() {
        let mut window = CreditWindow::new(Credits::new(4));
        assert_eq!(window.grant(Credits::new(32)), 4);
        assert_eq!(window.grant(Credits::new(2)), 2);
        assert_eq!(window.grant(Credits::new(0)), 1);
        assert_eq!(window.grant(Credits::new(u32::MAX)), 4);
        assert_eq!(window.window(), 4);
    }

    #[test]
    fn responder_grants_between_one_and_its_limit() {
        let limit = Credits::new(16);
        assert_eq!(granted(Credits::new(0), limit).get(), 1);
        assert_eq!(granted(Credits::new(4), limit).get(), 4);
        assert_eq!(granted(Credits::new(u32::MAX), limit).get(), 16);
        assert_eq!(granted(Credits::new(9), Credits::new(0)).get(), 1);
    }
}
