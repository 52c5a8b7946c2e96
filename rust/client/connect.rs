// SPDX-License-Identifier: GPL-2.0

//! Makes a connection: one step after the other, in a worker that waits for the connection manager.

use super::{ep::Ep, limits::EpLimits, transport::RpcrdmaXprt};
use crate::{
    error::{cause_of_errno, connect_error, describe, Cause},
    proto::wire::private_data::{InlineSize, PrivateData, Thresholds},
    rdma::{Bound, CmEvent, CmHandler, CmId, DeviceName, Pd, QpOwner, Removal, RemovalNotice},
    sysctl, trace,
};
use kernel::{
    fmt, new_condvar, new_spinlock,
    prelude::*,
    str::CStr,
    sync::{atomic::Relaxed, Arc, CondVar, CondVarTimeoutResult, SpinLock},
    time::{msecs_to_jiffies, BootTime, Instant},
};

/// How long the connection manager may take for the address, and for the route, in milliseconds.
const RESOLVE_TIMEOUT_MS: u32 = 5_000;

/// The longest that one step of an attempt may take, in milliseconds. The mount can set less.
const STEP_TIMEOUT_MS: u32 = 30_000;

/// The steps that the connection manager completes.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    #[default]
    Nothing,
    Address,
    Route,
    Connected,
}

/// What the connection manager, the removal of the device, and completions report of one attempt
/// and the connection that it makes.
#[pin_data]
pub(super) struct EpState {
    #[pin]
    status: SpinLock<ConnectStatus>,
    #[pin]
    changed: CondVar,
    /// Last: this may be the last reference to the transport, and to the module.
    pub(super) transport: Arc<RpcrdmaXprt>,
}

#[derive(Default)]
struct ConnectStatus {
    /// The last step that is complete.
    reached: Step,
    /// Why the attempt failed or the connection ends: the first report, which alone counts.
    ended: Option<Failure>,
    /// Why the connection ends before the CM has reported that it is up.
    early: Option<Cause>,
    /// What the peer announced.
    peer: Option<PrivateData>,
}

impl EpState {
    fn new(transport: &Arc<RpcrdmaXprt>) -> Result<Arc<Self>> {
        let state = pin_init!(Self {
            status <- new_spinlock!(ConnectStatus::default(), "rpcrdma_ep_status"),
            changed <- new_condvar!("rpcrdma_ep_status"),
            transport: transport.clone(),
        });
        Arc::pin_init(state, GFP_KERNEL)
    }

    /// A step is complete.
    fn complete(&self, step: Step, peer: Option<PrivateData>) {
        let mut status = self.status.lock();
        if let (Step::Connected, Some(cause)) = (step, status.early) {
            status.ended.get_or_insert(cause.into());
        }
        if status.ended.is_none() {
            status.reached = step;
            status.peer = peer;
        }
        drop(status);
        self.changed.notify_all();
    }

    /// The attempt fails, or sunrpc is to close the connection. The lock keeps this from hitting
    /// the next connection, which is not made before [`Self::expect_end`].
    ///
    /// The CM reports [`Cause::Unreachable`] of an open connection whenever the neighbour entry of
    /// the peer changes or fails. If the path is broken, the device finds out with the next
    /// packets. It reports [`Cause::Rejected`] of one if the peer ends it before its own CM has
    /// heard that the handshake is over.
    fn end(&self, failure: Failure) {
        let mut status = self.status.lock();
        if status.ended.is_some() {
            return;
        }
        let is_open = status.reached == Step::Connected;
        status.ended = Some(match failure.cause {
            Cause::Unreachable if is_open => return,
            Cause::Rejected if is_open => Cause::Disconnected.into(),
            _ => failure,
        });
        if is_open {
            self.transport.xprt.force_disconnect();
        }
        drop(status);
        self.changed.notify_all();
    }

    /// Makes sunrpc close the connection for this cause, unless there was one before. If
    /// ESTABLISHED has not been handled yet, the attempt fails then.
    pub(super) fn force_disconnect(&self, cause: Cause) {
        let mut status = self.status.lock();
        if status.reached != Step::Connected {
            // Receives may be flushed before REJECTED, which has the cause.
            status.early.get_or_insert(cause);
            return;
        }
        drop(status);
        self.end(cause.into());
    }

    /// This end closes the connection: nothing has sunrpc close it after this call. Returns why.
    pub(super) fn expect_end(&self) -> Cause {
        let mut status = self.status.lock();
        // Without an earlier cause sunrpc has closed it: it was idle, or is unmounted.
        status.ended.get_or_insert(Cause::Closed.into()).cause
    }

    /// Waits until `step` is complete; returns what the peer announced by then.
    fn wait(&self, step: Step) -> Result<Option<PrivateData>, Failure> {
        let mut left = msecs_to_jiffies(STEP_TIMEOUT_MS).min(self.transport.xprt.connect_timeout());
        let mut status = self.status.lock();
        loop {
            if status.reached >= step {
                return Ok(status.peer);
            }
            if let Some(failure) = status.ended {
                return Err(failure);
            }
            if left == 0 {
                return Err(*status.ended.get_or_insert(Cause::TimedOut.into()));
            }
            left = match self.changed.wait_interruptible_timeout(&mut status, left) {
                CondVarTimeoutResult::Timeout => 0,
                CondVarTimeoutResult::Woken { jiffies }
                | CondVarTimeoutResult::Signal { jiffies } => jiffies,
            };
        }
    }
}

impl CmHandler for EpState {
    fn event(&self, event: CmEvent<'_>) {
        match event {
            CmEvent::AddressResolved => self.complete(Step::Address, None),
            CmEvent::RouteResolved => self.complete(Step::Route, None),
            CmEvent::Established(private_data) => {
                let peer = PrivateData::find(private_data).map(|(_, found)| found);
                self.complete(Step::Connected, peer);
            }
            CmEvent::Other { event, status, why } => {
                if let Some(cause) = Cause::of_event(event, status) {
                    self.end(Failure { cause, status, why });
                }
            }
        }
    }
}

/// The queue pair's device is being removed, which need not wait for the CM's retries.
impl Removal for EpState {
    fn removed(&self) {
        trace::xprtrdma_device_removal(self.transport.xprt.id());
        self.end(Cause::DeviceRemoved.into());
    }
}

/// Why an attempt failed.
#[derive(Clone, Copy)]
struct Failure {
    cause: Cause,
    /// The errno of the step that failed, or 0; of a rejection, the fabric's reason.
    status: i32,
    /// The fabric's words for a rejection, or the requirement that the device does not meet.
    why: Option<&'static CStr>,
}

impl Failure {
    /// A step of this end has failed with `error`.
    fn local(cause: Cause, error: Error) -> Self {
        Self {
            status: error.to_errno(),
            ..cause.into()
        }
    }
}

impl From<Cause> for Failure {
    fn from(cause: Cause) -> Self {
        Self {
            cause,
            status: 0,
            why: None,
        }
    }
}

/// For the log.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(describe(self.cause), f)?;
        match self.why {
            Some(why) if self.status > 0 => f.write_fmt(fmt!(" ({why}, status {})", self.status)),
            Some(why) => f.write_fmt(fmt!(" ({why})")),
            None if self.status < 0 => f.write_fmt(fmt!(" ({:?})", Error::from_errno(self.status))),
            None => Ok(()),
        }
    }
}

/// Makes a connection for `transport`.
///
/// # Errors
///
/// See [`connect_error`]. The first failure since the last Reply leaves a line in the log.
pub(super) fn connect_worker(transport: &Arc<RpcrdmaXprt>) -> Result<QpOwner<Ep>> {
    let begun = Instant::<BootTime>::now();
    let mut device = None;
    let failure = match attempt(transport, &mut device) {
        Ok(qp) => {
            trace::xprtrdma_connect(transport.xprt.id(), 0, c"");
            return Ok(qp);
        }
        Err(failure) => failure,
    };
    let Failure { cause, status, .. } = failure;
    if !transport.failure_logged.xchg(true, Relaxed) {
        let device = (device.as_ref()).map_or(&c"none" as &dyn fmt::Display, |name| name);
        let log = |text| (transport.xprt).log_warning(fmt!("device {device}: {text}"));
        match (cause, begun.elapsed().as_millis() / 1000) {
            (Cause::TimedOut, n) => log(fmt!("no answer for {n} s: check RDMA on the server")),
            (Cause::Unreachable, n @ 1..) => log(fmt!("no answer for {n} s: {failure}")),
            _ => log(fmt!("{failure}")),
        }
    }
    transport.connect_failed.lock().add(cause);
    let first = transport.xprt.connect_count() == 0;
    let error = connect_error(cause, first, status);
    trace::xprtrdma_connect(transport.xprt.id(), error.to_errno(), cause.name());
    Err(error)
}

/// Makes one attempt. `name` becomes that of the device, for the log.
fn attempt(
    transport: &Arc<RpcrdmaXprt>,
    name: &mut Option<DeviceName>,
) -> Result<QpOwner<Ep>, Failure> {
    let failed =
        |cause| move |error: Error| Failure::local(cause_of_errno(error.to_errno(), cause), error);
    let state = EpState::new(transport).map_err(failed(Cause::LocalResources))?;
    let id = CmId::new(transport.xprt.net(), state.clone());
    let id = id.map_err(failed(Cause::LocalResources))?;
    id.resolve_address(&transport.xprt.address(), RESOLVE_TIMEOUT_MS)
        .map_err(failed(Cause::AddressError))?;
    state.wait(Step::Address)?;
    let id = id.into_bound().ok_or(Cause::RouteError)?;
    *name = Some(id.device_name());
    id.resolve_route(RESOLVE_TIMEOUT_MS)
        .map_err(failed(Cause::RouteError))?;
    state.wait(Step::Route)?;
    let own = PrivateData {
        send: InlineSize::from_bytes(sysctl::max_inline_write()).unwrap_or(InlineSize::DEFAULT),
        receive: InlineSize::from_bytes(sysctl::max_inline_read()).unwrap_or(InlineSize::DEFAULT),
        remote_invalidation: true,
    };
    let qp = prepare(transport, &state, id, &own)?;
    let responder_resources = qp.pd().device().attributes().max_responder_resources;
    qp.connect(&own.encode(), responder_resources)
        .map_err(failed(Cause::ConnectError))?;
    let peer = state.wait(Step::Connected)?;
    qp.user().connected(own, peer, qp.id());
    Ok(qp)
}

/// Makes queues, buffers and MRs.
fn prepare(
    transport: &Arc<RpcrdmaXprt>,
    state: &Arc<EpState>,
    id: CmId<Bound>,
    own: &PrivateData,
) -> Result<QpOwner<Ep>, Failure> {
    let device = id.device().ok_or(Cause::DeviceRemoved)?;
    // The Receives are posted before anything is agreed on, and have to fit whatever that will be.
    let first = transport.servers.first_version(&transport.xprt);
    let least = Thresholds::DEFAULT.at_version(first.version).receive;
    let requests = transport.xprt.max_requests();
    let limits =
        EpLimits::new(&device.attributes(), requests, own, least).map_err(|why| Failure {
            why: Some(why),
            ..Cause::Incapable.into()
        })?;
    let make = || {
        let notice = RemovalNotice::new(&device, state.clone())?;
        let pd = Arc::new(Pd::new(device)?, GFP_KERNEL)?;
        let ep = Ep::new(&pd, &limits, first, state.clone(), notice)?;
        let qp = QpOwner::new(id, &pd, &limits.caps, ep)?;
        // A device that refuses Receives may be short of memory, too.
        qp.post_recvs(limits.caps.max_recv_wr, 1, GFP_KERNEL)
            .map_err(|_| ENOMEM)?;
        Ok(qp)
    };
    make().map_err(|error| {
        let cause = match error {
            // ETIMEDOUT: its firmware does not answer.
            ENOMEM | EAGAIN | ENOSPC | ETIMEDOUT => Cause::LocalResources,
            ENODEV => Cause::DeviceRemoved,
            _ => Cause::Incapable,
        };
        Failure::local(cause, error)
    })
}
