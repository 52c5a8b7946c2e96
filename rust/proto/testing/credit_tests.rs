// SPDX-License-Identifier: GPL-2.0

//! Tests of flow control.

#[cfg_attr(rpcrdma_kunit, kernel::macros::kunit_tests(rpcrdma_proto_credit))]
mod tests {
    use crate::proto::responder::grants::Grants;
    use crate::proto::testing::receives::Receives;
    use crate::proto::testing::requester::credits::RequesterCredits;
    use crate::proto::wire::header::Credits;

    /// Receives to be posted for Calls without spare ones.
    fn wanted(grants: &Grants) -> u32 {
        grants.receives(grants.limit(), 0)
    }

    #[test]
    fn responder_grants_between_one_and_its_limit() {
        for (requested, limit, word) in [(0, 16, 1), (4, 16, 4), (u32::MAX, 16, 16), (9, 0, 1)] {
            let mut server = Grants::new(limit, limit);
            let _ = server.call(Credits::new(requested));
            assert_eq!(server.reply().get(), word);
        }
    }

    /// Proves: V1-017, V1-018, V1-020, V1-023, V1-028, V1-029.
    #[test]
    fn calls_wait_for_credits() {
        let mut calls = RequesterCredits::new(Credits::new(4));
        assert_eq!(calls.requested().get(), 4);
        assert!(calls.take());
        assert!(!calls.take());
        // An error opens no window.
        calls.error();
        assert!(calls.take());
        assert!(!calls.take());
        calls.reply(Credits::new(32));
        for outstanding in 1..=4 {
            assert!(calls.take());
            assert_eq!(calls.outstanding(), outstanding);
        }
        assert!(!calls.take());
        // A lower grant holds for the next Call on, and 0 counts as 1.
        calls.reply(Credits::new(2));
        calls.reply(Credits::new(2));
        assert!(!calls.take());
        calls.reply(Credits::new(0));
        assert!(!calls.take());
        calls.reply(Credits::new(0));
        assert!(calls.take());
        assert!(!calls.take());
        calls.reply(Credits::new(4));
        calls.reset();
        assert!(calls.take());
        assert!(!calls.take());
    }

    /// Proves: V1-013, V1-014, V1-015, V1-016.
    #[test]
    fn credit_words_do_not_depend_on_what_is_outstanding() {
        let mut server = Grants::new(16, 16);
        for requested in [0, 1, 8, 64, u32::MAX] {
            let asked = Credits::new(requested);
            let mut calls = RequesterCredits::new(asked);
            calls.reply(Credits::new(4));
            for outstanding in 1..=4 {
                assert_eq!(calls.take(), outstanding <= asked.get());
                assert_eq!(calls.requested(), asked);
                let _ = server.call(calls.requested());
                assert_eq!(server.outstanding(), u64::from(outstanding));
            }
            for _ in 0..4 {
                assert_eq!(server.reply().get(), requested.clamp(1, 16));
            }
        }
    }

    /// Proves: V1-017, V1-019.
    #[test]
    fn a_call_beyond_the_grant_is_noticed() {
        let mut server = Grants::new(2, 2);
        let asked = Credits::new(8);
        assert!(server.call(asked));
        assert!(!server.call(asked));
        assert_eq!(server.reply().get(), 2);
        // Two Calls in all are answered or outstanding; the grant of 2 allows a third.
        assert!(server.call(asked));
        assert!(!server.call(asked));
    }

    /// Proves: V1-017, V1-019.
    #[test]
    fn a_requester_that_overruns_its_grant_has_a_bound() {
        const SPARE: u32 = 4;
        let mut server = Grants::new(8, 8);
        let asked = Credits::new(64);
        let _ = server.call(asked);
        assert_eq!(server.reply().get(), 8);
        // It sends whenever there is a Receive, and gets an answer now and then.
        let mut posted = server.receives(8, SPARE);
        assert_eq!(posted, 8 + SPARE);
        for round in 0..100 {
            for _ in 0..posted {
                let _ = server.call(asked);
            }
            if round % 2 == 0 {
                assert_eq!(server.reply().get(), 8);
            }
            posted = server.receives(8, SPARE);
            assert!(posted <= 8 + SPARE);
            assert!(server.outstanding() <= u64::from(2 * 8 + SPARE));
        }
        while server.outstanding() > 0 {
            let _ = server.reply();
        }
        assert_eq!(server.receives(8, SPARE), 8 + SPARE);
    }

    /// `count` Calls come at once, and are answered; the requester gets the answers if so.
    fn use_credits(server: &mut Grants, count: u32, is_delivered: bool) {
        for _ in 0..count {
            let _ = server.call(Credits::new(64));
        }
        for _ in 0..count {
            server.raise(server.wanted());
            let _ = server.reply();
            if is_delivered {
                server.delivered();
            }
        }
    }

    #[test]
    fn grants_rise_for_who_uses_them() {
        let mut server = Grants::new(8, 128);
        for _ in 0..4 {
            use_credits(&mut server, 7, true);
        }
        assert_eq!((server.limit(), server.granted().get()), (8, 8));
        use_credits(&mut server, 8, true);
        assert_eq!((server.limit(), server.granted().get()), (16, 16));
        use_credits(&mut server, 40, true);
        // The requester wants no more.
        use_credits(&mut server, 64, true);
        use_credits(&mut server, 64, true);
        assert_eq!((server.limit(), server.granted().get()), (64, 64));
        // What is not used stays.
        for _ in 0..1000 {
            use_credits(&mut server, 1, true);
        }
        assert_eq!((server.limit(), server.receives(64, 4)), (64, 68));
        server.raise(32);
        assert_eq!(server.limit(), 64);
    }

    #[test]
    fn grants_do_not_rise_for_who_gets_no_answers() {
        let mut server = Grants::new(8, 128);
        for _ in 0..10 {
            use_credits(&mut server, 16, false);
        }
        assert_eq!((server.limit(), server.granted().get()), (8, 8));
        for _ in 0..160 {
            server.delivered();
        }
        // None has come since.
        assert_eq!(server.wanted(), 16);
        server.raise(16);
        assert_eq!(server.wanted(), 16);
    }

    #[test]
    fn a_requester_that_asks_for_less_keeps_the_limit() {
        let mut server = Grants::new(8, 128);
        use_credits(&mut server, 8, true);
        use_credits(&mut server, 16, true);
        assert_eq!(server.limit(), 16);
        for _ in 0..64 {
            let _ = server.call(Credits::new(4));
        }
        assert_eq!((server.wanted(), server.reply().get()), (16, 4));
    }

    /// Each Call is answered before the next one arrives, but all of them were sent at once.
    #[test]
    fn a_long_way_is_no_reason_for_low_grants() {
        let mut server = Grants::new(8, 128);
        let mut window = 1;
        for _ in 0..16 {
            let calls = window;
            for _ in 0..calls {
                let _ = server.call(Credits::new(64));
                server.raise(server.wanted());
                assert_eq!(server.outstanding(), 1);
                window = server.reply().get();
            }
            for _ in 0..calls {
                server.delivered();
            }
        }
        assert_eq!(server.limit(), 64);
    }

    /// A Call that is dropped has no answer that could be delivered.
    #[test]
    fn dropped_calls_do_not_use_up_the_grant() {
        let mut server = Grants::new(8, 128);
        for _ in 0..8 {
            use_credits(&mut server, 1, true);
        }
        for _ in 0..100 {
            let _ = server.call(Credits::new(64));
            server.drop_call();
        }
        assert_eq!((server.wanted(), server.outstanding()), (8, 0));
    }

    /// Proves: V1-017, V1-021.
    #[test]
    fn a_call_without_an_answer_costs_no_credit_for_ever() {
        let mut server = Grants::new(4, 4);
        let asked = Credits::new(4);
        let _ = server.call(asked);
        assert_eq!(server.reply().get(), 4);
        for _ in 0..20 {
            assert_eq!((wanted(&server), server.outstanding()), (4, 0));
            assert!(server.call(asked));
            server.drop_call();
        }
        assert_eq!(server.granted().get(), 4);
    }

    /// Proves: V1-017, V1-019.
    #[test]
    fn a_lower_grant_does_not_take_back_an_earlier_one() {
        let mut window = Grants::new(4, 4);
        let _ = window.call(Credits::new(4));
        window.replied(Credits::new(4));
        let _ = window.call(Credits::new(4));
        window.replied(Credits::new(1));
        assert_eq!(window.outstanding(), 0);
        // The requester may not have seen this Reply when it sent the other three of the four.
        for _ in 0..3 {
            assert!(window.call(Credits::new(4)));
        }
        assert!(!window.call(Credits::new(4)));
        for _ in 0..4 {
            window.replied(Credits::new(1));
        }
        // Now it must have seen the lower one.
        assert!(window.call(Credits::new(4)));
        assert!(!window.call(Credits::new(4)));
    }

    /// Proves: V1-021, BD-014.
    #[test]
    fn receives_are_posted_before_they_are_granted() {
        let mut server = Grants::new(4, 16);
        let mut receives = Receives::new(1);
        receives.post(receives.missing(wanted(&server), 0));
        assert_eq!(receives.posted(), 5);
        let asked = Credits::new(8);
        for limit in [4, 4, 8, 8] {
            receives.consume();
            let _ = server.call(asked);
            receives.post(receives.missing(server.receives(limit, 0), 0));
            server.raise(limit);
            let word = server.reply();
            receives.post(receives.missing(wanted(&server), 0));
            assert_eq!((word.get(), receives.for_calls(0)), (limit, limit));
        }
    }

    /// Proves: V1-016, V1-029.
    #[test]
    fn an_error_answers_a_call_and_grants_nothing_new() {
        let mut window = Grants::new(4, 4);
        assert!(window.call(Credits::new(4)));
        window.drop_call();
        assert_eq!((window.outstanding(), window.granted().get()), (0, 1));
        assert!(window.call(Credits::new(4)));
        assert!(!window.call(Credits::new(4)));
    }

    /// Proves: BD-006, BD-007, BD-009, BD-010, BD-012, BD-013, BD-015, BD-016.
    #[test]
    fn both_directions_have_their_own_credits() {
        // A client that serves two backward Calls at once.
        let mut calls = RequesterCredits::new(Credits::new(32));
        let backward = Grants::new(2, 2);
        let mut receives = Receives::new(1);
        receives.post(receives.missing(wanted(&backward), calls.outstanding()));
        assert_eq!(receives.posted(), 3);
        // Each forward Call needs one more for its Reply.
        assert!(calls.take());
        assert_eq!(receives.missing(wanted(&backward), calls.outstanding()), 1);
        receives.post(1);
        assert_eq!(receives.for_calls(calls.outstanding()), 2);
        // A new connection has none, and needs them all before the Call is sent again.
        calls.reset();
        receives = Receives::new(1);
        assert!(calls.take());
        assert_eq!(receives.missing(wanted(&backward), calls.outstanding()), 4);

        // Its server, whose backward Calls ask for eight credits.
        let mut served = Grants::new(32, 32);
        let mut backward = RequesterCredits::new(Credits::new(8));
        let _ = served.call(Credits::new(32));
        assert_eq!(served.reply().get(), 32);
        assert!(backward.take());
        assert!(!backward.take());
        backward.reply(Credits::new(2));
        assert!(backward.take() && backward.take());
        assert!(!backward.take());
        assert_eq!(wanted(&served), 32);
        let mut receives = Receives::new(1);
        assert_eq!(
            receives.missing(wanted(&served), backward.outstanding()),
            35
        );
        receives.post(35);
        assert_eq!(receives.for_calls(backward.outstanding()), 32);
    }
}
