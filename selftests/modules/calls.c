// SPDX-License-Identifier: GPL-2.0
/*
 * Issues RPCs over RDMA when it is loaded, to a peer that may answer anything. What became of each
 * is one line of /sys/kernel/debug/rpcrdma_test_calls:
 *
 *	FORM STATUS LENGTH MEMORY
 *
 * LENGTH is that of the result's data. MEMORY is "clean" unless a byte changed that the peer was
 * not allowed to change: around the data, behind the result's end, in the argument, or anywhere
 * after the Call's end. It is looked at when the file is read.
 *
 * Parameter calls= is a list of FORM[*COUNT][+]. Without the plus sign a Call ends before the list
 * goes on. "sent" waits until all that were started are sent, without which they may overtake
 * each other; "kill[+]" kills those that are under way. "timeout=MS" waits for their ends, and is
 * the time that those behind it have, so that setting up the connection is not part of it. "ping"
 * makes a further client of the same transport, and its ping fails. When all have ended there is
 * one more, "done", by which the peer knows that it is the last of this client.
 */
#include <linux/completion.h>
#include <linux/cred.h>
#include <linux/debugfs.h>
#include <linux/delay.h>
#include <linux/init.h>
#include <linux/list.h>
#include <linux/module.h>
#include <linux/mm.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/sunrpc/addr.h>
#include <linux/sunrpc/clnt.h>
#include <linux/sunrpc/sched.h>
#include <linux/sunrpc/xdr.h>
#include <linux/sunrpc/xprt.h>
#include <net/net_namespace.h>

#include "backward.h"

/* Of the range that RFC 5531 leaves to users, as is the peer's. */
#define TEST_PROGRAM		0x20049000
#define TEST_VERSION		1

/* The data begins here in its first page, so that there are bytes in front of it. */
#define DATA_OFFSET		100

/* What memory holds before a Call, and from its end on. */
#define FILL_BEFORE		0xa5
#define FILL_AFTER		0x5a

static char *peer = "192.0.2.1";
module_param(peer, charp, 0444);
MODULE_PARM_DESC(peer, "address of the peer");

static ushort port = 20050;
module_param(port, ushort, 0444);
MODULE_PARM_DESC(port, "port of the peer");

static char *calls[64];
static int calls_count;
module_param_array(calls, charp, &calls_count, 0444);
MODULE_PARM_DESC(calls, "what to call, in this order");

static uint size = 5000;
module_param(size, uint, 0444);
MODULE_PARM_DESC(size, "bytes of data that a Call or its Reply has");

static uint timeout_ms = 60000;
module_param(timeout_ms, uint, 0444);
MODULE_PARM_DESC(timeout_ms, "time that a Call has");

static uint sessions = 1;
module_param(sessions, uint, 0444);
MODULE_PARM_DESC(sessions, "times to do it all, each on a connection of its own");

static bool ping;
module_param(ping, bool, 0444);
MODULE_PARM_DESC(ping, "begin with the ping of an RPC client, which a mount does");

static bool backward;
module_param(backward, bool, 0444);
MODULE_PARM_DESC(backward, "serve backward Calls");

static bool outlive;
module_param(outlive, bool, 0444);
MODULE_PARM_DESC(outlive, "the service has a backward Call in its hands when the client ends");

/* Data of one direction, with bytes around it that belong to nobody. */
struct test_data {
	struct page **pages;
	unsigned int count;
};

struct test_call {
	struct list_head list;
	const struct test_form *form;
	struct test_data argument;
	struct test_data result;
	/* Of a Call that nobody waits for yet: to see whether it was sent. */
	struct rpc_task *task;
	struct completion ended;
	int status;
	unsigned int length;
	bool stained;
};

struct test_form {
	const char *name;
	bool has_argument;
	bool has_result;
};

static LIST_HEAD(test_calls);
/* What making the RPC client gave, the last time that it failed. */
static int test_created;
static struct rpc_clnt *test_client;
/* Of the Calls behind "timeout=". */
static struct rpc_timeout test_timeout;
static struct test_backward *test_service;
static struct dentry *test_file;

static unsigned int data_page_count(void)
{
	return DIV_ROUND_UP(DATA_OFFSET + size, PAGE_SIZE);
}

/* What the byte at @at of the data is; the peer knows it too. */
static u8 data_byte(unsigned int at)
{
	return at % 251;
}

static u8 *data_at(const struct test_data *data, unsigned int at)
{
	return (u8 *)page_address(data->pages[at / PAGE_SIZE]) + offset_in_page(at);
}

static bool data_is(const struct test_data *data, unsigned int from, unsigned int to, u8 byte)
{
	for (; from < to; from++)
		if (*data_at(data, from) != byte)
			return false;
	return true;
}

/* Whether the data is what it should be. A round-up of zeroes may be counted as part of it. */
static bool data_is_pattern(const struct test_data *data, unsigned int length)
{
	unsigned int i;

	for (i = 0; i < length; i++)
		if (*data_at(data, DATA_OFFSET + i) != data_byte(i))
			break;
	return length - i < XDR_UNIT &&
	       data_is(data, DATA_OFFSET + i, DATA_OFFSET + length, 0);
}

/* Whether the bytes in front of the data and behind its first @length bytes are untouched. */
static bool data_is_surrounded(const struct test_data *data, unsigned int length)
{
	return data_is(data, 0, DATA_OFFSET, FILL_BEFORE) &&
	       data_is(data, DATA_OFFSET + length, data->count * PAGE_SIZE, FILL_BEFORE);
}

static void data_fill(const struct test_data *data, u8 byte)
{
	unsigned int i;

	for (i = 0; i < data->count; i++)
		memset(page_address(data->pages[i]), byte, PAGE_SIZE);
}

static bool data_is_filled(const struct test_data *data, u8 byte)
{
	return data_is(data, 0, data->count * PAGE_SIZE, byte);
}

static int data_alloc(struct test_data *data)
{
	data->pages = kcalloc(data_page_count(), sizeof(*data->pages), GFP_KERNEL);
	if (!data->pages)
		return -ENOMEM;
	for (; data->count < data_page_count(); data->count++) {
		data->pages[data->count] = alloc_page(GFP_KERNEL);
		if (!data->pages[data->count])
			return -ENOMEM;
	}
	data_fill(data, FILL_BEFORE);
	return 0;
}

static void data_free(struct test_data *data)
{
	while (data->count)
		__free_page(data->pages[--data->count]);
	kfree(data->pages);
}

static void encode_argument(struct rpc_rqst *req, struct xdr_stream *xdr,
			    const struct test_call *call)
{
	xdr_stream_encode_u32(xdr, size);
	xdr_write_pages(xdr, call->argument.pages, DATA_OFFSET, size);
}

static void prepare_result(struct rpc_rqst *req, const struct test_call *call)
{
	rpc_prepare_reply_pages(req, call->result.pages, DATA_OFFSET, size, 1);
}

static void encode_null(struct rpc_rqst *req, struct xdr_stream *xdr, const void *arg)
{
}

/* Data that may be a Read chunk. */
static void encode_write(struct rpc_rqst *req, struct xdr_stream *xdr, const void *arg)
{
	encode_argument(req, xdr, arg);
	req->rq_snd_buf.flags |= XDRBUF_WRITE;
}

/* Room that may be a Write chunk. */
static void encode_read(struct rpc_rqst *req, struct xdr_stream *xdr, const void *arg)
{
	xdr_stream_encode_u32(xdr, size);
	prepare_result(req, arg);
	req->rq_rcv_buf.flags |= XDRBUF_READ;
}

/* Data that is part of a Position Zero chunk, unless it is short. */
static void encode_long(struct rpc_rqst *req, struct xdr_stream *xdr, const void *arg)
{
	encode_argument(req, xdr, arg);
}

/* Room that is part of a Reply chunk. */
static void encode_list(struct rpc_rqst *req, struct xdr_stream *xdr, const void *arg)
{
	xdr_stream_encode_u32(xdr, size);
	prepare_result(req, arg);
}

/* Both of the last two. */
static void encode_exchange(struct rpc_rqst *req, struct xdr_stream *xdr, const void *arg)
{
	encode_argument(req, xdr, arg);
	prepare_result(req, arg);
}

static int decode_null(struct rpc_rqst *req, struct xdr_stream *xdr, void *res)
{
	return 0;
}

static int decode_data(struct rpc_rqst *req, struct xdr_stream *xdr, void *res)
{
	struct test_call *call = res;
	u32 count;

	if (xdr_stream_decode_u32(xdr, &count) < 0)
		return -EIO;
	call->length = xdr_read_pages(xdr, count);
	return 0;
}

enum {
	TEST_NULL,
	TEST_WRITE,
	TEST_READ,
	TEST_LONG,
	TEST_LIST,
	TEST_EXCHANGE,
	TEST_DONE,
};

static const struct test_form test_forms[] = {
	[TEST_NULL]	= { "null", false, false },
	[TEST_WRITE]	= { "write", true, false },
	[TEST_READ]	= { "read", false, true },
	[TEST_LONG]	= { "long", true, false },
	[TEST_LIST]	= { "list", false, true },
	[TEST_EXCHANGE]	= { "exchange", true, true },
	[TEST_DONE]	= { "done", false, false },
};

#define PROC(proc, encode, decode, words)		\
	[proc] = {					\
		.p_proc		= proc,			\
		.p_encode	= encode,		\
		.p_decode	= decode,		\
		.p_arglen	= words,		\
		.p_replen	= words,		\
		.p_statidx	= proc,			\
		.p_name		= #proc,		\
	}

static const struct rpc_procinfo test_procedures[] = {
	PROC(TEST_NULL, encode_null, decode_null, 0),
	PROC(TEST_WRITE, encode_write, decode_null, 1),
	PROC(TEST_READ, encode_read, decode_data, 1),
	PROC(TEST_LONG, encode_long, decode_null, 1),
	PROC(TEST_LIST, encode_list, decode_data, 1),
	PROC(TEST_EXCHANGE, encode_exchange, decode_data, 1),
	PROC(TEST_DONE, encode_null, decode_null, 0),
};

static unsigned int test_counts[ARRAY_SIZE(test_procedures)];

static const struct rpc_version test_version = {
	.number		= TEST_VERSION,
	.nrprocs	= ARRAY_SIZE(test_procedures),
	.procs		= test_procedures,
	.counts		= test_counts,
};

static const struct rpc_version *test_versions[] = {
	[TEST_VERSION]	= &test_version,
};

static struct rpc_stat test_stat;

static const struct rpc_program test_program = {
	.name		= "rpcrdma-test",
	.number		= TEST_PROGRAM,
	.nrvers		= ARRAY_SIZE(test_versions),
	.version	= test_versions,
	.stats		= &test_stat,
};

static void test_call_done(struct rpc_task *task, void *data)
{
	struct test_call *call = data;

	call->status = task->tk_status;
	if (call->status)
		call->length = 0;
}

/* The RPC has ended, and its memory is the caller's again. */
static void test_call_release(void *data)
{
	struct test_call *call = data;
	unsigned int length = call->length;

	if (call->form->has_argument) {
		if (!data_is_surrounded(&call->argument, size) ||
		    !data_is_pattern(&call->argument, size))
			call->stained = true;
		data_fill(&call->argument, FILL_AFTER);
	}
	if (call->form->has_result) {
		/* Without a Reply that counts, the peer could write all that it was offered. */
		if (!data_is_surrounded(&call->result, call->status ? size : length) ||
		    !data_is_pattern(&call->result, length))
			call->stained = true;
		data_fill(&call->result, FILL_AFTER);
	}
	complete_all(&call->ended);
}

static const struct rpc_call_ops test_call_ops = {
	.rpc_call_done	= test_call_done,
	.rpc_release	= test_call_release,
};

static struct test_call *test_call_new(const struct test_form *form)
{
	struct test_call *call;
	unsigned int i;
	int status = 0;

	call = kzalloc(sizeof(*call), GFP_KERNEL);
	if (!call)
		return ERR_PTR(-ENOMEM);
	call->form = form;
	init_completion(&call->ended);
	list_add_tail(&call->list, &test_calls);
	if (form->has_argument) {
		status = data_alloc(&call->argument);
		if (!status)
			for (i = 0; i < size; i++)
				*data_at(&call->argument, DATA_OFFSET + i) = data_byte(i);
	}
	if (!status && form->has_result)
		status = data_alloc(&call->result);
	return status ? ERR_PTR(status) : call;
}

/* Waits until all Calls that were started are sent, and lets them go. */
static int test_calls_sent(void)
{
	struct test_call *call;
	unsigned int milliseconds = 0;

	list_for_each_entry(call, &test_calls, list) {
		if (!call->task)
			continue;
		for (; !(READ_ONCE(call->task->tk_flags) & RPC_TASK_SENT); milliseconds++) {
			if (milliseconds == 30000)
				return -ETIMEDOUT;
			msleep(1);
		}
		rpc_put_task(call->task);
		call->task = NULL;
	}
	return 0;
}

/* A Call may take longer than a task may be blocked, unless it is one that idles. */
static void test_call_wait(struct test_call *call)
{
	wait_for_completion_state(&call->ended, TASK_IDLE);
}

static int test_call_start(const struct test_form *form, bool wait)
{
	struct rpc_message message = {
		.rpc_proc	= &test_procedures[form - test_forms],
	};
	struct rpc_task_setup setup = {
		.rpc_client	= test_client,
		.rpc_message	= &message,
		.callback_ops	= &test_call_ops,
		.flags		= RPC_TASK_ASYNC | RPC_TASK_SOFT | RPC_TASK_TIMEOUT,
	};
	struct test_call *call;
	struct rpc_task *task;

	call = test_call_new(form);
	if (IS_ERR(call))
		return PTR_ERR(call);
	message.rpc_argp = call;
	message.rpc_resp = call;
	setup.callback_data = call;
	task = rpc_run_task(&setup);
	if (IS_ERR(task)) {
		/* The callbacks were called. */
		call->status = PTR_ERR(task);
		return 0;
	}
	if (wait) {
		rpc_put_task(task);
		test_call_wait(call);
	} else {
		call->task = task;
	}
	return 0;
}

static void test_calls_wait(void)
{
	struct test_call *call;

	list_for_each_entry(call, &test_calls, list) {
		if (call->task)
			rpc_put_task(call->task);
		call->task = NULL;
		test_call_wait(call);
	}
}

static int test_timeout_set(const char *text)
{
	unsigned int ms;
	int status;

	status = kstrtouint(text, 10, &ms);
	if (status)
		return status;
	/* sunrpc looks at it while a Call waits. */
	test_calls_wait();
	test_timeout.to_initval = msecs_to_jiffies(ms);
	test_timeout.to_maxval = test_timeout.to_initval;
	test_client->cl_timeout = &test_timeout;
	return 0;
}

static int test_ping(void)
{
	struct rpc_clnt *client = rpc_bind_new_program(test_client, &test_program, TEST_VERSION);

	if (!IS_ERR(client)) {
		rpc_shutdown_client(client);
		return 0;
	}
	test_created = PTR_ERR(client);
	return 0;
}

/* One item of the list that the parameter is. */
static int test_item_run(const char *text)
{
	size_t length = strcspn(text, "*+");
	const char *rest = text + length;
	unsigned int count = 1;
	int i, status;

	if (!strcmp(text, "sent"))
		return test_calls_sent();
	if (!strncmp(text, "timeout=", strlen("timeout=")))
		return test_timeout_set(text + strlen("timeout="));
	if (!strcmp(text, "ping"))
		return test_ping();
	if (!strcmp(text, "kill") || !strcmp(text, "kill+")) {
		rpc_killall_tasks(test_client);
		if (!text[strlen("kill")])
			test_calls_wait();
		return 0;
	}
	if (*rest == '*') {
		char *end;

		count = simple_strtoul(rest + 1, &end, 10);
		rest = end;
	}
	for (i = 0; i < ARRAY_SIZE(test_forms); i++)
		if (strlen(test_forms[i].name) == length &&
		    !strncmp(test_forms[i].name, text, length))
			break;
	if (i == ARRAY_SIZE(test_forms))
		return -EINVAL;
	while (count--) {
		status = test_call_start(&test_forms[i], *rest != '+');
		if (status)
			return status;
	}
	return 0;
}

static int test_session(void)
{
	struct sockaddr_storage address = { };
	struct rpc_timeout timeout = {
		.to_initval	= msecs_to_jiffies(timeout_ms),
		.to_maxval	= msecs_to_jiffies(timeout_ms),
	};
	struct rpc_create_args args = {
		.net		= &init_net,
		.protocol	= XPRT_TRANSPORT_RDMA,
		.address	= (struct sockaddr *)&address,
		.timeout	= &timeout,
		.servername	= peer,
		.program	= &test_program,
		.version	= TEST_VERSION,
		.authflavor	= RPC_AUTH_NULL,
		.cred		= current_cred(),
		.flags		= RPC_CLNT_CREATE_QUIET | RPC_CLNT_CREATE_NOPING,
	};
	struct rpc_clnt *client;
	int i, status;

	if (ping)
		args.flags &= ~RPC_CLNT_CREATE_NOPING;
	args.addrsize = rpc_pton(args.net, peer, strlen(peer), args.address, sizeof(address));
	if (!args.addrsize)
		return -EINVAL;
	rpc_set_port(args.address, port);
	client = rpc_create(&args);
	if (IS_ERR(client)) {
		test_created = PTR_ERR(client);
		return 0;
	}
	test_client = client;
	if (backward) {
		test_service = test_backward_start(client, TEST_PROGRAM);
		if (IS_ERR(test_service)) {
			status = PTR_ERR(test_service);
			test_service = NULL;
			return status;
		}
	}
	for (i = 0, status = 0; i < calls_count && !status; i++)
		status = test_item_run(calls[i]);
	test_calls_wait();
	return status ?: test_item_run("done");
}

static void test_session_end(void)
{
	if (!test_client)
		return;
	if (test_service && outlive) {
		test_backward_outlive(test_service, test_client);
	} else {
		if (test_service)
			test_backward_stop(test_service);
		rpc_shutdown_client(test_client);
	}
	test_service = NULL;
	test_client = NULL;
}

static int test_show(struct seq_file *file, void *unused)
{
	struct test_call *call;

	if (test_created)
		seq_printf(file, "create %d 0 clean\n", test_created);
	list_for_each_entry(call, &test_calls, list) {
		bool clean = !call->stained;

		if (call->form->has_argument)
			clean = clean && data_is_filled(&call->argument, FILL_AFTER);
		if (call->form->has_result)
			clean = clean && data_is_filled(&call->result, FILL_AFTER);
		seq_printf(file, "%s %d %u %s\n", call->form->name, call->status, call->length,
			   clean ? "clean" : "dirty");
	}
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(test);

static void test_free(void)
{
	struct test_call *call, *next;

	list_for_each_entry_safe(call, next, &test_calls, list) {
		data_free(&call->argument);
		data_free(&call->result);
		kfree(call);
	}
}

static int __init test_init(void)
{
	unsigned int i;
	int status = 0;

	for (i = 0; i < sessions && !status; i++) {
		test_session_end();
		status = test_session();
	}
	if (status) {
		test_session_end();
		test_free();
		return status;
	}
	test_file = debugfs_create_file("rpcrdma_test_calls", 0400, NULL, NULL, &test_fops);
	return 0;
}

static void __exit test_exit(void)
{
	debugfs_remove(test_file);
	test_session_end();
	test_free();
}

module_init(test_init);
module_exit(test_exit);
MODULE_DESCRIPTION("Issues RPCs over RDMA, for tests");
MODULE_LICENSE("GPL");
