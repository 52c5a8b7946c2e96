// SPDX-License-Identifier: GPL-2.0

//! The Calls that one end has sent.

use std::collections::{HashMap, VecDeque};

use super::fault::Fault;
use crate::proto::responder::grants::Grants;
use crate::proto::wire::header::{Credits, FixedHeader, Xid};

/// The Calls of one end.
#[derive(Default)]
pub(super) struct Calls {
    /// Those that have no answer, by XID.
    waiting: HashMap<u32, VecDeque<Vec<u8>>>,
    /// What the end may send; not known before the first Reply if the capture begins later than the
    /// connection.
    grants: Option<Grants>,
    /// What the last Call asked for.
    requested: Option<Credits>,
}

impl Calls {
    /// Those of a new connection.
    pub(super) fn new() -> Self {
        Self {
            grants: Some(Grants::new(1, 1)),
            ..Self::default()
        }
    }

    /// A Call, or what is answered like one.
    pub(super) fn call(&mut self, fixed: &FixedHeader, bytes: &[u8], faults: &mut Vec<Fault>) {
        self.requested = Some(fixed.credits);
        if let Some(grants) = &mut self.grants {
            let outstanding = grants.outstanding();
            if !grants.call(fixed.credits) {
                faults.push(Fault::Overrun {
                    outstanding,
                    granted: grants.granted().get(),
                });
            }
        }
        let same = self.waiting.entry(fixed.xid.0).or_default();
        if !same.is_empty() {
            faults.push(Fault::SameXid);
        }
        same.push_back(bytes.to_vec());
    }

    /// Whether a Call with this XID has no answer.
    pub(super) fn waits(&self, xid: Xid) -> bool {
        self.waiting.contains_key(&xid.0)
    }

    /// The end has got an answer, which grants so much unless it is an RDMA_ERROR. The Call, if
    /// there is one.
    pub(super) fn answer(&mut self, xid: Xid, grant: Option<Credits>) -> Option<Vec<u8>> {
        let same = self.waiting.get_mut(&xid.0)?;
        let call = same.pop_front();
        if same.is_empty() {
            self.waiting.remove(&xid.0);
        }
        let Some(grant) = grant else {
            if let Some(grants) = &mut self.grants {
                grants.drop_call();
            }
            return call;
        };
        let waiting = &self.waiting;
        let grants = self.grants.get_or_insert_with(|| {
            let mut grants = Grants::new(1, 1);
            // This one, and those that wait.
            let others: usize = waiting.values().map(VecDeque::len).sum();
            for _ in 0..=others {
                grants.call(grant);
            }
            grants
        });
        let requested = self.requested.unwrap_or(grant);
        grants.replied(Credits::new(grant.get().min(requested.get())));
        call
    }
}
