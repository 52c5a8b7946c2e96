// SPDX-License-Identifier: GPL-2.0

//! The Receives of one end (RFC 8166 section 3.3.1, RFC 8167 section 4).

/// The Receives of one end of a connection, which take the messages of both directions.
///
/// Each message uses up one. They are posted before a message can arrive: those for Calls before
/// the Reply that grants them, the one for a Reply before its Call is sent (RFC 8166 section
/// 3.3.1, RFC 8167 section 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Receives {
    posted: u32,
    spare: u32,
}

impl Receives {
    /// A new connection, without any. `spare` are kept for messages that no credit stands for: an
    /// RDMA_ERROR that answers an RDMA_ERROR or an option of ours.
    pub(crate) const fn new(spare: u32) -> Self {
        Self { posted: 0, spare }
    }

    /// Receives that are posted.
    pub(crate) const fn posted(&self) -> u32 {
        self.posted
    }

    /// So many Receives were posted.
    pub(crate) fn post(&mut self, count: u32) {
        self.posted = self.posted.saturating_add(count);
    }

    /// A message used up a Receive.
    pub(crate) fn consume(&mut self) {
        self.posted = self.posted.saturating_sub(1);
    }

    /// Receives to post before the next message is sent, if `calls` are to be posted for Calls of
    /// the peer (`Grants::receives`) and `replies` for answers to own Calls
    /// (`RequesterCredits::outstanding`).
    pub(crate) fn missing(&self, calls: u32, replies: u32) -> u32 {
        let needed = calls.saturating_add(replies).saturating_add(self.spare);
        needed.saturating_sub(self.posted)
    }

    /// Receives that are left for Calls when `replies` are expected as answers to own Calls.
    pub(crate) fn for_calls(&self, replies: u32) -> u32 {
        let others = replies.saturating_add(self.spare);
        self.posted.saturating_sub(others)
    }
}
