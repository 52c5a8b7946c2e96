// SPDX-License-Identifier: GPL-2.0

//! What each of them does next.

use super::state::{Handler, State, Thread, ENTRIES, REGIONS};
use super::{Kind, Without};

impl State {
    /// What the thread does next, if it does not wait.
    pub(super) fn thread(&self, thread: usize, without: Without) -> Option<Self> {
        let mut next = self.clone();
        let locked = self.holder.is_some();
        match self.threads[thread] {
            Thread::Idle if self.queued => {
                next.queued = false;
                next.threads[thread] = Thread::Take;
                if self.close {
                    // It stays busy.
                    next.detach();
                    next.threads[thread] = Thread::Idle;
                }
            }
            Thread::Idle => return None,
            Thread::Take if locked => return None,
            Thread::Take => match self.head() {
                None => next.taken(thread, None, without),
                Some(number) if self.calls[usize::from(number)].reads() && self.read_pages != 0 => {
                    next.taken(thread, None, without);
                }
                Some(number) => {
                    next.holder = Some(thread);
                    let call = self.calls[usize::from(number)];
                    let is_pending = !self.pending.is_empty();
                    if self.wanted_regions(&call) == 0 && !is_pending && self.may_reply(&call) {
                        next.start(thread, without);
                    } else {
                        next.threads[thread] = Thread::Slow;
                        if without == Without::DecidingUnderSend
                            && (is_pending
                                || self.regions < self.wanted_regions(&call)
                                || !self.may_reply(&call))
                        {
                            // "No" is decided here, and who is to notify hears of it later.
                            next.threads[thread] = Thread::Clear;
                        }
                    }
                }
            },
            Thread::Slow => {
                let number = self.head().expect("the head stays under the lock");
                let call = self.calls[usize::from(number)];
                let regions = self.regions.checked_sub(self.wanted_regions(&call));
                let is_allowed = self.pending.is_empty() && self.may_reply(&call);
                match regions.filter(|_| is_allowed) {
                    Some(regions) => {
                        next.regions = regions;
                        next.start(thread, without);
                    }
                    None => {
                        next.wanted |= without != Without::Wanting;
                        next.taken(thread, None, without);
                    }
                }
            }
            Thread::Clear => {
                next.data = false;
                next.threads[thread] = Thread::Received(None);
                if self.holder == Some(thread) {
                    next.holder = None;
                    next.wanted = true;
                }
            }
            Thread::Received(taken) => {
                next.busy = false;
                if without != Without::LookingOnReceived {
                    next.enqueue();
                }
                next.threads[thread] = match taken {
                    None => Thread::Idle,
                    Some(number) if self.calls[usize::from(number)].kind == Kind::Dropped => {
                        let regions = std::mem::take(&mut next.call(number).regions);
                        Thread::Unreserve(regions, Some(number))
                    }
                    Some(number) => Thread::Post(number),
                };
            }
            Thread::Post(number) => {
                let call = next.call(number);
                let (reads, regions) = (call.reads(), call.regions);
                call.regions = regions.min(1);
                let answered = Some(number).filter(|_| !reads);
                next.threads[thread] = Thread::Unreserve(regions - regions.min(1), answered);
                if self.is_open {
                    // The pages of a Reply count from before it is handed over until they are freed.
                    next.reply_pages +=
                        u8::from(self.calls[usize::from(number)].kind == Kind::Placed);
                    if !self.pending.is_empty() || !next.post(number) {
                        next.pending.push_back(number);
                    }
                } else {
                    next.call(number).is_done |= reads;
                }
            }
            Thread::Unreserve(regions, answered) => {
                next.regions += regions;
                next.threads[thread] = match answered {
                    _ if regions != 0 && next.unlock() => Thread::Notify(answered),
                    Some(number) => Thread::Release(number),
                    None => Thread::Idle,
                };
            }
            Thread::Notify(_) if locked => return None,
            Thread::Notify(answered) => {
                next.wake();
                next.threads[thread] = answered.map_or(Thread::Idle, Thread::Release);
            }
            Thread::Release(_) if locked => return None,
            Thread::Release(number) => {
                let call = next.call(number);
                call.is_done = true;
                if std::mem::take(&mut call.offers) {
                    next.reply_pages -= 1;
                    if without != Without::WakingOnRelease {
                        next.wake();
                    }
                }
                next.threads[thread] = Thread::Idle;
            }
        }
        Some(next)
    }

    /// Frees the pages of a Reply.
    pub(super) fn free_pages(&mut self, number: u8) {
        if self.call(number).kind == Kind::Placed {
            self.reply_pages -= 1;
        }
    }

    /// What the completion handler does next.
    pub(super) fn handler(&self, without: Without) -> Option<Self> {
        let mut next = self.clone();
        match self.handler {
            Handler::Idle => {
                let number = *self.posted.front()?;
                if without != Without::PagesFirst {
                    next.free_pages(number);
                }
                next.handler = Handler::Locking;
            }
            Handler::Locking => {
                let number = next.posted.pop_front().expect("nobody else takes it off");
                let regions = std::mem::take(&mut next.call(number).regions);
                next.free += next.call(number).entries();
                next.regions += regions;
                while let Some(&first) = next.pending.front() {
                    if without == Without::Posting || !next.post(first) {
                        break;
                    }
                    next.pending.pop_front();
                }
                let notifies = next.unlock() && without != Without::WakingOnCompletion;
                next.handler = match (without, notifies) {
                    (Without::PagesFirst, _) => Handler::Freeing(number, notifies),
                    (_, true) => Handler::Waking(number),
                    (_, false) => Handler::Sent(number),
                };
            }
            Handler::Freeing(number, notifies) => {
                next.handler = if notifies {
                    Handler::Waking(number)
                } else {
                    Handler::Sent(number)
                };
                next.free_pages(number);
            }
            Handler::Waking(_) if self.holder.is_some() => return None,
            Handler::Waking(number) => {
                next.wake();
                next.handler = Handler::Sent(number);
            }
            Handler::Sent(number) if self.calls[usize::from(number)].reads() => {
                if self.holder.is_some() {
                    return None;
                }
                next.handler = Handler::Idle;
                if self.close {
                    next.call(number).is_done = true;
                } else {
                    let is_first = self.read.is_empty();
                    next.call(number).is_read = true;
                    next.read.push_back(number);
                    if is_first && without != Without::WakingOnRead {
                        next.wake();
                    }
                }
            }
            Handler::Sent(_) => next.handler = Handler::Idle,
        }
        Some(next)
    }

    /// The next Call arrives. Its Receive is handled by the completion handler, between two chains.
    pub(super) fn arrive(&self) -> Option<Self> {
        if self.arrived == self.calls.len()
            || self.holder.is_some()
            || self.handler != Handler::Idle
        {
            return None;
        }
        let mut next = self.clone();
        next.arrived += 1;
        if self.close {
            next.call(self.arrived as u8).is_done = true;
            return Some(next);
        }
        let is_first = self.head().is_none();
        next.ready.push_back(self.arrived as u8);
        if is_first {
            next.wake();
        }
        Some(next)
    }

    /// The end of `SvcxprtRdma::wake`. Who calls it may have gone on here.
    pub(super) fn woken(&self, without: Without) -> Option<Self> {
        let mut next = self.clone();
        next.wakers = self.wakers.checked_sub(1)?;
        if without != Without::Waking {
            next.enqueue();
        }
        Some(next)
    }

    /// `SvcxprtRdma::close`.
    pub(super) fn force_close(&self) -> Option<Self> {
        if self.close || self.holder.is_some() {
            return None;
        }
        let mut next = self.clone();
        next.close = true;
        next.enqueue();
        Some(next)
    }

    /// Nothing happens any more: whether all is done.
    pub(super) fn is_over(&self) -> bool {
        self.calls.iter().all(|call| call.is_done)
            && self.posted.is_empty()
            && self.pending.is_empty()
            && self.head().is_none()
            && self.reply_pages == 0
            && (self.close || (self.free, self.regions) == (ENTRIES, REGIONS))
            && self.close == self.is_dead
    }
}
