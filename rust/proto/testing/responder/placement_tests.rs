// SPDX-License-Identifier: GPL-2.0

//! Tests of [`crate::proto::responder::placement`].

#[cfg_attr(rpcrdma_kunit, kernel::macros::kunit_tests(rpcrdma_proto_placement))]
mod tests {
    use crate::proto::responder::budget::CallBudget;
    use crate::proto::responder::call::ReceivedCall;
    use crate::proto::responder::decode::{decode_call, ReceivedByResponder};
    use crate::proto::responder::placement::*;
    use crate::proto::wire::chunk::{Lists, Segment};
    use crate::proto::wire::encode::encode_header;
    use crate::proto::wire::header::{Credits, FixedHeader, Procedure, Versions, Xid, VERSION_ONE};
    use crate::proto::wire::xdr::Reader;

    const THRESHOLD: u32 = 1024;

    /// The handle of the Reply chunk. Those of the Write chunks are their numbers.
    const REPLY: u32 = 99;

    const BUDGET: CallBudget = CallBudget {
        read_segments: 0,
        read_chunks: 0,
        read_bytes: 0,
        write_chunks: u32::MAX,
        write_segments: 4,
        reply_segments: 2,
    };

    /// Segments of one handle, each 1 MiB behind the one before.
    fn segments(lengths: &[u32], handle: u32) -> impl Iterator<Item = Segment> + Clone + '_ {
        let places = (0..).step_by(0x10_0000);
        lengths
            .iter()
            .zip(places)
            .map(move |(&length, offset)| Segment {
                handle,
                length,
                offset,
            })
    }

    /// A Call that offers segments of these lengths.
    struct Offer {
        bytes: [u8; 512],
        length: usize,
    }

    impl Offer {
        fn new(writes: &[&[u32]], chunk: Option<&[u32]>) -> Option<Self> {
            let mut bytes = [0; 512];
            let fixed = FixedHeader {
                xid: Xid(0),
                version: VERSION_ONE,
                credits: Credits::new(1),
                procedure: Procedure::Msg,
            };
            let writes = writes.iter().zip(0..);
            let writes = writes.map(|(lengths, number)| segments(lengths, number));
            let chunk = chunk.map(|lengths| segments(lengths, REPLY));
            let header = encode_header(&mut bytes, &fixed, [], writes, chunk).ok()?;
            let length = header.checked_add(8)?;
            Some(Self { bytes, length })
        }

        fn call(&self) -> Option<ReceivedCall<'_>> {
            let bytes = self.bytes.get(..self.length)?;
            match decode_call(bytes, Versions::ONE, &BUDGET) {
                Ok(ReceivedByResponder::Call(call)) => Some(call),
                _ => None,
            }
        }
    }

    /// The parts of a Reply, one after the other.
    #[derive(Clone, Copy)]
    enum Part {
        Words(u32),
        /// A result without its padding.
        Result(u32),
    }

    use Part::{Result as Data, Words};

    /// Names all results, and then decides about the Reply, which is complete with these parts.
    fn place<'a>(
        placement: &'a mut Placement,
        call: &ReceivedCall<'_>,
        parts: &[Part],
    ) -> Option<Result<ReplyPlan<'a>, ReplyTooLarge>> {
        let mut at = 0u32;
        for part in parts {
            let (Words(length) | Data(length)) = *part;
            if matches!(part, Data(_)) {
                placement.place(call, at, length);
            }
            at = at.checked_add(length)?;
        }
        Some(placement.finish(call, at, THRESHOLD))
    }

    /// The visible part of a plan: its procedure, the bytes in the Send behind the header and in
    /// the Reply chunk.
    fn form(plan: Option<Result<ReplyPlan<'_>, ReplyTooLarge>>) -> Option<(Procedure, u32, u32)> {
        let plan = plan?.ok()?;
        Some((plan.procedure(), plan.inline_len, plan.reply_chunk_len))
    }

    /// Whether a Reply of these parts travels in this form, with these results in the Write chunks
    /// and these ranges as the rest.
    fn travels(
        offer: Option<Offer>,
        parts: &[Part],
        expected: (Procedure, u32, u32),
        results: &[(u32, u32)],
        rest: &[(u32, u32)],
    ) -> Option<bool> {
        let offer = offer?;
        let call = offer.call()?;
        let mut placement = Placement::default();
        let plan = place(&mut placement, &call, parts);
        let is_form = form(plan) == Some(expected);
        let plan = plan?.ok()?;
        let pair = |range: Range| (range.at, range.length);
        let are_results = plan.results().map(pair).eq(results.iter().copied());
        let is_rest = plan.rest().map(pair).eq(rest.iter().copied());
        let mut buffer = [0xff; 512];
        let encoded = plan.encode(&mut buffer, &call, Credits::new(1)).ok();
        let is_header = encoded.and_then(|length| u32::try_from(length).ok());
        Some(is_form && are_results && is_rest && is_header == Some(plan.header_len))
    }

    const fn inline(length: u32) -> (Procedure, u32, u32) {
        (Procedure::Msg, length, 0)
    }

    const fn long(length: u32) -> (Procedure, u32, u32) {
        (Procedure::Nomsg, 0, length)
    }

    /// Proves: V1-073, V1-115.
    #[test]
    fn what_fits_comes_inline() {
        let all = [(0, 996)];
        let nothing = Offer::new(&[], None);
        let found = travels(nothing, &[Words(996)], inline(996), &[], &all);
        assert_eq!(found, Some(true));
        let offer = Offer::new(&[], Some(&[4096]));
        let found = travels(offer, &[Words(900)], inline(900), &[], &[(0, 900)]);
        assert_eq!(found, Some(true));
        // Without a Write list nothing is placed directly.
        let parts = [Words(128), Data(500), Words(4)];
        let nothing = Offer::new(&[], None);
        let found = travels(nothing, &parts, inline(632), &[], &[(0, 632)]);
        assert_eq!(found, Some(true));
    }

    /// Proves: V1-067, V1-069, V1-081, V1-107.
    #[test]
    fn items_go_into_write_chunks_without_their_padding() {
        let offer = || Offer::new(&[&[4096, 4096]], Some(&[65536]));
        let parts = [Words(128), Data(5), Words(3 + 4)];
        let rest = [(0, 128), (136, 4)];
        let found = travels(offer(), &parts, inline(132), &[(128, 5)], &rest);
        assert_eq!(found, Some(true));
        // The message may end with the data or within its padding.
        for length in 0..=3 {
            let parts = [Words(128), Data(5), Words(length)];
            let found = travels(offer(), &parts, inline(128), &[(128, 5)], &[(0, 128)]);
            assert_eq!(found, Some(true));
        }
    }

    /// Proves: V1-082, V1-083, V1-084.
    #[test]
    fn what_does_not_fit_goes_into_the_reply_chunk() {
        let offer = Offer::new(&[], Some(&[1024]));
        let found = travels(offer, &[Words(977)], long(977), &[], &[(0, 977)]);
        assert_eq!(found, Some(true));
        let parts = [Words(1200), Data(8190), Words(2 + 4)];
        let offer = Offer::new(&[&[8192]], Some(&[1000, 204]));
        let rest = [(0, 1200), (9392, 4)];
        let found = travels(offer, &parts, long(1204), &[(1200, 8190)], &rest);
        assert_eq!(found, Some(true));
        // Items without a Write chunk go with the rest.
        let offer = Offer::new(&[], Some(&[65536]));
        let found = travels(offer, &parts, long(9396), &[], &[(0, 9396)]);
        assert_eq!(found, Some(true));
    }

    /// Proves: V1-071, V1-108.
    #[test]
    fn write_chunks_are_used_in_the_order_of_the_items_with_data() {
        let two = || Offer::new(&[&[4096], &[4096]], None);
        let parts = [Words(128), Data(4), Data(8), Data(12)];
        let results = [(128, 4), (132, 8)];
        let rest = [(0, 128), (140, 12)];
        let found = travels(two(), &parts, inline(140), &results, &rest);
        assert_eq!(found, Some(true));
        let parts = [Words(128), Data(0), Data(8), Data(0)];
        let found = travels(two(), &parts, inline(128), &[(128, 8)], &[(0, 128)]);
        assert_eq!(found, Some(true));
        // A chunk without segments takes its turn.
        let parts = [Words(128), Data(4), Data(8)];
        let offer = Offer::new(&[&[], &[4096]], None);
        let results = [(128, 0), (132, 8)];
        let found = travels(offer, &parts, inline(132), &results, &[(0, 132)]);
        assert_eq!(found, Some(true));
    }

    /// Proves: V1-108.
    #[test]
    fn each_result_hears_which_chunk_it_has() {
        let offer = Offer::new(&[&[4096], &[], &[100]], None);
        let call = offer.as_ref().and_then(Offer::call);
        assert!(call.is_some());
        let Some(call) = call else { return };
        let mut placement = Placement::default();
        assert_eq!(placement.place(&call, 100, 0), None);
        assert_eq!(placement.place(&call, 104, 4096), Some(0));
        assert_eq!(placement.place(&call, 4204, 9), None);
        // A result that is too large leaves the chunk to another, which takes its place.
        assert_eq!(placement.place(&call, 4220, 101), None);
        assert!(placement.finish(&call, 4321, THRESHOLD).is_err());
        assert!(placement.finish(&call, 4320, THRESHOLD).is_ok());
        assert_eq!(placement.place(&call, 4220, 100), Some(2));
        assert!(placement.finish(&call, 4324, THRESHOLD).is_ok());
        assert_eq!(placement.place(&call, 4324, 1), None);
    }

    /// Proves: V1-071.
    #[test]
    fn results_that_are_discarded_give_their_chunks_back() {
        let offer = Offer::new(&[&[100], &[100]], None);
        let call = offer.as_ref().and_then(Offer::call);
        assert!(call.is_some());
        let Some(call) = call else { return };
        let mut placement = Placement::default();
        assert_eq!(placement.place(&call, 40, 99), Some(0));
        assert_eq!(placement.place(&call, 140, 100), Some(1));
        let results = |plan: Result<ReplyPlan<'_>, ReplyTooLarge>| {
            let lengths = plan.ok()?;
            let mut lengths = lengths.results().map(|result| (result.at, result.length));
            Some([lengths.next(), lengths.next()])
        };
        // An error took the place of the second one, or of both.
        let plan = placement.finish(&call, 144, THRESHOLD);
        assert_eq!(results(plan), Some([Some((40, 99)), None]));
        let plan = placement.finish(&call, 48, THRESHOLD);
        assert_eq!(results(plan), Some([None, None]));
        // The second one is encoded anew, at its place; and then both are.
        assert_eq!(placement.place(&call, 140, 30), Some(1));
        let plan = placement.finish(&call, 900, THRESHOLD);
        assert_eq!(results(plan), Some([Some((40, 99)), Some((140, 30))]));
        assert_eq!(placement.place(&call, 40, 20), Some(0));
        let plan = placement.finish(&call, 900, THRESHOLD);
        assert_eq!(results(plan), Some([Some((40, 20)), None]));
    }

    /// Proves: V1-137.
    #[test]
    fn chunks_that_are_too_small_are_noticed_before_they_are_used() {
        let is_refused = |chunk: Option<&[u32]>, length| {
            let offer = Offer::new(&[], chunk)?;
            let call = offer.call()?;
            let mut placement = Placement::default();
            Some(place(&mut placement, &call, &[Words(length)])?.is_err())
        };
        assert_eq!(is_refused(Some(&[4096]), 8192), Some(true));
        assert_eq!(is_refused(Some(&[4096, 4095]), 8192), Some(true));
        assert_eq!(is_refused(Some(&[4096, 4096]), 8192), Some(false));
        assert_eq!(is_refused(None, 8192), Some(true));
        // A sum in 32 bits would be 0.
        assert_eq!(is_refused(Some(&[1 << 31, 1 << 31]), 8192), Some(false));
        let is_placed = |lengths: &[u32], length| {
            let offer = Offer::new(&[lengths], Some(&[65536]))?;
            let call = offer.call()?;
            let mut placement = Placement::default();
            placement.place(&call, 128, length);
            // The Reply chunk does not help.
            let plan = placement.finish(&call, length + 131, THRESHOLD);
            Some(plan.is_ok())
        };
        assert_eq!(is_placed(&[8192], 8193), Some(false));
        assert_eq!(is_placed(&[8192, 1], 8193), Some(true));
        assert_eq!(is_placed(&[1 << 31, 1 << 31], 8193), Some(true));
        // The header alone is more than a Send may have.
        let offer = Offer::new(&[[1; 4].as_slice(); 5], Some(&[4096]));
        let call = offer.as_ref().and_then(Offer::call);
        let too_small = call.map(|call| Placement::default().finish(&call, 8, 407).is_err());
        assert_eq!(too_small, Some(true));
        let fits = call.map(|call| Placement::default().finish(&call, 8, 408).is_ok());
        assert_eq!(fits, Some(true));
    }

    /// Proves: V1-063, V1-064, V1-065, V1-069.
    #[test]
    fn chunks_are_filled_in_the_order_of_their_segments() {
        let offer = Offer::new(&[&[1000, 0, 2000, 10], &[50]], Some(&[1100, 400]));
        let call = offer.as_ref().and_then(Offer::call);
        assert!(call.is_some());
        let Some(call) = call else { return };
        let parts = [
            Words(1080),
            Data(2001),
            Words(3 + 28),
            Data(6),
            Words(2 + 4),
        ];
        let mut placement = Placement::default();
        let plan = place(&mut placement, &call, &parts).and_then(Result::ok);
        assert!(plan.is_some());
        let Some(plan) = plan else { return };
        let write = |at, handle, length, offset| {
            let target = Segment {
                handle,
                length,
                offset,
            };
            (at, target)
        };
        let expected = [
            write(1080, 0, 1000, 0),
            write(2080, 0, 1001, 0x20_0000),
            write(3112, 1, 6, 0),
            write(0, REPLY, 1080, 0),
            write(3084, REPLY, 20, 1080),
            write(3104, REPLY, 8, 0x10_0000),
            write(3120, REPLY, 4, 0x10_0008),
        ];
        assert!(plan.rdma_writes(&call).eq(expected));

        let mut buffer = [0xff; 512];
        let length = plan.encode(&mut buffer, &call, Credits::new(7)).ok();
        let header = length.and_then(|length| buffer.get(..length));
        let mut reader = Reader::new(header.unwrap_or_default());
        let fixed = FixedHeader::decode(&mut reader).map(|fixed| (fixed.credits, fixed.procedure));
        assert_eq!(fixed, Ok((Credits::new(7), Procedure::Nomsg)));
        let lists = Lists::decode(&mut reader).ok();
        let same = lists.map(|lists| {
            let mut chunks = lists.writes.chunks().chain(lists.reply);
            let mut is_next = |lengths: &[u32], handle| {
                let chunk = chunks.next();
                chunk.is_some_and(|chunk| chunk.segments().eq(segments(lengths, handle)))
            };
            let are_writes = is_next(&[1000, 0, 1001, 0], 0) && is_next(&[6], 1);
            are_writes && is_next(&[1100, 12], REPLY)
        });
        assert_eq!(same, Some(true));
    }
}
