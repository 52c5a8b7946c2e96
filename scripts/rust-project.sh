#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Usage: rust-project.sh [FILE]
#
# Writes rust-project.json, by which rust-analyzer knows the module's crate, the kernel's own and the
# generated bindings. KERNEL=stock|custom|... says for which kernel of the cache the module is built for that.

. "$(dirname "$0")/lib.sh"
. "$here/series.sh"

kernel=${KERNEL:-stock} project=${1:-$PROJECT/rust-project.json}
tree=$("$here/kernel.sh" "$kernel")
"$here/module.sh" "$kernel" >&2
out=$KERNELS/build/$kernel
"$here/in-buildroot.sh" make -C "$PROJECT" --no-print-directory KDIR="$tree" MO="$out" rust-analyzer >&2
# kbuild knows nothing of the bindings, and the library's source is that of the build root.
"$here/in-buildroot.sh" python3 - "$out" "$BUILDROOT" >"$project.tmp" <<'END'
import json
import sys

out, root = sys.argv[1:]
with open(f"{out}/rust-project.json", encoding="utf-8") as file:
    project = json.load(file)
def inside(path):
    return root + path if path == "/usr" or path.startswith("/usr/") else path

for key in ("sysroot", "sysroot_src"):
    if key in project:
        project[key] = inside(project[key])
# To kbuild's script the file names of helpers look like those of crates.
while project["crates"][-1]["display_name"] != "rpcrdma_main":
    project["crates"].pop()
for crate in project["crates"]:
    crate["root_module"] = inside(crate["root_module"])
    if crate["root_module"].endswith("/rpcrdma_main.rs"):
        crate.setdefault("env", {})["RPCRDMA_BINDINGS"] = f"{out}/rust/bindings/bindings_generated.rs"
        crate.setdefault("source", {"include_dirs": [], "exclude_dirs": []})["include_dirs"] += [
            crate["root_module"].rpartition("/")[0], f"{out}/rust/bindings"]
json.dump(project, sys.stdout, indent=1)
END
mv "$project.tmp" "$project"
