// SPDX-License-Identifier: GPL-2.0

//! What is kept with each message until it is answered.

use super::{events::Reserved, PAGE_SIZE};
use crate::{
    proto::responder::{call::CallIndex, placement::Placement},
    rdma::Note,
    sunrpc::{server::Moment, PageVec},
};

/// What is kept with each message.
pub(crate) struct CallNote {
    /// What the message says; `None` until it is decoded.
    pub(super) index: Option<CallIndex>,
    /// Whether it is a Call with nothing left to fetch.
    pub(super) is_complete: bool,
    /// Which results are in which Write chunk.
    pub(super) placement: Placement,
    /// What was read from the requester, for [`CallIndex::layout`].
    pub(super) pages: PageVec,
    /// The room for these pages, until a thread takes them.
    pub(super) reserved: Option<Reserved>,
    /// Whether it counts as one of the requester's outstanding Calls.
    pub(super) is_outstanding: bool,
    /// The handle that the Reply invalidates, if that is known when RDMA Reads are posted.
    pub(super) invalidate: Option<u32>,
    /// The time of the last completion that the Call waited for.
    pub(super) complete: Option<Moment>,
}

impl CallNote {
    /// How many pages are needed for what is to be fetched.
    pub(super) fn wanted(&self) -> u32 {
        let index = self.index.as_ref();
        index.map_or(0, |index| index.layout.pages.div_ceil(PAGE_SIZE))
    }
}

impl Default for CallNote {
    fn default() -> Self {
        Self {
            index: None,
            is_complete: false,
            placement: Placement::new(),
            pages: PageVec::new(),
            reserved: None,
            is_outstanding: false,
            invalidate: None,
            complete: None,
        }
    }
}

impl Note for CallNote {
    fn clear(&mut self) {
        self.index = None;
        self.is_complete = false;
        self.placement.clear();
        self.pages.clear();
        self.reserved = None;
        self.is_outstanding = false;
        self.invalidate = None;
        self.complete = None;
    }
}
