// SPDX-License-Identifier: GPL-2.0

//! The RPC-over-RDMA protocol, pure: bytes and numbers in, values out.
//!
//! Nothing here allocates, blocks, does I/O, panics or knows the kernel, so the same files are
//! compiled into the module and into the host crate in `selftests/host`.
//!
//! | file | subject | text |
//! |---|---|---|
//! | [`cursor`] | XDR words over byte slices | RFC 4506 sections 4.1, 4.5 and 4.19 |
//! | [`header`] | fixed header, procedures, error bodies | RFC 8166 sections 4.2 and 4.5 |
//! | [`chunk`] | segments, Read list, Write list, Reply chunk | RFC 8166 sections 3.4 and 4.3 |
//! | [`message`] | one received message, for either role | RFC 8166 sections 4.2 to 4.6 |
//! | [`call`] | the Call | RFC 8166 section 3.5, RFC 8167 section 5 |
//! | [`placement`] | where the parts of a Reply go | RFC 8166 sections 3.4.6, 3.5 and 4.3.2 |
//! | [`stream`] | the Call put together again | RFC 8166 section 3.4.5 |
//! | [`optional`] | the extension point of Version Two | V2 sections 3.1 and 4.2 |
//! | [`reply`] | the Reply, what its chunks hold | RFC 8166 section 3.5, RFC 8167 section 5 |
//! | [`plan`] | which chunks one RPC needs | RFC 8166 sections 3.4, 3.5 and 4.3 |
//! | [`plan_general`] | the same for any number of chunks | RFC 8166 sections 3.4, 3.5 and 4.3 |
//! | [`credit`] | flow control | RFC 8166 section 3.3.1 |
//! | [`private_data`] | thresholds and remote invalidation | RFC 8797 |
//! | [`negotiate`] | which version a connection speaks | V2 section 5 |
//! | [`conn`] | the life of a connection | |
//! | [`vectors`] | runs received messages from a file | |
//! | [`hostile`] | what holds for any received bytes | |
//!
//! V2 is draft-cel-nfsv4-rpcrdma-version-two-00.
//!
//! What the core promises:
//!
//! - Every decoder is total: any byte string gives a value, or an error that knows what to answer.
//! - A borrowed list was checked whole before anybody sees it, and points into the message only.
//! - A length from the wire is never trusted before it was compared with what was offered, and
//!   sums of lengths have 64 bits.
//! - A protocol version is a value: Versions One and Two share all code for what they share.
//!
//! Both roles are here. What the requester in the module does not call is compiled only with
//! `cfg(rpcrdma_selftest)`, which the host crate and KUnit builds set. [`vectors`] and
//! [`sim`], which are no part of the protocol, are for tests; `cfg(rpcrdma_host)` has the host
//! crate compile them outside its own tests, too.

pub(crate) mod call;
pub(crate) mod chunk;
pub(crate) mod conn;
pub(crate) mod credit;
pub(crate) mod cursor;
pub(crate) mod header;
#[cfg(rpcrdma_selftest)]
pub(crate) mod hostile;
pub(crate) mod message;
#[cfg(rpcrdma_selftest)]
pub(crate) mod negotiate;
#[cfg(rpcrdma_selftest)]
pub(crate) mod optional;
#[cfg(rpcrdma_selftest)]
pub(crate) mod placement;
pub(crate) mod plan;
#[cfg(rpcrdma_selftest)]
pub(crate) mod plan_general;
pub(crate) mod private_data;
pub(crate) mod reply;
#[cfg(any(test, rpcrdma_kunit, rpcrdma_host))]
pub(crate) mod sim;
#[cfg(rpcrdma_selftest)]
pub(crate) mod stream;
#[cfg(any(test, rpcrdma_kunit, rpcrdma_host))]
pub(crate) mod vectors;

#[cfg(any(test, rpcrdma_kunit))]
mod call_tests;
#[cfg(any(test, rpcrdma_kunit))]
mod credit_tests;
#[cfg(any(test, rpcrdma_kunit))]
mod example_tests;
#[cfg(any(test, rpcrdma_kunit))]
mod negotiate_tests;
#[cfg(any(test, rpcrdma_kunit))]
mod plan_general_tests;
#[cfg(any(test, rpcrdma_kunit))]
mod reply_tests;
#[cfg(any(test, rpcrdma_kunit))]
mod vector_tests;
