// SPDX-License-Identifier: GPL-2.0

//! RoCEv2: the Sends of reliable connections, and the messages of the connection manager.
//!
//! Chapters are those of volume 1 of the InfiniBand architecture specification.

use std::collections::HashMap;
use std::fmt::{self, Display, Formatter};
use std::net::IpAddr;
use std::time::Duration;

use etherparse::{EtherType, LaxNetSlice, LaxSlicedPacket, TransportSlice};
use pcap_parser::Linktype;

use crate::capture::Frame;
use crate::proto::wire::private_data::PrivateData;
use crate::proto::wire::xdr::Reader;

/// The UDP port of RoCEv2 (annex A17).
const PORT: u16 = 4791;

/// Bytes of the UDP header.
const UDP_LEN: usize = 8;

/// Bytes of the base transport header (chapter 9.2).
const BTH_LEN: usize = 12;

/// Bytes of the checksum behind every packet (chapter 7.8).
const ICRC_LEN: usize = 4;

/// The queue pair that the connection manager's messages go to (chapter 13).
const GSI_QP: u32 = 1;

/// Where a packet was seen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path {
    /// The number of the frame in the file, of the last one of a message that has several.
    pub(crate) frame: u64,
    /// When, counted from the beginning of 1970, if the file says so.
    pub(crate) time: Option<Duration>,
    /// The sender.
    pub(crate) source: IpAddr,
    /// The receiver.
    pub(crate) destination: IpAddr,
    /// The receiver's queue pair.
    pub(crate) qp: u32,
    /// The sequence number of the packet.
    pub(crate) psn: u32,
}

/// Something to report.
#[derive(Debug)]
pub(crate) struct Item {
    /// Where it was seen, if in a capture.
    pub(crate) path: Option<Path>,
    /// What it is.
    pub(crate) content: Content,
}

/// What there is to report.
#[derive(Debug)]
pub(crate) enum Content {
    /// The bytes of one Send.
    Message {
        /// As many of them as were captured.
        bytes: Vec<u8>,
        /// Whether these are all.
        complete: bool,
        /// The handle of the receiver's that the Send invalidates.
        invalidates: Option<u32>,
    },
    /// A message of the connection manager.
    Cm {
        /// Its name.
        name: &'static str,
        /// The RPC-over-RDMA private data in it.
        private_data: Option<PrivateData>,
        /// The end of a connection that its sender tells of.
        end: Option<End>,
    },
}

/// Why something is not reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LeftOut {
    /// The kind of the frame's first header is unknown.
    Link(i32),
    /// The frame has another protocol.
    NotRoce,
    /// The packet is no Send and not the connection manager's: of RDMA Reads and Writes, or an
    /// acknowledgement.
    NoSend,
    /// The packet is of a message whose first packet was not captured.
    NoBeginning,
    /// The message's last packet was not captured.
    NoEnd,
    /// The packet was seen before.
    Repeated,
    /// The command line asks for others.
    NotWanted,
}

impl Display for LeftOut {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Link(link) => write!(f, "link type {link}"),
            Self::NotRoce => write!(f, "not RoCEv2"),
            Self::NoSend => write!(f, "RDMA Reads/Writes/acknowledgements"),
            Self::NoBeginning => write!(f, "without the first packet"),
            Self::NoEnd => write!(f, "without the last packet"),
            Self::Repeated => write!(f, "repeated packets"),
            Self::NotWanted => write!(f, "not asked for"),
        }
    }
}

/// An end of a connection, as the REQ or the REP has it that its owner sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct End {
    /// What the owner calls the connection.
    pub(crate) id: u32,
    /// What the other end does, in a REP.
    pub(crate) peer_id: Option<u32>,
    /// The owner's queue pair.
    pub(crate) qp: u32,
}

/// What a packet of a Send is to its message.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    First,
    Middle,
    Last,
    Only,
}

/// A message of which not all packets were seen yet.
struct Partial {
    last_psn: u32,
    bytes: Vec<u8>,
    complete: bool,
}

/// The messages of several packets, by sender, receiver and the receiver's queue pair.
#[derive(Default)]
pub(crate) struct Streams {
    partial: HashMap<(IpAddr, IpAddr, u32), Partial>,
}

impl Streams {
    /// Takes a frame, and gives what it completes; `None` if more packets have to follow.
    ///
    /// # Errors
    ///
    /// Why the frame has nothing to report.
    pub(crate) fn take(&mut self, frame: Frame<'_>) -> Result<Option<Item>, LeftOut> {
        let packet = ip(&frame)?;
        let (source, destination) = match packet.net.ok_or(LeftOut::NotRoce)? {
            LaxNetSlice::Ipv4(ip) => (
                ip.header().source_addr().into(),
                ip.header().destination_addr().into(),
            ),
            LaxNetSlice::Ipv6(ip) => (
                ip.header().source_addr().into(),
                ip.header().destination_addr().into(),
            ),
            LaxNetSlice::Arp(_) => return Err(LeftOut::NotRoce),
        };
        let Some(TransportSlice::Udp(udp)) = packet.transport else {
            return Err(LeftOut::NotRoce);
        };
        if udp.destination_port() != PORT {
            return Err(LeftOut::NotRoce);
        }
        let header = Header::take(udp.payload()).ok_or(LeftOut::NoSend)?;
        let payload = udp.payload().get(header.len..).ok_or(LeftOut::NoSend)?;
        let path = Path {
            frame: frame.number,
            time: frame.time,
            source,
            destination,
            qp: header.qp,
            psn: header.psn,
        };
        if header.qp == GSI_QP {
            let content = manager(payload).ok_or(LeftOut::NoSend)?;
            return Ok(Some(Item {
                path: Some(path),
                content,
            }));
        }
        // What was captured, without the checksum and the pad bytes before it.
        let whole = usize::from(udp.length())
            .checked_sub(UDP_LEN + header.len + ICRC_LEN + header.pad)
            .ok_or(LeftOut::NoSend)?;
        let complete = payload.len() >= whole;
        let payload = payload.get(..whole).unwrap_or(payload);
        self.send(path, &header, payload, complete)
    }

    /// How many messages have not ended.
    pub(crate) fn unfinished(&self) -> usize {
        self.partial.len()
    }

    /// Takes one packet of a Send.
    fn send(
        &mut self,
        path: Path,
        header: &Header,
        payload: &[u8],
        complete: bool,
    ) -> Result<Option<Item>, LeftOut> {
        let key = (path.source, path.destination, path.qp);
        let part = header.part.ok_or(LeftOut::NoSend)?;
        let message = match part {
            Part::First | Part::Only => Partial {
                last_psn: header.psn,
                bytes: payload.to_vec(),
                complete,
            },
            Part::Middle | Part::Last => {
                let message = self.partial.remove(&key);
                let mut message = message.ok_or(LeftOut::NoBeginning)?;
                // What is sent once more is not taken once more.
                if !is_later(header.psn, message.last_psn) {
                    self.partial.insert(key, message);
                    return Err(LeftOut::Repeated);
                }
                message.complete &= header.psn == (message.last_psn + 1) & 0xff_ffff;
                if message.complete {
                    message.bytes.extend(payload);
                }
                message.complete &= complete;
                message.last_psn = header.psn;
                message
            }
        };
        if part == Part::First || part == Part::Middle {
            self.partial.insert(key, message);
            return Ok(None);
        }
        Ok(Some(Item {
            path: Some(path),
            content: Content::Message {
                bytes: message.bytes,
                complete: message.complete,
                invalidates: header.invalidates,
            },
        }))
    }
}

/// Whether a packet is later than another of its queue pair: their numbers have 24 bits, of which
/// half are ahead.
pub(crate) fn is_later(psn: u32, than: u32) -> bool {
    (1..1 << 23).contains(&(psn.wrapping_sub(than) & 0xff_ffff))
}

/// The packet in a frame, whatever its link is.
fn ip<'a>(frame: &Frame<'a>) -> Result<LaxSlicedPacket<'a>, LeftOut> {
    // Linux "cooked" captures have the type of the packet somewhere in a header of their own.
    let cooked = |at: usize, len: usize| {
        let (header, rest) = frame.bytes.split_at_checked(len)?;
        let ether_type = u16::from_be_bytes(*header.get(at..)?.first_chunk()?);
        Some(LaxSlicedPacket::from_ether_type(
            EtherType(ether_type),
            rest,
        ))
    };
    let packet = match frame.link {
        Linktype::ETHERNET => LaxSlicedPacket::from_ethernet(frame.bytes).ok(),
        Linktype::RAW | Linktype::IPV4 | Linktype::IPV6 => {
            LaxSlicedPacket::from_ip(frame.bytes).ok()
        }
        Linktype::LINUX_SLL => cooked(14, 16),
        Linktype::LINUX_SLL2 => cooked(0, 20),
        Linktype(link) => return Err(LeftOut::Link(link)),
    };
    packet.ok_or(LeftOut::NotRoce)
}

/// What the transport headers of a packet say.
struct Header {
    /// Bytes of all of them.
    len: usize,
    /// Bytes that were appended to the payload.
    pad: usize,
    qp: u32,
    psn: u32,
    /// What it is to its message, if it is a Send of a reliable connection.
    part: Option<Part>,
    /// The key that the receiver is to invalidate.
    invalidates: Option<u32>,
}

impl Header {
    /// Takes the base transport header, and knows the length of the one behind it.
    fn take(packet: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(packet);
        let first = reader.decode_u32().ok()?;
        let qp = reader.decode_u32().ok()? & 0xff_ffff;
        let psn = reader.decode_u32().ok()? & 0xff_ffff;
        let [opcode, flags, _, _] = first.to_be_bytes();
        // Chapter 9.2.1: the upper three bits name the service, 0 is the reliable connection. An
        // immediate or a key to invalidate has four bytes, the header of a datagram eight.
        let (part, extension) = match opcode {
            0x00 => (Some(Part::First), 0),
            0x01 => (Some(Part::Middle), 0),
            0x02 => (Some(Part::Last), 0),
            0x03 | 0x16 => (Some(Part::Last), 4),
            0x04 => (Some(Part::Only), 0),
            0x05 | 0x17 => (Some(Part::Only), 4),
            0x64 => (None, 8),
            _ => return None,
        };
        let invalidates = match opcode {
            0x16 | 0x17 => Some(reader.decode_u32().ok()?),
            _ => None,
        };
        Some(Self {
            len: BTH_LEN + extension,
            pad: usize::from(flags >> 4 & 3),
            qp,
            psn,
            part,
            invalidates,
        })
    }
}

/// The connection manager's message in a management datagram (chapters 13.4 and 12.6).
fn manager(datagram: &[u8]) -> Option<Content> {
    const CLASS: u8 = 0x07;
    const COMMON_LEN: usize = 24;
    let (common, message) = datagram.split_at_checked(COMMON_LEN)?;
    let (&class, attribute) = (common.get(1)?, common.get(16..)?.first_chunk()?);
    if class != CLASS {
        return None;
    }
    // Where the private data starts, and how long it is, where there may be ours.
    let (name, private) = match u16::from_be_bytes(*attribute) {
        0x0010 => ("REQ", 140..232),
        0x0011 => ("MRA", 0..0),
        0x0012 => ("REJ", 0..0),
        0x0013 => ("REP", 36..232),
        0x0014 => ("RTU", 0..0),
        0x0015 => ("DREQ", 0..0),
        0x0016 => ("DREP", 0..0),
        _ => return None,
    };
    let private_data = message.get(private).and_then(PrivateData::find);
    let word = |at: usize| {
        let bytes = message.get(at..)?.first_chunk()?;
        Some(u32::from_be_bytes(*bytes))
    };
    let end = |qp_at, peer_id| {
        Some(End {
            id: word(0)?,
            peer_id,
            qp: word(qp_at)? >> 8,
        })
    };
    Some(Content::Cm {
        name,
        private_data: private_data.map(|(_, private_data)| private_data),
        end: match name {
            "REQ" => end(32, None),
            "REP" => end(12, word(4)),
            _ => None,
        },
    })
}
