// SPDX-License-Identifier: GPL-2.0
/*
 * Lowers what every RDMA device says that it can do, until it is unloaded: a test then sees how a
 * transport deals with a device that is too small for it. Parameters that are not given leave
 * their attribute alone. No connection may be left when it is loaded or unloaded.
 */
#include <linux/atomic.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <rdma/ib_verbs.h>

static bool no_frwr;
module_param(no_frwr, bool, 0444);
MODULE_PARM_DESC(no_frwr, "the devices cannot register memory by work request");

static int max_send_sge = -1;
module_param(max_send_sge, int, 0444);
MODULE_PARM_DESC(max_send_sge, "SGEs that a Send may have");

static int max_qp_wr = -1;
module_param(max_qp_wr, int, 0444);
MODULE_PARM_DESC(max_qp_wr, "work requests that a queue holds");

static int max_fast_reg_pages = -1;
module_param(max_fast_reg_pages, int, 0444);
MODULE_PARM_DESC(max_fast_reg_pages, "pages that a memory region holds");

static bool no_invalidation;
module_param(no_invalidation, bool, 0444);
MODULE_PARM_DESC(no_invalidation, "every other local invalidation cannot be posted");

/* What a device has without this module. */
struct limits_saved {
	struct ib_device_attr attrs;
	int (*post_send)(struct ib_qp *qp, const struct ib_send_wr *wr,
			 const struct ib_send_wr **bad_wr);
};

static atomic_t invalidations = ATOMIC_INIT(0);

static int limits_add(struct ib_device *device);
static void limits_remove(struct ib_device *device, void *data);

static struct ib_client limits_client = {
	.name	= "rpcrdma_test_limits",
	.add	= limits_add,
	.remove	= limits_remove,
};

static int limits_post_send(struct ib_qp *qp, const struct ib_send_wr *wr,
			    const struct ib_send_wr **bad_wr)
{
	struct limits_saved *saved = ib_get_client_data(qp->device, &limits_client);

	if (wr->opcode == IB_WR_LOCAL_INV && atomic_inc_return(&invalidations) & 1) {
		*bad_wr = wr;
		return -ENOMEM;
	}
	return saved->post_send(qp, wr, bad_wr);
}

static int limits_add(struct ib_device *device)
{
	struct limits_saved *saved;

	saved = kmalloc(sizeof(*saved), GFP_KERNEL);
	if (!saved)
		return -ENOMEM;
	saved->attrs = device->attrs;
	saved->post_send = device->ops.post_send;
	ib_set_client_data(device, &limits_client, saved);

	if (no_frwr)
		device->attrs.device_cap_flags &= ~IB_DEVICE_MEM_MGT_EXTENSIONS;
	if (max_send_sge >= 0)
		device->attrs.max_send_sge = max_send_sge;
	if (max_qp_wr >= 0)
		device->attrs.max_qp_wr = max_qp_wr;
	if (max_fast_reg_pages >= 0)
		device->attrs.max_fast_reg_page_list_len = max_fast_reg_pages;
	if (no_invalidation)
		device->ops.post_send = limits_post_send;
	return 0;
}

static void limits_remove(struct ib_device *device, void *data)
{
	struct limits_saved *saved = data;

	device->ops.post_send = saved->post_send;
	device->attrs.device_cap_flags = saved->attrs.device_cap_flags;
	device->attrs.max_send_sge = saved->attrs.max_send_sge;
	device->attrs.max_qp_wr = saved->attrs.max_qp_wr;
	device->attrs.max_fast_reg_page_list_len = saved->attrs.max_fast_reg_page_list_len;
	kfree(saved);
}

static int __init limits_init(void)
{
	return ib_register_client(&limits_client);
}

static void __exit limits_exit(void)
{
	ib_unregister_client(&limits_client);
}

module_init(limits_init);
module_exit(limits_exit);
MODULE_DESCRIPTION("Lowers the attributes of RDMA devices, for tests");
MODULE_LICENSE("GPL");
