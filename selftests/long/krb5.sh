#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The cases of krb5.sh, and those that take longer.

export LONG=1
exec "$(dirname "$0")/../krb5.sh"
