// SPDX-License-Identifier: GPL-2.0

//! The C types and functions of the RDMA and sunrpc headers.
//!
//! Only `rdma/`, `sunrpc/` and the few files in the top directory that face C use this module.
//! Types that the kernel crate has bindings for are taken from there, so that a `page` or a
//! `list_head` is the same type in both.

#![allow(
    clippy::all,
    clippy::as_underscore,
    clippy::cast_lossless,
    clippy::ptr_as_ptr,
    clippy::ref_as_ptr,
    clippy::undocumented_unsafe_blocks,
    dead_code,
    improper_ctypes,
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unreachable_pub,
    unsafe_op_in_unsafe_fn
)]
#![cfg_attr(not(CONFIG_RUSTC_HAS_UNNECESSARY_TRANSMUTES), allow(unknown_lints))]
#![allow(unnecessary_transmutes)]

pub(crate) use kernel::bindings::*;
use kernel::ffi;
use pin_init::MaybeZeroable;

// SAFETY: `__BindgenBitfieldUnit<Storage>` is a newtype around `Storage`.
unsafe impl<Storage> pin_init::Zeroable for __BindgenBitfieldUnit<Storage> where
    Storage: pin_init::Zeroable
{
}

mod memory;
mod pages;
mod shared;
pub(crate) use memory::{Exposable, Exposed, Exposure, Location, RegionSize};
pub(crate) use pages::{total_pages, PageRange, PageVec, PAGE_BYTES};
pub(crate) use shared::{Host, Net, OwnedMessage, SocketAddress};

include!(env!("RPCRDMA_BINDINGS"));
