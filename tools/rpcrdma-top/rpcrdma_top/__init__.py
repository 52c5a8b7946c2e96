# SPDX-License-Identifier: GPL-2.0
"""Shows what the rpcrdma transports of this machine do, as client and as server, from their files under debugfs."""

VERSION = "0.9.0"
