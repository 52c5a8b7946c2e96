// SPDX-License-Identifier: GPL-2.0

//! Messages that only Version Two has, for either role.

use super::optional::{Optional, OPTIONAL};
use super::VERSION_TWO;
use crate::proto::message::Refused;
use crate::proto::wire::header::{Credits, FixedHeader, Procedure, Versions, Xid};
use crate::proto::wire::malformed::Malformed;
use crate::proto::wire::xdr::{NoSpace, Reader, Writer};

/// `rdma_err` of an option that the receiver does not support (Version Two section 3.1).
const ERR_INVAL_OPTION: u32 = 3;

/// A message that only Version Two has.
#[derive(Clone, Copy, Debug)]
pub(crate) enum VersionTwo<'a> {
    /// RDMA_OPTIONAL.
    Optional {
        /// Bytes of the transport header.
        header_len: usize,
        /// The option.
        option: Optional<'a>,
        /// What follows it, which is not to be used unless the option is supported.
        payload: &'a [u8],
    },
    /// An RDMA_ERROR with RDMA_ERR_INVAL_OPTION: the option is not supported. Bytes after it are
    /// ignored.
    InvalidOption {
        /// Bytes of the message that mean something.
        header_len: usize,
    },
}

impl<'a> VersionTwo<'a> {
    /// Decodes `bytes` with the fixed words, if it is such a message and `versions` has Version
    /// Two. For all other messages the decoders of the roles are right.
    ///
    /// # Errors
    ///
    /// A [`Refused`], which is answered with ERR_CHUNK by either role.
    pub(crate) fn decode(
        bytes: &'a [u8],
        versions: Versions,
    ) -> Option<Result<(FixedHeader, Self), Refused>> {
        let mut reader = Reader::new(bytes);
        let fixed = FixedHeader::take(&mut reader).ok()?;
        if fixed.version != VERSION_TWO || !versions.contains(VERSION_TWO) {
            return None;
        }
        let body = match fixed.procedure {
            OPTIONAL => Self::take_optional(&mut reader),
            Procedure::Error if reader.take_u32() == Ok(ERR_INVAL_OPTION) => {
                Ok(Self::InvalidOption {
                    header_len: reader.position(),
                })
            }
            _ => return None,
        };
        Some(match body {
            Ok(body) => Ok((fixed, body)),
            Err(why) => Err(Refused {
                why,
                fixed: Some(fixed),
                versions,
            }),
        })
    }

    /// Takes the body of an RDMA_OPTIONAL.
    fn take_optional(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        let option = Optional::take(reader)?;
        Ok(Self::Optional {
            header_len: reader.position(),
            option,
            payload: reader.rest(),
        })
    }
}

/// Writes the answer to an RDMA_OPTIONAL with this XID into `buffer`; its length, 20 bytes.
///
/// # Errors
///
/// [`NoSpace`] if it does not fit.
pub(crate) fn encode_invalid_option(
    buffer: &mut [u8],
    xid: Xid,
    credits: Credits,
) -> Result<usize, NoSpace> {
    let mut writer = Writer::new(buffer);
    let fixed = FixedHeader {
        xid,
        version: VERSION_TWO,
        credits,
        procedure: Procedure::Error,
    };
    fixed.put(&mut writer)?;
    writer.put_u32(ERR_INVAL_OPTION)?;
    Ok(writer.position())
}
