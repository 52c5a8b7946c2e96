// SPDX-License-Identifier: GPL-2.0

//! The functions of `verbs.h`, safe.

use std::ffi::CStr;
use std::io;
use std::time::Duration;

use crate::Result;

/// The largest message that can be received, in bytes.
const MESSAGE_SIZE: usize = 512 * 1024;

/// Bytes of memory for RDMA Reads and Writes that a connection has as a rule.
pub(crate) const MEMORY_SIZE: u32 = 2 << 20;

/// Octets of private data that a request can have.
const PRIVATE_SIZE: usize = 256;

#[allow(
    non_camel_case_types,
    reason = "these are the names in the header file"
)]
mod c {
    use std::ffi::c_char;

    #[repr(C)]
    pub(super) struct peer {
        _opaque: [u8; 0],
    }

    #[repr(C)]
    pub(super) struct peer_accept {
        pub(super) private_data: *const u8,
        pub(super) private_len: u8,
        pub(super) receives: u32,
        pub(super) receive_size: u32,
        pub(super) send_size: u32,
        pub(super) data_size: u32,
        pub(super) rnr_retries: u8,
        pub(super) ack_timeout: u8,
    }

    extern "C" {
        pub(super) fn peer_make() -> *mut peer;
        pub(super) fn peer_listen(port: u16) -> *mut peer;
        pub(super) fn peer_connect(
            peer: *mut peer,
            address: *const c_char,
            port: u16,
            parameters: *const peer_accept,
            establish: bool,
        ) -> i32;
        pub(super) fn peer_connect_unconfirmed(
            peer: *mut peer,
            address: *const c_char,
            port: u16,
            parameters: *const peer_accept,
        ) -> i32;
        pub(super) fn peer_confirm(peer: *mut peer) -> i32;
        pub(super) fn peer_ask(
            peer: *mut peer,
            address: *const c_char,
            port: u16,
            parameters: *const peer_accept,
        ) -> i32;
        pub(super) fn peer_wait_answer(peer: *mut peer, timeout_ms: i32) -> i32;
        pub(super) fn peer_memory(peer: *mut peer, key: *mut u32) -> u64;
        pub(super) fn peer_wait_end(peer: *mut peer, timeout_ms: i32) -> i32;
        pub(super) fn peer_vanish(peer: *mut peer) -> i32;
        pub(super) fn peer_refuse_writes(peer: *mut peer) -> i32;
        pub(super) fn peer_wait_request(
            peer: *mut peer,
            timeout_ms: i32,
            private_data: *mut u8,
            size: usize,
        ) -> i32;
        pub(super) fn peer_accept(peer: *mut peer, parameters: *const peer_accept) -> i32;
        pub(super) fn peer_reject(peer: *mut peer, private_data: *const u8, length: u8) -> i32;
        pub(super) fn peer_receive(
            peer: *mut peer,
            timeout_ms: i32,
            buffer: *mut u8,
            size: usize,
        ) -> i32;
        pub(super) fn peer_post_receive(peer: *mut peer) -> i32;
        pub(super) fn peer_send(
            peer: *mut peer,
            message: *const u8,
            length: usize,
            invalidate: *const u32,
        ) -> i32;
        pub(super) fn peer_flush(peer: *mut peer) -> i32;
        pub(super) fn peer_write(
            peer: *mut peer,
            buffer: *const u8,
            length: usize,
            address: u64,
            key: u32,
            immediate: bool,
        ) -> i32;
        pub(super) fn peer_read(
            peer: *mut peer,
            buffer: *mut u8,
            length: usize,
            address: u64,
            key: u32,
        ) -> i32;
        pub(super) fn peer_disconnect(peer: *mut peer);
    }
}

/// What a connection is accepted or asked for with.
pub(crate) struct Acceptance {
    /// The private data of the answer.
    pub(crate) private_data: Vec<u8>,
    /// Receives that are posted.
    pub(crate) receives: u32,
    /// Bytes that each of them takes.
    pub(crate) receive_size: u32,
    /// Bytes that a Send has at most.
    pub(crate) send_size: u32,
    /// Bytes of memory for RDMA Reads and Writes.
    pub(crate) data_size: u32,
    /// Times that the other end repeats a Send for which there is no Receive; 7 is for ever.
    pub(crate) rnr_retries: u8,
    /// How long either end waits for an acknowledgement, 4.096 us * 2^n, with which a connection is
    /// asked for; nothing is repeated then. 0 for what is usual.
    pub(crate) ack_timeout: u8,
}

impl Acceptance {
    /// The same for C, which points to `self`.
    fn to_c(&self) -> Result<c::peer_accept> {
        Ok(c::peer_accept {
            private_data: self.private_data.as_ptr(),
            private_len: u8::try_from(self.private_data.len()).map_err(|e| e.to_string())?,
            receives: self.receives,
            receive_size: self.receive_size,
            send_size: self.send_size,
            data_size: self.data_size,
            rnr_retries: self.rnr_retries,
            ack_timeout: self.ack_timeout,
        })
    }
}

/// What came of waiting.
pub(crate) enum Waited<T> {
    /// It came.
    For(T),
    /// The time is over.
    TimedOut,
    /// The connection has ended.
    Ended,
}

/// A listener, and the connection that it accepted last; or a connection that this end has asked
/// for.
pub(crate) struct Verbs {
    peer: *mut c::peer,
    /// Where messages are copied to.
    buffer: Vec<u8>,
    /// Bytes of memory for RDMA Reads and Writes.
    data_size: u32,
}

/// The value of a function that gives a negative errno when it fails.
fn check(what: &str, status: i32) -> Result<u32> {
    u32::try_from(status).map_err(|_| {
        let error = io::Error::from_raw_os_error(status.saturating_neg());
        format!("{what}: {error}")
    })
}

fn milliseconds(time: Duration) -> i32 {
    i32::try_from(time.as_millis()).unwrap_or(i32::MAX)
}

impl Verbs {
    /// Listens on `port`; the process ends if it cannot.
    pub(crate) fn listen(port: u16) -> Self {
        Self {
            // SAFETY: Always safe to call.
            peer: unsafe { c::peer_listen(port) },
            buffer: vec![0; MESSAGE_SIZE],
            data_size: 0,
        }
    }

    /// An end without a listener; the process ends if there can be none.
    pub(crate) fn new() -> Self {
        Self {
            // SAFETY: Always safe to call.
            peer: unsafe { c::peer_make() },
            buffer: vec![0; MESSAGE_SIZE],
            data_size: 0,
        }
    }

    /// Asks for a connection, and ends the one before. The handshake is only begun unless
    /// `establish`.
    pub(crate) fn connect(
        &mut self,
        address: &CStr,
        port: u16,
        offer: &Acceptance,
        establish: bool,
    ) -> Result {
        let parameters = offer.to_c()?;
        self.data_size = offer.data_size;
        // SAFETY: The end, the address and the parameters are valid during the call.
        check("connect", unsafe {
            c::peer_connect(self.peer, address.as_ptr(), port, &parameters, establish)
        })
        .map(drop)
    }

    /// Asks for a connection, and ends the one before. The other end is not told that its answer has
    /// come, until [`Self::confirm`].
    pub(crate) fn connect_unconfirmed(
        &mut self,
        address: &CStr,
        port: u16,
        offer: &Acceptance,
    ) -> Result {
        let parameters = offer.to_c()?;
        self.data_size = offer.data_size;
        // SAFETY: The end, the address and the parameters are valid during the call.
        check("connect", unsafe {
            c::peer_connect_unconfirmed(self.peer, address.as_ptr(), port, &parameters)
        })
        .map(drop)
    }

    /// Tells the other end that its answer has come.
    pub(crate) fn confirm(&mut self) -> Result {
        // SAFETY: The end is valid.
        check("confirm", unsafe { c::peer_confirm(self.peer) }).map(drop)
    }

    /// Asks for a connection whose handshake is only begun, without waiting for the answer.
    pub(crate) fn ask(&mut self, address: &CStr, port: u16, offer: &Acceptance) -> Result {
        let parameters = offer.to_c()?;
        // SAFETY: The end, the address and the parameters are valid during the call.
        check("ask", unsafe {
            c::peer_ask(self.peer, address.as_ptr(), port, &parameters)
        })
        .map(drop)
    }

    /// Waits for the answer to [`Self::ask`]: whether the other end has accepted, or refused, by
    /// which the connection has ended.
    pub(crate) fn answer(&mut self, limit: Duration) -> Result<Waited<()>> {
        // SAFETY: The end is valid.
        let status = unsafe { c::peer_wait_answer(self.peer, milliseconds(limit)) };
        match status.saturating_neg() {
            errno::ENOTCONN => Ok(Waited::Ended),
            errno::ETIMEDOUT => Ok(Waited::TimedOut),
            _ => check("waiting for an answer", status).map(|_| Waited::For(())),
        }
    }

    /// The memory that the other end may use: where it is, and its handle.
    pub(crate) fn memory(&mut self) -> (u64, u32) {
        let mut key = 0;
        // SAFETY: The end is valid, and so is the place for the handle.
        let address = unsafe { c::peer_memory(self.peer, &mut key) };
        (address, key)
    }

    /// Copies bytes into the memory that the other end may use, from byte `at` on.
    pub(crate) fn put(&mut self, at: usize, bytes: &[u8]) {
        let to = self.part(at, bytes.len());
        // SAFETY: The memory is there, and no reference to it exists.
        unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }

    /// What that memory has from byte `at` on.
    pub(crate) fn get(&mut self, at: usize, length: usize) -> Vec<u8> {
        let from = self.part(at, length);
        let mut bytes = vec![0; length];
        // SAFETY: The memory is there, and no reference to it exists.
        unsafe { from.copy_to_nonoverlapping(bytes.as_mut_ptr(), length) };
        bytes
    }

    /// Part of that memory, of which there has to be so much.
    fn part(&mut self, at: usize, length: usize) -> *mut u8 {
        let (address, _) = self.memory();
        let end = at.checked_add(length);
        assert!(address != 0 && end.is_some_and(|end| end <= self.data_size as usize));
        (address as usize as *mut u8).wrapping_add(at)
    }

    /// Waits until the other end has ended the connection by itself, as the connection manager
    /// tells; whether it has.
    pub(crate) fn is_ended(&mut self, limit: Duration) -> Result<bool> {
        // SAFETY: The end is valid.
        let status = unsafe { c::peer_wait_end(self.peer, milliseconds(limit)) };
        if status == -errno::ETIMEDOUT {
            return Ok(false);
        }
        check("waiting for the end", status).map(|_| true)
    }

    /// Answers nothing from here on, and tells nobody.
    pub(crate) fn vanish(&mut self) -> Result {
        // SAFETY: The end is valid.
        check("reset", unsafe { c::peer_vanish(self.peer) }).map(drop)
    }

    /// Refuses RDMA Writes and Reads of the other end, also those of no bytes.
    pub(crate) fn refuse_writes(&mut self) -> Result {
        // SAFETY: The end is valid.
        let status = unsafe { c::peer_refuse_writes(self.peer) };
        check("refusing writes", status).map(drop)
    }

    /// Waits for a request for a connection; its private data, or nothing.
    pub(crate) fn request(&mut self, limit: Duration) -> Result<Option<Vec<u8>>> {
        let mut private_data = vec![0; PRIVATE_SIZE];
        // SAFETY: The listener is valid, and the buffer as large as said.
        let length = unsafe {
            c::peer_wait_request(
                self.peer,
                milliseconds(limit),
                private_data.as_mut_ptr(),
                private_data.len(),
            )
        };
        if length == -errno::ETIMEDOUT {
            return Ok(None);
        }
        private_data.truncate(check("waiting for a request", length)? as usize);
        Ok(Some(private_data))
    }

    /// Accepts the request that came first, and ends the connection before.
    pub(crate) fn accept(&mut self, acceptance: &Acceptance) -> Result {
        let parameters = acceptance.to_c()?;
        self.data_size = acceptance.data_size;
        // SAFETY: Listener and parameters are valid during the call.
        check("accept", unsafe { c::peer_accept(self.peer, &parameters) }).map(drop)
    }

    /// Rejects the request that came first.
    pub(crate) fn reject(&mut self, private_data: &[u8]) -> Result {
        let length = u8::try_from(private_data.len()).map_err(|e| e.to_string())?;
        // SAFETY: The listener is valid, and the private data as long as said.
        check("reject", unsafe {
            c::peer_reject(self.peer, private_data.as_ptr(), length)
        })
        .map(drop)
    }

    /// Waits for a message.
    pub(crate) fn receive(&mut self, limit: Duration) -> Result<Waited<Vec<u8>>> {
        // SAFETY: The listener is valid, and the buffer as large as said.
        let length = unsafe {
            c::peer_receive(
                self.peer,
                milliseconds(limit),
                self.buffer.as_mut_ptr(),
                self.buffer.len(),
            )
        };
        if length == -errno::ETIMEDOUT {
            return Ok(Waited::TimedOut);
        }
        if length == -errno::ENOTCONN {
            return Ok(Waited::Ended);
        }
        let length = check("receive", length)? as usize;
        Ok(Waited::For(self.buffer[..length].to_vec()))
    }

    /// Posts the Receive of a message again.
    pub(crate) fn post_receive(&mut self) -> Result {
        // SAFETY: The listener is valid.
        check("posting a Receive", unsafe {
            c::peer_post_receive(self.peer)
        })
        .map(drop)
    }

    /// Posts a Send, by which the handle `invalidate` becomes invalid.
    pub(crate) fn send(&mut self, message: &[u8], invalidate: Option<u32>) -> Result {
        let invalidate = invalidate
            .as_ref()
            .map_or(std::ptr::null(), |handle| handle);
        // SAFETY: The listener is valid, the message as long as said, and the handle is read
        // during the call.
        check("send", unsafe {
            c::peer_send(self.peer, message.as_ptr(), message.len(), invalidate)
        })
        .map(drop)
    }

    /// Waits for all Sends; the status of the first that failed, 0 if none did.
    pub(crate) fn flush(&mut self) -> Result<u32> {
        // SAFETY: The listener is valid.
        check("waiting for Sends", unsafe { c::peer_flush(self.peer) })
    }

    /// An RDMA Write; its status, 0 for success.
    pub(crate) fn write(&mut self, data: &[u8], address: u64, handle: u32) -> Result<u32> {
        // SAFETY: The listener is valid, and the data as long as said.
        check("RDMA Write", unsafe {
            c::peer_write(self.peer, data.as_ptr(), data.len(), address, handle, false)
        })
    }

    /// An RDMA Write With Immediate of no bytes, which uses up a Receive; its status, 0 for success.
    pub(crate) fn write_immediate(&mut self) -> Result<u32> {
        // SAFETY: The listener is valid, and no byte is read.
        check("RDMA Write With Immediate", unsafe {
            c::peer_write(self.peer, [].as_ptr(), 0, 0, 0, true)
        })
    }

    /// An RDMA Read; its status, 0 for success.
    pub(crate) fn read(&mut self, data: &mut [u8], address: u64, handle: u32) -> Result<u32> {
        // SAFETY: The listener is valid, and the buffer as long as said.
        check("RDMA Read", unsafe {
            c::peer_read(self.peer, data.as_mut_ptr(), data.len(), address, handle)
        })
    }

    /// Ends the connection at once, whatever is under way.
    pub(crate) fn disconnect(&mut self) {
        // SAFETY: The listener is valid.
        unsafe { c::peer_disconnect(self.peer) };
    }
}

/// The numbers of Linux, the same on all of its architectures that matter here.
mod errno {
    pub(super) const ENOTCONN: i32 = 107;
    pub(super) const ETIMEDOUT: i32 = 110;
}
