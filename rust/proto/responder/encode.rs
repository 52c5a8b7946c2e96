// SPDX-License-Identifier: GPL-2.0

//! The header of a Reply (RFC 8166 section 3.5).

use super::call::ReceivedCall;
use super::placement::ReplyPlan;
use crate::proto::wire::chunk::{Chunk, Lists, Segment};
use crate::proto::wire::encode::encode_header;
use crate::proto::wire::header::{Credits, FixedHeader, Procedure};
use crate::proto::wire::xdr::{NoSpace, Reader, Writer};

impl ReplyPlan<'_> {
    /// Writes the header of the Reply to `call` into `buffer` and returns its length in bytes,
    /// which is the one of the plan. All chunks of the Call are returned, the unused ones included,
    /// with the lengths that were placed (RFC 8166 section 3.4.6).
    ///
    /// # Errors
    ///
    /// [`NoSpace`] if the header does not fit.
    pub(crate) fn encode(
        &self,
        buffer: &mut [u8],
        call: &ReceivedCall<'_>,
        credits: Credits,
    ) -> Result<usize, NoSpace> {
        let fixed = FixedHeader {
            xid: call.index.xid,
            version: call.index.version,
            credits,
            procedure: self.procedure(),
        };
        let results = self.results().map(|result| u64::from(result.length));
        let lengths = results.chain(core::iter::repeat(0));
        let writes = call.lists.writes.chunks().zip(lengths);
        let writes = writes.map(|(chunk, length)| chunk.filled(length));
        let reply = call.lists.reply;
        let reply = reply.map(|chunk| chunk.filled(self.reply_chunk_len.into()));
        encode_header(buffer, &fixed, [], writes, reply)
    }
}

/// `reply_stat`, `accept_stat` and what is between them in an RPC Reply with GARBAGE_ARGS: the
/// message was accepted, the verifier is empty (RFC 5531 section 9).
const GARBAGE_ARGS: [u32; 5] = [1, 0, 0, 0, 4];

/// Writes the RPC Reply with `accept_stat` GARBAGE_ARGS to a Call whose Read chunks do not fit its
/// RPC message, with the transport header, and returns its length in bytes. `message` is what was
/// received; its Write and Reply chunks are returned without bytes.
///
/// # Errors
///
/// [`NoSpace`] if it does not fit `buffer`, which is no longer than the threshold, or if `message`
/// was not refused for this. The answer is then an RDMA_ERROR.
pub(crate) fn encode_garbage_args(
    buffer: &mut [u8],
    message: &[u8],
    credits: Credits,
) -> Result<usize, NoSpace> {
    let mut reader = Reader::new(message);
    let call = FixedHeader::decode(&mut reader).map_err(|_| NoSpace)?;
    let lists = Lists::decode(&mut reader).map_err(|_| NoSpace)?;
    let fixed = FixedHeader {
        credits,
        procedure: Procedure::Msg,
        ..call
    };
    let writes = lists.writes.chunks().map(|chunk| chunk.filled(0));
    let reply = lists.reply.map(|chunk| chunk.filled(0));
    let header = encode_header(buffer, &fixed, [], writes, reply)?;
    let mut writer = Writer::new(buffer.get_mut(header..).ok_or(NoSpace)?);
    writer.put_u32(call.xid.0)?;
    writer.put_words(GARBAGE_ARGS)?;
    header.checked_add(writer.position()).ok_or(NoSpace)
}

impl<'a> Chunk<'a> {
    /// The segments with the lengths that a responder returns after it placed `length` bytes:
    /// filled in array order, 0 from there on (RFC 8166 section 3.4.6).
    pub(crate) fn filled(&self, length: u64) -> impl Iterator<Item = Segment> + Clone + 'a {
        let mut left = length;
        self.segments().map(move |segment| {
            let used = u32::try_from(left).map_or(segment.length, |n| n.min(segment.length));
            left = left.saturating_sub(u64::from(used));
            Segment {
                length: used,
                ..segment
            }
        })
    }
}

#[cfg(any(test, rpcrdma_kunit))]
#[cfg_attr(rpcrdma_kunit, kernel::macros::kunit_tests(rpcrdma_proto_garbage_args))]
mod tests {
    use super::*;
    use crate::proto::requester::decode::{decode_received, Received};
    use crate::proto::requester::encode::encode_call;
    use crate::proto::responder::budget::CallBudget;
    use crate::proto::responder::decode::decode_call;
    use crate::proto::responder::refusal::ResponderRefusal;
    use crate::proto::wire::chunk::ReadSegment;
    use crate::proto::wire::header::{Versions, Xid, VERSION_ONE};

    const BUDGET: CallBudget = CallBudget {
        read_segments: 1,
        read_chunks: 1,
        read_bytes: 4096,
        write_chunks: 1,
        write_segments: 2,
        reply_segments: 1,
    };

    const XID: u32 = 0xa1b2_c3d4;

    /// Proves: V1-071, V1-134.
    #[test]
    fn chunks_that_do_not_fit_are_garbage_args() {
        let segment = Segment {
            handle: 7,
            length: 4096,
            offset: 0x1000,
        };
        let fixed = FixedHeader {
            xid: Xid(XID),
            version: VERSION_ONE,
            credits: Credits::new(5),
            procedure: Procedure::Msg,
        };
        let mut call = [0; 256];
        let outside = ReadSegment {
            position: 48,
            segment,
        };
        let writes = [[segment; 2].into_iter()];
        let reply = [segment].into_iter();
        let header = encode_call(&mut call, &fixed, [outside], writes, reply);
        assert_eq!(header, Ok(28 + 24 + 8 + 32 + 4 + 16));
        if let Some(xid) = call.get_mut(112..).and_then(<[u8]>::first_chunk_mut) {
            *xid = XID.to_be_bytes();
        }
        let call = call.get(..112 + 44).unwrap_or_default();
        let refused = decode_call(call, Versions::ONE, &BUDGET).err();
        let refusal = refused.map(|refused| refused.at_responder());
        assert!(matches!(refusal, Some(ResponderRefusal::GarbageArgs(_))));

        let mut buffer = [0xff; 112];
        let length = encode_garbage_args(&mut buffer, call, Credits::new(3));
        assert_eq!(length, Ok(112));
        let reply = match decode_received(&buffer, Versions::ONE) {
            Ok(Received::Reply(reply)) => Some(reply),
            _ => None,
        };
        assert!(reply.is_some());
        let Some(reply) = reply else { return };
        assert_eq!(reply.fixed.credits, Credits::new(3));
        let [a, b, c, d] = XID.to_be_bytes();
        let words = [
            a, b, c, d, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4,
        ];
        assert_eq!(reply.payload, Some(words.as_slice()));
        // All chunks come back without bytes.
        let lengths = [4096; 2].into_iter();
        let delivered = reply.reconcile([lengths], [4096].into_iter());
        let totals = delivered.map(|delivered| (delivered.writes[0].total, delivered.reply.total));
        assert_eq!(totals, Ok((0, 0)));

        let short = buffer.get_mut(..111).unwrap_or_default();
        assert_eq!(
            encode_garbage_args(short, call, Credits::new(3)),
            Err(NoSpace)
        );
        let cut = call.get(..100).unwrap_or_default();
        assert_eq!(
            encode_garbage_args(&mut buffer, cut, Credits::new(3)),
            Err(NoSpace)
        );
    }
}
