// SPDX-License-Identifier: GPL-2.0

//! Backward Calls at the requester, which serves them (RFC 8167).
//!
//! Backward messages are inline always. Credits and Receives are counted apart from those of the
//! forward direction.

use super::message::{Kind, Message};
use super::payload::index;
use super::queue::SimulationEvent;
use super::requester::Requester;
use super::rpc::Fate;
use super::world::World;
use super::{Direction, End, Failure};
use crate::proto::wire::encode::encode_inline;
use crate::proto::wire::header::{Credits, Xid};

impl Requester<'_> {
    /// Hands a backward Call to the upper layer, or drops it.
    ///
    /// # Errors
    ///
    /// [`Failure::Excess`] if it is beyond what was granted.
    pub(super) fn accept(
        &mut self,
        world: &mut World<'_>,
        number: Option<usize>,
        version: u32,
        credits: Credits,
    ) -> Result<(), Failure> {
        let number = number.ok_or(Failure::Storage)?;
        if !self.grants.call(credits) {
            return Err(Failure::Excess(Direction::Backward));
        }
        if world.rpc(number)?.fate == Fate::Ignored {
            return Ok(());
        }
        let place = self.serving.get_mut(number).ok_or(Failure::Storage)?;
        *place = Some(version);
        let service = world.fabric.service();
        world
            .fabric
            .after(service, SimulationEvent::BackwardServed(number))
    }

    /// The upper layer has served a backward Call: sends the Reply.
    ///
    /// # Errors
    ///
    /// What is wrong with the Reply.
    pub(crate) fn backward_served(
        &mut self,
        world: &mut World<'_>,
        number: usize,
    ) -> Result<(), Failure> {
        let place = self.serving.get_mut(number).ok_or(Failure::Storage)?;
        let Some(version) = place.take() else {
            // The connection is lost; the Call comes again.
            return Ok(());
        };
        world.served(number)?;
        let limit = world.fabric.grant(End::Requester);
        self.grants.raise(limit);
        let credits = self.grants.reply();
        self.post_receives(&mut world.fabric);

        let payload = world.rpc(number)?.reply_payload();
        let slot = world.messages.take()?;
        let buffer = world.messages.buffer(slot);
        let header = encode_inline(buffer, version, Xid(payload.xid), credits)
            .map_err(|_| Failure::NoSpace)?;
        let length = header + index(payload.total());
        let bytes = buffer.get_mut(header..length).ok_or(Failure::NoSpace)?;
        payload.fill(0, bytes);
        world.send(
            slot,
            Message {
                to: End::Responder,
                generation: self.generation,
                length,
                kind: Kind::Reply(Direction::Backward),
                ..Message::NONE
            },
        )
    }
}
