/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Wrappers that give inline functions and macros of the RDMA and sunrpc
 * headers a symbol for Rust to call. Each is named after what it wraps.
 */
#ifndef RPCRDMA_HELPERS_H
#define RPCRDMA_HELPERS_H

#include <linux/mempool.h>
#include <linux/sunrpc/addr.h>
#include <linux/sunrpc/clnt.h>
#include <linux/sunrpc/xprt.h>
#include <rdma/ib_verbs.h>

int rpcrdma_ib_post_send(struct ib_qp *qp, const struct ib_send_wr *wr);
int rpcrdma_ib_modify_qp_err(struct ib_qp *qp);
void rpcrdma_ib_cq_disable(struct ib_cq *cq);
int rpcrdma_ib_post_recv(struct ib_qp *qp, const struct ib_recv_wr *wr,
			 const struct ib_recv_wr **bad_wr);

u64 rpcrdma_ib_dma_map_single(struct ib_device *device, void *addr,
			      size_t size, enum dma_data_direction direction);
void rpcrdma_ib_dma_unmap_single(struct ib_device *device, u64 addr,
				 size_t size, enum dma_data_direction direction);
int rpcrdma_ib_dma_mapping_error(struct ib_device *device, u64 addr);
int rpcrdma_ib_dma_map_sg(struct ib_device *device, struct scatterlist *sg,
			  int nents, enum dma_data_direction direction);
void rpcrdma_ib_dma_unmap_sg(struct ib_device *device, struct scatterlist *sg,
			     int nents, enum dma_data_direction direction);
void rpcrdma_ib_dma_sync_single_for_cpu(struct ib_device *device, u64 addr,
					size_t size,
					enum dma_data_direction direction);
void rpcrdma_ib_dma_sync_single_for_device(struct ib_device *device, u64 addr,
					   size_t size,
					   enum dma_data_direction direction);
bool rpcrdma_ib_is_bounced(struct ib_device *device);
bool rpcrdma_rdma_protocol_iwarp(struct ib_device *device, u32 port);
void rpcrdma_sg_set_buf(struct scatterlist *sg, const void *buf,
			unsigned int len);
void rpcrdma_get_pages(struct scatterlist *sg, int nents);
void rpcrdma_put_pages(struct scatterlist *sg, int nents);

void rpcrdma_xprt_clear_connecting(struct rpc_xprt *xprt);
bool rpcrdma_xprt_put_unless_last(struct rpc_xprt *xprt);
void rpcrdma_synchronize_rcu_tasks(void);
bool rpcrdma_try_module_get(struct module *module);
void rpcrdma_module_get(struct module *module);
void rpcrdma_module_put(struct module *module);
unsigned short rpcrdma_rpc_get_port(const struct sockaddr *address);
void rpcrdma_rpc_set_port(struct sockaddr *address, unsigned short port);
u64 rpcrdma_net_cookie(const struct net *net);
void rpcrdma_rpc_relearn_verifier(struct rpc_rqst *rqst);
void rpcrdma_get_net(struct net *net);
void rpcrdma_put_net(struct net *net);
unsigned int rpcrdma_memalloc_flags_save(unsigned int flags);
void rpcrdma_memalloc_flags_restore(unsigned int flags);

struct dentry;
struct seq_file;

/* A file under debugfs: number index of the files that show data. */
struct rpcrdma_debugfs_file {
	const char *name;
	void (*show)(struct seq_file *seq, const void *data, unsigned int index);
	const void *data;
	unsigned int index;
};

void rpcrdma_debugfs_init(void);
void rpcrdma_debugfs_exit(void);
struct dentry *rpcrdma_debugfs_add(const char *prefix, unsigned int id,
				   struct rpcrdma_debugfs_file *files, size_t count);
void rpcrdma_debugfs_remove(struct dentry *folder);

/* Whether one end speaks Version Two of the protocol. */
enum rpcrdma_version_two {
	RPCRDMA_VERSION_TWO_OFF,
	/* If the other one does. */
	RPCRDMA_VERSION_TWO_OFFERED,
	/* And nothing else. */
	RPCRDMA_VERSION_TWO_REQUIRED,
};

/* Each is one word that the administrator may write at any time. */
struct rpcrdma_settings {
	unsigned int slot_table_entries;
	unsigned int max_inline_read;
	unsigned int max_inline_write;
	unsigned int version_two;
	/* How often that was written, even if it did not change. */
	unsigned int version_two_writes;
	unsigned int max_requests;
	unsigned int max_req_size;
	unsigned int read_requests;
	unsigned int svc_version_two;
};

extern struct rpcrdma_settings rpcrdma_settings;

/* The server's counters for all connections. */
enum rpcrdma_svc_counter {
	RPCRDMA_SVC_READ,
	RPCRDMA_SVC_RECV,
	RPCRDMA_SVC_WRITE,
	RPCRDMA_SVC_SQ_STARVE,
	RPCRDMA_SVC_COUNTERS
};

int rpcrdma_sysctl_register(void);
void rpcrdma_sysctl_unregister(void);
void rpcrdma_svc_count(enum rpcrdma_svc_counter counter, unsigned long count);

void rpcrdma_put_page_array(struct page **pages, size_t count);
void *rpcrdma_page_address(const struct page *page);
void rpcrdma_memcpy_to_page(struct page *page, size_t offset, const void *from, size_t length);
void rpcrdma_memcpy_from_page(void *to, struct page *page, size_t offset, size_t length);
u32 rpcrdma_total_pages(void);

void *rpcrdma_rpc_buf_alloc(size_t size);
mempool_t *rpcrdma_rpc_reserve_create(void);
void *rpcrdma_rpc_reserve_alloc(mempool_t *reserve, size_t size);
void rpcrdma_wait_until_zero(unsigned long *count);
void rpcrdma_init_delayed_work(struct delayed_work *work, work_func_t func);

#endif
