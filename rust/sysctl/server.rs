// SPDX-License-Identifier: GPL-2.0

//! The server's settings and counters in `/proc/sys/sunrpc/svc_rdma`.

use super::{Settings, VersionTwo};
use crate::bindings;
use kernel::{prelude::*, sync::atomic::Atomic};

/// Registers the server's settings and counters.
///
/// # Errors
///
/// `EBUSY` the second time; `ENOMEM`.
pub(crate) fn register() -> Result<Settings> {
    static WAS_REGISTERED: Atomic<bool> = Atomic::new(false);
    // SAFETY: The function registers the server's table, and the flag is its own.
    unsafe { Settings::new(bindings::rpcrdma_svc_sysctl_register, &WAS_REGISTERED) }
}

/// The number of Calls that a client of the local service can have outstanding, 4 to 16384.
pub(crate) fn max_requests() -> u32 {
    // SAFETY: Reads one word.
    unsafe { bindings::rpcrdma_svc_max_requests() }
}

/// The largest message that a client of the local service can send, and of the Replies to it, 4096
/// to 65536 bytes.
pub(crate) fn max_request_size() -> u32 {
    // SAFETY: Reads one word.
    unsafe { bindings::rpcrdma_svc_max_req_size() }
}

/// The number of RDMA Reads from one client that can be under way, 1 to 255.
pub(crate) fn max_read_requests() -> u8 {
    // SAFETY: Reads one word.
    let reads = unsafe { bindings::rpcrdma_svc_read_requests() };
    // The setting takes no more than that.
    u8::try_from(reads).unwrap_or(u8::MAX)
}

/// Whether a new connection of a client of this machine's service speaks Version Two.
pub(crate) fn service_version_two() -> VersionTwo {
    // SAFETY: Reads one word.
    unsafe { bindings::rpcrdma_svc_version_two() }.into()
}

/// Counters for all connections of the local service.
#[derive(Clone, Copy)]
pub(crate) enum ServerCounter {
    /// Segments read from requesters.
    Reads,
    /// Messages received.
    Receives,
    /// Segments written to requesters.
    Writes,
    /// Replies and RDMA Reads that found the send queue full.
    SendQueueFull,
}

impl ServerCounter {
    /// Adds `count`. Any context.
    pub(crate) fn add(self, count: u32) {
        let counter = match self {
            Self::Reads => bindings::rpcrdma_svc_counter_RPCRDMA_SVC_READ,
            Self::Receives => bindings::rpcrdma_svc_counter_RPCRDMA_SVC_RECV,
            Self::Writes => bindings::rpcrdma_svc_counter_RPCRDMA_SVC_WRITE,
            Self::SendQueueFull => bindings::rpcrdma_svc_counter_RPCRDMA_SVC_SQ_STARVE,
        };
        // CAST: A u32 always fits the kernel's usize.
        // SAFETY: The callee has a word for each of these.
        unsafe { bindings::rpcrdma_svc_count(counter, count as usize) };
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
        // SAFETY: It was mounted above, and nobody else has it.
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
            // SAFETY: By the function's contract.
            dentry: unsafe { (*mount).mnt_root },
        };
        // SAFETY: By the function's contract, and the name ends with a null byte.
        let opened = unsafe { file_open_root(&root, name.as_char_ptr(), O_RDONLY as i32, 0) };
        let file = from_err_ptr(opened)?;
        let mut text = [0u8; 32];
        let mut position = 0;
        // SAFETY: The file is open, and the buffer as large as said.
        let length =
            unsafe { kernel_read(file, text.as_mut_ptr().cast(), text.len(), &mut position) };
        // SAFETY: It was opened above, and nobody else has it.
        unsafe { filp_close(file, null_mut()) };
        let text = text.get(..usize::try_from(length)?).ok_or(EINVAL)?;
        let text = core::str::from_utf8(text).map_err(|_| EINVAL)?;
        text.trim().parse().map_err(|_| EINVAL)
    }

    // The module itself has registered them when its tests run.
    #[test]
    fn a_second_registration_is_refused() {
        assert_eq!(register().err(), Some(EBUSY));
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
