// SPDX-License-Identifier: GPL-2.0

//! Messages of the backward direction (RFC 8167 section 5).

use core::iter::{empty, Empty};

use super::wire::chunk::Segment;
use super::wire::encode::encode_header;
use super::wire::header::{Credits, FixedHeader, Procedure, Xid};
use super::wire::xdr::NoSpace;

/// A backward Call as a requester received it (RFC 8167 section 5).
#[derive(Clone, Copy, Debug)]
pub(crate) struct BackwardCall<'a> {
    /// The fixed words. The XID belongs to the backward direction, the version must be repeated in
    /// the Reply, and the credits are those that the Call requests.
    pub(crate) fixed: FixedHeader,
    /// The RPC message.
    pub(crate) payload: &'a [u8],
}

/// Writes the header of a backward message to `buffer` and returns its length, 28 bytes.
///
/// Backward Calls and Replies are RDMA_MSG with three empty lists in every version; the RPC message
/// follows in the same Send (RFC 8167 section 5). `version` is the one that the forward direction
/// uses. `credits` is requested by a Call and granted by a Reply, apart from the forward credits.
///
/// # Errors
///
/// [`NoSpace`] if the header does not fit.
pub(crate) fn encode_backward(
    buffer: &mut [u8],
    version: u32,
    xid: Xid,
    credits: Credits,
) -> Result<usize, NoSpace> {
    let fixed = FixedHeader {
        xid,
        version,
        credits,
        procedure: Procedure::Msg,
    };
    encode_header(
        buffer,
        &fixed,
        [],
        empty::<Empty<Segment>>(),
        None::<Empty<Segment>>,
    )
}
