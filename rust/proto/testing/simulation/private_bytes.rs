// SPDX-License-Identifier: GPL-2.0

//! The private data of a CM message: the private message among what lower layers add.

use super::random::Random;
use crate::proto::wire::private_data::{PrivateData, PRIVATE_DATA_LEN};

/// The most octets in front of the message.
const PREFIX: usize = 20;

/// Octets of the field.
const FIELD: usize = 56;

/// Private data as it arrives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PrivateBytes {
    octets: [u8; FIELD],
}

impl PrivateBytes {
    /// Nothing, which providers pad with zeroes.
    pub(crate) const EMPTY: Self = Self { octets: [0; FIELD] };

    /// A message behind 0 to 20 octets of somebody else.
    pub(crate) fn new(random: &mut Random<'_>, message: Option<PrivateData>) -> Self {
        let mut octets = [0; FIELD];
        let prefix = random.pick(0, &[0, 1, 7, PREFIX]);
        let (front, rest) = octets.split_at_mut(prefix.min(FIELD - PRIVATE_DATA_LEN));
        for octet in front {
            // Never the first octet of the identifier.
            [*octet, ..] = (random.next() & 0x7f).to_le_bytes();
        }
        if let Some(message) = message {
            for (octet, byte) in rest.iter_mut().zip(message.encode()) {
                *octet = byte;
            }
        }
        Self { octets }
    }

    /// The message in it.
    pub(crate) fn find(&self) -> Option<PrivateData> {
        PrivateData::find(&self.octets).map(|(_, message)| message)
    }
}
