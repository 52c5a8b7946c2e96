// SPDX-License-Identifier: GPL-2.0

//! Three hundred runs of the simulation of the protocol core, in the kernel.

#[kernel::macros::kunit_tests(rpcrdma_simulation)]
mod tests {
    use crate::proto::testing::simulation::{
        history::{Recorded, Tally},
        job::Job,
        memory::Region,
        queue::Scheduled,
        random::Random,
        requester::SentCall,
        rpc::Rpc,
        run::{Simulation, Storage},
        Failure, EVENTS, MEMORY, MESSAGES, MESSAGE_LEN, REGIONS, RPCS, STEPS,
    };
    use kernel::prelude::*;

    const SEEDS: u64 = 300;

    /// Runs one seed. If it fails, its last steps are logged.
    fn run(seed: u64, storage: Storage<'_>) -> Result<Tally, Failure> {
        let mut simulation = Simulation::new(Random::new(seed), storage)?;
        let result = simulation.run();
        if let Err(failure) = result {
            pr_err!("seed {seed}: {:?}\n", simulation.scenario());
            for Recorded { at, step } in simulation.steps() {
                pr_err!("{at:>9} {step:?}\n");
            }
            pr_err!("seed {seed}: {failure:?}\n");
        }
        result
    }

    #[test]
    fn three_hundred_seeds() -> Result {
        let mut memory = KVVec::from_elem(0, MEMORY, GFP_KERNEL)?;
        let mut messages = KVVec::from_elem(0, MESSAGES * MESSAGE_LEN, GFP_KERNEL)?;
        let mut regions = KVVec::from_elem(Region::NONE, REGIONS, GFP_KERNEL)?;
        let mut slots = KVec::from_elem(None, MESSAGES, GFP_KERNEL)?;
        let mut queue = KVVec::from_elem(Scheduled::NONE, EVENTS, GFP_KERNEL)?;
        let mut history = KVec::from_elem(Recorded::NONE, STEPS, GFP_KERNEL)?;
        let mut rpcs = KVec::from_elem(Rpc::NONE, RPCS, GFP_KERNEL)?;
        let mut calls = KVec::from_elem(SentCall::NONE, RPCS, GFP_KERNEL)?;
        let mut jobs = KVec::from_elem(Job::NONE, RPCS, GFP_KERNEL)?;
        let mut sum = Tally::default();
        for seed in 0..SEEDS {
            let storage = Storage {
                memory: &mut memory,
                regions: &mut regions,
                messages: &mut messages,
                slots: &mut slots,
                queue: &mut queue,
                history: &mut history,
                rpcs: &mut rpcs,
                calls: &mut calls,
                jobs: &mut jobs,
            };
            let tally = run(seed, storage);
            assert!(tally.is_ok());
            if let Ok(tally) = tally {
                sum.add(&tally);
            }
        }
        assert!(sum.is_complete());
        Ok(())
    }
}
