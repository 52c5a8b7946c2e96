// SPDX-License-Identifier: GPL-2.0
/*
 * The administrator's settings of both roles, and the counters of the server,
 * under the names that existing scripts use. Like those of sunrpc's other
 * transports the client's exist with CONFIG_SUNRPC_DEBUG only; without it the
 * defaults apply.
 */
#include <linux/percpu.h>
#include <linux/string.h>
#include <linux/sysctl.h>

/* Whether one end speaks Version Two of the protocol. */
enum rpcrdma_version_two {
	RPCRDMA_VERSION_TWO_OFF,
	/* If the other one does. */
	RPCRDMA_VERSION_TWO_OFFERED,
	/* And nothing else. */
	RPCRDMA_VERSION_TWO_REQUIRED,
};

/* Each is one word that the administrator may write at any time. */
struct rpcrdma_settings {
	unsigned int slot_table_entries;
	unsigned int max_inline_read;
	unsigned int max_inline_write;
	unsigned int version_two;
	/* How often that was written, even if it did not change. */
	unsigned int version_two_writes;
	unsigned int max_requests;
	unsigned int max_req_size;
	unsigned int read_requests;
	unsigned int svc_version_two;
} rpcrdma_settings = {
	.slot_table_entries = 128,
	.max_inline_read = 4096,
	.max_inline_write = 4096,
	.version_two = RPCRDMA_VERSION_TWO_OFF,
	.max_requests = 128,
	.max_req_size = 4096,
	.read_requests = 255,
	.svc_version_two = RPCRDMA_VERSION_TWO_OFF,
};

/* These have no effect. 5 is FRWR, the only strategy that is left. */
static unsigned int memreg_strategy = 5, write_padding, pad_optimize, unused;

static const char *const words[] = {
	[RPCRDMA_VERSION_TWO_OFF] = "off",
	[RPCRDMA_VERSION_TWO_OFFERED] = "offered",
	[RPCRDMA_VERSION_TWO_REQUIRED] = "required",
};

static int proc_version_two(const struct ctl_table *table, int write,
			    void *buffer, size_t *lenp, loff_t *ppos)
{
	struct rpcrdma_settings *all = &rpcrdma_settings;
	unsigned int *setting = table->data;
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
	status = sysfs_match_string(words, word);
	if (status < 0)
		return status;
	WRITE_ONCE(*setting, status);
	if (setting == &all->version_two)
		WRITE_ONCE(all->version_two_writes, all->version_two_writes + 1);
	return 0;
}

/* The server's counters for all connections. */
enum rpcrdma_svc_counter {
	RPCRDMA_SVC_READ,
	RPCRDMA_SVC_RECV,
	RPCRDMA_SVC_WRITE,
	RPCRDMA_SVC_SQ_STARVE,
	RPCRDMA_SVC_COUNTERS
};

static DEFINE_PER_CPU(unsigned long [RPCRDMA_SVC_COUNTERS], counts);
/* The value of each counter when it was last reset. */
static unsigned long zero_points[RPCRDMA_SVC_COUNTERS];

/* May be called in any context. */
void rpcrdma_svc_count(enum rpcrdma_svc_counter counter, unsigned long count)
{
	this_cpu_add(counts[counter], count);
}

static int proc_counter(const struct ctl_table *table, int write, void *buffer,
			size_t *lenp, loff_t *ppos)
{
	unsigned long *zero_point = table->data;
	/* Before the counts, which are then no less than those of the reset. */
	unsigned long zero = smp_load_acquire(zero_point);
	unsigned long sum = 0;
	const struct ctl_table shown = {
		.procname = table->procname,
		.data = &sum,
		.maxlen = sizeof(sum),
		.mode = table->mode,
	};
	int cpu;

	for_each_possible_cpu(cpu)
		sum += READ_ONCE(per_cpu(counts, cpu)[zero_point - zero_points]);
	if (write) {
		/* Any write resets the counter. */
		smp_store_release(zero_point, sum);
		return 0;
	}
	sum -= zero;
	return proc_doulongvec_minmax(&shown, write, buffer, lenp, ppos);
}

#define ENTRY(name, variable, handler, min, max)		\
	{							\
		.procname = name,				\
		.data = &(variable),				\
		.maxlen = sizeof(variable),			\
		.mode = 0644,					\
		.proc_handler = handler,			\
		.extra1 = &(int){ min },			\
		.extra2 = &(int){ max },			\
	}
#define CLIENT(name, variable, min, max)	\
	ENTRY("rdma_" name, variable, proc_dointvec_minmax, min, max)
#define SERVER(name, variable, min, max)	\
	ENTRY(name, variable, proc_douintvec_minmax, min, max)
#define VERSION_TWO(name, field)		\
	ENTRY(name, rpcrdma_settings.field, proc_version_two, 0, 0)
#define COUNTER(name, counter)			\
	ENTRY("rdma_stat_" name, zero_points[counter], proc_counter, 0, 0)

static const struct ctl_table client[] = {
	CLIENT("slot_table_entries", rpcrdma_settings.slot_table_entries, 4, 16384),
	CLIENT("max_inline_read", rpcrdma_settings.max_inline_read, 1024, 65536),
	CLIENT("max_inline_write", rpcrdma_settings.max_inline_write, 1024, 65536),
	CLIENT("inline_write_padding", write_padding, 0, PAGE_SIZE),
	CLIENT("memreg_strategy", memreg_strategy, 0, 6),
	CLIENT("pad_optimize", pad_optimize, INT_MIN, INT_MAX),
	VERSION_TWO("rdma_version_two", version_two),
};

static const struct ctl_table server[] = {
	SERVER("max_requests", rpcrdma_settings.max_requests, 4, 16384),
	SERVER("max_req_size", rpcrdma_settings.max_req_size, 4096, 65536),
	SERVER("max_outbound_read_requests", rpcrdma_settings.read_requests, 1, 255),
	VERSION_TWO("version_two", svc_version_two),
	COUNTER("read", RPCRDMA_SVC_READ),
	COUNTER("recv", RPCRDMA_SVC_RECV),
	COUNTER("write", RPCRDMA_SVC_WRITE),
	COUNTER("sq_starve", RPCRDMA_SVC_SQ_STARVE),
	SERVER("rdma_stat_rq_starve", unused, 0, 0),
	SERVER("rdma_stat_rq_poll", unused, 0, 0),
	SERVER("rdma_stat_rq_prod", unused, 0, 0),
	SERVER("rdma_stat_sq_poll", unused, 0, 0),
	SERVER("rdma_stat_sq_prod", unused, 0, 0),
};

static struct ctl_table_header *client_header, *server_header;

/* May sleep. */
int rpcrdma_sysctl_register(void)
{
	/* /proc refuses a second registration, and loses the first one's files. */
	if (server_header)
		return -EBUSY;
	if (IS_ENABLED(CONFIG_SUNRPC_DEBUG)) {
		client_header = register_sysctl("sunrpc", client);
		if (!client_header)
			return -ENOMEM;
	}
	if (IS_ENABLED(CONFIG_SYSCTL)) {
		server_header = register_sysctl("sunrpc/svc_rdma", server);
		if (!server_header) {
			unregister_sysctl_table(client_header);
			return -ENOMEM;
		}
	}
	return 0;
}

/* May sleep. Does nothing for those that do not exist. */
void rpcrdma_sysctl_unregister(void)
{
	unregister_sysctl_table(server_header);
	unregister_sysctl_table(client_header);
}
