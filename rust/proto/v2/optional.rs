// SPDX-License-Identifier: GPL-2.0

//! RDMA_OPTIONAL, by which Version Two is extended
//! (draft-cel-nfsv4-rpcrdma-version-two-00 sections 3.1 and 4.2).
//!
//! A receiver answers an option that it does not support with RDMA_ERR_INVAL_OPTION, and uses
//! nothing of the message. The base protocol defines no option. To support one, [`KnownOption`]
//! gets a variant and [`KnownOption::ALL`] an entry; the compiler names the places that have to
//! handle it.

use super::opaque::decode_opaque;
use crate::proto::wire::header::Procedure;
use crate::proto::wire::malformed::Malformed;
use crate::proto::wire::xdr::Reader;

/// The procedure of an RDMA_OPTIONAL message (`RDMA_OPTIONAL`).
pub(crate) const OPTIONAL: Procedure = Procedure::Undefined(5);

/// An option that this implementation supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KnownOption {}

impl KnownOption {
    /// All of them.
    const ALL: [Self; 0] = [];

    /// The number of the option (`rdma_opttype`).
    const fn opttype(self) -> u32 {
        match self {}
    }
}

/// The body of an RDMA_OPTIONAL message. An RPC message may follow it in the same Send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Optional<'a> {
    /// The number of the optional operation (`rdma_opttype`).
    pub(crate) opttype: u32,
    /// Data that only the operation gives a meaning (`rdma_optinfo`), without its pad bytes.
    pub(crate) optinfo: &'a [u8],
}

impl<'a> Optional<'a> {
    /// Decodes the body.
    ///
    /// # Errors
    ///
    /// Those of [`Reader::decode_u32`] and [`decode_opaque`].
    pub(crate) fn decode(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(Self {
            opttype: reader.decode_u32()?,
            optinfo: decode_opaque(reader)?,
        })
    }

    /// The option, if it is supported.
    pub(crate) fn known(&self) -> Option<KnownOption> {
        let mut known = KnownOption::ALL.into_iter();
        known.find(|known| known.opttype() == self.opttype)
    }
}
