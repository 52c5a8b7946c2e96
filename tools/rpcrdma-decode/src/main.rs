// SPDX-License-Identifier: GPL-2.0

//! Prints the RPC-over-RDMA messages of a capture file, one line for each.
//!
//! The messages are decoded by the protocol core of the kernel module, which is included by path.

#[allow(dead_code, reason = "the core does more than decode")]
#[path = "../../../rust/proto/mod.rs"]
mod proto;

mod capture;
mod filter;
mod judge;
mod report;
mod roce;
mod rpc;
mod summary;
#[cfg(test)]
mod tests;
mod time;

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufRead, ErrorKind, Read, Write};
use std::process::ExitCode;

use lexopt::{Arg, ValueExt};

use filter::{parse_xid, Filter};
use judge::Judge;
use report::Format;
use roce::{Content, Item, LeftOut, Streams};
use summary::Summary;

const USAGE: &str = "\
usage: rpcrdma-decode [--json] [--xid XID] [--peer ADDRESS] [FILE...]
       rpcrdma-decode [--json] [--xid XID] --hex [BYTES...]

Prints each RPC-over-RDMA message, and the private data of each connection, that
pcap or pcapng files have as RoCEv2, and what is wrong with it. '-', or no
file, is standard input.
  --json          one JSON object for each line
  --xid XID       only the messages with this XID, in hexadecimal digits
  --peer ADDRESS  only what this IP address has sent or received
  --hex           each argument, or line of standard input, is one message
  --version       what version this is
";

/// The same as that of the module and of the packages.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// How to print what.
#[derive(Clone, Copy)]
struct Options {
    format: Format,
    filter: Filter,
}

/// Why the program ends early.
enum Failure {
    /// Nobody reads what is printed.
    Closed,
    /// The text to print, and the exit status.
    Text(String, u8),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            ErrorKind::BrokenPipe => Self::Closed,
            _ => Self::Text(error.to_string(), 1),
        }
    }
}

impl From<lexopt::Error> for Failure {
    fn from(error: lexopt::Error) -> Self {
        Self::Text(format!("{error}\n{USAGE}"), 2)
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(status) => status,
        Err(Failure::Closed) => ExitCode::SUCCESS,
        Err(Failure::Text(text, status)) => complain(&text, status),
    }
}

/// Says what went wrong. The exit status.
fn complain(text: &str, status: u8) -> ExitCode {
    eprintln!("rpcrdma-decode: {}", text.trim_end());
    ExitCode::from(status)
}

fn run() -> Result<ExitCode, Failure> {
    let mut options = Options {
        format: Format::Text,
        filter: Filter::default(),
    };
    let mut hex = false;
    let mut operands = Vec::new();
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Arg::Long("json") => options.format = Format::Json,
            Arg::Long("xid") => options.filter.xid = Some(parser.value()?.parse_with(parse_xid)?),
            Arg::Long("peer") => options.filter.peer = Some(parser.value()?.parse()?),
            Arg::Long("hex") => hex = true,
            Arg::Long("version") => {
                writeln!(io::stdout(), "rpcrdma-decode {VERSION}")?;
                return Ok(ExitCode::SUCCESS);
            }
            Arg::Short('h') | Arg::Long("help") => {
                io::stdout().write_all(USAGE.as_bytes())?;
                return Ok(ExitCode::SUCCESS);
            }
            Arg::Value(value) => operands.push(value),
            other => return Err(other.unexpected().into()),
        }
    }
    let mut out = io::BufWriter::new(io::stdout().lock());
    let mut status = ExitCode::SUCCESS;
    if hex && options.filter.peer.is_some() {
        return Err(lexopt::Error::from("--hex has no addresses for --peer").into());
    }
    if hex {
        if operands.is_empty() {
            for line in io::stdin().lock().lines() {
                decode_hex(&line?, options, &mut out)?;
            }
        }
        for operand in &operands {
            decode_hex(&operand.to_string_lossy(), options, &mut out)?;
        }
    } else {
        if operands.is_empty() {
            operands.push("-".into());
        }
        for path in &operands {
            // The files after a bad one may be good.
            match decode_file(path, options, &mut out) {
                Err(Failure::Text(text, failed)) => {
                    out.flush()?;
                    status = complain(&text, failed);
                }
                other => other?,
            }
        }
    }
    out.flush()?;
    Ok(status)
}

/// Prints what the capture file at `path` has.
fn decode_file(path: &OsStr, options: Options, out: &mut impl Write) -> Result<(), Failure> {
    let name = path.to_string_lossy();
    let read = if name == "-" {
        decode_capture(Box::new(io::stdin()), &name, options, out)?
    } else {
        match File::open(path) {
            Ok(file) => decode_capture(Box::new(file), &name, options, out)?,
            Err(error) => Err(error.to_string()),
        }
    };
    read.map_err(|error| Failure::Text(format!("{name}: {error}"), 1))
}

/// Prints what a capture has and, if it has frames, a line that sums up.
///
/// # Errors
///
/// Those of `out`; of the capture, what is wrong with it.
fn decode_capture(
    file: Box<dyn Read + Send>,
    name: &str,
    options: Options,
    out: &mut impl Write,
) -> io::Result<Result<(), String>> {
    let mut streams = Streams::default();
    let mut judge = Judge::default();
    let mut summary = Summary::default();
    let mut written = Ok(());
    let read = capture::read(file, |frame| {
        summary.frame();
        match streams.take(frame) {
            Ok(Some(item)) => {
                let faults = judge.take(&item);
                summary.item(&item, &faults);
                if options.filter.wants(&item) {
                    written = report::print(&item, &faults, options.format, out);
                } else {
                    summary.leave_out(LeftOut::NotWanted);
                }
            }
            Ok(None) => {}
            Err(reason) => summary.leave_out(reason),
        }
        written.is_ok()
    });
    written?;
    for _ in 0..streams.unfinished() {
        summary.leave_out(LeftOut::NoEnd);
    }
    summary.print(name, options.format, out)?;
    Ok(read.and_then(|()| summary.complaint().map_or(Ok(()), Err)))
}

/// Prints one message that is given as hexadecimal digits.
fn decode_hex(text: &str, options: Options, out: &mut impl Write) -> Result<(), Failure> {
    let bytes = parse_hex(text).map_err(|error| Failure::Text(error, 1))?;
    let item = Item {
        path: None,
        content: Content::Message {
            bytes,
            complete: true,
            invalidates: None,
        },
    };
    if options.filter.wants(&item) {
        let faults = Judge::default().take(&item);
        report::print(&item, &faults, options.format, out)?;
    }
    Ok(())
}

/// The bytes of words of hexadecimal digits, each with or without `0x`, and spaces, colons or commas
/// between them.
fn parse_hex(text: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    for word in text.split(|c: char| c.is_whitespace() || c == ':' || c == ',') {
        let plain = word.strip_prefix("0x").or(word.strip_prefix("0X"));
        let digits: Option<Vec<u8>> = plain
            .unwrap_or(word)
            .chars()
            .map(|c| c.to_digit(16).and_then(|digit| u8::try_from(digit).ok()))
            .collect();
        let digits = digits
            .filter(|digits| digits.len() % 2 == 0)
            .ok_or_else(|| format!("not bytes in hexadecimal digits: {word:.32}"))?;
        bytes.extend(digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]));
    }
    Ok(bytes)
}
