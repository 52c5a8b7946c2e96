// SPDX-License-Identifier: GPL-2.0

//! Host tests of the protocol core in `rust/proto`.
//!
//! The core is included by path, so that what is tested here is what the kernel module runs.
//!
//! - The tests beside the core are run, which are the kernel's KUnit suites too.
//! - [`fuzz`] has what must hold for any input.
//! - [`vectors`] runs the received messages of any vector file.
//! - `properties` generates messages and plans.
//! - `sim` runs ten thousand seeds of the simulation.
//! - `wakeups` runs every interleaving of a model of the server's wake-ups.

#[allow(
    dead_code,
    reason = "the core serves the transport, of which only tests are here"
)]
#[path = "../../../rust/proto/mod.rs"]
mod proto;

pub mod fuzz;
#[cfg(test)]
mod properties;
mod sim;
pub mod vectors;
#[cfg(test)]
mod wakeups;
