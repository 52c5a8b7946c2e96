// SPDX-License-Identifier: GPL-2.0

//! Files that are bad, empty, or of something else, and what is said of all of one.

use super::*;

#[test]
fn what_is_no_capture_is_refused() {
    for file in [vec![], b"x".to_vec(), vec![0; 100]] {
        assert!(decode(file, Format::Text).is_err());
    }
    let mut file = pcap(&[frame(&packet(4, 17, 0, &[], &CALL))], usize::MAX);
    file.truncate(file.len() - 1);
    assert!(decode(file, Format::Text).unwrap_err().contains("frame 1"));
}

/// A Send, three packets without one, a message without its beginning, one without its end, one that
/// is cut, one that is refused and one that is wrong.
fn frames_of_all_kinds() -> Vec<Vec<u8>> {
    let mut cut = frame(&packet(4, 17, 6, &[], &CALL));
    cut.truncate(80);
    [
        packet(4, 17, 1, &[], &CALL),
        packet(0x0a, 17, 2, &[0; 16], &[7; 64]),
        packet(0x11, 17, 3, &[0; 4], &[]),
        packet(2, 17, 4, &[], &CALL),
        packet(4, 17, 5, &[], &[0; 16]),
        packet(0x17, 17, 7, &[9; 4], &CALL),
        packet(0, 18, 8, &[], &CALL),
    ]
    .iter()
    .map(|packet| frame(packet))
    .chain([cut, frame(b"short"), vec![0; 60]])
    .collect()
}

#[test]
fn the_last_line_sums_up() {
    let file = || pcap(&frames_of_all_kinds(), usize::MAX);
    let (text, read) = decode_all(file(), Format::Text);
    assert_eq!(read, Ok(()));
    let expected = "FILE: frames 10, messages 4, cm 0, cut 1, refused 1, wrong 1; left out: \
                    not RoCEv2 1, RDMA Reads/Writes/acknowledgements 3, without the first packet 1, \
                    without the last packet 1";
    assert_eq!(text.lines().last(), Some(expected));
    let (json, _) = decode_all(file(), Format::Json);
    let last: serde_json::Value = serde_json::from_str(json.lines().last().unwrap()).unwrap();
    let summary = &last["summary"];
    assert_eq!(summary["frames"], 10);
    assert_eq!(summary["left_out"]["NotRoce"], 1);
}

#[test]
fn a_damaged_file_is_summed_up_too() {
    let mut file = pcap(&frames_of_all_kinds(), usize::MAX);
    file.pop();
    let (text, read) = decode_all(file, Format::Text);
    assert!(read.unwrap_err().contains("frame 10"));
    assert!(text.contains("FILE: frames 9, messages 4"), "{text}");
}

#[test]
fn what_cannot_have_messages_is_said() {
    let frames = frames_of_all_kinds();
    let mut file = pcap(&frames, usize::MAX);
    file[20] = 253;
    let (text, read) = decode_all(file.clone(), Format::Text);
    let expected =
        "frames 10, messages 0, cm 0, cut 0, refused 0, wrong 0; left out: link type 253 10";
    assert_eq!(text, format!("FILE: {expected}\n"));
    assert!(read.unwrap_err().starts_with("its link type is 253;"));
    let (json, _) = decode_all(file, Format::Json);
    assert!(json.contains(r#""left_out":{"Link":10}"#), "{json}");
    let file = pcap(&[vec![0; 60], vec![1; 60]], usize::MAX);
    let none = "it has no RoCEv2 packets (UDP port 4791)";
    assert_eq!(decode(file, Format::Text), Err(none.to_owned()));
    let none = "it has no frames";
    assert_eq!(decode(pcap(&[], 0), Format::Text), Err(none.to_owned()));
}

#[test]
fn a_compressed_file_is_named() {
    let file = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0].to_vec();
    let error = decode(file, Format::Text).unwrap_err();
    assert!(error.contains("gzip -dc"), "{error}");
}

#[test]
fn a_damaged_block_is_one_sentence() {
    let frames = [frame(&packet(4, 17, 0, &[], &CALL)), frame(&[7; 50_000])];
    let file = pcapng(&frames);
    let length_at = 28 + 20 + (32 + frames[0].len()).next_multiple_of(4) + 4;
    for length in [8u32, 1 << 30] {
        let mut file = file.clone();
        file[length_at..][..4].copy_from_slice(&length.to_be_bytes());
        let at = length_at - 4;
        let expected = format!("the block after frame 1 is damaged, at byte {at} of the file");
        assert_eq!(decode(file, Format::Text), Err(expected));
    }
}

#[test]
fn no_change_of_a_file_is_fatal() {
    let (first, last) = CALL.split_at(16);
    let frames = [
        frame(&packet(4, 17, 0, &[], &CALL)),
        frame(&packet(0, 17, 1, &[], first)),
        frame(&packet(0x16, 17, 2, &[0; 4], last)),
        frame(&packet(0x64, 1, 0, &[0; 8], &[7; 64])),
    ];
    for file in [pcap(&frames, usize::MAX), pcapng(&frames)] {
        let mut changed = file.clone();
        for (at, &byte) in file.iter().enumerate() {
            for value in [0, 1, 0x7f, 0xff, byte ^ 1, byte ^ 0x80] {
                changed[at] = value;
                let _ = decode(changed.clone(), Format::Json);
                let _ = decode(changed[..at].to_vec(), Format::Text);
            }
            changed[at] = byte;
        }
    }
}
