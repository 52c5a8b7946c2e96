// SPDX-License-Identifier: GPL-2.0

//! What a requester may choose: its credit words, the form of a Call, and two XIDs, of which a
//! server may look at one only.

use super::{Call, Requester, Scenarios};
use crate::peer::{word_at, words, LIMIT};
use crate::proto::wire::chunk::ReadSegment;
use crate::proto::wire::header::Procedure;
use crate::verbs::Waited;
use crate::Result;

pub(super) const SCENARIOS: &Scenarios = &[("choices", choices)];

/// Bytes of the header of an RDMA_MSG without chunks.
const HEADER: usize = 28;

fn choices(requester: &mut Requester) -> Result<Vec<String>> {
    requester.connect()?;
    let mut outcomes = Vec::new();
    for credits in [5, 0, 1, 3, 4] {
        let call = Call {
            credits,
            ..Call::null()
        };
        requester.send(&call)?;
        outcomes.push(granted(requester)?);
    }
    // While data is fetched for the others.
    let call = Call {
        credits: 4,
        ..Call::reading(&[requester.segment(1 << 20)])
    };
    for _ in 0..4 {
        requester.send(&call)?;
    }
    for _ in 0..4 {
        outcomes.push(granted(requester)?);
    }
    for lengths in [[40, 0], [3, 37]] {
        let xid = requester.next_xid();
        let long = long_null(requester, xid, lengths);
        outcomes.push(requester.bytes(&long.encode(xid), LIMIT)?);
    }
    let xid = requester.next_xid();
    let mut bytes = Call::null().encode(xid);
    bytes[HEADER..HEADER + 4].copy_from_slice(&words(&[!xid]));
    outcomes.push(refused(requester, &bytes)?);
    let xid = requester.next_xid();
    let long = long_null(requester, !xid, [40, 0]);
    outcomes.push(refused(requester, &long.encode(xid))?);
    outcomes.push(requester.call(&Call::null())?);
    Ok(outcomes)
}

/// The credit word of the Reply that comes next.
fn granted(requester: &mut Requester) -> Result<String> {
    let Waited::For(bytes) = requester.verbs.receive(LIMIT)? else {
        return Err("there is no Reply".to_owned());
    };
    requester.verbs.post_receive()?;
    Ok(match word_at(&bytes, 12) {
        0 => word_at(&bytes, 8).to_string(),
        procedure => format!("procedure_{procedure}"),
    })
}

/// A Call of the procedure NULL with this XID, which would fit inline, in a Position Zero chunk of
/// segments with these lengths.
fn long_null(requester: &mut Requester, xid: u32, lengths: [u32; 2]) -> Call {
    let mut message = words(&[xid]);
    message.extend(Call::null().body);
    requester.verbs.put(0, &message);
    let mut at = 0;
    let reads = lengths.map(|length| {
        let mut segment = requester.segment(length);
        segment.offset += u64::from(at);
        at += length;
        ReadSegment {
            position: 0,
            segment,
        }
    });
    Call {
        procedure: Procedure::Nomsg,
        reads: reads.to_vec(),
        ..Call::null()
    }
}

/// What comes of bytes that are to be refused, by the XID of their header.
fn refused(requester: &mut Requester, bytes: &[u8]) -> Result<String> {
    requester.verbs.send(bytes, None)?;
    let Waited::For(answer) = requester.verbs.receive(LIMIT)? else {
        return Err("there is no answer".to_owned());
    };
    requester.verbs.post_receive()?;
    let is_error = (word_at(&answer, 12), word_at(&answer, 16)) == (4, 2);
    let is_its = word_at(&answer, 0) == word_at(bytes, 0);
    Ok(if is_error && is_its {
        "err_chunk"
    } else {
        "other"
    }
    .to_owned())
}
