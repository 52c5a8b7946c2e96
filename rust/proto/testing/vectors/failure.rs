// SPDX-License-Identifier: GPL-2.0

//! Why a row of a vector file fails.

/// Why a row fails. The texts are parts of the row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure<'a> {
    /// The row, or this part of it, is not in the form that the file has.
    Form(&'a str),
    /// Another outcome than the expected one.
    Outcome {
        /// The role in which the row was run.
        role: &'a str,
        /// What came out.
        seen: &'static str,
    },
    /// A value of the `chk` tag is not what was found.
    Check {
        /// The role in which the row was run.
        role: &'a str,
        /// The value that was expected.
        expected: &'a str,
    },
    /// Another RDMA_ERROR than the words of the `reply` tag, or none.
    Answer {
        /// The role in which the row was run.
        role: &'a str,
    },
}
