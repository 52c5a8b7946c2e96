// SPDX-License-Identifier: GPL-2.0

//! The end that connects and makes forward Calls.
//!
//! | file | subject | text |
//! |---|---|---|
//! | [`plan`] | which chunks one RPC needs | RFC 8166 sections 3.4, 3.5 and 4.3 |
//! | [`encode`] | the Call | RFC 8166 section 3.5 |
//! | [`decode`] | what it receives | RFC 8166 sections 3.5 and 4.5 |
//! | [`reconcile`] | what the chunks of a Reply hold | RFC 8166 section 3.4.6 |

pub(crate) mod decode;
pub(crate) mod encode;
pub(crate) mod plan;
pub(crate) mod reconcile;
