// SPDX-License-Identifier: GPL-2.0

//! What only Version Two has (draft-cel-nfsv4-rpcrdma-version-two-00).
//!
//! | file | subject | text |
//! |---|---|---|
//! | [`options`] | RDMA_OPTIONAL, and the options that are supported | V2 sections 3.1 and 4.2 |
//! | [`thresholds`] | inline thresholds | V2 sections 2.3 and 5 |
//! | [`requester`] | which version is spoken, at the end that connects | V2 section 5 |
//! | [`known`] | which version it begins with | V2 section 5.2 |
//! | [`responder`] | which version is spoken, at the end that listens | V2 section 5 |
//!
//! Other drafts use the same version word for another protocol, whose headers nothing here decodes.
//! Only the settings of an endpoint tell the two apart.

pub(crate) mod known;
pub(crate) mod options;
pub(crate) mod requester;
pub(crate) mod responder;
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
