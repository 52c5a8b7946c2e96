// SPDX-License-Identifier: GPL-2.0
/*
 * The administrator's settings and the counters of the server, under the
 * names that existing scripts use.
 */
#include <linux/err.h>
#include <linux/percpu.h>
#include <linux/sysctl.h>

#include "svc_helpers.h"

static unsigned int max_requests = 128;
static unsigned int max_req_size = 4096;
static unsigned int read_requests = 255;
static enum rpcrdma_version_two version_two = RPCRDMA_VERSION_TWO_OFF;

unsigned int rpcrdma_svc_max_requests(void)
{
	return READ_ONCE(max_requests);
}

unsigned int rpcrdma_svc_max_req_size(void)
{
	return READ_ONCE(max_req_size);
}

unsigned int rpcrdma_svc_read_requests(void)
{
	return READ_ONCE(read_requests);
}

enum rpcrdma_version_two rpcrdma_svc_version_two(void)
{
	return READ_ONCE(version_two);
}

static DEFINE_PER_CPU(unsigned long [RPCRDMA_SVC_COUNTERS], counts);

/* May be called in any context. */
void rpcrdma_svc_count(enum rpcrdma_svc_counter counter, unsigned long count)
{
	this_cpu_add(counts[counter], count);
}

#if IS_ENABLED(CONFIG_SYSCTL)

static unsigned int min_requests = 4, max_max_requests = 16384;
static unsigned int min_req_size = 4096, max_max_req_size = 65536;
static unsigned int min_read_requests = 1, max_read_requests = 255;
static unsigned int unused;

/* The value of each counter when it was last reset. */
static unsigned long zero_points[RPCRDMA_SVC_COUNTERS];

static int show_counter(const struct ctl_table *table, int write, void *buffer,
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

#define RPCRDMA_SVC_SETTING(name, variable, min, max)	\
	{						\
		.procname = name,			\
		.data = &(variable),			\
		.maxlen = sizeof(variable),		\
		.mode = 0644,				\
		.proc_handler = proc_douintvec_minmax,	\
		.extra1 = min,				\
		.extra2 = max,				\
	}

#define RPCRDMA_SVC_STAT(name, counter)				\
	{							\
		.procname = name,				\
		.data = &zero_points[RPCRDMA_SVC_##counter],	\
		.maxlen = sizeof(zero_points[0]),		\
		.mode = 0644,					\
		.proc_handler = show_counter,			\
	}

#define RPCRDMA_SVC_ZERO(name)	\
	RPCRDMA_SVC_SETTING(name, unused, SYSCTL_ZERO, SYSCTL_ZERO)

/* The ones that are always 0 have no effect. */
static const struct ctl_table svc_settings[] = {
	RPCRDMA_SVC_SETTING("max_requests", max_requests, &min_requests,
			    &max_max_requests),
	RPCRDMA_SVC_SETTING("max_req_size", max_req_size, &min_req_size,
			    &max_max_req_size),
	RPCRDMA_SVC_SETTING("max_outbound_read_requests", read_requests,
			    &min_read_requests, &max_read_requests),
	{
		.procname = "version_two",
		.data = &version_two,
		.maxlen = sizeof(version_two),
		.mode = 0644,
		.proc_handler = rpcrdma_proc_version_two,
	},
	RPCRDMA_SVC_STAT("rdma_stat_read", READ),
	RPCRDMA_SVC_STAT("rdma_stat_recv", RECV),
	RPCRDMA_SVC_STAT("rdma_stat_write", WRITE),
	RPCRDMA_SVC_STAT("rdma_stat_sq_starve", SQ_STARVE),
	RPCRDMA_SVC_ZERO("rdma_stat_rq_starve"),
	RPCRDMA_SVC_ZERO("rdma_stat_rq_poll"),
	RPCRDMA_SVC_ZERO("rdma_stat_rq_prod"),
	RPCRDMA_SVC_ZERO("rdma_stat_sq_poll"),
	RPCRDMA_SVC_ZERO("rdma_stat_sq_prod"),
};

/*
 * Must not be called while they are registered: /proc would refuse it, and lose
 * the files of the first registration.
 */
struct ctl_table_header *rpcrdma_svc_sysctl_register(void)
{
	struct ctl_table_header *header;

	header = register_sysctl("sunrpc/svc_rdma", svc_settings);
	return header ?: ERR_PTR(-ENOMEM);
}

#else

struct ctl_table_header *rpcrdma_svc_sysctl_register(void)
{
	return NULL;
}

#endif
