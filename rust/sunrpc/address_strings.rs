// SPDX-License-Identifier: GPL-2.0

//! A transport's address in the forms that users and rpcbind read (`address_strings`).

use crate::{
    bindings::{self, SocketAddress},
    sunrpc::address,
};
use core::ptr::null_mut;
use kernel::{
    ffi::c_ushort,
    fmt,
    prelude::*,
    str::{CStrExt, CString},
    sync::atomic::{Atomic, Full},
};

// CAST: Small enumerators.
const ADDRESS: usize = bindings::rpc_display_format_t_RPC_DISPLAY_ADDR as usize;
const HEX_ADDRESS: usize = bindings::rpc_display_format_t_RPC_DISPLAY_HEX_ADDR as usize;
const PORT: usize = bindings::rpc_display_format_t_RPC_DISPLAY_PORT as usize;
const HEX_PORT: usize = bindings::rpc_display_format_t_RPC_DISPLAY_HEX_PORT as usize;
const PROTO: usize = bindings::rpc_display_format_t_RPC_DISPLAY_PROTO as usize;
const NETID: usize = bindings::rpc_display_format_t_RPC_DISPLAY_NETID as usize;

/// Bytes in hexadecimal.
struct Hex<'a>(&'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .iter()
            .try_for_each(|byte| f.write_fmt(fmt!("{byte:02x}")))
    }
}

/// Replaces a string: by null for `None`, or if memory is short. Frees the old one after its last
/// RCU reader. May sleep.
///
/// # Safety
///
/// `xprt` is valid. The string is null, or one that this function has set.
unsafe fn set(xprt: *mut bindings::rpc_xprt, index: usize, text: Option<fmt::Arguments<'_>>) {
    let text = text.and_then(|text| CString::try_from_fmt(text).ok());
    let new = text.map_or(null_mut(), |text| {
        // SAFETY: The string is terminated.
        unsafe { bindings::kstrdup(text.as_char_ptr(), bindings::GFP_KERNEL) }
    });
    // SAFETY: The transport is valid; only RCU readers look at the string concurrently.
    let string = unsafe { Atomic::from_ptr(&raw mut (*xprt).address_strings[index]) };
    // As `rcu_assign_pointer` does, this makes the text visible to readers of the pointer.
    let old = string.xchg(new.cast_const(), Full);
    if !old.is_null() {
        // SAFETY: The string came from `kstrdup`, and new readers cannot find it.
        unsafe { bindings::kvfree_call_rcu(null_mut(), old.cast_mut().cast()) };
    }
}

/// Formats the strings of a new transport from its address.
///
/// # Errors
///
/// `EAFNOSUPPORT` if the address is neither IPv4 nor IPv6.
pub(super) fn format_strings(xprt: &mut bindings::rpc_xprt) -> Result {
    let peer = SocketAddress(xprt.addr);
    // Where the IP address is in `sockaddr_in` and in `sockaddr_in6`.
    let (netid, ip) = match peer.len() {
        16 => (c"rdma", 4..8),
        28 => (c"rdma6", 8..24),
        _ => return Err(address::unsupported()),
    };
    // SAFETY: The address has as many bytes.
    let bytes = unsafe { core::slice::from_raw_parts(peer.as_raw().cast::<u8>(), peer.len()) };
    let ip = Hex(bytes.get(ip).unwrap_or_default());
    xprt.address_strings[PROTO] = c"rdma".as_char_ptr();
    xprt.address_strings[NETID] = netid.as_char_ptr();
    // SAFETY: The transport is valid, and its strings are null.
    unsafe {
        set(xprt, ADDRESS, Some(fmt!("{peer}")));
        set(xprt, HEX_ADDRESS, Some(fmt!("{ip}")));
        set_port_strings(xprt, peer.port());
    }
    Ok(())
}

/// Formats the port in decimal, and in hexadecimal padded to four columns.
///
/// # Safety
///
/// As for [`set`].
unsafe fn set_port_strings(xprt: *mut bindings::rpc_xprt, port: u16) {
    // SAFETY: As this function's contract says.
    unsafe {
        set(xprt, PORT, Some(fmt!("{port}")));
        set(xprt, HEX_PORT, Some(fmt!("{port:4x}")));
    }
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
    unsafe {
        bindings::rpcrdma_rpc_set_port((&raw mut (*raw).addr).cast(), port);
        set_port_strings(raw, port);
    }
}

/// Frees the strings after their last reader is gone.
///
/// # Safety
///
/// New readers can no longer find `xprt`.
pub(super) unsafe fn free_strings(xprt: &mut bindings::rpc_xprt) {
    for index in [ADDRESS, HEX_ADDRESS, PORT, HEX_PORT] {
        // SAFETY: The transport is valid, and `set` has set the string.
        unsafe { set(xprt, index, None) };
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

    fn text(xprt: &bindings::rpc_xprt, index: usize) -> &CStr {
        // SAFETY: The strings have been set by the time this is called.
        unsafe { CStr::from_char_ptr(xprt.address_strings[index]) }
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
            (ADDRESS, c"192.0.2.1"),
            (PORT, c"20021"),
            (HEX_ADDRESS, c"c0000201"),
            (HEX_PORT, c"4e35"),
            (NETID, c"rdma"),
        ];
        for (index, wanted) in expected {
            assert!(text(&xprt, index) == wanted);
        }
        // SAFETY: Only this test knows of the transport.
        unsafe { free_strings(&mut xprt) };
    }
}
