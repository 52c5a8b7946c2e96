// SPDX-License-Identifier: GPL-2.0

//! Connections that end, are refused, or carry nothing, and private data of all kinds.

use super::garbage::Random;
use super::Scenarios;
use crate::peer::{word_at, words, Call, Form, Peer, ETIMEDOUT};
use crate::proto::wire::private_data::{negotiate, PrivateData, Thresholds};
use crate::Result;

pub(super) const SCENARIOS: &Scenarios = &[
    ("disconnects-at-once", disconnects_at_once),
    ("disconnects-for-calls", disconnects_for_calls),
    ("disconnects-behind-replies", disconnects_behind_replies),
    ("never-answers", never_answers),
    ("never-receives", |peer| never_receives(peer, 0)),
    ("never-receives-but-waits", |peer| never_receives(peer, 7)),
    ("not-a-send", not_a_send),
    ("refuses-writes", refuses_writes),
    ("rejects", rejects),
    ("mute", |peer| all_calls(peer, |_, _| Ok(()))),
    ("errs", |peer| all_calls(peer, err)),
    ("garbles", |peer| all_calls(peer, garble)),
    ("hangs-up", |peer| all_calls(peer, hang_up)),
    ("errs-after-ping", |peer| all_calls(peer, err_after_ping)),
    ("private-data", private_data),
    ("private-garbage", private_garbage),
];

/// The first connection ends before there is a Call.
fn disconnects_at_once(peer: &mut Peer) -> Result {
    peer.accept()?;
    peer.verbs.disconnect();
    peer.accept()
}

/// Each Call, whatever it offers, is lost with its connection and goes out again.
fn disconnects_for_calls(peer: &mut Peer) -> Result {
    peer.accept()?;
    peer.greet()?;
    for _ in 0..6 {
        let call = peer.call_anywhere()?;
        peer.verbs.disconnect();
        let again = peer.call_anywhere()?;
        if again.xid != call.xid {
            return Err("the Call did not go out again".to_owned());
        }
        peer.answer(&again)?;
    }
    Ok(())
}

/// The connection ends in the same moment as the Reply comes, which may be lost with it.
fn disconnects_behind_replies(peer: &mut Peer) -> Result {
    peer.accept()?;
    peer.greet()?;
    let mut call = peer.call()?;
    while call.form != Form::Done {
        let reply = peer.reply(&call)?.encode();
        peer.send(&reply)?;
        peer.verbs.disconnect();
        peer.succeeds(&call);
        let mut next = peer.call_anywhere()?;
        if next.xid == call.xid {
            let reply = peer.reply(&next)?.encode();
            peer.send(&reply)?;
            next = peer.call_anywhere()?;
        }
        call = next;
    }
    peer.answer(&call)?;
    peer.finished = true;
    Ok(())
}

/// A Receive of the client is used up without a message, when a Call has come.
fn not_a_send(peer: &mut Peer) -> Result {
    peer.accept()?;
    peer.greet()?;
    let call = peer.call()?;
    peer.verbs.write_immediate()?;
    let again = peer.call_anywhere()?;
    if again.xid != call.xid {
        return Err("the Call did not go out again".to_owned());
    }
    peer.answer(&again)
}

/// A Call waits for long on two connections that let the client write nothing.
fn refuses_writes(peer: &mut Peer) -> Result {
    peer.accept()?;
    peer.greet()?;
    peer.call()?;
    peer.verbs.refuse_writes()?;
    let again = peer.call_anywhere()?;
    peer.verbs.refuse_writes()?;
    peer.wait_for_line()?;
    peer.answer(&again)
}

/// Calls of all forms time out together; the client goes on with its last Call.
fn never_answers(peer: &mut Peer) -> Result {
    peer.accept()?;
    let call = peer.call()?;
    peer.answer(&call)?;
    loop {
        let call = peer.call_anywhere()?;
        if call.form == Form::Done {
            for _ in 0..6 {
                peer.ends(ETIMEDOUT);
            }
            peer.answer(&call)?;
            peer.finished = true;
            return Ok(());
        }
    }
}

/// No Send of the client meets a Receive: each connection ends by that, or hangs.
fn never_receives(peer: &mut Peer, rnr_retries: u8) -> Result {
    let mut acceptance = Peer::acceptance();
    acceptance.receives = 0;
    acceptance.rnr_retries = rnr_retries;
    loop {
        peer.accept_with(&acceptance)?;
    }
}

/// No connection at all, for reasons that make no sense.
fn rejects(peer: &mut Peer) -> Result {
    let mut random = Random::new();
    loop {
        peer.request()?;
        // As much as the fabric carries in a rejection.
        peer.verbs.reject(&random.bytes(148))?;
    }
}

/// Does the same with all Calls that ever come, whoever sends them.
fn all_calls(peer: &mut Peer, answer: fn(&mut Peer, &Call) -> Result) -> Result {
    loop {
        let call = peer.call_anywhere()?;
        answer(peer, &call)?;
    }
}

/// RDMA_ERROR, with ERR_VERS and ERR_CHUNK in turn.
fn err(peer: &mut Peer, call: &Call) -> Result {
    if call.xid % 2 == 0 {
        peer.send(&words(&[call.xid, 1, 32, 4, 1, 2, 2]))
    } else {
        peer.send(&words(&[call.xid, 1, 32, 4, 2]))
    }
}

/// Random bytes behind good fixed words.
fn garble(peer: &mut Peer, call: &Call) -> Result {
    let mut message = words(&[call.xid, 1, 32, 0]);
    message.extend(Random::new().bytes(100));
    peer.send(&message)
}

fn hang_up(peer: &mut Peer, _call: &Call) -> Result {
    peer.verbs.disconnect();
    Ok(())
}

/// NULL is answered well.
fn err_after_ping(peer: &mut Peer, call: &Call) -> Result {
    if word_at(&call.payload, 20) == 0 {
        peer.answer(call)
    } else {
        err(peer, call)
    }
}

/// The private data of the vector file.
fn private_data(peer: &mut Peer) -> Result {
    let file = include_str!("../../../vectors/vectors.tsv");
    let rows = file
        .lines()
        .map(|line| line.split('\t').collect::<Vec<_>>());
    for row in rows.filter(|row| row.get(1) == Some(&"privdata")) {
        let hex = row[3].trim_matches('-');
        let bytes = (0..hex.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex digits"))
            .collect();
        connection(peer, bytes).map_err(|error| format!("{}: {error}", row[0]))?;
    }
    Ok(())
}

/// Random private data of each length, and what looks like private data at odd offsets.
fn private_garbage(peer: &mut Peer) -> Result {
    let mut random = Random::new();
    for length in 0..=56 {
        let mut bytes = random.bytes(length);
        if length % 3 == 0 {
            for (to, from) in bytes
                .iter_mut()
                .skip(length / 3)
                .zip([0xf6, 0xab, 0x0e, 0x18, 1])
            {
                *to = from;
            }
        }
        connection(peer, bytes).map_err(|error| format!("{length} octets: {error}"))?;
    }
    Ok(())
}

/// A connection that is accepted with `private_data`, up to the client's last Call on it. The
/// client has to understand it as the protocol core does, and the Receives are of just the size
/// that it announces.
fn connection(peer: &mut Peer, private_data: Vec<u8>) -> Result {
    let requested = peer.request()?;
    let own = PrivateData::find(&requested).ok_or("the client sent no private data")?;
    let found = PrivateData::find(&private_data).map(|(_, found)| found);
    let thresholds = negotiate(own.1, found);
    let mut acceptance = Peer::acceptance();
    acceptance.private_data = private_data;
    acceptance.receives = 8;
    acceptance.receive_size = found.unwrap_or(PrivateData::DEFAULT).receive.bytes();
    peer.verbs.accept(&acceptance)?;
    loop {
        let call = peer.call()?;
        check_form(&call, &thresholds)?;
        let mut reply = peer.reply(&call)?;
        reply.credits = 1;
        peer.send(&reply.encode())?;
        peer.succeeds(&call);
        if call.form == Form::Done {
            return Ok(());
        }
    }
}

/// Whether the Call is inline just when it fits.
fn check_form(call: &Call, thresholds: &Thresholds) -> Result {
    let fits = 28 + call.payload.len() <= thresholds.send as usize;
    if call.form == Form::Long && fits != call.reads.is_empty() {
        return Err(format!(
            "a message of {} bytes is inline or not, against a threshold of {}",
            28 + call.payload.len(),
            thresholds.send
        ));
    }
    Ok(())
}
