// SPDX-License-Identifier: GPL-2.0

//! RDMA_ERROR as the answer to Calls of every form: each ends its Call once, and nothing of it
//! goes out again.

use super::Scenarios;
use crate::peer::{words, Peer, EIO};
use crate::Result;

pub(super) const SCENARIOS: &Scenarios = &[
    ("errors", errors),
    ("errors-at-once", errors_at_once),
    ("undecodable-errors", undecodable_errors),
];

/// What follows the credit word: the procedure, the error code and the supported versions.
const ERRORS: [&[u32]; 7] = [
    // ERR_VERS
    &[4, 1, 1, 1],
    &[4, 1, 2, 2],
    &[4, 1, 0, 0],
    &[4, 1, 9, 2],
    &[4, 1, 0, u32::MAX],
    // ERR_CHUNK, alone and with bytes behind it
    &[4, 2],
    &[4, 2, 7, 7, 7],
];

/// The same, of which no Call may end: codes that do not exist, and versions that are not all there.
const UNDECODABLE: [&[u32]; 6] = [
    &[4, 0],
    &[4, 3],
    &[4, u32::MAX, 1, 1],
    &[4],
    &[4, 1],
    &[4, 1, 1],
];

fn errors(peer: &mut Peer) -> Result {
    peer.accept()?;
    let mut last = None;
    // The forms of Calls come in turn.
    for _ in 0..6 {
        for error in ERRORS {
            let call = peer.call()?;
            if last == Some(call.xid) {
                return Err("a Call went out again that had ended".to_owned());
            }
            last = Some(call.xid);
            let mut message = words(&[call.xid, 1, 32]);
            message.extend(words(error));
            peer.send(&message)?;
            peer.ends(EIO);
        }
    }
    Ok(())
}

/// Each Call goes on waiting behind all of them, and is answered.
fn undecodable_errors(peer: &mut Peer) -> Result {
    peer.accept()?;
    for _ in 0..6 {
        let call = peer.call()?;
        for error in UNDECODABLE {
            let mut message = words(&[call.xid, 1, 32]);
            message.extend(words(error));
            peer.send(&message)?;
        }
        // Of a version that the client does not speak.
        peer.send(&words(&[call.xid, 2, 32, 4, 2]))?;
        peer.answer(&call)?;
    }
    Ok(())
}

/// Errors for Calls that are outstanding together, in the order opposite to theirs, and twice.
fn errors_at_once(peer: &mut Peer) -> Result {
    peer.accept()?;
    let call = peer.call()?;
    peer.answer(&call)?;
    let calls = (0..10).map(|_| peer.call()).collect::<Result<Vec<_>>>()?;
    for call in calls.iter().rev() {
        let error = words(&[call.xid, 1, 32, 4, 2]);
        peer.send(&error)?;
        peer.send(&error)?;
        peer.ends(EIO);
    }
    Ok(())
}
