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
        let flags = match self {
            Self::RemoteRead => bindings::ib_access_flags_IB_ACCESS_REMOTE_READ,
            Self::RemoteWrite => {
                bindings::ib_access_flags_IB_ACCESS_REMOTE_WRITE
                    | bindings::ib_access_flags_IB_ACCESS_LOCAL_WRITE
            }
        };
        i32::try_from(flags).unwrap_or(0)
    }

    /// The direction that fits.
    pub(super) fn direction(self) -> DataDirection {
        match self {
            Self::RemoteRead => DataDirection::ToDevice,
            Self::RemoteWrite => DataDirection::FromDevice,
        }
    }
}
