#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# A thousand times mount and unmount: enough to tell one object left each time from noise.
# limit: 1200
# virtual: counts what the kernel allocates, which others do as well

CYCLES=${CYCLES:-1000} exec "$(dirname "$0")/../cycles.sh"
