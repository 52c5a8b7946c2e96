// SPDX-License-Identifier: GPL-2.0

//! Properties of flow control, between two ends that exchange messages in order.

use std::collections::VecDeque;

use proptest::collection::vec;
use proptest::prelude::*;

use crate::proto::responder::grants::Grants;
use crate::proto::testing::receives::Receives;
use crate::proto::testing::requester::credits::RequesterCredits;
use crate::proto::wire::header::Credits;

/// The Receives that are kept for messages without a credit.
const SPARE: u32 = 1;

/// What happens next.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// The requester sends a Call, if it has a credit.
    Send,
    /// The next Call on its way arrives.
    Arrive,
    /// The responder answers, with an RDMA_ERROR if so.
    Answer { error: bool },
    /// The next answer on its way arrives.
    Return,
    /// The responder posts Receives for a higher limit, and raises it.
    Raise(u32),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => Just(Step::Send),
        8 => Just(Step::Arrive),
        4 => Just(Step::Answer { error: false }),
        1 => Just(Step::Answer { error: true }),
        8 => Just(Step::Return),
        1 => (0u32..20).prop_map(Step::Raise),
    ]
}

/// Posts the Receives for this limit.
fn post(responder: &Grants, receives: &mut Receives, limit: u32) {
    receives.post(receives.missing(responder.receives(limit, 0), 0));
}

proptest! {
    /// Proves: V1-016, V1-018, V1-020, V1-021, BD-011, BD-014.
    #[test]
    fn an_honest_requester_never_overruns_the_responder(
        requested in 0u32..20,
        limit in 0u32..20,
        steps in vec(step(), 0..400),
    ) {
        let mut requester = RequesterCredits::new(Credits::new(requested));
        let mut responder = Grants::new(limit.max(1), u32::MAX);
        let mut receives = Receives::new(SPARE);
        post(&responder, &mut receives, responder.limit());
        let mut calls = VecDeque::new();
        let mut answers = VecDeque::new();
        let mut window = 1;
        for step in steps {
            match step {
                Step::Send => {
                    let free = requester.outstanding() < window;
                    prop_assert_eq!(requester.take(), free);
                    if free {
                        calls.push_back(requester.requested());
                    }
                }
                Step::Arrive => if let Some(asked) = calls.pop_front() {
                    prop_assert!(receives.posted() > SPARE);
                    receives.consume();
                    prop_assert!(responder.call(asked));
                }
                Step::Answer { error } => if responder.outstanding() > 0 {
                    let word = responder.reply();
                    post(&responder, &mut receives, responder.limit());
                    let calls = u64::from(receives.for_calls(0)) + responder.outstanding();
                    prop_assert!(u64::from(word.get()) <= calls);
                    answers.push_back((error, word));
                }
                Step::Return => if let Some((error, word)) = answers.pop_front() {
                    if error {
                        requester.error();
                    } else {
                        requester.reply(word);
                        window = word.get().min(requested.max(1));
                    }
                }
                Step::Raise(limit) => {
                    post(&responder, &mut receives, limit);
                    responder.raise(limit);
                }
            }
            let answering = answers.len() + calls.len();
            let outstanding = usize::try_from(responder.outstanding()).unwrap() + answering;
            prop_assert_eq!(u32::try_from(outstanding), Ok(requester.outstanding()));
        }
    }
}
