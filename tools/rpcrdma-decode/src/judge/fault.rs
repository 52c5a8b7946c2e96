// SPDX-License-Identifier: GPL-2.0

//! What can be wrong with a message that decodes, or with when it was sent.

use std::fmt::{self, Display, Formatter};

use crate::proto::requester::decode::ReplyError;
use crate::proto::responder::budget::Excess;
use crate::proto::responder::refusal::CallError;

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The server of rpcrdma.ko refuses the message, whose header is good.
    Refused(CallError),
    /// Its client does.
    RefusedReply(ReplyError),
    /// A Read chunk is in the header of the RPC Call, or not as long as the word before it says
    /// (RFC 8166 section 3.4.4).
    WrongCount,
    /// The credit word is 0, which counts as 1 (RFC 8166 section 3.3.1).
    NoCredits,
    /// Its sender has as many Calls without an answer as it was granted (RFC 8166 section 3.3.1).
    Overrun {
        /// Those before this one.
        outstanding: u64,
        /// What the last Reply grants.
        granted: u32,
    },
    /// It is longer than its receiver has room for (RFC 8166 section 3.3.2).
    TooLong {
        /// Bytes that there is room for.
        threshold: u32,
    },
    /// A Call of this connection has the same XID, and no answer.
    SameXid,
    /// It answers a Call that was not sent, or has an answer.
    Unexpected,
    /// It invalidates a handle that its Call has not offered (RFC 8797 section 4.1).
    Invalidates(u32),
}

impl Fault {
    /// Its name for programs.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Refused(CallError::Budget(excess)) => format!("{excess:?}"),
            Self::Refused(error) => format!("{error:?}"),
            Self::RefusedReply(error) => format!("{error:?}"),
            Self::WrongCount => "WrongCount".into(),
            Self::NoCredits => "NoCredits".into(),
            Self::Overrun { .. } => "Overrun".into(),
            Self::TooLong { .. } => "TooLong".into(),
            Self::SameXid => "SameXid".into(),
            Self::Unexpected => "Unexpected".into(),
            Self::Invalidates(_) => "Invalidates".into(),
        }
    }
}

impl Display for Fault {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(error) => write!(f, "{}", refused(*error)),
            Self::RefusedReply(ReplyError::ReadList) => write!(f, "a Reply has a Read list"),
            Self::RefusedReply(_) => write!(f, "a backward Call has chunks"),
            Self::WrongCount => write!(
                f,
                "a Read chunk is in the header of the RPC Call, or not as long as the word before \
                 it says"
            ),
            Self::NoCredits => write!(f, "the credit word is 0"),
            Self::Overrun {
                outstanding,
                granted,
            } => write!(
                f,
                "Calls without an answer: {outstanding}, granted: {granted}"
            ),
            Self::TooLong { threshold } => {
                write!(f, "the receiver has room for {threshold} bytes")
            }
            Self::SameXid => write!(f, "a Call with this XID has no answer yet"),
            Self::Unexpected => write!(f, "no Call waits for this answer"),
            Self::Invalidates(handle) => write!(f, "its Call has not offered {handle:#010x}"),
        }
    }
}

fn refused(error: CallError) -> &'static str {
    match error {
        CallError::NoPositionZero => "no Position Zero chunk has the RPC message",
        CallError::PositionRange => "a Read chunk overlaps another one, or is beyond the message",
        CallError::ChunksInBackwardReply => "a backward Reply has chunks",
        CallError::Budget(excess) => match excess {
            Excess::ReadSegments => "more Read segments than rpcrdma.ko takes",
            Excess::ReadChunks => "more Read chunks than rpcrdma.ko takes",
            Excess::ReadBytes => "the RPC message has 4 GiB or more",
            Excess::WriteChunks => "more Write chunks than rpcrdma.ko takes",
            Excess::WriteSegments => "more segments in a Write chunk than rpcrdma.ko takes",
            Excess::ReplySegments => "more segments in the Reply chunk than rpcrdma.ko takes",
        },
        // The message's own line names these.
        CallError::Header(_) => "the header is bad",
    }
}
