// SPDX-License-Identifier: GPL-2.0

//! Why the connections of a transport ended, and why its attempts to connect failed.

use crate::error::Cause;
use kernel::{
    new_spinlock,
    prelude::*,
    seq_file::SeqFile,
    seq_print,
    sync::SpinLock,
    time::{BootTime, Instant},
};

/// How often each cause occurred, and the last one.
#[derive(Clone, Copy)]
struct Tally {
    counts: [u64; Cause::ALL.len()],
    last: Option<(Cause, Instant<BootTime>)>,
}

impl Tally {
    const NONE: Self = Self {
        counts: [0; Cause::ALL.len()],
        last: None,
    };

    fn add(&mut self, cause: Cause) {
        let counts = Cause::ALL.iter().zip(&mut self.counts);
        for (_, count) in counts.filter(|(of, _)| **of == cause) {
            *count = count.saturating_add(1);
        }
        self.last = Some((cause, Instant::now()));
    }
}

#[derive(Clone, Copy)]
struct State {
    ended: Tally,
    failed: Tally,
    /// Why the present connection will be closed: the first cause that was noted.
    pending: Option<Cause>,
}

/// The recorded causes.
#[pin_data]
pub(super) struct Ends {
    #[pin]
    state: SpinLock<State>,
}

impl Ends {
    /// Nothing has ended yet.
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            state <- new_spinlock!(
                State {
                    ended: Tally::NONE,
                    failed: Tally::NONE,
                    pending: None,
                },
                "rpcrdma_ends"
            ),
        })
    }

    /// An attempt begins; there is no connection.
    pub(super) fn begin(&self) {
        self.state.lock().pending = None;
    }

    /// The connection will be closed for this cause, unless another one was noted before.
    pub(super) fn note(&self, cause: Cause) {
        self.state.lock().pending.get_or_insert(cause);
    }

    /// The connection is closed. Without an earlier cause, sunrpc closed it.
    pub(super) fn end(&self) -> Cause {
        let mut state = self.state.lock();
        let cause = state.pending.take().unwrap_or(Cause::Closed);
        state.ended.add(cause);
        cause
    }

    /// An attempt has failed.
    pub(super) fn fail(&self, cause: Cause) {
        self.state.lock().failed.add(cause);
    }

    /// Prints the counts that are not zero, one `name value` a line.
    pub(super) fn show_counts(&self, seq: &SeqFile) {
        let state = *self.state.lock();
        for (what, tally) in [("ended", &state.ended), ("connect_failed", &state.failed)] {
            for (cause, count) in Cause::ALL.iter().zip(tally.counts) {
                if count != 0 {
                    seq_print!(seq, "{what}_{} {count}\n", cause.name());
                }
            }
        }
    }

    /// Prints the last cause of each kind, if there was one, and how many milliseconds ago it
    /// occurred.
    pub(super) fn show_last(&self, seq: &SeqFile) {
        let state = *self.state.lock();
        for (what, tally) in [("end", state.ended), ("failure", state.failed)] {
            if let Some((cause, when)) = tally.last {
                seq_print!(
                    seq,
                    "last_{what} {}\nlast_{what}_age_ms {}\n",
                    cause.name(),
                    when.elapsed().as_millis()
                );
            }
        }
    }
}
