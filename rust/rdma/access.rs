// SPDX-License-Identifier: GPL-2.0

//! What a peer may do with a memory region.

use crate::bindings;
use kernel::dma::DataDirection;

/// What the peer may do with a registered region.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// RDMA Read: the memory holds an argument.
    RemoteRead,
    /// RDMA Write: the memory receives a result.
    RemoteWrite,
}

impl Access {
    /// Bits of `enum ib_access_flags`.
    pub(super) fn flags(self) -> i32 {
        // CAST: Small bit masks, in a signed word.
        const READ: i32 = bindings::ib_access_flags_IB_ACCESS_REMOTE_READ as i32;
        const WRITE: i32 = (bindings::ib_access_flags_IB_ACCESS_REMOTE_WRITE
            | bindings::ib_access_flags_IB_ACCESS_LOCAL_WRITE) as i32;
        match self {
            Self::RemoteRead => READ,
            Self::RemoteWrite => WRITE,
        }
    }

    /// The DMA direction that corresponds.
    pub(super) fn direction(self) -> DataDirection {
        match self {
            Self::RemoteRead => DataDirection::ToDevice,
            Self::RemoteWrite => DataDirection::FromDevice,
        }
    }
}
