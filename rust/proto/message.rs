// SPDX-License-Identifier: GPL-2.0

//! One received message as it is, for either role (RFC 8166 sections 4.2 to 4.6).
//!
//! The checks here are those that need nothing but the message. What a role expects comes on top,
//! in [`super::call`] and [`super::reply`].

use super::chunk::Lists;
use super::cursor::{Cause, Malformed, Reader};
use super::header::{ErrorBody, ErrorMessage, FixedHeader, Procedure, Versions, FIXED_LEN};
#[cfg(rpcrdma_selftest)]
use super::optional::Optional;

/// Offset of the version word.
const VERSION_AT: usize = 4;

/// Offset of the procedure word.
const PROCEDURE_AT: usize = 12;

/// Bytes that every Payload has: the XID and the message type (RFC 5531 section 9).
pub(crate) const MIN_PAYLOAD_LEN: u64 = 8;

/// The message type in an RPC header (RFC 5531 section 9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MessageType {
    /// CALL.
    Call,
    /// REPLY.
    Reply,
}

/// What the procedure word announced.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Body<'a> {
    /// RDMA_MSG.
    Msg {
        /// The chunk lists.
        lists: Lists<'a>,
        /// The RPC message without what the chunks hold; it starts with the XID.
        payload: &'a [u8],
        /// The direction, which decides whose XID space the XID belongs to.
        message_type: MessageType,
    },
    /// RDMA_NOMSG.
    Nomsg {
        /// The chunk lists, of which at least one is not empty.
        lists: Lists<'a>,
    },
    /// RDMA_ERROR. Bytes after the body are ignored.
    Error(ErrorBody),
    /// RDMA_OPTIONAL.
    #[cfg(rpcrdma_selftest)]
    Optional {
        /// The option.
        option: Optional<'a>,
        /// What follows it, which is not to be used unless the option is supported.
        payload: &'a [u8],
    },
}

/// A received message that decodes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message<'a> {
    /// The fixed words.
    pub(crate) fixed: FixedHeader,
    /// Bytes of the transport header, fixed words included.
    pub(crate) header_len: usize,
    /// What follows them.
    pub(crate) body: Body<'a>,
}

/// What to do about a received message that cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Send nothing. A requester that waits for the XID fails that RPC by itself.
    Discard,
    /// Send this RDMA_ERROR.
    Answer(ErrorMessage),
}

/// A received message that is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    /// The cause and its place.
    pub(crate) why: Malformed,
    /// The fixed words, if they all arrived.
    pub(crate) fixed: Option<FixedHeader>,
    /// The versions that this endpoint supports.
    pub(crate) versions: Versions,
}

impl Refused {
    /// What a requester does.
    ///
    /// `awaited` says whether a forward Call with this XID is outstanding, `backward` whether the
    /// endpoint serves backward Calls. A message that may be the Reply to an own Call is never
    /// answered: the RDMA_ERROR might hit a backward Call with the same XID.
    pub(crate) fn at_requester(&self, awaited: bool, backward: bool) -> Refusal {
        match self.why.cause {
            Cause::ReadListInReply => Refusal::Discard,
            Cause::ChunksInBackwardCall => self.answer(backward),
            // An option has no direction: either end answers for it.
            #[cfg(rpcrdma_selftest)]
            _ if self.is_optional() => self.answer(true),
            _ => self.answer(backward && !awaited),
        }
    }

    /// What a responder does. `None` is an RPC Reply with `accept_stat` GARBAGE_ARGS: the header
    /// is good, its chunks do not fit the RPC message (RFC 8166 section 4.5.2).
    #[cfg(rpcrdma_selftest)]
    pub(crate) fn at_responder(&self) -> Option<Refusal> {
        match self.why.cause {
            Cause::PositionRange => None,
            Cause::ChunksInBackwardReply => Some(Refusal::Discard),
            _ => Some(self.answer(true)),
        }
    }

    /// Whether the message is an RDMA_OPTIONAL.
    #[cfg(rpcrdma_selftest)]
    fn is_optional(&self) -> bool {
        let procedure = self.fixed.map(|fixed| fixed.procedure);
        procedure == Some(Procedure::Optional)
    }

    /// The answer that the cause calls for; `bad_header` says whether a message of a supported
    /// version and procedure gets one.
    fn answer(&self, bad_header: bool) -> Refusal {
        let Some(fixed) = self.fixed else {
            return Refusal::Discard;
        };
        // An RDMA_ERROR is never answered with another one.
        if fixed.procedure == Procedure::Error {
            return Refusal::Discard;
        }
        let body = match self.why.cause {
            Cause::Version => ErrorBody::Version(self.versions),
            Cause::Procedure => ErrorBody::Chunk,
            #[cfg(rpcrdma_selftest)]
            Cause::UnknownOption => ErrorBody::InvalidOption,
            Cause::MessageType => return Refusal::Discard,
            _ if bad_header => ErrorBody::Chunk,
            _ => return Refusal::Discard,
        };
        Refusal::Answer(ErrorMessage {
            xid: fixed.xid,
            version: fixed.version,
            body,
        })
    }
}

impl<'a> Message<'a> {
    /// Decodes `bytes`, one received message, at an endpoint that supports `versions`.
    ///
    /// # Errors
    ///
    /// The first fault in the order of the message: fixed words, version, procedure, lists,
    /// Payload.
    pub(crate) fn decode(bytes: &'a [u8], versions: Versions) -> Result<Self, Refused> {
        let mut reader = Reader::new(bytes);
        let Ok(fixed) = FixedHeader::take(&mut reader) else {
            return Err(Refused {
                why: Malformed::new(Cause::Short, bytes.len()),
                fixed: None,
                versions,
            });
        };
        let body = Self::take_body(&fixed, &mut reader, versions);
        body.map(|body| Self {
            fixed,
            header_len: reader.position(),
            body,
        })
        .map_err(|why| Refused {
            why,
            fixed: Some(fixed),
            versions,
        })
    }

    /// Turns a message that decodes into one that is refused for `cause` at byte `at`.
    pub(crate) fn refuse(&self, cause: Cause, at: usize, versions: Versions) -> Refused {
        Refused {
            why: Malformed::new(cause, at),
            fixed: Some(self.fixed),
            versions,
        }
    }

    /// Takes what follows the fixed words and leaves `reader` at the end of the header.
    fn take_body(
        fixed: &FixedHeader,
        reader: &mut Reader<'a>,
        versions: Versions,
    ) -> Result<Body<'a>, Malformed> {
        if !versions.contains(fixed.version) {
            return Err(Malformed::new(Cause::Version, VERSION_AT));
        }
        match fixed.procedure {
            Procedure::Msg => {
                let lists = Lists::take(reader)?;
                let message_type = check_payload(*reader, fixed)?;
                if lists.reads.segments().any(|entry| entry.position == 0) {
                    return Err(Malformed::new(Cause::PositionZeroInMsg, FIXED_LEN));
                }
                Ok(Body::Msg {
                    lists,
                    payload: reader.rest(),
                    message_type,
                })
            }
            Procedure::Nomsg => {
                let lists = Lists::take(reader)?;
                if lists.is_empty() {
                    return Err(Malformed::new(Cause::NoChunks, FIXED_LEN));
                }
                reader.finish()?;
                Ok(Body::Nomsg { lists })
            }
            Procedure::Error => Ok(Body::Error(ErrorBody::take(reader, fixed.version)?)),
            #[cfg(rpcrdma_selftest)]
            Procedure::Optional => Ok(Body::Optional {
                option: Optional::take(reader)?,
                payload: reader.rest(),
            }),
            Procedure::Msgp | Procedure::Done | Procedure::Undefined(_) => {
                Err(Malformed::new(Cause::Procedure, PROCEDURE_AT))
            }
        }
    }
}

/// Checks the first two words of the Payload at `reader`.
///
/// # Errors
///
/// [`Cause::ShortPayload`], [`Cause::XidMismatch`] and [`Cause::MessageType`].
pub(crate) fn check_payload(
    mut reader: Reader<'_>,
    fixed: &FixedHeader,
) -> Result<MessageType, Malformed> {
    let start = reader.position();
    let short = Malformed::new(Cause::ShortPayload, start);
    let xid = reader.take_u32().map_err(|_| short)?;
    let type_at = reader.position();
    let message_type = reader.take_u32().map_err(|_| short)?;
    if xid != fixed.xid.0 {
        return Err(Malformed::new(Cause::XidMismatch, start));
    }
    match message_type {
        0 => Ok(MessageType::Call),
        1 => Ok(MessageType::Reply),
        _ => Err(Malformed::new(Cause::MessageType, type_at)),
    }
}
