#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Which file of the crate names items of which other one.

Usage: imports.py [--tree DIR] check RULE...   lines "RULE<tab>what breaks it"
       imports.py [--tree DIR] shipped         the files that are in a release module
       imports.py [--tree DIR] proofs          the tests that run nothing but these, as "file::function"
       imports.py [--tree DIR] graph           each file and the files that it names

The crate is read from rust/rpcrdma_main.rs on, through its mod declarations. What counts as naming:

- Use declarations, their trees taken apart: `use a::{b, c::{self, d as e}, f::*}`.
- Paths without a use declaration, in code and in attributes: `crate::a::b`, `super::b`, `self::b`, and
  those that begin with a module or a name that is in scope in the module.
- `super` counts from the inline module that it is in, and `$crate` in a macro is `crate`.
- A name that a module only passes on (`pub(crate) use x::Y`) belongs to the file that defines it: to name
  it there is to name that file, and passing it on names nothing. Only for the layers passing on counts
  as well, for the module that does it: a layer answers for all that others get from it.

A file names another one also by calling methods or by implementing a trait for a type, without any path;
that is not seen. Comments, and links in them, count for nothing.
"""

import os
import re
import sys

TOKEN = re.compile(
    r"""
      (?P<space>\s+)
    | (?P<line>//[^\n]*)
    | (?P<block>/\*)
    | (?P<raw>(?:b|c|br|cr)?r(?P<hashes>\#*)")
    | (?P<string>(?:b|c)?"(?:[^"\\]|\\.)*")
    | (?P<char>b?'(?:[^'\\\n]|\\(?:x..|u\{[^}]*\}|.))')
    | (?P<life>'[A-Za-z_]\w*)
    | (?P<name>(?:r\#)?[A-Za-z_]\w*)
    | (?P<number>\d\w*)
    | (?P<sep>::)
    | (?P<other>.)
    """,
    re.X | re.S,
)
CRATE_WORDS = ("crate", "self", "super")
# Crates that code may name; whatever else begins a path is a local name or a type parameter.
EXTERNAL = ("core", "alloc", "std", "kernel", "pin_init", "ffi", "macros", "proc_macro", "build_error")
DEFINES = ("fn", "struct", "enum", "union", "trait", "type", "const", "static")
LAYERS = ("proto", "rdma", "sunrpc", "client", "server")
# What the layers above proto, rdma and sunrpc may name beside these.
COMMON = ("error", "stats", "trace", "debugfs", "sysctl")


def tokens(text):
    """The text's names, separators, literals' places and punctuation, without comments."""
    found, at = [], 0
    while at < len(text):
        match = TOKEN.match(text, at)
        kind, at = match.lastgroup, match.end()
        if kind == "hashes":
            kind = "raw"
        if kind == "block":
            depth = 1
            while depth and at < len(text):
                if text.startswith("/*", at):
                    depth, at = depth + 1, at + 2
                elif text.startswith("*/", at):
                    depth, at = depth - 1, at + 2
                else:
                    at += 1
        elif kind == "raw":
            at = text.index('"' + match.group("hashes"), at) + 1 + len(match.group("hashes"))
            found.append('""')
        elif kind == "string":
            found.append(match.group())
        elif kind == "char":
            found.append("''")
        elif kind in ("name", "sep", "other", "life", "number"):
            found.append(match.group().removeprefix("r#"))
    return found


def is_name(token):
    return re.fullmatch(r"[A-Za-z_]\w*", token) is not None


class Module:
    def __init__(self, path, parent, file):
        self.path, self.parent, self.file = path, parent, file
        self.children, self.defined = {}, set()
        # Name -> segments of what it stands for, and whether it is there only to be passed on.
        self.names, self.globs = {}, []
        self.named, self.tokens = [], []

    def __str__(self):
        return "::".join(("crate",) + self.path)


class File:
    def __init__(self, path, shipped):
        self.path, self.shipped = path, shipped
        # Named files, by what the layers and what circles are judged by: file -> a path that does it.
        self.layers, self.uses, self.external = {}, {}, {}
        # Modules that its paths go through, for what one layer may name of others.
        self.entered = {}


def condition(attribute):
    """Whether a release module has what carries this cfg: True, False, or None if it depends."""
    at = 0

    def term():
        nonlocal at
        word = attribute[at]
        at += 1
        if at < len(attribute) and attribute[at] == "(":
            at += 1
            parts = []
            while attribute[at] != ")":
                parts.append(term())
                if attribute[at] == ",":
                    at += 1
            at += 1
            if word == "not":
                return None if parts[0] is None else not parts[0]
            wanted = word == "any"
            if wanted in parts:
                return wanted
            return None if None in parts else not wanted
        if at < len(attribute) and attribute[at] == "=":
            at += 2
            return None
        return False if word == "test" or word.startswith("rpcrdma_") else None

    return term()


class Crate:
    def __init__(self, tree, root="rust/rpcrdma_main.rs"):
        self.tree, self.files = tree, {}
        self.root_file = root
        self.root = Module((), None, root)
        self.modules = [self.root]
        self.files[root] = File(root, True)
        self.read(self.root, os.path.dirname(root), True)
        for module in self.modules:
            for segments, passed_on in module.named:
                # A word alone that is a module's name is a variable's, too: no code uses a module so.
                if passed_on is not None or len(segments) > 1 or not self.is_module(module, segments):
                    self.name(module, segments, passed_on)

    def text(self, path):
        with open(os.path.join(self.tree, path), encoding="utf-8") as file:
            return file.read()

    def read(self, module, folder, shipped):
        self.parse(module, tokens(self.text(module.file)), folder, shipped)

    def child(self, module, name, folder, attributes, shipped):
        """A mod declaration: the file is name.rs or name/mod.rs, or what a path attribute says."""
        candidates = [os.path.join(folder, name + ".rs"), os.path.join(folder, name, "mod.rs")]
        files = [path for path in candidates if os.path.exists(os.path.join(self.tree, path))]
        for attribute in attributes:
            if "path" in attribute:
                other = os.path.normpath(os.path.join(folder, attribute[attribute.index("path") + 2].strip('"')))
                files = files + [other] if attribute[0] == "cfg_attr" else [other]
        for attribute in attributes:
            if attribute[0] == "cfg" and condition(attribute[2:-1]) is False:
                shipped = False
        if not files:
            raise SystemExit(f"imports.py: {module.file}: there is no file of mod {name}")
        # One module may be either of two files; each is read as that module.
        made = []
        for file in files:
            child = Module(module.path + (name,), module, file)
            self.files[file] = File(file, shipped)
            self.modules.append(child)
            made.append(child)
            below = os.path.dirname(file) if file.endswith("/mod.rs") else os.path.join(folder, name)
            self.read(child, below, shipped)
        module.children[name] = made[0]

    def parse(self, module, toks, folder, shipped):
        at, depth, attributes = 0, 0, []
        # The modules around, each with the depth of its items.
        around = [(module, 0, folder)]
        while at < len(toks):
            token = toks[at]
            here, level, where = around[-1]
            if token == "#" and toks[at + 1 : at + 2] in (["["], ["!"]):
                start = toks.index("[", at) + 1
                end, inside = start, 1
                while inside:
                    inside += {"[": 1, "]": -1}.get(toks[end], 0)
                    end += 1
                attributes.append(toks[start : end - 1])
                self.paths(here, toks[start : end - 1])
                at = end
                continue
            if token == "mod" and is_name(toks[at + 1]) and toks[at + 2] in (";", "{"):
                name = toks[at + 1]
                if toks[at + 2] == ";":
                    self.child(here, name, where, attributes, shipped)
                else:
                    inner = Module(here.path + (name,), here, here.file)
                    here.children[name] = inner
                    self.modules.append(inner)
                    depth += 1
                    around.append((inner, depth, os.path.join(where, name)))
                at, attributes = at + 3, []
                continue
            if token == "use":
                end = toks.index(";", at)
                passed_on = toks[at - 1] == "pub" or (toks[at - 1] == ")" and "pub" in toks[at - 5 : at])
                self.use(here, toks[at + 1 : end], [], passed_on)
                at, attributes = end + 1, []
                continue
            if token in ("{", "}"):
                depth += 1 if token == "{" else -1
                if token == "}" and len(around) > 1 and depth < level:
                    around.pop()
            elif depth == level and token in DEFINES and is_name(toks[at + 1]):
                here.defined.add(toks[at + 2] if toks[at + 1] == "fn" else toks[at + 1])
            elif token == "macro_rules":
                here.defined.add(toks[at + 2])
            if token in ("{", "}", ";"):
                attributes = []
            then = self.path_at(here, toks, at)
            here.tokens += toks[at:then]
            at = then

    def path_at(self, module, toks, at):
        """Notes the path that begins here, if one does, and returns where to go on."""
        if not is_name(toks[at]) or (at and toks[at - 1] in ("::", ".")):
            return at + 1
        # A visibility is no use of what it is limited to.
        if toks[max(at - 2, 0) : at] == ["pub", "("]:
            return at + 1
        segments = [toks[at]]
        at += 1
        while at + 1 < len(toks) and toks[at] == "::" and is_name(toks[at + 1]):
            segments.append(toks[at + 1])
            at += 2
        module.named.append((segments, None))
        return at

    def paths(self, module, toks):
        at = 0
        while at < len(toks):
            at = self.path_at(module, toks, at)

    def use(self, module, toks, before, passed_on):
        """Takes a use tree apart."""
        at = 1 if toks[:1] == ["::"] else 0
        segments = list(before)
        while at < len(toks) and is_name(toks[at]) and toks[at] != "as":
            segments.append(toks[at])
            at += 1
            if toks[at : at + 1] != ["::"]:
                break
            at += 1
        if toks[at : at + 1] == ["{"]:
            part, depth = [], 0
            for token in toks[at + 1 :]:
                if depth == 0 and token in (",", "}"):
                    if part:
                        self.use(module, part, segments, passed_on)
                    part = []
                    continue
                depth += {"{": 1, "}": -1}.get(token, 0)
                part.append(token)
            return
        if toks[at : at + 1] == ["*"]:
            module.globs.append(segments)
            module.named.append((segments, passed_on))
            return
        if segments[-1] == "self" and len(segments) > 1:
            segments.pop()
        name = toks[at + 1] if toks[at : at + 1] == ["as"] else segments[-1]
        if name != "_":
            module.names[name] = segments
        module.named.append((segments, passed_on))

    def start(self, module, segments):
        """The module that a path begins in and what is left of it; None for other crates."""
        first, rest = segments[0], segments[1:]
        if first == "crate":
            return self.root, rest
        if first in ("self", "super"):
            while True:
                if first == "super":
                    module = module.parent or module
                if not rest or rest[0] not in ("self", "super"):
                    return module, rest
                first, rest = rest[0], rest[1:]
        if self.has(module, first):
            return module, segments
        for target in self.own_globs(module):
            there = self.walk(*self.start(module, target), set())[0]
            if there and there is not module and self.has(there, first):
                return there, segments
        return None

    @staticmethod
    def own_globs(module):
        """The globs of a module that are not of other crates."""
        return [path for path in module.globs if path[0] in CRATE_WORDS or path[0] in module.children]

    @staticmethod
    def has(module, name):
        return name in module.children or name in module.names or name in module.defined

    def walk(self, module, rest, seen):
        """(module that defines the item, modules that a segment of the path names)."""
        entered = []
        while rest:
            name = rest[0]
            if name in module.children:
                module = module.children[name]
                entered.append(module)
                rest = rest[1:]
                continue
            if name in module.names and (id(module), name) not in seen:
                seen.add((id(module), name))
                found = self.start(module, module.names[name])
                if found is None:
                    return None, entered
                there, through = self.walk(*found, seen)
                # Who goes on behind a module that was passed on names that module.
                if len(rest) > 1 and there is not None:
                    entered += through
                if there is None:
                    return None, entered
                module, rest = there, rest[1:]
                if rest and name in module.defined:
                    return module, entered
                continue
            if name not in module.defined:
                for target in self.own_globs(module):
                    if (id(module), *target, name) in seen:
                        continue
                    seen.add((id(module), *target, name))
                    there = self.walk(*self.start(module, target), seen)[0]
                    if there and self.has(there, name):
                        return self.walk(there, rest, seen)[0], entered
            return module, entered
        return module, entered

    def is_module(self, module, segments):
        found = self.start(module, segments)
        return found is not None and bool(self.walk(*found, set())[1])

    def name(self, module, segments, passed_on):
        file = self.files[module.file]
        text = "::".join(segments)
        found = self.start(module, segments)
        if found is None:
            if segments[0] in EXTERNAL and (len(segments) > 1 or segments[0] in ("alloc", "std")):
                file.external.setdefault(segments[0], []).append(text)
            return
        if segments[0] not in CRATE_WORDS:
            # What a module defines itself, or has imported, which was noted there.
            first = segments[0]
            if found[0] is module and first in module.defined:
                return
            target = module.names.get(first)
            if target and target[0] in EXTERNAL and len(segments) > 1:
                file.external.setdefault(target[0], []).append("::".join(target + segments[1:]))
        defined_in, entered = self.walk(*found, set())
        for there in entered:
            file.entered.setdefault(there.path, text)
            self.edge(file.layers, file, there, text)
        if defined_in is None:
            return
        self.edge(file.layers, file, defined_in, text)
        if not passed_on:
            self.edge(file.uses, file, defined_in, text)

    @staticmethod
    def edge(edges, file, module, text):
        if module.file != file.path:
            edges.setdefault(module.file, text)

    # What the rules ask.

    def layer(self, path):
        """The first folder or file below rust/ that a file belongs to."""
        if path == self.root_file:
            return "root"
        return path.split("/")[1].removesuffix(".rs")

    def of(self, *layers):
        return [file for path, file in sorted(self.files.items()) if self.layer(path) in layers]

    def way(self, file, forbidden):
        """The shortest way from a file into a layer, or to the root, as text; None without one."""
        before, queue = {file.path: None}, [file.path]
        for path in queue:
            if path != file.path and self.layer(path) in forbidden:
                steps = []
                while before[path]:
                    last = before[path]
                    steps.append(f"{path} (by {self.files[last].layers[path]})")
                    path = last
                return f"{file.path}: " + ", then ".join(reversed(steps))
            for then in sorted(self.files[path].layers):
                if then not in before:
                    before[then] = path
                    queue.append(then)
        return None

    def reach(self, layers, forbidden):
        """Files of the layers from which a way leads into what is forbidden for them."""
        for file in self.of(*layers):
            way = self.way(file, forbidden)
            if way:
                yield way

    def names_only(self, layers, allowed):
        """Files of the layers that name a module of another one than those allowed."""
        for file in self.of(*layers):
            for path, text in sorted(file.entered.items()):
                if path[0] != self.layer(file.path) and path[0] not in allowed:
                    yield f"{file.path}: {text}"
            # An item of the root itself has no module of its own.
            if self.root_file in file.layers:
                yield f"{file.path}: {file.layers[self.root_file]} is the root's"

    def rule_proto_uses_nothing(self):
        for file in self.of("proto"):
            for there, text in sorted(file.layers.items()):
                if self.layer(there) != "proto":
                    yield f"{file.path}: {text}"
            for crate, texts in sorted(file.external.items()):
                for text in texts:
                    if crate not in ("core",) and text != "kernel::macros::kunit_tests":
                        yield f"{file.path}: {text}"

    def rule_bindings_use_nothing(self):
        yield from self.reach(["bindings"], (*LAYERS, *COMMON, "root"))

    def rule_rdma_knows_no_other_layer(self):
        yield from self.reach(["rdma"], ("proto", "sunrpc", "client", "server", "root"))

    def rule_sunrpc_knows_no_other_layer(self):
        yield from self.reach(["sunrpc"], ("proto", "rdma", "client", "server", "root"))

    def rule_trace_imports_no_layer(self):
        yield from self.reach(["trace"], (*LAYERS, *(name for name in COMMON if name != "trace"), "root"))

    def rule_client_and_server_name_what_they_may(self):
        yield from self.names_only(["client", "server"], ("proto", "rdma", "sunrpc", *COMMON))

    def rule_client_and_server_are_strangers(self):
        yield from self.reach(["client"], ("server", "root"))
        yield from self.reach(["server"], ("client", "root"))

    def rule_only_the_root_knows_the_roles(self):
        for path, file in sorted(self.files.items()):
            ways = [self.way(file, (role,)) for role in ("client", "server")]
            if self.layer(path) not in ("root", "client", "server") and any(ways):
                yield next(way for way in ways if way)

    def circles(self, files):
        """Each group of files that name each other in a circle, by a shortest circle of it."""
        left = set(files)
        while left:
            path = min(left)
            before, queue, back = {path: None}, [path], None
            for at in queue:
                for then in sorted(self.files[at].uses):
                    if then == path and back is None:
                        back = at
                    if then in left and then not in before:
                        before[then] = at
                        queue.append(then)
                if back is not None:
                    break
            left.discard(path)
            if back is None:
                continue
            steps = []
            at, then = back, path
            while at is not None:
                steps.append(f"{then} (by {self.files[at].uses[then]})")
                at, then = before[at], at
            yield f"{path}: " + ", ".join(reversed(steps))

    # What tests run.

    @staticmethod
    def pieces(module):
        """Name -> tokens of each function, constant and static of a module, wherever in it."""
        toks, found = module.tokens, {}
        for at, token in enumerate(toks[:-1]):
            if token not in ("fn", "const", "static") or not is_name(toks[at + 1]) or toks[at + 1] == "fn":
                continue
            end, depth = at + 2, 0
            while end < len(toks):
                depth += {"{": 1, "(": 1, "[": 1, "}": -1, ")": -1, "]": -1}.get(toks[end], 0)
                end += 1
                if depth == 0 and (toks[end - 1] == ";" or (toks[end - 1] == "}" and token == "fn")):
                    break
            found.setdefault(toks[at + 1], []).extend(toks[at + 2 : end])
        return found

    def runs(self, module, name):
        """Files that a function names, itself or by way of functions and constants beside it."""
        pieces, left, seen, files = self.pieces(module), [name], {name}, set()
        while left:
            toks, at = pieces[left.pop()], 0
            while at < len(toks):
                if not is_name(toks[at]):
                    at += 1
                    continue
                if toks[at] in pieces and toks[at] not in seen:
                    seen.add(toks[at])
                    left.append(toks[at])
                segments = [toks[at]]
                while toks[at + 1 : at + 2] == ["::"] and at + 2 < len(toks) and is_name(toks[at + 2]):
                    at += 2
                    segments.append(toks[at])
                    if toks[at] in pieces and toks[at] not in seen:
                        seen.add(toks[at])
                        left.append(toks[at])
                at += 1
                found = self.start(module, segments)
                if found and not (len(segments) == 1 and self.is_module(module, segments)):
                    there = self.walk(*found, set())[0]
                    if there:
                        files.add(there.file)
        return files

    def proofs(self, shipped):
        """The tests all of whose code is in these files, but for what stands beside the test itself."""
        for module in self.modules:
            for name in self.pieces(module):
                files = self.runs(module, name)
                # Without a file of its own the test is one of its own file.
                if module.file in shipped or (files - {module.file} and files - {module.file} <= shipped):
                    if files <= shipped | {module.file}:
                        folder, file = module.file.removesuffix("/mod.rs").removesuffix(".rs").rsplit("/", 1)
                        yield f"{file}::{name}"

    def rule_no_circles(self):
        yield from self.circles(path for path, file in self.files.items() if file.shipped)

    def rule_no_circles_in_tests(self):
        yield from self.circles(path for path, file in self.files.items() if not file.shipped)


def main(arguments):
    tree = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if arguments[:1] == ["--tree"]:
        tree, arguments = arguments[1], arguments[2:]
    crate = Crate(tree)
    match arguments:
        case ["check", *rules]:
            for rule in rules:
                for line in getattr(crate, "rule_" + rule)():
                    print(f"{rule}\t{line}")
        case ["shipped"]:
            print("\n".join(sorted(path for path, file in crate.files.items() if file.shipped)))
        case ["proofs"]:
            shipped = {path for path, file in crate.files.items() if file.shipped}
            host = Crate(tree, "selftests/host/src/lib.rs")
            print("\n".join(sorted({*crate.proofs(shipped), *host.proofs(shipped)})))
        case ["graph"]:
            for path, file in sorted(crate.files.items()):
                print(f"{path}: {' '.join(sorted(file.uses))}")
        case _:
            sys.exit("usage: imports.py [--tree DIR] check RULE... | shipped | proofs | graph")


if __name__ == "__main__":
    main(sys.argv[1:])
