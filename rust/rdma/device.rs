// SPDX-License-Identifier: GPL-2.0

//! An RDMA device and what it can do.

use crate::bindings;
use kernel::{
    fmt::{self, Write},
    types::Opaque,
};

/// An RDMA device.
///
/// # Invariants
///
/// A reference to a `Device` points to a registered `struct ib_device`. It is
/// borrowed from a [`super::CmId`], whose existence holds the device's removal up.
#[repr(transparent)]
pub(crate) struct Device(Opaque<bindings::ib_device>);

/// The attributes that decide whether and how a connection can be made.
#[derive(Clone, Copy)]
pub(crate) struct Attributes {
    /// Whether work requests can register memory (FRWR).
    pub(crate) memory_management: bool,
    /// Whether there are memory regions that need not be contiguous ([`super::MrType::SgGaps`]).
    pub(crate) gaps: bool,
    /// Pages that one memory region can hold.
    pub(crate) max_fast_reg_pages: u32,
    /// Elements in the gather list of a Send.
    pub(crate) max_send_sge: u32,
    /// Work requests that one queue can hold.
    pub(crate) max_qp_wr: u32,
    /// Completions that one completion queue can hold.
    pub(crate) max_cqe: u32,
    /// RDMA Reads that the peer may have outstanding.
    pub(crate) max_responder_resources: u8,
}

/// A copy of a device's name, with at least one 0 behind it.
pub(crate) struct DeviceName([u8; 64]);

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .iter()
            .take_while(|&&byte| byte != 0)
            .try_for_each(|&byte| f.write_char(byte.into()))
    }
}

impl Device {
    /// Borrows a device from C.
    ///
    /// # Safety
    ///
    /// `ptr` is a registered device that stays registered for all of `'a`.
    pub(super) unsafe fn from_raw<'a>(ptr: *mut bindings::ib_device) -> &'a Self {
        // SAFETY: `Device` is transparent over `ib_device`; the rest is the caller's promise.
        unsafe { &*ptr.cast() }
    }

    /// The C pointer.
    pub(super) fn as_raw(&self) -> *mut bindings::ib_device {
        self.0.get()
    }

    /// The name that `rdma link` shows, at this moment: devices can be renamed.
    pub(crate) fn name(&self) -> DeviceName {
        // SAFETY: By the type's invariant the device is valid. A change that is under way is copied as
        // far as it is; the last byte is always 0.
        let bytes = unsafe { (&raw const (*self.as_raw()).name).read_volatile() };
        DeviceName(bytes)
    }

    /// Reads the attributes, which do not change while the device is registered.
    pub(crate) fn attributes(&self) -> Attributes {
        // SAFETY: By the type's invariant the device is registered; its attributes are constant.
        let attrs = unsafe { &(*self.as_raw()).attrs };
        let management = bindings::ib_device_cap_flags_IB_DEVICE_MEM_MGT_EXTENSIONS;
        let gaps = bindings::ib_kernel_cap_flags_IBK_SG_GAPS_REG;
        Attributes {
            memory_management: attrs.device_cap_flags & u64::try_from(management).unwrap_or(0) != 0,
            gaps: attrs.kernel_cap_flags & u64::from(gaps) != 0,
            max_fast_reg_pages: attrs.max_fast_reg_page_list_len,
            max_send_sge: u32::try_from(attrs.max_send_sge).unwrap_or(0),
            max_qp_wr: u32::try_from(attrs.max_qp_wr).unwrap_or(0),
            max_cqe: u32::try_from(attrs.max_cqe).unwrap_or(0),
            max_responder_resources: u8::try_from(attrs.max_qp_rd_atom).unwrap_or(u8::MAX),
        }
    }
}
