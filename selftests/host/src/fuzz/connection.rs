// SPDX-License-Identifier: GPL-2.0

//! Sequences of what happens to a connection and to its credits.

use super::Input;
use crate::proto::requester::connection::{
    ConnectionAction, ConnectionEvent, ConnectionState, Reason,
};
use crate::proto::requester::credits::CreditWindow;
use crate::proto::responder::grants::Grants;
use crate::proto::wire::header::Credits;

/// The events of an attempt that succeeds, each with the action that it leads to.
const STEPS: [(ConnectionEvent, ConnectionAction); 5] = [
    (ConnectionEvent::Start, ConnectionAction::ResolveAddress),
    (
        ConnectionEvent::AddressResolved,
        ConnectionAction::ResolveRoute,
    ),
    (ConnectionEvent::RouteResolved, ConnectionAction::Prepare),
    (ConnectionEvent::Prepared, ConnectionAction::Connect),
    (ConnectionEvent::Established, ConnectionAction::Open),
];

const REASONS: [Reason; 3] = [Reason::Rejected, Reason::Disconnected, Reason::TimedOut];

/// Any events, and any grants beside them, one after the other.
pub fn operations(input: &[u8]) {
    let mut input = Input(input);
    let mut attempt = Connecting::default();
    let mut credit = Credit::new(Credits::new(input.size()));
    while !input.0.is_empty() {
        match usize::from(input.below(12)) {
            step @ 0..=4 => attempt.step(step),
            end @ 5..=7 => attempt.end(REASONS[end - 5]),
            8 => credit.reset(),
            _ => credit.grant(input.size(), input.size()),
        }
    }
}

/// An attempt to connect, and how far it must be.
struct Connecting {
    conn: ConnectionState,
    steps: usize,
    ended: bool,
}

impl Default for Connecting {
    fn default() -> Self {
        Self {
            conn: ConnectionState::new(),
            steps: 0,
            ended: false,
        }
    }
}

impl Connecting {
    /// An event of success counts only when it is the next one.
    fn step(&mut self, step: usize) {
        let (event, action) = STEPS[step];
        let is_next = !self.ended && step == self.steps;
        assert_eq!(self.conn.handle(event), is_next.then_some(action));
        self.steps += usize::from(is_next);
    }

    /// Only the first end counts.
    fn end(&mut self, reason: Reason) {
        let action = if self.steps == STEPS.len() {
            ConnectionAction::Close(reason)
        } else {
            ConnectionAction::Fail(reason)
        };
        let first = !std::mem::replace(&mut self.ended, true);
        assert_eq!(
            self.conn.handle(ConnectionEvent::Ended(reason)),
            first.then_some(action)
        );
    }
}

/// The credits of a requester, and how many it must have.
struct Credit {
    window: CreditWindow,
    requested: Credits,
}

impl Credit {
    fn new(requested: Credits) -> Self {
        let window = CreditWindow::new(requested);
        assert_eq!((window.requested(), window.window()), (requested, 1));
        Self { window, requested }
    }

    fn reset(&mut self) {
        self.window = CreditWindow::new(self.requested);
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
        assert_eq!(self.window.grant(grant), expected);
        assert_eq!(self.window.window(), expected);
    }
}
