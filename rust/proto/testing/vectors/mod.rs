// SPDX-License-Identifier: GPL-2.0

//! Runs rows of a vector file, each a received message and what a receiver makes of it.
//!
//! Nothing in a row is passed over: a tag, a role or an outcome that is not known makes the row
//! fail.

mod context;
mod failure;
mod seen;

use crate::proto::wire::header::Versions;
use context::Context;
pub(crate) use failure::Failure;
use seen::Seen;

/// One row of a vector file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row<'a> {
    /// The name of the row.
    pub(crate) id: &'a str,
    /// `v1hdr`, `v2hdr` or `privdata`.
    pub(crate) kind: &'a str,
    role: &'a str,
    hex: &'a str,
    /// The expected outcome.
    pub(crate) expected: &'a str,
    context: &'a str,
    checks: &'a str,
    reply: Option<&'a str>,
}

/// The rows of `text`, a whole file: each line after the first that is not empty.
pub(crate) fn rows(text: &str) -> impl Iterator<Item = &str> {
    text.lines().skip(1).filter(|line| !line.is_empty())
}

impl<'a> Row<'a> {
    /// Reads one line.
    ///
    /// # Errors
    ///
    /// [`Failure::Form`].
    pub(crate) fn parse(line: &'a str) -> Result<Self, Failure<'a>> {
        let mut columns = line.split('\t');
        let mut next = || columns.next().ok_or(Failure::Form(line));
        let mut row = Self {
            id: next()?,
            kind: next()?,
            role: next()?,
            hex: next()?,
            expected: next()?,
            context: "",
            checks: "",
            reply: None,
        };
        let note = next()?;
        if columns.next().is_some() {
            return Err(Failure::Form(line));
        }
        // The first part is prose. A bar between other characters than blanks is none.
        let mut spaced = false;
        for part in note.split('|') {
            let is_tag = spaced && part.starts_with(' ');
            spaced = part.ends_with(' ');
            if is_tag {
                row.take_tag(part.trim()).ok_or(Failure::Form(part))?;
            }
        }
        Ok(row)
    }

    /// Notes one tag; nothing if it is unknown.
    fn take_tag(&mut self, tag: &'a str) -> Option<()> {
        match tag.split_once(':')? {
            ("ctx", context) => self.context = context,
            ("chk", checks) => self.checks = checks,
            ("reply", words) => self.reply = Some(words),
            ("alt", _) => {}
            _ => return None,
        }
        Some(())
    }

    /// The message, which is put into `buffer`; `None` if it is not hexadecimal or does not fit.
    pub(crate) fn message<'b>(&self, buffer: &'b mut [u8]) -> Option<&'b mut [u8]> {
        let hex = if self.hex == "-" { "" } else { self.hex };
        let mut digits = hex.chars();
        let mut length = 0usize;
        while let Some(high) = digits.next() {
            let byte = high.to_digit(16)?.checked_mul(16)?;
            let byte = byte.checked_add(digits.next()?.to_digit(16)?)?;
            *buffer.get_mut(length)? = u8::try_from(byte).ok()?;
            length = length.checked_add(1)?;
        }
        buffer.get_mut(..length)
    }

    /// Runs the row in all its roles, with `buffer` for the message.
    ///
    /// # Errors
    ///
    /// Any [`Failure`].
    pub(crate) fn run(&self, buffer: &mut [u8]) -> Result<(), Failure<'a>> {
        let bytes = &*self.message(buffer).ok_or(Failure::Form(self.hex))?;
        let (versions, threshold) = match self.kind {
            "privdata" => return self.compare(self.role, &Seen::private_data(bytes)),
            "v1hdr" => (Versions::ONE, 1024),
            "v2hdr" => (Versions::ONE_AND_TWO, 4096),
            kind => return Err(Failure::Form(kind)),
        };
        let context = Context::parse(self.context, versions, threshold)?;
        let (requester, responder) = match self.role {
            "both" => (true, true),
            "requester" => (true, false),
            "responder" => (false, true),
            role => return Err(Failure::Form(role)),
        };
        if requester {
            self.compare("requester", &Seen::at_requester(bytes, &context))?;
        }
        if responder {
            self.compare("responder", &Seen::at_responder(bytes, &context))?;
        }
        Ok(())
    }

    /// Compares what was seen with what the row expects.
    fn compare(&self, role: &'a str, seen: &Seen<'_>) -> Result<(), Failure<'a>> {
        if seen.outcome != self.expected {
            return Err(Failure::Outcome {
                role,
                seen: seen.outcome,
            });
        }
        for expected in self.checks.split_whitespace() {
            if seen.has(expected) != Some(true) {
                return Err(Failure::Check { role, expected });
            }
        }
        if self.reply.is_none_or(|words| seen.answered(words)) {
            Ok(())
        } else {
            Err(Failure::Answer { role })
        }
    }
}
