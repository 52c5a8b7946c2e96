// SPDX-License-Identifier: GPL-2.0

//! The life of one connection at the end that initiates it, as a state machine.
//!
//! The transport reports what happens as an [`ConnectionEvent`], carries out the
//! [`ConnectionAction`] that it gets back, and changes no state in any other way. One
//! [`ConnectionState`] is one attempt: after its end a new one is made.

/// Why a connection ended, or was never made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The peer's address cannot be resolved to a local device.
    AddressError,
    /// There is no route to the peer.
    RouteError,
    /// The peer has no listener, or rejected the connection.
    Rejected,
    /// The peer still knows an earlier connection of ours.
    StaleConnection,
    /// The peer does not answer, or its path has changed.
    Unreachable,
    /// The connection handshake failed.
    ConnectError,
    /// The peer, or the fabric, ended the connection.
    Disconnected,
    /// The device is being removed.
    DeviceRemoved,
    /// The local address moved to another device.
    AddressChanged,
    /// Nothing happened for too long.
    TimedOut,
    /// The device cannot do what this transport needs.
    Incapable,
    /// Memory or another local resource is short.
    LocalResources,
}

/// What happened to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionEvent {
    /// The attempt begins.
    Start,
    /// The address is resolved.
    AddressResolved,
    /// The route is resolved.
    RouteResolved,
    /// Queues and buffers are ready, and Receives are posted.
    Prepared,
    /// The peer has accepted.
    Established,
    /// Something failed, or came to its end.
    Ended(Reason),
}

/// What the transport has to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionAction {
    /// Resolve the peer's address.
    ResolveAddress,
    /// Resolve the route.
    ResolveRoute,
    /// Make queues and buffers, and post Receives.
    Prepare,
    /// Ask the peer for the connection.
    Connect,
    /// Let Calls through.
    Open,
    /// Undo the attempt.
    Fail(Reason),
    /// Close the open connection.
    Close(Reason),
}

/// How far an attempt has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    ResolvingAddress,
    ResolvingRoute,
    Preparing,
    Connecting,
    Open,
    Ended(Reason),
}

/// One attempt, and the connection that results from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConnectionState {
    state: State,
}

impl ConnectionState {
    /// An attempt that has not begun.
    pub(crate) const fn new() -> Self {
        Self { state: State::Idle }
    }

    /// Handles an event, and returns what to do next, if anything.
    ///
    /// Late events of a step that is over have no effect, nor has anything after the end. An
    /// open connection ends by any failure but [`Reason::Unreachable`]: the connection manager
    /// reports that whenever the neighbour entry of the peer changes or fails. If the path is
    /// broken, the device finds out with the next packets.
    pub(crate) fn handle(&mut self, event: ConnectionEvent) -> Option<ConnectionAction> {
        let (state, action) = match (self.state, event) {
            (State::Idle, ConnectionEvent::Start) => {
                (State::ResolvingAddress, ConnectionAction::ResolveAddress)
            }
            (State::ResolvingAddress, ConnectionEvent::AddressResolved) => {
                (State::ResolvingRoute, ConnectionAction::ResolveRoute)
            }
            (State::ResolvingRoute, ConnectionEvent::RouteResolved) => {
                (State::Preparing, ConnectionAction::Prepare)
            }
            (State::Preparing, ConnectionEvent::Prepared) => {
                (State::Connecting, ConnectionAction::Connect)
            }
            (State::Connecting, ConnectionEvent::Established) => {
                (State::Open, ConnectionAction::Open)
            }
            (State::Ended(_), _) => return None,
            (State::Open, ConnectionEvent::Ended(Reason::Unreachable)) => return None,
            (State::Open, ConnectionEvent::Ended(reason)) => {
                (State::Ended(reason), ConnectionAction::Close(reason))
            }
            (_, ConnectionEvent::Ended(reason)) => {
                (State::Ended(reason), ConnectionAction::Fail(reason))
            }
            _ => return None,
        };
        self.state = state;
        Some(action)
    }

    /// Closes the connection from this end, after which no event has an effect; returns whether it
    /// was open. Otherwise nothing changes.
    pub(crate) fn close(&mut self) -> bool {
        let was_open = self.state == State::Open;
        if was_open {
            self.state = State::Ended(Reason::Disconnected);
        }
        was_open
    }
}

#[cfg(any(test, rpcrdma_kunit))]
#[cfg_attr(rpcrdma_kunit, kernel::macros::kunit_tests(rpcrdma_proto_conn))]
mod tests {
    use super::*;

    const STEPS: [(ConnectionEvent, ConnectionAction); 5] = [
        (ConnectionEvent::Start, ConnectionAction::ResolveAddress),
        (
            ConnectionEvent::AddressResolved,
            ConnectionAction::ResolveRoute,
        ),
        (ConnectionEvent::RouteResolved, ConnectionAction::Prepare),
        (ConnectionEvent::Prepared, ConnectionAction::Connect),
        (ConnectionEvent::Established, ConnectionAction::Open),
    ];

    #[test]
    fn every_step_leads_to_the_next() {
        let mut conn = ConnectionState::new();
        for (event, action) in STEPS {
            assert_eq!(conn.handle(event), Some(action));
        }
        assert_eq!(conn.state, State::Open);
    }

    #[test]
    fn a_failure_ends_any_step_and_is_final() {
        for count in 0..=STEPS.len() {
            let mut conn = ConnectionState::new();
            for (event, _) in STEPS.into_iter().take(count) {
                let _ = conn.handle(event);
            }
            let ended = conn.handle(ConnectionEvent::Ended(Reason::DeviceRemoved));
            let expected = if count == STEPS.len() {
                ConnectionAction::Close(Reason::DeviceRemoved)
            } else {
                ConnectionAction::Fail(Reason::DeviceRemoved)
            };
            assert_eq!(ended, Some(expected));
            assert_eq!(conn.handle(ConnectionEvent::Ended(Reason::TimedOut)), None);
            assert_eq!(conn.handle(ConnectionEvent::Established), None);
            assert_eq!(conn.state, State::Ended(Reason::DeviceRemoved));
        }
    }

    #[test]
    fn a_neighbour_that_changes_does_not_end_an_open_connection() {
        let unreachable = ConnectionEvent::Ended(Reason::Unreachable);
        let mut conn = ConnectionState { state: State::Open };
        assert_eq!(conn.handle(unreachable), None);
        assert_eq!(conn.state, State::Open);
        let mut conn = ConnectionState {
            state: State::Connecting,
        };
        let failed = ConnectionAction::Fail(Reason::Unreachable);
        assert_eq!(conn.handle(unreachable), Some(failed));
    }

    #[test]
    fn only_an_open_connection_is_closed_and_once() {
        let mut conn = ConnectionState::new();
        for (event, _) in STEPS {
            assert!(!conn.close());
            assert!(conn.handle(event).is_some());
        }
        assert!(conn.close());
        assert!(!conn.close());
        let removed = ConnectionEvent::Ended(Reason::DeviceRemoved);
        assert_eq!(conn.handle(removed), None);
    }

    #[test]
    fn a_late_event_changes_nothing() {
        let mut conn = ConnectionState::new();
        let _ = conn.handle(ConnectionEvent::Start);
        let _ = conn.handle(ConnectionEvent::AddressResolved);
        let before = conn;
        assert_eq!(conn.handle(ConnectionEvent::AddressResolved), None);
        assert_eq!(conn.handle(ConnectionEvent::Established), None);
        assert_eq!(conn.handle(ConnectionEvent::Start), None);
        assert_eq!(conn, before);
    }
}
