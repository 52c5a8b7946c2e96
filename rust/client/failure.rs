// SPDX-License-Identifier: GPL-2.0

//! Details of a failed attempt to connect, for the log.

use crate::rdma::CmReport;
use kernel::{fmt, prelude::*, str::CStr};

/// What explains a failure, beyond its reason.
#[derive(Clone, Copy)]
pub(super) enum Detail {
    /// A requirement that the device does not meet.
    Device(&'static str),
    /// A local step failed.
    Local(Error),
    /// The connection manager has reported it; for a rejection, with the reason as text.
    Reported(CmReport, Option<&'static CStr>),
    /// No event was reported.
    Silence,
}

impl fmt::Display for Detail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device(requirement) => f.write_str(requirement),
            Self::Local(error) => write!(f, "error {}", error.to_errno()),
            Self::Reported(CmReport { event, status }, words) => {
                write!(f, "CM event '{}', status {status}", text(event))?;
                words.map_or(Ok(()), |words| write!(f, ": {}", text(words)))
            }
            Self::Silence => f.write_str("no CM event"),
        }
    }
}

fn text(text: &CStr) -> &str {
    text.to_str().unwrap_or("?")
}
