// SPDX-License-Identifier: GPL-2.0

//! The CM private message: inline thresholds and remote invalidation (RFC 8797).

/// Octets of the message (RFC 8797 section 4).
pub(crate) const PRIVATE_DATA_LEN: usize = 8;

/// The first word of the message (RFC 8797 section 4).
const IDENTIFIER: u32 = 0xf6ab_0e18;

/// The only format version (RFC 8797 section 4).
const FORMAT: u8 = 1;

/// The R flag, lowest bit of the flags octet. The other bits are sent as 0 and ignored.
const REMOTE_INVALIDATION: u8 = 1;

/// The unit of the size codes, in bytes.
const UNIT: u32 = 1024;

/// The inline threshold of a peer that says nothing, in bytes (RFC 8166 section 3.3.3).
pub(crate) const DEFAULT_THRESHOLD: u32 = 1024;

/// The size of the largest message in one Send: 1024 to 262144 bytes in steps of 1024.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct InlineSize {
    code: u8,
}

impl InlineSize {
    /// The size for a peer that sent no private message: 1024 bytes (RFC 8166 section 3.3.3).
    pub(crate) const DEFAULT: Self = Self { code: 0 };

    /// The largest expressible size that is not above `bytes`; `None` below 1024 bytes, which no
    /// endpoint may support.
    pub(crate) fn from_bytes(bytes: u32) -> Option<Self> {
        let steps = bytes.checked_div(UNIT)?.checked_sub(1)?;
        Some(Self {
            code: u8::try_from(steps).unwrap_or(u8::MAX),
        })
    }

    /// The size in bytes.
    pub(crate) fn bytes(self) -> u32 {
        u32::from(self.code).saturating_add(1).saturating_mul(UNIT)
    }
}

/// What one endpoint announces when a connection is established.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PrivateData {
    /// The largest message that it sends.
    pub(crate) send: InlineSize,
    /// The largest message that it can receive.
    pub(crate) receive: InlineSize,
    /// The R flag: all handles of this endpoint may be invalidated by Send With Invalidate, or it
    /// can send that itself.
    pub(crate) remote_invalidation: bool,
}

impl PrivateData {
    /// What applies to a peer that announces nothing (RFC 8797 section 5.1).
    pub(crate) const DEFAULT: Self = Self {
        send: InlineSize::DEFAULT,
        receive: InlineSize::DEFAULT,
        remote_invalidation: false,
    };

    /// The eight octets to send, first in the private data of the CM message.
    pub(crate) const fn encode(&self) -> [u8; PRIVATE_DATA_LEN] {
        let [a, b, c, d] = IDENTIFIER.to_be_bytes();
        let flags = if self.remote_invalidation {
            REMOTE_INVALIDATION
        } else {
            0
        };
        [a, b, c, d, FORMAT, flags, self.send.code, self.receive.code]
    }

    /// Finds the peer's message in `received`, the private data of a CM message.
    ///
    /// Lower layers may put their own data in front and providers pad behind, so the message is
    /// searched for at every offset. The first place with the identifier, the known format version
    /// and all eight octets wins (RFC 8797 section 5.2); its offset is returned too.
    pub(crate) fn find(received: &[u8]) -> Option<(usize, Self)> {
        let mut rest = received;
        let mut offset = 0usize;
        loop {
            let &[a, b, c, d, format, flags, send, receive] = rest.first_chunk()?;
            if u32::from_be_bytes([a, b, c, d]) == IDENTIFIER && format == FORMAT {
                let message = Self {
                    send: InlineSize { code: send },
                    receive: InlineSize { code: receive },
                    remote_invalidation: flags & REMOTE_INVALIDATION != 0,
                };
                return Some((offset, message));
            }
            (_, rest) = rest.split_first()?;
            offset = offset.saturating_add(1);
        }
    }
}

/// What applies for the life of one connection, as seen from one of its ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Thresholds {
    /// The largest message to send, in bytes.
    pub(crate) send: u32,
    /// The largest message to expect, in bytes.
    ///
    /// This is the limit for planning. A peer that did not see our message may still send more, up
    /// to the size we announced, so Receives keep their own size.
    pub(crate) receive: u32,
    /// Whether Send With Invalidate may be used: both ends set R.
    pub(crate) remote_invalidation: bool,
}

impl Thresholds {
    /// What holds if neither end says anything.
    pub(crate) const DEFAULT: Self = Self {
        send: DEFAULT_THRESHOLD,
        receive: DEFAULT_THRESHOLD,
        remote_invalidation: false,
    };
}

/// Combines our own message with the peer's; `None` means that it sent none that is valid.
pub(crate) fn negotiate(own: PrivateData, peer: Option<PrivateData>) -> Thresholds {
    let peer = peer.unwrap_or(PrivateData::DEFAULT);
    Thresholds {
        send: own.send.min(peer.receive).bytes(),
        receive: own.receive.min(peer.send).bytes(),
        remote_invalidation: own.remote_invalidation && peer.remote_invalidation,
    }
}

#[cfg(any(test, rpcrdma_kunit))]
#[cfg_attr(rpcrdma_kunit, kernel::macros::kunit_tests(rpcrdma_proto_private_data))]
mod tests {
    use super::*;

    /// The message of an endpoint with these sizes in bytes.
    fn message(send: u32, receive: u32, remote_invalidation: bool) -> Option<PrivateData> {
        Some(PrivateData {
            send: InlineSize::from_bytes(send)?,
            receive: InlineSize::from_bytes(receive)?,
            remote_invalidation,
        })
    }

    /// The two thresholds of an endpoint with `own` sizes that saw those of `peer`.
    fn thresholds(own: (u32, u32), peer: Option<(u32, u32)>) -> Option<(u32, u32)> {
        let own = message(own.0, own.1, false)?;
        let result = negotiate(own, peer.and_then(|peer| message(peer.0, peer.1, false)));
        Some((result.send, result.receive))
    }

    /// Proves: PD-024, PD-025, PD-026.
    #[test]
    fn sizes_round_down_and_clamp() {
        let bytes = |bytes| InlineSize::from_bytes(bytes).map(InlineSize::bytes);
        for refused in [0, 1, 1023] {
            assert_eq!(bytes(refused), None);
        }
        for (size, rounded) in [
            (1024, 1024),
            (1500, 1024),
            (2047, 1024),
            (2048, 2048),
            (4095, 3072),
            (4096, 4096),
            (65536, 65536),
            (262_143, 261_120),
            (262_144, 262_144),
            (300_000, 262_144),
            (u32::MAX, 262_144),
        ] {
            assert_eq!(bytes(size), Some(rounded));
        }
    }

    /// Proves: PD-011, PD-012, PD-013, PD-014, PD-015, PD-016, PD-017, PD-037.
    #[test]
    fn message_has_the_exact_octets() {
        for (send, receive, r, octets) in [
            (4096, 4096, true, [0xf6, 0xab, 0x0e, 0x18, 1, 1, 3, 3]),
            (1024, 1024, false, [0xf6, 0xab, 0x0e, 0x18, 1, 0, 0, 0]),
            (
                8192,
                262_144,
                false,
                [0xf6, 0xab, 0x0e, 0x18, 1, 0, 7, 0xff],
            ),
            (
                65536,
                16384,
                true,
                [0xf6, 0xab, 0x0e, 0x18, 1, 1, 0x3f, 0x0f],
            ),
        ] {
            let expected = message(send, receive, r);
            assert_eq!(expected.map(|message| message.encode()), Some(octets));
            assert_eq!(PrivateData::find(&octets).map(|found| found.1), expected);
        }
    }

    /// Proves: PD-018, PD-032, PD-033, PD-034, PD-035, PD-036.
    #[test]
    fn message_is_found_at_any_offset_or_not_at_all() {
        let unknown_first = [
            0, 0xf6, 0xab, 0x0e, 0x18, 2, 1, 3, 3, 0xf6, 0xab, 0x0e, 0x18, 1, 0xfe, 7, 7, 0,
        ];
        let found = message(8192, 8192, false).map(|message| (9, message));
        assert_eq!(PrivateData::find(&unknown_first), found);
        assert_eq!(PrivateData::find(&[]), None);
        assert_eq!(PrivateData::find(&[0xf6, 0xab, 0x0e, 0x18, 1, 1, 3]), None);
        assert_eq!(PrivateData::find(&[0; 196]), None);
    }

    /// Proves: V1-024, V1-027, V1-032, PD-002, PD-027, PD-028, PD-031.
    #[test]
    fn each_direction_takes_the_smaller_size() {
        let client = (4096, 4096);
        let server = (1024, 8192);
        assert_eq!(thresholds(client, Some(server)), Some((4096, 1024)));
        assert_eq!(thresholds(server, Some(client)), Some((1024, 4096)));
        let client = (262_144, 1024);
        assert_eq!(
            thresholds(client, Some((65536, 65536))),
            Some((65536, 1024))
        );
        assert_eq!(thresholds((4096, 4096), None), Some((1024, 1024)));
    }

    /// Proves: PD-004, PD-021, PD-031.
    #[test]
    fn both_ends_must_allow_remote_invalidation() {
        for own in [false, true] {
            for peer in [false, true] {
                let allowed = message(4096, 4096, own)
                    .map(|own| negotiate(own, message(4096, 4096, peer)).remote_invalidation);
                assert_eq!(allowed, Some(own && peer));
            }
            let alone = message(4096, 4096, own).map(|own| negotiate(own, None));
            assert_eq!(alone.map(|t| t.remote_invalidation), Some(false));
        }
    }
}
