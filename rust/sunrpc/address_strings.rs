// SPDX-License-Identifier: GPL-2.0

//! A transport's address in the forms that users and rpcbind read (`address_strings`).

use crate::{bindings, sunrpc::address};
use kernel::{
    ffi::{c_char, c_ushort},
    fmt,
    prelude::*,
    str::{CStr, CStrExt, CString},
    sync::atomic::{Atomic, Full},
};

/// The offsets of the address within `sockaddr_in` and `sockaddr_in6`.
const IN_ADDRESS: core::ops::Range<usize> = 4..8;
const IN6_ADDRESS: core::ops::Range<usize> = 8..24;

/// Allocates a copy for `kfree` to free; null if memory is short.
fn duplicate(text: Option<&CStr>) -> *const c_char {
    match text {
        // SAFETY: The string is terminated.
        Some(text) => unsafe { bindings::kstrdup(text.as_char_ptr(), bindings::GFP_KERNEL) },
        None => core::ptr::null(),
    }
}

fn format(arguments: fmt::Arguments<'_>) -> *const c_char {
    duplicate(CString::try_from_fmt(arguments).ok().as_deref())
}

/// Bytes in hexadecimal.
struct Hex<'a>(&'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .iter()
            .try_for_each(|byte| f.write_fmt(fmt!("{byte:02x}")))
    }
}

fn slot(index: bindings::rpc_display_format_t) -> usize {
    // CAST: A small enumerator.
    index as usize
}

/// Formats the strings of a new transport from its address.
///
/// # Errors
///
/// `EAFNOSUPPORT` if the address is neither IPv4 nor IPv6.
pub(super) fn format_strings(xprt: &mut bindings::rpc_xprt) -> Result {
    let address = &raw const xprt.addr;
    // SAFETY: The address is plain initialised memory, larger than any range that is read here.
    let bytes = unsafe {
        core::slice::from_raw_parts(
            address.cast::<u8>(),
            size_of::<bindings::__kernel_sockaddr_storage>(),
        )
    };
    // SAFETY: Every arm of the union starts with the family.
    let family = unsafe { (*address.cast::<bindings::sockaddr>()).sa_family };
    let (range, netid) = match u32::from(family) {
        bindings::AF_INET => (IN_ADDRESS, c"rdma"),
        bindings::AF_INET6 => (IN6_ADDRESS, c"rdma6"),
        family => {
            pr_err!("address family {family} is neither IPv4 nor IPv6\n");
            return Err(address::unsupported());
        }
    };
    let address_bytes = bytes.get(range).ok_or_else(address::unsupported)?;
    // SAFETY: The address is complete.
    let (port, hex_port) = unsafe { port_strings(address) };
    let mut text = [0u8; 128];
    // SAFETY: The address is complete, and the size is that of the buffer.
    unsafe { bindings::rpc_ntop(address.cast(), text.as_mut_ptr().cast(), text.len()) };

    let strings = &mut xprt.address_strings;
    strings[slot(bindings::rpc_display_format_t_RPC_DISPLAY_PROTO)] = c"rdma".as_char_ptr();
    strings[slot(bindings::rpc_display_format_t_RPC_DISPLAY_NETID)] = netid.as_char_ptr();
    strings[slot(bindings::rpc_display_format_t_RPC_DISPLAY_ADDR)] =
        duplicate(CStr::from_bytes_until_nul(&text).ok());
    strings[slot(bindings::rpc_display_format_t_RPC_DISPLAY_HEX_ADDR)] =
        format(fmt!("{}", Hex(address_bytes)));
    strings[slot(bindings::rpc_display_format_t_RPC_DISPLAY_PORT)] = port;
    strings[slot(bindings::rpc_display_format_t_RPC_DISPLAY_HEX_PORT)] = hex_port;
    Ok(())
}

/// The port in decimal, and in hexadecimal padded to four columns.
///
/// # Safety
///
/// `address` is a complete address.
unsafe fn port_strings(
    address: *const bindings::__kernel_sockaddr_storage,
) -> (*const c_char, *const c_char) {
    // SAFETY: `address` is a complete address (this function's contract); the call only reads it.
    let port = unsafe { bindings::rpcrdma_rpc_get_port(address.cast()) };
    (format(fmt!("{port}")), format(fmt!("{port:4x}")))
}

/// `set_port`: sets the port that rpcbind reported. On rpciod, may sleep.
///
/// # Safety
///
/// - `raw` is one of this module's transports, and stays allocated during the call.
/// - Its address is complete, and no other call changes its port or its strings concurrently:
///   sunrpc handles one answer of rpcbind at a time (`XPRT_BINDING`).
pub(super) unsafe extern "C" fn set_port(raw: *mut bindings::rpc_xprt, port: c_ushort) {
    // SAFETY: The transport is valid, its address is complete, and one task at a time handles
    // rpcbind's answer.
    let (decimal, hex) = unsafe {
        bindings::rpcrdma_rpc_set_port((&raw mut (*raw).addr).cast(), port);
        port_strings(&raw const (*raw).addr)
    };
    let mut old = [core::ptr::null(); 2];
    for ((index, new), old) in [
        (bindings::rpc_display_format_t_RPC_DISPLAY_PORT, decimal),
        (bindings::rpc_display_format_t_RPC_DISPLAY_HEX_PORT, hex),
    ]
    .into_iter()
    .zip(&mut old)
    {
        // SAFETY: The transport is valid; only RCU readers look at the string concurrently.
        let string = unsafe { Atomic::from_ptr(&raw mut (*raw).address_strings[slot(index)]) };
        // As `rcu_assign_pointer` does, this makes the text visible to whoever finds the string.
        *old = string.xchg(new, Full);
    }
    // SAFETY: May sleep. Readers of the strings are RCU readers, and can no longer find the old
    // ones.
    unsafe { bindings::synchronize_rcu() };
    for old in old {
        // SAFETY: The string came from `kstrdup`, or is null.
        unsafe { bindings::kfree(old.cast()) };
    }
}

/// Frees the strings after their last reader is gone.
///
/// # Safety
///
/// New readers can no longer find `xprt`.
pub(super) unsafe fn free_strings(xprt: &mut bindings::rpc_xprt) {
    // SAFETY: May sleep.
    unsafe { bindings::synchronize_rcu() };
    for index in [
        bindings::rpc_display_format_t_RPC_DISPLAY_ADDR,
        bindings::rpc_display_format_t_RPC_DISPLAY_PORT,
        bindings::rpc_display_format_t_RPC_DISPLAY_HEX_ADDR,
        bindings::rpc_display_format_t_RPC_DISPLAY_HEX_PORT,
    ] {
        // SAFETY: The string came from `kstrdup`, or is null.
        unsafe { bindings::kfree(xprt.address_strings[slot(index)].cast()) };
    }
}

#[cfg(rpcrdma_kunit)]
#[kernel::macros::kunit_tests(rpcrdma_sunrpc_address)]
mod tests {
    use super::*;

    fn xprt_with(bytes: &[u8]) -> KBox<bindings::rpc_xprt> {
        let mut xprt = KBox::new(bindings::rpc_xprt::default(), GFP_KERNEL).unwrap();
        // SAFETY: The address is plain memory, larger than the address of any of these tests.
        unsafe {
            core::ptr::copy_nonoverlapping(bytes.as_ptr(), (&raw mut xprt.addr).cast(), bytes.len())
        };
        xprt
    }

    fn text(xprt: &bindings::rpc_xprt, index: bindings::rpc_display_format_t) -> &CStr {
        // SAFETY: The strings have been set by the time this is called.
        unsafe { CStr::from_char_ptr(xprt.address_strings[slot(index)]) }
    }

    #[test]
    fn an_unknown_family_is_refused() {
        let family = u16::try_from(bindings::AF_UNIX).unwrap().to_ne_bytes();
        let mut xprt = xprt_with(&family);
        assert_eq!(format_strings(&mut xprt), Err(address::unsupported()));
        assert!(xprt.address_strings.iter().all(|text| text.is_null()));
    }

    #[test]
    fn an_ipv4_address_has_all_its_forms() {
        let family = u16::try_from(bindings::AF_INET).unwrap().to_ne_bytes();
        let mut xprt = xprt_with(&[family[0], family[1], 0x4e, 0x35, 192, 0, 2, 1]);
        assert_eq!(format_strings(&mut xprt), Ok(()));
        let expected = [
            (
                bindings::rpc_display_format_t_RPC_DISPLAY_ADDR,
                c"192.0.2.1",
            ),
            (bindings::rpc_display_format_t_RPC_DISPLAY_PORT, c"20021"),
            (
                bindings::rpc_display_format_t_RPC_DISPLAY_HEX_ADDR,
                c"c0000201",
            ),
            (bindings::rpc_display_format_t_RPC_DISPLAY_HEX_PORT, c"4e35"),
            (bindings::rpc_display_format_t_RPC_DISPLAY_NETID, c"rdma"),
        ];
        for (index, wanted) in expected {
            assert!(text(&xprt, index) == wanted);
        }
        // SAFETY: Nobody else knows of the transport.
        unsafe { free_strings(&mut xprt) };
    }
}
