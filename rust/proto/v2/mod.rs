// SPDX-License-Identifier: GPL-2.0

//! What only Version Two has (draft-cel-nfsv4-rpcrdma-version-two-00).
//!
//! | file | subject | text |
//! |---|---|---|
//! | [`opaque`] | counted opaque data | RFC 4506 section 4.10 |
//! | [`optional`] | RDMA_OPTIONAL, and the options that are supported | V2 sections 3.1 and 4.2 |
//! | [`thresholds`] | inline thresholds | V2 sections 2.3 and 5 |
//!
//! Other drafts use the same version word for another protocol, whose headers nothing here decodes.
//! Only the settings of an endpoint tell the two apart.

pub(crate) mod opaque;
pub(crate) mod optional;
pub(crate) mod thresholds;

use super::wire::header::{VERSION_ONE, VERSION_TWO};

/// The document by which the headers of a version are decoded.
pub(crate) const fn dialect(version: u32) -> &'static str {
    match version {
        VERSION_ONE => "rfc8166",
        VERSION_TWO => "version-two-00",
        _ => "unknown",
    }
}
