// SPDX-License-Identifier: GPL-2.0

//! The administrator's settings in `/proc/sys/sunrpc`, which take effect for later mounts and
//! connections, and the server's counters.

use crate::{
    bindings::{self, rpcrdma_settings},
    proto::wire::header::Versions,
};
use kernel::{error::to_result, prelude::*};

/// The settings of both roles, registered until this object is dropped.
pub(crate) struct Settings(());

impl Settings {
    /// Registers the settings. Those of the client exist with `CONFIG_SUNRPC_DEBUG` only; without
    /// it there are none, which is not an error.
    ///
    /// # Errors
    ///
    /// `EBUSY` the second time; `ENOMEM`.
    pub(crate) fn register() -> Result<Self> {
        // SAFETY: No preconditions but process context.
        to_result(unsafe { bindings::rpcrdma_sysctl_register() })?;
        Ok(Self(()))
    }
}

impl Drop for Settings {
    fn drop(&mut self) {
        // SAFETY: `register` has registered them, and succeeds only once. May sleep.
        unsafe { bindings::rpcrdma_sysctl_unregister() };
    }
}

/// Defines a function for each setting, which returns its value.
macro_rules! settings {
    ($($(#[$doc:meta])* $vis:vis $name:ident;)*) => {$(
        $(#[$doc])*
        $vis fn $name() -> u32 {
            // SAFETY: The word is a static of this module. C writes it with WRITE_ONCE, or a
            // handler of the kernel does.
            unsafe { (&raw const rpcrdma_settings.$name).read_volatile() }
        }
    )*};
}

settings! {
    /// The number of Calls that a new mount can have outstanding, and of credits that it requests,
    /// 4 to 16384.
    pub(crate) slot_table_entries;
    /// The largest message that a new connection can receive, 1024 to 65536 bytes.
    pub(crate) max_inline_read;
    /// The largest message that a new connection can send, 1024 to 65536 bytes.
    pub(crate) max_inline_write;
    /// The number of Calls that a client of the local service can have outstanding, 4 to 16384.
    pub(crate) max_requests;
    /// The largest message that a client of the local service can send, and of the Replies to it,
    /// 4096 to 65536 bytes.
    pub(crate) max_req_size;
    read_requests;
    version_two;
    version_two_writes;
    svc_version_two;
}

/// The number of RDMA Reads from one client that can be under way, 1 to 255.
pub(crate) fn max_read_requests() -> u8 {
    // The setting takes no more than that.
    u8::try_from(read_requests()).unwrap_or(u8::MAX)
}

/// The versions that a connection may speak with this setting.
fn versions(setting: u32) -> Versions {
    match setting {
        bindings::rpcrdma_version_two_RPCRDMA_VERSION_TWO_OFFERED => Versions::ONE_AND_TWO,
        bindings::rpcrdma_version_two_RPCRDMA_VERSION_TWO_REQUIRED => Versions::TWO,
        _ => Versions::ONE,
    }
}

/// The versions that a new connection of the client may speak, and a number that changes with each
/// write of the setting.
pub(crate) fn client_versions() -> (Versions, u32) {
    (versions(version_two()), version_two_writes())
}

/// The versions that a new connection of a client of the local service may speak.
pub(crate) fn server_versions() -> Versions {
    versions(svc_version_two())
}

/// Counters for all connections of the local service.
#[repr(u32)]
pub(crate) enum ServerCounter {
    /// Segments read from requesters.
    Reads = bindings::rpcrdma_svc_counter_RPCRDMA_SVC_READ,
    /// Messages received.
    Receives = bindings::rpcrdma_svc_counter_RPCRDMA_SVC_RECV,
    /// Segments written to requesters.
    Writes = bindings::rpcrdma_svc_counter_RPCRDMA_SVC_WRITE,
    /// Replies and RDMA Reads that found the send queue full.
    SendQueueFull = bindings::rpcrdma_svc_counter_RPCRDMA_SVC_SQ_STARVE,
}

impl ServerCounter {
    /// Adds `count`. Any context.
    pub(crate) fn add(self, count: u32) {
        // CAST: The discriminant; and a u32 always fits the kernel's usize.
        // SAFETY: The callee has a word for each of these.
        unsafe { bindings::rpcrdma_svc_count(self as u32, count as usize) };
    }
}

#[cfg(rpcrdma_kunit)]
#[kernel::macros::kunit_tests(rpcrdma_sysctl)]
mod tests {
    use super::*;
    use core::ptr::{null_mut, NonNull};
    use kernel::bindings::{
        file_open_root, filp_close, get_fs_type, kern_mount, kern_unmount, kernel_read, path,
        vfsmount, O_RDONLY,
    };
    use kernel::error::from_err_ptr;

    /// The number that a file of procfs has. Threads that run tests see no mount, so it gets one.
    fn shown(name: &CStr) -> Result<u64> {
        // SAFETY: The name ends with a null byte.
        let procfs = unsafe { get_fs_type(c"proc".as_char_ptr()) };
        let procfs = NonNull::new(procfs).ok_or(ENODEV)?;
        // SAFETY: It is built in, and so stays.
        let mount = from_err_ptr(unsafe { kern_mount(procfs.as_ptr()) })?;
        // SAFETY: It was just mounted.
        let number = unsafe { read(mount, name) };
        // SAFETY: It was mounted above, for this function alone.
        unsafe { kern_unmount(mount) };
        number
    }

    /// [`shown`] of a file in `mount`.
    ///
    /// # Safety
    ///
    /// It is mounted.
    unsafe fn read(mount: *mut vfsmount, name: &CStr) -> Result<u64> {
        let root = path {
            mnt: mount,
            // SAFETY: `mount` is mounted (this function's contract).
            dentry: unsafe { (*mount).mnt_root },
        };
        // SAFETY: `mount` is mounted (this function's contract), and the name ends with a null
        // byte.
        let opened = unsafe { file_open_root(&root, name.as_char_ptr(), O_RDONLY as i32, 0) };
        let file = from_err_ptr(opened)?;
        let mut text = [0u8; 32];
        let mut position = 0;
        // SAFETY: The file is open, and the buffer as large as said.
        let length =
            unsafe { kernel_read(file, text.as_mut_ptr().cast(), text.len(), &mut position) };
        // SAFETY: It was opened above, for this function alone.
        unsafe { filp_close(file, null_mut()) };
        let text = text.get(..usize::try_from(length)?).ok_or(EINVAL)?;
        let text = core::str::from_utf8(text).map_err(|_| EINVAL)?;
        text.trim().parse().map_err(|_| EINVAL)
    }

    // The module itself has registered its settings when its tests run.
    #[test]
    fn a_second_registration_is_refused() {
        assert_eq!(Settings::register().err(), Some(EBUSY));
    }

    #[test]
    fn counters_are_shown_however_large_they_are() {
        let name = c"sys/sunrpc/svc_rdma/rdma_stat_sq_starve";
        let before = shown(name);
        assert!(before.is_ok());
        let Ok(mut expected) = before else { return };
        for more in [999_999, 1, 9_000_000, u32::MAX, u32::MAX, 1] {
            ServerCounter::SendQueueFull.add(more);
            expected += u64::from(more);
            assert_eq!(shown(name), Ok(expected));
        }
        assert!(expected > 1 << 33);
    }
}
