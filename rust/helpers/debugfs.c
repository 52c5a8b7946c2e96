// SPDX-License-Identifier: GPL-2.0
/*
 * Files under debugfs. They are in C because their file_operations must name
 * this module as owner.
 */
#include <linux/debugfs.h>
#include <linux/mutex.h>
#include <linux/sched/mm.h>
#include <linux/seq_file.h>

#include "helpers.h"

/* Counts the users of the module's directory, which the first one creates. */
static DEFINE_MUTEX(root_lock);
static unsigned int root_users;
static struct dentry *root;

static int rpcrdma_file_show(struct seq_file *seq, void *unused)
{
	const struct rpcrdma_debugfs_file *file = seq->private;

	file->show(seq, file->data, file->index);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(rpcrdma_file);

void rpcrdma_debugfs_get(void)
{
	mutex_lock(&root_lock);
	if (!root_users++)
		root = debugfs_create_dir("rpcrdma", NULL);
	mutex_unlock(&root_lock);
}

void rpcrdma_debugfs_put(void)
{
	mutex_lock(&root_lock);
	if (!--root_users)
		debugfs_remove(root);
	mutex_unlock(&root_lock);
}

/*
 * Creates a directory whose name is the prefix and a number. Whoever accepts a connection waits for the
 * lock of the directory around it. If this machine is the client, and its mount needs that connection, no
 * memory that is allocated under the lock may wait for the mount.
 */
struct dentry *rpcrdma_debugfs_add(const char *prefix, unsigned int id)
{
	unsigned int flags = memalloc_noio_save();
	struct dentry *folder;
	char name[32];

	rpcrdma_debugfs_get();
	snprintf(name, sizeof(name), "%s%u", prefix, id);
	folder = debugfs_create_dir(name, root);
	memalloc_noio_restore(flags);
	return folder;
}

void rpcrdma_debugfs_add_file(struct dentry *folder, const char *name,
			      struct rpcrdma_debugfs_file *file)
{
	debugfs_create_file(name, 0400, folder, file, &rpcrdma_file_fops);
}

/* Waits for readers. */
void rpcrdma_debugfs_remove(struct dentry *folder)
{
	debugfs_remove(folder);
	rpcrdma_debugfs_put();
}
