// SPDX-License-Identifier: GPL-2.0

//! Calls whose Replies cost a connection (RFC 8166 section 4.5.3).
//!
//! A chunk that names no memory is noticed only when an RDMA Read or Write fails, and then the
//! connection is lost. The requester sends the Call again on the next one, and so on without end,
//! unless an RDMA_ERROR says that there will be no Reply.

use crate::proto::wire::header::Xid;

/// Connections that a Call may cost before it is refused: a requester may have let go of its memory
/// for a reason that no longer holds when it sends the Call again.
const PATIENCE: u32 = 2;

/// A Call that could not be answered.
#[derive(Clone, Copy, Debug)]
struct Entry<P> {
    peer: P,
    xid: Xid,
    /// When it last arrived or cost a connection.
    since: u64,
    /// How many connections it has cost.
    connections: u32,
}

/// The last `N` Calls that could not be answered, of all requesters.
///
/// `P` identifies a requester beyond the life of a connection, as by its address without the port.
#[derive(Clone, Debug)]
pub(crate) struct UnanswerableCalls<P, const N: usize> {
    entries: [Option<Entry<P>>; N],
    /// How long each is remembered, in the unit of the caller's clock.
    lifetime: u64,
}

impl<P: Copy + PartialEq, const N: usize> UnanswerableCalls<P, N> {
    /// Remembers each Call for `lifetime`, in the unit of the clock that all methods are given.
    pub(crate) const fn new(lifetime: u64) -> Self {
        Self {
            entries: [const { None }; N],
            lifetime,
        }
    }

    /// The requester's end has refused an RDMA Read or Write for the Call `xid` of `peer` at `now`,
    /// which ends the connection. The oldest Call makes room. Operations that are only flushed with
    /// their connection do not count, nor do those that get no answer: neither says anything about
    /// their Calls.
    pub(crate) fn record(&mut self, peer: P, xid: Xid, now: u64) {
        self.expire(now);
        if let Some(entry) = self.find(peer, xid) {
            entry.since = now;
            entry.connections = entry.connections.saturating_add(1);
            return;
        }
        let age = |entry: &Option<Entry<P>>| {
            // Unused entries are taken first.
            entry.map_or(u64::MAX, |entry| now.saturating_sub(entry.since))
        };
        let oldest = self.entries.iter_mut().max_by_key(|entry| age(entry));
        if let Some(entry) = oldest {
            *entry = Some(Entry {
                peer,
                xid,
                since: now,
                connections: 1,
            });
        }
    }

    /// Whether a Call that has arrived is to be answered with an RDMA_ERROR of
    /// [`ErrorBody::Chunk`](crate::proto::wire::error::ErrorBody::Chunk), because it has already
    /// cost several connections. Once that is sent, the Call is to be forgotten.
    pub(crate) fn is_refused(&mut self, peer: P, xid: Xid, now: u64) -> bool {
        self.expire(now);
        self.find(peer, xid).is_some_and(|entry| {
            entry.since = now;
            entry.connections >= PATIENCE
        })
    }

    /// Forgets a Call that was answered with an RDMA_ERROR. That is final for the requester, which
    /// may use the XID again.
    pub(crate) fn forget(&mut self, peer: P, xid: Xid) {
        for entry in &mut self.entries {
            if entry.is_some_and(|found| found.peer == peer && found.xid == xid) {
                *entry = None;
            }
        }
    }

    /// What is remembered of a Call.
    fn find(&mut self, peer: P, xid: Xid) -> Option<&mut Entry<P>> {
        let mut entries = self.entries.iter_mut().flatten();
        entries.find(|entry| entry.peer == peer && entry.xid == xid)
    }

    /// Forgets the Calls whose time is over.
    fn expire(&mut self, now: u64) {
        for entry in &mut self.entries {
            if entry.is_some_and(|found| now.saturating_sub(found.since) >= self.lifetime) {
                *entry = None;
            }
        }
    }

    /// Whether a Call of `peer` is remembered. Otherwise [`Self::is_refused`] need not be asked on
    /// the connection that begins at `now`.
    pub(crate) fn has_any(&mut self, peer: P, now: u64) -> bool {
        self.expire(now);
        let mut entries = self.entries.iter().flatten();
        entries.any(|entry| entry.peer == peer)
    }
}

#[cfg(any(test, rpcrdma_kunit))]
#[cfg_attr(rpcrdma_kunit, kernel::macros::kunit_tests(rpcrdma_proto_unanswerable))]
mod tests {
    use super::*;

    const XID: Xid = Xid(0xa1b2_c3d4);

    /// Whether a Call is refused, which is answered then.
    fn take<const N: usize>(
        calls: &mut UnanswerableCalls<u32, N>,
        peer: u32,
        xid: Xid,
        now: u64,
    ) -> bool {
        let is_refused = calls.is_refused(peer, xid, now);
        if is_refused {
            calls.forget(peer, xid);
        }
        is_refused
    }

    /// Proves: V1-138.
    #[test]
    fn a_call_that_cannot_be_answered_is_refused_once() {
        let mut calls = UnanswerableCalls::<u32, 4>::new(100);
        assert!(!calls.has_any(1, 1000));
        calls.record(1, XID, 1000);
        assert_eq!([1, 2].map(|peer| calls.has_any(peer, 1000)), [true, false]);
        // It may have been bad luck.
        assert!(!take(&mut calls, 1, XID, 1001));
        calls.record(1, XID, 1002);
        // Another requester's Calls have nothing to do with it, nor have other Calls.
        assert!(!take(&mut calls, 2, XID, 1003));
        assert!(!take(&mut calls, 1, Xid(XID.0.wrapping_add(1)), 1003));
        assert!(take(&mut calls, 1, XID, 1003));
        assert!(!calls.has_any(1, 1003));
        assert!(!take(&mut calls, 1, XID, 1004));
    }

    #[test]
    fn a_call_is_refused_until_it_is_answered() {
        let mut calls = UnanswerableCalls::<u32, 4>::new(100);
        record_twice(&mut calls, 1, 1000);
        record_twice(&mut calls, 2, 1000);
        assert_eq!(
            [1001, 1002].map(|now| calls.is_refused(1, XID, now)),
            [true; 2]
        );
        // The answer to another Call changes nothing.
        calls.forget(2, XID);
        calls.forget(1, Xid(1));
        assert!(calls.is_refused(1, XID, 1003));
        calls.forget(1, XID);
        assert_eq!([1, 2].map(|peer| calls.has_any(peer, 1003)), [false; 2]);
    }

    fn record_twice<const N: usize>(calls: &mut UnanswerableCalls<u32, N>, peer: u32, now: u64) {
        calls.record(peer, XID, now);
        calls.record(peer, XID, now);
    }

    #[test]
    fn a_call_is_forgotten_in_time() {
        let mut calls = UnanswerableCalls::<u32, 2>::new(100);
        record_twice(&mut calls, 1, 1000);
        record_twice(&mut calls, 2, 1000);
        assert!(take(&mut calls, 1, XID, 1099));
        assert!(calls.has_any(2, 1099));
        assert!(!take(&mut calls, 2, XID, 1100));
        assert_eq!([1, 2].map(|peer| calls.has_any(peer, 1099)), [false; 2]);
        calls.record(2, XID, 1000);
        assert!(!calls.has_any(2, 1100));
        // A clock that goes back makes nothing old.
        record_twice(&mut calls, 1, 1000);
        assert!(take(&mut calls, 1, XID, 999));
        // Calls other than the one that is looked for are forgotten as well.
        calls.record(1, XID, 1000);
        assert!(!take(&mut calls, 2, XID, 1100));
        assert_eq!([1, 2].map(|peer| calls.has_any(peer, 1000)), [false; 2]);
    }

    #[test]
    fn the_oldest_call_makes_room() {
        let mut calls = UnanswerableCalls::<u32, 2>::new(100);
        record_twice(&mut calls, 1, 10);
        record_twice(&mut calls, 2, 11);
        // The same Call again needs no room.
        calls.record(2, XID, 12);
        assert!(take(&mut calls, 1, XID, 13));
        record_twice(&mut calls, 1, 13);
        record_twice(&mut calls, 3, 14);
        assert!(!take(&mut calls, 2, XID, 15));
        assert!(take(&mut calls, 1, XID, 15));
        assert!(take(&mut calls, 3, XID, 15));
        let mut none = UnanswerableCalls::<u32, 0>::new(100);
        none.record(1, XID, 10);
        assert!(!take(&mut none, 1, XID, 10));
    }
}
