// SPDX-License-Identifier: GPL-2.0

//! Tests of what is wrong with one message by itself.

use super::examples::{alone, backward, call, read, reading, reply, segment, words, Sent, Wire};
use super::fault::Fault;
use crate::proto::message::Message;
use crate::proto::responder::budget::{Excess, MAX_READ_CHUNKS, MAX_RESULTS, MAX_SEGMENTS};
use crate::proto::responder::refusal::CallError;
use crate::proto::wire::chunk::ReadSegment;
use crate::proto::wire::header::{Procedure, Versions};

#[test]
fn a_call_is_judged_by_the_budget() {
    let many = |count: u32| vec![segment(1, 4); usize::try_from(count).unwrap()];
    let chunks = |count: u32| {
        let reads: Vec<_> = (0..count)
            .map(|n| ReadSegment {
                position: 44 + 8 * n,
                ..read(4)
            })
            .collect();
        let mut call = reading(4, &reads);
        call.rpc
            .extend(words(&vec![4; usize::try_from(count).unwrap() - 1]));
        call
    };
    let cases: [(u32, Excess, &dyn Fn(u32) -> Sent); 5] = [
        (MAX_SEGMENTS, Excess::ReadSegments, &|n| {
            reading(4 * n, &vec![read(4); usize::try_from(n).unwrap()])
        }),
        (MAX_READ_CHUNKS, Excess::ReadChunks, &chunks),
        (MAX_RESULTS, Excess::WriteChunks, &|n| Sent {
            writes: vec![many(1); usize::try_from(n).unwrap()],
            ..call(7)
        }),
        (MAX_SEGMENTS, Excess::WriteSegments, &|n| Sent {
            writes: vec![many(n)],
            ..call(7)
        }),
        (MAX_SEGMENTS, Excess::ReplySegments, &|n| Sent {
            reply: many(n),
            ..call(7)
        }),
    ];
    for (most, excess, make) in cases {
        assert_eq!(alone(&make(most)), []);
        let faults = alone(&make(most + 1));
        assert_eq!(faults, [Fault::Refused(CallError::Budget(excess))]);
        assert_eq!(faults[0].name(), format!("{excess:?}"));
    }
}

#[test]
fn chunks_have_to_fit_their_message() {
    let at = |position| ReadSegment {
        position,
        ..read(100)
    };
    for reads in [
        [at(44), at(48)],
        [at(48), at(44)],
        [at(44), at(4000)],
        [at(44), at(u32::MAX - 3)],
    ] {
        let faults = alone(&reading(100, &reads));
        assert_eq!(faults, [Fault::Refused(CallError::PositionRange)]);
    }
    assert_eq!(alone(&reading(100, &[read(100)])), []);
    assert_eq!(alone(&reading(99, &[read(100)])), []);
    for length in [77, 101, 0] {
        let faults = alone(&reading(length, &[read(100)]));
        assert_eq!(faults, [Fault::WrongCount], "{length}");
    }
    let long = |reads: &[ReadSegment]| Sent {
        procedure: Procedure::Nomsg,
        ..reading(0, reads)
    };
    let zero = |length| ReadSegment {
        position: 0,
        ..read(length)
    };
    assert_eq!(alone(&long(&[zero(40)])), []);
    for reads in [[zero(0)], [read(40)]] {
        let faults = alone(&long(&reads));
        assert_eq!(faults, [Fault::Refused(CallError::NoPositionZero)]);
    }
    let writes_only = Sent {
        writes: vec![vec![segment(1, 8)]],
        ..long(&[])
    };
    let faults = alone(&writes_only);
    assert_eq!(faults, [Fault::Refused(CallError::NoPositionZero)]);
}

#[test]
fn credit_words_are_not_zero() {
    assert_eq!(
        alone(&Sent {
            credits: 0,
            ..call(1)
        }),
        [Fault::NoCredits]
    );
    let mut wire = Wire::new();
    assert_eq!(wire.client(&call(1)), []);
    assert_eq!(wire.server(&reply(1, 0)), [Fault::NoCredits]);
    assert_eq!(wire.client(&call(2)), []);
}

#[test]
fn each_fault_has_words() {
    let faults = [
        (Fault::WrongCount, "as long as the word before it"),
        (Fault::NoCredits, "is 0"),
        (
            Fault::Overrun {
                outstanding: 9,
                granted: 8,
            },
            "without an answer: 9, granted: 8",
        ),
        (Fault::TooLong { threshold: 1024 }, "room for 1024 bytes"),
        (Fault::Invalidates(0x12), "0x00000012"),
        (Fault::Refused(CallError::PositionRange), "overlaps"),
    ];
    for (fault, words) in faults {
        assert!(fault.to_string().contains(words), "{fault}");
        assert!(!fault.name().contains(' '));
    }
}

/// A server's messages in the vectors that the core is tested with, but for those of Version Two,
/// which only an end without it refuses.
#[test]
fn vectors_are_judged_as_they_say() {
    let files = [
        include_str!("../../../../selftests/vectors/conformance.tsv"),
        include_str!("../../../../selftests/vectors/vectors.tsv"),
    ];
    let mut good = 0;
    let mut bad = 0;
    for line in files.iter().flat_map(|file| file.lines()) {
        let columns: Vec<_> = line.split('\t').collect();
        let [id, "v1hdr", "responder" | "both", hex, expected, note] = columns[..] else {
            continue;
        };
        let digits: Vec<_> = hex.chars().filter_map(|digit| digit.to_digit(16)).collect();
        let bytes: Vec<_> = digits
            .chunks_exact(2)
            .map(|pair| pair[0] << 4 | pair[1])
            .collect();
        let bytes: Vec<_> = bytes
            .iter()
            .map(|&byte| u8::try_from(byte).unwrap())
            .collect();
        if bytes.get(4..8) == Some(&[0, 0, 0, 2]) {
            continue;
        }
        let mut wire = Wire::telling([Some(4096), None]);
        if note.contains("bcalls=00000051") {
            assert_eq!(wire.invalidates(false, backward(0x51, 2, 0), None), []);
        }
        let is_refused = Message::decode(&bytes, Versions::ONE_AND_TWO).is_err();
        let faults = wire.invalidates(true, bytes, None);
        // A credit word of 0 is no reason to refuse anything.
        if id.starts_with("N1-CREDIT0-") {
            assert_eq!(faults, [Fault::NoCredits], "{id}");
            continue;
        }
        // The vectors have no budget.
        let is_excess = |fault: &Fault| matches!(fault, Fault::Refused(CallError::Budget(_)));
        let is_good = !is_refused && faults.iter().all(is_excess);
        assert_eq!(is_good, expected == "accept", "{id}: {faults:?}");
        *if is_good { &mut good } else { &mut bad } += 1;
    }
    assert!(good > 20 && bad > 80, "{good} and {bad}");
}
