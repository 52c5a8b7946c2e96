// SPDX-License-Identifier: GPL-2.0

//! The end that listens, which no transport is yet.

pub(crate) mod credits;
pub(crate) mod decode;
pub(crate) mod encode;
pub(crate) mod negotiation;
pub(crate) mod placement;
pub(crate) mod stream;
