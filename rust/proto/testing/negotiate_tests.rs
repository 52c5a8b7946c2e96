// SPDX-License-Identifier: GPL-2.0

//! Tests of version negotiation, message by message.

#[cfg_attr(rpcrdma_kunit, kernel::macros::kunit_tests(rpcrdma_proto_negotiate))]
mod tests {
    use crate::proto::requester::decode::{decode_received, Received};
    use crate::proto::requester::encode::encode_call;
    use crate::proto::responder::decode::ReceivedByResponder;
    use crate::proto::responder::refusal::ResponderRefusal;
    use crate::proto::testing::requester::credits::RequesterCredits;
    use crate::proto::testing::responder::decode::decode_call;
    use crate::proto::v2::known::{KnownVersions, Outcome};
    use crate::proto::v2::requester::{NegotiationAction, RequesterEvent, RequesterNegotiation};
    use crate::proto::v2::responder::ResponderNegotiation;
    use crate::proto::wire::chunk::Segment;
    use crate::proto::wire::encode::encode_header;
    use crate::proto::wire::error::ErrorBody;
    use crate::proto::wire::header::{
        Credits, FixedHeader, Procedure, Versions, Xid, VERSION_ONE, VERSION_TWO,
    };
    use crate::proto::wire::private_data::Thresholds;

    const XID: Xid = Xid(0x2a);
    const OTHER: Xid = Xid(0x2b);
    const BOTH: Versions = Versions::ONE_AND_TWO;

    /// An RPC message as it follows the header.
    const RPC_CALL: [u8; 8] = [0, 0, 0, 0x2a, 0, 0, 0, 0];
    const RPC_REPLY: [u8; 8] = [0, 0, 0, 0x2a, 0, 0, 0, 1];

    const fn thresholds(send: u32, receive: u32) -> Thresholds {
        Thresholds {
            send,
            receive,
            remote_invalidation: false,
        }
    }

    /// Without private data.
    const DEFAULT: Thresholds = Thresholds::DEFAULT;

    /// A requester with a connection on which nothing was sent.
    fn connected(supported: Versions, thresholds: Thresholds) -> RequesterNegotiation {
        let mut requester = RequesterNegotiation::new(supported, supported.high);
        let _ = requester.handle(RequesterEvent::Connected(thresholds));
        requester
    }

    /// The same with the first Call sent.
    fn waiting(supported: Versions, thresholds: Thresholds) -> RequesterNegotiation {
        let mut requester = connected(supported, thresholds);
        let _ = requester.handle(RequesterEvent::Sent(XID));
        requester
    }

    /// The version of the first Call on the connection that follows, `seconds` later, at a
    /// requester that supports both versions.
    fn next_version(requester: &RequesterNegotiation, seconds: u64) -> u32 {
        let mut known = KnownVersions::default();
        if let Some(outcome) = requester.outcome() {
            known.record(outcome, 0);
        }
        known.first(BOTH, seconds)
    }

    /// A responder that supports `versions` takes in a message and sends what is due; the length
    /// of its message.
    fn respond(
        versions: Versions,
        state: &mut ResponderNegotiation,
        received: &[u8],
        to: &mut [u8],
    ) -> Option<usize> {
        match decode_call(received, versions) {
            Ok(ReceivedByResponder::Call(call)) => {
                state.called(call.index.version, true);
                let fixed = FixedHeader {
                    xid: call.index.xid,
                    version: call.index.version,
                    credits: Credits::new(32),
                    procedure: Procedure::Msg,
                };
                let none = None::<core::iter::Empty<Segment>>;
                let empty = core::iter::empty::<core::iter::Empty<_>>();
                let header = encode_header(to, &fixed, [], empty, none).ok()?;
                let end = header.checked_add(RPC_REPLY.len())?;
                to.get_mut(header..end)?.copy_from_slice(&RPC_REPLY);
                let _ = state.replied(call.index.version);
                Some(end)
            }
            Ok(_) => None,
            Err(refused) => match refused.at_responder() {
                ResponderRefusal::Answer(error) => error.encode(to, Credits::new(32)).ok(),
                ResponderRefusal::Discard | ResponderRefusal::GarbageArgs(_) => None,
            },
        }
    }

    /// Sends the Call in the version that `requester` tells, has it answered by a responder that
    /// supports `versions`, and tells `requester` and `window` what came back.
    fn exchange(
        requester: &mut RequesterNegotiation,
        window: &mut RequesterCredits,
        responder: &mut ResponderNegotiation,
        versions: Versions,
    ) -> Option<NegotiationAction> {
        let mut call = [0; 36];
        let fixed = FixedHeader {
            xid: XID,
            version: requester.version()?,
            credits: Credits::new(32),
            procedure: Procedure::Msg,
        };
        let none = core::iter::empty::<Segment>();
        let header = encode_call(&mut call, &fixed, [], [none.clone()], none).ok()?;
        call.get_mut(header..)?.copy_from_slice(&RPC_CALL);
        let _ = requester.handle(RequesterEvent::Sent(XID));

        let mut answer = [0; 36];
        let length = respond(versions, responder, &call, &mut answer)?;
        let event = match decode_received(answer.get(..length)?, BOTH).ok()? {
            Received::Reply(reply) => {
                window.reply(reply.fixed.credits);
                RequesterEvent::Replied(reply.fixed.xid, reply.fixed.version)
            }
            Received::Error(error) => match error.body {
                ErrorBody::Version(range) => RequesterEvent::Refused(error.xid, range),
                _ => RequesterEvent::Failed(error.xid),
            },
            Received::BackwardCall(_) => return None,
        };
        requester.handle(event)
    }

    /// Proves: V2-005, V2-026, V2-029, V2-030, V2-035, V2-037.
    #[test]
    fn a_responder_that_knows_version_two_is_spoken_to_in_it() {
        let mut requester = connected(BOTH, DEFAULT);
        let mut responder = ResponderNegotiation::new(DEFAULT);
        let mut window = RequesterCredits::new(Credits::new(32));
        assert_eq!(requester.version(), Some(VERSION_TWO));
        let action = exchange(&mut requester, &mut window, &mut responder, BOTH);
        assert_eq!(action, Some(NegotiationAction::Agree(VERSION_TWO)));
        assert_eq!(window.window(), 32);
        assert_eq!(requester.thresholds(), Some(thresholds(4096, 4096)));
        assert_eq!(responder.agreed(true), Some(VERSION_TWO));
        assert_eq!(responder.thresholds(VERSION_TWO), thresholds(4096, 4096));
        assert_eq!(next_version(&requester, 0), VERSION_TWO);
    }

    /// Proves: V1-029, V2-027, V2-031, V2-032, V2-035.
    #[test]
    fn a_responder_that_does_not_gets_the_same_call_in_version_one() {
        let mut requester = connected(BOTH, DEFAULT);
        let mut responder = ResponderNegotiation::new(DEFAULT);
        let mut window = RequesterCredits::new(Credits::new(32));
        let mut exchange = |requester: &mut _, window: &mut _| {
            exchange(requester, window, &mut responder, Versions::ONE)
        };
        let action = exchange(&mut requester, &mut window);
        assert_eq!(action, Some(NegotiationAction::Resend(VERSION_ONE)));
        assert_eq!(requester.version(), Some(VERSION_ONE));
        // The refusal granted nothing.
        assert_eq!((window.window(), requester.is_agreed()), (1, false));

        let action = exchange(&mut requester, &mut window);
        assert_eq!(action, Some(NegotiationAction::Agree(VERSION_ONE)));
        assert_eq!((window.window(), requester.is_agreed()), (32, true));
        assert_eq!(requester.thresholds(), Some(DEFAULT));
        assert_eq!(responder.agreed(true), Some(VERSION_ONE));
        // The responder may be another one by the next time.
        assert_eq!(next_version(&requester, 599), VERSION_ONE);
        assert_eq!(next_version(&requester, 600), VERSION_TWO);
    }

    /// Proves: V1-025, V2-037, PD-008.
    #[test]
    fn a_requester_of_version_one_does_not_negotiate() {
        let private = thresholds(8192, 2048);
        let mut requester = connected(Versions::ONE, private);
        let mut responder = ResponderNegotiation::new(private);
        let mut window = RequesterCredits::new(Credits::new(32));
        assert_eq!(requester.version(), Some(VERSION_ONE));
        assert_eq!(requester.thresholds(), Some(private));
        let action = exchange(&mut requester, &mut window, &mut responder, BOTH);
        assert_eq!(action, Some(NegotiationAction::Agree(VERSION_ONE)));
        assert_eq!(requester.thresholds(), Some(private));
        assert_eq!(responder.thresholds(VERSION_ONE), private);
    }

    /// Proves: V2-028, V2-036.
    #[test]
    fn the_first_messages_have_1024_bytes_at_most() {
        let private = thresholds(8192, 65536);
        let mut requester = connected(BOTH, private);
        assert_eq!(requester.thresholds(), Some(DEFAULT));
        let mut responder = ResponderNegotiation::new(private);
        let _ = requester.handle(RequesterEvent::Sent(XID));
        assert_eq!(requester.thresholds(), Some(DEFAULT));
        responder.called(VERSION_TWO, true);
        assert_eq!(responder.thresholds(VERSION_TWO), DEFAULT);
        assert_eq!(responder.agreed(false), None);

        assert!(responder.replied(VERSION_TWO));
        assert!(!responder.replied(VERSION_TWO));
        assert_eq!(responder.agreed(true), Some(VERSION_TWO));
        assert_eq!(responder.thresholds(VERSION_TWO), private);
        let action = requester.handle(RequesterEvent::Replied(XID, VERSION_TWO));
        assert_eq!(action, Some(NegotiationAction::Agree(VERSION_TWO)));
        assert_eq!(requester.thresholds(), Some(private));

        // Private data cannot lower what Version Two promises.
        let mut requester = waiting(BOTH, thresholds(1024, 2048));
        let _ = requester.handle(RequesterEvent::Replied(XID, VERSION_TWO));
        assert_eq!(requester.thresholds(), Some(thresholds(4096, 4096)));
        // The version that is fallen back to has its own.
        let mut requester = waiting(BOTH, private);
        let _ = requester.handle(RequesterEvent::Refused(XID, Versions::ONE));
        assert_eq!(requester.thresholds(), Some(private));
    }

    /// Proves: V2-033.
    #[test]
    fn a_loss_after_the_refusal_is_taken_for_an_answer() {
        let mut requester = waiting(BOTH, DEFAULT);
        let _ = requester.handle(RequesterEvent::Refused(XID, Versions::ONE));
        assert_eq!(requester.outcome(), Some(Outcome::Refused(VERSION_ONE)));
        assert_eq!(next_version(&requester, 0), VERSION_ONE);
        // Nothing is below Version One, whatever becomes of the next connection.
        let mut requester = RequesterNegotiation::new(BOTH, VERSION_ONE);
        let _ = requester.handle(RequesterEvent::Connected(DEFAULT));
        let _ = requester.handle(RequesterEvent::Sent(XID));
        assert_eq!(requester.outcome(), None);
        let action = requester.handle(RequesterEvent::Replied(XID, VERSION_ONE));
        assert_eq!(action, Some(NegotiationAction::Agree(VERSION_ONE)));
        // Nor does it tell anything of Version Two.
        assert_eq!(requester.outcome(), None);
    }

    /// Proves: V2-034.
    #[test]
    fn lost_first_messages_are_taken_for_an_answer() {
        let requester = waiting(BOTH, DEFAULT);
        assert_eq!(requester.outcome(), Some(Outcome::Lost(VERSION_ONE)));
        // It may be the loss of a responder that restarts.
        assert_eq!(next_version(&requester, 59), VERSION_ONE);
        assert_eq!(next_version(&requester, 60), VERSION_TWO);
        // A requester that has to speak Version Two goes on asking.
        let two = Versions { low: 2, high: 2 };
        assert_eq!(waiting(two, DEFAULT).outcome(), None);
        // The requester may be to blame for the loss.
        let mut requester = waiting(BOTH, DEFAULT);
        for (event, is_abandoned) in [
            (RequesterEvent::Abandoned(OTHER), false),
            (RequesterEvent::Abandoned(XID), true),
            (RequesterEvent::Sent(OTHER), false),
        ] {
            let _ = requester.handle(event);
            assert_eq!(requester.is_abandoned(), is_abandoned);
        }
        // A connection that is lost before anything was sent says nothing.
        assert_eq!(connected(BOTH, DEFAULT).outcome(), None);
        // Nor does the loss of one on which both ends agreed.
        let mut requester = waiting(BOTH, DEFAULT);
        let _ = requester.handle(RequesterEvent::Replied(XID, VERSION_TWO));
        assert_eq!(requester.outcome(), Some(Outcome::Agreed));
    }

    /// Proves: V2-039.
    #[test]
    fn without_a_common_version_there_is_no_connection() {
        let refused = |supported, low, high| {
            let mut requester = waiting(supported, DEFAULT);
            let action = requester.handle(RequesterEvent::Refused(XID, Versions { low, high }));
            (action, requester.version())
        };
        let resent = (
            Some(NegotiationAction::Resend(VERSION_ONE)),
            Some(VERSION_ONE),
        );
        let failed = (Some(NegotiationAction::Fail), None);
        assert_eq!(refused(BOTH, 1, 1), resent);
        // The refused version is in the range: it is not tried again.
        assert_eq!(refused(BOTH, 1, 2), resent);
        assert_eq!(refused(BOTH, 0, u32::MAX), resent);
        assert_eq!(refused(BOTH, 2, 2), failed);
        assert_eq!(refused(BOTH, 3, 9), failed);
        assert_eq!(refused(BOTH, 2, 1), failed);
        assert_eq!(refused(BOTH, 0, 0), failed);
        // Version One knows no other outcome than an error for the Call.
        assert_eq!(refused(Versions::ONE, 2, 2), (None, Some(VERSION_ONE)));
        assert_eq!(refused(Versions::ONE, 1, 1), (None, Some(VERSION_ONE)));
        assert_eq!(refused(Versions { low: 2, high: 2 }, 1, 1), failed);
    }

    /// Proves: V2-039.
    #[test]
    fn a_responder_that_requires_more_than_is_remembered_is_asked_again() {
        let began_low = |supported| {
            let mut requester = RequesterNegotiation::new(supported, VERSION_ONE);
            let _ = requester.handle(RequesterEvent::Connected(DEFAULT));
            requester
        };
        let refused = |supported, low, high| {
            let mut requester = began_low(supported);
            let action = requester.handle(RequesterEvent::Refused(XID, Versions { low, high }));
            (action, requester.outcome())
        };
        let asked = (Some(NegotiationAction::Reconnect), Some(Outcome::Agreed));
        assert_eq!(refused(BOTH, 2, 2), asked);
        assert_eq!(refused(BOTH, 2, 9), asked);
        let mut requester = began_low(BOTH);
        let _ = requester.handle(RequesterEvent::Sent(XID));
        let action = requester.handle(RequesterEvent::Refused(XID, Versions { low: 2, high: 2 }));
        assert_eq!((action, requester.outcome()), asked);
        // It speaks Version One, or nothing that the requester does.
        for (low, high) in [(1, 1), (1, 2), (3, 9), (0, 0), (2, 1)] {
            assert_eq!(refused(BOTH, low, high), (None, None));
        }
        assert_eq!(refused(Versions::ONE, 2, 2), (None, None));
        // It has just refused the other one.
        let mut requester = waiting(BOTH, DEFAULT);
        let _ = requester.handle(RequesterEvent::Refused(XID, Versions::ONE));
        let _ = requester.handle(RequesterEvent::Failed(XID));
        let two = Versions { low: 2, high: 2 };
        assert_eq!(requester.handle(RequesterEvent::Refused(OTHER, two)), None);
        assert_eq!(requester.outcome(), Some(Outcome::Refused(VERSION_ONE)));
    }

    /// Proves: V2-039.
    #[test]
    fn a_reply_of_a_version_that_is_not_supported_ends_the_connection() {
        for (low, action) in [
            (VERSION_ONE, NegotiationAction::Agree(VERSION_ONE)),
            (VERSION_TWO, NegotiationAction::Fail),
        ] {
            let mut requester = waiting(Versions { low, ..BOTH }, DEFAULT);
            let found = requester.handle(RequesterEvent::Replied(XID, VERSION_ONE));
            assert_eq!(found, Some(action));
            let spoken = (low == VERSION_ONE).then_some(VERSION_ONE);
            assert_eq!(requester.version(), spoken);
        }
    }

    /// Proves: V2-027.
    #[test]
    fn only_the_answer_to_the_first_message_decides() {
        let mut requester = waiting(BOTH, DEFAULT);
        let before = requester;
        for event in [
            RequesterEvent::Replied(OTHER, VERSION_TWO),
            RequesterEvent::Refused(OTHER, Versions::ONE),
            RequesterEvent::Failed(OTHER),
        ] {
            assert_eq!(requester.handle(event), None);
            assert_eq!(requester, before);
        }
        // Another error ends its Call; the next one is the first message.
        assert_eq!(requester.handle(RequesterEvent::Failed(XID)), None);
        assert!(!requester.is_agreed());
        assert_eq!(requester.version(), Some(VERSION_TWO));
        let _ = requester.handle(RequesterEvent::Sent(OTHER));
        // So it is when the one before has ended without any answer.
        let _ = requester.handle(RequesterEvent::Sent(XID));
        let _ = requester.handle(RequesterEvent::Sent(OTHER));
        let action = requester.handle(RequesterEvent::Replied(XID, VERSION_ONE));
        assert_eq!((action, requester.is_agreed()), (None, false));
        let action = requester.handle(RequesterEvent::Replied(OTHER, VERSION_TWO));
        assert_eq!(action, Some(NegotiationAction::Agree(VERSION_TWO)));
        // What comes later changes nothing.
        let before = requester;
        for event in [
            RequesterEvent::Sent(XID),
            RequesterEvent::Replied(OTHER, VERSION_ONE),
            RequesterEvent::Refused(OTHER, Versions::ONE),
            RequesterEvent::Connected(DEFAULT),
        ] {
            assert_eq!(requester.handle(event), None);
            assert_eq!(requester, before);
        }
    }

    /// Proves: V2-038.
    #[test]
    fn a_stray_version_does_not_change_what_was_agreed() {
        let mut responder = ResponderNegotiation::new(DEFAULT);
        responder.called(VERSION_TWO, true);
        assert!(responder.replied(VERSION_TWO));
        let agreed = responder;
        responder.called(VERSION_ONE, false);
        assert!(!responder.replied(VERSION_ONE));
        assert_eq!(responder, agreed);
        assert_eq!(responder.thresholds(VERSION_ONE), DEFAULT);
        assert_eq!(responder.thresholds(VERSION_TWO), thresholds(4096, 4096));

        let mut responder = ResponderNegotiation::new(DEFAULT);
        assert_eq!(responder.agreed(false), None);
        responder.called(VERSION_ONE, true);
        assert!(!responder.replied(VERSION_ONE));
        responder.called(VERSION_TWO, false);
        assert!(!responder.replied(VERSION_TWO));
        assert_eq!(responder.agreed(true), Some(VERSION_ONE));
        assert_eq!(responder.thresholds(VERSION_TWO), DEFAULT);

        // A Reply in a lower version than the Call's: the lower one is safe.
        let mut requester = waiting(BOTH, DEFAULT);
        let action = requester.handle(RequesterEvent::Replied(XID, VERSION_ONE));
        assert_eq!(action, Some(NegotiationAction::Agree(VERSION_ONE)));
        assert_eq!(requester.thresholds(), Some(DEFAULT));
        assert_eq!(requester.accepted(), Versions::ONE);
        assert_eq!(requester.outcome(), Some(Outcome::Refused(VERSION_ONE)));
    }

    #[test]
    fn a_first_call_that_fails_decides_nothing() {
        let mut responder = ResponderNegotiation::new(DEFAULT);
        responder.called(VERSION_TWO, true);
        assert_eq!(responder.agreed(false), None);
        assert!(responder.failed());
        // The requester goes on in Version One.
        assert_eq!(responder.agreed(true), Some(VERSION_ONE));
        // Or it does not.
        responder.called(VERSION_TWO, true);
        assert!(responder.replied(VERSION_TWO));
        assert!(!responder.failed());
        assert_eq!(responder.agreed(true), Some(VERSION_TWO));
    }

    #[test]
    fn nothing_is_sent_without_a_connection() {
        let unconnected = RequesterNegotiation::new(BOTH, VERSION_TWO);
        let mut requester = unconnected;
        assert_eq!(requester.version(), None);
        assert_eq!(requester.thresholds(), None);
        assert_eq!(requester.handle(RequesterEvent::Sent(XID)), None);
        assert_eq!(requester, unconnected);
    }
}
