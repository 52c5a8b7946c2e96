// SPDX-License-Identifier: GPL-2.0

//! Decoding of one received message, for either role (RFC 8166 sections 4.2 to 4.6).
//!
//! The checks here need nothing but the message. What a role expects is checked in addition, by
//! [`requester::decode`](super::requester::decode) for the requester.

use super::v2::options::{Optional, OPTIONAL};
use super::wire::chunk::Lists;
use super::wire::error::{ErrorBody, ErrorMessage};
use super::wire::header::{FixedHeader, Procedure, Versions, Xid, FIXED_LEN, VERSION_TWO};
use super::wire::malformed::HeaderError;
use super::wire::xdr::Reader;

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
    /// The error.
    pub(crate) error: E,
    /// Offset of the offending word, in bytes from the start of the message.
    pub(crate) at: usize,
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
            error: error(self.error),
            at: self.at,
            fixed: self.fixed,
            versions: self.versions,
        }
    }

    /// The RDMA_ERROR with `body` that repeats XID and version of the message (RFC 8166 section
    /// 4.5). `None` for a message without a complete fixed header, and for an RDMA_ERROR: one that
    /// cannot be decoded is discarded silently.
    pub(crate) fn answer(&self, body: ErrorBody) -> Option<ErrorMessage> {
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
    /// Turns a message that decodes into one that a role refuses for `error`.
    pub(crate) fn refuse<E>(&self, error: E, versions: Versions) -> Refused<E> {
        Refused {
            error,
            at: FIXED_LEN,
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
                error: HeaderError::Short,
                at: bytes.len(),
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
        .map_err(|error| Refused {
            error,
            at: error.position(reader.position()),
            fixed: Some(fixed),
            versions,
        })
    }

    /// Decodes what follows the fixed words and leaves `reader` at the end of the header.
    fn decode_body(
        fixed: &FixedHeader,
        reader: &mut Reader<'a>,
        versions: Versions,
    ) -> Result<Body<'a>, HeaderError> {
        if !versions.contains(fixed.version) {
            return Err(HeaderError::Version);
        }
        match fixed.procedure {
            Procedure::Msg => {
                let lists = Lists::decode(reader)?;
                let message_type = check_payload(*reader, fixed.xid)?;
                if lists.reads.has_position_zero() {
                    return Err(HeaderError::PositionZeroInMsg);
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
                    return Err(HeaderError::NoChunks);
                }
                reader.finish()?;
                Ok(Body::Nomsg { lists })
            }
            Procedure::Error => Ok(Body::Error(ErrorBody::decode(reader, fixed.version)?)),
            OPTIONAL if fixed.version == VERSION_TWO => {
                // What does not decode is a bad header, whatever the option.
                Optional::decode(reader)?;
                Err(HeaderError::UnknownOption)
            }
            Procedure::Msgp | Procedure::Done | Procedure::Undefined(_) => {
                Err(HeaderError::Procedure)
            }
        }
    }
}

/// Checks the first two words of the Payload at `reader`, whose header has this XID.
///
/// # Errors
///
/// [`HeaderError::ShortPayload`], [`HeaderError::XidMismatch`] and [`HeaderError::MessageType`].
pub(crate) fn check_payload(mut reader: Reader<'_>, xid: Xid) -> Result<MessageType, HeaderError> {
    let words = reader.decode_words();
    let [found, message_type] = words.map_err(|_| HeaderError::ShortPayload)?;
    if found != xid.0 {
        return Err(HeaderError::XidMismatch);
    }
    match message_type {
        0 => Ok(MessageType::Call),
        1 => Ok(MessageType::Reply),
        _ => Err(HeaderError::MessageType),
    }
}
