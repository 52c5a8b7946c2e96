// SPDX-License-Identifier: GPL-2.0

//! Compiles the verbs, and turns on the responder's parts of the protocol core.

fn main() {
    println!("cargo::rustc-cfg=rpcrdma_selftest");
    // Statically, with the two software providers: a virtual machine needs no library of its own.
    cc::Build::new()
        .file("src/verbs.c")
        .define("RDMA_STATIC_PROVIDERS", "rxe,siw")
        .warnings_into_errors(true)
        .compile("verbs");
    // A group, because libibverbs and its providers need each other.
    for argument in [
        "-Wl,--start-group",
        "-l:librdmacm.a",
        "-l:libibverbs.a",
        "-l:librxe-rdmav34.a",
        "-l:libsiw-rdmav34.a",
        "-Wl,--end-group",
        "-lnl-route-3",
        "-lnl-3",
        // Once more behind them: on arm64 they need the loader, which comes with the C library, and the
        // compiler's atomic operations.
        "-lc",
        "-lgcc",
    ] {
        println!("cargo::rustc-link-arg={argument}");
    }
    for file in ["build.rs", "src/verbs.c", "src/verbs.h"] {
        println!("cargo::rerun-if-changed={file}");
    }
}
