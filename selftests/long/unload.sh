#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The server's module goes and comes forty times under its clients' load.
# limit: 3600
# virtual: unloads the server's module under load

export ROUNDS=${ROUNDS:-40}
exec "$(dirname "$0")/../unload.sh"
