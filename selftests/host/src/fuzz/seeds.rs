// SPDX-License-Identifier: GPL-2.0

//! First inputs of the fuzz targets, made of the test vectors.

use super::message::OFFER_LEN;
use crate::proto::testing::vectors::{rows, Row};
use crate::proto::wire::header::FIXED_LEN;

/// One input.
#[derive(Debug)]
pub struct Seed {
    /// The fuzz target.
    pub target: &'static str,
    /// The vector that it was made of.
    pub id: String,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// All inputs that `text`, a whole vector file, gives.
///
/// # Errors
///
/// The text to print about a line that is no vector.
pub fn seeds(text: &str) -> Result<Vec<Seed>, String> {
    let mut seeds = Vec::new();
    let mut buffer = [0; 4096];
    for line in rows(text) {
        let row = Row::parse(line).map_err(|_| line.to_owned())?;
        let bytes = row.message(&mut buffer).ok_or(line)?.to_vec();
        let inputs = if row.kind == "privdata" {
            vec![("private_data", bytes)]
        } else {
            let lists = bytes.get(FIXED_LEN..).unwrap_or_default().to_vec();
            let reply = [[0; OFFER_LEN].as_slice(), &bytes].concat();
            vec![
                ("chunk_lists", lists),
                ("reconcile", reply),
                ("message", bytes),
            ]
        };
        seeds.extend(inputs.into_iter().map(|(target, bytes)| Seed {
            target,
            id: row.id.to_owned(),
            bytes,
        }));
    }
    Ok(seeds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_must_hold_does_for_all_vectors() {
        let text = include_str!("../../../vectors/vectors.tsv");
        let seeds = seeds(text).unwrap();
        assert!(!seeds.is_empty());
        for seed in seeds {
            let run = match seed.target {
                "private_data" => super::super::private_data,
                "chunk_lists" => super::super::chunk_lists,
                "reconcile" => super::super::reconcile,
                "message" => super::super::message,
                other => panic!("{other} is no target"),
            };
            run(&seed.bytes);
        }
    }
}
