#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The cases of recalls.sh with more delegations than the transport has buffers for backward Calls.
# virtual: takes longer than a kselftest may

export COUNT=300
exec "$(dirname "$0")/../recalls.sh"
