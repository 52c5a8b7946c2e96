// SPDX-License-Identifier: GPL-2.0

//! Decoding of one received message, for either role (RFC 8166 sections 4.2 to 4.6).
//!
//! The checks here need nothing but the message. What a role expects is checked in addition, by
//! [`requester::decode`](super::requester::decode) for the requester.

use super::v2::options::{Optional, OPTIONAL};
use super::wire::chunk::Lists;
use super::wire::error::{ErrorBody, ErrorMessage};
use super::wire::header::{FixedHeader, Procedure, Versions, Xid, FIXED_LEN, VERSION_TWO};
use super::wire::malformed::{HeaderError, Malformed};
use super::wire::xdr::Reader;

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

/// What the procedure word announces.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Body<'a> {
    /// RDMA_MSG.
    Msg {
        /// The chunk lists.
        lists: Lists<'a>,
        /// The RPC message without what the chunks hold; it starts with the XID.
        payload: &'a [u8],
        /// The direction, which determines whose XID the message has.
        message_type: MessageType,
    },
    /// RDMA_NOMSG.
    Nomsg {
        /// The chunk lists, of which at least one is not empty.
        lists: Lists<'a>,
    },
    /// RDMA_ERROR. Bytes after the body are ignored.
    Error(ErrorBody),
}

/// A received message that decodes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message<'a> {
    /// The fixed words.
    pub(crate) fixed: FixedHeader,
    /// Bytes of the transport header, fixed words included.
    pub(crate) header_len: usize,
    /// What follows the header's fixed words.
    pub(crate) body: Body<'a>,
}

/// A received message that is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refused<E = HeaderError> {
    /// The error and its place.
    pub(crate) why: Malformed<E>,
    /// The fixed words, if they all arrived.
    pub(crate) fixed: Option<FixedHeader>,
    /// The versions that this endpoint supports.
    pub(crate) versions: Versions,
}

impl<E> Refused<E> {
    /// The same refusal in the terms of a role, which has errors of its own besides those of every
    /// header.
    pub(crate) fn map<F>(self, error: impl FnOnce(E) -> F) -> Refused<F> {
        Refused {
            why: Malformed::new(error(self.why.error), self.why.at),
            fixed: self.fixed,
            versions: self.versions,
        }
    }

    /// The RDMA_ERROR with `body` that repeats XID and version of the message (RFC 8166 section
    /// 4.5). `None` for a message without a complete fixed header, and for an RDMA_ERROR: one that
    /// cannot be decoded is discarded silently.
    pub(crate) fn error(&self, body: ErrorBody) -> Option<ErrorMessage> {
        let fixed = self.fixed.filter(|_| !self.is_error());
        fixed.map(|fixed| fixed.error(body))
    }

    /// Whether the message is an RDMA_OPTIONAL of a version that is supported.
    pub(crate) fn is_optional(&self) -> bool {
        let is_optional =
            |fixed: FixedHeader| fixed.version == VERSION_TWO && fixed.procedure == OPTIONAL;
        self.versions.contains(VERSION_TWO) && self.fixed.is_some_and(is_optional)
    }

    /// Whether the message is an RDMA_ERROR, in any version.
    pub(crate) fn is_error(&self) -> bool {
        let procedure = self.fixed.map(|fixed| fixed.procedure);
        procedure == Some(Procedure::Error)
    }
}

impl<'a> Message<'a> {
    /// Turns a message that decodes into one that a role refuses for `error` at byte `at`.
    pub(crate) fn refuse<E>(&self, error: E, at: usize, versions: Versions) -> Refused<E> {
        Refused {
            why: Malformed::new(error, at),
            fixed: Some(self.fixed),
            versions,
        }
    }

    /// Decodes `bytes`, one received message, at an endpoint that supports `versions`.
    ///
    /// # Errors
    ///
    /// The first fault in the order of the message: fixed words, version, procedure, lists,
    /// Payload.
    pub(crate) fn decode(bytes: &'a [u8], versions: Versions) -> Result<Self, Refused> {
        let mut reader = Reader::new(bytes);
        let Ok(fixed) = FixedHeader::decode(&mut reader) else {
            return Err(Refused {
                why: Malformed::new(HeaderError::Short, bytes.len()),
                fixed: None,
                versions,
            });
        };
        let body = Self::decode_body(&fixed, &mut reader, versions);
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

    /// Decodes what follows the fixed words and leaves `reader` at the end of the header.
    fn decode_body(
        fixed: &FixedHeader,
        reader: &mut Reader<'a>,
        versions: Versions,
    ) -> Result<Body<'a>, Malformed> {
        if !versions.contains(fixed.version) {
            return Err(Malformed::new(HeaderError::Version, VERSION_AT));
        }
        match fixed.procedure {
            Procedure::Msg => {
                let lists = Lists::decode(reader)?;
                let message_type = check_payload(*reader, fixed.xid)?;
                if lists.reads.has_position_zero() {
                    return Err(Malformed::new(HeaderError::PositionZeroInMsg, FIXED_LEN));
                }
                Ok(Body::Msg {
                    lists,
                    payload: reader.rest(),
                    message_type,
                })
            }
            Procedure::Nomsg => {
                let lists = Lists::decode(reader)?;
                if lists.is_empty() {
                    return Err(Malformed::new(HeaderError::NoChunks, FIXED_LEN));
                }
                reader.finish()?;
                Ok(Body::Nomsg { lists })
            }
            Procedure::Error => Ok(Body::Error(ErrorBody::decode(reader, fixed.version)?)),
            OPTIONAL if fixed.version == VERSION_TWO => {
                // What does not decode is a bad header, whatever the option.
                Optional::decode(reader)?;
                Err(Malformed::new(HeaderError::UnknownOption, FIXED_LEN))
            }
            Procedure::Msgp | Procedure::Done | Procedure::Undefined(_) => {
                Err(Malformed::new(HeaderError::Procedure, PROCEDURE_AT))
            }
        }
    }
}

/// Checks the first two words of the Payload at `reader`, whose header has this XID.
///
/// # Errors
///
/// [`HeaderError::ShortPayload`], [`HeaderError::XidMismatch`] and [`HeaderError::MessageType`].
pub(crate) fn check_payload(mut reader: Reader<'_>, xid: Xid) -> Result<MessageType, Malformed> {
    let start = reader.position();
    let short = Malformed::new(HeaderError::ShortPayload, start);
    let found = reader.decode_u32().map_err(|_| short)?;
    let type_at = reader.position();
    let message_type = reader.decode_u32().map_err(|_| short)?;
    if found != xid.0 {
        return Err(Malformed::new(HeaderError::XidMismatch, start));
    }
    match message_type {
        0 => Ok(MessageType::Call),
        1 => Ok(MessageType::Reply),
        _ => Err(Malformed::new(HeaderError::MessageType, type_at)),
    }
}
