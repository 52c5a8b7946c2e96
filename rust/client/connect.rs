// SPDX-License-Identifier: GPL-2.0

//! Establishes a connection: carries out what
//! [`proto::requester::connection`](crate::proto::requester::connection) decides.
//!
//! The worker waits for the connection manager's events, one step after the other. The removal of
//! the device also wakes it, so that the removal need not wait for the CM's retries.

use super::{
    connection::Connection, failure::Detail, fence::shut_down, limits::Limits,
    marshal::LimitedSender, monitor::Monitor, regions::Regions, servers::Choice,
    transport::Transport,
};
use crate::{
    error::{connect_error, describe, handshake_error, Cause},
    proto::{
        requester::connection::{ConnectionAction, ConnectionEvent, Reason},
        wire::private_data::{InlineSize, PrivateData, Thresholds},
    },
    rdma::{
        Bound, CmId, ConnectParameters, Device, DeviceName, Pd, RemovalNotice, Sender, Unbound,
    },
    sunrpc::client::SendLock,
    sysctl, trace,
};
use kernel::{
    prelude::*,
    sync::{atomic::Relaxed, Arc},
};

/// How long the connection manager may take for the address, and for the route, in milliseconds.
const RESOLVE_TIMEOUT_MS: u32 = 5_000;

/// What an attempt has created so far.
enum Progressed {
    /// Nothing, or everything was released.
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
struct ConnectAttempt {
    monitor: Arc<Monitor>,
    made: Progressed,
    /// The device, once there is one, for the log.
    device: Option<DeviceName>,
    own: PrivateData,
    choice: Choice,
    /// What failed at this end.
    failed: Option<Detail>,
}

/// Makes a connection for `transport`.
///
/// # Errors
///
/// See [`connect_error`]. The first failure of a series leaves a line in the log.
pub(super) fn connect(
    transport: &Arc<Transport>,
    lock: &mut SendLock<'_>,
) -> Result<LimitedSender> {
    transport.ends.begin();
    let made = ConnectAttempt::new(transport)
        .map_err(|_| (Reason::LocalResources, 0))
        .and_then(|mut attempt| {
            attempt
                .run(transport, lock)
                .map_err(|reason| (reason, attempt.status()))
        });
    match made {
        Ok(sending) => {
            transport.failure_logged.store(false, Relaxed);
            trace::xprtrdma_connect(&transport.xprt, 0, 0);
            Ok(sending)
        }
        Err((reason, status)) => {
            transport.ends.fail(reason.into());
            let first = transport.xprt.connect_count() == 0;
            let error = connect_error(reason, first, status);
            let cause = Cause::from(reason).number();
            trace::xprtrdma_connect(&transport.xprt, error.to_errno(), cause);
            Err(error)
        }
    }
}

/// What this end announces (RFC 8797).
fn own_private_data() -> PrivateData {
    PrivateData {
        send: InlineSize::from_bytes(sysctl::max_inline_write()).unwrap_or(InlineSize::DEFAULT),
        receive: InlineSize::from_bytes(sysctl::max_inline_read()).unwrap_or(InlineSize::DEFAULT),
        remote_invalidation: true,
    }
}

impl ConnectAttempt {
    /// An attempt that has not begun.
    fn new(transport: &Arc<Transport>) -> Result<Self> {
        let monitor = Monitor::new(transport)?;
        let id = CmId::new(transport.xprt.net(), monitor.clone())?;
        Ok(Self {
            monitor,
            made: Progressed::Unbound(id),
            device: None,
            own: own_private_data(),
            choice: transport.servers.choose_version(&transport.xprt),
            failed: None,
        })
    }

    /// Makes the connection.
    fn run(
        &mut self,
        transport: &Arc<Transport>,
        lock: &mut SendLock<'_>,
    ) -> Result<LimitedSender, Reason> {
        self.monitor.report(ConnectionEvent::Start);
        loop {
            let action = self.monitor.next();
            match self.act(transport, lock, action) {
                Ok(Some(sending)) => return Ok(sending),
                Ok(None) => {}
                Err(reason) => {
                    self.log_failure(transport, reason);
                    self.abandon();
                    return Err(reason);
                }
            }
        }
    }

    /// Carries out one action; returns the sender once the connection is open.
    fn act(
        &mut self,
        transport: &Arc<Transport>,
        lock: &mut SendLock<'_>,
        action: ConnectionAction,
    ) -> Result<Option<LimitedSender>, Reason> {
        let failed = match action {
            ConnectionAction::ResolveAddress => {
                let started = match &self.made {
                    Progressed::Unbound(id) => {
                        id.resolve_address(&transport.xprt.address(), RESOLVE_TIMEOUT_MS)
                    }
                    _ => Err(EINVAL),
                };
                self.check(started, Reason::AddressError)
            }
            ConnectionAction::ResolveRoute => {
                let started = self.resolve_route();
                self.check(started, Reason::RouteError)
            }
            ConnectionAction::Prepare => self
                .prepare(transport, lock)
                .map(|()| self.monitor.report(ConnectionEvent::Prepared)),
            ConnectionAction::Connect => {
                let asked = self.ask(transport);
                asked.map_err(|error| {
                    self.failed = Some(Detail::Local(error));
                    handshake_error(error.to_errno())
                })
            }
            ConnectionAction::Open => {
                let sending = self.open().ok_or(Reason::LocalResources)?;
                return Ok(Some(sending));
            }
            ConnectionAction::Fail(reason) | ConnectionAction::Close(reason) => return Err(reason),
        };
        if let Err(reason) = failed {
            self.monitor.report(ConnectionEvent::Ended(reason));
        }
        Ok(None)
    }

    /// Records a step that failed for `reason`.
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
    fn prepare(
        &mut self,
        transport: &Arc<Transport>,
        lock: &mut SendLock<'_>,
    ) -> Result<(), Reason> {
        let device = self.made.id().and_then(CmId::device);
        let device = device.ok_or(Reason::DeviceRemoved)?;
        // The Receives are posted before anything is agreed on, and have to fit whatever that will
        // be.
        let least = Thresholds::DEFAULT.at_version(self.choice.first).receive;
        let halves = u32::from(transport.is_halved.load(Relaxed));
        let limits = Limits::new(
            &device.attributes(),
            transport.xprt.max_requests() >> halves,
            &self.own,
            least,
        )
        .map_err(|(reason, requirement)| {
            self.failed = Some(Detail::Device(requirement));
            reason
        })?;
        let notice = RemovalNotice::new(&device, self.monitor.clone());
        // The device has been removed in the meantime, or memory is short.
        let reason = match notice {
            Err(ENODEV) => Reason::DeviceRemoved,
            _ => Reason::LocalResources,
        };
        let notice = self.check(notice, reason)?;
        let made = self.make(transport, lock, device, notice, &limits);
        let is_permanent = |error: &Error| ![ENOMEM, EAGAIN, ENOSPC].contains(error);
        let reason = match &made {
            // Half of that was too much as well.
            Err(error) if is_permanent(error) && transport.is_halved.xchg(true, Relaxed) => {
                Reason::Incapable
            }
            _ => Reason::LocalResources,
        };
        self.check(made, reason)
    }

    fn make(
        &mut self,
        transport: &Arc<Transport>,
        lock: &mut SendLock<'_>,
        device: Arc<Device>,
        notice: RemovalNotice,
        limits: &Limits,
    ) -> Result {
        let pd = Arc::new(Pd::new(device)?, GFP_KERNEL)?;
        let regions = Regions::new(transport, &pd, limits)?;
        let fitted = (limits, self.choice);
        let context = Connection::new(transport, &regions, &self.monitor, notice, fitted);
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
    fn ask(&self, transport: &Transport) -> Result {
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
        // The worker makes them while the peer handles the request.
        let in_use = transport.regions_in_use.load(Relaxed);
        qp.context().regions.prepare(in_use);
        Ok(())
    }

    /// Takes over what both ends have agreed on. Returns `None` without a queue pair or a version.
    fn open(&mut self) -> Option<LimitedSender> {
        let Progressed::QueuePair(sender) = core::mem::replace(&mut self.made, Progressed::Nothing)
        else {
            return None;
        };
        let terms = (sender.qp().context()).agree(self.own, self.monitor.peer())?;
        Some(LimitedSender::new(sender, &terms))
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
    fn log_failure(&self, transport: &Transport, reason: Reason) {
        if transport.failure_logged.xchg(true, Relaxed) {
            return;
        }
        let (what, detail) = (describe(reason), self.detail(reason));
        match &self.device {
            Some(name) => (transport.xprt).log_warning(fmt!("device {name}: {what} ({detail})")),
            None => (transport.xprt).log_warning(fmt!("device none: {what} ({detail})")),
        }
    }

    /// The errno of the step that failed, or 0.
    fn status(&self) -> i32 {
        match self.failed {
            Some(Detail::Local(error)) => error.to_errno(),
            Some(_) => 0,
            None => self.monitor.failure().map_or(0, |report| report.status),
        }
    }

    /// What is known of a failure.
    fn detail(&self, reason: Reason) -> Detail {
        if let Some(failed) = self.failed {
            return failed;
        }
        let Some(report) = self.monitor.failure() else {
            return Detail::Silence;
        };
        let rejected = matches!(reason, Reason::Rejected | Reason::StaleConnection);
        let id = self.made.id().filter(|_| rejected);
        let words = id.map(|id| id.reject_message(report.status));
        Detail::Reported(report, words)
    }
}
