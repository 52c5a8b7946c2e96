// SPDX-License-Identifier: GPL-2.0

//! Chunk lists that ask for too much, or do not fit their message.

use super::{Call, Requester, Scenarios};
use crate::peer::words;
use crate::proto::wire::chunk::{ReadSegment, Segment};
use crate::proto::wire::header::Procedure;
use crate::Result;

pub(super) const SCENARIOS: &Scenarios = &[
    ("honest", honest),
    ("too-many-segments", too_many_segments),
    ("too-many-chunks", too_many_chunks),
    ("too-many-bytes", too_many_bytes),
    ("misfits", misfits),
    ("without-bytes", without_bytes),
    ("same-memory", same_memory),
    ("position-zero", position_zero),
];

/// One Call of each form that is good.
fn honest(requester: &mut Requester) -> Result<Vec<String>> {
    requester.connect()?;
    let segment = requester.segment(8001);
    let whole = requester.segment(1 << 20);
    let calls = [
        Call::null(),
        Call::reading(&[segment]),
        Call::reading(&[whole]),
        Call {
            writes: vec![vec![segment]],
            reply: Some(vec![segment]),
            ..Call::null()
        },
    ];
    calls.iter().map(|call| requester.call(call)).collect()
}

/// Behind each, an honest Call on the same connection.
fn each(requester: &mut Requester, calls: &[Call]) -> Result<Vec<String>> {
    let mut outcomes = Vec::new();
    for call in calls {
        outcomes.push(requester.call(call)?);
    }
    outcomes.push(requester.call(&Call::null())?);
    Ok(outcomes)
}

fn too_many_segments(requester: &mut Requester) -> Result<Vec<String>> {
    requester.connect()?;
    let segment = requester.segment(4);
    each(
        requester,
        &[
            Call::reading(&[segment; 33]),
            Call {
                writes: vec![vec![segment; 33]],
                ..Call::null()
            },
            Call {
                reply: Some(vec![segment; 33]),
                ..Call::null()
            },
        ],
    )
}

fn too_many_chunks(requester: &mut Requester) -> Result<Vec<String>> {
    requester.connect()?;
    let segment = requester.segment(4);
    // Each chunk has the place behind a count.
    let positions = (0..40).map(|n| ReadSegment {
        position: Call::HEADER + 4 + 8 * n,
        segment,
    });
    each(
        requester,
        &[
            Call {
                reads: positions.collect(),
                argument: [0, 0, 0, 4].repeat(40),
                ..Call::null()
            },
            Call {
                writes: vec![vec![segment]; 100],
                ..Call::null()
            },
        ],
    )
}

fn too_many_bytes(requester: &mut Requester) -> Result<Vec<String>> {
    requester.connect()?;
    let all = requester.segment(u32::MAX);
    let much = requester.segment(3 << 20);
    // As much as an RPC message may have where nfsd takes a mebibyte of data and pages have 4 KiB.
    let most = requester.segment((1 << 20) + 4096);
    let word = requester.segment(4);
    each(
        requester,
        &[
            Call::reading(&[most]),
            Call::reading(&[most, word]),
            Call::reading(&[all]),
            Call::reading(&[all; 60]),
            Call::reading(&[much; 3]),
            Call {
                procedure: Procedure::Nomsg,
                reads: vec![ReadSegment {
                    position: 0,
                    segment: all,
                }],
                ..Call::null()
            },
        ],
    )
}

/// Read chunks that overlap, lie beyond the message, or are not as long as XDR says. The last Call
/// has so many segments for results that they leave no room for a Reply.
fn misfits(requester: &mut Requester) -> Result<Vec<String>> {
    requester.connect()?;
    let segment = requester.segment(100);
    let at = |position| ReadSegment { position, segment };
    let mut wrong_count = Call::reading(&[segment]);
    wrong_count.argument = vec![0, 0, 0, 77];
    // The body of the credential, and the token of RPCSEC_GSS_INIT.
    let [credential, token] = [28, 100].map(|length| requester.segment(length));
    let in_credential = Call {
        reads: vec![ReadSegment {
            position: 32,
            segment: credential,
        }],
        body: words(&[0, 2, 100_003, 3, 0, 1, 28, 0, 0]),
        ..Call::null()
    };
    let in_token = Call {
        reads: vec![ReadSegment {
            position: 64,
            segment: token,
        }],
        body: words(&[0, 2, 100_003, 3, 0, 6, 20, 1, 1, 0, 1, 0, 0, 0, 100]),
        ..Call::null()
    };
    let without_room = Call {
        writes: vec![vec![segment; 4]; 8],
        reply: Some(vec![segment; 32]),
        ..wrong_count.clone()
    };
    each(
        requester,
        &[
            Call {
                reads: vec![at(44), at(48)],
                ..Call::reading(&[segment])
            },
            Call {
                reads: vec![at(48), at(44)],
                ..Call::reading(&[segment])
            },
            Call {
                reads: vec![at(4000)],
                ..Call::reading(&[segment])
            },
            Call {
                reads: vec![at(u32::MAX - 3)],
                ..Call::reading(&[segment])
            },
            wrong_count,
            in_credential,
            in_token,
            without_room,
        ],
    )
}

/// Segments and chunks without bytes, which hold nothing.
fn without_bytes(requester: &mut Requester) -> Result<Vec<String>> {
    requester.connect()?;
    let empty = requester.segment(0);
    let nowhere = Segment {
        handle: 0xdead_beef,
        ..empty
    };
    let full = requester.segment(100);
    each(
        requester,
        &[
            Call::reading(&[empty]),
            Call::reading(&[nowhere, full, nowhere]),
            Call {
                writes: vec![vec![], vec![nowhere], vec![full]],
                reply: Some(vec![nowhere]),
                ..Call::null()
            },
            Call {
                reply: Some(vec![]),
                ..Call::null()
            },
        ],
    )
}

/// One stretch of memory, time and again.
fn same_memory(requester: &mut Requester) -> Result<Vec<String>> {
    requester.connect()?;
    let segment = requester.segment(4096);
    each(
        requester,
        &[
            Call::reading(&[segment; 32]),
            Call {
                writes: vec![vec![segment; 8]; 2],
                reply: Some(vec![segment; 8]),
                ..Call::null()
            },
        ],
    )
}

/// Whole messages by Read chunk that are none.
fn position_zero(requester: &mut Requester) -> Result<Vec<String>> {
    requester.connect()?;
    let nomsg = |reads| Call {
        procedure: Procedure::Nomsg,
        reads,
        ..Call::null()
    };
    let at = |position, segment| ReadSegment { position, segment };
    let [empty, short, long] = [0, 7, 64 * 1024].map(|length| requester.segment(length));
    each(
        requester,
        &[
            nomsg(vec![]),
            nomsg(vec![at(0, empty)]),
            nomsg(vec![at(4, long)]),
            // The memory has other bytes than the XID.
            nomsg(vec![at(0, short)]),
            nomsg(vec![at(0, long)]),
        ],
    )
}
