/* SPDX-License-Identifier: GPL-2.0 */
#include <linux/err.h>
#include <linux/magic.h>
#include <linux/namei.h>
#include <linux/nfs_fs.h>

/* The RPC client of the NFS mount at @mount. @path keeps it, and is to be put unless that fails. */
static inline struct rpc_clnt *mounted(const char *mount, struct path *path)
{
	int rc;

	rc = kern_path(mount, LOOKUP_FOLLOW, path);
	if (rc)
		return ERR_PTR(rc);
	if (path->dentry->d_sb->s_magic == NFS_SUPER_MAGIC)
		return NFS_CLIENT(d_inode(path->dentry));
	path_put(path);
	return ERR_PTR(-EINVAL);
}
