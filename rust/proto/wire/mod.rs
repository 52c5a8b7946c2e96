// SPDX-License-Identifier: GPL-2.0

//! The wire format, word by word.
//!
//! | file | subject | text |
//! |---|---|---|
//! | [`xdr`] | XDR words over byte slices | RFC 4506 sections 4.1 and 4.19 |
//! | [`header`] | fixed words, versions, procedures | RFC 8166 section 4.2 |
//! | [`chunk`] | segments, Read list, Write list, Reply chunk | RFC 8166 sections 3.4 and 4.3 |
//! | [`encode`] | headers with chunk lists | RFC 8166 section 4.3 |
//! | [`error`] | RDMA_ERROR | RFC 8166 section 4.5 |
//! | [`malformed`] | what is wrong with a message | |
//! | [`private_data`] | thresholds and remote invalidation | RFC 8797 |

pub(crate) mod chunk;
pub(crate) mod encode;
pub(crate) mod error;
pub(crate) mod header;
pub(crate) mod malformed;
pub(crate) mod private_data;
pub(crate) mod xdr;
