// SPDX-License-Identifier: GPL-2.0

//! The files of a connection under debugfs. Documentation/server-guide.rst explains each line.

use super::connection::Parts;
use crate::{
    debugfs::{File, Show},
    proto::{v2::dialect, wire::private_data::PrivateData},
};
use kernel::{seq_file::SeqFile, seq_print, str::CStr};

impl Show for Parts {
    const PREFIX: &'static CStr = c"connection-";
    const FILES: &'static [File<Self>] = &[
        (c"connection", connection),
        (c"latency", |parts, seq| {
            parts.events().stats.show_latency(seq)
        }),
        (c"stats", |parts, seq| parts.events().stats.show(seq)),
    ];
}

/// What the connection is, and what it uses.
fn connection(parts: &Parts, seq: &SeqFile) {
    let (qp, events) = (&parts.qp, parts.events());
    let id = qp.qp().id();
    let state = match (events.xprt.is_closing(), events.is_established()) {
        (true, _) => "closing",
        (false, true) => "connected",
        (false, false) => "accepting",
    };
    seq_print!(seq, "state {state}\nlistener {}\n", events.record.number());
    let (peer, source) = (parts.address, id.source_address());
    seq_print!(seq, "peer {peer}\npeer_port {}\n", peer.port());
    seq_print!(seq, "source {source}\nsource_port {}\n", source.port());
    seq_print!(seq, "device {}\n", id.device_name());
    seq_print!(seq, "device_port {}\n", id.port());
    seq_print!(seq, "queue_pair {}\n", qp.qp().number());
    seq_print!(seq, "completion_queue {}\n", qp.completion_queue());
    seq_print!(seq, "age_ms {}\n", events.since.elapsed().as_millis());
    show_private_data(seq, "own", &parts.own);
    if let Some(peer) = &parts.peer {
        show_private_data(seq, "peer", peer);
    }
    seq_print!(seq, "read_depth {}\n", parts.read_depth);
    let incoming = qp.context();
    let (version, thresholds) = incoming.agreed();
    if let Some(version) = version {
        seq_print!(seq, "version {version}\ndialect {}\n", dialect(version));
    }
    seq_print!(seq, "inline_send {}\n", thresholds.send);
    seq_print!(seq, "inline_receive {}\n", thresholds.receive);
    incoming.show_grants(seq);
    let (posted, buffers) = qp.receives();
    seq_print!(seq, "receives_posted {posted}\nreceive_buffers {buffers}\n");
    let (used, most, size) = qp.send_queue();
    seq_print!(seq, "send_queue_used {used}\nsend_queue_most {most}\n");
    seq_print!(seq, "send_queue_size {size}\n");
    for (name, (used, made)) in ["send", "read"].into_iter().zip(qp.contexts()) {
        seq_print!(seq, "{name}_contexts_used {used}\n{name}_contexts {made}\n");
    }
}

/// What one end announced (RFC 8797).
fn show_private_data(seq: &SeqFile, end: &str, said: &PrivateData) {
    seq_print!(seq, "{end}_send {}\n", said.send.bytes());
    seq_print!(seq, "{end}_receive {}\n", said.receive.bytes());
    let may = u32::from(said.remote_invalidation);
    seq_print!(seq, "{end}_remote_invalidation {may}\n");
}
