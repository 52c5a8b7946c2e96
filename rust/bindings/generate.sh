#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# Usage: generate.sh OBJTREE BINDGEN SRC OUTPUT
#
# Runs bindgen with the flags that the kernel tree recorded for its own
# bindings, so that both runs see the same types, for gcc and clang builds
# alike. Layout tests are switched on: they catch a type that the two runs
# would lay out differently.
set -eu

objtree=$1 bindgen=$2 src=$3 output=$4
record=$objtree/rust/bindings/.bindings_generated.rs.cmd

recorded=$(sed -n 's/^savedcmd_[^ ]* := [^ ]* [^ ]* //p' "$record" |
	sed -e 's/\$(pound)/#/g' -e 's/\$\$/$/g' \
	    -e 's/ --no-layout-tests / /' \
	    -e 's/ -o [^ ]* -- / -- /' \
	    -e 's/ -Wp,-MMD,[^ ]*//' -e 's/;.*//')
flags=${recorded%% -- *}
cflags=${recorded#* -- }
parameters=$(sed -e '/^#/d' "$src/bindings/bindgen_parameters" | tr '\n' ' ')

# The recorded include paths are relative to the tree.
cd "$objtree"
eval "exec \"\$bindgen\" \"\$src/bindings/bindings_helper.h\" $flags $parameters \
	--no-recursive-allowlist -o \"\$output\" -- $cflags \
	-I\"\$src\" -DMODULE -Wno-missing-prototypes"
