// SPDX-License-Identifier: GPL-2.0
/*
 * Module information that the module! macro does not support.
 */
#include <linux/module.h>

MODULE_VERSION("0.9.0");
