// SPDX-License-Identifier: GPL-2.0

//! What must hold for any bytes: the bodies of the fuzz targets in `selftests/fuzz`.
//!
//! Each function takes any input, and panics if a promise of the core is broken.

mod connection;
mod message;
mod plan;
mod responder;
pub mod seeds;
mod simulation;

pub use connection::operations;
pub use message::{chunk_lists, message, private_data, reconcile};
#[cfg(test)]
pub(crate) use plan::check_plan;
pub use plan::plan;
pub use responder::responder;
pub use simulation::simulation;

/// Takes numbers off the front of an input; there are zeros behind its end.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        *first
    }

    /// A number below `end`.
    fn below(&mut self, end: u8) -> u8 {
        self.byte() % end
    }

    fn word(&mut self) -> u32 {
        u32::from_be_bytes(std::array::from_fn(|_| self.byte()))
    }

    /// A word, which is small in half of all cases.
    fn size(&mut self) -> u32 {
        let word = self.word();
        if word & 1 == 0 {
            (word >> 1) & 0xfff
        } else {
            word >> 1
        }
    }
}
