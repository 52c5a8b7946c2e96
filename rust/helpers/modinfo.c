// SPDX-License-Identifier: GPL-2.0
/*
 * Module information that the module! macro does not support. The version is
 * that of debian/changelog.
 */
#include <linux/module.h>

MODULE_VERSION("0.9.0");
MODULE_ALIAS("svcrdma");
MODULE_ALIAS("xprtrdma");
MODULE_ALIAS("rpcrdma6");
