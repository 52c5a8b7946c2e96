// SPDX-License-Identifier: GPL-2.0
/*
 * Has the client ask for direct placement of what RPCSEC_GSS wraps for integrity or privacy, which
 * no client may do (RFC 8166 section 8.2.2.3), to see that the server does not place it. The mount
 * stays as it is when it is unloaded, and is of no use any longer.
 */
#include <linux/module.h>
#include <linux/sunrpc/auth.h>
#include <linux/sunrpc/clnt.h>

#include "mounted.h"

static char *mount = "/mnt/nfs";
module_param(mount, charp, 0444);
MODULE_PARM_DESC(mount, "the mount whose results are to be placed");

static int __init placed_init(void)
{
	struct rpc_clnt *clnt;
	struct path path;

	clnt = mounted(mount, &path);
	if (IS_ERR(clnt))
		return PTR_ERR(clnt);
	clear_bit(RPCAUTH_AUTH_DATATOUCH, &clnt->cl_auth->au_flags);
	path_put(&path);
	return 0;
}

static void __exit placed_exit(void)
{
}

module_init(placed_init);
module_exit(placed_exit);
MODULE_DESCRIPTION("Asks for direct placement of what RPCSEC_GSS wraps, for tests");
MODULE_LICENSE("GPL");
