// SPDX-License-Identifier: GPL-2.0

//! Two endpoints that talk to each other, and everything that may happen between them.

use std::cell::RefCell;

use crate::proto::testing::simulation::random::Random;
use crate::sim::{run, Places};

/// A run of the simulation in `rust/proto/testing/simulation` in which the input chooses: what the ends are like,
/// the RPCs, delays, faults, and when the connection is lost.
pub fn simulation(input: &[u8]) {
    thread_local! {
        static PLACES: RefCell<Places> = RefCell::new(Places::new());
    }
    let random = Random::with_input(input);
    let result = PLACES.with_borrow_mut(|places| run(places, random, &"input", false));
    assert!(result.is_ok(), "{result:?}");
}
