// SPDX-License-Identifier: GPL-2.0

//! COMPOUNDs of NFSv4.0 (RFC 7530) that work on the file the test has made, without an OPEN, and of
//! NFSv4.1 (RFC 8881).

use crate::peer::words;
use crate::Result;

/// Bytes of a WRITE before its data.
pub(super) const WRITE_HEADER: usize = 36;

/// An opaque item.
pub(super) fn opaque(bytes: &[u8]) -> Vec<u8> {
    let mut item = words(&[bytes.len() as u32]);
    item.extend_from_slice(bytes);
    item.resize(item.len().next_multiple_of(4), 0);
    item
}

/// READ of `count` bytes from `offset` on.
pub(super) fn read_operation(offset: u32, count: u32) -> Vec<u8> {
    words(&[25, 0, 0, 0, 0, 0, offset, count])
}

/// WRITE of `data` from `offset` on.
pub(super) fn write_operation(offset: u32, data: &[u8]) -> Vec<u8> {
    let mut operation = words(&[38, 0, 0, 0, 0, 0, offset, 2]);
    operation.extend(opaque(data));
    operation
}

/// PUTROOTFH, and a LOOKUP of each name.
pub(super) fn lookups(names: &[&str]) -> Vec<Vec<u8>> {
    let lookup = |name: &&str| [words(&[15]), opaque(name.as_bytes())].concat();
    let mut operations = vec![words(&[24])];
    operations.extend(names.iter().map(lookup));
    operations
}

/// The path of the file that the test has made.
pub(super) fn path() -> Result<String> {
    std::env::var("FILE").map_err(|error| format!("FILE: {error}"))
}

/// The names in a path.
pub(super) fn names(path: &str) -> Vec<&str> {
    path.split('/').filter(|name| !name.is_empty()).collect()
}

/// An RPC Call, behind its XID, of these operations on the file.
pub(super) fn compound(operations: &[Vec<u8>]) -> Result<Vec<u8>> {
    let path = path()?;
    let all = [&lookups(&names(&path)), operations].concat();
    Ok(compound_of(0, &all))
}

/// An RPC Call, behind its XID, of these operations in this minor version.
pub(super) fn compound_of(minor_version: u32, operations: &[Vec<u8>]) -> Vec<u8> {
    // A Call by RPC version 2 of COMPOUND; the credentials are those of root, by AUTH_SYS.
    let mut body = words(&[0, 2, 100_003, 4, 1, 1, 20, 0, 0, 0, 0, 0, 0, 0]);
    // No tag.
    body.extend(words(&[0, minor_version, operations.len() as u32]));
    body.extend(operations.concat());
    body
}
