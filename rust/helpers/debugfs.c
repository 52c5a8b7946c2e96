// SPDX-License-Identifier: GPL-2.0
/*
 * Files under debugfs. They are in C because their file_operations must name
 * this module as owner.
 */
#include <linux/debugfs.h>
#include <linux/sched/mm.h>
#include <linux/seq_file.h>

/* A file under debugfs: number index of the files that show data. */
struct rpcrdma_debugfs_file {
	const char *name;
	void (*show)(struct seq_file *seq, const void *data, unsigned int index);
	const void *data;
	unsigned int index;
};

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

/*
 * Creates a directory whose name is the prefix and a number. A thread that accepts a
 * connection waits for the lock of the directory around it. If this machine is the client,
 * and its mount needs that connection, no memory that is allocated under the lock may wait
 * for the mount.
 */
struct dentry *rpcrdma_debugfs_add(const char *prefix, unsigned int id,
				   struct rpcrdma_debugfs_file *files, size_t count)
{
	unsigned int flags = memalloc_noio_save();
	struct dentry *folder;
	char name[32];
	size_t i;

	snprintf(name, sizeof(name), "%s%u", prefix, id);
	folder = debugfs_create_dir(name, root);
	for (i = 0; i < count; i++)
		debugfs_create_file(files[i].name, 0400, folder, &files[i], &rpcrdma_file_fops);
	memalloc_noio_restore(flags);
	return folder;
}

/* Waits for readers. */
void rpcrdma_debugfs_remove(struct dentry *folder)
{
	debugfs_remove(folder);
}
