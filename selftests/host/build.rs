// SPDX-License-Identifier: GPL-2.0

//! Turns on the parts of the protocol core that no transport calls yet, and the vector runner.

fn main() {
    println!("cargo::rustc-cfg=rpcrdma_selftest");
    println!("cargo::rustc-cfg=rpcrdma_vectors");
    println!("cargo::rerun-if-changed=build.rs");
}
