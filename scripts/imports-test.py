#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Tests of imports.py, each on a small crate in a folder of its own. Prints KTAP."""

import os
import sys
import tempfile

sys.dont_write_bytecode = True

import imports  # noqa: E402

# A crate that breaks no rule.
GOOD = {
    "rpcrdma_main.rs": """
        mod bindings; mod client; mod error; mod proto; mod rdma; mod server; mod sunrpc; mod trace;
        use client::Client; use server::Server;
        struct Module { client: Client, server: Server }
    """,
    "bindings/mod.rs": "mod word; pub(crate) use kernel::bindings::*; pub(crate) use word::Word; pub(crate) struct ib_qp;",
    "bindings/word.rs": "pub(crate) struct Word;",
    "error.rs": "use crate::proto::conn::Reason; pub(crate) enum Cause { Gone(Reason) }",
    "trace.rs": "use crate::bindings::ib_qp; pub(crate) fn posted(qp: *const ib_qp) {}",
    "proto/mod.rs": "pub(crate) mod conn; pub(crate) mod cursor;",
    "proto/conn.rs": "use super::cursor::Reader; pub(crate) struct Reason;",
    "proto/cursor.rs": """
        pub(crate) struct Reader; // crate::rdma::Qp and 'quotes", {
        #[kernel::macros::kunit_tests(rpcrdma_cursor)]
        mod tests { use super::*; fn reads() -> Reader { let brace = '{'; let text = "crate::rdma::Qp }"; Reader } }
    """,
    "rdma/mod.rs": "mod qp; mod cq; pub(crate) use qp::Qp; pub(crate) use cq::Cq;",
    "rdma/qp.rs": "use super::Cq; use crate::{bindings::{self, ib_qp}, trace}; pub(crate) struct Qp(Cq);",
    "rdma/cq.rs": "use crate::bindings; pub(crate) struct Cq;",
    "sunrpc/mod.rs": "mod xprt; pub(crate) use crate::bindings::Word; pub(crate) use xprt::Xprt;",
    "sunrpc/xprt.rs": "use crate::bindings; pub(crate) struct Xprt;",
    "client/mod.rs": "mod reply; pub(crate) struct Client(reply::Reply);",
    "client/reply.rs": "use crate::{proto::conn::Reason, rdma::Qp, sunrpc::{Word, Xprt}, error}; pub(super) struct Reply;",
    "server/mod.rs": "use crate::rdma::Qp; pub(crate) struct Server;",
}


def crate_of(changes):
    with tempfile.TemporaryDirectory() as tree:
        for path, text in {**GOOD, **changes}.items():
            file = os.path.join(tree, "rust", path)
            os.makedirs(os.path.dirname(file), exist_ok=True)
            with open(file, "w", encoding="utf-8") as out:
                out.write(text)
        return imports.Crate(tree)


# What has to be said by which rule when a file is changed: description -> (rule, words, changes).
BROKEN = {
    "proto names another layer": (
        "proto_uses_nothing", "crate::error::Cause", {"proto/conn.rs": "use crate::error::Cause;"}),
    "proto names the kernel crate": (
        "proto_uses_nothing", "kernel::prelude", {"proto/conn.rs": "use kernel::prelude::*;"}),
    "proto allocates": (
        "proto_uses_nothing", "alloc::vec::Vec", {"proto/conn.rs": "fn f() { let v = alloc::vec::Vec::new(); }"}),
    "bindings name a layer": (
        "bindings_use_nothing", "crate::rdma::Qp", {"bindings/word.rs": "use crate::rdma::Qp;"}),
    "rdma names sunrpc": (
        "rdma_knows_no_other_layer", "cq.rs: rust/sunrpc/", {"rdma/cq.rs": "pub(crate) struct Cq(crate::sunrpc::Xprt);"}),
    "rdma reaches sunrpc through trace": (
        "rdma_knows_no_other_layer", "rdma/qp.rs: rust/trace.rs (by crate::trace), then rust/sunrpc/",
        {"trace.rs": "use crate::sunrpc::Xprt;"}),
    "rdma reaches proto through a module that passes on": (
        "rdma_knows_no_other_layer", "then rust/proto/conn.rs",
        {"trace.rs": "pub(crate) use crate::proto::conn::Reason;"}),
    "sunrpc reaches proto through error": (
        "sunrpc_knows_no_other_layer", "rust/error.rs (by crate::error::Cause), then rust/proto/conn.rs",
        {"sunrpc/xprt.rs": "use crate::error::Cause; pub(crate) struct Xprt;"}),
    "sunrpc names an item of the root": (
        "sunrpc_knows_no_other_layer", "by crate::Module",
        {"sunrpc/xprt.rs": "use crate::Module; pub(crate) struct Xprt;"}),
    "trace names a layer": (
        "trace_imports_no_layer", "crate::rdma::Qp", {"trace.rs": "fn f(qp: &crate::rdma::Qp) {}"}),
    "trace names another module of the root": (
        "trace_imports_no_layer", "crate::error::Cause", {"trace.rs": "use crate::error::Cause;"}),
    "client names bindings": (
        "client_and_server_name_what_they_may", "crate::bindings::ib_qp",
        {"client/reply.rs": "use crate::bindings::ib_qp; pub(super) struct Reply;"}),
    "client names bindings that a layer passes on as a module": (
        "client_and_server_name_what_they_may", "crate::rdma::bindings::ib_qp",
        {"rdma/mod.rs": GOOD["rdma/mod.rs"] + "pub(crate) use crate::bindings;",
         "client/reply.rs": "use crate::rdma::bindings::ib_qp; pub(super) struct Reply;"}),
    "server names an item of the root": (
        "client_and_server_name_what_they_may", "crate::Module", {"server/mod.rs": "fn f(m: crate::Module) {}"}),
    "client names server": (
        "client_and_server_are_strangers", "crate::server::Server",
        {"client/reply.rs": "use crate::server::Server; pub(super) struct Reply;"}),
    "server reaches client through trace": (
        "client_and_server_are_strangers", "then rust/client/mod.rs",
        {"server/mod.rs": "use crate::trace; pub(crate) struct Server;", "trace.rs": "use crate::client::Client;"}),
    "a module of the root names a role": (
        "only_the_root_knows_the_roles", "error.rs: rust/client/mod.rs", {"error.rs": "use crate::client::Client;"}),
    "two files name each other": (
        "no_circles", "rust/rdma/qp.rs (by super::qp::Qp), rust/rdma/cq.rs (by super::Cq)", {"rdma/cq.rs": "use super::qp::Qp; pub(crate) struct Cq;"}),
    "two files name each other by what their folder passes on": (
        "no_circles", "rust/rdma/qp.rs (by super::Qp)", {"rdma/cq.rs": "use super::Qp; pub(crate) struct Cq;"}),
    "two files name each other by a glob": (
        "no_circles", "rust/rdma/qp.rs (by Qp)", {"rdma/cq.rs": "use super::*; pub(crate) struct Cq; fn f(qp: &Qp) {}"}),
    "three files name each other": (
        "no_circles", "rust/proto/conn.rs",
        {"rdma/cq.rs": "use crate::proto::conn::Reason; pub(crate) struct Cq;",
         "proto/cursor.rs": "use crate::rdma::Qp; pub(crate) struct Reader;"}),
    "a folder's own items and a file in it name each other": (
        "no_circles", "rust/client/mod.rs (by super::Client)",
        {"client/reply.rs": "use super::Client; pub(super) struct Reply;"}),
    "a path in an inline module": (
        "no_circles", "by super::super::qp::Qp",
        {"rdma/cq.rs": "pub(crate) struct Cq; mod state { fn f(qp: super::super::qp::Qp) {} }"}),
    "a path in a macro": (
        "no_circles", "by crate::rdma::qp::Qp",
        {"rdma/cq.rs": "pub(crate) struct Cq; macro_rules! m { () => { $crate::rdma::qp::Qp } }"}),
    "an import by another name": (
        "no_circles", "by super::qp::Qp",
        {"rdma/cq.rs": "use super::qp::{Qp as Pair}; pub(crate) struct Cq; fn f(pair: Pair) {}"}),
    "a path by an imported module": (
        "no_circles", "by super::qp", {"rdma/cq.rs": "use super::qp; pub(crate) struct Cq; fn f(p: qp::Qp) {}"}),
    "tests name each other": (
        "no_circles_in_tests", "rust/proto/b.rs",
        {"proto/mod.rs": GOOD["proto/mod.rs"] + "#[cfg(any(test, rpcrdma_kunit))] mod a; #[cfg(rpcrdma_selftest)] mod b;",
         "proto/a.rs": "use super::b::B; struct A;", "proto/b.rs": "use super::a::A; struct B;"}),
}


def rules():
    return [name for name in dir(imports.Crate) if name.startswith("rule_")]


def test_good():
    for rule in rules():
        yield from getattr(crate_of({}), rule)()


def test_every_rule_is_tested():
    yield from {name.removeprefix("rule_") for name in rules()} - {rule for rule, _, _ in BROKEN.values()}


def test_shipped():
    crate = crate_of({
        "proto/mod.rs": """
            pub(crate) mod conn; pub(crate) mod cursor;
            #[cfg(any(test, rpcrdma_kunit))] mod a;
            #[cfg(not(test))] #[path = "other.rs"] mod b;
            #[cfg(all(rpcrdma_selftest, CONFIG_IPV6))] mod c;
            #[cfg(CONFIG_IPV6)] mod d;
            #[cfg_attr(not(CONFIG_IPV6), path = "no_e.rs")] mod e;
        """,
        **{f"proto/{name}.rs": "" for name in ("a", "other", "d", "e", "no_e")},
        "proto/c.rs": "mod within;", "proto/c/within.rs": "",
    })
    found = {path.split("/")[-1] for path, file in crate.files.items() if file.shipped and "/proto/" in path}
    wanted = {"mod.rs", "conn.rs", "cursor.rs", "other.rs", "d.rs", "e.rs", "no_e.rs"}
    yield from found ^ wanted


def test_proofs():
    crate = crate_of({
        "proto/mod.rs": GOOD["proto/mod.rs"] + "#[cfg(rpcrdma_selftest)] mod unused; #[cfg(test)] mod some_tests;",
        "proto/unused.rs": "pub(crate) fn unused() {} mod tests { use super::*; fn of_unused() { unused() } }",
        "proto/cursor.rs": "pub(crate) struct Reader; mod tests { use super::*; fn of_cursor() { Reader; } }",
        "proto/some_tests.rs": """
            mod tests {
                use super::super::{cursor::Reader, unused::unused};
                const NEEDED: fn() = unused;
                fn help() { NEEDED() }
                fn good() { Reader; }
                fn bad() { Reader; unused() }
                fn bad_by_others() { Reader; help() }
                fn nothing() {}
            }
        """,
    })
    shipped = {path for path, file in crate.files.items() if file.shipped}
    found = set(crate.proofs(shipped))
    yield from {"cursor::of_cursor", "some_tests::good"} - found
    yield from found & {f"some_tests::{name}" for name in ("bad", "bad_by_others", "nothing")}
    yield from found & {"unused::of_unused"}


def test_broken(rule, words, changes):
    said = list(getattr(crate_of(changes), "rule_" + rule)())
    if not any(words in line for line in said):
        yield f"{rule} does not say '{words}'"
        yield from said


def main():
    cases = [
        ("a crate without faults", test_good, ()),
        ("every rule is tested", test_every_rule_is_tested, ()),
        ("what a release module has", test_shipped, ()),
        ("what tests run", test_proofs, ()),
    ]
    cases += [(name, test_broken, case) for name, case in BROKEN.items()]
    failed = False
    print(f"TAP version 13\n1..{len(cases)}")
    for number, (name, test, arguments) in enumerate(cases, 1):
        wrong = list(test(*arguments))
        print(f"{'not ok' if wrong else 'ok'} {number} imports: {name}")
        for line in wrong:
            print(f"#   {line}")
        failed = failed or bool(wrong)
    sys.exit(failed)


if __name__ == "__main__":
    main()
