// SPDX-License-Identifier: GPL-2.0

//! The RPC-over-RDMA protocol, pure: bytes and numbers in, values out.
//!
//! Nothing here allocates, blocks, does I/O, panics or knows the kernel, so the same files are
//! compiled into the module and into programs of user space.
//!
//! | folder | subject |
//! |---|---|
//! | [`wire`] | what is on the wire, word by word |
//! | [`message`] | one received message, for either role |
//! | [`requester`] | the end that connects |
//! | [`responder`] | the end that listens |
//! | [`v2`] | what only Version Two has |
//! | `testing` | tests, simulation, vectors, and what only they use |
//!
//! What the core guarantees:
//!
//! - Every decoder is total: any byte string gives a value, or an error that determines the answer.
//! - A borrowed list was checked completely before anybody sees it, and points only into the
//!   message.
//! - A length from the wire is never trusted before it was compared with what was offered, and sums
//!   of lengths have 64 bits.
//! - A protocol version is a value: Versions One and Two share the code for what they have in
//!   common.
//!
//! The module contains everything but tests: `testing`, which has `cfg(rpcrdma_selftest)`, and each
//! file's own. Nothing else depends on a cfg, so what is tested is what is shipped.

pub(crate) mod message;
pub(crate) mod requester;
pub(crate) mod responder;
#[cfg(rpcrdma_selftest)]
pub(crate) mod testing;
pub(crate) mod v2;
pub(crate) mod wire;
