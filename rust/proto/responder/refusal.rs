// SPDX-License-Identifier: GPL-2.0

//! Why a responder refuses a message, and what it does then (RFC 8166 section 4.5).

use super::budget::Excess;
use crate::proto::message::Refused;
use crate::proto::wire::error::{ErrorBody, ErrorMessage};
use crate::proto::wire::malformed::HeaderError;

/// Why a responder refuses a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallError {
    /// The header is in error.
    Header(HeaderError),
    /// RDMA_NOMSG without a Position Zero chunk that holds bytes (`no_pz`).
    NoPositionZero,
    /// More than the budget allows.
    Budget(Excess),
    /// A Read chunk outside the Payload stream, or overlapping another one.
    PositionRange,
    /// A backward Reply with a chunk list (RFC 8167 section 5).
    ChunksInBackwardReply,
}

/// What a responder does with a message that it refuses. None is a reason to end the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResponderRefusal {
    /// Forgets it.
    Discard,
    /// Sends this RDMA_ERROR.
    Answer(ErrorMessage),
    /// Sends an RPC Reply with `accept_stat` GARBAGE_ARGS: the header is good, its chunks do not
    /// fit the RPC message (RFC 8166 section 4.5.2). See
    /// [`encode_garbage_args`](super::encode::encode_garbage_args). If that Reply has no room, the
    /// answer is this RDMA_ERROR.
    GarbageArgs(ErrorMessage),
}

impl Refused<CallError> {
    /// What a responder does.
    pub(crate) fn at_responder(&self) -> ResponderRefusal {
        let error = self.error;
        let body = match error {
            CallError::ChunksInBackwardReply | CallError::Header(HeaderError::MessageType) => {
                return ResponderRefusal::Discard;
            }
            CallError::Header(HeaderError::Version) => ErrorBody::Version(self.versions),
            CallError::Header(HeaderError::UnknownOption) => ErrorBody::InvalidOption,
            CallError::Header(_)
            | CallError::NoPositionZero
            | CallError::Budget(_)
            | CallError::PositionRange => ErrorBody::Chunk,
        };
        match self.answer(body) {
            Some(answer) if error == CallError::PositionRange => {
                ResponderRefusal::GarbageArgs(answer)
            }
            Some(answer) => ResponderRefusal::Answer(answer),
            None => ResponderRefusal::Discard,
        }
    }
}
