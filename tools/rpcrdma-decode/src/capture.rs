// SPDX-License-Identifier: GPL-2.0

//! The frames of a pcap or pcapng file.

use std::io::{BufRead, BufReader, Read};
use std::time::Duration;

use pcap_parser::traits::PcapNGPacketBlock;
use pcap_parser::{create_reader, Block, Linktype, PcapBlockOwned, PcapError};

/// Bytes of the buffer at first, which grows when a block is larger.
const BUFFER_LEN: usize = 1 << 16;

/// No block is larger than this: a frame has 256 KiB at most.
const MAX_BUFFER_LEN: usize = 1 << 20;

/// What a file begins with that gzip has compressed (RFC 1952 section 2.3.1).
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// A frame as it was captured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame<'a> {
    /// Its number in the file, from 1.
    pub(crate) number: u64,
    /// When, counted from the beginning of 1970, if the file says so.
    pub(crate) time: Option<Duration>,
    /// The kind of its first header.
    pub(crate) link: Linktype,
    /// Its bytes, or those that were captured.
    pub(crate) bytes: &'a [u8],
}

/// What the frames of one interface have in common.
#[derive(Clone, Copy)]
struct Interface {
    link: Linktype,
    /// Seconds to add to its times.
    offset: u64,
    /// Parts of a second that its times count.
    resolution: u64,
}

impl Interface {
    /// A time of this interface, as seconds and parts of a second.
    fn time(&self, seconds: u32, parts: u32) -> Duration {
        let nanoseconds = u64::from(parts).saturating_mul(1_000_000_000) / self.resolution.max(1);
        Duration::from_secs(seconds.into()).saturating_add(Duration::from_nanos(nanoseconds))
    }
}

/// Calls `visit` with each frame of `file`, for as long as it returns true.
///
/// # Errors
///
/// The text to print, if the file is not what it should be.
pub(crate) fn read(
    file: Box<dyn Read + Send>,
    mut visit: impl FnMut(Frame<'_>) -> bool,
) -> Result<(), String> {
    let mut file = BufReader::with_capacity(BUFFER_LEN, file);
    let start = file.fill_buf().map_err(|error| error.to_string())?;
    if start.starts_with(&GZIP) {
        return Err(
            "this is compressed with gzip, type: gzip -dc FILE | rpcrdma-decode".to_owned(),
        );
    }
    let mut reader = create_reader(BUFFER_LEN, file).map_err(|error| match error {
        PcapError::ReadError => error.to_string(),
        _ => "this is no pcap or pcapng file".to_owned(),
    })?;
    let mut buffer_len = BUFFER_LEN;
    let mut interfaces: Vec<Interface> = Vec::new();
    let mut number = 0;
    let mut show = |interface: Interface, time: Option<Duration>, bytes: &[u8]| {
        number += 1;
        visit(Frame {
            number,
            time,
            link: interface.link,
            bytes,
        })
    };
    loop {
        let (length, go_on) = match reader.next() {
            Ok((length, block)) => {
                let go_on = match block {
                    PcapBlockOwned::LegacyHeader(header) => {
                        interfaces.push(Interface {
                            link: header.network,
                            offset: 0,
                            resolution: if header.is_nanosecond_precision() {
                                1_000_000_000
                            } else {
                                1_000_000
                            },
                        });
                        true
                    }
                    PcapBlockOwned::Legacy(block) => interfaces.first().is_none_or(|interface| {
                        let time = interface.time(block.ts_sec, block.ts_usec);
                        let captured = usize::try_from(block.caplen).unwrap_or(usize::MAX);
                        let bytes = block.data.get(..captured).unwrap_or(block.data);
                        show(*interface, Some(time), bytes)
                    }),
                    PcapBlockOwned::NG(block) => next(&block, &mut interfaces, &mut show),
                };
                (length, go_on)
            }
            Err(PcapError::Eof) => return Ok(()),
            Err(PcapError::Incomplete(_)) => {
                reader.refill().map_err(|error| error.to_string())?;
                continue;
            }
            Err(PcapError::BufferTooSmall) if buffer_len < MAX_BUFFER_LEN => {
                buffer_len *= 2;
                reader.grow(buffer_len);
                continue;
            }
            Err(PcapError::UnexpectedEof) => {
                return Err(format!(
                    "the file ends in the middle of frame {}",
                    number + 1
                ));
            }
            Err(PcapError::ReadError) => return Err(format!("read error after frame {number}")),
            // The error's own text has all bytes of the buffer.
            Err(_) => {
                let at = reader.consumed();
                return Err(format!(
                    "the block after frame {number} is damaged, at byte {at} of the file"
                ));
            }
        };
        reader.consume(length);
        if !go_on {
            return Ok(());
        }
    }
}

/// Takes one block of a pcapng file.
fn next(
    block: &Block<'_>,
    interfaces: &mut Vec<Interface>,
    show: &mut impl FnMut(Interface, Option<Duration>, &[u8]) -> bool,
) -> bool {
    match block {
        // Interfaces are counted from 0 in each section.
        Block::SectionHeader(_) => interfaces.clear(),
        Block::InterfaceDescription(block) => interfaces.push(Interface {
            link: block.linktype,
            offset: u64::try_from(block.ts_offset()).unwrap_or(0),
            resolution: block.ts_resolution().unwrap_or(1_000_000),
        }),
        Block::EnhancedPacket(block) => {
            let index = usize::try_from(block.if_id).unwrap_or(usize::MAX);
            return interfaces.get(index).is_none_or(|interface| {
                let (seconds, parts) = block.decode_ts(interface.offset, interface.resolution);
                let time = interface.time(seconds, parts);
                show(*interface, Some(time), block.packet_data())
            });
        }
        Block::SimplePacket(block) => {
            return interfaces
                .first()
                .is_none_or(|interface| show(*interface, None, block.packet_data()));
        }
        _ => {}
    }
    true
}
