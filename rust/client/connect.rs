// SPDX-License-Identifier: GPL-2.0

//! Making a connection: carries out what [`proto::requester::connection`](crate::proto::requester::connection) decides.
//!
//! The worker waits for the connection manager's events, one step after the other. It is woken by
//! the device's removal as well, so that the removal need not wait for the CM's retries.

use super::{
    connection::{shut_down, Connection},
    failure::Detail,
    limits::{self, Limits},
    marshal::Sending,
    regions::Regions,
    Client,
};
use crate::{
    error::{connect_error, describe, Cause},
    proto::{
        requester::connection::{
            ConnectionAction as Action, ConnectionEvent as Event, ConnectionState as Conn, Reason,
        },
        wire::private_data::{InlineSize, PrivateData},
    },
    rdma::{
        Bound, CmEvent, CmHandler, CmId, CmReport, ConnectParameters, Device, DeviceName, Pd,
        Removal, RemovalNotice, Sender, Unbound,
    },
    sunrpc::client::SendLock,
    sysctl, trace,
};
use kernel::{
    new_condvar, new_spinlock,
    prelude::*,
    sync::{
        atomic::{Atomic, Relaxed},
        Arc, CondVar, SpinLock,
    },
    time::msecs_to_jiffies,
};

/// How long the connection manager may take for the address, and for the route, in milliseconds.
const RESOLVE_TIMEOUT_MS: u32 = 5_000;

/// How long one step of an attempt may take at most, in milliseconds. The mount can set less.
const STEP_TIMEOUT_MS: u32 = 30_000;

/// Follows one connection identifier.
#[pin_data]
pub(super) struct Monitor {
    #[pin]
    progress: SpinLock<Progress>,
    #[pin]
    changed: CondVar,
    /// Whether the end of the connection was asked for already.
    ending: Atomic<bool>,
    /// Last: it may be the last reference to the transport, and to the module.
    client: Arc<Client>,
}

struct Progress {
    conn: Conn,
    /// What the worker has to do next.
    next: Option<Action>,
    /// What the peer said about itself.
    peer: Option<PrivateData>,
    /// What the connection manager has said of the failure.
    report: Option<CmReport>,
}

impl Monitor {
    fn new(client: &Arc<Client>) -> Result<Arc<Self>> {
        Arc::pin_init(
            try_pin_init!(Self {
                progress <- new_spinlock!(Progress {
                    conn: Conn::new(),
                    next: None,
                    peer: None,
                    report: None,
                }, "rpcrdma_progress"),
                changed <- new_condvar!("rpcrdma_progress"),
                ending: Atomic::new(false),
                client: client.clone(),
            }? Error),
            GFP_KERNEL,
        )
    }

    /// Reports an event to the state machine, and what follows to the worker.
    fn report(&self, event: Event) {
        let mut progress = self.progress.lock();
        let action = progress.conn.handle(event);
        if action.is_some() {
            progress.next = action;
        }
        drop(progress);
        if let Some(Action::Close(reason)) = action {
            self.end(reason.into());
        }
        self.changed.notify_all();
    }

    /// Has the connection closed, unless that was asked for already.
    pub(super) fn end(&self, cause: Cause) {
        if !self.ending.xchg(true, Relaxed) {
            self.client.end(cause);
        }
    }

    /// Says that this end closes the connection, so that nobody need ask for it.
    pub(super) fn expect_end(&self) {
        self.ending.store(true, Relaxed);
    }

    /// Waits for the next thing to do.
    fn next(&self) -> Action {
        let mut left = msecs_to_jiffies(STEP_TIMEOUT_MS).min(self.client.xprt.connect_timeout());
        let mut progress = self.progress.lock();
        loop {
            if let Some(action) = progress.next.take() {
                return action;
            }
            let timed_out = Event::Ended(Reason::TimedOut);
            match self.changed.wait_interruptible_timeout(&mut progress, left) {
                kernel::sync::CondVarTimeoutResult::Timeout => {
                    progress.next = progress.conn.handle(timed_out);
                    if progress.next.is_none() {
                        return Action::Fail(Reason::TimedOut);
                    }
                }
                kernel::sync::CondVarTimeoutResult::Woken { jiffies }
                | kernel::sync::CondVarTimeoutResult::Signal { jiffies } => left = jiffies,
            }
        }
    }
}

impl CmHandler for Monitor {
    fn event(&self, event: CmEvent<'_>, report: CmReport) {
        let event = match event {
            CmEvent::AddressResolved => Event::AddressResolved,
            CmEvent::RouteResolved => Event::RouteResolved,
            CmEvent::Established(private_data) => {
                let peer = PrivateData::find(private_data).map(|(_, found)| found);
                self.progress.lock().peer = peer;
                Event::Established
            }
            CmEvent::Rejected { stale: true } => Event::Ended(Reason::StaleConnection),
            CmEvent::Rejected { stale: false } => Event::Ended(Reason::Rejected),
            CmEvent::AddressError => Event::Ended(Reason::AddressError),
            CmEvent::RouteError => Event::Ended(Reason::RouteError),
            CmEvent::Unreachable => Event::Ended(Reason::Unreachable),
            CmEvent::ConnectError => Event::Ended(Reason::ConnectError),
            CmEvent::Disconnected => Event::Ended(Reason::Disconnected),
            CmEvent::DeviceRemoval => Event::Ended(Reason::DeviceRemoved),
            CmEvent::AddressChange => Event::Ended(Reason::AddressChanged),
            CmEvent::Other => return,
        };
        if let Event::Ended(_) = event {
            self.progress.lock().report.get_or_insert(report);
        }
        self.report(event);
    }
}

/// The queue pair's device goes away.
impl Removal for Monitor {
    fn removed(&self) {
        trace::xprtrdma_device_removal(&self.client.xprt);
        self.report(Event::Ended(Reason::DeviceRemoved));
    }
}

/// What an attempt has made so far.
enum Progressed {
    /// Nothing, or what was made is gone.
    Nothing,
    /// An identifier.
    Unbound(CmId<Unbound>),
    /// An identifier that is bound to a device.
    Bound(CmId<Bound>),
    /// A queue pair, which has the identifier.
    QueuePair(Sender<Connection>),
}

impl Progressed {
    /// The identifier, once it is bound to a device.
    fn id(&self) -> Option<&CmId<Bound>> {
        match self {
            Self::Nothing | Self::Unbound(_) => None,
            Self::Bound(id) => Some(id),
            Self::QueuePair(sender) => Some(sender.qp().qp().id()),
        }
    }
}

/// One attempt.
struct Attempt {
    monitor: Arc<Monitor>,
    made: Progressed,
    /// The device, once there is one, for the log.
    device: Option<DeviceName>,
    own: PrivateData,
    /// What failed at this end.
    failed: Option<Detail>,
}

/// Makes a connection for `client`.
///
/// # Errors
///
/// See [`connect_error`]. The first failure of a series leaves a line in the log.
pub(super) fn connect(client: &Arc<Client>, lock: &mut SendLock<'_>) -> Result {
    client.ends.begin();
    let made = Attempt::new(client)
        .map_err(|_| (Reason::LocalResources, 0))
        .and_then(|mut attempt| {
            attempt
                .run(client, lock)
                .map_err(|reason| (reason, attempt.status()))
        });
    match made {
        Ok(()) => {
            client.failure_logged.store(false, Relaxed);
            trace::xprtrdma_connect(&client.xprt, 0, 0);
            Ok(())
        }
        Err((reason, status)) => {
            client.ends.fail(reason.into());
            let first = client.xprt.connect_count() == 0;
            let error = connect_error(reason, first, status);
            let cause = Cause::from(reason).number();
            trace::xprtrdma_connect(&client.xprt, error.to_errno(), cause);
            Err(error)
        }
    }
}

/// What this end says about itself (RFC 8797).
fn own_private_data() -> PrivateData {
    PrivateData {
        send: InlineSize::from_bytes(sysctl::max_inline_write()).unwrap_or(InlineSize::DEFAULT),
        receive: InlineSize::from_bytes(sysctl::max_inline_read()).unwrap_or(InlineSize::DEFAULT),
        remote_invalidation: true,
    }
}

impl Attempt {
    /// An attempt that has not begun.
    fn new(client: &Arc<Client>) -> Result<Self> {
        let monitor = Monitor::new(client)?;
        let id = CmId::new(client.xprt.net(), monitor.clone())?;
        Ok(Self {
            monitor,
            made: Progressed::Unbound(id),
            device: None,
            own: own_private_data(),
            failed: None,
        })
    }

    /// Makes the connection.
    fn run(&mut self, client: &Arc<Client>, lock: &mut SendLock<'_>) -> Result<(), Reason> {
        self.monitor.report(Event::Start);
        loop {
            let action = self.monitor.next();
            match self.act(client, lock, action) {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(reason) => {
                    self.log_failure(client, reason);
                    self.abandon();
                    return Err(reason);
                }
            }
        }
    }

    /// Carries one action out; whether the connection is open.
    fn act(
        &mut self,
        client: &Arc<Client>,
        lock: &mut SendLock<'_>,
        action: Action,
    ) -> Result<bool, Reason> {
        let failed = match action {
            Action::ResolveAddress => {
                let started = match &self.made {
                    Progressed::Unbound(id) => {
                        id.resolve_address(&client.xprt.address(), RESOLVE_TIMEOUT_MS)
                    }
                    _ => Err(EINVAL),
                };
                self.check(started, Reason::AddressError)
            }
            Action::ResolveRoute => {
                let started = self.resolve_route();
                self.check(started, Reason::RouteError)
            }
            Action::Prepare => self
                .prepare(client, lock)
                .map(|()| self.monitor.report(Event::Prepared)),
            Action::Connect => {
                let asked = self.ask(client);
                self.check(asked, Reason::ConnectError)
            }
            Action::Open => {
                self.open(client, lock);
                return Ok(true);
            }
            Action::Fail(reason) | Action::Close(reason) => return Err(reason),
        };
        if let Err(reason) = failed {
            self.monitor.report(Event::Ended(reason));
        }
        Ok(false)
    }

    /// Takes note of a step that failed for `reason`.
    fn check<T>(&mut self, step: Result<T>, reason: Reason) -> Result<T, Reason> {
        step.map_err(|error| {
            self.failed = Some(Detail::Local(error));
            reason
        })
    }

    /// Starts to resolve the route from the device that the address has led to.
    fn resolve_route(&mut self) -> Result {
        let made = core::mem::replace(&mut self.made, Progressed::Nothing);
        self.made = match made {
            Progressed::Unbound(id) => match id.into_bound() {
                Ok(id) => {
                    self.device = Some(id.device_name());
                    Progressed::Bound(id)
                }
                Err(id) => Progressed::Unbound(id),
            },
            made => made,
        };
        self.made
            .id()
            .ok_or(ENODEV)?
            .resolve_route(RESOLVE_TIMEOUT_MS)
    }

    /// Makes queues, buffers and regions.
    fn prepare(&mut self, client: &Arc<Client>, lock: &mut SendLock<'_>) -> Result<(), Reason> {
        let device = self.made.id().and_then(CmId::device);
        let device = device.ok_or(Reason::DeviceRemoved)?;
        let limits = Limits::new(&device.attributes(), client.xprt.max_requests(), &self.own)
            .map_err(|(reason, requirement)| {
                self.failed = Some(Detail::Device(requirement));
                reason
            })?;
        let notice = RemovalNotice::new(&device, self.monitor.clone());
        // It has gone meanwhile, or memory is short.
        let reason = match notice {
            Err(ENODEV) => Reason::DeviceRemoved,
            _ => Reason::LocalResources,
        };
        let notice = self.check(notice, reason)?;
        let made = self.make(client, lock, device, notice, &limits);
        // What its end flushes is no news.
        let made = made.inspect_err(|_| self.monitor.expect_end());
        self.check(made, Reason::LocalResources)
    }

    fn make(
        &mut self,
        client: &Arc<Client>,
        lock: &mut SendLock<'_>,
        device: Arc<Device>,
        notice: RemovalNotice,
        limits: &Limits,
    ) -> Result {
        let pd = Arc::new(Pd::new(device)?, GFP_KERNEL)?;
        let regions = Regions::new(client, &pd, limits)?;
        let context = Connection::new(client, &regions, &self.monitor, notice, limits);
        // Before the first Reply can come.
        lock.reset_credits(1);
        let Progressed::Bound(id) = core::mem::replace(&mut self.made, Progressed::Nothing) else {
            return Err(EINVAL);
        };
        let sender = Sender::create(id, &pd, &limits.sizes, context)?;
        self.made = Progressed::QueuePair(sender);
        Ok(())
    }

    /// Asks the peer for the connection. May have the worker make regions.
    fn ask(&self, client: &Client) -> Result {
        let Progressed::QueuePair(sender) = &self.made else {
            return Err(EINVAL);
        };
        let qp = sender.qp();
        let attributes = qp.qp().pd().device().attributes();
        qp.qp().connect(&ConnectParameters {
            private_data: &self.own.encode(),
            responder_resources: attributes.max_responder_resources,
            // This end never issues RDMA Reads.
            initiator_depth: 0,
        })?;
        // While the peer thinks about it.
        let in_use = client.regions_in_use.load(Relaxed);
        qp.context().regions.prepare(in_use);
        Ok(())
    }

    /// Lets Calls through.
    fn open(&mut self, client: &Client, lock: &mut SendLock<'_>) {
        let Progressed::QueuePair(sender) = core::mem::replace(&mut self.made, Progressed::Nothing)
        else {
            return;
        };
        let qp = sender.qp().clone();
        let peer = self.monitor.progress.lock().peer;
        let thresholds = qp.context().agree(self.own, peer);
        let backward = thresholds.send.min(thresholds.receive);
        client
            .backward_payload
            .store(limits::backward_payload(backward), Relaxed);
        drop(client.current.replace(lock, Some(qp)));
        let sending = Sending::new(sender, &thresholds);
        drop(client.sending.replace(lock, Some(sending)));
    }

    /// Undoes what was made.
    fn abandon(&mut self) {
        if let Progressed::QueuePair(sender) =
            core::mem::replace(&mut self.made, Progressed::Nothing)
        {
            shut_down(sender);
        }
    }

    /// One line for a series of failures, with device, event and reason.
    fn log_failure(&self, client: &Client, reason: Reason) {
        if client.failure_logged.xchg(true, Relaxed) {
            return;
        }
        let (what, detail) = (describe(reason), self.detail(reason));
        match &self.device {
            Some(name) => (client.xprt).log_warning(fmt!("device {name}: {what} ({detail})")),
            None => (client.xprt).log_warning(fmt!("device none: {what} ({detail})")),
        }
    }

    /// The errno of the step that failed, or 0.
    fn status(&self) -> i32 {
        match self.failed {
            Some(Detail::Local(error)) => error.to_errno(),
            Some(_) => 0,
            None => {
                let report = self.monitor.progress.lock().report;
                report.map_or(0, |report| report.status)
            }
        }
    }

    /// What is known of a failure.
    fn detail(&self, reason: Reason) -> Detail {
        if let Some(failed) = self.failed {
            return failed;
        }
        let Some(report) = self.monitor.progress.lock().report else {
            return Detail::Silence;
        };
        let rejected = matches!(reason, Reason::Rejected | Reason::StaleConnection);
        let id = self.made.id().filter(|_| rejected);
        let words = id.map(|id| id.reject_message(report.status));
        Detail::Reported(report, words)
    }
}
