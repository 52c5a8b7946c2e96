// SPDX-License-Identifier: GPL-2.0

//! RDMA_OPTIONAL, by which Version Two is extended
//! (draft-cel-nfsv4-rpcrdma-version-two-00 sections 3.1 and 4.2).
//!
//! The base protocol defines no option, so that a receiver answers each of them with
//! RDMA_ERR_INVAL_OPTION.

use super::opaque::{put_opaque, take_opaque};
use crate::proto::testing::v2::VERSION_TWO;
use crate::proto::wire::header::{Credits, FixedHeader, Procedure, Xid};
use crate::proto::wire::malformed::Malformed;
use crate::proto::wire::xdr::{NoSpace, Reader, Writer};

/// The procedure of an RDMA_OPTIONAL message (`RDMA_OPTIONAL`).
pub(crate) const OPTIONAL: Procedure = Procedure::Undefined(5);

/// The body of an RDMA_OPTIONAL message. An RPC message may follow it in the same Send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Optional<'a> {
    /// The number of the optional operation (`rdma_opttype`).
    pub(crate) opttype: u32,
    /// Data that only the operation gives a meaning (`rdma_optinfo`), without its pad bytes.
    pub(crate) optinfo: &'a [u8],
}

impl<'a> Optional<'a> {
    /// Takes the body.
    ///
    /// # Errors
    ///
    /// Those of [`Reader::take_u32`] and [`take_opaque`].
    pub(crate) fn take(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(Self {
            opttype: reader.take_u32()?,
            optinfo: take_opaque(reader)?,
        })
    }

    /// Writes the message into `buffer` and returns its length in bytes, a multiple of four.
    ///
    /// # Errors
    ///
    /// [`NoSpace`] if it does not fit.
    pub(crate) fn encode(
        &self,
        buffer: &mut [u8],
        xid: Xid,
        credits: Credits,
    ) -> Result<usize, NoSpace> {
        let mut writer = Writer::new(buffer);
        let fixed = FixedHeader {
            xid,
            version: VERSION_TWO,
            credits,
            procedure: OPTIONAL,
        };
        fixed.put(&mut writer)?;
        writer.put_u32(self.opttype)?;
        put_opaque(&mut writer, self.optinfo)?;
        Ok(writer.position())
    }
}
