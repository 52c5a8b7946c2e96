// SPDX-License-Identifier: GPL-2.0

//! What an RPC Call asks for, by name, as far as its header is in the message.

mod arguments;
mod programs;
#[cfg(test)]
mod tests;

use std::fmt::{self, Display, Formatter};

use serde_json::{json, Value};

use crate::proto::message::{Body, MessageType};
use crate::proto::wire::chunk::ReadList;
use arguments::Arguments;
use programs::{Program, CALLBACK, PROGRAMS};

/// The version of RPC itself (RFC 5531 section 9).
const RPC_VERSION: u32 = 2;

/// The procedure that has operations, in all programs that have such a one.
const COMPOUND: u32 = 1;

/// A Call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    /// The number of the program.
    program: u32,
    /// The version of the program.
    version: u32,
    /// The number of the procedure.
    procedure: u32,
    /// The minor version, if there are operations.
    minor: Option<u32>,
    /// The name of the procedure or those of its operations; none if they are unknown.
    names: Vec<&'static str>,
    /// Whether operations follow of which nothing is known, for what is before them.
    more: bool,
    /// What the program and its version are called.
    known: Option<&'static Program>,
}

impl Call {
    /// The Call whose header is in a message.
    pub(crate) fn of(body: &Body<'_>) -> Option<Self> {
        match body {
            Body::Msg {
                lists,
                payload,
                message_type: MessageType::Call,
            } => Self::decode(payload, &lists.reads),
            _ => None,
        }
    }

    /// What the text has, as an object.
    pub(crate) fn object(&self) -> Value {
        json!({
            "program": self.program,
            "version": self.version,
            "procedure": self.procedure,
            "minor": self.minor,
            "names": self.names,
            "more": self.more,
        })
    }

    /// The Call whose inline part is `payload`, without what its Read chunks hold. `None` if its
    /// program is not in it.
    fn decode(payload: &[u8], reads: &ReadList<'_>) -> Option<Self> {
        let mut arguments = Arguments::new(payload, reads);
        // XID and direction are the message's.
        arguments.skip("ww")?;
        if arguments.word()? != RPC_VERSION {
            return None;
        }
        let mut call = Self {
            program: arguments.word()?,
            version: arguments.word()?,
            procedure: arguments.word()?,
            minor: None,
            names: Vec::new(),
            more: false,
            known: None,
        };
        let is_of =
            |known: &&Program| (known.number, known.version) == (call.program, call.version);
        call.known = PROGRAMS.iter().find(is_of);
        let Some(known) = call.known else {
            return Some(call);
        };
        if call.procedure == COMPOUND && !known.operations.is_empty() {
            call.more = call.operations(known, &mut arguments).is_none();
        }
        if call.minor.is_none() {
            let procedure = usize::try_from(call.procedure).ok()?;
            call.names.extend(known.procedures.get(procedure));
        }
        Some(call)
    }

    /// Takes the operations of a COMPOUND (RFC 8881 sections 16.2 and 20.1). `None` if not all of
    /// them are known, to the number that the Call says.
    fn operations(&mut self, known: &Program, arguments: &mut Arguments<'_>) -> Option<()> {
        arguments.skip_authentication()?;
        // The tag.
        arguments.skip("o")?;
        self.minor = Some(arguments.word()?);
        if known.number == CALLBACK {
            arguments.skip("w")?;
        }
        for left in (0..arguments.word()?).rev() {
            let number = usize::try_from(arguments.word()?).ok()?;
            let (name, layout) = known.operations.get(number.checked_sub(3)?)?;
            self.names.push(name);
            if left > 0 {
                arguments.skip_operation(name, layout)?;
            }
        }
        Some(())
    }
}

impl Display for Call {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match (self.known, self.minor) {
            (Some(known), Some(minor)) => write!(f, "{}.{minor}", known.name)?,
            (Some(known), None) => write!(f, "{}", known.name)?,
            (None, _) => write!(f, "program {} version {}", self.program, self.version)?,
        }
        if self.names.is_empty() && self.minor.is_none() {
            write!(f, " procedure {}", self.procedure)?;
        }
        for name in &self.names {
            write!(f, " {name}")?;
        }
        if self.more {
            write!(f, " ...")?;
        }
        Ok(())
    }
}
