// SPDX-License-Identifier: GPL-2.0

//! Tests of whole Reply messages, from encoder to decoder.

#[cfg_attr(rpcrdma_kunit, kernel::macros::kunit_tests(rpcrdma_proto_reply))]
mod tests {
    use crate::proto::message::{Body, Message};
    use crate::proto::requester::decode::{decode_received, Received, RequesterRefusal};
    use crate::proto::requester::reconcile::{Delivered, Delivery, Mismatch};
    use crate::proto::wire::chunk::Segment;
    use crate::proto::wire::encode::encode_header;
    use crate::proto::wire::encode::encode_inline;
    use crate::proto::wire::error::{ErrorBody, ErrorMessage};
    use crate::proto::wire::header::{
        Credits, FixedHeader, Procedure, Versions, Xid, VERSION_ONE, VERSION_TWO,
    };

    const XID: u32 = 0xa1b2_c3d4;

    /// The XID and the message type of an RPC Reply.
    const RPC_REPLY: [u8; 8] = [0xa1, 0xb2, 0xc3, 0xd4, 0, 0, 0, 1];

    /// The XID and the message type of an RPC Call.
    const RPC_CALL: [u8; 8] = [0xa1, 0xb2, 0xc3, 0xd4, 0, 0, 0, 0];

    const fn fixed(procedure: Procedure) -> FixedHeader {
        FixedHeader {
            xid: Xid(XID),
            version: VERSION_ONE,
            credits: Credits::new(16),
            procedure,
        }
    }

    /// Segments with these lengths.
    fn segments(lengths: &[u32]) -> impl Iterator<Item = Segment> + Clone + '_ {
        lengths.iter().map(|&length| Segment {
            handle: 0x2222_2222,
            length,
            offset: 0x1000,
        })
    }

    /// A message in a buffer that is large enough for these tests.
    struct Wire {
        bytes: [u8; 256],
        length: usize,
    }

    impl Wire {
        fn bytes(&self) -> &[u8] {
            self.bytes.get(..self.length).unwrap_or_default()
        }

        /// A Reply with these lengths in its chunks and the RPC message behind the header.
        fn reply<const N: usize>(
            procedure: Procedure,
            writes: [&[u32]; N],
            reply: Option<&[u32]>,
            rpc: &[u8],
        ) -> Option<Self> {
            let mut bytes = [0u8; 256];
            let chunks = writes.map(segments);
            let header = fixed(procedure);
            let length =
                encode_header(&mut bytes, &header, [], chunks, reply.map(segments)).ok()?;
            let end = length.checked_add(rpc.len())?;
            bytes.get_mut(length..end)?.copy_from_slice(rpc);
            Some(Self { bytes, length: end })
        }
    }

    /// Reconciles an inline Reply that returns `writes` with one offered Write chunk.
    fn inline<const N: usize>(
        writes: [&[u32]; N],
        offered: &[u32],
    ) -> Option<Result<Delivery, Mismatch>> {
        let wire = Wire::reply(Procedure::Msg, writes, None, &RPC_REPLY)?;
        match decode_received(wire.bytes(), Versions::ONE) {
            Ok(Received::Reply(reply)) => {
                let result = reply.reconcile([offered.iter().copied()], core::iter::empty());
                Some(result.map(
                    |Delivered {
                         writes: [write], ..
                     }| write,
                ))
            }
            _ => None,
        }
    }

    /// Reconciles a Reply that returns the Reply chunk `returned` with the offered one.
    fn with_reply_chunk(
        procedure: Procedure,
        returned: Option<&[u32]>,
        offered: &[u32],
    ) -> Option<Result<Delivery, Mismatch>> {
        let rpc: &[u8] = match procedure {
            Procedure::Msg => &RPC_REPLY,
            _ => &[],
        };
        // A Write chunk keeps the message valid when there is no Reply chunk.
        let wire = Wire::reply(procedure, [&[0]], returned, rpc)?;
        match decode_received(wire.bytes(), Versions::ONE) {
            Ok(Received::Reply(reply)) => {
                let result = reply.reconcile([[64].into_iter()], offered.iter().copied());
                Some(result.map(|delivered| delivered.reply))
            }
            _ => None,
        }
    }

    /// A delivery without gaps.
    fn whole(total: u64) -> Option<Result<Delivery, Mismatch>> {
        Some(Ok(Delivery {
            total,
            contiguous: total,
        }))
    }

    fn no(mismatch: Mismatch) -> Option<Result<Delivery, Mismatch>> {
        Some(Err(mismatch))
    }

    /// Proves: V1-066, V1-110.
    #[test]
    fn write_chunk_lengths_are_measured() {
        let offered = [4096, 4096, 4096];
        assert_eq!(inline([&[4096, 100, 0]], &offered), whole(4196));
        assert_eq!(inline([&[0, 0, 0]], &offered), whole(0));
        assert_eq!(inline([], &offered), whole(0));
        assert_eq!(inline([], &[]), whole(0));
        let most = [u32::MAX, u32::MAX];
        assert_eq!(inline([&most], &most), whole(0x1_ffff_fffe));
    }

    /// Proves: V1-063, V1-066.
    #[test]
    fn only_bytes_before_a_gap_are_contiguous() {
        let gap = Delivery {
            total: 4196,
            contiguous: 100,
        };
        assert_eq!(inline([&[100, 4096]], &[4096, 4096]), Some(Ok(gap)));
        let gap = Delivery {
            total: 1,
            contiguous: 0,
        };
        assert_eq!(inline([&[0, 1]], &[4096, 4096]), Some(Ok(gap)));
    }

    /// Proves: V1-062, V1-156.
    #[test]
    fn write_chunks_must_have_the_offered_shape() {
        let offered = [4096, 4096];
        assert_eq!(inline([&[1]], &offered), no(Mismatch::Segments));
        assert_eq!(inline([&[1, 0, 0]], &offered), no(Mismatch::Segments));
        assert_eq!(inline([&[4097, 0]], &offered), no(Mismatch::Length));
        assert_eq!(inline([&[0, 0], &[0]], &offered), no(Mismatch::Chunks));
        assert_eq!(inline([&[0]], &[]), no(Mismatch::Chunks));
    }

    /// Proves: V1-155, V1-156.
    #[test]
    fn a_result_is_where_its_write_chunk_was_offered() {
        let inline = [0; 1028];
        let violates = |placed: &[u32], length, head| {
            let delivery = inline_delivery(placed)?;
            Some(delivery.is_eligibility_violation(inline.get(..length)?, head))
        };
        // Not a byte of the result is inline, or there is no result.
        assert_eq!(violates(&[0, 0], 28, 28), Some(false));
        assert_eq!(violates(&[0, 0], 24, 28), Some(false));
        assert_eq!(violates(&[0, 0], 29, 28), Some(true));
        assert_eq!(violates(&[], 1028, 28), Some(true));
        // What follows a result that was placed directly.
        assert_eq!(violates(&[1, 0], 32, 28), Some(false));
        assert_eq!(violates(&[0, 1], 32, 28), Some(false));
    }

    /// Proves: V1-155.
    #[test]
    fn a_verifier_may_be_longer_than_was_expected() {
        let is_allowed = |verifier: u32, stat, length, head| {
            let rpc = with_verifier(verifier, stat)?;
            let delivery = inline_delivery(&[0, 0])?;
            Some(!delivery.is_eligibility_violation(rpc.get(..length)?, head))
        };
        assert_eq!(is_allowed(40, 0, 28 + 40, 28), Some(true));
        assert_eq!(is_allowed(40, 0, 28 + 44, 28), Some(false));
        assert_eq!(is_allowed(37, 0, 28 + 40, 28), Some(true));
        assert_eq!(is_allowed(36, 0, 28 + 40, 28), Some(false));
        // One that is longer than any may be, and a Call that was denied, which has none.
        assert_eq!(is_allowed(u32::MAX, 0, 28 + 400, 28), Some(true));
        assert_eq!(is_allowed(u32::MAX, 0, 28 + 404, 28), Some(false));
        assert_eq!(is_allowed(40, 1, 28 + 40, 28), Some(false));
        // No bytes that would say how long it is.
        assert_eq!(is_allowed(40, 0, 16, 12), Some(false));
    }

    /// Proves: V1-155.
    #[test]
    fn what_was_placed_is_behind_a_header_as_long_as_was_expected() {
        let is_behind = |placed: &[u32], verifier: u32, length, head| {
            let rpc = with_verifier(verifier, 0)?;
            let delivery = inline_delivery(placed)?;
            Some(delivery.is_after_longer_verifier(rpc.get(..length)?, head))
        };
        assert_eq!(is_behind(&[1, 0], 40, 60, 60), Some(false));
        assert_eq!(is_behind(&[1, 0], 40, 64, 60), Some(true));
        assert_eq!(is_behind(&[0, 0], 40, 64, 60), Some(false));
        // Round-up, alone and behind words of the header.
        assert_eq!(is_behind(&[1, 0], 40, 63, 60), Some(false));
        assert_eq!(is_behind(&[1, 0], 40, 67, 60), Some(true));
        assert_eq!(is_behind(&[1, 0], 40, 103, 60), Some(true));
        // More than the verifier, or without one: something else follows.
        assert_eq!(is_behind(&[1, 0], 40, 104, 60), Some(false));
        assert_eq!(is_behind(&[1, 0], 0, 64, 60), Some(false));
    }

    /// An accepted Reply, or one with another `stat`, with a verifier of RPCSEC_GSS of this length.
    fn with_verifier(verifier: u32, stat: u32) -> Option<[u8; 1028]> {
        let mut rpc = [0; 1028];
        for (at, word) in [XID, 1, stat, 6, verifier].into_iter().enumerate() {
            let to = at
                .checked_mul(4)
                .and_then(|at| rpc.get_mut(at..)?.first_chunk_mut());
            *to? = word.to_be_bytes();
        }
        Some(rpc)
    }

    /// What a Reply delivers that returns these lengths, or no Write list, for one chunk.
    fn inline_delivery(returned: &[u32]) -> Option<Delivery> {
        let offered = [4096, 4096];
        let result = match returned {
            [] => inline([], &offered),
            returned => inline([returned], &offered),
        };
        result?.ok()
    }

    /// Proves: V1-110.
    #[test]
    fn several_write_chunks_are_measured_in_order() {
        let wire = Wire::reply(Procedure::Msg, [&[7], &[8, 1]], None, &RPC_REPLY);
        let bytes = wire.as_ref().map(Wire::bytes).unwrap_or_default();
        let received = decode_received(bytes, Versions::ONE);
        assert!(matches!(received, Ok(Received::Reply(_))));
        let Ok(Received::Reply(reply)) = received else {
            return;
        };
        let offered: [&[u32]; 3] = [&[8], &[], &[8, 8]];
        let offered = offered.map(|lengths| lengths.iter().copied());
        let result = reply.reconcile(offered.clone(), core::iter::empty());
        let totals = result.map(|delivered| delivered.writes.map(|write| write.total));
        assert_eq!(totals, Ok([7, 0, 9]));

        let [first, _, second] = offered;
        let missing = reply.reconcile([first.clone(), second, first], core::iter::empty());
        assert_eq!(missing.err(), Some(Mismatch::Chunks));
    }

    /// Proves: V1-099, V1-115.
    #[test]
    fn reply_chunk_holds_the_payload_or_nothing() {
        let (msg, nomsg) = (Procedure::Msg, Procedure::Nomsg);
        let offered = [65536, 4096];
        let check = with_reply_chunk;
        assert_eq!(check(nomsg, Some(&[65536, 1200]), &offered), whole(66736));
        assert_eq!(check(nomsg, Some(&[8, 0]), &offered), whole(8));
        assert_eq!(check(msg, Some(&[0, 0]), &offered), whole(0));
        assert_eq!(check(msg, None, &offered), whole(0));
        let payload = no(Mismatch::NoPayload);
        assert_eq!(check(nomsg, Some(&[7, 0]), &offered), payload);
        assert_eq!(check(nomsg, None, &offered), payload);
        // The bytes that are there do not start where the Payload does.
        assert_eq!(check(nomsg, Some(&[7, 4096]), &offered), payload);
        let used = no(Mismatch::UsedReplyChunk);
        assert_eq!(check(msg, Some(&[1, 0]), &offered), used);
        let chunks = no(Mismatch::Chunks);
        assert_eq!(check(nomsg, Some(&[8]), &[]), chunks);
        let length = no(Mismatch::Length);
        assert_eq!(check(nomsg, Some(&[8, 4097]), &offered), length);
    }

    /// Proves: BD-024, BD-030.
    #[test]
    fn backward_call_has_no_chunks() {
        let mut header = [0u8; 28];
        let length = encode_inline(&mut header, VERSION_ONE, Xid(XID), Credits::new(2));
        assert_eq!(length, Ok(28));

        let wire = Wire::reply(Procedure::Msg, [], None, &RPC_CALL);
        let bytes = wire.as_ref().map(Wire::bytes).unwrap_or_default();
        assert_eq!(bytes.get(16..28), header.get(16..));
        let received = decode_received(bytes, Versions::ONE);
        assert!(matches!(received, Ok(Received::BackwardCall(_))));
        if let Ok(Received::BackwardCall(call)) = received {
            assert_eq!(call.fixed.xid, Xid(XID));
            assert_eq!(call.fixed.version, VERSION_ONE);
            assert_eq!(call.fixed.credits.get(), 16);
            assert_eq!(call.payload, RPC_CALL);
        }

        let wire = Wire::reply(Procedure::Msg, [&[64]], None, &RPC_CALL);
        let bytes = wire.as_ref().map(Wire::bytes).unwrap_or_default();
        let refused = decode_received(bytes, Versions::ONE).err();
        let answer = RequesterRefusal::Answer(ErrorMessage {
            xid: Xid(XID),
            version: VERSION_ONE,
            body: ErrorBody::Chunk,
        });
        let outcome = |awaited, backward| {
            let refused = refused.as_ref()?;
            Some(refused.at_requester(awaited, backward))
        };
        assert_eq!(outcome(false, true), Some(answer));
        assert_eq!(outcome(true, true), Some(answer));
        assert_eq!(outcome(false, false), Some(RequesterRefusal::Discard));
    }

    /// Proves: BD-029.
    #[test]
    fn requester_never_answers_its_own_reply() {
        // An RDMA_MSG that ends behind its three empty lists.
        let wire = Wire::reply(Procedure::Msg, [], None, &[]);
        let bytes = wire.as_ref().map(Wire::bytes).unwrap_or_default();
        let refused = decode_received(bytes, Versions::ONE).err();
        assert!(refused.is_some());
        let Some(refused) = refused else { return };
        assert_eq!(refused.at_requester(true, true), RequesterRefusal::EndCall);
        assert_eq!(refused.at_requester(true, false), RequesterRefusal::EndCall);
        assert_eq!(
            refused.at_requester(false, false),
            RequesterRefusal::Discard
        );
        assert_ne!(refused.at_requester(false, true), RequesterRefusal::Discard);
    }

    /// Proves: V1-121, V1-131, BD-029.
    #[test]
    fn a_reply_of_another_version_or_procedure_ends_its_call() {
        let wire = Wire::reply(Procedure::Msg, [], None, &RPC_REPLY);
        assert!(wire.is_some());
        let Some(mut wire) = wire else { return };
        for (at, value, body) in [
            (7, 3, ErrorBody::Version(Versions::ONE)),
            (15, 2, ErrorBody::Chunk),
            (15, 3, ErrorBody::Chunk),
            (15, 9, ErrorBody::Chunk),
        ] {
            let before = wire.bytes.get(at).copied();
            if let Some(slot) = wire.bytes.get_mut(at) {
                *slot = value;
            }
            let refused = decode_received(wire.bytes(), Versions::ONE).err();
            let answer = refused.and_then(|refused| refused.answer(body));
            assert!(answer.is_some());
            for backward in [false, true] {
                let outcome = |awaited| {
                    let refused = refused.as_ref()?;
                    Some(refused.at_requester(awaited, backward))
                };
                assert_eq!(outcome(true), Some(RequesterRefusal::EndCall));
                assert_eq!(outcome(false), answer.map(RequesterRefusal::Answer));
            }
            if let (Some(slot), Some(before)) = (wire.bytes.get_mut(at), before) {
                *slot = before;
            }
        }
    }

    #[test]
    fn every_truncated_reply_is_refused() {
        let wire = Wire::reply(Procedure::Msg, [&[64, 0]], Some(&[0]), &RPC_REPLY);
        let bytes = wire.as_ref().map(Wire::bytes).unwrap_or_default();
        assert!(matches!(
            decode_received(bytes, Versions::ONE),
            Ok(Received::Reply(_))
        ));
        for length in 0..bytes.len() {
            let truncated = bytes.get(..length).unwrap_or_default();
            assert!(decode_received(truncated, Versions::ONE).is_err());
        }
    }

    /// Proves: V1-126.
    #[test]
    fn errors_come_with_their_transaction() {
        let sent = ErrorMessage {
            xid: Xid(XID),
            version: VERSION_ONE,
            body: ErrorBody::Version(Versions { low: 2, high: 1 }),
        };
        let mut bytes = [0u8; 28];
        assert_eq!(sent.encode(&mut bytes, Credits::new(1)), Ok(28));
        let received = decode_received(&bytes, Versions::ONE);
        assert!(matches!(received, Ok(Received::Error(error)) if error == sent));
    }

    /// Proves: V1-127.
    #[test]
    fn no_call_ends_by_an_error_that_does_not_decode() {
        let sent = ErrorMessage {
            xid: Xid(XID),
            version: VERSION_ONE,
            body: ErrorBody::Version(Versions::ONE),
        };
        let mut bytes = [0u8; 28];
        assert_eq!(sent.encode(&mut bytes, Credits::new(1)), Ok(28));
        let silent = |bytes: &[u8]| {
            let refused = decode_received(bytes, Versions::ONE).err();
            assert!(refused.is_some());
            for (awaited, backward) in [(false, true), (false, false), (true, true), (true, false)]
            {
                let outcome = refused.map(|refused| refused.at_requester(awaited, backward));
                assert_eq!(outcome, Some(RequesterRefusal::Discard));
            }
        };
        for length in 0..28 {
            silent(bytes.get(..length).unwrap_or_default());
        }
        // An undefined code, and a version that is not spoken.
        for (at, value) in [(19, 3), (19, 0), (7, 2)] {
            let mut bytes = bytes;
            if let Some(slot) = bytes.get_mut(at) {
                *slot = value;
            }
            silent(&bytes);
        }
    }

    /// Proves: V1-061, V1-063, V1-064, V1-065, V1-069, V1-071.
    #[test]
    fn responder_fills_segments_in_order() {
        let wire = Wire::reply(Procedure::Nomsg, [], Some(&[8, 0, 8]), &[]);
        let bytes = wire.as_ref().map(Wire::bytes).unwrap_or_default();
        let message = Message::decode(bytes, Versions::ONE);
        let chunk = match message.map(|message| message.body) {
            Ok(Body::Nomsg { lists }) => lists.reply,
            _ => None,
        };
        assert!(chunk.is_some());
        let Some(chunk) = chunk else { return };
        assert_eq!(chunk.length(), 16);
        for (length, filled) in [
            (0, [0, 0, 0]),
            (7, [7, 0, 0]),
            (9, [8, 0, 1]),
            (u64::MAX, [8, 0, 8]),
        ] {
            assert!(chunk.filled(length).eq(segments(&filled)));
        }
    }

    /// Proves: V2-017, V2-037.
    #[test]
    fn a_reply_of_version_two_has_the_same_lists() {
        let wire = Wire::reply(Procedure::Msg, [&[64, 0]], Some(&[0]), &RPC_REPLY);
        assert!(wire.is_some());
        let Some(mut wire) = wire else { return };
        for version in [VERSION_ONE, VERSION_TWO] {
            if let Some(slot) = wire
                .bytes
                .get_mut(4..)
                .and_then(|rest| rest.first_chunk_mut())
            {
                *slot = version.to_be_bytes();
            }
            let received = decode_received(wire.bytes(), Versions::ONE_AND_TWO);
            let reply = match received {
                Ok(Received::Reply(reply)) => Some(reply),
                _ => None,
            };
            assert_eq!(reply.map(|reply| reply.fixed.version), Some(version));
            let result = reply.map(|reply| {
                reply
                    .reconcile([[64, 64].into_iter()], [64].into_iter())
                    .is_ok()
            });
            assert_eq!(result, Some(true));
        }
    }

    /// The sums of the lists of a Reply, as the specification has it and without the code under
    /// test: what was offered, against what was returned. `None` is a malformed Reply.
    fn expected_sums(
        offered: (&[&[u32]], &[u32]),
        returned: (&[&[u32]], Option<&[u32]>),
        is_nomsg: bool,
    ) -> Option<([u64; 2], u64)> {
        let sum = |lengths: &[u32]| lengths.iter().map(|&length| u64::from(length)).sum::<u64>();
        let fits = |returned: &[u32], offered: &[u32]| {
            returned.len() == offered.len()
                && returned
                    .iter()
                    .zip(offered)
                    .all(|(length, most)| length <= most)
        };
        let mut writes = [0; 2];
        if !returned.0.is_empty() {
            if returned.0.len() != offered.0.len() {
                return None;
            }
            for ((chunk, most), slot) in returned.0.iter().zip(offered.0).zip(&mut writes) {
                if !fits(chunk, most) {
                    return None;
                }
                *slot = sum(chunk);
            }
        }
        let chunk = match returned.1 {
            None => 0,
            Some(chunk) if !offered.1.is_empty() && fits(chunk, offered.1) => sum(chunk),
            Some(_) => return None,
        };
        let payload_is_there = if is_nomsg { chunk >= 8 } else { chunk == 0 };
        payload_is_there.then_some((writes, chunk))
    }

    /// The same from the code under test; `Some(None)` is a malformed Reply.
    fn found_sums(
        offered: (&[&[u32]], &[u32]),
        returned: (&[&[u32]], Option<&[u32]>),
        is_nomsg: bool,
    ) -> Option<Option<([u64; 2], u64)>> {
        let (procedure, rpc) = if is_nomsg {
            (Procedure::Nomsg, [].as_slice())
        } else {
            (Procedure::Msg, RPC_REPLY.as_slice())
        };
        let mut bytes = [0u8; 256];
        let writes = returned.0.iter().map(|lengths| segments(lengths));
        let header = fixed(procedure);
        let length =
            encode_header(&mut bytes, &header, [], writes, returned.1.map(segments)).ok()?;
        let end = length.checked_add(rpc.len())?;
        bytes.get_mut(length..end)?.copy_from_slice(rpc);
        let received = decode_received(bytes.get(..end)?, Versions::ONE);
        let Ok(Received::Reply(reply)) = received else {
            // Three empty lists in an RDMA_NOMSG are no message.
            return Some(None);
        };
        let mut chunks = offered.0.iter();
        let writes = [chunks.next(), chunks.next()];
        let writes = writes.map(|chunk| chunk.copied().unwrap_or_default().iter().copied());
        let result = reply.reconcile(writes, offered.1.iter().copied()).ok();
        Some(result.map(|found| (found.writes.map(|write| write.total), found.reply.total)))
    }

    /// Proves: V1-061, V1-062, V1-064, V1-066, V1-071, V1-110.
    #[test]
    fn every_combination_of_lists_is_reconciled() {
        let one: &[&[u32]] = &[&[64, 32]];
        let two: &[&[u32]] = &[&[64, 32], &[16]];
        let writes_returned: [&[&[u32]]; 14] = [
            &[],
            &[&[64, 32]],
            &[&[64, 1]],
            &[&[0, 0]],
            &[&[64, 33]],
            &[&[65, 0]],
            &[&[64]],
            &[&[64, 32, 0]],
            &[&[64, 32], &[16]],
            &[&[0, 0], &[0]],
            &[&[64, 0], &[17]],
            &[&[64, 0], &[16, 0]],
            &[&[16], &[64, 32]],
            &[&[64, 32], &[16], &[0]],
        ];
        let chunks_returned: [Option<&[u32]>; 8] = [
            None,
            Some(&[128, 8]),
            Some(&[8, 0]),
            Some(&[7, 0]),
            Some(&[0, 0]),
            Some(&[129, 0]),
            Some(&[128]),
            Some(&[128, 8, 0]),
        ];
        let mut good = 0;
        for writes in [&[], one, two] {
            for chunk in [[].as_slice(), &[128, 8]] {
                for writes_back in writes_returned {
                    for chunk_back in chunks_returned {
                        for is_nomsg in [false, true] {
                            let offered = (writes, chunk);
                            let returned = (writes_back, chunk_back);
                            let expected = expected_sums(offered, returned, is_nomsg);
                            let found = found_sums(offered, returned, is_nomsg);
                            assert_eq!(found, Some(expected));
                            good += usize::from(expected.is_some());
                        }
                    }
                }
            }
        }
        assert!(good > 0);
    }
}
