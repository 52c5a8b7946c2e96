// SPDX-License-Identifier: GPL-2.0

//! Repeats one operation on one header, for who counts instructions: `repeat OPERATION RPC COUNT`.

use std::hint::black_box;
use std::process::ExitCode;

use rpcrdma_bench::{Rpc, OPERATIONS, RPCS};

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let (operation, name, count) = match arguments.as_slice() {
        [operation, name, count] => (operation, name, count.parse::<u32>()),
        _ => return usage(),
    };
    let run = OPERATIONS.iter().find(|(known, _)| known == operation);
    let segments = RPCS.iter().find(|(known, _)| known == name);
    let (Some((_, run)), Some((_, segments)), Ok(count)) = (run, segments, count) else {
        return usage();
    };
    let mut rpc = Rpc::new(*segments);
    for _ in 0..count {
        black_box(run(black_box(&mut rpc)));
    }
    ExitCode::SUCCESS
}

fn usage() -> ExitCode {
    eprintln!("usage: repeat OPERATION RPC COUNT");
    ExitCode::from(2)
}
