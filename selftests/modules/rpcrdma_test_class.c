// SPDX-License-Identifier: GPL-2.0
/*
 * Registers a transport class of RDMA's ident while it is loaded, so that a test sees what a
 * transport module does when another one was first. No transport comes out of it.
 */
#include <linux/err.h>
#include <linux/module.h>
#include <linux/sunrpc/xprt.h>

static struct rpc_xprt *test_setup(struct xprt_create *args)
{
	return ERR_PTR(-EPROTONOSUPPORT);
}

static struct xprt_class test_class = {
	.list	= LIST_HEAD_INIT(test_class.list),
	.ident	= XPRT_TRANSPORT_RDMA,
	.setup	= test_setup,
	.owner	= THIS_MODULE,
	.name	= "rdma-test",
	.netid	= { "" },
};

static int __init test_init(void)
{
	return xprt_register_transport(&test_class);
}

static void __exit test_exit(void)
{
	xprt_unregister_transport(&test_class);
}

module_init(test_init);
module_exit(test_exit);
MODULE_DESCRIPTION("Occupies the transport class of RPC-over-RDMA, for tests");
MODULE_LICENSE("GPL");
