// SPDX-License-Identifier: GPL-2.0

//! What a faulty responder makes of a good Reply.

use super::rpc::Fault;

/// The word of the Read list's flag.
const READ_FLAG: usize = 4;

/// The word of the Write list's flag.
const WRITE_FLAG: usize = 5;

/// Bytes of a segment.
const SEGMENT: usize = 16;

/// One word of a message, 0 if it is not there.
fn word(message: &[u8], number: usize) -> u32 {
    let bytes = message.get(number.saturating_mul(4)..).unwrap_or_default();
    let word = bytes.first_chunk();
    word.map_or(0, |word| u32::from_be_bytes(*word))
}

/// Changes one word of a message.
pub(crate) fn set_word(message: &mut [u8], number: usize, value: u32) {
    let bytes = message.get_mut(number.saturating_mul(4)..);
    if let Some(word) = bytes.unwrap_or_default().first_chunk_mut() {
        *word = value.to_be_bytes();
    }
}

/// The word with the number of segments of the first returned chunk, if the Reply has one.
fn first_chunk(message: &[u8]) -> Option<usize> {
    if word(message, WRITE_FLAG) == 1 {
        Some(WRITE_FLAG + 1)
    } else if word(message, WRITE_FLAG + 1) == 1 {
        Some(WRITE_FLAG + 2)
    } else {
        None
    }
}

/// Puts `fault` into the Reply of `length` bytes, whose header has `header` bytes and whose Call
/// offered `offered` bytes in its first segment; the new length.
///
/// A fault that needs what the Reply does not have becomes [`Fault::Truncated`].
pub(crate) fn spoil(
    fault: Fault,
    message: &mut [u8],
    (header, length): (usize, usize),
    offered: u32,
) -> usize {
    let chunk = first_chunk(message);
    let has_reply_chunk = word(message, header / 4 - 1) != 0 || word(message, WRITE_FLAG + 1) == 1;
    match (fault, chunk) {
        (Fault::Length, Some(count)) => {
            set_word(message, count + 2, offered.saturating_add(1));
            length
        }
        (Fault::FewerSegments, Some(count)) => {
            let segments = word(message, count);
            set_word(message, count, segments.saturating_sub(1));
            let start = (count + 1) * 4;
            message.copy_within(start + SEGMENT..length, start);
            length - SEGMENT
        }
        (Fault::MoreSegments, Some(count)) => {
            let segments = word(message, count).saturating_add(1);
            insert(
                message,
                (count + 1) * 4,
                length,
                &[64, 0, 0, 0],
                (count, segments),
            )
        }
        (Fault::ReadList, _) => {
            let entry = [64, 1, 64, 0, 0, 0];
            insert(message, (READ_FLAG + 1) * 4, length, &entry, (READ_FLAG, 1))
        }
        (Fault::Chunk, _) if !has_reply_chunk && header < length => {
            let chunk = [1, 1, 64, 0, 0];
            insert(message, header, length, &chunk, (header / 4 - 1, 1))
        }
        (Fault::EmptyChunk, _) if !has_reply_chunk && header < length => {
            insert(message, header, length, &[0], (header / 4 - 1, 1))
        }
        (Fault::XidMismatch, _) if header < length => {
            let xid = word(message, header / 4);
            set_word(message, header / 4, xid ^ 0x0100);
            length
        }
        _ => header - 4,
    }
}

/// Inserts `words` at byte `at`, and changes the word that says they are there; the new length.
fn insert(
    message: &mut [u8],
    at: usize,
    length: usize,
    words: &[u32],
    (number, value): (usize, u32),
) -> usize {
    let room = words.len() * 4;
    let kept = length.min(message.len() - room);
    message.copy_within(at..kept, at + room);
    for (place, &word) in words.iter().enumerate() {
        set_word(message, at / 4 + place, word);
    }
    set_word(message, number, value);
    kept + room
}
