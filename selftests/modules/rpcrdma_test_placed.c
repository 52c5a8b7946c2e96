// SPDX-License-Identifier: GPL-2.0
/*
 * Has the client ask for direct placement of what RPCSEC_GSS wraps for integrity or privacy, which
 * no client may do (RFC 8166 section 8.2.2.3), to see that the server does not place it. The mount
 * stays as it is when it is unloaded, and is of no use any longer.
 */
#include <linux/magic.h>
#include <linux/module.h>
#include <linux/namei.h>
#include <linux/nfs_fs.h>
#include <linux/sunrpc/auth.h>
#include <linux/sunrpc/clnt.h>

static char *mount = "/mnt/nfs";
module_param(mount, charp, 0444);
MODULE_PARM_DESC(mount, "the mount whose results are to be placed");

static int __init placed_init(void)
{
	struct path path;
	int rc;

	rc = kern_path(mount, LOOKUP_FOLLOW, &path);
	if (rc)
		return rc;
	rc = -EINVAL;
	if (path.dentry->d_sb->s_magic == NFS_SUPER_MAGIC) {
		clear_bit(RPCAUTH_AUTH_DATATOUCH,
			  &NFS_CLIENT(d_inode(path.dentry))->cl_auth->au_flags);
		rc = 0;
	}
	path_put(&path);
	return rc;
}

static void __exit placed_exit(void)
{
}

module_init(placed_init);
module_exit(placed_exit);
MODULE_DESCRIPTION("Asks for direct placement of what RPCSEC_GSS wraps, for tests");
MODULE_LICENSE("GPL");
