// SPDX-License-Identifier: GPL-2.0

//! What the ends of connections do wrong, beyond messages that do not decode.
//!
//! Calls are judged as by the server of rpcrdma.ko, with its own code. What depends on earlier
//! messages is judged for connections whose beginning was captured; of others the Calls that have
//! no answer are not all known.

mod calls;
mod connection;
#[cfg(test)]
mod connection_tests;
#[cfg(test)]
mod examples;
pub(crate) mod fault;
#[cfg(test)]
mod message_tests;

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};

use crate::proto::message::{Body, Message, MessageType};
use crate::proto::wire::header::Versions;
use crate::proto::wire::private_data::PrivateData;
use crate::roce::{is_later, Content, End, Item, Path};
use connection::{Connection, Opening, Sender};
use fault::Fault;

/// One direction of a connection: sender, receiver and the receiver's queue pair.
type Stream = (IpAddr, IpAddr, u32);

/// What was seen of all connections.
#[derive(Default)]
pub(crate) struct Judge {
    /// The REQs, by their sender and what it calls the connection.
    requests: HashMap<(IpAddr, u32), (End, PrivateData)>,
    connections: Vec<Connection>,
    streams: HashMap<Stream, (usize, Sender)>,
    /// The sequence number of the last message of each stream.
    newest: HashMap<Stream, u32>,
}

impl Judge {
    /// Takes what was captured next: what is wrong with it.
    pub(crate) fn take(&mut self, item: &Item) -> Vec<Fault> {
        let (bytes, complete, invalidates) = match (&item.content, &item.path) {
            (
                Content::Message {
                    bytes,
                    complete,
                    invalidates,
                },
                _,
            ) => (bytes, *complete, *invalidates),
            (
                Content::Cm {
                    end: Some(end),
                    private_data,
                    ..
                },
                Some(path),
            ) => {
                self.open(path, *end, private_data.unwrap_or(PrivateData::DEFAULT));
                return Vec::new();
            }
            (Content::Cm { .. }, _) => return Vec::new(),
        };
        let mut found = None;
        if let Some(path) = &item.path {
            let stream = (path.source, path.destination, path.qp);
            if self.is_repeated(stream, path.psn) {
                return Vec::new();
            }
            found = self.find(stream, bytes);
        }
        let found =
            found.and_then(|(index, sender)| self.connections.get_mut(index).zip(Some(sender)));
        match (found, complete) {
            (Some((connection, sender)), true) => connection.judge(sender, bytes, invalidates),
            (Some((connection, _)), false) => {
                connection.forget();
                Vec::new()
            }
            (None, true) => alone(bytes),
            (None, false) => Vec::new(),
        }
    }

    /// A message of the connection manager.
    fn open(&mut self, path: &Path, end: End, said: PrivateData) {
        let Some(peer_id) = end.peer_id else {
            self.requests.insert((path.source, end.id), (end, said));
            return;
        };
        let (client, server) = (path.destination, path.source);
        let Some(&(request, asked)) = self.requests.get(&(client, peer_id)) else {
            return;
        };
        let opening = Opening {
            ends: [request, end],
            said: [asked, said],
        };
        // It may come twice.
        let mut known = self.connections.iter();
        if known.any(|connection| connection.opening == Some(opening)) {
            return;
        }
        let index = self.connections.len();
        let connection = Connection::new(client, server, Some(opening));
        self.connections.push(connection);
        for (stream, sender) in [
            ((client, server, end.qp), Sender::Client),
            ((server, client, request.qp), Sender::Server),
        ] {
            self.streams.insert(stream, (index, sender));
            self.newest.remove(&stream);
        }
    }

    /// Whether the fabric has sent a message again that was seen.
    fn is_repeated(&mut self, stream: Stream, psn: u32) -> bool {
        let newest = self.newest.entry(stream).or_insert(psn.wrapping_sub(1));
        if !is_later(psn, *newest) {
            return true;
        }
        *newest = psn;
        false
    }

    /// The connection of a stream. Without its beginning, that of a Call is the sender's own, unless
    /// the other end has one which lacks a stream; that of an answer is told by the XID.
    fn find(&mut self, stream: Stream, bytes: &[u8]) -> Option<(usize, Sender)> {
        if let Some(&found) = self.streams.get(&stream) {
            return Some(found);
        }
        let (source, destination, _) = stream;
        let message = Message::decode(bytes, Versions::ONE_AND_TWO).ok()?;
        let is_call = is_call(&message.body);
        let mut known = self.connections.iter().enumerate();
        let found = known.find(|(_, connection)| {
            let is_peer = connection.client == destination && connection.server == source;
            let is_waited_for = connection.forward.waits(message.fixed.xid);
            is_peer && !connection.has_streams[1] && (is_call || is_waited_for)
        });
        let found = found.map(|(index, _)| (index, Sender::Server));
        let (index, sender) = match found {
            Some(found) => found,
            None if is_call => {
                let connection = Connection::new(source, destination, None);
                self.connections.push(connection);
                (self.connections.len() - 1, Sender::Client)
            }
            None => return None,
        };
        if sender == Sender::Server {
            self.connections[index].has_streams[1] = true;
        }
        self.streams.insert(stream, (index, sender));
        Some((index, sender))
    }
}

/// Whether a message with chunk lists is a Call: what its RPC header says, or which chunk its RPC
/// message is in.
pub(crate) fn is_call(body: &Body<'_>) -> bool {
    match body {
        Body::Msg { message_type, .. } => *message_type == MessageType::Call,
        Body::Nomsg { lists } => lists.reads.chunk(0).length() > 0,
        Body::Error(_) => false,
    }
}

/// What is wrong with a message of which no connection is known.
fn alone(bytes: &[u8]) -> Vec<Fault> {
    let message = Message::decode(bytes, Versions::ONE_AND_TWO);
    let is_reply = message.is_ok_and(|message| match message.body {
        Body::Nomsg { lists } => lists.reads.is_empty() && lists.reply.is_some(),
        ref body => !is_call(body),
    });
    let nobody = IpAddr::from(Ipv4Addr::UNSPECIFIED);
    let mut connection = Connection::new(nobody, nobody, None);
    let sender = if is_reply {
        Sender::Server
    } else {
        Sender::Client
    };
    connection.judge(sender, bytes, None)
}
