// SPDX-License-Identifier: GPL-2.0

//! Writes the first inputs of the fuzz targets: `seeds VECTORS DIR`, to `DIR/TARGET/VECTOR`.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use rpcrdma_host::fuzz::seeds::seeds;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [vectors, dir] = arguments.as_slice() else {
        eprintln!("usage: seeds VECTORS DIR");
        return ExitCode::from(2);
    };
    match write(vectors, Path::new(dir)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{vectors}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn write(vectors: &str, dir: &Path) -> Result<(), String> {
    let text = fs::read_to_string(vectors).map_err(|error| error.to_string())?;
    for seed in seeds(&text)? {
        let dir = dir.join(seed.target);
        fs::create_dir_all(&dir)
            .and_then(|()| fs::write(dir.join(seed.id), seed.bytes))
            .map_err(|error| format!("{}: {error}", dir.display()))?;
    }
    Ok(())
}
