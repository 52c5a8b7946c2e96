// SPDX-License-Identifier: GPL-2.0

//! Nanoseconds of each operation on each header.

use std::hint::black_box;

use criterion::{criterion_group, criterion_main, Criterion};
use rpcrdma_bench::{Rpc, OPERATIONS, RPCS};

fn headers(criterion: &mut Criterion) {
    for (operation, run) in OPERATIONS {
        let mut group = criterion.benchmark_group(operation);
        for (name, segments) in RPCS {
            let mut rpc = Rpc::new(segments);
            group.bench_function(name, |bencher| bencher.iter(|| run(black_box(&mut rpc))));
        }
        group.finish();
    }
}

criterion_group!(benches, headers);
criterion_main!(benches);
