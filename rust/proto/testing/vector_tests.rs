// SPDX-License-Identifier: GPL-2.0

//! Tests with the messages of the vector files, on the host and in the kernel.

#[cfg_attr(rpcrdma_kunit, kernel::macros::kunit_tests(rpcrdma_proto_vectors))]
mod tests {
    use crate::proto::message::{Message, Refused};
    use crate::proto::requester::decode::decode_received;
    use crate::proto::responder::decode::ReceivedByResponder;
    use crate::proto::responder::refusal::CallError;
    use crate::proto::testing::hostile::{check, Violation};
    use crate::proto::testing::responder::decode::decode_call;
    use crate::proto::testing::vectors::{rows, Row};
    use crate::proto::wire::header::Versions;

    /// The vector files of the repository, each with the number of its rows.
    const FILES: [(&str, usize); 2] = [
        (include_str!("../../../selftests/vectors/vectors.tsv"), 182),
        (
            include_str!("../../../selftests/vectors/conformance.tsv"),
            78,
        ),
    ];

    /// Bytes of the longest message.
    const LONGEST: usize = 1028;

    /// The rows of all files.
    fn all_rows() -> impl Iterator<Item = &'static str> {
        FILES.into_iter().flat_map(|(file, _)| rows(file))
    }

    /// What is added to each byte in turn: every other value, or in the kernel, which runs the
    /// tests when the module is loaded, three of them.
    fn steps() -> impl Iterator<Item = u8> {
        (1..=255).step_by(if cfg!(rpcrdma_kunit) { 127 } else { 1 })
    }

    /// Calls `each` with every message of the files, in a buffer that it may change; the first
    /// violation, with the name of the row.
    fn for_each_message(
        mut each: impl FnMut(&mut [u8]) -> Result<(), Violation>,
    ) -> Result<(), (&'static str, Violation)> {
        let mut buffer = [0; LONGEST];
        for line in all_rows() {
            let row = Row::parse(line).map_err(|_| (line, "no row"))?;
            let message = row.message(&mut buffer).ok_or((row.id, "no message"))?;
            each(message).map_err(|violation| (row.id, violation))?;
        }
        Ok(())
    }

    #[test]
    fn every_row_gives_what_it_says() {
        let mut buffer = [0; LONGEST];
        for (file, count) in FILES {
            let mut passed = 0;
            for line in rows(file) {
                let row = Row::parse(line);
                assert_eq!(row.err(), None);
                let Ok(row) = row else { return };
                let result = row.run(&mut buffer);
                assert_eq!(result.err().map(|failure| (row.id, failure)), None);
                passed += 1;
            }
            assert_eq!(passed, count);
        }
    }

    /// Proves: V1-163, V2-037, V2-038.
    #[test]
    fn version_one_is_the_same_at_an_end_that_speaks_both() {
        let (one, both) = (Versions::ONE, Versions::ONE_AND_TWO);
        let result = for_each_message(|message| {
            if message.get(4..8) != Some(&[0, 0, 0, 1]) {
                return Ok(());
            }
            let why =
                |refused: Refused<CallError>| (refused.error, refused.at, refused.at_responder());
            let results = [one, both].map(|versions| {
                let call = decode_call(message, versions).map_err(why);
                let received = decode_received(message, versions);
                let received = received.map_err(|refused| refused.at_requester(false, true));
                (call.map(|_| ()), received.map(|_| ()))
            });
            let [alone, together] = results;
            if alone == together {
                Ok(())
            } else {
                Err("the outcome is another one")
            }
        });
        assert_eq!(result, Ok(()));
    }

    /// An RDMA_MSG without chunks, whose Payload is a Call with zeros in it.
    const fn long_message(version: u8) -> [u8; 4096] {
        let mut message = [0; 4096];
        let [_, _, _, _, _, _, _, slot, ..] = &mut message;
        *slot = version;
        message
    }

    static VERSION_ONE_MESSAGE: [u8; 4096] = long_message(1);
    static VERSION_TWO_MESSAGE: [u8; 4096] = long_message(2);

    /// Proves: V1-027, V1-031, V2-003, V2-004.
    #[test]
    fn messages_may_be_as_long_as_the_receives() {
        for message in [&VERSION_ONE_MESSAGE, &VERSION_TWO_MESSAGE] {
            for length in [1024, 1028, 2048, 4096] {
                let bytes = message.get(..length).unwrap_or_default();
                let call = decode_call(bytes, Versions::ONE_AND_TWO);
                let payload = match call {
                    Ok(ReceivedByResponder::Call(call)) => call.payload.map(<[u8]>::len),
                    _ => None,
                };
                assert_eq!(payload, length.checked_sub(28));
            }
        }
    }

    /// Proves: V1-103, V1-128, SEC-015, SEC-019.
    #[test]
    fn truncated_messages_are_handled() {
        let mut scratch = [0; LONGEST];
        let result = for_each_message(|message| {
            for length in 0..=message.len() {
                check(message.get(..length).unwrap_or_default(), &mut scratch)?;
            }
            Ok(())
        });
        assert_eq!(result, Ok(()));
    }

    /// Proves: V1-103, V2-006, SEC-015.
    #[test]
    fn a_truncated_header_is_never_taken_for_a_message() {
        let versions = Versions::ONE_AND_TWO;
        let result = for_each_message(|message| {
            let whole = Message::decode(message, versions);
            let header_len = whole.map_or(0, |whole| whole.header_len);
            for length in 0..header_len {
                let truncated = message.get(..length).unwrap_or_default();
                if Message::decode(truncated, versions).is_ok() {
                    return Err("a part of the header decodes");
                }
            }
            Ok(())
        });
        assert_eq!(result, Ok(()));
    }

    /// Proves: V1-123, V1-124, V1-128, SEC-015, SEC-019.
    #[test]
    fn changed_messages_are_handled() {
        let mut scratch = [0; LONGEST];
        let result = for_each_message(|message| {
            for at in 0..message.len() {
                for step in steps() {
                    if let Some(byte) = message.get_mut(at) {
                        *byte = byte.wrapping_add(step);
                    }
                    let result = check(message, &mut scratch);
                    if let Some(byte) = message.get_mut(at) {
                        *byte = byte.wrapping_sub(step);
                    }
                    result?;
                }
            }
            Ok(())
        });
        assert_eq!(result, Ok(()));
    }
}
