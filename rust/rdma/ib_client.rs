// SPDX-License-Identifier: GPL-2.0

//! This module as a client of the RDMA core (`struct ib_client`), which is told of devices that are
//! added and removed.

use super::{
    device::Device,
    list::{List, Node},
};
use crate::bindings;
use core::{ffi::c_void, ptr::NonNull};
use kernel::{
    error::to_result,
    ffi::c_int,
    prelude::*,
    str::CStrExt,
    sync::{
        atomic::{Acquire, Atomic, Full, Release},
        Arc,
    },
    time::{delay::fsleep, Delta},
    types::Opaque,
};

kernel::sync::global_lock! {
    // SAFETY: `IbClient::register` initialises it, once, before `IS_READY` lets anybody use it.
    unsafe(uninit) static DEVICES: Mutex<List<Node<Arc<Device>>>> = List::new();
}

/// How long to wait before memory is requested again.
const PAUSE: Delta = Delta::from_millis(100);

/// Whether [`IbClient::register`] was called.
static IS_CLAIMED: Atomic<bool> = Atomic::new(false);

/// Whether [`DEVICES`] is initialised.
static IS_READY: Atomic<bool> = Atomic::new(false);

/// The registration, in force for as long as the object exists.
#[pin_data(PinnedDrop)]
pub(crate) struct IbClient {
    #[pin]
    raw: Opaque<bindings::ib_client>,
}

// SAFETY: Only the drop uses the registration, and may do so from any thread.
unsafe impl Send for IbClient {}
// SAFETY: A shared reference to the registration gives access to nothing.
unsafe impl Sync for IbClient {}

impl IbClient {
    /// Registers the module. When this returns, all present devices have been added. May sleep.
    ///
    /// # Errors
    ///
    /// `EBUSY` the second time; otherwise whatever the RDMA core returns, usually `ENOMEM`.
    pub(crate) fn register() -> Result<Pin<KBox<Self>>> {
        if IS_CLAIMED.xchg(true, Full) {
            return Err(EBUSY);
        }
        // SAFETY: Only the first caller gets here.
        unsafe { DEVICES.init() };
        IS_READY.store(true, Release);
        KBox::try_pin_init(
            try_pin_init!(Self {
                raw <- Opaque::try_ffi_init(|raw: *mut bindings::ib_client| {
                    let client = bindings::ib_client {
                        name: super::CALLER.as_char_ptr(),
                        add: Some(add),
                        remove: Some(remove),
                        ..Default::default()
                    };
                    // SAFETY: The object is pinned, and stays until it is unregistered in `drop`.
                    unsafe {
                        raw.write(client);
                        to_result(bindings::ib_register_client(raw))
                    }
                }),
            }? Error),
            GFP_KERNEL,
        )
    }
}

#[pinned_drop]
impl PinnedDrop for IbClient {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: The client was registered. The call removes all of its devices, and so waits for
        // their users.
        unsafe { bindings::ib_unregister_client(self.raw.get()) };
    }
}

/// The device for this pointer, unless it is being removed or has not been added yet. May sleep.
pub(super) fn find(raw: *mut bindings::ib_device) -> Option<Arc<Device>> {
    if !IS_READY.load(Acquire) {
        return None;
    }
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
        // The RDMA core adds a device only once, and calls `remove` only if that succeeded. A
        // shortage of memory, which is temporary, must therefore not be reported as an error.
        let node = loop {
            // SAFETY: The device stays registered until `remove` has waited for the object to be
            // dropped.
            match unsafe { Device::new(raw) }.and_then(Node::new) {
                Err(ENOMEM) => fsleep(PAUSE),
                made => break made?,
            }
        };
        DEVICES.lock().push_back(node);
        Ok(0)
    })
}

/// `remove`: a device is being unregistered. Process context without locks; may sleep, and waits
/// until the device has no users.
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

#[cfg(rpcrdma_kunit)]
#[kernel::macros::kunit_tests(rpcrdma_rdma_ib_client)]
mod tests {
    use super::*;

    // The module itself is registered when its tests run.
    #[test]
    fn a_second_registration_is_refused() {
        assert_eq!(IbClient::register().err(), Some(EBUSY));
    }
}
