// SPDX-License-Identifier: GPL-2.0
/*
 * Lowers what every RDMA device says that it can do, until it is unloaded: a test then sees how a
 * transport deals with a device that is too small for it. Parameters that are not given leave
 * their attribute alone.
 */
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

static int limits_add(struct ib_device *device);
static void limits_remove(struct ib_device *device, void *data);

static struct ib_client limits_client = {
	.name	= "rpcrdma_test_limits",
	.add	= limits_add,
	.remove	= limits_remove,
};

static int limits_add(struct ib_device *device)
{
	struct ib_device_attr *saved;

	saved = kmemdup(&device->attrs, sizeof(*saved), GFP_KERNEL);
	if (!saved)
		return -ENOMEM;
	ib_set_client_data(device, &limits_client, saved);

	if (no_frwr)
		device->attrs.device_cap_flags &= ~IB_DEVICE_MEM_MGT_EXTENSIONS;
	if (max_send_sge >= 0)
		device->attrs.max_send_sge = max_send_sge;
	if (max_qp_wr >= 0)
		device->attrs.max_qp_wr = max_qp_wr;
	if (max_fast_reg_pages >= 0)
		device->attrs.max_fast_reg_page_list_len = max_fast_reg_pages;
	return 0;
}

static void limits_remove(struct ib_device *device, void *data)
{
	struct ib_device_attr *saved = data;

	device->attrs.device_cap_flags = saved->device_cap_flags;
	device->attrs.max_send_sge = saved->max_send_sge;
	device->attrs.max_qp_wr = saved->max_qp_wr;
	device->attrs.max_fast_reg_page_list_len = saved->max_fast_reg_page_list_len;
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
