// SPDX-License-Identifier: GPL-2.0

//! How large the messages of an RPC are: often at a border.

use super::payload::{round_up, Layout};
use super::random::Random;
use super::scenario::Scenario;

/// Bytes of the smallest header.
const HEADER: u32 = 28;

/// A number of bytes around the most that is sent inline, a multiple of four.
fn around(random: &mut Random<'_>, threshold: u32) -> u32 {
    let room = threshold.saturating_sub(HEADER + 16) & !3;
    room + random.below(8) * 4
}

/// Bytes of a data item that hardly any threshold has room for.
fn bulk(random: &mut Random<'_>) -> u32 {
    match random.below(4) {
        0 => random.between(1, 64),
        1 => random.between(900, 1100),
        _ => random.between(1, 4000),
    }
}

/// The threshold of either version.
fn threshold(random: &mut Random<'_>, scenario: &Scenario, one: u32) -> u32 {
    match random.below(3) {
        0 if scenario.speaks_two() => 4096,
        _ => one,
    }
}

/// Items that may be placed directly, or not.
fn eligible(random: &mut Random<'_>) -> [bool; 2] {
    match random.below(8) {
        0 => [false, false],
        1 => [true, false],
        2 => [false, true],
        _ => [true, true],
    }
}

/// A Call.
pub(crate) fn call(random: &mut Random<'_>, scenario: &Scenario) -> Layout {
    let threshold = threshold(random, scenario, scenario.responder_threshold());
    let head = random.between(10, 40) * 4;
    match random.below(6) {
        0 => return Layout::plain(head),
        1 => return Layout::plain(around(random, threshold)),
        _ => {}
    }
    let head = match random.below(8) {
        0 => around(random, threshold).min(2000),
        // No item starts at a word then, and none can be a Read chunk.
        1 => head + 2,
        _ => head,
    };
    let first = bulk(random);
    let rest = random.below(8) * 4;
    let mut len = [head, first, round_up(first) + rest, 0, 0];
    if scenario.general && random.one_in(2) {
        let second = bulk(random);
        let [_, _, _, item, tail] = &mut len;
        (*item, *tail) = (second, round_up(second) + random.below(3) * 4);
    }
    Layout {
        len,
        eligible: eligible(random),
    }
}

/// The largest Reply that the caller expects.
pub(crate) fn largest_reply(random: &mut Random<'_>, scenario: &Scenario) -> Layout {
    let threshold = threshold(random, scenario, scenario.requester_threshold());
    let head = random.between(6, 40) * 4;
    match random.below(6) {
        0 => return Layout::plain(head),
        1 => return Layout::plain(around(random, threshold)),
        _ => {}
    }
    let head = match random.below(6) {
        0 => around(random, threshold).min(2000),
        _ => head,
    };
    let rest = random.between(1, 8) * 4;
    let mut len = [head, bulk(random), rest, 0, 0];
    if scenario.general && random.one_in(2) {
        let [_, _, _, item, tail] = &mut len;
        (*item, *tail) = (bulk(random), random.between(1, 4) * 4);
    }
    Layout {
        len,
        eligible: eligible(random),
    }
}

/// A Reply that is not larger than `largest`.
pub(crate) fn reply(random: &mut Random<'_>, largest: &Layout) -> Layout {
    let &Layout {
        len: [head, first, middle, second, tail],
        eligible,
    } = largest;
    let item = |random: &mut Random<'_>, most: u32| match random.below(6) {
        0 => 0,
        1 | 2 => random.between(0, most),
        _ => most,
    };
    // Room for the round-up of any item is there.
    let rest = |item: u32, most: u32| match most.checked_sub(4) {
        Some(words) => words + round_up(item),
        None => 0,
    };
    let (first, second) = (item(random, first), item(random, second));
    if first == 0 && second == 0 {
        // What an error looks like.
        let head = random.between(24, head.max(24)) & !3;
        return Layout::plain(head.min(largest.total()));
    }
    Layout {
        len: [head, first, rest(first, middle), second, rest(second, tail)],
        eligible,
    }
}

/// A Reply for which there is no room, whatever was offered and whatever the threshold is.
pub(crate) fn larger_reply(random: &mut Random<'_>, largest: &Layout) -> Layout {
    let excess = largest.total() + random.between(4096, 8192);
    let mut larger = *largest;
    let [head, first, middle, second, tail] = &mut larger.len;
    if *first == 0 {
        *head = excess & !3;
    } else {
        *first = excess & !3;
    }
    (*middle, *second, *tail) = (0, 0, 0);
    larger
}

/// A message that is longer than any threshold, so that some of it goes by RDMA.
pub(crate) fn long(random: &mut Random<'_>) -> Layout {
    Layout {
        len: [64, random.between(1024, 1500) * 4, 0, 0, 0],
        eligible: eligible(random),
    }
}

/// A message that needs more than `segments` regions, and their length.
pub(crate) fn unplanned(segments: u32) -> (Layout, u32) {
    let layout = Layout {
        len: [64, 6000, 0, 0, 0],
        eligible: [false; 2],
    };
    (layout, 6000 / (segments + 2))
}

/// A message that is inline always, its header included.
pub(crate) fn inline(random: &mut Random<'_>, threshold: u32) -> Layout {
    let most = threshold.saturating_sub(HEADER) & !3;
    Layout::plain(match random.below(4) {
        0 => most,
        1 => most - 4,
        _ => random.between(40, 400) & !3,
    })
}

/// A length of the regions with which no list has more than `most` of them.
pub(crate) fn region(random: &mut Random<'_>, layout: &Layout, most: u32) -> u32 {
    let total = layout.total().max(1);
    // The last region of each part may not be full. The kernel's objtool does not know the panic of
    // a division by zero, so there is none.
    let least = total.div_ceil((most - 5).max(1));
    match random.below(3) {
        0 => least,
        1 => total,
        _ => least.max(random.between(64, 3000)),
    }
}
