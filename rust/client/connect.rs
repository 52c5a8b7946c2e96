// SPDX-License-Identifier: GPL-2.0

//! Making a connection: carries out what [`proto::conn`](crate::proto::conn) decides.
//!
//! The worker waits for the connection manager's events, one step after the other. It is woken by
//! the device's removal as well, so that the removal need not wait for the CM's retries.

use super::{
    connection::Connection,
    limits::{self, Limits},
    regions::Regions,
    Client,
};
use crate::{
    error::{connect_error, describe, Cause},
    proto::{
        conn::{Action, Conn, Event, Reason},
        private_data::{negotiate, InlineSize, PrivateData},
    },
    rdma::{CmEvent, CmHandler, CmId, Pd, QueuePair},
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
    /// The fabric's reason for a rejection.
    reject_status: Option<i32>,
}

impl Monitor {
    fn new(client: &Arc<Client>) -> Result<Arc<Self>> {
        Arc::pin_init(
            try_pin_init!(Self {
                progress <- new_spinlock!(Progress {
                    conn: Conn::new(),
                    next: None,
                    peer: None,
                    reject_status: None,
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
    fn event(&self, event: CmEvent<'_>) {
        let event = match event {
            CmEvent::AddressResolved => Event::AddressResolved,
            CmEvent::RouteResolved => Event::RouteResolved,
            CmEvent::Established(private_data) => {
                let peer = PrivateData::find(private_data).map(|(_, found)| found);
                self.progress.lock().peer = peer;
                Event::Established
            }
            CmEvent::Rejected { status, stale } => {
                self.progress.lock().reject_status = Some(status);
                Event::Ended(if stale {
                    Reason::StaleConnection
                } else {
                    Reason::Rejected
                })
            }
            CmEvent::AddressError => Event::Ended(Reason::AddressError),
            CmEvent::RouteError => Event::Ended(Reason::RouteError),
            CmEvent::Unreachable => Event::Ended(Reason::Unreachable),
            CmEvent::ConnectError => Event::Ended(Reason::ConnectError),
            CmEvent::Disconnected => Event::Ended(Reason::Disconnected),
            CmEvent::DeviceRemoval => {
                trace::xprtrdma_device_removal(&self.client.xprt);
                Event::Ended(Reason::DeviceRemoved)
            }
            CmEvent::AddressChange => Event::Ended(Reason::AddressChanged),
            CmEvent::Other => return,
        };
        self.report(event);
    }
}

/// One attempt: its identifier, and the queue pair once there is one.
struct Attempt {
    monitor: Arc<Monitor>,
    id: Arc<CmId>,
    qp: Option<Arc<QueuePair<Connection>>>,
    own: PrivateData,
    /// What about the device does not fit.
    obstacle: Option<&'static str>,
}

/// Makes a connection for `client`.
///
/// # Errors
///
/// See [`connect_error`]. The first failure of a series leaves a line in the log.
pub(super) fn connect(client: &Arc<Client>) -> Result {
    let short = |_| connect_error(Reason::LocalResources, false);
    let monitor = Monitor::new(client).map_err(short)?;
    let id = CmId::new(client.xprt.net(), monitor.clone())
        .and_then(|id| Ok(Arc::new(id, GFP_KERNEL)?))
        .map_err(short)?;
    let mut attempt = Attempt {
        monitor,
        id,
        qp: None,
        own: own_private_data(),
        obstacle: None,
    };
    attempt.monitor.report(Event::Start);
    loop {
        let action = attempt.monitor.next();
        match attempt.act(client, action) {
            Ok(true) => {
                client.failure_logged.store(false, Relaxed);
                trace::xprtrdma_connect(&client.xprt, None);
                return Ok(());
            }
            Ok(false) => {}
            Err(reason) => {
                client.ends.fail(reason.into());
                attempt.log_failure(client, reason);
                let first = client.xprt.connect_count() == 0;
                let error = connect_error(reason, first);
                trace::xprtrdma_connect(&client.xprt, Some((error, reason.into())));
                return Err(error);
            }
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
    /// Carries one action out; whether the connection is open.
    fn act(&mut self, client: &Arc<Client>, action: Action) -> Result<bool, Reason> {
        let failed = match action {
            Action::ResolveAddress => {
                let peer = client.xprt.address();
                self.id
                    .resolve_address(&peer, RESOLVE_TIMEOUT_MS)
                    .err()
                    .map(|_| Reason::AddressError)
            }
            Action::ResolveRoute => self
                .id
                .resolve_route(RESOLVE_TIMEOUT_MS)
                .err()
                .map(|_| Reason::RouteError),
            Action::Prepare => match self.prepare(client) {
                Ok(()) => {
                    self.monitor.report(Event::Prepared);
                    None
                }
                Err(reason) => Some(reason),
            },
            Action::Connect => self.ask().err().map(|_| Reason::ConnectError),
            Action::Open => {
                self.open(client);
                return Ok(true);
            }
            Action::Fail(reason) | Action::Close(reason) => {
                self.abandon();
                return Err(reason);
            }
        };
        if let Some(reason) = failed {
            self.monitor.report(Event::Ended(reason));
        }
        Ok(false)
    }

    /// Makes queues, buffers and regions.
    fn prepare(&mut self, client: &Arc<Client>) -> Result<(), Reason> {
        let device = self.id.device().ok_or(Reason::AddressError)?;
        let limits = Limits::new(&device.attributes(), client.xprt.max_requests(), &self.own)
            .map_err(|(reason, obstacle)| {
                self.obstacle = Some(obstacle);
                reason
            })?;
        let qp = self
            .make(client, &limits)
            .map_err(|_| Reason::LocalResources)?;
        self.qp = Some(qp);
        Ok(())
    }

    fn make(&self, client: &Arc<Client>, limits: &Limits) -> Result<Arc<QueuePair<Connection>>> {
        let pd = Arc::new(Pd::new(self.id.clone())?, GFP_KERNEL)?;
        let regions = Regions::new(client, &pd, limits.pages_per_region, limits.initial_regions)?;
        let context = Connection::new(client, &regions, &self.monitor, limits);
        // Before the first Reply can come.
        client.xprt.reset_credits(1);
        QueuePair::new(&pd, &limits.sizes, context)
    }

    /// Asks the peer for the connection.
    fn ask(&self) -> Result {
        let reads = self
            .id
            .device()
            .map_or(0, |device| device.attributes().max_responder_resources);
        self.id.connect(&self.own.encode(), reads)
    }

    /// Lets Calls through.
    fn open(&mut self, client: &Arc<Client>) {
        let Some(qp) = self.qp.take() else {
            return;
        };
        let thresholds = negotiate(self.own, self.monitor.progress.lock().peer);
        qp.context().agree(&self.own, &thresholds);
        let backward = thresholds.send.min(thresholds.receive);
        client
            .backward_payload
            .store(limits::backward_payload(backward), Relaxed);
        client.ends.begin();
        let earlier = client.current.lock().replace(qp);
        drop(earlier);
    }

    /// Undoes what was made.
    fn abandon(&mut self) {
        if let Some(qp) = self.qp.take() {
            qp.context().shut_down(&qp);
        }
    }

    /// One line for a series of failures, with device, event and reason.
    fn log_failure(&self, client: &Client, reason: Reason) {
        if client.failure_logged.xchg(true, Relaxed) {
            return;
        }
        let device = self.id.device().map(|device| device.name());
        let device = device.and_then(|name| name.to_str().ok()).unwrap_or("none");
        let detail = match (self.obstacle, self.monitor.progress.lock().reject_status) {
            (Some(obstacle), _) => obstacle,
            (None, Some(status)) => self.id.reject_message(status).to_str().unwrap_or(""),
            (None, None) => "",
        };
        client.xprt.log_warning(fmt!(
            "device {device}: {} ({reason:?}{}{detail})",
            describe(reason),
            if detail.is_empty() { "" } else { ": " }
        ));
    }
}
