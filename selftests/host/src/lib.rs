// SPDX-License-Identifier: GPL-2.0

//! Host tests of the protocol core in `rust/proto`.
//!
//! The core is included by path, so that what is tested here is what the kernel module runs.
//!
//! - [`vectors`] runs the received messages of `selftests/vectors/vectors.tsv`.
//! - `hostile` cuts and changes those messages at every byte.
//! - `properties` generates messages and plans.

#[allow(
    dead_code,
    reason = "the core serves the transport, of which only tests are here"
)]
#[path = "../../../rust/proto/mod.rs"]
mod proto;

#[cfg(test)]
mod hostile;
#[cfg(test)]
mod properties;
pub mod vectors;
