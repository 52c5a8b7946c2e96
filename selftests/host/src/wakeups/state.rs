// SPDX-License-Identifier: GPL-2.0

//! What threads, completion handler and sunrpc share.

use std::collections::VecDeque;

use super::{Kind, Without};

pub(super) const ENTRIES: u8 = 2;

/// Memory regions where memory is registered. A chain of two entries takes one, but that is not known before.
pub(super) const REGIONS: u8 = 2;

/// Where a thread of nfsd is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Thread {
    Idle,
    /// Has the transport, takes `incoming`.
    Take,
    /// Holds `incoming`, and has found no "yes" without `send`.
    Slow,
    /// Holds `incoming` no longer and clears XPT_DATA, in a broken variant.
    Clear,
    /// Lets go of the transport.
    Received(Option<u8>),
    /// Hands a chain over.
    Post(u8),
    /// Gives back so many regions that it had reserved, and then releases the Call, if it is answered or dropped.
    Unreserve(u8, Option<u8>),
    /// Takes `incoming` to say so.
    Notify(Option<u8>),
    Release(u8),
}

/// Where the completion handler is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Handler {
    Idle,
    /// Has freed the pages of the first chain that is posted.
    Locking,
    /// Has let go of `send`, in a broken variant before the pages are freed.
    Freeing(u8, bool),
    /// Takes `incoming` to wake a thread, for a chain of this Call.
    Waking(u8),
    /// Has told the user of the queue, and tells of the chain.
    Sent(u8),
}

/// What a Call has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Call {
    pub(super) kind: Kind,
    pub(super) is_read: bool,
    pub(super) regions: u8,
    pub(super) offers: bool,
    pub(super) is_done: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct State {
    pub(super) calls: Vec<Call>,
    /// How many have arrived.
    pub(super) arrived: usize,
    // Of sunrpc.
    pub(super) data: bool,
    pub(super) busy: bool,
    pub(super) queued: bool,
    pub(super) close: bool,
    pub(super) is_dead: bool,
    /// How many have set XPT_DATA and are yet to call svc_xprt_enqueue().
    pub(super) wakers: u8,
    /// Whether memory is registered.
    pub(super) registers: bool,
    // Under `incoming`.
    pub(super) holder: Option<usize>,
    pub(super) read: VecDeque<u8>,
    pub(super) ready: VecDeque<u8>,
    pub(super) reply_pages: u8,
    pub(super) read_pages: u8,
    // Under `send`.
    pub(super) is_open: bool,
    pub(super) free: u8,
    pub(super) regions: u8,
    pub(super) posted: VecDeque<u8>,
    pub(super) pending: VecDeque<u8>,
    pub(super) wanted: bool,
    pub(super) threads: [Thread; 2],
    pub(super) handler: Handler,
}

impl Call {
    /// Whether the next chain of the Call is RDMA Reads.
    pub(super) fn reads(&self) -> bool {
        self.kind == Kind::Reading && !self.is_read
    }

    pub(super) fn entries(&self) -> u8 {
        match self.kind {
            Kind::Placed => 2,
            _ if self.reads() => 2,
            _ => 1,
        }
    }

    pub(super) fn offers(&self) -> bool {
        matches!(self.kind, Kind::Placed | Kind::Dropped)
    }

    pub(super) fn needs_regions(&self) -> bool {
        self.offers() || self.reads()
    }
}

impl State {
    pub(super) fn new(kinds: &[Kind], registers: bool) -> Self {
        let call = |&kind: &Kind| Call {
            kind,
            is_read: false,
            regions: 0,
            offers: false,
            is_done: false,
        };
        Self {
            calls: kinds.iter().map(call).collect(),
            arrived: 0,
            data: false,
            busy: false,
            queued: false,
            close: false,
            is_dead: false,
            wakers: 0,
            registers,
            holder: None,
            read: VecDeque::new(),
            ready: VecDeque::new(),
            reply_pages: 0,
            read_pages: 0,
            is_open: true,
            free: ENTRIES,
            regions: REGIONS,
            posted: VecDeque::new(),
            pending: VecDeque::new(),
            wanted: false,
            threads: [Thread::Idle; 2],
            handler: Handler::Idle,
        }
    }

    pub(super) fn call(&mut self, number: u8) -> &mut Call {
        &mut self.calls[usize::from(number)]
    }

    pub(super) fn head(&self) -> Option<u8> {
        self.read.front().or_else(|| self.ready.front()).copied()
    }

    /// svc_xprt_enqueue().
    pub(super) fn enqueue(&mut self) {
        if (self.data || self.close) && !self.busy && !self.is_dead {
            self.busy = true;
            self.queued = true;
        }
    }

    /// `SvcxprtRdma::wake`, as far as it holds `incoming`.
    pub(super) fn wake(&mut self) {
        if self.head().is_some() && !self.close {
            self.data = true;
            self.wakers += 1;
        }
    }

    /// The regions that are reserved for the next chain of a Call.
    pub(super) fn wanted_regions(&self, call: &Call) -> u8 {
        if self.registers && call.needs_regions() {
            REGIONS
        } else {
            0
        }
    }

    /// Whether the Reply of a Call may have pages.
    pub(super) fn may_reply(&self, call: &Call) -> bool {
        !call.offers() || self.reply_pages == 0
    }

    /// Takes the head, whose limits allow it.
    pub(super) fn start(&mut self, thread: usize, without: Without) {
        self.read_pages -= u8::from(!self.read.is_empty());
        let number = self.read.pop_front().or_else(|| self.ready.pop_front());
        let number = number.expect("there is a head");
        self.read_pages += u8::from(self.call(number).reads());
        let regions = self.wanted_regions(&self.calls[usize::from(number)]);
        let call = self.call(number);
        (call.regions, call.offers) = (regions, call.offers());
        self.reply_pages += u8::from(self.calls[usize::from(number)].offers);
        self.taken(thread, Some(number), without);
    }

    /// The end of `SvcxprtRdma::take`.
    pub(super) fn taken(&mut self, thread: usize, taken: Option<u8>, without: Without) {
        let clears = taken.is_none() || self.head().is_none();
        self.holder = None;
        self.threads[thread] = Thread::Received(taken);
        if !clears {
        } else if without == Without::ClearingUnderIncoming && taken.is_none() {
            self.threads[thread] = Thread::Clear;
        } else {
            self.data = false;
        }
    }

    /// `QueuePair::unlock`: whether the user is to be notified.
    pub(super) fn unlock(&mut self) -> bool {
        let is_available = self.wanted && self.is_open && self.pending.is_empty();
        self.wanted &= !is_available;
        is_available
    }

    /// Posts a chain if it fits.
    pub(super) fn post(&mut self, number: u8) -> bool {
        let entries = self.call(number).entries();
        if !self.is_open || entries > self.free {
            return false;
        }
        self.free -= entries;
        self.posted.push_back(number);
        true
    }

    /// Drops everything that is not posted: `detach`.
    pub(super) fn detach(&mut self) {
        self.is_open = false;
        for number in std::mem::take(&mut self.pending) {
            self.free_pages(number);
            self.call(number).is_done = true;
        }
        let (read, ready) = (&mut self.read, &mut self.ready);
        let dropped: Vec<_> = read.drain(..).chain(ready.drain(..)).collect();
        for number in dropped {
            self.call(number).is_done = true;
        }
        self.is_dead = true;
    }
}
