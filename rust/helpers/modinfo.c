// SPDX-License-Identifier: GPL-2.0
/*
 * What the module! macro cannot say about the module. The version is that of debian/changelog.
 */
#include <linux/module.h>

MODULE_VERSION("0.9.0");
MODULE_ALIAS("svcrdma");
MODULE_ALIAS("xprtrdma");
MODULE_ALIAS("rpcrdma6");
