#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Runs a command as root in a mount namespace of its own, so that no mount leaks: really root
# when the caller is, else root of a user namespace (which needs uidmap and sub-ids).

set -euo pipefail

if [ "$(id -u)" -eq 0 ]; then
	exec unshare --mount -- "$@"
fi
exec unshare --map-root-user --map-auto --mount -- "$@"
