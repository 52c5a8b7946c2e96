// SPDX-License-Identifier: GPL-2.0

//! What a requester has in the simulation and in tests only.

pub(crate) mod credits;
pub(crate) mod plan_general;
#[cfg(any(test, rpcrdma_kunit))]
mod plan_tests;

use crate::proto::requester::plan::{Parts, Segments};

/// For tests, which give the segments of each part.
impl Segments for Parts {
    fn pages(&self) -> u32 {
        self.pages
    }

    fn all(&self) -> u64 {
        self.total()
    }
}
