// SPDX-License-Identifier: GPL-2.0

//! The end that connects: its connection and its forward Calls.
//!
//! A Call that was not answered when its connection is lost is sent again on the next one, with
//! new regions.

use super::super::{
    conn::{self, Action, Conn, Reason},
    credit::CreditWindow,
    header::{Credits, ErrorMessage, Versions, Xid, VERSION_ONE},
    message::Refusal,
    private_data::{negotiate, PrivateData, Thresholds},
    reply::{decode_received, Received, Reply},
};
use super::callbacks::CallbackService;
use super::memory::Buffer;
use super::message::{Kind, Message};
use super::private_bytes::PrivateBytes;
use super::queue::Event;
use super::rpc::Outcome;
use super::scenario::Scenario;
use super::stream::{index, short};
use super::world::World;
use super::{Direction, End, Failure};

/// How long one attempt to connect may take.
const ATTEMPT_TIMEOUT: u32 = 30_000;

/// The longest wait before the next attempt.
const BACKOFF: u32 = 5_000;

/// What a Reply says, beyond its bytes.
#[derive(Clone, Copy, Debug)]
enum Verdict {
    /// The RPC message follows `header` bytes of the Reply; `placed` bytes of it went by a Write
    /// chunk.
    Inline { header: usize, placed: u64 },
    /// The RPC message is the first so many bytes of the Reply chunk.
    Chunk(u64),
    /// The RPC failed.
    Failed,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// Not handed over yet, or ended.
    Idle,
    /// To be sent.
    Queued,
    /// Sent on the present connection.
    Outstanding,
    /// Answered by the message in this slot; local invalidations are under way.
    Fencing(usize, Verdict),
}

/// A forward Call at the requester.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    state: State,
    pub(super) transmissions: u32,
    /// How many of its regions, the first ones, are the Read list's.
    pub(super) reads: usize,
    /// Whether the others are the Reply chunk, not the Write chunk.
    pub(super) has_reply_chunk: bool,
}

impl Call {
    /// What an unused place of the storage holds.
    pub(crate) const NONE: Self = Self {
        state: State::Idle,
        transmissions: 0,
        reads: 0,
        has_reply_chunk: false,
    };
}

/// What a received message asks for.
enum Seen {
    Reply(Option<usize>, Credits, Verdict),
    Error(usize),
    Refused(usize),
    Backward(Option<usize>, Credits),
    Answer(ErrorMessage),
    Nothing,
}

/// The requester.
pub(crate) struct Requester<'a> {
    conn: Conn,
    pub(super) generation: u32,
    is_open: bool,
    is_closed: bool,
    is_finished: bool,
    pub(super) thresholds: Thresholds,
    pub(super) window: CreditWindow,
    calls: &'a mut [Call],
    callbacks: CallbackService,
}

impl<'a> Requester<'a> {
    /// A requester before its first attempt.
    pub(crate) fn new(scenario: &Scenario, calls: &'a mut [Call]) -> Self {
        calls.fill(Call::NONE);
        Self {
            conn: Conn::new(),
            generation: 0,
            is_open: false,
            is_closed: true,
            is_finished: false,
            thresholds: negotiate(PrivateData::DEFAULT, None),
            window: CreditWindow::new(Credits::new(scenario.requester.requests)),
            calls,
            callbacks: CallbackService::new(),
        }
    }

    /// One Call.
    ///
    /// # Errors
    ///
    /// [`Failure::Storage`] if there is none of this number.
    pub(super) fn call(&mut self, number: usize) -> Result<&mut Call, Failure> {
        self.calls.get_mut(number).ok_or(Failure::Storage)
    }

    /// Takes a Call from the upper layer.
    ///
    /// # Errors
    ///
    /// What is wrong with the Calls that are sent.
    pub(crate) fn submit(&mut self, world: &mut World<'_>, number: usize) -> Result<(), Failure> {
        let stream = world.rpc(number)?.call_stream();
        let buffer = world.memory.buffer(number, Buffer::Call, stream.total())?;
        stream.fill(0, buffer);
        self.call(number)?.state = State::Queued;
        self.pump(world)
    }

    /// Begins an attempt to connect.
    ///
    /// # Errors
    ///
    /// [`Failure::Storage`].
    pub(crate) fn attempt(&mut self, world: &mut World<'_>) -> Result<(), Failure> {
        if self.is_finished {
            return Ok(());
        }
        self.generation = world.fabric.open_link();
        self.conn = Conn::new();
        self.is_closed = false;
        let timeout = Event::AttemptTimeout(self.generation);
        world.fabric.after(ATTEMPT_TIMEOUT, timeout)?;
        self.report(world, conn::Event::Start)
    }

    /// The connection manager has something to say about a connection.
    ///
    /// # Errors
    ///
    /// What is wrong with what follows.
    pub(crate) fn cm(
        &mut self,
        world: &mut World<'_>,
        generation: u32,
        event: conn::Event,
    ) -> Result<(), Failure> {
        if generation == self.generation {
            self.report(world, event)?;
        }
        Ok(())
    }

    /// The connection, or the attempt to make it, is lost.
    ///
    /// # Errors
    ///
    /// [`Failure::Unheard`] if that has no consequence.
    pub(crate) fn down(&mut self, world: &mut World<'_>, generation: u32) -> Result<(), Failure> {
        self.cm(world, generation, conn::Event::Ended(Reason::Disconnected))?;
        if generation == self.generation && !self.is_closed {
            return Err(Failure::Unheard);
        }
        Ok(())
    }

    /// An attempt took too long, if it is still one.
    ///
    /// # Errors
    ///
    /// [`Failure::Storage`].
    pub(crate) fn attempt_timeout(
        &mut self,
        world: &mut World<'_>,
        generation: u32,
    ) -> Result<(), Failure> {
        if self.is_open {
            return Ok(());
        }
        self.cm(world, generation, conn::Event::Ended(Reason::TimedOut))
    }

    /// Everything is done: closes the connection for good.
    ///
    /// # Errors
    ///
    /// [`Failure::Storage`].
    pub(crate) fn finish(&mut self, world: &mut World<'_>) -> Result<(), Failure> {
        self.is_finished = true;
        self.report(world, conn::Event::Ended(Reason::Disconnected))
    }

    /// Tells the state machine, and does what it says.
    fn report(&mut self, world: &mut World<'_>, event: conn::Event) -> Result<(), Failure> {
        match self.conn.handle(event) {
            Some(action) => self.act(world, action),
            None => Ok(()),
        }
    }

    fn act(&mut self, world: &mut World<'_>, action: Action) -> Result<(), Failure> {
        match action {
            Action::ResolveAddress => self.expect(world, conn::Event::AddressResolved),
            Action::ResolveRoute => self.expect(world, conn::Event::RouteResolved),
            Action::Prepare => {
                self.window.reset();
                self.callbacks.prepare(world, self.generation);
                self.report(world, conn::Event::Prepared)
            }
            Action::Connect => {
                let message = world.fabric.scenario.requester.private_data;
                world.fabric.link.request = PrivateBytes::new(&mut world.fabric.random, message);
                let delay = world.fabric.delay();
                let request = Event::ConnectRequest(self.generation);
                world.fabric.after(delay, request)
            }
            Action::Open => self.open(world),
            Action::Fail(_) => {
                world.fabric.tally.failed_attempts += 1;
                self.close(world)
            }
            Action::Close(_) => self.close(world),
        }
    }

    /// Has the connection manager report a step, sometimes more than once.
    fn expect(&mut self, world: &mut World<'_>, event: conn::Event) -> Result<(), Failure> {
        let times = world.fabric.random.pick(1, &[1, 1, 2]);
        for _ in 0..times {
            let delay = world.fabric.delay();
            let event = Event::Cm(self.generation, event);
            world.fabric.after(delay, event)?;
        }
        Ok(())
    }

    /// Lets Calls through.
    fn open(&mut self, world: &mut World<'_>) -> Result<(), Failure> {
        let own = world.fabric.scenario.requester.private_data;
        let peer = own.and(world.fabric.link.answer.find());
        self.thresholds = negotiate(own.unwrap_or(PrivateData::DEFAULT), peer);
        self.is_open = true;
        world.fabric.tally.connections += 1;
        let delay = world.fabric.delay();
        let ready = Event::ReadyToUse(self.generation);
        world.fabric.after(delay, ready)?;
        self.pump(world)
    }

    /// Takes the connection down. Nobody can reach any region any more.
    fn close(&mut self, world: &mut World<'_>) -> Result<(), Failure> {
        self.is_open = false;
        self.is_closed = true;
        world.fabric.hang_up(End::Requester)?;
        world.memory.invalidate_all(self.generation);
        self.callbacks.forget();
        for number in 0..self.calls.len() {
            match self.call(number)?.state {
                State::Outstanding => {
                    self.call(number)?.state = State::Queued;
                    world.memory.release(number)?;
                }
                State::Fencing(slot, verdict) => self.settle(world, number, slot, verdict)?,
                State::Idle | State::Queued => {}
            }
        }
        if self.is_finished {
            return Ok(());
        }
        let backoff = world.fabric.random.between(1, BACKOFF);
        world.fabric.after(backoff, Event::Attempt)
    }

    /// Calls that wait for a Reply.
    fn outstanding(&self) -> u32 {
        let outstanding = |call: &&Call| matches!(call.state, State::Outstanding);
        short(self.calls.iter().filter(outstanding).count())
    }

    /// Sends what may be sent.
    fn pump(&mut self, world: &mut World<'_>) -> Result<(), Failure> {
        while self.is_open {
            let queued = |call: &Call| matches!(call.state, State::Queued);
            let Some(number) = self.calls.iter().position(queued) else {
                break;
            };
            if self.outstanding() >= self.window.window() {
                world.fabric.tally.waits += 1;
                break;
            }
            if self.transmit(world, number)? {
                self.call(number)?.state = State::Outstanding;
            } else {
                self.call(number)?.state = State::Idle;
                world.end(number, Outcome::Failed)?;
            }
        }
        Ok(())
    }

    /// A message has arrived.
    ///
    /// # Errors
    ///
    /// What is wrong with it, or with what follows.
    pub(crate) fn receive(
        &mut self,
        world: &mut World<'_>,
        slot: usize,
        message: &Message,
    ) -> Result<(), Failure> {
        match self.look(world, slot)? {
            Seen::Reply(number, credits, verdict) => {
                self.window.grant(credits);
                match number {
                    Some(number) => self.fence(world, number, slot, verdict)?,
                    None => self.drop_message(world, slot),
                }
            }
            Seen::Error(number) => {
                world.fabric.tally.errors += 1;
                self.fence(world, number, slot, Verdict::Failed)?;
            }
            Seen::Refused(number) => {
                world.fabric.tally.refused += 1;
                self.fence(world, number, slot, Verdict::Failed)?;
            }
            Seen::Backward(number, credits) => {
                let generation = message.generation;
                self.callbacks.accept(world, generation, number, credits)?;
                world.messages.free(slot);
            }
            Seen::Answer(error) => {
                let kind = if message.kind == Kind::Call(Direction::Backward) {
                    Kind::Error(Direction::Backward)
                } else {
                    Kind::Other
                };
                self.drop_message(world, slot);
                self.answer(world, &error, kind)?;
            }
            Seen::Nothing => self.drop_message(world, slot),
        }
        self.pump(world)
    }

    /// Forgets a message that belongs to no Call, and posts its Receive again.
    fn drop_message(&self, world: &mut World<'_>, slot: usize) {
        world.messages.free(slot);
        let fabric = &mut world.fabric;
        fabric.post_receives(End::Requester, self.generation, 1);
    }

    /// Finds out what a message is.
    fn look(&self, world: &World<'_>, slot: usize) -> Result<Seen, Failure> {
        let bytes = world.messages.bytes(slot);
        let awaited = |xid: Xid| {
            let number = world.find(Direction::Forward, xid.0)?;
            let call = self.calls.get(number)?;
            matches!(call.state, State::Outstanding).then_some(number)
        };
        Ok(match decode_received(bytes, Versions::ONE) {
            Ok(Received::Reply(reply)) => {
                let number = awaited(reply.xid);
                let verdict = match number {
                    Some(number) => self.judge(world, number, &reply),
                    None => Verdict::Failed,
                };
                Seen::Reply(number, reply.credits, verdict)
            }
            Ok(Received::Error(error)) => match awaited(error.xid) {
                Some(number) => Seen::Error(number),
                None => Seen::Nothing,
            },
            Ok(Received::BackwardCall(call)) => {
                let number = world.find(Direction::Backward, call.xid.0);
                if let Some(number) = number {
                    let stream = world.rpc(number)?.call_stream();
                    let whole = short(call.payload.len()) == stream.total();
                    if !whole || !stream.matches(0, call.payload) {
                        return Err(Failure::CallBytes(number));
                    }
                }
                Seen::Backward(number, call.credits)
            }
            Err(refused) => {
                let number = refused.fixed.and_then(|fixed| awaited(fixed.xid));
                let serves = world.fabric.scenario.serves;
                match (refused.at_requester(number.is_some(), serves), number) {
                    (Refusal::Answer(error), _) => Seen::Answer(error),
                    (Refusal::Discard, Some(number)) => Seen::Refused(number),
                    (Refusal::Discard, None) => Seen::Nothing,
                }
            }
        })
    }

    /// Compares the Reply's chunks with what the Call offered.
    fn judge(&self, world: &World<'_>, number: usize, reply: &Reply<'_>) -> Verdict {
        let call = self.calls.get(number).copied().unwrap_or(Call::NONE);
        let segments = world.memory.segments(number);
        let lengths = segments.skip(call.reads).map(|segment| segment.length);
        let only = |wanted| if wanted { usize::MAX } else { 0 };
        let writes = [lengths.clone().take(only(!call.has_reply_chunk))];
        let chunk = lengths.take(only(call.has_reply_chunk));
        match (reply.reconcile(writes, chunk), reply.payload) {
            (Ok(delivered), Some(_)) => {
                let [write] = delivered.writes;
                Verdict::Inline {
                    header: reply.header_len,
                    placed: write.contiguous,
                }
            }
            (Ok(delivered), None) => Verdict::Chunk(delivered.reply.contiguous),
            (Err(_), _) => Verdict::Failed,
        }
    }

    /// Has every region of the Call invalidated that still is registered, then settles it.
    fn fence(
        &mut self,
        world: &mut World<'_>,
        number: usize,
        slot: usize,
        verdict: Verdict,
    ) -> Result<(), Failure> {
        let World { fabric, memory, .. } = world;
        let mut is_clear = true;
        for segment in memory.segments(number) {
            if memory.is_registered(number, segment.handle) {
                is_clear = false;
                let delay = fabric.delay();
                let invalidated = Event::Invalidated {
                    rpc: number,
                    handle: segment.handle,
                    generation: self.generation,
                };
                fabric.after(delay, invalidated)?;
            }
        }
        if is_clear {
            return self.settle(world, number, slot, verdict);
        }
        self.call(number)?.state = State::Fencing(slot, verdict);
        Ok(())
    }

    /// A local invalidation is complete.
    ///
    /// # Errors
    ///
    /// What is wrong with the end of the RPC.
    pub(crate) fn invalidated(
        &mut self,
        world: &mut World<'_>,
        number: usize,
        handle: u32,
        generation: u32,
    ) -> Result<(), Failure> {
        // After the end of the connection there is nothing left to do.
        if !world.memory.invalidate(generation, handle) {
            return Ok(());
        }
        if let State::Fencing(slot, verdict) = self.call(number)?.state {
            if world.memory.registered(number).is_none() {
                self.settle(world, number, slot, verdict)?;
            }
        }
        Ok(())
    }

    /// Ends an RPC behind its fence.
    fn settle(
        &mut self,
        world: &mut World<'_>,
        number: usize,
        slot: usize,
        verdict: Verdict,
    ) -> Result<(), Failure> {
        self.call(number)?.state = State::Idle;
        let outcome = match verdict {
            Verdict::Inline { header, placed } => {
                let placed = u32::try_from(placed).map_err(|_| Failure::ReplyBytes(number))?;
                check_inline(world, number, (slot, header), placed)?;
                Outcome::Answered
            }
            Verdict::Chunk(length) => {
                check_chunk(world, number, length)?;
                Outcome::Answered
            }
            Verdict::Failed => Outcome::Failed,
        };
        world.messages.free(slot);
        world.end(number, outcome)
    }

    /// Sends an RDMA_ERROR.
    fn answer(
        &self,
        world: &mut World<'_>,
        error: &ErrorMessage,
        kind: Kind,
    ) -> Result<(), Failure> {
        let slot = world.messages.take()?;
        let buffer = world.messages.buffer(slot);
        let credits = self.window.requested();
        let length = error
            .encode(buffer, credits)
            .map_err(|_| Failure::NoSpace)?;
        world.send(
            slot,
            Message {
                to: End::Responder,
                generation: self.generation,
                length,
                kind,
                ..Message::NONE
            },
        )
    }

    /// No Reply came to a transmission of a Call: only a new connection brings the credit back.
    ///
    /// # Errors
    ///
    /// [`Failure::Storage`].
    pub(crate) fn call_timeout(
        &mut self,
        world: &mut World<'_>,
        number: usize,
        transmission: u32,
    ) -> Result<(), Failure> {
        let call = self.call(number)?;
        if call.transmissions == transmission && matches!(call.state, State::Outstanding) {
            world.fabric.tally.timeouts += 1;
            return self.report(world, conn::Event::Ended(Reason::TimedOut));
        }
        Ok(())
    }

    /// The upper layer has served a backward Call.
    ///
    /// # Errors
    ///
    /// What is wrong with the Reply.
    pub(crate) fn backward_served(
        &mut self,
        world: &mut World<'_>,
        number: usize,
    ) -> Result<(), Failure> {
        self.callbacks.served(world, self.generation, number)
    }

    /// The version of all messages.
    pub(super) const VERSION: u32 = VERSION_ONE;
}

/// Compares an RPC message that came inline, but for what was placed by a Write chunk, with what
/// the responder's upper layer has sent.
fn check_inline(
    world: &mut World<'_>,
    number: usize,
    (slot, header): (usize, usize),
    placed: u32,
) -> Result<(), Failure> {
    let wrong = Failure::ReplyBytes(number);
    let rpc = world.rpc(number)?;
    let stream = rpc.reply_stream();
    let message = world.messages.bytes(slot);
    let payload = message.get(header..).ok_or(wrong)?;
    if placed == 0 {
        let whole = short(payload.len()) == stream.total() && stream.matches(0, payload);
        return if whole { Ok(()) } else { Err(wrong) };
    }
    let (head, rest) = payload
        .split_at_checked(index(rpc.largest.head))
        .ok_or(wrong)?;
    let start = rpc.largest.head;
    let end = start.checked_add(placed).ok_or(wrong)?;
    let next = end.checked_next_multiple_of(4).ok_or(wrong)?;
    let whole = next.checked_add(short(rest.len())) == Some(stream.total());
    if !whole || !stream.matches(0, head) || !stream.matches(next, rest) {
        return Err(wrong);
    }
    let largest = rpc.largest.pages;
    let buffer = world.memory.buffer(number, Buffer::Reply, end)?;
    let pages = buffer.get(index(start)..).ok_or(wrong)?;
    let unused = largest.checked_sub(placed).ok_or(wrong)?;
    if !stream.matches(start, pages) || !world.memory.is_untouched(number, end, unused) {
        return Err(wrong);
    }
    Ok(())
}

/// Compares an RPC message in the Reply chunk with what the responder's upper layer has sent.
fn check_chunk(world: &mut World<'_>, number: usize, length: u64) -> Result<(), Failure> {
    let wrong = Failure::ReplyBytes(number);
    let stream = world.rpc(number)?.reply_stream();
    let length = u32::try_from(length).map_err(|_| wrong)?;
    let buffer = world.memory.buffer(number, Buffer::Reply, length)?;
    if length != stream.total() || !stream.matches(0, buffer) {
        return Err(wrong);
    }
    Ok(())
}
