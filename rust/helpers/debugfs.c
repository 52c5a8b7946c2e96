// SPDX-License-Identifier: GPL-2.0
/*
 * Files under debugfs, here because their operations have to name this module
 * as their owner.
 */
#include <linux/debugfs.h>
#include <linux/seq_file.h>

#include "helpers.h"

static struct dentry *root;

static int rpcrdma_file_show(struct seq_file *seq, void *unused)
{
	const struct rpcrdma_debugfs_file *file = seq->private;

	file->show(seq, file->data, file->index);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(rpcrdma_file);

void rpcrdma_debugfs_init(void)
{
	root = debugfs_create_dir("rpcrdma", NULL);
}

void rpcrdma_debugfs_exit(void)
{
	debugfs_remove(root);
}

/* A folder for the transport of this number. */
struct dentry *rpcrdma_debugfs_add(unsigned int id)
{
	char name[12];

	snprintf(name, sizeof(name), "%u", id);
	return debugfs_create_dir(name, root);
}

void rpcrdma_debugfs_add_file(struct dentry *folder, const char *name,
			      struct rpcrdma_debugfs_file *file)
{
	debugfs_create_file(name, 0444, folder, file, &rpcrdma_file_fops);
}

/* Waits for readers. */
void rpcrdma_debugfs_remove(struct dentry *folder)
{
	debugfs_remove(folder);
}
