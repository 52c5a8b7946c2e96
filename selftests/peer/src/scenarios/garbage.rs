// SPDX-License-Identifier: GPL-2.0

//! Messages of random bytes, of every length up to the inline threshold and beyond.

use super::Scenarios;
use crate::peer::{words, Peer, EIO};
use crate::Result;

pub(super) const SCENARIOS: &Scenarios = &[
    ("garbage", garbage),
    ("garbage-for-calls", garbage_for_calls),
    ("too-long", too_long),
];

/// Bytes that are the same in every run.
pub(super) struct Random(u64);

impl Random {
    pub(super) const fn new() -> Self {
        Self(0x9e37_79b9_7f4a_7c15)
    }

    fn word(&mut self) -> u32 {
        // Marsaglia's xorshift64.
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 32) as u32
    }

    pub(super) fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.word() as u8).collect()
    }
}

/// Lengths of messages: all that are short, and some up to 4096 bytes.
fn lengths() -> impl Iterator<Item = usize> {
    let long = [100, 127, 200, 511, 512, 1023, 1024, 1025, 2000, 4095, 4096];
    (0..=64).chain(long)
}

/// Nobody's messages: they are dropped, or answered, as their third and fourth words may say.
fn garbage(peer: &mut Peer) -> Result {
    peer.accept()?;
    let mut random = Random::new();
    let call = peer.call()?;
    for length in lengths() {
        peer.send(&random.bytes(length))?;
        if length >= 16 {
            // No other version than one is supported, and it is not RDMA_ERROR's procedure.
            peer.error()?;
        }
    }
    peer.answer(&call)
}

/// Each ends a Call: the fixed words are good, and the lists are not.
fn garbage_for_calls(peer: &mut Peer) -> Result {
    peer.accept()?;
    let mut random = Random::new();
    for length in lengths() {
        let call = peer.call()?;
        // RDMA_MSG and RDMA_NOMSG in turn.
        let procedure = u32::from(length % 2 == 0);
        let mut message = words(&[call.xid, 1, 32, procedure]);
        message.extend(random.bytes(length));
        message.truncate(4096);
        peer.send(&message)?;
        peer.ends(EIO);
    }
    Ok(())
}

/// A message that is longer than the Receive: the client's provider ends the connection, and the
/// Call goes out again on the next one.
fn too_long(peer: &mut Peer) -> Result {
    peer.accept()?;
    for length in [4097, 65536] {
        let call = peer.call()?;
        let mut message = peer.reply(&call)?.encode();
        message.resize(length, 0);
        peer.send(&message)?;
        peer.end()?;
        peer.accept()?;
        let again = peer.call_again(&call)?;
        peer.answer(&again)?;
    }
    Ok(())
}
