// SPDX-License-Identifier: GPL-2.0

//! See `rpcrdma_host::fuzz::responder`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| rpcrdma_host::fuzz::responder(input));
