// SPDX-License-Identifier: GPL-2.0

//! What a capture had, and what of it was left out.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde_json::{json, Map, Value};

use crate::judge::fault::Fault;
use crate::report::{self, Format};
use crate::roce::{Content, Item, LeftOut};

/// The counts of one capture.
#[derive(Default)]
pub(crate) struct Summary {
    frames: u64,
    /// RPC-over-RDMA messages, each once for every time it was sent.
    messages: u64,
    /// Messages of the connection manager.
    cm: u64,
    /// RPC-over-RDMA messages that were not captured whole.
    cut: u64,
    /// Other ones that do not decode.
    refused: u64,
    /// Other ones with something wrong.
    wrong: u64,
    left_out: BTreeMap<LeftOut, u64>,
}

impl Summary {
    /// Counts a frame.
    pub(crate) fn frame(&mut self) {
        self.frames += 1;
    }

    /// Counts what was reported, with what is wrong with it.
    pub(crate) fn item(&mut self, item: &Item, faults: &[Fault]) {
        match &item.content {
            Content::Cm { .. } => self.cm += 1,
            Content::Message {
                bytes, complete, ..
            } => {
                self.messages += 1;
                if !complete {
                    self.cut += 1;
                } else if report::is_refused(bytes) {
                    self.refused += 1;
                } else if !faults.is_empty() {
                    self.wrong += 1;
                }
            }
        }
    }

    /// Counts what was not reported.
    pub(crate) fn leave_out(&mut self, reason: LeftOut) {
        *self.left_out.entry(reason).or_default() += 1;
    }

    /// Prints one line about the capture `name`, unless it has no frames.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub(crate) fn print(&self, name: &str, format: Format, out: &mut impl Write) -> io::Result<()> {
        if self.frames == 0 {
            return Ok(());
        }
        let counts = [
            ("frames", self.frames),
            ("messages", self.messages),
            ("cm", self.cm),
            ("cut", self.cut),
            ("refused", self.refused),
            ("wrong", self.wrong),
        ];
        let left_out = self.left_out.iter();
        if format == Format::Json {
            let mut object: Map<String, Value> = counts
                .map(|(name, count)| (name.to_owned(), count.into()))
                .into_iter()
                .collect();
            object.insert("file".into(), name.into());
            let mut reasons = BTreeMap::<_, u64>::new();
            for (reason, count) in left_out {
                let name = match reason {
                    LeftOut::Link(_) => "Link".to_owned(),
                    reason => format!("{reason:?}"),
                };
                *reasons.entry(name).or_default() += count;
            }
            object.insert("left_out".into(), json!(reasons));
            return writeln!(out, "{}", json!({ "summary": object }));
        }
        let counts = counts.map(|(name, count)| format!("{name} {count}"));
        let left_out: Vec<_> = left_out
            .map(|(reason, count)| format!("{reason} {count}"))
            .collect();
        write!(out, "{name}: {}", counts.join(", "))?;
        if !left_out.is_empty() {
            write!(out, "; left out: {}", left_out.join(", "))?;
        }
        writeln!(out)
    }

    /// Why the capture cannot have RPC-over-RDMA, if it cannot.
    pub(crate) fn complaint(&self) -> Option<String> {
        let others = self.left_out.iter().filter_map(|(reason, count)| {
            let is_other = matches!(reason, LeftOut::Link(_) | LeftOut::NotRoce);
            is_other.then_some(count)
        });
        if self.frames == 0 {
            return Some("it has no frames".to_owned());
        }
        if others.sum::<u64>() < self.frames {
            return None;
        }
        // The link types come before the other reasons.
        Some(match self.left_out.keys().next_back() {
            Some(LeftOut::Link(link)) => format!(
                "its link type is {link}; known are those of Ethernet, IP and Linux \"cooked\""
            ),
            _ => "it has no RoCEv2 packets (UDP port 4791)".to_owned(),
        })
    }
}
