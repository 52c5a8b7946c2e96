// SPDX-License-Identifier: GPL-2.0

//! The end that listens: what no transport calls, and what tests take for it.

pub(crate) mod decode;

#[cfg(any(test, rpcrdma_kunit))]
mod budget_tests;
#[cfg(any(test, rpcrdma_kunit))]
mod call_tests;
#[cfg(any(test, rpcrdma_kunit))]
mod choices_tests;
#[cfg(any(test, rpcrdma_kunit))]
mod placement_tests;
#[cfg(any(test, rpcrdma_kunit))]
mod stream_tests;
