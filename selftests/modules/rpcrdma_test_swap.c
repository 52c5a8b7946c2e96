// SPDX-License-Identifier: GPL-2.0
/*
 * Tells whether a transport that carries swap space may use memory reserves when it connects. While
 * it is loaded, it counts the queue pairs and memory regions that workqueues of this machine make
 * on any RDMA device, those of them that were made with PF_MEMALLOC, and those whose memory might
 * have come from a file system that waits for this very connection. Nobody may be connecting when
 * it is unloaded.
 */
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/sunrpc/clnt.h>
#include <linux/sunrpc/xprt.h>
#include <rdma/ib_verbs.h>

#include "mounted.h"

static char *mount = "/mnt/nfs";
module_param(mount, charp, 0444);
MODULE_PARM_DESC(mount, "the mount whose transports are looked at");

/* What was made, how much of it with PF_MEMALLOC, and how much outside of NOFS and NOIO. */
struct made {
	atomic_t all;
	atomic_t reserves;
	atomic_t waiting;
};

static struct made queue_pairs, regions;

static int made_get(char *buffer, const struct kernel_param *kp)
{
	struct made *made = kp->arg;

	return sysfs_emit(buffer, "%d %d %d\n", atomic_read(&made->all),
			  atomic_read(&made->reserves), atomic_read(&made->waiting));
}

static const struct kernel_param_ops made_ops = { .get = made_get };

module_param_cb(queue_pairs, &made_ops, &queue_pairs, 0444);
MODULE_PARM_DESC(queue_pairs, "queue pairs made by workers, with reserves, and waiting for file systems");
module_param_cb(regions, &made_ops, &regions, 0444);
MODULE_PARM_DESC(regions, "memory regions made by workers, with reserves, and waiting for file systems");

static int swapper_print(struct rpc_clnt *clnt, struct rpc_xprt *xprt, void *data)
{
	char *buffer = data;
	int length = strlen(buffer);

	scnprintf(buffer + length, PAGE_SIZE - length, "%d\n",
		  atomic_read(&xprt->swapper));
	return 0;
}

/* How often each transport of the mount was said to carry swap space, one a line. */
static int swappers_get(char *buffer, const struct kernel_param *kp)
{
	struct rpc_clnt *clnt;
	struct path path;
	int rc;

	clnt = mounted(mount, &path);
	if (IS_ERR(clnt))
		return PTR_ERR(clnt);
	buffer[0] = '\0';
	rc = rpc_clnt_iterate_for_each_xprt(clnt, swapper_print, buffer);
	path_put(&path);
	return rc ?: strlen(buffer);
}

static const struct kernel_param_ops swappers_ops = { .get = swappers_get };

module_param_cb(swappers, &swappers_ops, NULL, 0444);
MODULE_PARM_DESC(swappers, "xprt->swapper of each transport of the mount");

/* What a device has without this module. */
struct swap_saved {
	int (*create_qp)(struct ib_qp *qp, struct ib_qp_init_attr *attr,
			 struct ib_udata *udata);
	struct ib_mr *(*alloc_mr)(struct ib_pd *pd, enum ib_mr_type type,
				  u32 max_num_sg);
};

static int swap_add(struct ib_device *device);
static void swap_remove(struct ib_device *device, void *data);

static struct ib_client swap_client = {
	.name	= "rpcrdma_test_swap",
	.add	= swap_add,
	.remove	= swap_remove,
};

static void count(struct made *made)
{
	if (!(current->flags & PF_WQ_WORKER))
		return;
	atomic_inc(&made->all);
	if (current->flags & PF_MEMALLOC)
		atomic_inc(&made->reserves);
	if (!(current->flags & (PF_MEMALLOC_NOFS | PF_MEMALLOC_NOIO)))
		atomic_inc(&made->waiting);
}

static int swap_create_qp(struct ib_qp *qp, struct ib_qp_init_attr *attr,
			  struct ib_udata *udata)
{
	struct swap_saved *saved = ib_get_client_data(qp->device, &swap_client);

	count(&queue_pairs);
	return saved->create_qp(qp, attr, udata);
}

static struct ib_mr *swap_alloc_mr(struct ib_pd *pd, enum ib_mr_type type,
				   u32 max_num_sg)
{
	struct swap_saved *saved = ib_get_client_data(pd->device, &swap_client);

	count(&regions);
	return saved->alloc_mr(pd, type, max_num_sg);
}

static int swap_add(struct ib_device *device)
{
	struct swap_saved *saved;

	saved = kmalloc(sizeof(*saved), GFP_KERNEL);
	if (!saved)
		return -ENOMEM;
	saved->create_qp = device->ops.create_qp;
	saved->alloc_mr = device->ops.alloc_mr;
	ib_set_client_data(device, &swap_client, saved);
	device->ops.create_qp = swap_create_qp;
	device->ops.alloc_mr = swap_alloc_mr;
	return 0;
}

static void swap_remove(struct ib_device *device, void *data)
{
	struct swap_saved *saved = data;

	device->ops.create_qp = saved->create_qp;
	device->ops.alloc_mr = saved->alloc_mr;
	kfree(saved);
}

static int __init swap_init(void)
{
	return ib_register_client(&swap_client);
}

static void __exit swap_exit(void)
{
	ib_unregister_client(&swap_client);
}

module_init(swap_init);
module_exit(swap_exit);
MODULE_DESCRIPTION("Tells whether connections for swap space use memory reserves, for tests");
MODULE_LICENSE("GPL");
