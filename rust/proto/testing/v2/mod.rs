// SPDX-License-Identifier: GPL-2.0

//! What only Version Two has (draft-cel-nfsv4-rpcrdma-version-two-00).

pub(crate) mod decode;
pub(crate) mod opaque;
pub(crate) mod optional;
pub(crate) mod thresholds;

use crate::proto::wire::header::{Versions, VERSION_ONE};

/// Version word of RPC-over-RDMA Version Two.
pub(crate) const VERSION_TWO: u32 = 2;

impl Versions {
    /// An endpoint that speaks Versions One and Two.
    pub(crate) const ONE_AND_TWO: Self = Self {
        low: VERSION_ONE,
        high: VERSION_TWO,
    };
}
