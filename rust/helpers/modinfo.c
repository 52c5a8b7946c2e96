// SPDX-License-Identifier: GPL-2.0
/*
 * What the module! macro cannot say about the module.
 */
#include <linux/module.h>

MODULE_ALIAS("svcrdma");
MODULE_ALIAS("xprtrdma");
MODULE_ALIAS("rpcrdma6");
