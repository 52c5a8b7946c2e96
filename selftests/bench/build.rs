// SPDX-License-Identifier: GPL-2.0

//! Turns on the parts of the protocol core that only a responder needs.

fn main() {
    println!("cargo::rustc-cfg=rpcrdma_selftest");
    println!("cargo::rerun-if-changed=build.rs");
}
