// SPDX-License-Identifier: GPL-2.0

//! Messages of the backward direction (RFC 8167 section 5).

use super::wire::header::FixedHeader;

/// A backward Call as a requester received it (RFC 8167 section 5).
#[derive(Clone, Copy, Debug)]
pub(crate) struct BackwardCall<'a> {
    /// The fixed words. The XID belongs to the backward direction, the version must be repeated in
    /// the Reply, and the credits are those that the Call requests.
    pub(crate) fixed: FixedHeader,
    /// The RPC message.
    pub(crate) payload: &'a [u8],
}
