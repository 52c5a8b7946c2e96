// SPDX-License-Identifier: GPL-2.0

//! The state of the receiver that a row of a vector file is for.

use super::failure::Failure;
use crate::proto::wire::header::Versions;

/// Write chunks that a row may offer.
const MAX_WRITE_CHUNKS: usize = 8;

/// The state of the receiver.
#[derive(Clone, Copy, Debug)]
pub(super) struct Context<'a> {
    /// The supported versions.
    pub(super) versions: Versions,
    /// Bytes of each Receive.
    pub(super) threshold: usize,
    /// Whether a requester serves backward Calls.
    pub(super) backward: bool,
    /// The tag, whose `calls` and `bcalls` are looked up when they are needed.
    text: &'a str,
}

/// A forward Call that is outstanding: the text of its Write chunks, and of its Reply chunk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offer<'a> {
    xid: u32,
    writes: &'a str,
    pub(super) reply: &'a str,
}

/// The numbers of a list like `4096,100`.
pub(super) fn numbers(list: &str) -> impl Iterator<Item = Option<u32>> + Clone + '_ {
    let items = list.split(',').filter(|item| !item.is_empty());
    items.map(|item| item.parse().ok())
}

/// The lengths of a list that was checked to have nothing but numbers.
pub(super) fn lengths(list: &str) -> impl Iterator<Item = u32> + Clone + '_ {
    numbers(list).flatten()
}

impl<'a> Context<'a> {
    /// Reads a `ctx` tag; the empty one is the default state of an endpoint that supports
    /// `versions` and has Receives of `threshold` bytes.
    ///
    /// # Errors
    ///
    /// [`Failure::Form`].
    pub(super) fn parse(
        text: &'a str,
        versions: Versions,
        threshold: usize,
    ) -> Result<Self, Failure<'a>> {
        let mut context = Self {
            versions,
            threshold,
            backward: true,
            text,
        };
        for item in text.split_whitespace() {
            context.parse_item(item).ok_or(Failure::Form(item))?;
        }
        Ok(context)
    }

    fn parse_item(&mut self, item: &'a str) -> Option<()> {
        match item.split_once('=')? {
            ("vers", range) => {
                let (low, high) = range.split_once('-')?;
                self.versions = Versions {
                    low: low.parse().ok()?,
                    high: high.parse().ok()?,
                };
            }
            ("thr", bytes) => self.threshold = bytes.parse().ok()?,
            ("bc", flag) => self.backward = flag != "0",
            ("bcalls", xid) => _ = parse_xid(xid)?,
            ("calls", "none") => {}
            ("calls", call) => _ = Offer::parse(call)?,
            _ => return None,
        }
        Some(())
    }

    /// The values of all items with this key.
    fn values(&self, key: &'static str) -> impl Iterator<Item = &'a str> {
        let items = self.text.split_whitespace();
        items.filter_map(move |item| match item.split_once('=') {
            Some((found, value)) if found == key => Some(value),
            _ => None,
        })
    }

    /// The forward Call with this XID. By default there is one without chunks.
    pub(super) fn call(&self, xid: u32) -> Option<Offer<'a>> {
        if self.values("calls").next().is_none() {
            return Some(Offer {
                xid,
                writes: "",
                reply: "",
            });
        }
        let mut calls = self.values("calls").filter_map(Offer::parse);
        calls.find(|call| call.xid == xid)
    }

    /// Whether a backward Call with this XID is outstanding.
    pub(super) fn backward_call(&self, xid: u32) -> bool {
        let mut calls = self.values("bcalls");
        calls.any(|call| parse_xid(call) == Some(xid))
    }
}

impl<'a> Offer<'a> {
    /// Reads `xid[:w(caps;caps)][:p(caps)]`.
    fn parse(text: &'a str) -> Option<Self> {
        let mut parts = text.split(':');
        let mut offer = Self {
            xid: parse_xid(parts.next()?)?,
            writes: "",
            reply: "",
        };
        for part in parts {
            let (kind, list) = part.strip_suffix(')')?.split_once('(')?;
            let mut chunks = list.split(';');
            if !chunks.all(|chunk| numbers(chunk).all(|number| number.is_some())) {
                return None;
            }
            match kind {
                "w" if list.split(';').nth(MAX_WRITE_CHUNKS).is_none() => offer.writes = list,
                "p" if !list.contains(';') => offer.reply = list,
                _ => return None,
            }
        }
        Some(offer)
    }

    /// The segment lengths of the Write chunks; those that were not offered have none.
    pub(super) fn writes(&self) -> [impl Iterator<Item = u32> + Clone + 'a; MAX_WRITE_CHUNKS] {
        let writes = self.writes;
        core::array::from_fn(|index| lengths(writes.split(';').nth(index).unwrap_or("")))
    }
}

fn parse_xid(text: &str) -> Option<u32> {
    u32::from_str_radix(text, 16).ok()
}
