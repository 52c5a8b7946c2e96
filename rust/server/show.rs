// SPDX-License-Identifier: GPL-2.0

//! The files of a connection under debugfs. Documentation/server-guide.rst explains each line.

use super::transport::SvcxprtRdma;
use crate::{
    debugfs::{File, Show},
    proto::v2::dialect,
    rdma::QpOwner,
    stats::show_private_data,
};
use kernel::{seq_file::SeqFile, seq_print, str::CStr, sync::atomic::Relaxed};

impl Show for QpOwner<SvcxprtRdma> {
    const PREFIX: &'static CStr = c"connection-";
    const FILES: &'static [File<Self>] = &[
        (c"connection", connection),
        (c"latency", |qp, seq| qp.user().stats.show_latency(seq)),
        (c"stats", |qp, seq| qp.user().stats.show(seq)),
    ];
}

/// What the connection is, and what it uses.
fn connection(qp: &QpOwner<SvcxprtRdma>, seq: &SeqFile) {
    let conn = qp.user();
    let state = if conn.svc.is_closing() {
        "closing"
    } else if conn.incoming.lock().is_established {
        "connected"
    } else {
        "accepting"
    };
    seq_print!(seq, "state {state}\nlistener {}\n", conn.listener.number);
    let (peer, source) = (conn.peer, qp.id().source_address());
    seq_print!(seq, "peer {peer}\npeer_port {}\n", peer.port());
    seq_print!(seq, "source {source}\nsource_port {}\n", source.port());
    seq_print!(seq, "device {}\n", qp.id().device_name());
    seq_print!(seq, "device_port {}\n", qp.id().port());
    seq_print!(seq, "queue_pair {}\n", qp.number);
    seq_print!(seq, "completion_queue {}\n", qp.cq_number);
    seq_print!(seq, "age_ms {}\n", conn.since.elapsed().as_millis());
    show_private_data(seq, &conn.own_data, conn.peer_data.as_ref());
    seq_print!(seq, "read_depth {}\n", conn.read_depth);
    let (version, thresholds) = conn.agreed();
    if let Some(version) = version {
        seq_print!(seq, "version {version}\ndialect {}\n", dialect(version));
    }
    let incoming = conn.incoming.lock();
    let (grants, read_pages) = (incoming.grants, incoming.pages);
    seq_print!(seq, "oldest_call_ms {}\n", incoming.oldest_call_ms());
    drop(incoming);
    let view = qp.view();
    for (name, value) in [
        ("inline_send", thresholds.send),
        ("inline_receive", thresholds.receive),
        ("credits_requested", grants.requested().get()),
        ("credits_granted", grants.granted().get()),
        ("credits_limit", grants.limit()),
        ("credits_max", grants.max()),
        (
            "calls_outstanding",
            u32::try_from(grants.outstanding()).unwrap_or(u32::MAX),
        ),
        ("read_pages", read_pages),
        ("read_pages_limit", conn.max_read_pages),
        ("reply_pages", conn.reply_load.load(Relaxed)),
        ("receives_posted", view.recvs_posted),
        ("receive_buffers", view.recvs),
        ("send_queue_used", view.entries_used),
        ("send_queue_most", view.entries_max),
        ("send_queue_size", view.entries),
        ("send_queue_pending", view.pending),
        ("send_contexts_used", view.sends_used),
        ("send_contexts", view.sends),
    ] {
        seq_print!(seq, "{name} {value}\n");
    }
}
