// SPDX-License-Identifier: GPL-2.0

//! What the module does not ship: compiled with `cfg(rpcrdma_selftest)`, which KUnit builds, the
//! host crate and the tests' peer set.
//!
//! [`requester`], [`responder`] and [`receives`] exist for the simulation and for tests, which need
//! a requester of another make and ends without a device. No transport calls them.
//!
//! | file | subject | text |
//! |---|---|---|
//! | [`requester`] | credits, and the plans of tests | RFC 8166 sections 3.3 and 3.4 |
//! | [`responder`] | decoding without a budget | |
//! | [`receives`] | Receives to post for both directions | RFC 8167 section 4 |
//! | [`options`] | RDMA_OPTIONAL messages | V2 sections 3.1 and 4.2 |
//! | [`hostile`] | what holds for any received bytes | |
//! | [`simulation`] | two endpoints on virtual time | |
//! | [`vectors`] | runs received messages from a file | |
//!
//! V2 is draft-cel-nfsv4-rpcrdma-version-two-00.

pub(crate) mod hostile;
pub(crate) mod options;
pub(crate) mod receives;
pub(crate) mod requester;
pub(crate) mod responder;
#[cfg(any(test, rpcrdma_kunit, rpcrdma_host))]
pub(crate) mod simulation;
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
mod optional_tests;
#[cfg(any(test, rpcrdma_kunit))]
mod reply_tests;
#[cfg(any(test, rpcrdma_kunit))]
mod vector_tests;
