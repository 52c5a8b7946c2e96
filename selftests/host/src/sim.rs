// SPDX-License-Identifier: GPL-2.0

//! Ten thousand runs of the simulation in `rust/proto/sim`.
//!
//! `SEED=N cargo test seeds` runs one seed, and prints what it decides and the last steps.

use std::env;

use crate::proto::sim::history::{Recorded, Tally};
use crate::proto::sim::memory::Region;
use crate::proto::sim::message::Message;
use crate::proto::sim::queue::Scheduled;
use crate::proto::sim::requester::Call;
use crate::proto::sim::rpc::Rpc;
use crate::proto::sim::service::Job;
use crate::proto::sim::simulation::Simulation;
use crate::proto::sim::{
    Failure, Storage, EVENTS, MEMORY, MESSAGES, MESSAGE_LEN, REGIONS, RPCS, STEPS,
};

/// Seeds of a whole test.
const SEEDS: u64 = 10_000;

/// What [`Storage`] borrows.
struct Places {
    memory: Vec<u8>,
    regions: Vec<Region>,
    messages: Vec<u8>,
    slots: Vec<Option<Message>>,
    queue: Vec<Scheduled>,
    history: Vec<Recorded>,
    rpcs: Vec<Rpc>,
    calls: Vec<Call>,
    jobs: Vec<Job>,
}

impl Places {
    fn new() -> Self {
        Self {
            memory: vec![0; MEMORY],
            regions: vec![Region::NONE; REGIONS],
            messages: vec![0; MESSAGES * MESSAGE_LEN],
            slots: vec![None; MESSAGES],
            queue: vec![Scheduled::NONE; EVENTS],
            history: vec![Recorded::NONE; STEPS],
            rpcs: vec![Rpc::NONE; RPCS],
            calls: vec![Call::NONE; RPCS],
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

/// Runs one seed; the last steps are printed if it fails, or if `verbose`.
fn run(places: &mut Places, seed: u64, verbose: bool) -> Result<Tally, Failure> {
    let mut simulation = Simulation::new(seed, places.storage())?;
    let result = simulation.run();
    if verbose || result.is_err() {
        println!("seed {seed}: {:#?}", simulation.scenario());
        for Recorded { at, step } in simulation.steps() {
            println!("{at:>9} {step:?}");
        }
        println!("seed {seed}: {result:?}");
    }
    result
}

#[test]
fn seeds() {
    let mut places = Places::new();
    if let Some(seed) = env::var("SEED").ok().and_then(|seed| seed.parse().ok()) {
        run(&mut places, seed, true).unwrap();
        return;
    }
    let mut sum = Tally::default();
    let mut failed = Vec::new();
    for seed in 0..SEEDS {
        match run(&mut places, seed, false) {
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
