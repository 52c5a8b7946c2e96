// SPDX-License-Identifier: GPL-2.0
/*
 * Has whoever passes a trace event sleep there for a while, or until it is unloaded, so that a race
 * becomes certain. All events are in places that may sleep, and the probes are called in a scope of
 * sleepable RCU.
 */
#include <linux/atomic.h>
#include <linux/jiffies.h>
#include <linux/module.h>
#include <linux/string.h>
#include <linux/sunrpc/sched.h>
#include <linux/tracepoint.h>
#include <linux/wait.h>
#include <rdma/rdma_cm.h>

static uint failed_connect;
module_param(failed_connect, uint, 0444);
MODULE_PARM_DESC(failed_connect, "milliseconds that an RPC sleeps before it acts on a failure to connect");

static uint timed_out;
module_param(timed_out, uint, 0444);
MODULE_PARM_DESC(timed_out, "milliseconds that an RPC sleeps whose time is over, before it looks for a connection");

static uint deregistered;
module_param(deregistered, uint, 0444);
MODULE_PARM_DESC(deregistered, "milliseconds that a client sleeps with memory that is no longer registered, but mapped, once");

static uint backward_call;
module_param(backward_call, uint, 0444);
MODULE_PARM_DESC(backward_call, "milliseconds that the transport sleeps with a backward Call in its hands");

static uint established;
module_param(established, uint, 0444);
MODULE_PARM_DESC(established, "milliseconds by which the end of a handshake is told too late");

static uint connected;
module_param(connected, uint, 0444);
MODULE_PARM_DESC(connected, "milliseconds that a client sleeps when a connection is made, before it is used");

static uint refused;
module_param(refused, uint, 0444);
MODULE_PARM_DESC(refused, "milliseconds that a client sleeps with the refusal of a version in its hands");

static uint refusing;
module_param(refusing, uint, 0444);
MODULE_PARM_DESC(refusing, "milliseconds that a server sleeps before it refuses a version");

static uint accepted;
module_param(accepted, uint, 0444);
MODULE_PARM_DESC(accepted, "milliseconds that a server sleeps when it has accepted a connection, and accepts no other");

static uint reading;
module_param(reading, uint, 0444);
MODULE_PARM_DESC(reading, "milliseconds that a thread of nfsd sleeps before it reads a file");

static uint replies;
module_param(replies, uint, 0444);
MODULE_PARM_DESC(replies, "milliseconds that a server sleeps with each message before it sends it");

static uint posting_reads;
module_param(posting_reads, uint, 0444);
MODULE_PARM_DESC(posting_reads, "milliseconds that a server sleeps before it posts RDMA Reads");

static uint one_reply;
module_param(one_reply, uint, 0444);
MODULE_PARM_DESC(one_reply, "milliseconds that a server sleeps with a message before it sends it, one of them only");

static uint last_put;
module_param(last_put, uint, 0444);
MODULE_PARM_DESC(last_put, "milliseconds that a worker sleeps behind dropping the last reference to rpcrdma");

static atomic_t hits = ATOMIC_INIT(0);

static int hits_get(char *buffer, const struct kernel_param *param)
{
	return sysfs_emit(buffer, "%d\n", atomic_read(&hits));
}

static const struct kernel_param_ops hits_ops = {
	.get	= hits_get,
};
module_param_cb(hits, &hits_ops, NULL, 0444);
MODULE_PARM_DESC(hits, "how often somebody has slept");

static DECLARE_WAIT_QUEUE_HEAD(sleepers);
static bool unloading;

/* The milliseconds are what a probe is registered with. */
static void delay_any(void *milliseconds)
{
	atomic_inc(&hits);
	wait_event_idle_timeout(sleepers, READ_ONCE(unloading),
				msecs_to_jiffies(*(uint *)milliseconds));
}

static void delay_failed_connect(void *milliseconds, const struct rpc_task *task)
{
	switch (task->tk_status) {
	/* For these it may end a connection. */
	case -ENETDOWN:
	case -ENETUNREACH:
	case -ECONNREFUSED:
	case -ECONNABORTED:
	case -EHOSTUNREACH:
	case -EPROTO:
		delay_any(milliseconds);
	}
}

/* The first argument is private to the connection manager. */
static void delay_established(void *milliseconds, const void *id, const struct rdma_cm_event *event)
{
	if (event->event == RDMA_CM_EVENT_ESTABLISHED)
		delay_any(milliseconds);
}

static void delay_one(void *milliseconds)
{
	static atomic_t delayed = ATOMIC_INIT(0);

	if (!atomic_xchg(&delayed, 1))
		delay_any(milliseconds);
}

/* Whoever loads a module drops a reference to it too. */
static void delay_last_put(void *milliseconds, struct module *module, unsigned long ip)
{
	if (current->flags & PF_WQ_WORKER && !module_refcount(module) &&
	    !strcmp(module->name, "rpcrdma"))
		delay_any(milliseconds);
}

static struct delay {
	const char *event;
	void *probe;
	uint *milliseconds;
	struct tracepoint *point;
} delays[] = {
	{ "rpc_connect_status", delay_failed_connect, &failed_connect },
	{ "rpc_timeout_status", delay_any, &timed_out },
	/* The arguments are not the same in each implementation of the transport. */
	{ "xprtrdma_frwr_dereg", delay_one, &deregistered },
	{ "xprtrdma_cb_call", delay_any, &backward_call },
	{ "cm_event_handler", delay_established, &established },
	{ "xprtrdma_inline_thresh", delay_any, &connected },
	{ "xprtrdma_err_vers", delay_any, &refused },
	{ "svcrdma_decode_badvers_err", delay_any, &refusing },
	{ "svc_xprt_accept", delay_any, &accepted },
	{ "nfsd_read_start", delay_any, &reading },
	{ "svcrdma_post_send", delay_any, &replies },
	{ "svcrdma_post_read_chunk", delay_any, &posting_reads },
	{ "svcrdma_post_send", delay_one, &one_reply },
	{ "module_put", delay_last_put, &last_put },
};

static void delay_begin(struct tracepoint *point, void *unused)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(delays); i++) {
		struct delay *delay = &delays[i];

		if (*delay->milliseconds && !delay->point && !strcmp(point->name, delay->event) &&
		    !tracepoint_probe_register(point, delay->probe, delay->milliseconds))
			delay->point = point;
	}
}

static void delay_end(struct tracepoint *point)
{
	bool ended = false;
	int i;

	for (i = 0; i < ARRAY_SIZE(delays); i++) {
		if (!delays[i].point || (point && delays[i].point != point))
			continue;
		tracepoint_probe_unregister(delays[i].point, delays[i].probe, delays[i].milliseconds);
		delays[i].point = NULL;
		ended = true;
	}
	if (ended)
		tracepoint_synchronize_unregister();
}

/* Events of modules, those that are loaded already included. */
static int delay_module(struct notifier_block *block, unsigned long action, void *data)
{
	struct tp_module *module = data;
	tracepoint_ptr_t *point = module->mod->tracepoints_ptrs;
	unsigned int i;

	for (i = 0; i < module->mod->num_tracepoints; i++) {
		if (action == MODULE_STATE_COMING)
			delay_begin(tracepoint_ptr_deref(point + i), NULL);
		else if (action == MODULE_STATE_GOING)
			delay_end(tracepoint_ptr_deref(point + i));
	}
	return NOTIFY_OK;
}

static struct notifier_block delay_notifier = {
	.notifier_call	= delay_module,
};

static int __init delay_init(void)
{
	int i, status;

	for_each_kernel_tracepoint(delay_begin, NULL);
	status = register_tracepoint_module_notifier(&delay_notifier);
	for (i = 0; i < ARRAY_SIZE(delays) && !status; i++)
		if (*delays[i].milliseconds && !delays[i].point)
			status = -ENOENT;
	if (status) {
		unregister_tracepoint_module_notifier(&delay_notifier);
		delay_end(NULL);
	}
	return status;
}

static void __exit delay_exit(void)
{
	/* Whoever ends a probe waits for those that sleep in it. */
	WRITE_ONCE(unloading, true);
	wake_up_all(&sleepers);
	unregister_tracepoint_module_notifier(&delay_notifier);
	delay_end(NULL);
}

module_init(delay_init);
module_exit(delay_exit);
MODULE_DESCRIPTION("Has whoever passes a trace event sleep there, for tests");
MODULE_LICENSE("GPL");
