// SPDX-License-Identifier: GPL-2.0

//! The end that listens and answers forward Calls.
//!
//! | file | subject | text |
//! |---|---|---|
//! | [`budget`] | what Calls may ask for | RFC 8166 section 4.5.2 |
//! | [`decode`] | what it receives | RFC 8166 sections 3.5 and 4.5 |
//! | [`refusal`] | what it refuses | RFC 8166 section 4.5 |
//! | [`call`] | a Call, and where its parts are | RFC 8166 sections 3.4 and 3.5 |
//! | [`layout`] | where the bytes of the RPC message are | RFC 8166 section 3.4.5 |
//! | [`stream`] | how the RPC message is put together | RFC 8166 section 3.4.5 |
//! | [`placement`] | where the results go | RFC 8166 sections 3.4.6 and 3.5 |
//! | [`encode`] | the Reply | RFC 8166 section 3.5 |
//! | [`grants`] | flow control | RFC 8166 section 3.3.1 |
//! | [`unanswerable`] | Calls whose Replies cost a connection | RFC 8166 section 4.5.3 |
//!
//! The thresholds and the use of remote invalidation follow from the private data of both ends:
//! see [`negotiate`](super::wire::private_data::negotiate).

pub(crate) mod budget;
pub(crate) mod call;
pub(crate) mod decode;
pub(crate) mod encode;
pub(crate) mod grants;
pub(crate) mod layout;
pub(crate) mod placement;
pub(crate) mod refusal;
pub(crate) mod stream;
pub(crate) mod unanswerable;
