// SPDX-License-Identifier: GPL-2.0

//! COMPOUNDs of NFSv4.0 (RFC 7530) that work on the file the test has made, without an OPEN.

use crate::peer::words;
use crate::Result;

/// Bytes of a WRITE before its data.
pub(super) const WRITE_HEADER: usize = 36;

/// An opaque item.
fn opaque(bytes: &[u8]) -> Vec<u8> {
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

/// An RPC Call, behind its XID, of these operations on the file.
pub(super) fn compound(operations: &[Vec<u8>]) -> Result<Vec<u8>> {
    let path = std::env::var("FILE").map_err(|error| format!("FILE: {error}"))?;
    let names: Vec<_> = path.split('/').filter(|name| !name.is_empty()).collect();
    // A Call by RPC version 2 of COMPOUND; the credentials are those of root, by AUTH_SYS.
    let mut body = words(&[0, 2, 100_003, 4, 1, 1, 20, 0, 0, 0, 0, 0, 0, 0]);
    // No tag, minor version 0; PUTROOTFH, and a LOOKUP of each name.
    let count = 1 + names.len() + operations.len();
    body.extend(words(&[0, 0, count as u32, 24]));
    for name in names {
        body.extend(words(&[15]));
        body.extend(opaque(name.as_bytes()));
    }
    body.extend(operations.concat());
    Ok(body)
}
