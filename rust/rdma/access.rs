// SPDX-License-Identifier: GPL-2.0

//! What the peer may do with a region.

use crate::bindings;
use kernel::dma::DataDirection;

/// What the peer may do with a registered region.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// RDMA Read: the memory is an argument.
    RemoteRead,
    /// RDMA Write: the memory takes a result.
    RemoteWrite,
}

impl Access {
    /// Bits of `enum ib_access_flags`.
    pub(super) fn flags(self) -> i32 {
        // CAST: Bits of small numbers, in a signed word.
        const READ: i32 = bindings::ib_access_flags_IB_ACCESS_REMOTE_READ as i32;
        const WRITE: i32 = (bindings::ib_access_flags_IB_ACCESS_REMOTE_WRITE
            | bindings::ib_access_flags_IB_ACCESS_LOCAL_WRITE) as i32;
        match self {
            Self::RemoteRead => READ,
            Self::RemoteWrite => WRITE,
        }
    }

    /// The direction that fits.
    pub(super) fn direction(self) -> DataDirection {
        match self {
            Self::RemoteRead => DataDirection::ToDevice,
            Self::RemoteWrite => DataDirection::FromDevice,
        }
    }
}
