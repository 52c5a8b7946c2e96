// SPDX-License-Identifier: GPL-2.0
/*
 * Settings that say in one word whether Version Two of the protocol is spoken.
 */
#include <linux/errno.h>
#include <linux/kernel.h>
#include <linux/string.h>
#include <linux/sysctl.h>

#include "helpers.h"

#if IS_ENABLED(CONFIG_SYSCTL)

static const char *const words[] = {
	[RPCRDMA_VERSION_TWO_OFF] = "off",
	[RPCRDMA_VERSION_TWO_OFFERED] = "offered",
	[RPCRDMA_VERSION_TWO_REQUIRED] = "required",
};

/* The table's data is an enum rpcrdma_version_two. */
int rpcrdma_proc_version_two(const struct ctl_table *table, int write,
			     void *buffer, size_t *lenp, loff_t *ppos)
{
	enum rpcrdma_version_two *setting = table->data, value;
	char word[16] = "";
	const struct ctl_table shown = {
		.procname = table->procname,
		.data = word,
		.maxlen = sizeof(word),
		.mode = table->mode,
	};
	int status;

	if (!write)
		strscpy(word, words[READ_ONCE(*setting)]);
	status = proc_dostring(&shown, write, buffer, lenp, ppos);
	if (status || !write)
		return status;
	for (value = RPCRDMA_VERSION_TWO_OFF; value < ARRAY_SIZE(words); value++) {
		if (sysfs_streq(word, words[value])) {
			WRITE_ONCE(*setting, value);
			return 0;
		}
	}
	return -EINVAL;
}

#endif
