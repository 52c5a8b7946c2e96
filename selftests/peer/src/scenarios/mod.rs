// SPDX-License-Identifier: GPL-2.0

//! What the peer does, by name.
//!
//! A scenario begins before the client's first connection, and ends where the client's remaining
//! Calls can be answered as they should be.

mod backward;
mod chunks;
mod connections;
mod credits;
mod errors;
mod garbage;
mod invalidation;
mod late;
mod replies;
mod shapes;
mod vectors;
mod versions;

use crate::peer::Peer;
use crate::Result;

/// Runs a scenario.
pub(crate) type Run = fn(&mut Peer) -> Result;

/// The scenarios of a file, each with its name.
type Scenarios = [(&'static str, Run)];

/// The scenario of this name.
pub(crate) fn find(name: &str) -> Option<Run> {
    let files: [&Scenarios; 13] = [
        &[("honest", |peer| peer.accept())],
        backward::SCENARIOS,
        chunks::SCENARIOS,
        connections::SCENARIOS,
        credits::SCENARIOS,
        errors::SCENARIOS,
        garbage::SCENARIOS,
        invalidation::SCENARIOS,
        late::SCENARIOS,
        replies::SCENARIOS,
        shapes::SCENARIOS,
        vectors::SCENARIOS,
        versions::SCENARIOS,
    ];
    let mut all = files.into_iter().flatten();
    all.find(|(known, _)| *known == name).map(|&(_, run)| run)
}
