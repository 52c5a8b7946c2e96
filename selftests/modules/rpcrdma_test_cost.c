// SPDX-License-Identifier: GPL-2.0
/*
 * Issues the same RPC again and again, from the kernel, so that nothing but the RPC is counted.
 * What is to be counted stands between two instructions that do nothing, and that the plugin in
 * selftests/cost/ knows by their bytes.
 *
 * Writing one of these to the parameter "run" does it and waits for the end; the other parameters
 * are set before:
 *
 *	null		the NULL procedure of the NFS server at peer=
 *	getattr		the attributes of the file at path=, from the server
 *	read		size= bytes of the file, past the page cache
 *	write		the same, written
 *	readdir		all entries of the directory at path=, past the page cache
 *	create		one file more, of the name at path= with a number behind it
 *	begin, end	nothing but the instructions, to count what another machine asks for
 *
 * The parameter "nanoseconds" has the time that all of the calls took that were counted.
 */
#include <linux/bvec.h>
#include <linux/cred.h>
#include <linux/fcntl.h>
#include <linux/fs.h>
#include <linux/ktime.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/nfs.h>
#include <linux/nfs3.h>
#include <linux/pagemap.h>
#include <linux/slab.h>
#include <linux/stat.h>
#include <linux/string.h>
#include <linux/sunrpc/addr.h>
#include <linux/sunrpc/clnt.h>
#include <linux/sunrpc/sched.h>
#include <linux/sunrpc/xprt.h>
#include <linux/uio.h>
#include <net/net_namespace.h>

static char *peer = "192.0.2.1";
module_param(peer, charp, 0644);
MODULE_PARM_DESC(peer, "address of the NFS server");

static char *path = "";
module_param(path, charp, 0644);
MODULE_PARM_DESC(path, "a file on a mount");

static uint size = 4096;
module_param(size, uint, 0644);
MODULE_PARM_DESC(size, "bytes of one read or write");

static uint count = 100;
module_param(count, uint, 0644);
MODULE_PARM_DESC(count, "how often it is counted");

static u64 nanoseconds;
module_param(nanoseconds, ullong, 0444);
MODULE_PARM_DESC(nanoseconds, "what the calls of the last run took");

/* No-ops with offsets that no compiler has a reason for: nopl 0x20490001(%rax), and ...2. */
static __always_inline void cost_begin(void)
{
	asm volatile(".byte 0x0f, 0x1f, 0x80, 0x01, 0x00, 0x49, 0x20" : : : "memory");
}

static __always_inline void cost_end(void)
{
	asm volatile(".byte 0x0f, 0x1f, 0x80, 0x02, 0x00, 0x49, 0x20" : : : "memory");
}

static struct rpc_clnt *cost_client;
static struct file *cost_file;
static struct bio_vec *cost_pages;
static unsigned int cost_page_count;

/* NULL is the only procedure, and sunrpc's own. */
static const struct rpc_procinfo cost_procedures[1];
static unsigned int cost_counts[ARRAY_SIZE(cost_procedures)];

static const struct rpc_version cost_version = {
	.number		= NFS3_VERSION,
	.nrprocs	= ARRAY_SIZE(cost_procedures),
	.procs		= cost_procedures,
	.counts		= cost_counts,
};

static const struct rpc_version *cost_versions[] = {
	[NFS3_VERSION]	= &cost_version,
};

static struct rpc_stat cost_stat;

static const struct rpc_program cost_program = {
	.name		= "rpcrdma-cost",
	.number		= NFS_PROGRAM,
	.nrvers		= ARRAY_SIZE(cost_versions),
	.version	= cost_versions,
	.stats		= &cost_stat,
};

static int cost_connect(void)
{
	struct sockaddr_storage address = { };
	struct rpc_create_args args = {
		.net		= &init_net,
		.protocol	= XPRT_TRANSPORT_RDMA,
		.address	= (struct sockaddr *)&address,
		.servername	= peer,
		.program	= &cost_program,
		.version	= NFS3_VERSION,
		.authflavor	= RPC_AUTH_NULL,
		.cred		= current_cred(),
	};
	struct rpc_clnt *client;

	args.addrsize = rpc_pton(args.net, peer, strlen(peer), args.address, sizeof(address));
	if (!args.addrsize)
		return -EINVAL;
	rpc_set_port(args.address, NFS_RDMA_PORT);
	client = rpc_create(&args);
	if (IS_ERR(client))
		return PTR_ERR(client);
	cost_client = client;
	return 0;
}

static int cost_open(void)
{
	struct file *file;

	file = filp_open(path, O_RDWR | O_DIRECT | O_LARGEFILE, 0);
	if (IS_ERR(file))
		return PTR_ERR(file);
	cost_file = file;
	cost_pages = kvcalloc(DIV_ROUND_UP(size, PAGE_SIZE), sizeof(*cost_pages), GFP_KERNEL);
	if (!cost_pages)
		return -ENOMEM;
	for (; cost_page_count < DIV_ROUND_UP(size, PAGE_SIZE); cost_page_count++) {
		struct page *page = alloc_page(GFP_KERNEL | __GFP_ZERO);

		if (!page)
			return -ENOMEM;
		bvec_set_page(&cost_pages[cost_page_count], page, PAGE_SIZE, 0);
	}
	return 0;
}

static int cost_null(void)
{
	struct rpc_task *task = rpc_call_null(cost_client, NULL, 0);
	int status;

	if (IS_ERR(task))
		return PTR_ERR(task);
	status = task->tk_status;
	rpc_put_task(task);
	return status;
}

static int cost_getattr(void)
{
	struct kstat stat;

	return vfs_getattr(&cost_file->f_path, &stat, STATX_BASIC_STATS, AT_STATX_FORCE_SYNC);
}

static int cost_transfer(bool is_write)
{
	struct iov_iter iter;
	loff_t position = 0;
	ssize_t length;

	iov_iter_bvec(&iter, is_write ? ITER_SOURCE : ITER_DEST, cost_pages, cost_page_count, size);
	length = is_write ? vfs_iter_write(cost_file, &iter, &position, 0) :
			    vfs_iter_read(cost_file, &iter, &position, 0);
	if (length < 0)
		return length;
	return length == size ? 0 : -EIO;
}

static int cost_read(void)
{
	return cost_transfer(false);
}

static int cost_write(void)
{
	return cost_transfer(true);
}

static bool cost_entry(struct dir_context *ctx, const char *name, int length, loff_t offset,
		       u64 inode, unsigned int type)
{
	return true;
}

static int cost_readdir(void)
{
	struct dir_context ctx = { .actor = cost_entry };
	struct file *file;
	loff_t before;
	int status;

	file = filp_open(path, O_RDONLY | O_DIRECTORY, 0);
	if (IS_ERR(file))
		return PTR_ERR(file);
	status = invalidate_inode_pages2(file->f_mapping);
	do {
		before = ctx.pos;
		status = status ?: iterate_dir(file, &ctx);
	} while (!status && ctx.pos != before);
	filp_close(file, NULL);
	return status;
}

/* With NFSv4 an OPEN and a CLOSE. */
static int cost_create(void)
{
	static unsigned int number;
	struct file *file;
	char *name;

	name = kasprintf(GFP_KERNEL, "%s.%u", path, number++);
	if (!name)
		return -ENOMEM;
	file = filp_open(name, O_CREAT | O_RDWR | O_LARGEFILE, 0644);
	kfree(name);
	if (IS_ERR(file))
		return PTR_ERR(file);
	return filp_close(file, NULL);
}

static int cost_nothing(void)
{
	return 0;
}

static const struct cost_op {
	const char *name;
	int (*prepare)(void);
	int (*call)(void);
} cost_ops[] = {
	{ "null", cost_connect, cost_null },
	{ "getattr", cost_open, cost_getattr },
	{ "read", cost_open, cost_read },
	{ "write", cost_open, cost_write },
	{ "readdir", cost_nothing, cost_readdir },
	{ "create", cost_nothing, cost_create },
};

static void cost_free(void)
{
	if (cost_client)
		rpc_shutdown_client(cost_client);
	cost_client = NULL;
	if (cost_file)
		filp_close(cost_file, NULL);
	cost_file = NULL;
	while (cost_page_count)
		__free_page(cost_pages[--cost_page_count].bv_page);
	kvfree(cost_pages);
	cost_pages = NULL;
}

static int cost_run(const char *value, const struct kernel_param *unused)
{
	const struct cost_op *op = NULL;
	unsigned int i;
	int status;
	u64 start;

	if (sysfs_streq(value, "begin")) {
		cost_begin();
		return 0;
	}
	if (sysfs_streq(value, "end")) {
		cost_end();
		return 0;
	}
	for (i = 0; i < ARRAY_SIZE(cost_ops); i++)
		if (sysfs_streq(cost_ops[i].name, value))
			op = &cost_ops[i];
	if (!op || !count || !size)
		return -EINVAL;
	status = op->prepare();
	/* Slots, regions and caches are there when the counting begins. */
	for (i = 0; i < count && !status; i++)
		status = op->call();
	start = ktime_get_ns();
	cost_begin();
	for (i = 0; i < count && !status; i++)
		status = op->call();
	cost_end();
	nanoseconds = ktime_get_ns() - start;
	cost_free();
	return status;
}

static const struct kernel_param_ops cost_run_ops = {
	.set		= cost_run,
};
module_param_cb(run, &cost_run_ops, NULL, 0200);
MODULE_PARM_DESC(run, "null, getattr, read, write, readdir or create; begin or end");

MODULE_DESCRIPTION("Issues the same RPC again and again, for its cost to be counted");
MODULE_LICENSE("GPL");
