// SPDX-License-Identifier: GPL-2.0

//! Turns on the parts of the protocol core that no transport calls yet, and what only
//! this crate has a use for.

fn main() {
    println!("cargo::rustc-cfg=rpcrdma_selftest");
    println!("cargo::rustc-cfg=rpcrdma_host");
    println!("cargo::rerun-if-changed=build.rs");
}
