// SPDX-License-Identifier: GPL-2.0

//! Why the connections of a transport ended, and why its attempts to connect failed.

use crate::{error::Cause, stats};
use kernel::{new_spinlock, prelude::*, seq_file::SeqFile, sync::SpinLock};

#[derive(Clone, Copy)]
struct State {
    ended: stats::Ends,
    failed: stats::Ends,
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
                    ended: stats::Ends::NONE,
                    failed: stats::Ends::NONE,
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
        state.ended.show_counts(seq, "ended");
        state.failed.show_counts(seq, "connect_failed");
    }

    /// Prints the last cause of each kind, if there was one, and how many milliseconds ago it
    /// occurred.
    pub(super) fn show_last(&self, seq: &SeqFile) {
        let state = *self.state.lock();
        state.ended.show_last(seq, "end");
        state.failed.show_last(seq, "failure");
    }
}
