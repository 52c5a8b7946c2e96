// SPDX-License-Identifier: GPL-2.0

//! A responder without a budget of its own.

use crate::proto::message::Refused;
use crate::proto::responder::budget::CallBudget;
use crate::proto::responder::decode::{self, ReceivedByResponder};
use crate::proto::responder::refusal::CallError;
use crate::proto::wire::header::Versions;

/// All that a message can ask for.
pub(crate) const UNLIMITED: CallBudget = CallBudget {
    read_segments: u32::MAX,
    read_chunks: u32::MAX,
    read_bytes: u32::MAX,
    write_chunks: u32::MAX,
    write_segments: u32::MAX,
    reply_segments: u32::MAX,
};

/// [`decode::decode_call`] with no budget but the one that is built in.
///
/// # Errors
///
/// Those of [`decode::decode_call`].
pub(crate) fn decode_call(
    bytes: &[u8],
    versions: Versions,
) -> Result<ReceivedByResponder<'_>, Refused<CallError>> {
    decode::decode_call(bytes, versions, &UNLIMITED)
}
