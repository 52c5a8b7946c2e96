// SPDX-License-Identifier: GPL-2.0

//! Handles what the connection manager, and the removal of the device, report about a connection.

use super::transport::Transport;
use crate::{
    error::{handshake_error, Cause},
    proto::{
        requester::connection::{ConnectionAction, ConnectionEvent, ConnectionState, Reason},
        wire::private_data::PrivateData,
    },
    rdma::{CmEvent, CmHandler, CmReport, Removal},
    trace,
};
use kernel::{
    new_condvar, new_spinlock,
    prelude::*,
    sync::{Arc, CondVar, SpinLock},
    time::msecs_to_jiffies,
};

/// The longest that one step of an attempt may take, in milliseconds. The mount can set less.
const STEP_TIMEOUT_MS: u32 = 30_000;

/// Follows one connection identifier.
#[pin_data]
pub(super) struct Monitor {
    #[pin]
    progress: SpinLock<Progress>,
    #[pin]
    changed: CondVar,
    /// Last: this may be the last reference to the transport, and to the module.
    transport: Arc<Transport>,
}

struct Progress {
    conn: ConnectionState,
    /// The next action of the worker.
    next: Option<ConnectionAction>,
    /// What the peer announced.
    peer: Option<PrivateData>,
    /// The connection manager's report of the failure.
    report: Option<CmReport>,
}

impl Monitor {
    /// A monitor of a connection that has not been requested yet.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new(transport: &Arc<Transport>) -> Result<Arc<Self>> {
        Arc::pin_init(
            try_pin_init!(Self {
                progress <- new_spinlock!(Progress {
                    conn: ConnectionState::new(),
                    next: None,
                    peer: None,
                    report: None,
                }, "rpcrdma_progress"),
                changed <- new_condvar!("rpcrdma_progress"),
                transport: transport.clone(),
            }? Error),
            GFP_KERNEL,
        )
    }

    /// Passes an event to the state machine, and the resulting action to the worker, or to sunrpc
    /// if the worker has opened the connection.
    pub(super) fn report(&self, event: ConnectionEvent) {
        let mut progress = self.progress.lock();
        if let Some(action) = progress.conn.handle(event) {
            let not_done = progress.next.replace(action);
            if let (ConnectionAction::Close(reason), None) = (action, not_done) {
                self.transport.end(reason.into());
            }
        }
        drop(progress);
        self.changed.notify_all();
    }

    /// Has sunrpc close the connection, unless it is not open or is being closed. The lock keeps
    /// this from hitting the next connection, which is not made before [`Self::expect_end`].
    pub(super) fn end(&self, cause: Cause) {
        let mut progress = self.progress.lock();
        if progress.conn.close() {
            self.transport.end(cause);
        }
    }

    /// This end closes the connection: nothing has sunrpc close it after this call.
    pub(super) fn expect_end(&self) {
        self.progress.lock().conn.close();
    }

    /// What the peer announced, once the connection is established.
    pub(super) fn peer(&self) -> Option<PrivateData> {
        self.progress.lock().peer
    }

    /// The connection manager's report of the failure, if it reported one.
    pub(super) fn failure(&self) -> Option<CmReport> {
        self.progress.lock().report
    }

    /// Waits for the next action.
    pub(super) fn next(&self) -> ConnectionAction {
        let mut left = msecs_to_jiffies(STEP_TIMEOUT_MS).min(self.transport.xprt.connect_timeout());
        let mut progress = self.progress.lock();
        loop {
            if let Some(action) = progress.next.take() {
                return action;
            }
            let timed_out = ConnectionEvent::Ended(Reason::TimedOut);
            match self.changed.wait_interruptible_timeout(&mut progress, left) {
                kernel::sync::CondVarTimeoutResult::Timeout => {
                    progress.next = progress.conn.handle(timed_out);
                    if progress.next.is_none() {
                        return ConnectionAction::Fail(Reason::TimedOut);
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
            CmEvent::AddressResolved => ConnectionEvent::AddressResolved,
            CmEvent::RouteResolved => ConnectionEvent::RouteResolved,
            CmEvent::Established(private_data) => {
                let peer = PrivateData::find(private_data).map(|(_, found)| found);
                self.progress.lock().peer = peer;
                ConnectionEvent::Established
            }
            CmEvent::Rejected { stale: true } => ConnectionEvent::Ended(Reason::StaleConnection),
            CmEvent::Rejected { stale: false } => ConnectionEvent::Ended(Reason::Rejected),
            CmEvent::AddressError => ConnectionEvent::Ended(Reason::AddressError),
            CmEvent::RouteError => ConnectionEvent::Ended(Reason::RouteError),
            CmEvent::Unreachable => ConnectionEvent::Ended(Reason::Unreachable),
            CmEvent::ConnectError => ConnectionEvent::Ended(handshake_error(report.status)),
            CmEvent::Disconnected => ConnectionEvent::Ended(Reason::Disconnected),
            CmEvent::DeviceRemoval => ConnectionEvent::Ended(Reason::DeviceRemoved),
            CmEvent::AddressChange => ConnectionEvent::Ended(Reason::AddressChanged),
            CmEvent::Other => return,
        };
        if let ConnectionEvent::Ended(_) = event {
            self.progress.lock().report.get_or_insert(report);
        }
        self.report(event);
    }
}

/// The queue pair's device is being removed.
impl Removal for Monitor {
    fn removed(&self) {
        trace::xprtrdma_device_removal(&self.transport.xprt);
        self.report(ConnectionEvent::Ended(Reason::DeviceRemoved));
    }
}
