// SPDX-License-Identifier: GPL-2.0

//! Runs a file of test vectors: `vectors PATH`.
//!
//! Prints one line for each row that fails and ends with the counts. The exit status is 0 if no
//! row failed, 1 if some did, 2 if there was nothing to run.

use std::process::ExitCode;

use rpcrdma_host::vectors;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(path), None) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: vectors PATH");
        return ExitCode::from(2);
    };
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) => {
            eprintln!("{}: {error}", path.to_string_lossy());
            return ExitCode::from(2);
        }
    };
    let summary = vectors::run(&text);
    print!("{summary}");
    match (summary.failures.is_empty(), summary.passed) {
        (true, 0) => ExitCode::from(2),
        (true, _) => ExitCode::SUCCESS,
        (false, _) => ExitCode::FAILURE,
    }
}
