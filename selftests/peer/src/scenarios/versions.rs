// SPDX-License-Identifier: GPL-2.0

//! Responders of one version or of two, and such that change it, for a client that offers Version Two.

use super::backward;
use super::shapes::answer_exactly;
use super::Scenarios;
use crate::peer::{
    word_at, words, Call, Form, Peer, Received, EIO, ERESTARTSYS, ETIMEDOUT, LIMIT, THRESHOLD,
};
use crate::proto::wire::header::{Versions, VERSION_ONE, VERSION_TWO};
use crate::Result;

pub(super) const SCENARIOS: &Scenarios = &[
    ("two-agrees", agrees),
    ("two-exactly-4096", exactly),
    ("two-refused", |peer| refused(peer, VERSION_TWO)),
    ("two-refused-in-one", |peer| refused(peer, VERSION_ONE)),
    ("two-refused-without-end", refused_without_end),
    ("two-refused-and-lost", refused_and_lost),
    ("two-refused-and-gone", refused_and_gone),
    ("two-lost", lost),
    ("two-lost-and-required", lost_and_required),
    ("two-killed", killed),
    ("two-killed-and-refused", killed_and_refused),
    ("two-executed-and-lost", executed_and_lost),
    ("two-not-begun", not_begun),
    ("two-agreed-and-lost", agreed_and_lost),
    ("two-unanswered", unanswered),
    ("two-answered-in-one", answered_in_one),
    ("two-required-and-one", required_and_one),
    ("two-without-common-version", without_common_version),
    ("two-and-another-error", another_error),
    ("two-then-others", then_others),
    ("two-with-options", options),
    ("two-backward", backward_in_two),
];

/// What follows the credit word of the refusal by a responder that has Version One only.
const ONLY_ONE: [u32; 4] = [4, 1, 1, 1];

/// The most bytes of the first message.
const FIRST_LEN: usize = 1024;

/// Accepts a connection without private data: what fits inline tells the version then.
fn accept(peer: &mut Peer) -> Result {
    peer.versions = Versions::ONE_AND_TWO;
    let mut acceptance = Peer::acceptance();
    acceptance.private_data.clear();
    peer.accept_with(&acceptance)
}

/// The next Call, which is of Version Two.
fn next(peer: &mut Peer) -> Result<Call> {
    let call = peer.call()?;
    is_of(&call, VERSION_TWO)?;
    Ok(call)
}

/// The first Call of a connection.
fn first(peer: &mut Peer) -> Result<Call> {
    let call = next(peer)?;
    if call.message_len > FIRST_LEN {
        return Err(format!("the first message has {} bytes", call.message_len));
    }
    Ok(call)
}

fn is_of(call: &Call, version: u32) -> Result {
    if call.version == version {
        Ok(())
    } else {
        let found = call.version;
        Err(format!("a Call of Version {found}, not {version}"))
    }
}

/// Nothing comes as long as a Call waits for its answer.
fn nothing_else(peer: &mut Peer) -> Result {
    match peer.receive_for(std::time::Duration::from_millis(300))? {
        None => Ok(()),
        Some(other) => Err(format!("more came than the first message: {other:02x?}")),
    }
}

/// Sends the right Reply to a Call, but for its version.
fn answer_in(peer: &mut Peer, call: &Call, version: u32) -> Result {
    let mut reply = peer.reply(call)?;
    reply.version = version;
    peer.send(&reply.encode())
}

/// Refuses a Call with these words behind the credit word.
fn refuse(peer: &mut Peer, call: &Call, version: u32, error: &[u32]) -> Result {
    let mut message = words(&[call.xid, version, 32]);
    message.extend(words(error));
    peer.send(&message)
}

/// The next Call, which is the one before in Version One, with all that it offers.
fn again(peer: &mut Peer, call: &Call) -> Result<Call> {
    let again = peer.call_again(call)?;
    is_of(&again, VERSION_ONE)?;
    if format!("{:?}{:?}{:?}", again.reads, again.writes, again.reply)
        != format!("{:?}{:?}{:?}", call.reads, call.writes, call.reply)
    {
        return Err("the Call offers something else".to_owned());
    }
    Ok(again)
}

/// All Calls that follow have this version, and bring inline what fits `threshold`.
fn goes_on(peer: &mut Peer, version: u32, threshold: usize) -> Result {
    while !peer.finished {
        let call = peer.call()?;
        is_of(&call, version)?;
        if call.message_len > threshold {
            return Err(format!("a message has {} bytes", call.message_len));
        }
        let fits = call.size + 200 < threshold;
        if call.form == Form::Long && fits && !call.reads.is_empty() {
            return Err("a Call is long that would fit".to_owned());
        }
        if call.form == Form::List && fits && call.reply.is_some() {
            return Err("a Reply chunk for what would fit".to_owned());
        }
        peer.answer(&call)?;
        peer.finished = call.form == Form::Done;
    }
    Ok(())
}

fn agrees(peer: &mut Peer) -> Result {
    accept(peer)?;
    let call = first(peer)?;
    nothing_else(peer)?;
    peer.answer(&call)?;
    goes_on(peer, VERSION_TWO, 4096)
}

/// The Call behind the first one, or the Reply to it, has as many bytes as either end has to take.
fn exactly(peer: &mut Peer) -> Result {
    accept(peer)?;
    let call = first(peer)?;
    peer.answer(&call)?;
    let call = next(peer)?;
    answer_exactly(peer, &call, THRESHOLD)
}

/// A responder of Version One, with the version of the Call in its refusal or its own.
fn refused(peer: &mut Peer, version: u32) -> Result {
    accept(peer)?;
    let call = first(peer)?;
    refuse(peer, &call, version, &ONLY_ONE)?;
    let call = again(peer, &call)?;
    nothing_else(peer)?;
    peer.answer(&call)?;
    goes_on(peer, VERSION_ONE, 1024)
}

/// It refuses Version One as well: the Call fails, and the next connection begins below.
fn refused_without_end(peer: &mut Peer) -> Result {
    accept(peer)?;
    let call = first(peer)?;
    refuse(peer, &call, VERSION_TWO, &ONLY_ONE)?;
    let call = again(peer, &call)?;
    refuse(peer, &call, VERSION_ONE, &ONLY_ONE)?;
    peer.ends(EIO);
    peer.end()?;
    accept(peer)?;
    goes_on(peer, VERSION_ONE, 1024)
}

/// Ends the connection before a Call is answered: the next one begins with the Call in Version One.
fn lose(peer: &mut Peer, call: &Call) -> Result {
    lose_and_go_on(peer, call, VERSION_ONE, 1024)
}

/// The same with this version, and what fits inline then.
fn lose_and_go_on(peer: &mut Peer, call: &Call, version: u32, threshold: usize) -> Result {
    peer.verbs.disconnect();
    comes_again(peer, call, version, threshold)
}

/// The Call comes again on another connection, in this version, and those that follow as well, with
/// what fits inline then.
fn comes_again(peer: &mut Peer, call: &Call, version: u32, threshold: usize) -> Result {
    accept(peer)?;
    let call = peer.call_again(call)?;
    is_of(&call, version)?;
    if call.message_len > FIRST_LEN {
        return Err(format!("the first message has {} bytes", call.message_len));
    }
    peer.answer(&call)?;
    goes_on(peer, version, threshold)
}

/// Another connection begins with Version Two, and a Call of its own.
fn begins_anew(peer: &mut Peer) -> Result {
    accept(peer)?;
    let call = first(peer)?;
    peer.answer(&call)?;
    goes_on(peer, VERSION_TWO, 4096)
}

/// The connection is lost with the refusal.
fn refused_and_lost(peer: &mut Peer) -> Result {
    accept(peer)?;
    let call = first(peer)?;
    refuse(peer, &call, VERSION_TWO, &ONLY_ONE)?;
    let call = again(peer, &call)?;
    lose(peer, &call)
}

/// The connection is lost behind the refusal, before the Call comes again.
fn refused_and_gone(peer: &mut Peer) -> Result {
    accept(peer)?;
    let call = first(peer)?;
    refuse(peer, &call, VERSION_TWO, &ONLY_ONE)?;
    // The client has it when it hears of the end.
    peer.verbs.flush()?;
    lose(peer, &call)
}

/// The connection is lost with the first Reply, for a Call that was executed.
fn executed_and_lost(peer: &mut Peer) -> Result {
    accept(peer)?;
    let call = first(peer)?;
    peer.reply(&call)?;
    lose(peer, &call)
}

/// The connection is lost before the first message: that tells nothing of the version. It ends when
/// there is a line to read, once the client has it: before, that would be a refused connection.
fn not_begun(peer: &mut Peer) -> Result {
    accept(peer)?;
    peer.wait_for_line()?;
    peer.verbs.disconnect();
    begins_anew(peer)
}

/// The connection is lost when the version is agreed on, which the next one begins with.
fn agreed_and_lost(peer: &mut Peer) -> Result {
    accept(peer)?;
    let call = first(peer)?;
    peer.answer(&call)?;
    let call = next(peer)?;
    lose_and_go_on(peer, &call, VERSION_TWO, 4096)
}

/// The connection is lost with the first message.
fn lost(peer: &mut Peer) -> Result {
    accept(peer)?;
    let call = first(peer)?;
    lose(peer, &call)
}

/// The same with a responder that has Version Two only: what was learned of it is wrong.
fn lost_and_required(peer: &mut Peer) -> Result {
    accept(peer)?;
    let call = first(peer)?;
    peer.verbs.disconnect();
    accept(peer)?;
    let call = peer.call_again(&call)?;
    is_of(&call, VERSION_ONE)?;
    refuse(peer, &call, VERSION_ONE, &[4, 1, 2, 2])?;
    peer.end()?;
    comes_again(peer, &call, VERSION_TWO, 4096)
}

/// The first Call is killed, and the connection lost for memory that it no longer offers.
fn killed(peer: &mut Peer) -> Result {
    accept(peer)?;
    let call = first(peer)?;
    peer.ends(ERESTARTSYS);
    let segment = call.reads.first().ok_or("the Call offers nothing")?.segment;
    let start = std::time::Instant::now();
    while peer.verbs.read(&mut [0], segment.offset, segment.handle)? == 0 {
        if start.elapsed() > LIMIT {
            return Err("the Call is not killed".to_owned());
        }
    }
    begins_anew(peer)
}

/// The first Call is killed, and then its version refused.
fn killed_and_refused(peer: &mut Peer) -> Result {
    accept(peer)?;
    let call = first(peer)?;
    peer.ends(ERESTARTSYS);
    peer.wait_for_line()?;
    refuse(peer, &call, VERSION_TWO, &ONLY_ONE)?;
    goes_on(peer, VERSION_ONE, 1024)
}

/// The first message has no answer: its Call times out, and Version One is tried next.
fn unanswered(peer: &mut Peer) -> Result {
    accept(peer)?;
    first(peer)?;
    peer.ends(ETIMEDOUT);
    peer.end()?;
    accept(peer)?;
    goes_on(peer, VERSION_ONE, 1024)
}

/// The answer is good but for its version.
fn answered_in_one(peer: &mut Peer) -> Result {
    accept(peer)?;
    let call = first(peer)?;
    answer_in(peer, &call, VERSION_ONE)?;
    peer.succeeds(&call);
    goes_on(peer, VERSION_ONE, 1024)
}

/// The same for a client that requires Version Two: it does not go on in Version One.
fn required_and_one(peer: &mut Peer) -> Result {
    accept(peer)?;
    let call = first(peer)?;
    let mut reply = peer.reply(&call)?;
    reply.version = VERSION_ONE;
    peer.send(&reply.encode())?;
    peer.ends(EIO);
    peer.end()?;
    accept(peer)?;
    goes_on(peer, VERSION_TWO, 4096)
}

/// There is nothing to fall back to: the Call fails, and the connection ends.
fn without_common_version(peer: &mut Peer) -> Result {
    for range in [[3, 9], [2, 2], [0, 0], [2, 1]] {
        accept(peer)?;
        let call = first(peer)?;
        refuse(peer, &call, VERSION_TWO, &[4, 1, range[0], range[1]])?;
        peer.ends(EIO);
        peer.end()?;
    }
    accept(peer)?;
    goes_on(peer, VERSION_TWO, 4096)
}

/// Other errors end their Call, and say nothing of the version. Nor does what cannot be decoded.
fn another_error(peer: &mut Peer) -> Result {
    accept(peer)?;
    for (version, words) in [
        (VERSION_TWO, &[4, 2][..]),
        (VERSION_TWO, &[4, 3]),
        // RDMA_NOMSG without chunks.
        (VERSION_TWO, &[1, 0, 0, 0]),
        (3, &[0, 0, 0, 0]),
    ] {
        let call = first(peer)?;
        refuse(peer, &call, version, words)?;
        peer.ends(EIO);
    }
    let call = first(peer)?;
    peer.answer(&call)?;
    goes_on(peer, VERSION_TWO, 4096)
}

/// After the agreement nothing changes the version any more.
fn then_others(peer: &mut Peer) -> Result {
    accept(peer)?;
    let call = first(peer)?;
    peer.answer(&call)?;
    let call = next(peer)?;
    answer_in(peer, &call, VERSION_ONE)?;
    peer.succeeds(&call);
    let call = next(peer)?;
    refuse(peer, &call, VERSION_TWO, &ONLY_ONE)?;
    peer.ends(EIO);
    let call = next(peer)?;
    answer_in(peer, &call, 3)?;
    peer.ends(EIO);
    goes_on(peer, VERSION_TWO, 4096)
}

/// Options, which the client has none of, before the agreement and after it.
fn options(peer: &mut Peer) -> Result {
    accept(peer)?;
    let mut call = first(peer)?;
    for _ in 0..2 {
        // With an XID of nobody, and with that of the Call that waits.
        for xid in [!call.xid, call.xid] {
            // Whole, and with bytes behind it; then with fewer than it announces.
            for (option, error) in [
                (&[7, 5, 0x6865_6c6c, 0x6f00_0000][..], 3),
                (&[0, 0, call.xid, 1, 0, 0, 0, 0], 3),
                (&[7, 5, 0], 2),
                (&[7], 2),
            ] {
                let mut message = words(&[xid, VERSION_TWO, 32, 5]);
                message.extend(words(option));
                peer.send(&message)?;
                match peer.receive()? {
                    Some(Received::Error(answer))
                        if word_at(&answer, 0) == xid
                            && word_at(&answer, 4) == VERSION_TWO
                            && answer[12..] == words(&[4, error]) => {}
                    other => return Err(format!("the option is answered by {other:02x?}")),
                }
            }
        }
        peer.answer(&call)?;
        call = peer.call()?;
    }
    peer.answer(&call)?;
    goes_on(peer, VERSION_TWO, 4096)
}

/// Backward Calls are answered in the version that they have.
fn backward_in_two(peer: &mut Peer) -> Result {
    accept(peer)?;
    let call = first(peer)?;
    peer.answer(&call)?;
    let call = peer.call()?;
    for version in [VERSION_TWO, VERSION_ONE, VERSION_TWO] {
        let mut null = backward::null(version);
        null.version = version;
        peer.send(&null.encode())?;
        peer.backward_reply()?;
        let found = peer.backward_version;
        if found != version {
            return Err(format!("the backward Reply has Version {found}"));
        }
    }
    peer.answer(&call)?;
    goes_on(peer, VERSION_TWO, 4096)
}
