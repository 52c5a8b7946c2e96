// SPDX-License-Identifier: GPL-2.0

//! Which messages are printed.

use std::net::IpAddr;
use std::num::ParseIntError;

use crate::roce::{Content, Item};

/// What the command line asks for, which is all if it does not say.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Filter {
    /// The messages with this XID.
    pub(crate) xid: Option<u32>,
    /// What this address has sent or received.
    pub(crate) peer: Option<IpAddr>,
}

impl Filter {
    /// Whether `item` is to be printed.
    pub(crate) fn wants(&self, item: &Item) -> bool {
        self.xid.is_none_or(|xid| has_xid(item, xid))
            && self.peer.is_none_or(|peer| has_peer(item, peer))
    }
}

/// An XID as all print it, in hexadecimal digits with or without `0x`.
///
/// # Errors
///
/// Those of a number that is none, or has more than 32 bits.
pub(crate) fn parse_xid(text: &str) -> Result<u32, ParseIntError> {
    u32::from_str_radix(text.strip_prefix("0x").unwrap_or(text), 16)
}

/// Whether `item` is a message with this XID, its first word (RFC 8166 section 4.2.1).
fn has_xid(item: &Item, xid: u32) -> bool {
    match &item.content {
        Content::Message { bytes, .. } => bytes.starts_with(&xid.to_be_bytes()),
        Content::Cm { .. } => false,
    }
}

fn has_peer(item: &Item, peer: IpAddr) -> bool {
    let path = item.path.as_ref();
    path.is_some_and(|path| path.source == peer || path.destination == peer)
}
