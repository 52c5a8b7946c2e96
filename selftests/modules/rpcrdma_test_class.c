// SPDX-License-Identifier: GPL-2.0
/*
 * Registers one of the transport classes of RPC-over-RDMA while it is loaded, and a setting that
 * each module with such a class has, so that a test sees what a transport module does when another
 * one was first. No transport comes out of it.
 */
#include <linux/err.h>
#include <linux/module.h>
#include <linux/string.h>
#include <linux/sunrpc/svc_xprt.h>
#include <linux/sunrpc/xprt.h>
#include <linux/sysctl.h>

static char *which = "client";
module_param(which, charp, 0444);
MODULE_PARM_DESC(which, "client, backward, or server");

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

static struct svc_xprt *test_create(struct svc_serv *serv, struct net *net, struct sockaddr *sap,
				    int salen, int flags)
{
	return ERR_PTR(-EPROTONOSUPPORT);
}

static const struct svc_xprt_ops test_ops = {
	.xpo_create	= test_create,
};

static struct svc_xprt_class test_svc_class = {
	.xcl_name	= "rdma",
	.xcl_owner	= THIS_MODULE,
	.xcl_ops	= &test_ops,
	.xcl_list	= LIST_HEAD_INIT(test_svc_class.xcl_list),
};

static int entries;

static const struct ctl_table test_settings[] = {
	{
		.procname	= "rdma_slot_table_entries",
		.data		= &entries,
		.maxlen		= sizeof(entries),
		.mode		= 0444,
		.proc_handler	= proc_dointvec,
	},
};

static struct ctl_table_header *test_header;

static int register_class(void)
{
	if (!strcmp(which, "server"))
		return svc_reg_xprt_class(&test_svc_class);
	if (!strcmp(which, "backward"))
		test_class.ident = XPRT_TRANSPORT_BC_RDMA;
	return xprt_register_transport(&test_class);
}

static int __init test_init(void)
{
	int ret;

	test_header = register_sysctl("sunrpc", test_settings);
	if (!test_header)
		return -ENOMEM;
	ret = register_class();
	if (ret)
		unregister_sysctl_table(test_header);
	return ret;
}

static void __exit test_exit(void)
{
	unregister_sysctl_table(test_header);
	if (!strcmp(which, "server"))
		svc_unreg_xprt_class(&test_svc_class);
	else
		xprt_unregister_transport(&test_class);
}

module_init(test_init);
module_exit(test_exit);
MODULE_DESCRIPTION("Occupies a transport class of RPC-over-RDMA, for tests");
MODULE_LICENSE("GPL");
