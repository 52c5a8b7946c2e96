#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The cases of krb5.sh, and those that take longer.
# virtual: makes a realm of Kerberos of the machines

export LONG=1
exec "$(dirname "$0")/../krb5.sh"
