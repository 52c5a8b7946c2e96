// SPDX-License-Identifier: GPL-2.0

//! What a requester has in the simulation and in tests only.

pub(crate) mod credits;
pub(crate) mod plan_general;
