// SPDX-License-Identifier: GPL-2.0

//! Makes a connection: one step after the other, in a worker that waits for the connection manager.

use super::{ep::Ep, limits::EpLimits, marshal::SendSide, mr_pool::MrPool, transport::Client};
use crate::{
    error::{connect_error, describe, handshake_error, Cause},
    proto::wire::private_data::{InlineSize, PrivateData, Thresholds},
    rdma::{
        Bound, CmEvent, CmHandler, CmId, CmReport, ConnectParam, DeviceName, Pd, QpOwner, Removal,
        RemovalNotice,
    },
    sunrpc::client::SendLock,
    sysctl, trace,
};
use kernel::{
    fmt, new_condvar, new_spinlock,
    prelude::*,
    str::CStr,
    sync::{atomic::Relaxed, Arc, CondVar, CondVarTimeoutResult, SpinLock},
    time::msecs_to_jiffies,
};

/// How long the connection manager may take for the address, and for the route, in milliseconds.
const RESOLVE_TIMEOUT_MS: u32 = 5_000;

/// The longest that one step of an attempt may take, in milliseconds. The mount can set less.
const STEP_TIMEOUT_MS: u32 = 30_000;

/// The steps that the connection manager completes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Nothing,
    Address,
    Route,
    Connected,
}

/// What the connection manager, the removal of the device, and completions report of one attempt
/// and the connection that it makes.
#[pin_data]
pub(super) struct CmWait {
    #[pin]
    link: SpinLock<Link>,
    #[pin]
    changed: CondVar,
    /// Last: this may be the last reference to the transport, and to the module.
    transport: Arc<Client>,
}

struct Link {
    /// The last step that is complete.
    reached: Step,
    /// Why the attempt failed or the connection ends: the first report, which alone counts.
    ended: Option<Failure>,
    /// What the peer announced.
    peer: Option<PrivateData>,
}

impl CmWait {
    fn new(transport: &Arc<Client>) -> Result<Arc<Self>> {
        Arc::pin_init(
            try_pin_init!(Self {
                link <- new_spinlock!(Link {
                    reached: Step::Nothing,
                    ended: None,
                    peer: None,
                }, "rpcrdma_link"),
                changed <- new_condvar!("rpcrdma_link"),
                transport: transport.clone(),
            }? Error),
            GFP_KERNEL,
        )
    }

    /// A step is complete.
    fn complete(&self, step: Step, peer: Option<PrivateData>) {
        let mut link = self.link.lock();
        if link.ended.is_none() {
            link.reached = step;
            link.peer = peer;
        }
        drop(link);
        self.changed.notify_all();
    }

    /// The attempt fails, or sunrpc is to close the connection. The lock keeps this from hitting
    /// the next connection, which is not made before [`Self::expect_end`].
    ///
    /// The CM reports [`Cause::Unreachable`] of an open connection whenever the neighbour entry of
    /// the peer changes or fails. If the path is broken, the device finds out with the next
    /// packets.
    fn end(&self, cause: Cause, detail: Detail) {
        let mut link = self.link.lock();
        let is_open = link.reached == Step::Connected;
        if link.ended.is_some() || is_open && cause == Cause::Unreachable {
            return;
        }
        link.ended = Some(Failure { cause, detail });
        if is_open {
            self.transport.force_disconnect(cause);
        }
        drop(link);
        self.changed.notify_all();
    }

    /// Has sunrpc close the connection, unless it is not open or is being closed.
    pub(super) fn close(&self, cause: Cause) {
        // Before that, the CM knows the cause.
        if self.link.lock().reached == Step::Connected {
            self.end(cause, Detail::Silence);
        }
    }

    /// This end closes the connection: nothing has sunrpc close it after this call.
    pub(super) fn expect_end(&self) {
        let (cause, detail) = (Cause::Closed, Detail::Silence);
        let mut link = self.link.lock();
        link.ended.get_or_insert(Failure { cause, detail });
    }

    /// Waits until `step` is complete; returns what the peer announced by then.
    fn wait(&self, step: Step) -> Result<Option<PrivateData>, Failure> {
        let mut left = msecs_to_jiffies(STEP_TIMEOUT_MS).min(self.transport.xprt.connect_timeout());
        let mut link = self.link.lock();
        loop {
            if link.reached >= step {
                return Ok(link.peer);
            }
            if let Some(failure) = link.ended {
                return Err(failure);
            }
            left = match self.changed.wait_interruptible_timeout(&mut link, left) {
                CondVarTimeoutResult::Timeout => {
                    return Err(*link.ended.get_or_insert(Cause::TimedOut.into()));
                }
                CondVarTimeoutResult::Woken { jiffies }
                | CondVarTimeoutResult::Signal { jiffies } => jiffies,
            };
        }
    }
}

impl CmHandler for CmWait {
    fn event(&self, event: CmEvent<'_>) {
        match event {
            CmEvent::AddressResolved => self.complete(Step::Address, None),
            CmEvent::RouteResolved => self.complete(Step::Route, None),
            CmEvent::Established(private_data) => {
                let peer = PrivateData::find(private_data).map(|(_, found)| found);
                self.complete(Step::Connected, peer);
            }
            CmEvent::Other(report) => {
                if let Some(cause) = Cause::of_event(&report) {
                    self.end(cause, Detail::Reported(report, None));
                }
            }
        }
    }
}

/// The queue pair's device is being removed, which need not wait for the CM's retries.
impl Removal for CmWait {
    fn removed(&self) {
        trace::xprtrdma_device_removal(&self.transport.xprt);
        self.end(Cause::DeviceRemoved, Detail::Silence);
    }
}

/// Why an attempt failed.
#[derive(Clone, Copy)]
struct Failure {
    cause: Cause,
    detail: Detail,
}

impl Failure {
    /// Makes the failure of a step of this end from its error.
    fn local(cause: Cause) -> impl Fn(Error) -> Self {
        move |error| Self {
            cause,
            detail: Detail::Local(error),
        }
    }
}

impl From<Cause> for Failure {
    fn from(cause: Cause) -> Self {
        let detail = Detail::Silence;
        Self { cause, detail }
    }
}

/// What explains a failure, beyond its cause.
#[derive(Clone, Copy)]
enum Detail {
    /// A requirement that the device does not meet.
    Device(&'static str),
    /// A local step failed.
    Local(Error),
    /// The connection manager has reported it; for a rejection, with the reason as text.
    Reported(CmReport, Option<&'static CStr>),
    /// No event was reported.
    Silence,
}

impl Detail {
    /// The errno of the step that failed, or 0; of a rejection, the fabric's reason.
    fn status(&self) -> i32 {
        match self {
            Self::Local(error) => error.to_errno(),
            Self::Reported(report, _) => report.status,
            Self::Device(_) | Self::Silence => 0,
        }
    }
}

impl fmt::Display for Detail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |text: &'static CStr| text.to_str().unwrap_or("?");
        match self {
            Self::Device(requirement) => f.write_str(requirement),
            Self::Local(error) => write!(f, "error {}", error.to_errno()),
            Self::Reported(CmReport { name, status, .. }, words) => {
                write!(f, "CM event '{}', status {status}", text(name))?;
                words.map_or(Ok(()), |words| write!(f, ": {}", text(words)))
            }
            Self::Silence => f.write_str("no CM event"),
        }
    }
}

/// Makes a connection for `transport`.
///
/// # Errors
///
/// See [`connect_error`]. The first failure of a series leaves a line in the log.
pub(super) fn connect_worker(transport: &Arc<Client>, lock: &mut SendLock<'_>) -> Result<SendSide> {
    transport.ends.lock().pending = None;
    let mut device = None;
    let Failure { cause, detail } = match attempt(transport, lock, &mut device) {
        Ok(sending) => {
            transport.failure_logged.store(false, Relaxed);
            trace::xprtrdma_connect(&transport.xprt, 0, 0);
            return Ok(sending);
        }
        Err(failure) => failure,
    };
    if !transport.failure_logged.xchg(true, Relaxed) {
        let (what, log) = (describe(cause), |text| transport.xprt.log_warning(text));
        match device {
            Some(name) => log(fmt!("device {name}: {what} ({detail})")),
            None => log(fmt!("device none: {what} ({detail})")),
        }
    }
    transport.ends.lock().failed.add(cause);
    let first = transport.xprt.connect_count() == 0;
    let error = connect_error(cause, first, detail.status());
    trace::xprtrdma_connect(&transport.xprt, error.to_errno(), cause.number());
    Err(error)
}

/// Makes one attempt. `name` becomes that of the device, for the log.
fn attempt(
    transport: &Arc<Client>,
    lock: &mut SendLock<'_>,
    name: &mut Option<DeviceName>,
) -> Result<SendSide, Failure> {
    let no_resources = Failure::local(Cause::LocalResources);
    let wait = CmWait::new(transport).map_err(&no_resources)?;
    let id = CmId::new(transport.xprt.net(), wait.clone()).map_err(no_resources)?;
    id.resolve_address(&transport.xprt.address(), RESOLVE_TIMEOUT_MS)
        .map_err(Failure::local(Cause::AddressError))?;
    wait.wait(Step::Address)?;
    let no_route = Failure::local(Cause::RouteError);
    let id = id.into_bound().map_err(|_| no_route(ENODEV))?;
    *name = Some(id.device_name());
    id.resolve_route(RESOLVE_TIMEOUT_MS).map_err(no_route)?;
    wait.wait(Step::Route)?;
    let own = PrivateData {
        send: InlineSize::from_bytes(sysctl::max_inline_write()).unwrap_or(InlineSize::DEFAULT),
        receive: InlineSize::from_bytes(sysctl::max_inline_read()).unwrap_or(InlineSize::DEFAULT),
        remote_invalidation: true,
    };
    let qp = prepare(transport, lock, &wait, id, &own)?;
    qp.connect(&ConnectParam {
        private_data: &own.encode(),
        responder_resources: qp.pd().device().attributes().max_responder_resources,
        // This end never issues RDMA Reads.
        initiator_depth: 0,
    })
    .map_err(|error| Failure::local(handshake_error(error.to_errno()))(error))?;
    let peer = wait.wait(Step::Connected).map_err(|mut failure| {
        if let Detail::Reported(report, words) = &mut failure.detail {
            let is_rejected = matches!(failure.cause, Cause::Rejected | Cause::StaleConnection);
            *words = is_rejected.then(|| qp.id().reject_message(report.status));
        }
        failure
    })?;
    let terms = qp.user().connected(own, peer, qp.id());
    let terms = terms.ok_or(Cause::LocalResources)?;
    Ok(SendSide { qp, terms })
}

/// Makes queues, buffers and MRs.
fn prepare(
    transport: &Arc<Client>,
    lock: &mut SendLock<'_>,
    wait: &Arc<CmWait>,
    id: CmId<Bound>,
    own: &PrivateData,
) -> Result<QpOwner<Ep>, Failure> {
    let device = id.device().ok_or(Cause::DeviceRemoved)?;
    // The Receives are posted before anything is agreed on, and have to fit whatever that will be.
    let choice = transport.servers.choose_version(&transport.xprt);
    let least = Thresholds::DEFAULT.at_version(choice.first).receive;
    let halves = u32::from(transport.is_halved.load(Relaxed));
    let limits = EpLimits::new(
        &device.attributes(),
        transport.xprt.max_requests() >> halves,
        own,
        least,
    )
    .map_err(|requirement| Failure {
        cause: Cause::Incapable,
        detail: Detail::Device(requirement),
    })?;
    let notice = RemovalNotice::new(&device, wait.clone()).map_err(|error| {
        Failure::local(match error {
            ENODEV => Cause::DeviceRemoved,
            _ => Cause::LocalResources,
        })(error)
    })?;
    // Before the first Reply can come.
    lock.reset_credits(1);
    let make = || {
        let pd = Arc::new(Pd::new(device)?, GFP_KERNEL)?;
        let mrs = MrPool::new(transport, &pd, &limits)?;
        let ep = Ep::new(transport, mrs, wait, notice, (&limits, choice))?;
        let qp = QpOwner::new(id, &pd, &limits.caps, ep)?;
        // A device that refuses Receives may be short of memory, too.
        qp.post_recvs(limits.caps.receives, 1, GFP_KERNEL)
            .map_err(|_| ENOMEM)?;
        Ok(qp)
    };
    make().map_err(|error| {
        let is_permanent = ![ENOMEM, EAGAIN, ENOSPC].contains(&error);
        // Half of that was too much as well.
        let cause = if is_permanent && transport.is_halved.xchg(true, Relaxed) {
            Cause::Incapable
        } else {
            Cause::LocalResources
        };
        Failure::local(cause)(error)
    })
}
