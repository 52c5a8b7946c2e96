// SPDX-License-Identifier: GPL-2.0

//! The limits of a connection, from the device and the settings.

use crate::{
    proto::wire::private_data::PrivateData,
    rdma::{Attributes, MrType, QpCaps, MAX_UNSIGNALED, RECV_BATCH},
};
use kernel::{page::PAGE_SIZE, str::CStr};

/// The most data of one RPC: a mebibyte that need not start at a page boundary.
// CAST: A u32 always fits the kernel's usize.
pub(super) const MAX_PAYLOAD: usize = (DATA_PAGES as usize) * PAGE_SIZE;

/// Pages that the data of one RPC can touch.
// CAST: A page is smaller than 4 GiB.
const DATA_PAGES: u32 = 1024 * 1024 / (PAGE_SIZE as u32) + 1;

/// The most segments of one list, which keeps headers of every form below the smallest threshold.
pub(super) const MAX_SEGMENTS: u32 = 16;

/// Backward Calls that the peer may have outstanding.
pub(super) const BACKWARD_SLOTS: u32 = 16;

/// The most Sends in progress. Even with more requests, more Sends are rarely in progress.
const MAX_SENDS: u32 = 128;

/// Send contexts that a connection begins with: with fewer, Sends one after the other would be
/// signalled more often.
const FIRST_SENDS: u32 = 2 * MAX_UNSIGNALED;

/// The fewest requests with which a connection is useful.
const MIN_REQUESTS: u32 = 4;

/// The sizes of a connection.
#[derive(Clone, Copy)]
pub(super) struct EpLimits {
    /// Calls that can be outstanding.
    pub(super) requests: u32,
    /// The type of the MRs.
    pub(super) mr_type: MrType,
    /// Pages that one of them holds; with gaps, pieces.
    pub(super) mr_pages: u32,
    /// MRs that one Call can have.
    pub(super) mrs_per_call: u32,
    /// The queues.
    pub(super) caps: QpCaps,
}

impl EpLimits {
    /// Fits a connection for at most `requests` Calls to a device, with the thresholds that are
    /// announced to the peer, and buffers for messages of `least` bytes.
    ///
    /// # Errors
    ///
    /// The requirement that the device does not meet.
    pub(super) fn new(
        attributes: &Attributes,
        requests: u32,
        own: &PrivateData,
        least: u32,
    ) -> Result<Self, &'static CStr> {
        if !attributes.memory_management || attributes.max_fast_reg_pages == 0 {
            return Err(c"it does not register memory by work requests (FRWR)");
        }
        if attributes.max_send_sge < 1 {
            return Err(c"its Sends have too few gather elements");
        }
        // With gaps, one MR holds the data, head and tail.
        let (mr_type, most) = if attributes.gaps {
            (MrType::SgGaps, DATA_PAGES + 2)
        } else {
            (MrType::MemReg, DATA_PAGES)
        };
        let mr_pages = attributes.max_fast_reg_pages.min(most);
        // Without gaps, head and tail of a message take one MR each.
        let segments = DATA_PAGES.div_ceil(mr_pages).saturating_add(2);
        if segments > MAX_SEGMENTS {
            return Err(c"its memory regions hold too few pages");
        }
        let mrs_per_call = segments.saturating_mul(2);
        let mut requests = requests;
        loop {
            let sends = requests.min(MAX_SENDS);
            let sends = sends.saturating_add(sends.min(MAX_UNSIGNALED));
            let for_sends = sends.saturating_mul(mrs_per_call.saturating_add(1));
            // Invalidations, and a check of the peer.
            let for_others = requests.saturating_mul(mrs_per_call).saturating_add(1);
            let receives = requests.saturating_add(BACKWARD_SLOTS.saturating_mul(2));
            let caps = QpCaps {
                send_size: own.send.bytes().max(least),
                recv_size: own.receive.bytes().max(least),
                // While fewer than a batch wait to be posted, all that are promised are posted.
                max_recv_wr: receives.saturating_add(RECV_BATCH - 1),
                max_send_wr: for_sends.saturating_add(for_others),
                max_send_sge: 1,
                first_sends: sends.min(FIRST_SENDS),
                max_sends: sends,
                ranges_per_msg: 0,
                slots: requests,
            };
            // Both queues have an entry for the drain.
            let needed = caps.max_send_wr.max(caps.max_recv_wr).saturating_add(1);
            let completions = caps.max_send_wr.saturating_add(caps.max_recv_wr);
            if needed <= attributes.max_qp_wr && completions.saturating_add(2) <= attributes.max_cqe
            {
                return Ok(Self {
                    requests,
                    mr_type,
                    mr_pages,
                    mrs_per_call,
                    caps,
                });
            }
            requests /= 2;
            if requests < MIN_REQUESTS {
                return Err(c"its queues hold too few work requests");
            }
        }
    }
}

#[cfg(rpcrdma_kunit)]
#[kernel::macros::kunit_tests(rpcrdma_limits)]
mod tests {
    use super::*;
    use crate::proto::wire::private_data::InlineSize;

    /// A large adapter.
    const LARGE: Attributes = Attributes {
        memory_management: true,
        gaps: false,
        max_fast_reg_pages: 65536,
        max_send_sge: 30,
        max_qp_wr: 32768,
        max_cqe: 4_194_303,
        max_responder_resources: 16,
        max_initiator_depth: 16,
        max_transfer_sge: 30,
    };

    /// Pages in the smallest MRs of which 16 are enough: 14 for a mebibyte, and one each for
    /// head and tail.
    const LEAST_PAGES: u32 = DATA_PAGES.div_ceil(14);
    const _: () = assert!(PAGE_SIZE != 4096 || LEAST_PAGES == 19);

    const OWN: PrivateData = PrivateData {
        send: InlineSize::DEFAULT,
        receive: InlineSize::DEFAULT,
        remote_invalidation: true,
    };

    fn fit(attributes: &Attributes) -> Result<EpLimits, &'static CStr> {
        EpLimits::new(attributes, 128, &OWN, 0)
    }

    #[test]
    fn a_large_device_has_what_is_asked_for() {
        assert!(fit(&LARGE).is_ok_and(|limits| limits.requests == 128
            && limits.mr_pages == DATA_PAGES
            // One each for the data, head and tail, in both directions.
            && limits.mrs_per_call == 6));
    }

    #[test]
    fn messages_have_room_whatever_is_announced() {
        for (least, size) in [(0, 1024), (1024, 1024), (4096, 4096)] {
            let caps = EpLimits::new(&LARGE, 128, &OWN, least).map(|limits| limits.caps);
            assert!(caps.is_ok_and(|caps| caps.send_size == size && caps.recv_size == size));
        }
    }

    #[test]
    fn a_message_goes_into_one_region_if_it_may_have_gaps() {
        let with = |gaps, max_fast_reg_pages| {
            let device = Attributes {
                gaps,
                max_fast_reg_pages,
                ..LARGE
            };
            fit(&device)
                .ok()
                .map(|limits| (limits.mr_type, limits.mr_pages))
        };
        // The data, head and tail.
        let whole = Some((MrType::SgGaps, DATA_PAGES + 2));
        assert_eq!(with(true, 65536), whole);
        assert_eq!(with(true, 19), Some((MrType::SgGaps, 19)));
        assert_eq!(with(false, 65536), Some((MrType::MemReg, DATA_PAGES)));
    }

    #[test]
    fn a_device_without_a_requirement_is_refused() {
        type Change = fn(&mut Attributes);
        let without: [(&str, Change); 6] = [
            ("FRWR", |device| device.memory_management = false),
            ("FRWR", |device| device.max_fast_reg_pages = 0),
            ("gather", |device| device.max_send_sge = 0),
            ("pages", |device| {
                device.max_fast_reg_pages = LEAST_PAGES - 1
            }),
            ("queues", |device| device.max_qp_wr = 64),
            ("queues", |device| device.max_cqe = 64),
        ];
        for (word, take_away) in without {
            let mut device = LARGE;
            take_away(&mut device);
            assert!(
                fit(&device).is_err_and(|requirement| requirement.to_str().unwrap().contains(word))
            );
        }
    }

    #[test]
    fn the_smallest_regions_hold_a_payload_in_16_segments() {
        let device = Attributes {
            max_fast_reg_pages: LEAST_PAGES,
            ..LARGE
        };
        assert!(fit(&device).is_ok_and(|limits| limits.mr_pages == LEAST_PAGES));
    }

    #[test]
    fn queues_fit_the_device() {
        let mut last = 0;
        for max_qp_wr in (0..16).map(|power| 1u32 << power) {
            let device = Attributes { max_qp_wr, ..LARGE };
            let requests = fit(&device).map_or(0, |limits| {
                assert!(limits.caps.max_send_wr < max_qp_wr);
                assert!(limits.caps.max_recv_wr < max_qp_wr);
                limits.requests
            });
            // A larger device never supports less.
            assert!(requests >= last);
            last = requests;
        }
        assert_eq!(last, 128);
    }
}
