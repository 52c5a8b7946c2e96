// SPDX-License-Identifier: GPL-2.0

//! The files of a transport under debugfs. Documentation/admin-guide.rst explains each line.

use super::Transport;
use crate::debugfs::{File, Show};
use kernel::seq_file::SeqFile;

impl Show for Transport {
    const FILES: &'static [File<Self>] = &[(c"stats", stats), (c"connection", connection)];
}

/// What was counted since the mount.
fn stats(transport: &Transport, seq: &SeqFile) {
    transport.stats.show(seq);
    transport.ends.show_counts(seq);
}

/// The connection, and why there is none.
fn connection(transport: &Transport, seq: &SeqFile) {
    transport.ends.show_last(seq);
}
