// SPDX-License-Identifier: GPL-2.0

//! A model of the server's wake-ups: every interleaving of two threads of nfsd, the completion handler and a close.
//!
//! The decisions are those of `rust/server/incoming.rs` and `rust/rdma/send.rs`, which need a device and sunrpc, so
//! this is no test of that code: it shows that these decisions, taken in that order and under those locks, lose no
//! wake-up, and that with any one of them left out some interleaving does. A step is what one of them does under a
//! lock, or between two locks; a thread may hold `incoming` over two steps, of which the second one takes `send`.

mod state;
mod steps;

use std::collections::HashSet;

use state::State;

/// The Calls of a run, by kind.
const KINDS: [&[Kind]; 7] = [
    &[Kind::Inline, Kind::Inline, Kind::Inline],
    &[Kind::Placed, Kind::Placed, Kind::Placed],
    &[Kind::Placed, Kind::Inline, Kind::Placed],
    &[Kind::Reading, Kind::Placed, Kind::Reading],
    &[Kind::Dropped, Kind::Placed, Kind::Dropped],
    &[Kind::Reading, Kind::Reading, Kind::Dropped],
    &[Kind::Reading, Kind::Reading, Kind::Reading],
];

/// What a Call needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    /// A Reply of one entry.
    Inline,
    /// A Reply of two entries, with a page. The listener has all pages that it may have, so that a connection may have
    /// those of one Reply.
    Placed,
    /// RDMA Reads, of two entries, and then a Reply of one entry. A connection may have the pages of one Call.
    Reading,
    /// As `Placed`, but nfsd drops the Call.
    Dropped,
}

/// A decision of the code that is left out. One more, that regions which a Call has not needed are given back by a
/// function that notifies, makes others only go on earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Without {
    Nothing,
    /// A thread that finds no room asks to be notified.
    Wanting,
    /// The completion frees pages before it takes `send`.
    PagesFirst,
    /// The lock under which "no" is decided is that under which entries become free.
    DecidingUnderSend,
    /// The completion posts what is pending.
    Posting,
    /// The completion that finds the queue wanted wakes.
    WakingOnCompletion,
    /// A Call that is released wakes.
    WakingOnRelease,
    /// Reads that are done wake.
    WakingOnRead,
    /// XPT_DATA is cleared under `incoming`.
    ClearingUnderIncoming,
    /// Who lets go of the transport looks whether there is more.
    LookingOnReceived,
    /// Who has set XPT_DATA wakes a thread, once `incoming` is released.
    Waking,
}

/// Runs every interleaving: how many states there are, or one in which nothing happens any more, too early.
fn explore(
    kinds: &[Kind],
    registers: bool,
    closes: bool,
    without: Without,
) -> Result<usize, Box<State>> {
    let mut seen = HashSet::new();
    let mut todo = vec![State::new(kinds, registers)];
    while let Some(state) = todo.pop() {
        if !seen.insert(state.clone()) {
            continue;
        }
        let threads = (0..2).filter_map(|thread| state.thread(thread, without));
        let others = [state.handler(without), state.arrive(), state.woken(without)];
        let next: Vec<_> = threads.chain(others.into_iter().flatten()).collect();
        if next.is_empty() && !state.is_over() && (!closes || state.close) {
            return Err(Box::new(state));
        }
        todo.extend(next);
        if closes {
            todo.extend(state.force_close());
        }
    }
    Ok(seen.len())
}

/// The Calls of each run, and whether memory is registered.
fn runs() -> impl Iterator<Item = (&'static [Kind], bool)> {
    KINDS
        .into_iter()
        .flat_map(|kinds| [(kinds, false), (kinds, true)])
}

#[test]
fn no_interleaving_loses_a_wake_up() {
    for (kinds, registers) in runs() {
        for closes in [false, true] {
            let found = explore(kinds, registers, closes, Without::Nothing);
            let what = format!("{kinds:?}, registers: {registers}, closes: {closes}");
            match found {
                Ok(states) => println!("{what}: {states} states"),
                Err(state) => panic!("{what}: {state:#?}"),
            }
        }
    }
}

#[test]
fn each_decision_is_needed() {
    for without in [
        Without::Wanting,
        Without::PagesFirst,
        Without::DecidingUnderSend,
        Without::Posting,
        Without::WakingOnCompletion,
        Without::WakingOnRelease,
        Without::WakingOnRead,
        Without::ClearingUnderIncoming,
        Without::LookingOnReceived,
        Without::Waking,
    ] {
        let mut runs = runs();
        let loses =
            runs.any(|(kinds, registers)| explore(kinds, registers, false, without).is_err());
        assert!(loses, "nothing is lost without {without:?}");
    }
}
