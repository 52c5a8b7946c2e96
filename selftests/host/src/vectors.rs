// SPDX-License-Identifier: GPL-2.0

//! Runs the rows of a vector file against the protocol core, as the kernel's suites do.

use std::fmt;

use crate::proto::testing::vectors::{rows, Failure, Row};

/// More than any message has.
const BUFFER_LEN: usize = 1 << 20;

/// The result of a run.
#[derive(Debug, Default)]
pub struct Summary {
    /// Number of rows that passed.
    pub passed: usize,
    /// One line for each row that failed.
    pub failures: Vec<String>,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for failure in &self.failures {
            writeln!(f, "{failure}")?;
        }
        let failed = self.failures.len();
        writeln!(f, "{} passed, {failed} failed", self.passed)
    }
}

/// Runs every row of `text`, a whole vector file.
pub fn run(text: &str) -> Summary {
    let mut summary = Summary::default();
    let mut buffer = vec![0; BUFFER_LEN];
    for line in rows(text) {
        let id = line.split('\t').next().unwrap_or_default();
        let row = Row::parse(line);
        match row.and_then(|row| row.run(&mut buffer)) {
            Ok(()) => summary.passed += 1,
            Err(failure) => {
                let expected = row.map_or("", |row| row.expected);
                let difference = describe(&failure, expected);
                summary.failures.push(format!("{id}: {difference}"));
            }
        }
    }
    summary
}

/// The text to print for a row that expects `outcome`.
fn describe(failure: &Failure<'_>, outcome: &str) -> String {
    match failure {
        Failure::Form(part) => format!("not in the form of a row: {part}"),
        Failure::Outcome { role, seen } => format!("{role}: {seen}, expected {outcome}"),
        Failure::Check { role, expected } => format!("{role}: {expected} is not so"),
        Failure::Answer { role } => format!("{role}: another answer is sent, or none"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A good Reply.
    const ROW: &str = "X\tv1hdr\trequester\t\
        a1b2c3d4000000010000001000000000000000000000000000000000a1b2c3d400000001\t\
        accept\tprose | chk: len=36 hdr=28 pay=8 R[] W[] P- | alt: discard";

    /// A Call that is refused.
    const REFUSED: &str = "X\tv2hdr\tboth\t\
        0000002a0000000200000020000000050000000700000005cafef00d00000000\t\
        ERR_INVAL_OPTION\tprose | chk: len=32 opttype=7 optlen=5 pay=0 fail=option@16 | \
        reply: 0000002a 00000002 ???????? 00000004 00000003";

    fn failures(row: &str) -> usize {
        run(&format!("columns\n{row}\n")).failures.len()
    }

    /// Makes one change after the other to `row`, each of which must fail it.
    fn each_fails(row: &str, changes: &[(&str, &str)]) {
        assert_eq!(failures(row), 0);
        for (from, to) in changes {
            let changed = row.replacen(from, to, 1);
            assert_ne!(changed, row);
            assert_eq!(failures(&changed), 1, "{changed}");
        }
    }

    #[test]
    fn a_wrong_expectation_fails_the_row() {
        each_fails(
            ROW,
            &[
                ("\taccept", "\tdiscard"),
                ("len=36", "len=37"),
                ("len=36", "length=36"),
                ("hdr=28", "hdr=32"),
                ("hdr=28", "err=2"),
                ("R[]", "R[4:8]"),
                ("W[]", "W[0]"),
                ("W[]", "X[]"),
                ("P-", "P(0)"),
                ("P-", "fail=trunc@16"),
                ("P-", "R=1"),
                ("P-", "P- | reply: a1b2c3d4"),
                ("| alt", "| ctx: calls=none | alt"),
                ("| alt", "| ctx: calls=a1b2c3d5 | alt"),
                ("| alt", "| ctx: calls=a1b2c3d4:w(x) | alt"),
                ("| alt", "| ctx: calls=a1b2c3d4:p(1;2) | alt"),
                ("| alt", "| ctx: thr=32 | alt"),
                ("| alt", "| ctx: vers=2-3 | alt"),
                ("| alt", "| ctx: what=1 | alt"),
                ("| alt", "| what"),
                ("v1hdr", "v3hdr"),
                ("\trequester", "\tresponder"),
                ("\trequester", "\tnobody"),
                ("a1b2c3d4", "a1b2c3d"),
                ("a1b2c3d4", "-"),
                ("prose", "pro\tse"),
            ],
        );
    }

    #[test]
    fn a_wrong_refusal_fails_the_row() {
        each_fails(
            REFUSED,
            &[
                ("ERR_INVAL_OPTION", "ERR_BADHEADER"),
                ("opttype=7", "opttype=8"),
                ("optlen=5", "optlen=4"),
                ("pay=0", "pay=4"),
                ("@16", "@20"),
                ("00000004 00000003", "00000004 00000002"),
                ("00000004 00000003", "00000004"),
                ("00000004 00000003", "00000004 00000003 00000000"),
                ("v2hdr", "v1hdr"),
            ],
        );
    }
}
