// SPDX-License-Identifier: GPL-2.0

//! Whether a Reply is what the responder's upper layer has sent.

use super::memory::Buffer;
use super::offer::Placed;
use super::payload::{index, Payload, ITEMS, PARTS};
use super::world::World;
use super::Failure;

/// Which parts of a message were placed directly.
type Reduced = [bool; PARTS];

/// Compares what came inline behind `header` bytes of the message in `slot`, and what was placed by
/// Write chunks.
///
/// # Errors
///
/// [`Failure::ReplyBytes`].
pub(crate) fn check_inline(
    world: &mut World<'_>,
    number: usize,
    (slot, header): (usize, usize),
    placed: &Placed,
) -> Result<(), Failure> {
    let payload = world.rpc(number)?.reply_payload();
    let reduced = check_items(world, number, &payload, placed)?;
    let rest = world.messages.bytes(slot).get(header..);
    let right = rest.is_some_and(|rest| is_rest(&payload, &reduced, rest));
    right.then_some(()).ok_or(Failure::ReplyBytes(number))
}

/// Compares the first `length` bytes of the Reply chunk, and what was placed by Write chunks.
///
/// # Errors
///
/// [`Failure::ReplyBytes`].
pub(crate) fn check_chunk(
    world: &mut World<'_>,
    number: usize,
    length: u64,
    placed: &Placed,
) -> Result<(), Failure> {
    let wrong = Failure::ReplyBytes(number);
    let payload = world.rpc(number)?.reply_payload();
    let reduced = check_items(world, number, &payload, placed)?;
    let length = u32::try_from(length).map_err(|_| wrong)?;
    let rest = world.memory.buffer(number, Buffer::Reply, length)?;
    let right = is_rest(&payload, &reduced, rest);
    right.then_some(()).ok_or(wrong)
}

/// Compares the items that have a Write chunk: one chunk for each that has data, in their order.
fn check_items(
    world: &mut World<'_>,
    number: usize,
    payload: &Payload,
    placed: &Placed,
) -> Result<Reduced, Failure> {
    let wrong = Failure::ReplyBytes(number);
    let mut reduced = [false; PARTS];
    let parts = payload.layout.parts().into_iter().zip(&mut reduced);
    let mut items = parts.filter(|(part, _)| part.eligible && part.len != 0);
    let chunks: [_; ITEMS] = *placed;
    for (chunk, bytes) in chunks.iter().filter(|(chunk, _)| chunk.capacity != 0) {
        let bytes = u32::try_from(*bytes).map_err(|_| wrong)?;
        let expected = match items.next() {
            Some((part, reduced)) => {
                *reduced = true;
                let end = chunk.start.checked_add(bytes).ok_or(wrong)?;
                let buffer = world.memory.buffer(number, Buffer::Reply, end)?;
                let data = buffer.get(index(chunk.start)..).ok_or(wrong)?;
                if !payload.matches(part.start, data) {
                    return Err(wrong);
                }
                part.len
            }
            None => 0,
        };
        let unused = chunk.capacity.checked_sub(bytes).ok_or(wrong)?;
        let next = chunk.start + bytes;
        if bytes != expected || !world.memory.is_untouched(number, next, unused) {
            return Err(wrong);
        }
    }
    Ok(reduced)
}

/// Whether `rest` is the message without the items that were placed, and their round-up.
fn is_rest(payload: &Payload, reduced: &Reduced, rest: &[u8]) -> bool {
    let mut left = rest;
    let mut was_reduced = false;
    for (part, &is_reduced) in payload.layout.parts().iter().zip(reduced) {
        let skip = if was_reduced { part.pad } else { 0 };
        was_reduced = is_reduced;
        if is_reduced {
            continue;
        }
        let Some((bytes, next)) = left.split_at_checked(index(part.len - skip)) else {
            return false;
        };
        if !payload.matches(part.start + skip, bytes) {
            return false;
        }
        left = next;
    }
    left.is_empty()
}
