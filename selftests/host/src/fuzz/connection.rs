// SPDX-License-Identifier: GPL-2.0

//! Sequences of grants.

use super::Input;
use crate::proto::responder::grants::Grants;
use crate::proto::testing::requester::credits::RequesterCredits;
use crate::proto::wire::header::Credits;

/// Any grants and new connections, one after the other.
pub fn operations(input: &[u8]) {
    let mut input = Input(input);
    let mut credit = Credit::new(Credits::new(input.size()));
    while !input.0.is_empty() {
        match input.below(4) {
            0 => credit.reset(),
            _ => credit.grant(input.size(), input.size()),
        }
    }
}

/// The credits of a requester, and how many it must have.
struct Credit {
    window: RequesterCredits,
    requested: Credits,
}

impl Credit {
    fn new(requested: Credits) -> Self {
        let window = RequesterCredits::new(requested);
        assert_eq!((window.requested(), window.window()), (requested, 1));
        Self { window, requested }
    }

    fn reset(&mut self) {
        self.window = RequesterCredits::new(self.requested);
        assert_eq!(
            (self.window.requested(), self.window.window()),
            (self.requested, 1)
        );
    }

    /// A responder that has `limit` Receives answers a request for `asked` credits.
    fn grant(&mut self, asked: u32, limit: u32) {
        let mut grants = Grants::new(limit, limit);
        let _ = grants.call(Credits::new(asked));
        let grant = grants.reply();
        assert_eq!(grant.get(), asked.max(1).min(limit.max(1)));
        let expected = grant.get().min(self.requested.get());
        self.window.reply(grant);
        assert_eq!(self.window.window(), expected);
    }
}
