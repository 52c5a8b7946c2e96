#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Makes a rust-project.json and sees that an editor can use it: that it can be read, has the module's crate,
# and names only what is there. Prints KTAP.

. "$(dirname "$0")/lib.sh"
. "$here/ktap.sh"

# Not the one that an editor uses.
project=$CACHE/rust-project.json
result rust_project_is_made "$("$here/rust-project.sh" "$project" 2>"$CACHE/logs/rust-project.log" || tail -n 20 "$CACHE/logs/rust-project.log")"
result rust_project_names_what_is_there "$("$here/in-buildroot.sh" python3 - "$project" <<'END' 2>&1
import json
import os
import sys

with open(sys.argv[1], encoding="utf-8") as file:
    project = json.load(file)
paths = [project[key] for key in ("sysroot", "sysroot_src") if key in project]
for crate in project["crates"]:
    paths += [crate["root_module"]] + crate.get("source", {}).get("include_dirs", [])
    paths += [crate[key] for key in ("proc_macro_dylib_path",) if key in crate]
    paths += [value for key, value in crate.get("env", {}).items() if key == "RPCRDMA_BINDINGS"]
if not any(crate["display_name"] == "rpcrdma_main" for crate in project["crates"]):
    print("it has no crate rpcrdma_main")
for path in paths:
    if not os.path.exists(path):
        print(path + " is not there")
END
)"
rm -f "$project"
printf '1..%d\n' "$number"
[ "$failed" -eq 0 ]
