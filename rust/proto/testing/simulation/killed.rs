// SPDX-License-Identifier: GPL-2.0

//! Forward Calls whose tasks are killed.
//!
//! The responder learns nothing of that. It may go on working on such a Call for as long as it
//! wants, so that the Call keeps its credit until its answer comes, or the connection ends (RFC
//! 8166 section 3.3.1). Its memory is taken from the responder at once.

use super::requester::{Answer, Requester, State};
use super::world::World;
use super::{Failure, Outcome};
use crate::proto::v2::requester::{NegotiationAction, RequesterEvent};
use crate::proto::wire::error::ErrorBody;

impl Requester<'_> {
    /// The task of an RPC is killed. One that was answered, or not handed over yet, lives on.
    ///
    /// # Errors
    ///
    /// What is wrong with the end of the RPC.
    pub(crate) fn kill(&mut self, world: &mut World<'_>, number: usize) -> Result<(), Failure> {
        match self.call(number)?.state {
            State::Queued => {
                self.call(number)?.state = State::Idle;
                world.rpc_mut(number)?.killed = true;
                world.end(number, Outcome::Killed)
            }
            State::Outstanding => {
                let call = self.call(number)?;
                call.state = State::Killed;
                call.is_owed = true;
                world.rpc_mut(number)?.killed = true;
                self.invalidate(world, number)
            }
            State::Idle | State::Fencing(..) | State::Killed => Ok(()),
        }
    }

    /// The answer to a Call has come whose task was killed.
    ///
    /// # Errors
    ///
    /// What is wrong with what follows.
    pub(super) fn late(
        &mut self,
        world: &mut World<'_>,
        number: usize,
        answer: &Answer,
    ) -> Result<(), Failure> {
        world.fabric.tally.late += 1;
        self.call(number)?.is_owed = false;
        let event = match *answer {
            Answer::Reply(xid, version, credits) => {
                self.credits.reply(credits);
                RequesterEvent::Replied(xid, version)
            }
            Answer::Error(error) => {
                self.credits.error();
                match error.body {
                    ErrorBody::Version(versions) => RequesterEvent::Refused(error.xid, versions),
                    _ => RequesterEvent::Failed(error.xid),
                }
            }
            Answer::Refused(xid) => {
                self.credits.error();
                RequesterEvent::Failed(xid)
            }
        };
        match self.negotiation.handle(event) {
            // Nobody wants it any more: the next Call is the first message.
            Some(NegotiationAction::Resend(_)) => {
                let RequesterEvent::Refused(xid, _) = event else {
                    return Err(Failure::Negotiation);
                };
                let failed = RequesterEvent::Failed(xid);
                match self.negotiation.handle(failed) {
                    None => Ok(()),
                    Some(_) => Err(Failure::Negotiation),
                }
            }
            Some(NegotiationAction::Fail) => self.fail_all(world),
            Some(NegotiationAction::Reconnect) => self.end_connection(world),
            Some(NegotiationAction::Agree(_)) | None => Ok(()),
        }
    }
}
