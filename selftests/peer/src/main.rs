// SPDX-License-Identifier: GPL-2.0

//! An RPC-over-RDMA responder that breaks the rules, `peer SCENARIO...`, or a requester that does,
//! `peer --requester ADDRESS SCENARIO...`.
//!
//! The responder listens on port 20050 and runs one scenario after the other, each with a client of
//! its own. A scenario ends when the client's last Call is answered, and prints a line: its name,
//! and how each Call ends at the client. What the client must not do, or what should fail and does
//! not, is a message instead, and the exit status is 1 in the end.
//!
//! The requester connects to an NFS server at port 20049. For each scenario it prints a line, its
//! name and what came of each message; then it waits for a line on standard input before it goes
//! on.
//!
//! The protocol core is the module's, included by path.

#[allow(dead_code, reason = "this is a responder, and no good one")]
#[path = "../../../rust/proto/mod.rs"]
mod proto;

mod peer;
mod requester;
mod scenarios;
mod verbs;

use std::process::ExitCode;

use peer::Peer;

/// The result of what may fail; the error is the text to print.
type Result<T = ()> = std::result::Result<T, String>;

/// Of no other service; nfsd has the one before.
const PORT: u16 = 20050;

fn main() -> ExitCode {
    let mut names: Vec<String> = std::env::args().skip(1).collect();
    if names.first().is_some_and(|name| name == "--requester") {
        let scenarios = names.split_off(names.len().min(2));
        let address = names.pop().unwrap_or_default();
        return requester::main(&address, &scenarios);
    }
    let mut chosen = Vec::new();
    for name in &names {
        match scenarios::find(name) {
            Some(run) => chosen.push((name, run)),
            None => {
                eprintln!("there is no scenario {name}");
                return ExitCode::from(2);
            }
        }
    }
    let mut peer = Peer::listen(PORT);
    println!("listening");
    let mut status = ExitCode::SUCCESS;
    for (name, run) in chosen {
        peer.reset();
        let result = run(&mut peer).and_then(|()| peer.serve());
        match result {
            Ok(()) => println!("{name}: {}", peer.expected.join(" ")),
            Err(error) => {
                println!("{name}: failed: {error}");
                status = ExitCode::FAILURE;
                // The client's other Calls need not wait until they time out.
                peer.verbs.disconnect();
                if let Err(error) = peer.serve() {
                    println!("{name}: then failed: {error}");
                }
            }
        }
    }
    status
}
