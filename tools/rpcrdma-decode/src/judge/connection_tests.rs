// SPDX-License-Identifier: GPL-2.0

//! Tests of what is wrong with a message because of those before.

use super::examples::{backward, call, error, read, reading, reply, segment, words, Sent, Wire};
use super::fault::Fault;
use crate::proto::requester::decode::ReplyError;
use crate::proto::responder::refusal::CallError;
use crate::proto::wire::header::{VERSION_ONE, VERSION_TWO};

#[test]
fn an_honest_connection_has_no_faults() {
    let mut wire = Wire::new();
    assert_eq!(wire.client(&call(1)), []);
    assert_eq!(wire.server(&reply(1, 3)), []);
    for xid in 2..5 {
        let call = Sent {
            writes: vec![vec![segment(xid, 4096)]],
            reply: vec![segment(100, 4096)],
            ..reading(4097, &[read(4097)])
        };
        assert_eq!(wire.client(&Sent { xid, ..call }), []);
    }
    for xid in [3, 2, 4] {
        let reply = Sent {
            writes: vec![vec![segment(xid, 4096)]],
            ..reply(xid, 5)
        };
        assert_eq!(wire.invalidates(false, reply.bytes(), Some(xid)), []);
        let again = wire.again(false, reply.bytes(), Some(xid));
        assert_eq!(again, [], "the fabric repeats it");
    }
    // Both directions may use the same XID.
    assert_eq!(wire.client(&call(9)), []);
    assert_eq!(wire.invalidates(false, backward(9, 8, 0), None), []);
    assert_eq!(wire.invalidates(true, backward(9, 2, 1), None), []);
    assert_eq!(wire.server(&reply(9, 5)), []);
    // An XID can be used again, also after an error.
    assert_eq!(wire.client(&call(9)), []);
    assert_eq!(wire.invalidates(false, error(9), None), []);
    assert_eq!(wire.client(&call(9)), []);
}

#[test]
fn calls_are_compared_with_what_was_granted() {
    let overrun = |outstanding, granted| {
        vec![Fault::Overrun {
            outstanding,
            granted,
        }]
    };
    let mut wire = Wire::new();
    assert_eq!(wire.client(&call(1)), []);
    // One until the first Reply, and an error is none.
    assert_eq!(wire.client(&call(2)), overrun(1, 1));
    assert_eq!(wire.invalidates(false, error(2), None), []);
    assert_eq!(wire.client(&call(3)), overrun(1, 1));
    assert_eq!(wire.server(&reply(1, 4)), []);
    for xid in 4..7 {
        assert_eq!(wire.client(&call(xid)), []);
    }
    assert_eq!(wire.client(&call(7)), overrun(4, 4));
    // A lower grant does not hold for those that were sent before it arrived.
    let mut wire = Wire::new();
    assert_eq!(wire.client(&call(1)), []);
    assert_eq!(wire.server(&reply(1, 4)), []);
    assert_eq!(wire.client(&call(2)), []);
    assert_eq!(wire.client(&call(3)), []);
    assert_eq!(wire.server(&reply(2, 1)), []);
    assert_eq!(wire.client(&call(4)), []);
    assert_eq!(wire.client(&call(5)), []);
    assert_eq!(wire.client(&call(6)), overrun(3, 1));
    // Nor is more used than was asked for.
    let mut wire = Wire::new();
    let asks = |xid| Sent {
        credits: 2,
        ..call(xid)
    };
    assert_eq!(wire.client(&asks(1)), []);
    assert_eq!(wire.server(&reply(1, 8)), []);
    assert_eq!(wire.client(&asks(2)), []);
    assert_eq!(wire.client(&asks(3)), []);
    assert_eq!(wire.client(&asks(4)), overrun(2, 2));
}

#[test]
fn a_refused_message_counts_as_a_call() {
    let mut wire = Wire::new();
    let mut bytes = call(1).bytes();
    bytes[7] = 9;
    // It has a line of its own.
    assert_eq!(wire.invalidates(true, bytes, None), []);
    let faults = wire.client(&call(2));
    let [Fault::Overrun { .. }] = faults[..] else {
        panic!("{faults:?}");
    };
    assert_eq!(wire.invalidates(false, error(1), None), []);
    // One without a whole header, or that is neither Call nor Reply, has no answer.
    let cut = call(1).bytes()[..12].to_vec();
    let mut neither = call(1).bytes();
    neither[35] = 7;
    for bytes in [cut, neither] {
        let mut wire = Wire::new();
        assert_eq!(wire.invalidates(true, bytes, None), []);
        assert_eq!(wire.client(&call(2)), []);
    }
}

#[test]
fn an_xid_is_used_once_at_a_time() {
    for mut wire in [Wire::new(), Wire::later()] {
        assert_eq!(wire.client(&call(1)), []);
        assert_eq!(wire.server(&reply(1, 8)), []);
        assert_eq!(wire.client(&call(1)), []);
        assert_eq!(wire.client(&call(1)), [Fault::SameXid]);
        assert_eq!(wire.server(&reply(1, 8)), []);
        assert_eq!(wire.server(&reply(1, 8)), []);
        assert_eq!(wire.client(&call(1)), []);
    }
}

#[test]
fn messages_fit_their_receivers() {
    let inline = |length: usize, version| Sent {
        version,
        rpc: vec![0; length - 32],
        ..call(1)
    };
    for (receives, length, version) in [
        (Some(4096), 4096, VERSION_ONE),
        (None, 1024, VERSION_ONE),
        (None, 4096, VERSION_TWO),
    ] {
        let mut wire = Wire::telling([Some(65536), receives]);
        assert_eq!(wire.client(&inline(length, version)), []);
        let threshold = u32::try_from(length).unwrap();
        let mut wire = Wire::telling([Some(65536), receives]);
        let faults = wire.client(&inline(length + 4, version));
        assert_eq!(faults, [Fault::TooLong { threshold }]);
    }
    let mut wire = Wire::telling([None, Some(4096)]);
    assert_eq!(wire.client(&call(1)), []);
    let reply = Sent {
        rpc: [words(&[1]), vec![0; 1020]].concat(),
        ..reply(1, 8)
    };
    let faults = wire.server(&reply);
    assert_eq!(faults, [Fault::TooLong { threshold: 1024 }]);
}

#[test]
fn answers_have_calls() {
    let mut wire = Wire::new();
    assert_eq!(wire.server(&reply(1, 8)), [Fault::Unexpected]);
    assert_eq!(wire.invalidates(false, error(1), None), [Fault::Unexpected]);
    assert_eq!(
        wire.invalidates(true, backward(1, 2, 1), None),
        [Fault::Unexpected]
    );
    assert_eq!(wire.invalidates(true, error(1), None), [Fault::Unexpected]);
    // That of a later capture may be one to what was not seen.
    let mut wire = Wire::later();
    assert_eq!(wire.server(&reply(1, 8)), []);
    assert_eq!(wire.client(&call(2)), []);
    assert_eq!(wire.server(&reply(2, 8)), []);
    assert_eq!(wire.server(&reply(3, 8)), []);
}

#[test]
fn what_goes_backward_has_no_chunks() {
    let mut wire = Wire::new();
    assert_eq!(wire.invalidates(false, backward(5, 2, 0), None), []);
    let with_chunk = Sent {
        reply: vec![segment(1, 8)],
        ..reply(5, 2)
    };
    let faults = wire.client(&with_chunk);
    assert_eq!(faults, [Fault::Refused(CallError::ChunksInBackwardReply)]);
    let faults = wire.server(&reading(8, &[read(8)]));
    assert_eq!(
        faults,
        [Fault::RefusedReply(ReplyError::ChunksInBackwardCall)]
    );
    assert_eq!(wire.client(&call(6)), []);
    // More backward Calls than were granted.
    let mut wire = Wire::new();
    assert_eq!(wire.invalidates(false, backward(5, 2, 0), None), []);
    let faults = wire.invalidates(false, backward(6, 2, 0), None);
    let [Fault::Overrun {
        outstanding: 1,
        granted: 1,
    }] = faults[..]
    else {
        panic!("{faults:?}");
    };
}

#[test]
fn a_handle_that_is_invalidated_is_of_the_call() {
    let mut wire = Wire::new();
    let offers = |xid| Sent {
        xid,
        writes: vec![vec![segment(3, 8), segment(4, 8)]],
        ..reading(8, &[read(8)])
    };
    for (xid, handle, expected) in [
        (1, 1, vec![]),
        (2, 4, vec![]),
        (3, 5, vec![Fault::Invalidates(5)]),
    ] {
        assert_eq!(wire.client(&offers(xid)), []);
        let reply = reply(xid, 8).bytes();
        assert_eq!(wire.invalidates(false, reply, Some(handle)), expected);
    }
    assert_eq!(wire.client(&offers(4)), []);
    let faults = wire.invalidates(false, error(4), Some(1));
    assert_eq!(faults, [Fault::Invalidates(1)]);
    let faults = wire.invalidates(true, call(5).bytes(), Some(1));
    assert_eq!(faults, [Fault::Invalidates(1)]);
}

#[test]
fn what_was_not_captured_whole_is_not_held_against_others() {
    let mut wire = Wire::new();
    assert_eq!(wire.client(&call(1)), []);
    assert_eq!(wire.cut(false, &reply(1, 8)), []);
    assert_eq!(wire.client(&call(2)), []);
    assert_eq!(wire.client(&call(3)), []);
    assert_eq!(wire.server(&reply(2, 1)), []);
    assert_eq!(wire.server(&reply(9, 1)), []);
    let faults = wire.client(&call(4));
    let [Fault::Overrun {
        outstanding: 1,
        granted: 1,
    }] = faults[..]
    else {
        panic!("{faults:?}");
    };
}
