// SPDX-License-Identifier: GPL-2.0

//! What a requester has in the simulation and in tests only.

pub(crate) mod credits;
#[cfg(any(test, rpcrdma_kunit))]
mod plan_tests;

use crate::proto::requester::plan::{header_len, Parts, Plan, ReplyForm, Segments};

impl Plan {
    /// Bytes of the transport header of the Call.
    pub(crate) fn header_len(&self) -> u64 {
        let results = |form| (self.reply == form).then_some(self.results);
        header_len(
            self.reads,
            results(ReplyForm::WriteChunk),
            results(ReplyForm::ReplyChunk),
        )
    }
}

/// For tests, which give the segments of each part.
impl Segments for Parts {
    fn pages(&self) -> u32 {
        self.pages
    }

    fn all(&self) -> u64 {
        self.total()
    }
}
