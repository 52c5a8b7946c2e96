// SPDX-License-Identifier: GPL-2.0

//! Tests of flow control.

#[cfg_attr(rpcrdma_kunit, kernel::macros::kunit_tests(rpcrdma_proto_credit))]
mod tests {
    use crate::proto::requester::credits::CreditWindow;
    use crate::proto::responder::credits::{granted, Conduct, Load, ResponderCredits};
    use crate::proto::testing::receives::{wanted, Receives};
    use crate::proto::testing::requester::credits::RequesterCredits;
    use crate::proto::wire::header::Credits;

    /// A [`Load`], and what it is told of the Calls that arrive.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct WatchedLoad {
        load: Load,
        most: u64,
    }

    impl WatchedLoad {
        /// As [`Load::new`].
        const fn new(first: u32, max: u32, quiet: u64) -> Self {
            Self {
                load: Load::new(first, max, quiet),
                most: 0,
            }
        }

        /// A Call has arrived, of which `credits` knows, and the requester has `delivered` answers.
        /// Returns how much more the limit may become, if there is room.
        fn called(&mut self, credits: &ResponderCredits, delivered: u64, has_room: bool) -> u32 {
            let used = credits.arrivals().used(credits.dropped(), delivered);
            self.most = self.most.max(used);
            match used >= u64::from(credits.limit().get()) && has_room {
                true => self.load.more(credits),
                false => 0,
            }
        }

        /// A Reply is about to be sent, `now`. Returns how much less the limit is.
        fn replies(&mut self, credits: &mut ResponderCredits, now: u64) -> u32 {
            let Some(less) = self.load.replies(credits, self.most, now) else {
                return 0;
            };
            self.most = credits.outstanding();
            less
        }

        /// As [`Load::lower`].
        fn lower(&self, credits: &mut ResponderCredits) -> u32 {
            self.load.lower(credits)
        }
    }

    #[test]
    fn one_call_until_the_first_reply() {
        let mut window = CreditWindow::new(Credits::new(32));
        assert_eq!(window.window(), 1);
        assert_eq!(window.requested().get(), 32);
        assert_eq!(window.grant(Credits::new(8)), 8);
    }

    #[test]
    fn grants_rise_and_fall_within_the_request() {
        let mut window = CreditWindow::new(Credits::new(4));
        assert_eq!(window.grant(Credits::new(32)), 4);
        assert_eq!(window.grant(Credits::new(2)), 2);
        assert_eq!(window.grant(Credits::new(0)), 1);
        assert_eq!(window.grant(Credits::new(u32::MAX)), 4);
        assert_eq!(window.window(), 4);
    }

    #[test]
    fn responder_grants_between_one_and_its_limit() {
        let limit = Credits::new(16);
        assert_eq!(granted(Credits::new(0), limit).get(), 1);
        assert_eq!(granted(Credits::new(4), limit).get(), 4);
        assert_eq!(granted(Credits::new(u32::MAX), limit).get(), 16);
        assert_eq!(granted(Credits::new(9), Credits::new(0)).get(), 1);
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
        let mut server = ResponderCredits::new(Credits::new(16));
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
                assert_eq!(server.reply(16).get(), requested.clamp(1, 16));
            }
        }
    }

    /// Proves: V1-017, V1-019.
    #[test]
    fn a_call_beyond_the_grant_is_noticed() {
        let mut server = ResponderCredits::new(Credits::new(2));
        let asked = Credits::new(8);
        assert_eq!(server.call(asked), Conduct::Within);
        assert_eq!(server.call(asked), Conduct::Excess);
        assert_eq!(server.reply(8).get(), 2);
        // Two Calls in all are answered or outstanding; the grant of 2 allows a third.
        assert_eq!(server.call(asked), Conduct::Within);
        assert_eq!(server.call(asked), Conduct::Excess);
    }

    #[test]
    fn without_memory_no_more_is_granted_than_there_are_receives() {
        let mut server = ResponderCredits::new(Credits::new(16));
        let asked = Credits::new(64);
        assert_eq!(server.call(asked), Conduct::Within);
        assert_eq!(server.reply(16).get(), 16);
        assert_eq!(server.lower_grant(7).map(Credits::get), Some(3));
        for _ in 0..3 {
            assert_eq!(server.call(asked), Conduct::Within);
        }
        // The two that have no answer yet had Receives, but may be answered before this Reply is
        // sent.
        assert_eq!(server.reply(16).get(), 16);
        assert_eq!(server.lower_grant(4).map(Credits::get), Some(2));
        // While there are such, the requester waits for their answers, which bring new Receives.
        assert_eq!(server.lower_grant(0).map(Credits::get), Some(1));
        assert_eq!(server.receives(0), 14);
        let _ = (server.error(), server.error());
        assert_eq!(server.lower_grant(0), None);
        // No more than was asked for.
        assert_eq!(server.call(Credits::new(2)), Conduct::Within);
        assert_eq!(server.reply(16).get(), 2);
        assert_eq!(server.lower_grant(100).map(Credits::get), Some(2));
    }

    /// Proves: V1-017, V1-019.
    #[test]
    fn a_requester_that_overruns_its_grant_has_a_bound() {
        const SPARE: u32 = 4;
        let mut server = ResponderCredits::new(Credits::new(8));
        let asked = Credits::new(64);
        let _ = server.call(asked);
        assert_eq!(server.reply(8).get(), 8);
        // It sends whenever there is a Receive, and gets an answer now and then.
        let mut posted = server.receives(SPARE);
        assert_eq!(posted, 8 + SPARE);
        for round in 0..100 {
            for _ in 0..posted {
                let _ = server.call(asked);
            }
            if round % 2 == 0 {
                assert_eq!(server.reply(8).get(), 8);
            }
            posted = server.receives(SPARE);
            assert!(posted <= 8 + SPARE);
            assert!(server.outstanding() <= u64::from(2 * 8 + SPARE));
        }
        while server.outstanding() > 0 {
            let _ = server.reply(8);
        }
        assert_eq!(server.receives(SPARE), 8 + SPARE);
    }

    /// Calls come and are answered, with so many of them outstanding, until `now`.
    fn use_credits(server: &mut ResponderCredits, load: &mut WatchedLoad, count: u32, now: u64) {
        for _ in 0..count {
            let _ = server.call(Credits::new(64));
            let more = load.called(server, server.answered(), true);
            server.raise_limit(more);
        }
        for _ in 0..count {
            let _ = load.replies(server, now);
            let _ = server.reply(u32::MAX);
        }
    }

    #[test]
    fn grants_follow_the_load() {
        let mut server = ResponderCredits::new(Credits::new(8));
        let mut load = WatchedLoad::new(8, 128, 1000);
        use_credits(&mut server, &mut load, 7, 10);
        assert_eq!(server.limit().get(), 8);
        use_credits(&mut server, &mut load, 8, 20);
        assert_eq!(server.limit().get(), 16);
        use_credits(&mut server, &mut load, 40, 30);
        // The requester wants no more.
        assert_eq!(server.limit().get(), 64);
        // What is used stays, each time for a while.
        use_credits(&mut server, &mut load, 32, 1000);
        use_credits(&mut server, &mut load, 32, 2000);
        use_credits(&mut server, &mut load, 32, 3000);
        assert_eq!(server.limit().get(), 64);
        use_credits(&mut server, &mut load, 31, 3999);
        assert_eq!(server.limit().get(), 64);
        use_credits(&mut server, &mut load, 1, 4000);
        use_credits(&mut server, &mut load, 1, 5000);
        assert_eq!(server.limit().get(), 32);
        for now in [6000, 7000, 8000, 9000] {
            use_credits(&mut server, &mut load, 1, now);
        }
        assert_eq!((server.limit().get(), server.granted().get()), (8, 8));
        // What was granted before is used up, Call by Call.
        for _ in 0..56 {
            use_credits(&mut server, &mut load, 1, 9000);
        }
        assert_eq!(server.receives(4), 8 + 4);
    }

    /// Each Call is answered before the next one arrives, but all of them were sent at once.
    #[test]
    fn a_long_way_is_no_reason_for_low_grants() {
        let mut server = ResponderCredits::new(Credits::new(8));
        let mut load = WatchedLoad::new(8, 128, 1000);
        let mut window = 1;
        for round in 0..8 {
            let (delivered, calls) = (server.answered(), window);
            for _ in 0..calls {
                let _ = server.call(Credits::new(64));
                let more = load.called(&server, delivered, true);
                server.raise_limit(more);
                assert_eq!(load.replies(&mut server, round * 1000), 0);
                assert_eq!(server.outstanding(), 1);
                window = server.reply(u32::MAX).get();
            }
        }
        assert_eq!(server.limit().get(), 64);
        // A Call that is dropped has no answer that could be delivered.
        let delivered = server.answered();
        for _ in 0..8 {
            let _ = server.call(Credits::new(64));
            assert_eq!(load.called(&server, delivered, true), 0);
            server.drop_call();
            assert_eq!(server.arrivals().used(server.dropped(), delivered), 0);
        }
    }

    #[test]
    fn a_shortage_lowers_grants_and_keeps_them_low() {
        let mut server = ResponderCredits::new(Credits::new(8));
        let mut load = WatchedLoad::new(8, 128, 1000);
        use_credits(&mut server, &mut load, 40, 10);
        assert_eq!(server.limit().get(), 64);
        assert_eq!((load.lower(&mut server), server.limit().get()), (32, 32));
        for _ in 0..40 {
            let _ = server.call(Credits::new(64));
            assert_eq!(load.called(&server, 0, false), 0);
        }
        let less = [(); 9].map(|()| load.lower(&mut server));
        assert_eq!(
            (less, server.limit().get()),
            ([16, 8, 0, 0, 0, 0, 0, 0, 0], 8)
        );
        while server.outstanding() > 0 {
            let _ = server.reply(8);
        }
        // Those that it has go on.
        for outstanding in 1..=16 {
            let _ = server.call(Credits::new(12));
            let more = if outstanding < 8 { 0 } else { 4 };
            assert_eq!(load.called(&server, server.answered(), true), more);
        }
        assert_eq!(server.limit().get(), 8);
    }

    /// Proves: V1-017, V1-021.
    #[test]
    fn a_call_without_an_answer_costs_no_credit_for_ever() {
        let mut server = ResponderCredits::new(Credits::new(4));
        let asked = Credits::new(4);
        let _ = server.call(asked);
        assert_eq!(server.reply(4).get(), 4);
        for _ in 0..20 {
            assert_eq!((server.receives(0), server.outstanding()), (4, 0));
            assert_eq!(server.call(asked), Conduct::Within);
            server.drop_call();
        }
        assert_eq!(server.granted().get(), 4);
    }

    /// Proves: V1-017, V1-019.
    #[test]
    fn a_lower_grant_does_not_take_back_an_earlier_one() {
        let mut server = ResponderCredits::new(Credits::new(4));
        let asked = Credits::new(8);
        let _ = server.call(asked);
        assert_eq!(server.reply(8).get(), 4);
        let _ = server.call(asked);
        server.set_limit(Credits::new(1));
        assert_eq!(server.reply(8).get(), 1);
        assert_eq!(server.outstanding(), 0);
        // The requester may not have seen this Reply when it sent the other three of the four.
        assert_eq!((server.receives(0), wanted(&server)), (3, 3));
        for expected in (0..3).rev() {
            assert_eq!(server.call(asked), Conduct::Within);
            assert_eq!(server.receives(0), expected);
        }
        assert_eq!(server.call(asked), Conduct::Excess);
        assert_eq!((server.receives(0), wanted(&server)), (0, 1));
        for _ in 0..4 {
            assert_eq!(server.reply(8).get(), 1);
        }
        // Now it must have seen the lower one.
        assert_eq!(wanted(&server), 1);
        assert_eq!(server.call(asked), Conduct::Within);
        assert_eq!(server.call(asked), Conduct::Excess);
    }

    /// Proves: V1-021, BD-014.
    #[test]
    fn receives_are_posted_before_they_are_granted() {
        let mut server = ResponderCredits::new(Credits::new(4));
        let mut receives = Receives::new(1);
        assert_eq!(receives.missing(wanted(&server), 0), 5);
        receives.post(5);
        let asked = Credits::new(8);
        receives.consume();
        let _ = server.call(asked);
        // One was used up: only what is still posted may be granted.
        assert_eq!(server.reply(receives.for_calls(0)).get(), 3);
        assert_eq!(receives.missing(wanted(&server), 0), 1);
        receives.post(1);
        receives.consume();
        let _ = server.call(asked);
        receives.post(receives.missing(wanted(&server), 0));
        assert_eq!(server.reply(receives.for_calls(0)).get(), 4);

        server.set_limit(Credits::new(8));
        receives.consume();
        let _ = server.call(asked);
        assert_eq!(server.reply(receives.for_calls(0)).get(), 3);
        receives.post(receives.missing(wanted(&server), 0));
        assert_eq!(receives.posted(), 9);
        receives.consume();
        let _ = server.call(asked);
        assert_eq!(server.reply(receives.for_calls(0)).get(), 7);
        // No grant at all would be a deadlock.
        let _ = server.call(asked);
        assert_eq!(server.reply(0).get(), 1);
    }

    /// Proves: V1-016, V1-029.
    #[test]
    fn an_error_answers_a_call_and_grants_nothing_new() {
        let mut server = ResponderCredits::new(Credits::new(4));
        let asked = Credits::new(8);
        assert_eq!(server.call(asked), Conduct::Within);
        assert_eq!(server.error().get(), 1);
        assert_eq!(server.outstanding(), 0);
        assert_eq!(server.call(asked), Conduct::Within);
        assert_eq!(server.call(asked), Conduct::Excess);
    }

    /// Proves: BD-006, BD-007, BD-009, BD-010, BD-012, BD-013, BD-015, BD-016.
    #[test]
    fn both_directions_have_their_own_credits() {
        // A client that serves two backward Calls at once.
        let mut calls = RequesterCredits::new(Credits::new(32));
        let backward = ResponderCredits::new(Credits::new(2));
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
        let mut served = ResponderCredits::new(Credits::new(32));
        let mut backward = RequesterCredits::new(Credits::new(8));
        let _ = served.call(Credits::new(32));
        assert_eq!(served.reply(32).get(), 32);
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
