// SPDX-License-Identifier: GPL-2.0

//! Why a connection is not accepted.

use kernel::{alloc::AllocError, fmt, prelude::*};

/// Why a connection is not accepted, as the log says it.
pub(super) enum NotAccepted {
    /// RDMA Reads would never begin, and requests behind them would wait for ever.
    NoReads,
    /// The largest RPC takes more work requests than a queue of the device holds.
    SmallQueues {
        /// Work requests that a queue holds.
        held: u32,
        /// Work requests that the RPC takes.
        needed: u32,
    },
    /// An error of the kernel.
    Error(Error),
}

impl NotAccepted {
    /// The errno for trace events.
    pub(super) fn to_errno(&self) -> i32 {
        match self {
            Self::NoReads | Self::SmallQueues { .. } => EINVAL.to_errno(),
            Self::Error(error) => error.to_errno(),
        }
    }
}

impl From<Error> for NotAccepted {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

impl From<AllocError> for NotAccepted {
    fn from(error: AllocError) -> Self {
        Self::Error(error.into())
    }
}

impl fmt::Display for NotAccepted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoReads => write!(f, "no RDMA Reads are possible between the two devices"),
            Self::SmallQueues { held, needed } => write!(
                f,
                "queues of the device hold {held} work requests, and RPCs of the largest size take \
                 {needed}: nfsd needs a smaller max_block_size"
            ),
            Self::Error(error) => write!(f, "{error:?}"),
        }
    }
}
