// SPDX-License-Identifier: GPL-2.0

//! A decoded message as a line of text or of JSON.

use std::fmt::{self, Display, Formatter};
use std::io::{self, Write};

use serde_json::{json, Map, Value};

use crate::judge::fault::Fault;
use crate::judge::is_call;
use crate::proto::message::{Body, Message, Refused};
use crate::proto::v2::dialect;
use crate::proto::v2::options::{Optional, OPTIONAL};
use crate::proto::wire::chunk::{Chunk, Lists, Segment};
use crate::proto::wire::error::ErrorBody;
use crate::proto::wire::header::{FixedHeader, Versions, VERSION_TWO};
use crate::proto::wire::xdr::Reader;
use crate::roce::{Content, Item};
use crate::rpc::Call;
use crate::time;

/// How to print.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// Prints one line: what was captured, and what is wrong with it.
///
/// # Errors
///
/// Those of `out`.
pub(crate) fn print(
    item: &Item,
    faults: &[Fault],
    format: Format,
    out: &mut impl Write,
) -> io::Result<()> {
    if format == Format::Json {
        return writeln!(out, "{}", object(item, faults));
    }
    write!(out, "{item}")?;
    for (index, fault) in faults.iter().enumerate() {
        let before = if index == 0 { ", wrong:" } else { ";" };
        write!(out, "{before} {fault}")?;
    }
    writeln!(out)
}

/// Whether a message does not decode.
pub(crate) fn is_refused(bytes: &[u8]) -> bool {
    decode(bytes).is_err()
}

/// A message of either version.
enum Decoded<'a> {
    /// One that the transports take.
    Message(Message<'a>),
    /// An RDMA_OPTIONAL, whose option none of them has.
    Option(OptionMessage<'a>),
}

/// An RDMA_OPTIONAL message.
struct OptionMessage<'a> {
    fixed: FixedHeader,
    /// Bytes of the transport header.
    header_len: usize,
    option: Optional<'a>,
    /// Bytes that follow it.
    payload: usize,
}

fn decode(bytes: &[u8]) -> Result<Decoded<'_>, Refused> {
    Message::decode(bytes, Versions::ONE_AND_TWO)
        .map(Decoded::Message)
        .or_else(|refused| option(bytes).map(Decoded::Option).ok_or(refused))
}

fn option(bytes: &[u8]) -> Option<OptionMessage<'_>> {
    let mut reader = Reader::new(bytes);
    let fixed = FixedHeader::decode(&mut reader).ok()?;
    if fixed.version != VERSION_TWO || fixed.procedure != OPTIONAL {
        return None;
    }
    let option = Optional::decode(&mut reader).ok()?;
    Some(OptionMessage {
        fixed,
        header_len: reader.position(),
        option,
        payload: reader.rest().len(),
    })
}

impl Decoded<'_> {
    fn fixed(&self) -> FixedHeader {
        match self {
            Self::Message(message) => message.fixed,
            Self::Option(message) => message.fixed,
        }
    }

    fn procedure(&self) -> &'static str {
        match self {
            Self::Message(message) => match message.body {
                Body::Msg { .. } => "RDMA_MSG",
                Body::Nomsg { .. } => "RDMA_NOMSG",
                Body::Error(_) => "RDMA_ERROR",
            },
            Self::Option(_) => "RDMA_OPTIONAL",
        }
    }
}

/// The direction of a message with chunk lists.
fn direction(body: &Body<'_>) -> &'static str {
    if is_call(body) {
        "call"
    } else {
        "reply"
    }
}

impl Display for Item {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let Some(path) = &self.path {
            let (frame, time) = (path.frame, path.time.map_or("-".into(), time::utc));
            let (source, destination, qp) = (path.source, path.destination, path.qp);
            write!(f, "{frame} {time} {source} > {destination} qp {qp:#x}: ")?;
        }
        match &self.content {
            Content::Cm {
                name, private_data, ..
            } => {
                write!(f, "CM {name}")?;
                if let Some(data) = private_data {
                    let (send, receive) = (data.send.bytes(), data.receive.bytes());
                    write!(f, ", sends {send} bytes, receives {receive}")?;
                    if data.remote_invalidation {
                        write!(f, ", remote invalidation")?;
                    }
                }
                Ok(())
            }
            Content::Message {
                bytes,
                complete,
                invalidates,
            } => {
                message_text(f, bytes)?;
                if let Some(handle) = invalidates {
                    write!(f, ", invalidates {handle:#010x}")?;
                }
                if !complete {
                    write!(f, ", not captured whole")?;
                }
                Ok(())
            }
        }
    }
}

fn message_text(f: &mut Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    let decoded = match decode(bytes) {
        Ok(decoded) => decoded,
        Err(refused) => {
            let (cause, at) = (refused.error, refused.at);
            return write!(f, "{} bytes, refused: {cause:?} at byte {at}", bytes.len());
        }
    };
    let fixed = decoded.fixed();
    let (xid, version, credits) = (fixed.xid.0, fixed.version, fixed.credits.get());
    let procedure = decoded.procedure();
    write!(f, "xid {xid:#010x} v{version}")?;
    if version == VERSION_TWO {
        // Later drafts give the same word to another protocol.
        write!(f, " ({})", dialect(version))?;
    }
    write!(f, " credits {credits} {procedure}")?;
    let message = match decoded {
        Decoded::Message(message) => message,
        Decoded::Option(OptionMessage {
            header_len,
            option,
            payload,
            ..
        }) => {
            let opttype = option.opttype;
            return write!(f, " type {opttype}, {header_len} + {payload} bytes");
        }
    };
    match message.body {
        Body::Error(ErrorBody::Chunk) => write!(f, " ERR_CHUNK"),
        Body::Error(ErrorBody::InvalidOption) => write!(f, " ERR_INVAL_OPTION"),
        Body::Error(ErrorBody::Version(Versions { low, high })) => {
            write!(f, " ERR_VERS {low} to {high}")
        }
        Body::Msg { lists, payload, .. } => {
            write!(f, " {}", direction(&message.body))?;
            if let Some(call) = Call::of(&message.body) {
                write!(f, " {call}")?;
            }
            lists_text(f, &lists)?;
            write!(f, ", {} + {} bytes", message.header_len, payload.len())
        }
        Body::Nomsg { lists } => {
            write!(f, " {}", direction(&message.body))?;
            lists_text(f, &lists)?;
            write!(f, ", {} bytes", message.header_len)
        }
    }
}

fn lists_text(f: &mut Formatter<'_>, lists: &Lists<'_>) -> fmt::Result {
    for entry in lists.reads.segments() {
        write!(f, ", read at {}", entry.position)?;
        segment_text(f, &entry.segment)?;
    }
    for chunk in lists.writes.chunks() {
        write!(f, ", write")?;
        chunk_text(f, &chunk)?;
    }
    if let Some(chunk) = lists.reply {
        write!(f, ", reply chunk")?;
        chunk_text(f, &chunk)?;
    }
    Ok(())
}

fn chunk_text(f: &mut Formatter<'_>, chunk: &Chunk<'_>) -> fmt::Result {
    chunk
        .segments()
        .try_for_each(|segment| segment_text(f, &segment))
}

/// A handle, the offset in its memory and the length.
fn segment_text(f: &mut Formatter<'_>, segment: &Segment) -> fmt::Result {
    let Segment {
        handle,
        length,
        offset,
    } = segment;
    write!(f, " {handle:#010x}:{offset:#x}+{length}")
}

/// What the text has, as an object.
fn object(item: &Item, faults: &[Fault]) -> Value {
    let mut object = Map::new();
    if let Some(path) = &item.path {
        object.insert("frame".into(), path.frame.into());
        let time = path.time.map(|time| time.as_secs_f64());
        object.insert("time".into(), time.into());
        object.insert("source".into(), path.source.to_string().into());
        object.insert("destination".into(), path.destination.to_string().into());
        object.insert("qp".into(), path.qp.into());
    }
    match &item.content {
        Content::Cm {
            name, private_data, ..
        } => {
            object.insert("cm".into(), (*name).into());
            if let Some(data) = private_data {
                object.insert(
                    "private_data".into(),
                    json!({
                        "send": data.send.bytes(),
                        "receive": data.receive.bytes(),
                        "remote_invalidation": data.remote_invalidation,
                    }),
                );
            }
        }
        Content::Message {
            bytes,
            complete,
            invalidates,
        } => {
            object.insert("length".into(), bytes.len().into());
            object.insert("complete".into(), (*complete).into());
            if let Some(handle) = invalidates {
                object.insert("invalidates".into(), word(*handle));
            }
            message_object(&mut object, bytes);
        }
    }
    if !faults.is_empty() {
        let faults = faults.iter();
        let faults = faults.map(|fault| json!({ "name": fault.name(), "text": fault.to_string() }));
        object.insert("wrong".into(), faults.collect());
    }
    Value::Object(object)
}

fn message_object(object: &mut Map<String, Value>, bytes: &[u8]) {
    let decoded = decode(bytes);
    let fixed = match &decoded {
        Ok(decoded) => Some(decoded.fixed()),
        Err(refused) => refused.fixed,
    };
    if let Some(fixed) = fixed {
        object.insert("xid".into(), word(fixed.xid.0));
        object.insert("version".into(), fixed.version.into());
        object.insert("dialect".into(), dialect(fixed.version).into());
        object.insert("credits".into(), fixed.credits.get().into());
    }
    let decoded = match decoded {
        Ok(decoded) => decoded,
        Err(refused) => {
            let (cause, at) = (format!("{:?}", refused.error), refused.at);
            object.insert("refused".into(), json!({ "cause": cause, "at": at }));
            return;
        }
    };
    object.insert("procedure".into(), decoded.procedure().into());
    let message = match decoded {
        Decoded::Message(message) => message,
        Decoded::Option(message) => {
            object.insert("header".into(), message.header_len.into());
            object.insert("option".into(), message.option.opttype.into());
            object.insert("info".into(), message.option.optinfo.len().into());
            object.insert("payload".into(), message.payload.into());
            return;
        }
    };
    object.insert("header".into(), message.header_len.into());
    match message.body {
        Body::Error(ErrorBody::Chunk) => {
            object.insert("error".into(), "ERR_CHUNK".into());
        }
        Body::Error(ErrorBody::InvalidOption) => {
            object.insert("error".into(), "ERR_INVAL_OPTION".into());
        }
        Body::Error(ErrorBody::Version(Versions { low, high })) => {
            object.insert("error".into(), "ERR_VERS".into());
            object.insert("versions".into(), json!([low, high]));
        }
        Body::Msg { lists, payload, .. } => {
            object.insert("payload".into(), payload.len().into());
            object.insert("direction".into(), direction(&message.body).into());
            if let Some(call) = Call::of(&message.body) {
                object.insert("rpc".into(), call.object());
            }
            list_objects(object, &lists);
        }
        Body::Nomsg { lists } => {
            object.insert("direction".into(), direction(&message.body).into());
            list_objects(object, &lists);
        }
    }
}

fn list_objects(object: &mut Map<String, Value>, lists: &Lists<'_>) {
    let reads = lists.reads.segments().map(|entry| {
        let mut read = segment_object(&entry.segment);
        read["position"] = entry.position.into();
        read
    });
    object.insert("reads".into(), reads.collect());
    let writes = lists.writes.chunks().map(|chunk| chunk_array(&chunk));
    object.insert("writes".into(), writes.collect());
    let reply = lists.reply.map(|chunk| chunk_array(&chunk));
    object.insert("reply".into(), reply.into());
}

fn chunk_array(chunk: &Chunk<'_>) -> Value {
    chunk
        .segments()
        .map(|segment| segment_object(&segment))
        .collect()
}

/// Numbers of 64 bits are text, because few programs read them right as JSON numbers; handles and
/// XIDs are too, as they are not to be calculated with.
fn segment_object(segment: &Segment) -> Value {
    json!({
        "handle": word(segment.handle),
        "length": segment.length,
        "offset": format!("{:#018x}", segment.offset),
    })
}

fn word(word: u32) -> Value {
    format!("{word:#010x}").into()
}
