// SPDX-License-Identifier: GPL-2.0

//! The simulation in `rust/proto/testing/simulation`: its storage, one run, and a test of ten thousand runs.
//!
//! `SEED=N cargo test seeds` runs one seed, and prints what it decides and the last steps.

use std::fmt::Display;

use crate::proto::testing::simulation::history::{Recorded, Tally};
use crate::proto::testing::simulation::job::Job;
use crate::proto::testing::simulation::memory::Region;
use crate::proto::testing::simulation::message::Message;
use crate::proto::testing::simulation::queue::Scheduled;
use crate::proto::testing::simulation::random::Random;
use crate::proto::testing::simulation::requester::SentCall;
use crate::proto::testing::simulation::rpc::Rpc;
use crate::proto::testing::simulation::run::{Simulation, Storage};
use crate::proto::testing::simulation::{
    Failure, EVENTS, MEMORY, MESSAGES, MESSAGE_LEN, REGIONS, RPCS, STEPS,
};

/// What [`Storage`] borrows.
pub(crate) struct Places {
    memory: Vec<u8>,
    regions: Vec<Region>,
    messages: Vec<u8>,
    slots: Vec<Option<Message>>,
    queue: Vec<Scheduled>,
    history: Vec<Recorded>,
    rpcs: Vec<Rpc>,
    calls: Vec<SentCall>,
    jobs: Vec<Job>,
}

impl Places {
    /// Memory for any run.
    pub(crate) fn new() -> Self {
        Self {
            memory: vec![0; MEMORY],
            regions: vec![Region::NONE; REGIONS],
            messages: vec![0; MESSAGES * MESSAGE_LEN],
            slots: vec![None; MESSAGES],
            queue: vec![Scheduled::NONE; EVENTS],
            history: vec![Recorded::NONE; STEPS],
            rpcs: vec![Rpc::NONE; RPCS],
            calls: vec![SentCall::NONE; RPCS],
            jobs: vec![Job::NONE; RPCS],
        }
    }

    fn storage(&mut self) -> Storage<'_> {
        Storage {
            memory: &mut self.memory,
            regions: &mut self.regions,
            messages: &mut self.messages,
            slots: &mut self.slots,
            queue: &mut self.queue,
            history: &mut self.history,
            rpcs: &mut self.rpcs,
            calls: &mut self.calls,
            jobs: &mut self.jobs,
        }
    }
}

/// Makes the run that `random` decides, which is called `name`; the last steps are printed if it
/// fails, or if `verbose`.
pub(crate) fn run(
    places: &mut Places,
    random: Random<'_>,
    name: &dyn Display,
    verbose: bool,
) -> Result<Tally, Failure> {
    let mut simulation = Simulation::new(random, places.storage())?;
    let result = simulation.run();
    if verbose || result.is_err() {
        println!("{name}: {:#?}", simulation.scenario());
        for Recorded { at, step } in simulation.steps() {
            println!("{at:>9} {step:?}");
        }
        println!("{name}: {result:?}");
    }
    result
}

#[cfg(test)]
mod tests {
    use std::env;

    use super::*;

    /// Seeds of a whole test.
    const SEEDS: u64 = 10_000;

    fn run_seed(places: &mut Places, seed: u64, verbose: bool) -> Result<Tally, Failure> {
        let name = format!("seed {seed}");
        run(places, Random::new(seed), &name, verbose)
    }

    /// Proves: V1-007, V1-018, V1-028, V1-029, V1-033, V1-066, V1-100, V1-138, V1-153, BD-006, BD-009.
    /// Proves: BD-010, BD-011, PD-001, V2-024, V2-036.
    #[test]
    fn seeds() {
        let mut places = Places::new();
        if let Some(seed) = env::var("SEED").ok().and_then(|seed| seed.parse().ok()) {
            run_seed(&mut places, seed, true).unwrap();
            return;
        }
        let mut sum = Tally::default();
        let mut failed = Vec::new();
        for seed in 0..SEEDS {
            match run_seed(&mut places, seed, false) {
                Ok(tally) => sum.add(&tally),
                Err(failure) => failed.push((seed, failure)),
            }
            if failed.len() == 10 {
                break;
            }
        }
        println!("{sum:#?}");
        assert!(failed.is_empty(), "{failed:?}");
        assert!(sum.is_complete(), "something never happened");
    }
}
