// SPDX-License-Identifier: GPL-2.0

//! This module as a client of the RDMA core (`struct ib_client`), which notifies it of devices that
//! are added and removed.
//!
//! A list has the devices, not `ib_set_client_data()`: `ib_get_client_data()` takes no reference,
//! so `remove` could drop the object before [`find`] has one. The lock of the list prevents that.

use super::{
    device::Device,
    list::{List, Node},
};
use crate::bindings;
use core::{cell::UnsafeCell, ffi::c_void, ptr::NonNull};
use kernel::{
    error::to_result,
    ffi::c_int,
    prelude::*,
    sync::{Arc, SetOnce},
};

kernel::sync::global_lock! {
    // SAFETY: `IbClient::register` initialises it, once, before `IS_READY` lets anybody use it.
    unsafe(uninit) static DEVICES: Mutex<List<Node<Arc<Device>>>> = List::new();
}

/// Set when [`IbClient::register`] is called, which initialises [`DEVICES`] once.
static IS_CLAIMED: SetOnce<()> = SetOnce::new();

/// Set when [`DEVICES`] is initialised. [`find`] must not lock it before.
static IS_READY: SetOnce<()> = SetOnce::new();

/// What the RDMA core knows of the module.
struct Registration(UnsafeCell<bindings::ib_client>);

// SAFETY: Only the RDMA core uses it, which does its own locking.
unsafe impl Sync for Registration {}

static REGISTRATION: Registration = Registration(UnsafeCell::new(bindings::ib_client {
    name: super::CALLER.to_bytes_with_nul().as_ptr().cast(),
    add: Some(add),
    remove: Some(remove),
    ..pin_init::zeroed()
}));

/// The registration, in force for as long as the object exists.
pub(crate) struct IbClient(());

impl IbClient {
    /// Registers the module. When this returns, all present devices have been added. May sleep.
    ///
    /// # Errors
    ///
    /// `EBUSY` the second time; otherwise whatever the RDMA core returns, usually `ENOMEM`.
    pub(crate) fn register() -> Result<Self> {
        if !IS_CLAIMED.populate(()) {
            return Err(EBUSY);
        }
        // SAFETY: Only the first caller gets here.
        unsafe { DEVICES.init() };
        IS_READY.populate(());
        // SAFETY: The object is static, and registered once.
        to_result(unsafe { bindings::ib_register_client(REGISTRATION.0.get()) })?;
        Ok(Self(()))
    }
}

impl Drop for IbClient {
    fn drop(&mut self) {
        // SAFETY: The client was registered. The call removes all of its devices, and so waits for
        // their users.
        unsafe { bindings::ib_unregister_client(REGISTRATION.0.get()) };
    }
}

/// The device for this pointer, unless it is being removed or has not been added yet. May sleep.
pub(super) fn find(raw: *mut bindings::ib_device) -> Option<Arc<Device>> {
    IS_READY.as_ref()?;
    let devices = DEVICES.lock();
    let node = devices.iter().find(|node| node.value.as_raw() == raw)?;
    Some(node.value.clone())
}

/// `add`: a device was registered. Process context, may sleep.
///
/// # Safety
///
/// `raw` is a registered device, and stays registered until `remove` has returned.
unsafe extern "C" fn add(raw: *mut bindings::ib_device) -> c_int {
    kernel::error::from_result(|| {
        let raw = NonNull::new(raw).ok_or(EINVAL)?;
        // SAFETY: The device stays registered until `remove` has waited for the object to be
        // dropped.
        let node = Node::new(unsafe { Device::new(raw)? })?;
        DEVICES.lock().push_back(node);
        Ok(0)
    })
}

/// `remove`: a device is being unregistered. Process context, with the device's
/// `unregistration_lock`; may sleep, and waits until the device has no users.
///
/// # Safety
///
/// `add` has accepted the device.
unsafe extern "C" fn remove(raw: *mut bindings::ib_device, _data: *mut c_void) {
    let node = DEVICES
        .lock()
        .remove_first(|node| node.value.as_raw() == raw);
    if let Some(node) = node {
        Device::remove(KBox::into_inner(node).value);
    }
}
