// SPDX-License-Identifier: GPL-2.0
/*
 * The administrator's settings of the client, under the names that existing
 * scripts use. Like those of sunrpc's other transports they exist with
 * CONFIG_SUNRPC_DEBUG only; without it the defaults apply.
 */
#include <linux/err.h>
#include <linux/mm.h>
#include <linux/sysctl.h>

#include "helpers.h"

static unsigned int slot_table_entries = 128;
static unsigned int max_inline_read = 4096;
static unsigned int max_inline_write = 4096;
static enum rpcrdma_version_two version_two = RPCRDMA_VERSION_TWO_OFF;
static unsigned int version_two_writes;

unsigned int rpcrdma_slot_table_entries(void)
{
	return READ_ONCE(slot_table_entries);
}

unsigned int rpcrdma_max_inline_read(void)
{
	return READ_ONCE(max_inline_read);
}

unsigned int rpcrdma_max_inline_write(void)
{
	return READ_ONCE(max_inline_write);
}

enum rpcrdma_version_two rpcrdma_version_two(void)
{
	return READ_ONCE(version_two);
}

/* How often the setting was written, even if that did not change it. */
unsigned int rpcrdma_version_two_writes(void)
{
	return READ_ONCE(version_two_writes);
}

#if IS_ENABLED(CONFIG_SUNRPC_DEBUG)

static unsigned int min_slots = 4, max_slots = 16384;
static unsigned int min_inline = 1024, max_inline = 65536;
static unsigned int max_padding = PAGE_SIZE;
/* 5 is FRWR, the only strategy that is left. */
static unsigned int memreg_strategy = 5, max_memreg_strategy = 6;
static unsigned int inline_write_padding;
static int pad_optimize;

static int proc_version_two(const struct ctl_table *table, int write,
			    void *buffer, size_t *lenp, loff_t *ppos)
{
	int status = rpcrdma_proc_version_two(table, write, buffer, lenp, ppos);

	if (!status && write)
		WRITE_ONCE(version_two_writes, version_two_writes + 1);
	return status;
}

#define RPCRDMA_SETTING(name, variable, min, max)	\
	{						\
		.procname = name,			\
		.data = &(variable),			\
		.maxlen = sizeof(variable),		\
		.mode = 0644,				\
		.proc_handler = proc_dointvec_minmax,	\
		.extra1 = min,				\
		.extra2 = max,				\
	}

/* The three before the last are accepted but have no effect. */
static const struct ctl_table settings[] = {
	RPCRDMA_SETTING("rdma_slot_table_entries", slot_table_entries,
			&min_slots, &max_slots),
	RPCRDMA_SETTING("rdma_max_inline_read", max_inline_read,
			&min_inline, &max_inline),
	RPCRDMA_SETTING("rdma_max_inline_write", max_inline_write,
			&min_inline, &max_inline),
	RPCRDMA_SETTING("rdma_inline_write_padding", inline_write_padding,
			SYSCTL_ZERO, &max_padding),
	RPCRDMA_SETTING("rdma_memreg_strategy", memreg_strategy,
			SYSCTL_ZERO, &max_memreg_strategy),
	{
		.procname = "rdma_pad_optimize",
		.data = &pad_optimize,
		.maxlen = sizeof(pad_optimize),
		.mode = 0644,
		.proc_handler = proc_dointvec,
	},
	{
		.procname = "rdma_version_two",
		.data = &version_two,
		.maxlen = sizeof(version_two),
		.mode = 0644,
		.proc_handler = proc_version_two,
	},
};

/*
 * Must not be called while they are registered: /proc would refuse it, and lose
 * the files of the first registration.
 */
struct ctl_table_header *rpcrdma_sysctl_register(void)
{
	struct ctl_table_header *header = register_sysctl("sunrpc", settings);

	return header ?: ERR_PTR(-ENOMEM);
}

#else

struct ctl_table_header *rpcrdma_sysctl_register(void)
{
	return NULL;
}

#endif

void rpcrdma_sysctl_unregister(struct ctl_table_header *header)
{
	unregister_sysctl_table(header);
}
