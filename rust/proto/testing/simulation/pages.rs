// SPDX-License-Identifier: GPL-2.0

//! Pages for the data that the responder fetches by RDMA Read: those of its connection, and those
//! of all connections, of which ended ones have some until their RDMA Reads are flushed.

use super::fabric::Fabric;
use super::job::Job;
use super::queue::SimulationEvent;
use super::scenario::Scenario;
use super::Failure;

/// The longest that it takes to flush an RDMA Read of an ended connection: often until the next
/// connection has Calls that want pages, too.
const FLUSH: u32 = 40_000;

/// How many pages Calls may have, and have. A Call that wants pages while no other has any gets
/// them even beyond the limit, so that none waits for ever.
struct PageBudget {
    limit: u32,
    used: u32,
}

impl PageBudget {
    const fn new(limit: u32) -> Self {
        Self { limit, used: 0 }
    }

    /// Takes `pages` pages, or none if fewer are left.
    fn take(&mut self, pages: u32) -> bool {
        match self.used.checked_add(pages) {
            Some(used) if used <= self.limit || self.used == 0 => {
                self.used = used;
                true
            }
            _ => false,
        }
    }

    fn give_back(&mut self, pages: u32) {
        self.used = self.used.saturating_sub(pages);
    }

    const fn used(&self) -> u32 {
        self.used
    }
}

/// Which pages lack for a Call.
pub(super) enum Shortage {
    /// Those of its connection.
    Connection,
    /// Those of all connections.
    Room,
}

/// Pages that Calls have, counted apart from the budgets.
#[derive(Clone, Copy, Default)]
struct Held {
    calls: u32,
    pages: u32,
}

impl Held {
    /// With those of one Call more.
    fn with(self, pages: u32) -> Self {
        Self {
            calls: self.calls + u32::from(pages != 0),
            pages: self.pages + pages,
        }
    }

    /// Compares this with a budget of `limit` pages.
    fn check(self, budget: &PageBudget, limit: u32) -> Result<(), Failure> {
        if budget.used() != self.pages {
            return Err(Failure::PageCount(budget.used(), self.pages));
        }
        if self.pages > limit && self.calls != 1 {
            return Err(Failure::PageLimit(self.pages));
        }
        Ok(())
    }

    /// Whether a Call may have so many pages as well, of `limit` in all.
    fn leaves(self, pages: u32, limit: u32) -> bool {
        self.pages == 0 || self.pages + pages <= limit
    }
}

/// The responder's pages.
pub(super) struct Pages {
    connection: PageBudget,
    /// Those of all connections.
    room: PageBudget,
    /// Those that Calls of ended connections still have.
    ended: Held,
    /// How many Calls have waited, which tells their order.
    last: u32,
}

impl Pages {
    /// All pages are left.
    pub(super) fn new(scenario: &Scenario) -> Self {
        let (connection, room) = scenario.pages;
        Self {
            connection: PageBudget::new(connection),
            room: PageBudget::new(room),
            ended: Held::default(),
            last: 0,
        }
    }

    /// The place of the next Call that waits.
    pub(super) fn next_place(&mut self) -> u32 {
        self.last = self.last.wrapping_add(1);
        self.last
    }

    /// There is another connection.
    pub(super) fn connect(&mut self, scenario: &Scenario) {
        self.connection = PageBudget::new(scenario.pages.0);
    }

    /// The connection has ended of a Call with so many pages, which go back to the room once the
    /// RDMA Reads are flushed that bring something there.
    ///
    /// # Errors
    ///
    /// [`Failure::Storage`].
    pub(super) fn disconnect(
        &mut self,
        fabric: &mut Fabric<'_>,
        pages: u32,
        incarnation: u32,
    ) -> Result<(), Failure> {
        if pages == 0 {
            return Ok(());
        }
        self.connection.give_back(pages);
        self.ended = self.ended.with(pages);
        let delay = fabric.random.between(1, FLUSH);
        fabric.after(delay, SimulationEvent::Flushed(pages, incarnation))
    }

    /// An RDMA Read of an ended connection is flushed: the pages of its Call go back.
    pub(super) fn flushed(&mut self, pages: u32) {
        self.room.give_back(pages);
        self.ended = Held {
            calls: self.ended.calls.saturating_sub(1),
            pages: self.ended.pages.saturating_sub(pages),
        };
    }

    /// Takes so many pages of the connection and of the room, or none.
    ///
    /// # Errors
    ///
    /// Which of them lack.
    pub(super) fn take(&mut self, pages: u32) -> Result<(), Shortage> {
        if !self.connection.take(pages) {
            return Err(Shortage::Connection);
        }
        if !self.room.take(pages) {
            self.connection.give_back(pages);
            return Err(Shortage::Room);
        }
        Ok(())
    }

    /// A Call needs its pages no more.
    pub(super) fn give_back(&mut self, pages: u32) {
        self.connection.give_back(pages);
        self.room.give_back(pages);
    }

    /// What Calls have of the connection's pages, and of all.
    fn held(&self, jobs: &[Job]) -> (Held, Held) {
        let add = |held: Held, job: &Job| held.with(job.pages);
        (
            jobs.iter().fold(Held::default(), add),
            jobs.iter().fold(self.ended, add),
        )
    }

    /// Compares the budgets with what Calls have.
    ///
    /// # Errors
    ///
    /// [`Failure::PageCount`] or [`Failure::PageLimit`].
    pub(super) fn check(&self, jobs: &[Job], limits: (u32, u32)) -> Result<(), Failure> {
        let (own, all) = self.held(jobs);
        own.check(&self.connection, limits.0)?;
        all.check(&self.room, limits.1)
    }

    /// Whether a Call may have so many pages, whatever the budgets say.
    pub(super) fn are_left(&self, jobs: &[Job], limits: (u32, u32), pages: u32) -> bool {
        let (own, all) = self.held(jobs);
        own.leaves(pages, limits.0) && all.leaves(pages, limits.1)
    }

    /// Whether any are taken.
    pub(super) fn are_taken(&self) -> bool {
        self.connection.used() != 0 || self.room.used() != 0
    }
}
