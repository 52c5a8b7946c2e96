// SPDX-License-Identifier: GPL-2.0

//! Inline thresholds of Version Two (Version Two sections 2.3 and 5).

use crate::proto::wire::header::VERSION_TWO;
use crate::proto::wire::private_data::{Thresholds, DEFAULT_THRESHOLD};

/// The smallest inline threshold that a receiver of Version Two may have, in bytes (Version Two
/// section 2.3).
const VERSION_TWO_THRESHOLD: u32 = 4096;

impl Thresholds {
    /// What may be assumed of a peer of whose version nothing is known: 1024 bytes both ways
    /// (RFC 8166 section 3.3.3).
    pub(crate) fn first(self) -> Self {
        Self {
            send: DEFAULT_THRESHOLD,
            receive: DEFAULT_THRESHOLD,
            ..self
        }
    }

    /// What holds when `version` is spoken: no less than the default of that version.
    pub(crate) fn at_version(self, version: u32) -> Self {
        let default = match version {
            VERSION_TWO => VERSION_TWO_THRESHOLD,
            _ => DEFAULT_THRESHOLD,
        };
        Self {
            send: self.send.max(default),
            receive: self.receive.max(default),
            ..self
        }
    }
}
