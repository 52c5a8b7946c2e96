// SPDX-License-Identifier: GPL-2.0

//! The RPC-over-RDMA transport of sunrpc (RFC 8166).

use kernel::prelude::*;

mod bindings;
mod client;
mod debugfs;
mod error;
mod proto;
mod rdma;
mod server;
#[cfg(rpcrdma_kunit)]
mod sim_tests;
mod stats;
mod sunrpc;
mod sysctl;
mod trace;

module! {
    type: RpcRdma,
    name: "rpcrdma",
    authors: ["The rpcrdma developers"],
    description: "RPC-over-RDMA transport",
    license: "GPL",
    alias: ["svcrdma", "xprtrdma", "rpcrdma6"],
}

/// What exists while the module is loaded. Fields are dropped in order.
struct RpcRdma {
    _settings: sysctl::Settings,
    _server: sunrpc::server::SvcRegistration<server::SvcRdmaListener>,
    _backward: sunrpc::ClassRegistration,
    _client: sunrpc::client::ClientRegistration<client::RpcrdmaXprt>,
    _devices: rdma::IbClient,
    _folder: debugfs::Folder,
}

impl kernel::Module for RpcRdma {
    fn init(module: &'static ThisModule) -> Result<Self> {
        let folder = debugfs::Folder::new();
        let devices = rdma::IbClient::register()?;
        // Mounts may begin as soon as a class is registered.
        let servers = client::KnownServers::new()?;
        let client = sunrpc::client::register::<client::RpcrdmaXprt>(module, servers)?;
        let backward = sunrpc::server::register_bc::<server::SvcRdmaListener>(module)?;
        let server = server::CLASS.register(module)?;
        // Last: if the C module has registered its classes, it has these files too, and /proc loses
        // both modules' when it refuses the second ones.
        let settings = sysctl::Settings::register()?;
        Ok(Self {
            _settings: settings,
            _server: server,
            _backward: backward,
            _client: client,
            _devices: devices,
            _folder: folder,
        })
    }
}
