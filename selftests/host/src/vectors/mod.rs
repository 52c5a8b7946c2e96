// SPDX-License-Identifier: GPL-2.0

//! Runs the rows of a vector file against the protocol core.
//!
//! `selftests/vectors/README.md` describes the file. Nothing in a row is passed over: a tag, a
//! role or an outcome that the runner does not know makes the row fail.

mod header;

use std::collections::BTreeSet;
use std::fmt;

use crate::proto::header::Versions;
use crate::proto::private_data::PrivateData;

/// Columns of a row.
const COLUMNS: usize = 6;

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

/// One row of the file.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    kind: String,
    role: String,
    pub(crate) bytes: Vec<u8>,
    expected: String,
    context: String,
    checks: Vec<String>,
    reply: Option<String>,
}

impl Row {
    /// Reads one line; the error is the text to print.
    fn parse(line: &str) -> Result<Self, String> {
        let columns: Vec<&str> = line.split('\t').collect();
        let &[_, kind, role, hex, expected, note] = columns.as_slice() else {
            return Err(format!("{} columns, not {COLUMNS}", columns.len()));
        };
        let mut row = Self {
            kind: kind.to_owned(),
            role: role.to_owned(),
            bytes: parse_hex(hex).ok_or("bad hex")?,
            expected: expected.to_owned(),
            context: String::new(),
            checks: Vec::new(),
            reply: None,
        };
        // The first part is prose.
        for tag in note.split(" | ").skip(1) {
            match tag.split_once(": ") {
                Some(("ctx", context)) => row.context = context.trim().to_owned(),
                Some(("chk", checks)) => {
                    row.checks = checks.split_whitespace().map(str::to_owned).collect();
                }
                Some(("reply", words)) => row.reply = Some(words.replace(' ', "")),
                Some(("alt", _)) => {}
                _ => return Err(format!("unknown tag: {tag}")),
            }
        }
        Ok(row)
    }

    /// Runs the row in all its roles; the error is the text to print.
    fn run(&self) -> Result<(), String> {
        let (versions, threshold) = match self.kind.as_str() {
            "privdata" => return self.compare(&private_data(&self.bytes)),
            "v1hdr" => (Versions::ONE, 1024),
            "v2hdr" => (Versions::ONE_AND_TWO, 4096),
            other => return Err(format!("unknown kind: {other}")),
        };
        let roles = match self.role.as_str() {
            "both" => ["requester", "responder"].as_slice(),
            "requester" => &["requester"],
            "responder" => &["responder"],
            other => return Err(format!("unknown role: {other}")),
        };
        let context = header::Context::parse(&self.context, versions, threshold)?;
        for role in roles {
            let seen = if *role == "requester" {
                header::at_requester(&self.bytes, &context)
            } else {
                header::at_responder(&self.bytes, &context)
            };
            self.compare(&seen)
                .map_err(|difference| format!("{role}: {difference}"))?;
        }
        Ok(())
    }

    /// Compares what was seen with what the row expects.
    fn compare(&self, seen: &Seen) -> Result<(), String> {
        if seen.outcome != self.expected {
            return Err(format!("{}, expected {}", seen.outcome, self.expected));
        }
        for check in &self.checks {
            // Of a refusal only the offset counts.
            let fact = match check.split_once('@') {
                Some((_, at)) => format!("fail@{at}"),
                None => check.clone(),
            };
            if !seen.facts.contains(&fact) {
                return Err(format!("expected {fact}, found {:?}", seen.facts));
            }
        }
        match (&self.reply, &seen.answer) {
            (None, _) => Ok(()),
            (Some(expected), Some(answer)) if same_words(expected, answer) => Ok(()),
            (Some(expected), answer) => Err(format!("expected {expected}, sent {answer:02x?}")),
        }
    }
}

/// What the core made of the bytes of a row.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// The outcome word.
    pub(crate) outcome: &'static str,
    /// What was decoded, written as the `chk` tags write it.
    pub(crate) facts: BTreeSet<String>,
    /// The RDMA_ERROR to send.
    pub(crate) answer: Option<Vec<u8>>,
}

/// Runs every row of `text`, a whole vector file.
pub fn run(text: &str) -> Summary {
    let mut summary = Summary::default();
    for line in text.lines().skip(1).filter(|line| !line.is_empty()) {
        let id = line.split('\t').next().unwrap_or_default();
        match Row::parse(line).and_then(|row| row.run()) {
            Ok(()) => summary.passed += 1,
            Err(difference) => summary.failures.push(format!("{id}: {difference}")),
        }
    }
    summary
}

/// The outcome of private data.
fn private_data(bytes: &[u8]) -> Seen {
    let mut seen = Seen {
        outcome: "no-private-data",
        ..Seen::default()
    };
    seen.facts.insert(format!("len={}", bytes.len()));
    if let Some((offset, message)) = PrivateData::find(bytes) {
        seen.outcome = "accept";
        seen.facts.extend([
            format!("off={offset}"),
            format!("R={}", u8::from(message.remote_invalidation)),
            format!("send={}", message.send.bytes()),
            format!("recv={}", message.receive.bytes()),
        ]);
    }
    seen
}

/// Whether `answer` has the hex digits of `expected`, in which `?` stands for any digit.
fn same_words(expected: &str, answer: &[u8]) -> bool {
    let digits: String = answer.iter().map(|byte| format!("{byte:02x}")).collect();
    digits.len() == expected.len()
        && digits
            .chars()
            .zip(expected.chars())
            .all(|(digit, wanted)| wanted == '?' || digit == wanted)
}

/// The bytes of `hex`, in which `-` is the empty message.
fn parse_hex(hex: &str) -> Option<Vec<u8>> {
    if hex == "-" {
        return Some(Vec::new());
    }
    let digits: Option<Vec<u32>> = hex.chars().map(|digit| digit.to_digit(16)).collect();
    let pairs = digits?;
    let pairs = pairs.chunks(2).map(|pair| match *pair {
        [high, low] => u8::try_from(high * 16 + low).ok(),
        _ => None,
    });
    pairs.collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The vector file of the repository.
    const FILE: &str = include_str!("../../../vectors/vectors.tsv");

    /// A good Reply with one row of changes to be made.
    const ROW: &str = "X\tv1hdr\trequester\t\
        a1b2c3d4000000010000001000000000000000000000000000000000a1b2c3d400000001\t\
        accept\tprose | chk: len=36 hdr=28 pay=8 R[] W[] P- | alt: discard";

    /// The messages of the file, of both versions.
    pub(crate) fn messages() -> Vec<Vec<u8>> {
        let rows = FILE.lines().skip(1).map(|line| Row::parse(line).unwrap());
        let headers = rows.filter(|row| row.kind != "privdata");
        headers.map(|row| row.bytes).collect()
    }

    /// The private data of the file.
    pub(crate) fn private_messages() -> Vec<Vec<u8>> {
        let rows = FILE.lines().skip(1).map(|line| Row::parse(line).unwrap());
        let private = rows.filter(|row| row.kind == "privdata");
        private.map(|row| row.bytes).collect()
    }

    fn failures(row: &str) -> usize {
        run(&format!("columns\n{row}\n")).failures.len()
    }

    #[test]
    fn every_row_of_the_file_passes() {
        let summary = run(FILE);
        assert!(summary.failures.is_empty(), "{summary}");
        assert_eq!(summary.passed, FILE.lines().count() - 1);
    }

    #[test]
    fn a_wrong_expectation_fails_the_row() {
        assert_eq!(failures(ROW), 0);
        for (from, to) in [
            ("\taccept", "\tdiscard"),
            ("len=36", "len=37"),
            ("hdr=28", "hdr=32"),
            ("R[]", "R[4:8]"),
            ("W[]", "W[0]"),
            ("P-", "P(0)"),
            ("P-", "fail=trunc@16"),
            ("P-", "P- | reply: a1b2c3d4"),
            ("| alt", "| ctx: calls=none | alt"),
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
        ] {
            let changed = ROW.replacen(from, to, 1);
            assert_ne!(changed, ROW);
            assert_eq!(failures(&changed), 1, "{changed}");
        }
    }
}
