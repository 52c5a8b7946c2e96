// SPDX-License-Identifier: GPL-2.0

//! The end that listens: its tests, and a decoder without a budget for them and the simulation.

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
