// SPDX-License-Identifier: GPL-2.0

//! Captures that are made here, from the file down to the lines that are printed.

mod files;

use etherparse::PacketBuilder;

use crate::filter::{parse_xid, Filter};
use crate::report::Format;
use crate::{decode_capture, parse_hex, Options, VERSION};

const CLIENT: [u8; 4] = [192, 0, 2, 2];
const SERVER: [u8; 4] = [192, 0, 2, 1];

/// The transport header of an RDMA_MSG Call without chunks, and the first words of its RPC header.
const CALL: [u8; 36] = [
    0xa1, 0xb2, 0xc3, 0xd4, 0, 0, 0, 1, 0, 0, 0, 32, 0, 0, 0, 0, // fixed words
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, // three empty lists
    0xa1, 0xb2, 0xc3, 0xd4, 0, 0, 0, 0, // XID, CALL
];

const CALL_TEXT: &str = "xid 0xa1b2c3d4 v1 credits 32 RDMA_MSG call, 28 + 8 bytes";

/// A UDP datagram to the port of RoCEv2, in a frame.
fn frame(payload: &[u8]) -> Vec<u8> {
    between(CLIENT, SERVER, payload)
}

fn between(from: [u8; 4], to: [u8; 4], payload: &[u8]) -> Vec<u8> {
    let builder = PacketBuilder::ethernet2([2; 6], [4; 6])
        .ipv4(from, to, 64)
        .udp(50000, 4791);
    let mut frame = Vec::new();
    builder.write(&mut frame, payload).unwrap();
    frame
}

/// A packet with a base transport header; `extension` is the header behind it.
fn packet(opcode: u8, qp: u8, psn: u8, extension: &[u8], payload: &[u8]) -> Vec<u8> {
    let pad = payload.len().wrapping_neg() & 3;
    let flags = u8::try_from(pad).unwrap() << 4;
    let mut packet = vec![opcode, flags, 0xff, 0xff, 0, 0, 0, qp, 0, 0, 0, psn];
    packet.extend(extension);
    packet.extend(payload);
    packet.resize(packet.len() + pad, 0);
    packet.extend([0x1c; 4]);
    packet
}

/// A file in the old format, of which a frame has `snaplen` bytes at most.
fn pcap(frames: &[Vec<u8>], snaplen: usize) -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4u32, 0x0004_0002, 0, 0, 0x40000, 1] {
        file.extend(word.to_le_bytes());
    }
    for (index, frame) in (0u32..).zip(frames) {
        let bytes = frame.get(..snaplen).unwrap_or(frame);
        let length = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap();
        for word in [1000 + index, 250_000, length(bytes), length(frame)] {
            file.extend(word.to_le_bytes());
        }
        file.extend(bytes);
    }
    file
}

/// The same in the new format.
fn pcapng(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut file = Vec::new();
    let mut block = |kind: u32, body: &[u8]| {
        let length = u32::try_from(body.len() + 12).unwrap().to_be_bytes();
        file.extend(kind.to_be_bytes());
        file.extend(length);
        file.extend(body);
        file.extend(length);
    };
    let section = [0x1a2b_3c4du32, 0x0001_0000, u32::MAX, u32::MAX];
    block(0x0a0d_0d0a, &section.map(u32::to_be_bytes).concat());
    block(1, &[0x0001_0000u32, 0].map(u32::to_be_bytes).concat());
    for (index, frame) in (0u32..).zip(frames) {
        let length = u32::try_from(frame.len()).unwrap();
        let time = (1000 + index) * 1_000_000 + 250_000;
        let mut body = [0, 0, time, length, length].map(u32::to_be_bytes).concat();
        body.extend(frame);
        body.resize(body.len().next_multiple_of(4), 0);
        block(6, &body);
    }
    file
}

/// What is printed of a file, and what is wrong with the file.
fn decode_all(file: Vec<u8>, format: Format) -> (String, Result<(), String>) {
    let filter = Filter::default();
    decode_with(file, Options { format, filter })
}

fn decode_with(file: Vec<u8>, options: Options) -> (String, Result<(), String>) {
    let mut out = Vec::new();
    let file = Box::new(std::io::Cursor::new(file));
    let read = decode_capture(file, "FILE", options, &mut out).unwrap();
    (String::from_utf8(out).unwrap(), read)
}

/// What is printed of a good file, without the last line.
fn decode(file: Vec<u8>, format: Format) -> Result<String, String> {
    let (text, read) = decode_all(file, format);
    read.map(|()| {
        let end = text.trim_end().rfind('\n').map_or(0, |end| end + 1);
        text[..end].to_owned()
    })
}

/// What is printed of some packets, without the place of each.
fn lines(packets: &[Vec<u8>]) -> Vec<String> {
    let frames: Vec<_> = packets.iter().map(|packet| frame(packet)).collect();
    let text = decode(pcap(&frames, usize::MAX), Format::Text).unwrap();
    let lines = text.lines().map(|line| line.split_once(": ").unwrap().1);
    lines.map(str::to_owned).collect()
}

#[test]
fn a_send_is_one_line() {
    let frames = [frame(&packet(4, 17, 0, &[], &CALL)), frame(b"no RoCE")];
    let time = "1970-01-01T00:16:40.250000Z";
    let expected = format!("1 {time} 192.0.2.2 > 192.0.2.1 qp 0x11: {CALL_TEXT}\n");
    for file in [pcap(&frames, usize::MAX), pcapng(&frames)] {
        assert_eq!(decode(file, Format::Text), Ok(expected.clone()));
    }
    let json = decode(pcap(&frames, usize::MAX), Format::Json).unwrap();
    let object: serde_json::Value = serde_json::from_str(&json).unwrap();
    for (key, value) in [
        ("frame", 1.into()),
        ("time", 1000.25.into()),
        ("xid", "0xa1b2c3d4".into()),
        ("credits", 32.into()),
        ("payload", 8.into()),
        ("complete", true.into()),
        ("reads", serde_json::json!([])),
        ("reply", serde_json::Value::Null),
    ] {
        assert_eq!(object[key], value, "{key}");
    }
}

#[test]
fn messages_can_be_chosen() {
    let mut other = CALL;
    (other[3], other[31]) = (9, 9);
    let frames = [
        between(CLIENT, SERVER, &packet(4, 17, 0, &[], &CALL)),
        between(SERVER, CLIENT, &packet(4, 18, 0, &[], &other)),
        between([192, 0, 2, 9], SERVER, &packet(4, 19, 0, &[], &CALL)),
        frame(&packet(0x64, 1, 0, &[0; 8], &{
            let mut datagram = [0; 256];
            (datagram[1], datagram[17]) = (7, 0x14);
            datagram
        })),
    ];
    let chosen = |xid, peer: Option<[u8; 4]>| {
        let filter = Filter {
            xid,
            peer: peer.map(Into::into),
        };
        let format = Format::Text;
        let file = pcap(&frames, usize::MAX);
        let (text, read) = decode_with(file, Options { format, filter });
        assert_eq!(read, Ok(()));
        assert!(text.contains("FILE: frames 4, messages 3, cm 1"), "{text}");
        let lines = text.lines().filter_map(|line| line.split_once(' '));
        let numbers = lines.filter_map(|(number, _)| number.parse().ok());
        numbers.collect::<Vec<u64>>()
    };
    assert_eq!(chosen(None, None), [1, 2, 3, 4]);
    assert_eq!(chosen(Some(0xa1b2_c3d4), None), [1, 3]);
    assert_eq!(chosen(None, Some(CLIENT)), [1, 2, 4]);
    assert_eq!(chosen(Some(0xa1b2_c309), Some(SERVER)), [2]);
    assert!(chosen(Some(1), None).is_empty());
    for text in ["0xa1b2c3d4", "a1b2c3d4", "A1B2C3D4"] {
        assert_eq!(parse_xid(text), Ok(0xa1b2_c3d4));
    }
    assert!(parse_xid("0x1a1b2c3d4").is_err() && parse_xid("x").is_err());
}

#[test]
fn bytes_are_given_in_many_forms() {
    let bytes = vec![0x11, 0x22, 0x33, 0xab];
    for text in [
        "112233AB",
        "11:22:33:ab",
        " 1122 33ab\t",
        "0x112233ab",
        "0x1122 0x33ab",
        "0X11, 0x22, 0x33, 0xab",
    ] {
        assert_eq!(parse_hex(text), Ok(bytes.clone()), "{text}");
    }
    for text in [
        "1", "0x1 0x2", "1 122", "+1", "0x0x", "x1", "1x", "\u{663}1",
    ] {
        assert!(parse_hex(text).is_err(), "{text}");
    }
    let error = parse_hex(&"1".repeat(4097)).unwrap_err();
    assert!(error.len() < 80, "{error}");
}

#[test]
fn the_version_is_that_of_the_module() {
    let module = include_str!("../../../rust/helpers/modinfo.c");
    assert!(module.contains(&format!("MODULE_VERSION(\"{VERSION}\");")));
}

#[test]
fn each_opcode_has_its_headers() {
    let of = |opcode, extension: &[u8]| lines(&[packet(opcode, 17, 0, extension, &CALL)]);
    assert_eq!(of(5, &[9; 4]), [CALL_TEXT]);
    let invalidates = ", invalidates 0x09090909, wrong: its Call has not offered 0x09090909";
    assert_eq!(of(0x17, &[9; 4]), [format!("{CALL_TEXT}{invalidates}")]);
    // An RDMA Write and an acknowledgement, a Send of an unreliable connection.
    for opcode in [0x0a, 0x11, 0x24] {
        assert!(of(opcode, &[]).is_empty());
    }
}

#[test]
fn both_versions_and_all_procedures_have_a_line() {
    let of = |words: &[u32]| {
        let message: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        let lines = lines(&[packet(4, 17, 0, &[], &message)]);
        lines.concat()
    };
    let nomsg = of(&[7, 1, 2, 1, 1, 0, 9, 40, 0, 64, 0, 0, 1, 1, 10, 80, 1, 0]);
    let read = "read at 0 0x00000009:0x40+40";
    let reply = "reply chunk 0x0000000a:0x100000000+80";
    let expected = "xid 0x00000007 v1 credits 2 RDMA_NOMSG call";
    assert_eq!(nomsg, format!("{expected}, {read}, {reply}, 72 bytes"));
    for (words, expected) in [
        (
            &[7, 2, 4, 4, 1, 1, 2][..],
            "v2 (version-two-00) credits 4 RDMA_ERROR ERR_VERS 1 to 2",
        ),
        (&[7, 1, 4, 4, 2], "v1 credits 4 RDMA_ERROR ERR_CHUNK"),
        (
            &[7, 2, 4, 4, 3],
            "v2 (version-two-00) credits 4 RDMA_ERROR ERR_INVAL_OPTION",
        ),
        (
            &[7, 2, 4, 5, 6, 3, 0x0102_0300, 7, 0],
            "v2 (version-two-00) credits 4 RDMA_OPTIONAL type 6, 28 + 8 bytes",
        ),
    ] {
        assert_eq!(of(words), format!("xid 0x00000007 {expected}"));
    }
    assert_eq!(of(&[7, 3, 4, 0]), "16 bytes, refused: Version at byte 4");
}

#[test]
fn pad_bytes_are_not_of_the_message() {
    let mut longer = CALL.to_vec();
    longer.extend([7; 5]);
    let text = CALL_TEXT.replace("+ 8", "+ 13");
    assert_eq!(lines(&[packet(4, 17, 0, &[], &longer)]), [text]);
}

#[test]
fn packets_of_one_message_are_put_together() {
    let (first, rest) = CALL.split_at(12);
    let (middle, last) = rest.split_at(12);
    let part = |opcode, psn, bytes| packet(opcode, 17, psn, &[], bytes);
    let all = [part(0, 5, first), part(1, 6, middle), part(2, 7, last)];
    assert_eq!(lines(&all), [CALL_TEXT]);
    // Twice the same, and one of another queue pair between them.
    let other = packet(4, 18, 5, &[], &CALL);
    let [a, b, c] = all.clone();
    let again = [a.clone(), b.clone(), other, b.clone(), c.clone()];
    assert_eq!(lines(&again), [CALL_TEXT, CALL_TEXT]);
    // From the middle on.
    let (one, two) = middle.split_at(4);
    let (one, two, end) = (part(1, 6, one), part(1, 7, two), part(2, 8, last));
    let again = [a.clone(), one.clone(), two.clone(), one, two, end];
    assert_eq!(lines(&again), [CALL_TEXT]);
    let lost = lines(&[a, c]);
    assert_eq!(
        lost,
        ["12 bytes, refused: Short at byte 12, not captured whole"]
    );
}

#[test]
fn a_message_may_be_cut_by_the_capture() {
    let mut long = CALL.to_vec();
    long.extend([0; 64]);
    let frames = [frame(&packet(4, 17, 0, &[], &long))];
    let start = 14 + 20 + 8 + 12;
    let text = decode(pcap(&frames, start + 40), Format::Text).unwrap();
    let expected = CALL_TEXT.replace("+ 8", "+ 12") + ", not captured whole\n";
    assert!(text.ends_with(&expected), "{text}");
}

#[test]
fn private_data_is_found_in_both_messages() {
    let datagram = |attribute: u8, offset: usize| {
        let mut datagram = vec![0; 256];
        datagram[1] = 7;
        datagram[17] = attribute;
        datagram[24 + offset..][..8].copy_from_slice(&[0xf6, 0xab, 0x0e, 0x18, 1, 1, 3, 0]);
        packet(0x64, 1, 0, &[0; 8], &datagram)
    };
    let ours = ", sends 4096 bytes, receives 1024, remote invalidation";
    // A request has 36 bytes of IP addressing before it.
    let seen = lines(&[datagram(0x10, 176), datagram(0x13, 36), datagram(0x14, 36)]);
    assert_eq!(
        seen,
        [
            format!("CM REQ{ours}"),
            format!("CM REP{ours}"),
            "CM RTU".into()
        ]
    );
}

#[test]
fn what_a_connection_did_wrong_is_said() {
    let datagram = |attribute: u8, ids: [u8; 2], qp_at: usize, qp: u8| {
        let mut datagram = vec![0; 256];
        datagram[1] = 7;
        datagram[17] = attribute;
        [datagram[24 + 3], datagram[24 + 7]] = ids;
        datagram[24 + qp_at + 2] = qp;
        packet(0x64, 1, 0, &[0; 8], &datagram)
    };
    let with_xid = |xid: u8| {
        let mut call = CALL;
        (call[3], call[31]) = (xid, xid);
        call
    };
    let mut reply = with_xid(1);
    reply[35] = 1;
    let frames = [
        between(CLIENT, SERVER, &datagram(0x10, [71, 0], 32, 17)),
        between(SERVER, CLIENT, &datagram(0x13, [81, 71], 12, 18)),
        between(CLIENT, SERVER, &packet(4, 18, 5, &[], &with_xid(1))),
        between(CLIENT, SERVER, &packet(4, 18, 6, &[], &with_xid(2))),
        between(SERVER, CLIENT, &packet(0x17, 17, 9, &[0, 0, 1, 2], &reply)),
    ];
    let file = || pcap(&frames, usize::MAX);
    let text = decode(file(), Format::Text).unwrap();
    let wrong: Vec<_> = text
        .lines()
        .map(|line| line.split_once(", wrong: "))
        .collect();
    let wrong: Vec<_> = wrong
        .iter()
        .map(|parts| parts.map_or("", |(_, wrong)| wrong))
        .collect();
    let overrun = "Calls without an answer: 1, granted: 1";
    let foreign = "its Call has not offered 0x00000102";
    assert_eq!(wrong, ["", "", "", overrun, foreign]);
    assert!(
        text.contains("28 + 8 bytes, invalidates 0x00000102, wrong:"),
        "{text}"
    );
    let json = decode(file(), Format::Json).unwrap();
    let lines: Vec<serde_json::Value> = json
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines[2]["wrong"], serde_json::Value::Null);
    assert_eq!(lines[3]["wrong"][0]["name"], "Overrun");
    assert_eq!(lines[4]["invalidates"], "0x00000102");
}
