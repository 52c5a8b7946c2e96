// SPDX-License-Identifier: GPL-2.0

//! The messages of `selftests/vectors` that a requester may receive, each as what comes while a Call
//! without chunks waits for its Reply. The client serves backward Calls.
//!
//! Rows whose Calls offer chunks are left to the host tests: the client's chunks have other
//! lengths. `chunks` has the same faults in the lengths of what was really offered.

use super::Scenarios;
use crate::peer::{word_at, Peer, EIO};
use crate::Result;

pub(super) const SCENARIOS: &Scenarios = &[("vectors", vectors)];

const FILES: [&str; 2] = [
    include_str!("../../../vectors/vectors.tsv"),
    include_str!("../../../vectors/conformance.tsv"),
];

/// The XID of the Call in the rows.
const XID: u32 = 0xa1b2_c3d4;

/// What comes of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// The Call ends with this status.
    Ends(i32),
    /// The Call goes on waiting.
    Waits,
    /// The same, and the client answers with an RDMA_ERROR.
    Answered,
}

struct Row {
    id: &'static str,
    bytes: Vec<u8>,
    /// Whether the Call that waits has the message's XID.
    awaited: bool,
    outcome: Outcome,
    /// The hex digits of the answer, `?` being any.
    answer: String,
}

impl Row {
    /// Reads a line; nothing if the row is not for a Version One requester, or has chunks.
    fn parse(line: &'static str) -> Option<Self> {
        let columns: Vec<&str> = line.split('\t').collect();
        let &[id, "v1hdr", "requester" | "both", hex, expected, note] = columns.as_slice() else {
            return None;
        };
        let tag = |name: &str| {
            let mut tags = note.split(" | ");
            tags.find_map(|tag| tag.strip_prefix(name)).unwrap_or("")
        };
        let context = tag("ctx: ");
        let offers_chunks = context.contains(":w(") || context.contains(":p(");
        if offers_chunks || context.contains("bc=0") || context.contains("thr=") {
            return None;
        }
        let bytes: Vec<u8> = (0..hex.trim_matches('-').len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex digits"))
            .collect();
        let awaited = !context.contains("calls=none");
        let is_error = bytes.len() >= 16 && word_at(&bytes, 12) == 4;
        // Behind the 28 bytes of a header without chunks.
        let is_backward = word_at(&bytes, 32) == 0;
        let outcome = match expected {
            "ERR_VERS" | "ERR_BADHEADER" => Outcome::Answered,
            "accept" if is_error => Outcome::Ends(EIO),
            "accept" if is_backward => Outcome::Waits,
            "accept" => Outcome::Ends(0),
            // No Call ends by an RDMA_ERROR that does not decode.
            "discard" if awaited && bytes.len() >= 16 && !is_error => Outcome::Ends(EIO),
            "discard" => Outcome::Waits,
            _ => return None,
        };
        Some(Self {
            id,
            bytes,
            awaited,
            outcome,
            answer: tag("reply: ").replace(' ', ""),
        })
    }

    /// The message, with the XID of a real Call unless it is for nobody.
    fn message(&self, xid: u32) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        for word in bytes.chunks_exact_mut(4) {
            if self.awaited && word == XID.to_be_bytes() {
                word.copy_from_slice(&xid.to_be_bytes());
            }
        }
        bytes
    }

    fn is_answer(&self, xid: u32, bytes: &[u8]) -> bool {
        let xid = if self.awaited { xid } else { XID };
        let expected = self
            .answer
            .replace(&format!("{XID:08x}"), &format!("{xid:08x}"));
        let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        digits.len() == expected.len()
            && digits
                .chars()
                .zip(expected.chars())
                .all(|(digit, wanted)| wanted == '?' || digit == wanted)
    }
}

fn vectors(peer: &mut Peer) -> Result {
    peer.accept()?;
    let rows: Vec<Row> = FILES
        .iter()
        .flat_map(|file| file.lines().filter_map(Row::parse))
        .collect();
    if rows.len() < 20 {
        return Err(format!("the file has only {} rows to use", rows.len()));
    }
    for row in rows {
        one(peer, &row).map_err(|error| format!("{}: {error}", row.id))?;
    }
    Ok(())
}

fn one(peer: &mut Peer, row: &Row) -> Result {
    let call = peer.call()?;
    peer.send(&row.message(call.xid))?;
    if let Outcome::Ends(status) = row.outcome {
        peer.ends(status);
        return Ok(());
    }
    if row.outcome == Outcome::Answered {
        let error = peer.error()?;
        if !row.is_answer(call.xid, &error) {
            return Err(format!("the client answered {error:02x?}"));
        }
    }
    peer.answer(&call)
}
