// SPDX-License-Identifier: GPL-2.0
/*
 * Wrappers that give inline functions and macros of the RDMA and sunrpc
 * headers a symbol for Rust to call. Each is named after what it wraps, but
 * for those with logic of their own.
 */
#include <linux/dma-mapping.h>
#include <linux/highmem.h>
#include <linux/iommu-dma.h>
#include <linux/kmemleak.h>
#include <linux/mempool.h>
#include <linux/mm.h>
#include <linux/rcupdate.h>
#include <linux/sched/mm.h>
#include <linux/sunrpc/addr.h>
#include <linux/sunrpc/clnt.h>
#include <linux/sunrpc/svc.h>
#include <linux/sunrpc/xprt.h>
#include <linux/swiotlb.h>
#include <linux/wait_bit.h>
#include <linux/workqueue.h>
#include <rdma/ib_verbs.h>

int rpcrdma_ib_post_send(struct ib_qp *qp, const struct ib_send_wr *wr)
{
	return ib_post_send(qp, wr, NULL);
}

int rpcrdma_ib_post_recv(struct ib_qp *qp, const struct ib_recv_wr *wr)
{
	return ib_post_recv(qp, wr, NULL);
}

int rpcrdma_ib_modify_qp_err(struct ib_qp *qp)
{
	struct ib_qp_attr attr = { .qp_state = IB_QPS_ERR };

	return ib_modify_qp(qp, &attr, IB_QP_STATE);
}

/* The core polls a queue of IB_POLL_WORKQUEUE in this work. */
void rpcrdma_ib_cq_disable(struct ib_cq *cq)
{
	disable_work_sync(&cq->work);
}

int rpcrdma_ib_dma_map_single(struct ib_device *device, void *addr, size_t size,
			      enum dma_data_direction direction, u64 *mapped)
{
	*mapped = ib_dma_map_single(device, addr, size, direction);
	return ib_dma_mapping_error(device, *mapped);
}

void rpcrdma_ib_dma_unmap_single(struct ib_device *device, u64 addr,
				 size_t size, enum dma_data_direction direction)
{
	ib_dma_unmap_single(device, addr, size, direction);
}

int rpcrdma_ib_dma_map_sg(struct ib_device *device, struct scatterlist *sg,
			  int nents, enum dma_data_direction direction)
{
	return ib_dma_map_sg(device, sg, nents, direction);
}

void rpcrdma_ib_dma_unmap_sg(struct ib_device *device, struct scatterlist *sg,
			     int nents, enum dma_data_direction direction)
{
	ib_dma_unmap_sg(device, sg, nents, direction);
}

void rpcrdma_ib_dma_sync_single_for_cpu(struct ib_device *device, u64 addr,
					size_t size,
					enum dma_data_direction direction)
{
	ib_dma_sync_single_for_cpu(device, addr, size, direction);
}

void rpcrdma_ib_dma_sync_single_for_device(struct ib_device *device, u64 addr,
					   size_t size,
					   enum dma_data_direction direction)
{
	ib_dma_sync_single_for_device(device, addr, size, direction);
}

/* A bounce buffer begins with a slot, unless its device has it keep the offset within a page. */
bool rpcrdma_ib_is_bounced(struct ib_device *device)
{
	struct device *dma = device->dma_device;

	return !ib_uses_virt_dma(device) && !use_dma_iommu(dma) &&
	       is_swiotlb_force_bounce(dma) &&
	       ~dma_get_min_align_mask(dma) & ~PAGE_MASK;
}

bool rpcrdma_rdma_protocol_iwarp(struct ib_device *device, u32 port)
{
	return rdma_protocol_iwarp(device, port);
}

void rpcrdma_sg_set_buf(struct scatterlist *sg, const void *buf,
			unsigned int len)
{
	sg_set_buf(sg, buf, len);
}

void rpcrdma_get_pages(struct scatterlist *sg, int nents)
{
	struct scatterlist *element;
	int i;

	/* Memory of kmalloc() is kept by its owner, and its pages have no count. */
	for_each_sg(sg, element, nents, i)
		if (!PageSlab(sg_page(element)) &&
		    !folio_test_large_kmalloc(page_folio(sg_page(element))))
			get_page(sg_page(element));
}

void rpcrdma_put_pages(struct scatterlist *sg, int nents)
{
	struct scatterlist *element;
	int i;

	for_each_sg(sg, element, nents, i)
		put_page(sg_page(element));
}

void rpcrdma_xprt_clear_connecting(struct rpc_xprt *xprt)
{
	xprt_clear_connecting(xprt);
}

/*
 * Passes a backward request to the callback service, unless there is none. The owner of
 * the service has a reference to the transport, so another one can be taken for the request.
 * It must not be dropped here, as xprt_enqueue_bc_request() might: ending the transport would
 * wait for the completion handler that calls this.
 */
bool rpcrdma_bc_enqueue(struct rpc_rqst *rqst)
{
	struct rpc_xprt *xprt = rqst->rq_xprt;
	struct svc_serv *service;

	spin_lock(&xprt->bc_pa_lock);
	service = xprt->bc_serv;
	if (service) {
		xprt_get(xprt);
		lwq_enqueue(&rqst->rq_bc_list, &service->sv_cb_list);
		svc_pool_wake_idle_thread(service->sv_pools);
	}
	spin_unlock(&xprt->bc_pa_lock);
	return service;
}

void rpcrdma_synchronize_rcu_tasks(void)
{
	synchronize_rcu_tasks();
}

/* These are inline functions in a kernel without modules only. */
void rpcrdma_module_get(struct module *module)
{
	__module_get(module);
}

void rpcrdma_module_put(struct module *module)
{
	module_put(module);
}

unsigned short rpcrdma_rpc_get_port(const struct sockaddr *address)
{
	return rpc_get_port(address);
}

void rpcrdma_rpc_set_port(struct sockaddr *address, unsigned short port)
{
	rpc_set_port(address, port);
}

bool rpcrdma_rpc_cmp_addr(const struct sockaddr *one, const struct sockaddr *other)
{
	return rpc_cmp_addr(one, other);
}

/* Not every kernel's own bindings, which have this type, know its fields. */
u64 rpcrdma_net_cookie(const struct net *net)
{
	return net->net_cookie;
}

/* The next Reply without placed data tells RPCSEC_GSS how long its verifiers are. */
void rpcrdma_rpc_relearn_verifier(struct rpc_rqst *rqst)
{
	set_bit(RPCAUTH_AUTH_UPDATE_SLACK, &rqst->rq_cred->cr_auth->au_flags);
}

/* Counts the RPCs that wait for a Reply. Sets *oldest to when the first of them began. */
unsigned int rpcrdma_rpc_oldest(struct rpc_xprt *xprt, ktime_t *oldest)
{
	struct rpc_rqst *rqst, *next;
	unsigned int count = 0;

	spin_lock(&xprt->queue_lock);
	rbtree_postorder_for_each_entry_safe(rqst, next, &xprt->recv_queue, rq_recv) {
		*oldest = min(*oldest, rqst->rq_task->tk_start);
		count++;
	}
	spin_unlock(&xprt->queue_lock);
	return count;
}

void rpcrdma_get_net(struct net *net)
{
	get_net(net);
}

void rpcrdma_put_net(struct net *net)
{
	put_net(net);
}

unsigned int rpcrdma_memalloc_flags_save(unsigned int flags)
{
	return memalloc_flags_save(flags);
}

void rpcrdma_memalloc_flags_restore(unsigned int flags)
{
	memalloc_flags_restore(flags);
}

/* Allocates memory for one RPC, with the flags that its task may use. */
void *rpcrdma_rpc_buf_alloc(size_t size)
{
	return kmalloc(size, rpc_task_gfp_mask());
}

/*
 * As many as sunrpc keeps for TCP, large enough for NFSv4.2 to open a file. A kernel that
 * clears what it allocates spends more on a buffer than the transport on a small RPC.
 */
#define RESERVE_BUFFERS		8
#define RESERVE_SIZE		8192

mempool_t *rpcrdma_rpc_reserve_create(void)
{
	return mempool_create_kmalloc_pool(RESERVE_BUFFERS, RESERVE_SIZE);
}

void *rpcrdma_rpc_reserve_alloc(mempool_t *reserve, size_t size)
{
	return size <= RESERVE_SIZE ? mempool_alloc_preallocated(reserve) : NULL;
}

void rpcrdma_put_page_array(struct page **pages, size_t count)
{
	struct page **end = pages + count;

	/*
	 * Page-cache pages have other references, and for those release_pages() takes twice as
	 * long as this loop. Pages without other references are freed in batches. There is at least
	 * one page.
	 */
	if (page_count(*pages) == 1) {
		release_pages(pages, count);
		return;
	}
	/* None of them is a slab, which put_page() would look for. */
	while (pages != end)
		folio_put(page_folio(*pages++));
}

void *rpcrdma_page_address(const struct page *page)
{
	return page_address(page);
}

void rpcrdma_memcpy_to_page(struct page *page, u32 offset, const void *from, size_t length)
{
	memcpy_to_page(page, offset, from, length);
}

void rpcrdma_memcpy_from_page(void *to, struct page *page, size_t offset, size_t length)
{
	memcpy_from_page(to, page, offset, length);
}

u32 rpcrdma_total_pages(void)
{
	return min_t(unsigned long, totalram_pages(), U32_MAX);
}

/* For memory that is lost on purpose. */
void rpcrdma_kmemleak_ignore(const void *ptr)
{
	kmemleak_ignore(ptr);
}

/* What lowers the count calls wake_up_var() for it, after a full barrier. */
void rpcrdma_wait_until_zero(unsigned long *count)
{
	/* acquire: what the last user did comes before what follows */
	wait_var_event(count, !smp_load_acquire(count));
}

void rpcrdma_init_delayed_work(struct delayed_work *work, work_func_t func)
{
	INIT_DELAYED_WORK(work, func);
}

/* For lockdep another kind of work: one of the other kind waits for it. */
void rpcrdma_init_overdue(struct delayed_work *work, work_func_t func)
{
	INIT_DELAYED_WORK(work, func);
}
