#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Lays the module out on a kernel source, as it is after one of the patches.

Usage: layout.py SOURCE-OF-MODULE KERNEL PATCH
       layout.py SOURCE-OF-MODULE KERNEL selftests    lays out the kselftests of all patches alone
       layout.py leftovers SOURCE-OF-MODULE           prints lines about what the kernel's tree does not have
       layout.py list

What is not there yet is not declared either: of the files that name others, the root of the crate
and the mod.rs above all, the lines that need files of later patches are left out.
"""

import os
import re
import shutil
import sys
import tempfile

FOLDER = "net/sunrpc/xprtrdma_rust"
DOCS = "Documentation/filesystems/nfs/xprtrdma-rust"
TESTS = "tools/testing/selftests/net/sunrpc_rdma"

# Each patch: series, name, and what it brings, as paths below rust/. A folder stands for all files in
# it that no longer path is for.
PATCHES = [
    (
        "client",
        "bindings",
        """
        bindings/ helpers/debugfs.c helpers/events.c helpers/helpers.c helpers/modinfo.c
        helpers/sysctl.c trace/rpcrdma.h
        rpcrdma_main.rs
        """,
    ),
    ("client", "wire", "proto/mod.rs proto/v2/ proto/wire/"),
    ("client", "proto", "proto/"),
    ("client", "surfaces", "debugfs.rs sysctl.rs trace.rs"),
    (
        "client",
        "memory",
        """
        rdma/device.rs rdma/dma.rs rdma/ib_client.rs rdma/list.rs rdma/mod.rs rdma/mr.rs
        rdma/sg.rs
        """,
    ),
    ("client", "verbs", "rdma/cm.rs"),
    ("client", "rdma", "rdma/"),
    (
        "client",
        "requests",
        """
        sunrpc/address.rs sunrpc/address_strings.rs sunrpc/client/backchannel.rs
        sunrpc/client/buffer.rs sunrpc/client/mod.rs sunrpc/client/rqst.rs sunrpc/client/rqst_buf.rs
        sunrpc/client/xprt.rs sunrpc/credits.rs sunrpc/mod.rs sunrpc/queue.rs
        sunrpc/registration.rs sunrpc/rpc_xprt.rs sunrpc/send_error.rs sunrpc/xdr_buf.rs
        """,
    ),
    ("client", "sunrpc", "sunrpc/"),
    ("client", "client", "client/ error.rs stats.rs"),
    ("client", "selftests", ""),
    ("client", "documentation", ""),
    ("server", "proto", "proto/responder/"),
    (
        "server",
        "surfaces",
        """
        helpers/svc_helpers.c
        """,
    ),
    (
        "server",
        "rdma",
        """
        rdma/listener.rs
        """,
    ),
    ("server", "sunrpc", "sunrpc/server/"),
    ("server", "server", "server/"),
    ("server", "tests", "proto/testing/"),
    ("server", "simulation", "proto/testing/simulation/ sim_tests.rs"),
    ("server", "selftests", ""),
    ("server", "documentation", ""),
]

NAMES = [f"{series}/{name}" for series, name, _ in PATCHES]

# The kselftests of each series, those that run between real machines, and what they share.
SELFTESTS = {
    "client": "backchannel cycles forms inject io killed load look mount mountstats recalls restart rpcbind settings",
    "server": "callbacks listener look-server service",
}
SHARED = "adapters-lib adapters guest inject-guest machine test"

# The entry of each series in MAINTAINERS, and the one that it stands before.
ENTRIES = {
    "client": ("RPC-OVER-RDMA TRANSPORT IN RUST", "RPMSG TTY DRIVER"),
    "server": ("RPC-OVER-RDMA TRANSPORT IN RUST, SERVER", "RPMSG TTY DRIVER"),
}
# Each patch that brings files adds some, as checkpatch.pl wants: these, or the files that it brings.
FILES = {
    ("client", "bindings"): [f"{FOLDER}/*", f"{FOLDER}/bindings/", f"{FOLDER}/helpers/"],
    ("client", "surfaces"): [f"{FOLDER}/trace/"],
    ("client", "wire"): [f"{FOLDER}/proto/{name}" for name in ("mod.rs", "v2/", "wire/")],
    ("client", "proto"): [f"{FOLDER}/proto/"],
    ("client", "rdma"): [f"{FOLDER}/rdma/"],
    ("client", "sunrpc"): [f"{FOLDER}/sunrpc/"],
    ("client", "client"): [f"{FOLDER}/client/"],
    ("client", "selftests"): [f"{TESTS}/"],
    ("client", "documentation"): [f"{DOCS}/"],
    ("server", "proto"): [f"{FOLDER}/proto/responder/"],
    ("server", "surfaces"): [f"{FOLDER}/helpers/svc_*"],
    ("server", "sunrpc"): [f"{FOLDER}/sunrpc/server/"],
    ("server", "server"): [f"{FOLDER}/server/"],
    ("server", "tests"): [f"{FOLDER}/proto/testing/{name}" for name in ("*", "requester/", "responder/", "vectors/")],
    ("server", "simulation"): [f"{FOLDER}/proto/testing/"],
    ("server", "selftests"): [f"{TESTS}/{name}.sh" for name in SELFTESTS["server"].split()],
    ("server", "documentation"): [f"{DOCS}/architecture.rst"],
}
LISTS = ["linux-nfs@vger.kernel.org", "linux-rdma@vger.kernel.org", "rust-for-linux@vger.kernel.org"]

# What the help says until there is a server.
CLIENT_ONLY = """
\t  So far this is the client only: nfsd cannot listen for RDMA with
\t  it.
"""

# The modules of which the server uses what the client does not.
SHARED_MODULES = ("bindings", "proto", "rdma", "stats", "sunrpc", "sysctl", "trace")


def sources(rust):
    """The files of rust/, as paths below it."""
    found = []
    for folder, folders, files in os.walk(rust):
        folders.sort()
        for name in sorted(files):
            path = os.path.relpath(os.path.join(folder, name), rust)
            if name.endswith((".rs", ".c", ".h", ".sh")) or name == "bindgen_parameters":
                found.append(path)
    return [path for path in found if not path.endswith("_generated.rs")]


def patches(rust):
    """The files of rust/, each with the index of the patch that brings it."""
    owners = {}
    for index, (_, _, paths) in enumerate(PATCHES):
        owners.update((path, index) for path in paths.split())
    found = {}
    for path in sources(rust):
        known = [owner for owner in owners if owner == path or owner.endswith("/") and path.startswith(owner)]
        if not known:
            sys.exit(f"layout.py: no patch brings rust/{path}: add it to one of PATCHES")
        found[path] = owners[max(known, key=len)]
    gone = [owner for owner in owners if not os.path.exists(os.path.join(rust, owner))]
    if gone:
        sys.exit(f"layout.py: there is no rust/{gone[0]}: take it out of PATCHES")
    return found


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    # What stays the same is not built anew.
    if os.path.exists(path) and read(path) == text:
        return
    # A new file: the old one may be a link to somebody else's.
    if os.path.lexists(path):
        os.unlink(path)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def items(text):
    """The text in pieces of a line, or of as many as a declaration has with what stands above it."""
    piece, depth = [], 0
    for line in text.splitlines(keepends=True):
        piece.append(line)
        code = re.sub(r'"(?:[^"\\]|\\.)*"|//.*', "", line)
        depth += sum(code.count(c) for c in "([{") - sum(code.count(c) for c in ")]}")
        above = re.match(r"\s*(///|#\[)", line)
        if depth == 0 and not above:
            yield "".join(piece)
            piece = []
    yield "".join(piece)


def without_modules(path, text, there):
    """Leaves the mod declarations of a file out whose files are not there, and uses of them."""
    folder = os.path.dirname(path) if path.endswith(("mod.rs", "_main.rs")) else path[: -len(".rs")]
    gone = set()
    for match in re.finditer(r"^(?:pub\(\w+\) )?mod (\w+);", text, re.M):
        base = os.path.join(folder, match[1])
        if f"{base}.rs" not in there and f"{base}/mod.rs" not in there:
            gone.add(match[1])
    if not gone:
        return text
    names = "|".join(gone)
    dropped = re.compile(rf"^(?:\s*(?:///|#\[).*\n)*(?:pub\(\w+\) )?(?:mod (?:{names});|use (?:self::)?(?:{names})\b)")
    return "".join(piece for piece in items(text) if not dropped.match(piece))


def reduced_root(text, there):
    """The root of the crate without what uses modules that are not there."""
    modules = re.findall(r"^mod (\w+);", text, re.M)
    gone = [name for name in modules if f"{name}.rs" not in there and f"{name}/mod.rs" not in there]
    if "sunrpc/server/mod.rs" not in there:
        gone.append("sunrpc::server")
    text = without_modules("rpcrdma_main.rs", text, there)
    if not gone:
        return text
    start = text.index("struct RpcRdma {")
    head, body = text[:start], text[start:]
    names = re.compile(r"\b(?:%s)::" % "|".join(gone))
    # A statement, with what stands above it, may go over several lines.
    statement = re.compile(r"^(?: +//.*\n)*( +)let (\w+) =(?:.*\n)(?:\1 +.*\n)*", re.M)
    lost = [match[2] for match in statement.finditer(body) if names.search(match[0])]
    body = statement.sub(lambda match: "" if match[2] in lost else match[0], body)
    field = re.compile(r"^ +(_\w+): (\w+),\n", re.M)
    fields = [match[1] for match in field.finditer(body) if match[2] in lost]
    fields += [match[1] for match in re.finditer(r"^ +(_\w+): .*,\n", body, re.M) if names.search(match[0])]
    for name in fields:
        body = re.sub(rf"^ +{name}: .*,\n", "", body, flags=re.M)
    # Then, what only those needed.
    unused = lambda match: len(re.findall(rf"\b{match[2]}\b", body)) == 1
    while match := next(filter(unused, statement.finditer(body)), None):
        body = body.replace(match[0], "")
    if "let " not in body:
        body = re.sub(r"^ +//.*\n", "", body, flags=re.M)
    if not re.search(r"\(module,", body):
        body = body.replace("fn init(module:", "fn init(_module:")
    body = body.replace("{\n}\n", "{}\n", 1) if "struct RpcRdma {\n}\n" in body else body
    body = body.replace("Ok(Self {\n        })", "Ok(Self {})")
    return head + body


def with_allowed(text, names):
    """The root of the crate, with attributes for modules that have what only later patches use."""
    if "server/mod.rs" in names:
        return text
    lints, reason = "dead_code, unused_imports", "the rest is for the server"
    modules = list(SHARED_MODULES)
    if "client/mod.rs" not in names:
        lints, reason = lints + ", unused_macros", "for the patches that follow"
        modules = re.findall(r"^mod (\w+);", text, re.M)
    for name in modules:
        text = re.sub(rf"^mod {name};", f'#[allow({lints}, reason = "{reason}")]\nmod {name};', text, flags=re.M)
    return text


def lay_rust(rust, kernel, index):
    """Lays the crate out as it is after the patch."""
    there = [path for path, patch in patches(rust).items() if patch <= index]
    names = set(there)
    for path in there:
        text = read(os.path.join(rust, path))
        if path == "rpcrdma_main.rs":
            text = with_allowed(reduced_root(text, names), names)
        elif path.endswith(".rs"):
            text = without_modules(path, text, names)
        elif "helpers/svc_helpers.c" not in names and path.startswith("bindings/"):
            text = "".join(line for line in text.splitlines(keepends=True) if "svc_helpers" not in line)
        for vectors in re.findall(r'include_str!\("((?:\.\./)+selftests/[^"]+)"\)', text):
            name = os.path.basename(vectors)
            file = os.path.join(rust, os.path.dirname(path), vectors)
            write(os.path.join(kernel, FOLDER, os.path.dirname(path), "vectors", name), read(file))
            text = text.replace(vectors, f"vectors/{name}")
            # As rustfmt has it for the shorter path.
            text = re.sub(r"\(\n +(include_str!\(.*\)),\n +(\d+),\n +\)", r"(\1, \2)", text)
        target = os.path.join(kernel, FOLDER, path)
        write(target, text)
        shutil.copymode(os.path.join(rust, path), target)
    return names


def lay_build(here, kernel, names):
    """Kconfig and makefiles."""
    helpers = sorted(name for name in names if name.startswith("helpers/") and name.endswith(".c"))
    objects = "".join(f"rpcrdma-y += {name[:-2]}.o\n" for name in helpers)
    makefile = read(os.path.join(here, "Makefile")).replace("# HELPERS\n", objects)
    kconfig = read(os.path.join(here, "Kconfig"))
    if "proto/testing/mod.rs" in names:
        write(os.path.join(kernel, FOLDER, ".kunitconfig"), read(os.path.join(here, "kunitconfig")))
    else:
        kconfig = kconfig[: kconfig.index("\nconfig SUNRPC_XPRT_RDMA_RUST_KUNIT_TEST")]
    if "server/mod.rs" not in names:
        kconfig = kconfig.replace("\n\t  If unsure", CLIENT_ONLY + "\n\t  If unsure", 1)
    if "proto/testing/mod.rs" not in names:
        makefile = re.sub(r"rustflags-\$\(CONFIG_SUNRPC_XPRT_RDMA_RUST_KUNIT_TEST\).*\n.*\n", "", makefile)
    write(os.path.join(kernel, FOLDER, "Makefile"), makefile)
    write(os.path.join(kernel, FOLDER, "Kconfig"), kconfig)

    path = os.path.join(kernel, "net/sunrpc/Kconfig")
    text = read(path)
    line = f'source "{FOLDER}/Kconfig"\n'
    if line not in text:
        write(path, text.rstrip("\n") + "\n\n" + line)
    path = os.path.join(kernel, "net/sunrpc/Makefile")
    text = read(path)
    if "xprtrdma_rust" not in text:
        old = "obj-$(CONFIG_SUNRPC_XPRT_RDMA) += xprtrdma/\n"
        if old not in text:
            sys.exit(f"layout.py: {path} does not build the C transport where it is looked for")
        new = (
            "ifdef CONFIG_SUNRPC_XPRT_RDMA_RUST\n"
            "obj-$(CONFIG_SUNRPC_XPRT_RDMA) += xprtrdma_rust/\n"
            "else\n" + old + "endif\n"
        )
        write(path, text.replace(old, new))


def lay_selftests(project, kernel, series):
    """The kselftests of these series."""
    names = sorted(name for one in series for name in SELFTESTS[one].split())
    for name in names + [f"lib/{name}" for name in SHARED.split()]:
        file = os.path.join(project, "selftests", f"{name}.sh")
        target = os.path.join(kernel, TESTS, f"{name}.sh")
        write(target, test_for_the_tree(read(file)))
        shutil.copymode(file, target)
    write(os.path.join(kernel, TESTS, "README.rst"), read(os.path.join(project, "selftests/adapters.rst")))
    here = os.path.join(project, "scripts/in-tree/selftests")
    for name in ("config", "settings"):
        write(os.path.join(kernel, TESTS, name), read(os.path.join(here, name)))
    programs = "".join(f"\t{name}.sh \\\n" for name in names)
    write(os.path.join(kernel, TESTS, "Makefile"), read(os.path.join(here, "Makefile")).replace("# PROGRAMS\n", programs))

    path = os.path.join(kernel, "tools/testing/selftests/Makefile")
    text = read(path)
    line = "TARGETS += net/sunrpc_rdma\n"
    if line not in text:
        before = [target for target in re.findall(r"^TARGETS \+= net/.*\n", text, re.M) if target < line]
        if not before:
            sys.exit(f"layout.py: {path} does not list targets below net where they are looked for")
        write(path, text.replace(before[-1], before[-1] + line))


def test_for_the_tree(text):
    """A kselftest, or what it sources, as it is in the kernel's tree."""
    # What is proved is listed elsewhere.
    text = re.sub(r"^# Proves: .*\n", "", text, flags=re.M)
    return text.replace('"$lib/../../rust/', f'"$lib/../../../../../../{FOLDER}/')


def lay_maintainers(rust, kernel, index):
    """The entry in MAINTAINERS, as long as it is after the patch."""
    brought = patches(rust)
    path = os.path.join(kernel, "MAINTAINERS")
    text = read(path)
    for series, (title, before) in ENTRIES.items():
        files = [
            name
            for at, (owner, patch, _) in enumerate(PATCHES)
            if at <= index and owner == series
            for name in FILES.get((owner, patch)) or [f"{FOLDER}/{file}" for file in brought if brought[file] == at]
        ]
        # A folder stands for all in it.
        folders = [name for name in files if name.endswith("/")]
        files = [name for name in files if not any(name != one and name.startswith(one) for one in folders)]
        text = re.sub(rf"^{re.escape(title)}\n(?:.+\n)*\n", "", text, flags=re.M)
        if not files:
            continue
        entry = title + "\n" + "".join(f"L:\t{name}\n" for name in LISTS) + "S:\tOrphan\n"
        entry += "".join(f"F:\t{name}\n" for name in sorted(files)) + "\n"
        at = text.find(before + "\n")
        if at < 0:
            sys.exit(f"{path} has no entry {before}, before which {title} goes: ENTRIES has to name another one")
        text = text[:at] + entry + text[at:]
    write(path, text)


def lay_documentation(project, kernel, index):
    """The documents of the series whose last patch this is."""
    there = [series for at, (series, name, _) in enumerate(PATCHES) if at <= index and name == "documentation"]
    if not there:
        return
    names = {"client": ["lifetimes"], "server": ["architecture"]}
    shown = sorted(name for series in there for name in names[series])
    for name in shown:
        text = read(os.path.join(project, "Documentation", f"{name}.rst"))
        write(os.path.join(kernel, DOCS, f"{name}.rst"), for_the_tree(text, shown))
    title = "RPC-over-RDMA transport in Rust"
    index_text = ".. SPDX-License-Identifier: GPL-2.0\n\n" + "=" * len(title) + f"\n{title}\n" + "=" * len(title)
    index_text += "\n\n.. toctree::\n   :maxdepth: 1\n\n" + "".join(f"   {name}\n" for name in shown)
    write(os.path.join(kernel, DOCS, "index.rst"), index_text)
    path = os.path.join(kernel, "Documentation/filesystems/nfs/index.rst")
    text = read(path)
    if "xprtrdma-rust" not in text:
        write(path, text.rstrip("\n") + "\n   xprtrdma-rust/index\n")


def for_the_tree(text, shown):
    """A document without the sentences about what the kernel's tree does not have."""
    others = "|".join(shown)
    absent = re.compile(rf"``(?:scripts|selftests)/|:doc:`(?!(?:{others})`|[^`]*<(?:{others})>`)")
    paragraphs = []
    for paragraph in text.split("\n\n"):
        if absent.search(paragraph):
            sentences = re.split(r"(?<=\.)\s+", paragraph)
            paragraph = " ".join(s for s in sentences if not absent.search(s))
        paragraphs.append(paragraph)
    return "\n\n".join(paragraphs).rstrip("\n") + "\n"


# Of the kernel's tree what the patches change, as far as the layout looks at it.
STUBS = {
    "MAINTAINERS": "".join(f"{before}\n" for before in {before for _, before in ENTRIES.values()}),
    "net/sunrpc/Kconfig": "",
    "net/sunrpc/Makefile": "obj-$(CONFIG_SUNRPC_XPRT_RDMA) += xprtrdma/\n",
    "Documentation/filesystems/nfs/index.rst": "",
    "tools/testing/selftests/Makefile": "TARGETS += net/rds\n",
}


def leftovers(rust):
    """Lines of the last patch of each series that are about what the tree does not have."""
    found = []
    for series in SELFTESTS:
        with tempfile.TemporaryDirectory() as kernel:
            for name, text in STUBS.items():
                write(os.path.join(kernel, name), text)
            lay(rust, kernel, max(at for at, (owner, _, _) in enumerate(PATCHES) if owner == series))
            documents = os.listdir(os.path.join(kernel, DOCS))
            for folder, _, files in os.walk(kernel):
                for file in sorted(files):
                    path = os.path.join(folder, file)
                    for number, line in enumerate(read(path).splitlines(), 1):
                        named = [name for _, name in re.findall(r":doc:`(?:[^`]*<)?((\w+))>?`", line)]
                        if re.search(r"(?<![\w/-])(?:selftests|debian)/", line) or any(
                            f"{name}.rst" not in documents for name in named
                        ):
                            found.append(f"{series}: {os.path.relpath(path, kernel)}:{number}:{line}")
    return found


def lay(rust, kernel, index):
    """Lays everything out as it is after the patch."""
    names = lay_rust(rust, kernel, index)
    lay_build(os.path.dirname(os.path.abspath(__file__)), kernel, names)
    lay_maintainers(rust, kernel, index)
    project = os.path.dirname(os.path.abspath(rust))
    there = [series for at, (series, name, _) in enumerate(PATCHES) if at <= index and name == "selftests"]
    if there:
        lay_selftests(project, kernel, there)
    lay_documentation(project, kernel, index)


def main():
    if sys.argv[1:] == ["list"]:
        print("\n".join(name.replace("/", " ") for name in NAMES))
        return
    if sys.argv[1] == "leftovers":
        print("".join(f"{line}\n" for line in leftovers(sys.argv[2])), end="")
        return
    rust, kernel, wanted = sys.argv[1:]
    if wanted == "selftests":
        lay_selftests(os.path.dirname(os.path.abspath(rust)), kernel, list(SELFTESTS))
        return
    lay(rust, kernel, NAMES.index(wanted))


if __name__ == "__main__":
    main()
