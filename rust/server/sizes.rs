// SPDX-License-Identifier: GPL-2.0

//! How much of each resource a connection and a Call can have.

use super::PAGE_SIZE;
use crate::proto::responder::budget::{MAX_READ_CHUNKS, MAX_SEGMENTS};

/// Receives beyond what the requester may send: for Calls of requesters that count a Call as done
/// when its task is killed, and for those missing until the next batch is posted.
pub(super) const SPARE_RECEIVES: u32 = 8;

/// Calls that a new connection is granted. More come with its load.
pub(super) const FIRST_GRANT: u32 = 8;

/// Backward Calls that can be under way.
pub(super) const BACKWARD_CREDITS: u32 = 2;

/// The most pieces in which the data of a Call is read. A Position Zero chunk continues after each
/// of the other Read chunks.
pub(super) const CALL_PIECES: u32 = MAX_SEGMENTS + MAX_READ_CHUNKS - 1;

/// The most RDMA Writes of a Reply. Its head, pages and tail are separate ranges, which adds two
/// Writes, and the Send is one more work request: together as many as the RDMA Reads of a Call.
pub(super) const MAX_RDMA_WRITES: u32 = CALL_PIECES - 3;

/// Entries of a queue that the connection's work requests cannot use: one is for the drain, and
/// some providers keep one empty.
const KEPT_REQUESTS: u32 = 2;

/// The most parts of memory in one work request of a transfer. Providers reserve space for that
/// many in each entry of the send queue, and round it up: this many fit 320 bytes of mlx5, and 512
/// of rxe.
pub(super) const MAX_TRANSFER_SGE: u32 = 18;

/// Bytes that are read at once for the Calls of one connection at most, unless two of the
/// largest have more. No fabric has that many under way.
const MAX_READ_BYTES: u32 = 8 << 20;

/// The least size of a send queue, in work requests, so that large READs seldom wait for others.
/// With the Receives of 128 credits that makes 255 entries of a completion queue: providers round
/// one more up to a power of two.
const LEAST_REQUESTS: u32 = 115;

/// The smallest send queue that the largest RPC fits. `full` work requests transfer its pages if
/// each has as many elements as it can. Each piece ([`CALL_PIECES`]) may leave one of them partly
/// empty, and so adds one. Where memory is registered, the RPC takes up to `registered` work
/// requests instead.
pub(super) fn least_send_queue(full: u32, registered: u32) -> u32 {
    let requests = CALL_PIECES.saturating_add(full).max(registered);
    requests.saturating_add(KEPT_REQUESTS)
}

/// Work requests that can be under way.
pub(super) fn send_requests(full: u32) -> u32 {
    CALL_PIECES.saturating_add(full).max(LEAST_REQUESTS)
}

/// Pages that the Calls of one connection may have while they are fetched and wait for a thread, if
/// RPC messages have up to `max_message` bytes: enough for two of the largest.
pub(super) fn max_read_pages(max_message: u32) -> u32 {
    max_message
        .saturating_mul(2)
        .max(MAX_READ_BYTES)
        .div_ceil(PAGE_SIZE)
}

#[cfg(rpcrdma_kunit)]
#[kernel::macros::kunit_tests(rpcrdma_server_sizes)]
mod tests {
    use super::*;

    #[test]
    fn queues_hold_the_largest_rpc() {
        // For 1 and for 4 MiB, in pages of 4 KiB, and for any number.
        assert_eq!([15, 60, 90].map(send_requests), [115, 115, 137]);
        assert!((0..300).all(|full| send_requests(full) > full + MAX_SEGMENTS + 14));
        assert_eq!(
            [0, 50, 108].map(|more| least_send_queue(60, more)),
            [109, 109, 110]
        );
    }
}
