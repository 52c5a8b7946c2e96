// SPDX-License-Identifier: GPL-2.0

//! The files of a transport under debugfs. Documentation/admin-guide.rst explains each line.

use super::{ep::Ep, frwr, transport::XprtInner};
use crate::{
    debugfs::{File, Show},
    proto::v2::dialect,
    rdma::{MrType, QueuePair},
    stats::show_private_data,
    sunrpc::jiffies_to_ms,
};
use kernel::{seq_file::SeqFile, seq_print};

impl Show for XprtInner {
    const FILES: &'static [File<Self>] = &[
        (c"connection", connection),
        (c"latency", |transport, seq| transport.latency.show(seq)),
        (c"stats", stats),
    ];
}

/// What was counted since the mount.
fn stats(transport: &XprtInner, seq: &SeqFile) {
    transport.calls.show_calls(seq);
    transport.stats.show(seq);
    let ended = *transport.ended.lock();
    let failed = *transport.connect_failed.lock();
    ended.show_counts(seq, "ended");
    failed.show_counts(seq, "connect_failed");
}

/// The connection, or why there is none.
fn connection(transport: &XprtInner, seq: &SeqFile) {
    let xprt = &transport.xprt;
    let peer = xprt.address();
    seq_print!(seq, "state {}\n", xprt.state());
    seq_print!(seq, "peer {peer}\npeer_port {}\n", peer.port());
    seq_print!(seq, "connects {}\n", xprt.connect_count());
    let connect = jiffies_to_ms(xprt.connect_timeout());
    seq_print!(seq, "connect_timeout_ms {connect}\n");
    let reconnect = jiffies_to_ms(xprt.max_reconnect_timeout());
    seq_print!(seq, "max_reconnect_timeout_ms {reconnect}\n");
    let (count, age) = xprt.calls_outstanding();
    seq_print!(seq, "calls_outstanding {count}\noldest_call_ms {age}\n");
    let ended = *transport.ended.lock();
    let failed = *transport.connect_failed.lock();
    ended.show_last(seq, "end");
    failed.show_last(seq, "failure");
    if let Some((version, left)) = transport.servers.highest(xprt) {
        seq_print!(seq, "known_version {version}\nknown_version_s {left}\n");
    }
    // No reference is kept: the last one must not be dropped here, where the end of the transport
    // would wait for this reader.
    if let Some(qp) = &*transport.current.lock() {
        show_connection(seq, qp);
        seq_print!(seq, "credits_in_use {}\n", xprt.credits_in_use());
    }
}

fn show_connection(seq: &SeqFile, qp: &QueuePair<Ep>) {
    let connection = qp.user();
    if let Some(param) = connection.param.as_ref() {
        let (source, (device, port)) = (&param.source, &param.device);
        seq_print!(seq, "source {source}\nsource_port {}\n", source.port());
        seq_print!(seq, "device {device}\ndevice_port {port}\n");
    }
    seq_print!(seq, "queue_pair {}\n", qp.number);
    seq_print!(seq, "completion_queue {}\n", qp.cq_number);
    if let Some(param) = connection.param.as_ref() {
        seq_print!(seq, "age_ms {}\n", param.since.elapsed().as_millis());
        show_private_data(seq, &param.own, param.peer.as_ref());
    }
    if let Some(version) = connection.version() {
        let number = version.number;
        if version.is_final {
            seq_print!(seq, "version {number}\ndialect {}\n", dialect(number));
        }
        seq_print!(seq, "inline_send {}\n", version.thresholds.send);
        seq_print!(seq, "inline_receive {}\n", version.thresholds.receive);
    }
    let (offered, invalidating) = frwr::count(qp);
    let mrs = &connection.mrs;
    let gaps = match mrs.mr_type {
        MrType::MemReg => "",
        MrType::SgGaps => ",SG_GAPS",
    };
    seq_print!(seq, "region_type MEM_REG{gaps}\n");
    seq_print!(seq, "region_pages {}\n", mrs.pages);
    seq_print!(seq, "regions_idle {}\n", mrs.idle());
    seq_print!(seq, "regions_offered {offered}\n");
    seq_print!(seq, "regions_invalidating {invalidating}\n");
    let view = qp.view();
    seq_print!(seq, "receives_posted {}\n", view.recvs_posted);
    seq_print!(seq, "receive_buffers {}\n", view.recvs);
    seq_print!(seq, "sends_posted {}\n", view.sends_used);
    seq_print!(seq, "send_buffers {}\n", view.sends);
    seq_print!(seq, "credits_requested {}\n", connection.requested.get());
    seq_print!(seq, "credits_granted {}\n", connection.granted_credits());
}
