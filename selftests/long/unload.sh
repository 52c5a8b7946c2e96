#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The server's module goes and comes forty times under its clients' load.
# limit: 3600

export ROUNDS=${ROUNDS:-40}
exec "$(dirname "$0")/../unload.sh"
