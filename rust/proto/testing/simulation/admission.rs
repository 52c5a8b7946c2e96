// SPDX-License-Identifier: GPL-2.0

//! Forward Calls that wait until there are pages for their data, at the responder.
//!
//! They are fetched in the order in which they came. What the budgets say is compared with what the
//! Calls have, after each event.

use super::job::JobState;
use super::pages::Shortage;
use super::responder::Responder;
use super::service::decode;
use super::world::World;
use super::Failure;

/// Bytes of a page: few, so that there are Calls that want several.
const PAGE_SIZE: u32 = 1024;

/// The pages for what is to be read for the Call in `slot`.
fn wanted(world: &World<'_>, slot: usize) -> Result<u32, Failure> {
    let call = decode(world.messages.bytes(slot))?;
    Ok(call.index.layout.pages.div_ceil(PAGE_SIZE))
}

impl Responder<'_> {
    /// Has a new Call fetched, at once or when there are pages for its data.
    ///
    /// # Errors
    ///
    /// What is wrong with the Call.
    pub(super) fn line_up(
        &mut self,
        world: &mut World<'_>,
        number: usize,
        slot: usize,
    ) -> Result<(), Failure> {
        if wanted(world, slot)? == 0 {
            return self.fetch(world, number, slot);
        }
        let place = self.pages.next_place();
        self.job(number)?.state = JobState::Waiting(place);
        self.admit(world)
    }

    /// The Call that waits longest for pages, and its slot.
    fn first_waiting(&self) -> Option<(usize, usize)> {
        let waiting = self.jobs.iter().enumerate().filter_map(|(number, job)| {
            let JobState::Waiting(place) = job.state else {
                return None;
            };
            Some((place, number, job.slot?))
        });
        waiting.min().map(|(_, number, slot)| (number, slot))
    }

    /// Has Calls fetched in the order in which they wait, as far as there are pages for them.
    ///
    /// # Errors
    ///
    /// What is wrong with these Calls.
    pub(super) fn admit(&mut self, world: &mut World<'_>) -> Result<(), Failure> {
        while let Some((number, slot)) = self.first_waiting() {
            let pages = wanted(world, slot)?;
            let tally = &mut world.fabric.tally;
            match self.pages.take(pages) {
                Ok(()) => {}
                Err(Shortage::Connection) => {
                    tally.page_waits += 1;
                    break;
                }
                Err(Shortage::Room) => {
                    tally.room_waits += 1;
                    break;
                }
            }
            let (connection, room) = world.fabric.scenario.pages;
            tally.beyond_limit += u64::from(pages > connection.min(room));
            self.job(number)?.pages = pages;
            self.fetch(world, number, slot)?;
        }
        Ok(())
    }

    /// An RDMA Read of an ended connection is flushed, so that the pages of its Call go back.
    ///
    /// # Errors
    ///
    /// What is wrong with the Calls that have waited for them.
    pub(crate) fn flushed(
        &mut self,
        world: &mut World<'_>,
        pages: u32,
        incarnation: u32,
    ) -> Result<(), Failure> {
        if incarnation != self.incarnation {
            return Ok(());
        }
        self.pages.flushed(pages);
        self.admit(world)
    }

    /// Compares the budgets with what the Calls have, and what waits with what is left.
    ///
    /// # Errors
    ///
    /// [`Failure::PageCount`], [`Failure::PageLimit`], or [`Failure::PagesUnused`].
    pub(crate) fn check_pages(&self, world: &World<'_>) -> Result<(), Failure> {
        let limits = world.fabric.scenario.pages;
        self.pages.check(self.jobs, limits)?;
        let Some((number, slot)) = self.first_waiting() else {
            return Ok(());
        };
        let pages = wanted(world, slot)?;
        if self.pages.are_left(self.jobs, limits, pages) {
            return Err(Failure::PagesUnused(number));
        }
        Ok(())
    }

    /// Whether pages are taken.
    pub(crate) fn is_leaking_pages(&self) -> bool {
        self.pages.are_taken()
    }
}
