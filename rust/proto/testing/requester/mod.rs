// SPDX-License-Identifier: GPL-2.0

//! What a requester needs that no transport calls yet.

pub(crate) mod credits;
pub(crate) mod plan_general;
