// SPDX-License-Identifier: GPL-2.0

//! Calls as clients send them, cut, and wrong.

use super::programs::PROGRAMS;
use super::*;
use crate::proto::message::Message;
use crate::proto::wire::header::Versions;

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// A counted array of so many bytes.
fn bytes(count: u32) -> Vec<u8> {
    let mut bytes = words(&[count]);
    let length = usize::try_from(count).unwrap();
    bytes.resize(4 + length.next_multiple_of(4), 0xee);
    bytes
}

const STATEID: [u32; 4] = [0xeeee_eeee; 4];

/// What a Call has before its arguments, with a credential of this flavor and these words.
fn header(program: [u32; 3], flavor: u32, credential: &[u32]) -> Vec<u8> {
    let [number, version, procedure] = program;
    let length = u32::try_from(credential.len() * 4).unwrap();
    let start = words(&[7, 0, 2, number, version, procedure, flavor, length]);
    [start, words(credential), words(&[0, 0])].concat()
}

/// A COMPOUND of minor version 2.
fn compound(count: u32, operations: &[Vec<u8>]) -> Vec<u8> {
    let header = header([100_003, 4, 1], 1, &[9; 5]);
    [header, bytes(3), words(&[2, count]), operations.concat()].concat()
}

/// What is said of the Call with this inline part, and with a Read chunk if there are position and
/// length of one.
fn text(payload: &[u8], chunk: Option<[u32; 2]>) -> Option<String> {
    let mut message = words(&[7, 1, 32, 0]);
    if let Some([position, length]) = chunk {
        message.extend(words(&[1, position, 9, length, 0, 64]));
    }
    message.extend(words(&[0, 0, 0]));
    message.extend(payload);
    let message = Message::decode(&message, Versions::ONE).unwrap();
    Call::of(&message.body).map(|call| call.to_string())
}

fn says(payload: &[u8], expected: &str) {
    assert_eq!(text(payload, None).as_deref(), Some(expected));
}

#[test]
fn procedures_have_names() {
    for (program, expected) in [
        ([100_003, 3, 0], "NFSv3 NULL"),
        ([100_003, 3, 6], "NFSv3 READ"),
        ([100_003, 3, 21], "NFSv3 COMMIT"),
        ([100_003, 3, 22], "NFSv3 procedure 22"),
        ([100_003, 4, 0], "NFSv4 NULL"),
        ([100_003, 2, 1], "program 100003 version 2 procedure 1"),
        ([100_227, 3, 1], "NFSACLv3 GETACL"),
        ([CALLBACK, 1, 0], "NFSv4 CB_NULL"),
    ] {
        says(&header(program, 0, &[]), expected);
    }
    // A message that says nothing of its program, and another version of RPC.
    assert_eq!(text(&words(&[7, 0, 2]), None), None);
    assert_eq!(text(&words(&[7, 0, 3, 100_003, 3, 6]), None), None);
}

fn sequence() -> Vec<u8> {
    words(&[53, 1, 2, 3, 4, 5, 6, 7, 0])
}

fn put_fh() -> Vec<u8> {
    [words(&[22]), bytes(27)].concat()
}

#[test]
fn operations_have_names() {
    let get_attributes = words(&[9, 2, 8, 9]);
    let read = [words(&[25]), words(&STATEID), words(&[0, 0, 4096])].concat();
    let call = compound(4, &[sequence(), put_fh(), read, get_attributes]);
    says(&call, "NFSv4.2 SEQUENCE PUTFH READ GETATTR");
    let callback = [
        header([CALLBACK, 1, 1], 0, &[]),
        words(&[0, 1, 77, 2]),
        words(&[11, 1, 2, 3, 4, 5, 6, 7, 0, 0]),
        words(&[4]),
        words(&STATEID),
        words(&[0]),
        bytes(28),
    ];
    says(&callback.concat(), "NFSv4.1 CB_SEQUENCE CB_RECALL");
}

#[test]
fn opens_and_creates_are_walked_through() {
    let attributes = || [words(&[1, 2]), bytes(8)].concat();
    let owner = || [words(&[18, 0, 1, 0, 5, 6]), bytes(21)].concat();
    let hows = [
        words(&[0]),
        [words(&[1, 0]), attributes()].concat(),
        [words(&[1, 1]), attributes()].concat(),
        words(&[1, 2, 8, 9]),
        [words(&[1, 3, 8, 9]), attributes()].concat(),
    ];
    let claims = [
        [words(&[0]), bytes(5)].concat(),
        words(&[1, 0]),
        [words(&[2]), words(&STATEID), bytes(5)].concat(),
        [words(&[3]), bytes(5)].concat(),
        words(&[4]),
        [words(&[5]), words(&STATEID)].concat(),
        words(&[6]),
    ];
    for how in &hows {
        for claim in &claims {
            let open = [owner(), how.clone(), claim.clone()].concat();
            let call = compound(3, &[open, words(&[10]), words(&[3, 63])]);
            says(&call, "NFSv4.2 OPEN GETFH ACCESS");
        }
    }
    for kind in [
        words(&[2]),
        words(&[3, 8, 1]),
        [words(&[5]), bytes(9)].concat(),
    ] {
        let create = [words(&[6]), kind, bytes(4), attributes()].concat();
        says(
            &compound(2, &[create, words(&[10])]),
            "NFSv4.2 CREATE GETFH",
        );
    }
}

#[test]
fn what_is_in_a_read_chunk_is_passed_over() {
    let write = [
        words(&[38]),
        words(&STATEID),
        words(&[0, 0, 2]),
        words(&[4095]),
    ];
    let before = [sequence(), put_fh(), write.concat()];
    let position = u32::try_from(compound(4, &before).len()).unwrap();
    let after = [words(&[9, 1, 8])];
    let call = compound(4, &[&before[..], &after[..]].concat());
    let expected = "NFSv4.2 SEQUENCE PUTFH WRITE GETATTR";
    for length in [4095, 4096] {
        let text = text(&call, Some([position, length]));
        assert_eq!(text.as_deref(), Some(expected));
    }
    says(&call, "NFSv4.2 SEQUENCE PUTFH WRITE ...");
}

#[test]
fn what_cannot_be_known_is_left_out() {
    let layout = words(&[51, 0, 1, 1, 2]);
    let call = compound(4, &[sequence(), put_fh(), layout, words(&[10])]);
    says(&call, "NFSv4.2 SEQUENCE PUTFH LAYOUTRETURN ...");
    for number in [0, 2, 76, 10_044, u32::MAX] {
        let call = compound(2, &[sequence(), words(&[number])]);
        says(&call, "NFSv4.2 SEQUENCE ...");
    }
    says(&compound(u32::MAX, &[sequence()]), "NFSv4.2 SEQUENCE ...");
    says(&compound(0, &[]), "NFSv4.2");
    let with = |credential: [u32; 5]| {
        let header = header([100_003, 4, 1], 6, &credential);
        [header, words(&[0, 1, 1]), words(&[24])].concat()
    };
    says(&with([1, 0, 9, 1, 0]), "NFSv4.1 PUTROOTFH");
    for [procedure, service] in [[0, 2], [0, 3], [1, 1]] {
        let call = with([1, procedure, 9, service, 0]);
        says(&call, "NFSv4 COMPOUND ...");
    }
}

#[test]
fn a_call_may_end_anywhere() {
    let open = [words(&[18, 0, 1, 0, 5, 6]), bytes(21), words(&[1, 3, 8, 9])].concat();
    let call = compound(3, &[sequence(), put_fh(), open]);
    for length in 8..call.len() {
        let text = text(&call[..length], None);
        assert_eq!(text.is_some(), length >= 24, "{length}");
        assert!(text.is_none_or(|text| text.starts_with("NFSv4")));
    }
    let mut changed = call.clone();
    for (at, &byte) in call.iter().enumerate().skip(8) {
        for value in [0, 1, 0x7f, 0xff, byte ^ 1, byte ^ 0x80] {
            changed[at] = value;
            let _ = text(&changed, Some([52, 4096]));
        }
        changed[at] = byte;
    }
}

#[test]
fn layouts_have_letters_that_are_known() {
    for program in &PROGRAMS {
        for (name, layout) in program.operations {
            assert!(
                *layout == "?" || layout.chars().all(|letter| "wdsobe".contains(letter)),
                "{name}"
            );
        }
    }
}
