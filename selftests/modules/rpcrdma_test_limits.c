// SPDX-License-Identifier: GPL-2.0
/*
 * Lowers what every RDMA device says that it can do, until it is unloaded: a test then sees how a
 * transport deals with a device that is too small for it, or that fails now and then. One parameter
 * raises it, where a device can do more than it says, and one counts what is posted.
 * Parameters that are not given leave their attribute alone. No connection may be left when it is
 * loaded or unloaded.
 */
#include <linux/atomic.h>
#include <linux/delay.h>
#include <linux/hrtimer.h>
#include <linux/irqflags.h>
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <rdma/ib_verbs.h>
#include <rdma/iw_cm.h>

static bool no_frwr;
module_param(no_frwr, bool, 0444);
MODULE_PARM_DESC(no_frwr, "the devices cannot register memory by work request");

static int max_send_sge = -1;
module_param(max_send_sge, int, 0444);
MODULE_PARM_DESC(max_send_sge, "SGEs that a Send may have");

static int max_qp_wr = -1;
module_param(max_qp_wr, int, 0444);
MODULE_PARM_DESC(max_qp_wr, "work requests that a queue holds");

static uint real_max_qp_wr;
module_param(real_max_qp_wr, uint, 0444);
MODULE_PARM_DESC(real_max_qp_wr, "work requests that a queue takes, whatever the device says");

static int max_fast_reg_pages = -1;
module_param(max_fast_reg_pages, int, 0444);
MODULE_PARM_DESC(max_fast_reg_pages, "pages that a memory region holds");

static int max_qp_rd_atom = -1;
module_param(max_qp_rd_atom, int, 0444);
MODULE_PARM_DESC(max_qp_rd_atom, "RDMA Reads of a peer that a queue pair takes at a time");

static int max_qp_init_rd_atom = -1;
module_param(max_qp_init_rd_atom, int, 0444);
MODULE_PARM_DESC(max_qp_init_rd_atom, "RDMA Reads of its own that a queue pair has under way at a time");

static int max_sgl_rd = -1;
module_param(max_sgl_rd, int, 0444);
MODULE_PARM_DESC(max_sgl_rd, "SGEs of an RDMA Read beyond which memory is better registered");

static bool no_invalidation;
module_param(no_invalidation, bool, 0444);
MODULE_PARM_DESC(no_invalidation, "every other local invalidation cannot be posted");

static uint failing_sends;
module_param(failing_sends, uint, 0444);
MODULE_PARM_DESC(failing_sends, "one Send of so many cannot be posted, what precedes it in its chain can");

static bool workers_fail;
module_param(workers_fail, bool, 0444);
MODULE_PARM_DESC(workers_fail, "of the Sends that could fail only those count that a workqueue posts");

static uint failing_receives;
module_param(failing_receives, uint, 0444);
MODULE_PARM_DESC(failing_receives, "one chain of Receives of so many cannot be posted, what precedes its second can");

static uint fatal_events;
module_param(fatal_events, uint, 0444);
MODULE_PARM_DESC(fatal_events,
		 "at one Send of so many a hard interrupt says that the queue pair has failed");

static uint failing_stops;
module_param(failing_stops, uint, 0444);
MODULE_PARM_DESC(failing_stops, "so many times a connection's queue pair does not go to the error state");

static uint failing_destroys;
module_param(failing_destroys, uint, 0444);
MODULE_PARM_DESC(failing_destroys, "so many times the first memory region that is destroyed is not");

static uint slow_sends;
module_param(slow_sends, uint, 0444);
MODULE_PARM_DESC(slow_sends, "milliseconds by which the peer has a message before its Send is posted");

static uint failing_maps;
module_param(failing_maps, uint, 0644);
MODULE_PARM_DESC(failing_maps,
		 "one memory region of so many takes no pages; may change if it is not 0 at first");

static uint slow_maps;
module_param(slow_maps, uint, 0444);
MODULE_PARM_DESC(slow_maps, "milliseconds that a memory region takes to take pages, where that may sleep");

static bool sg_gaps;
module_param(sg_gaps, bool, 0444);
MODULE_PARM_DESC(sg_gaps, "iWARP devices, which must be siw, register memory with gaps");

static bool count_work;
module_param(count_work, bool, 0444);
MODULE_PARM_DESC(count_work,
		 "count what connections post on their send queues, keep the last listener's backlog");

/* What is counted: work requests of each kind, and commands that failed. The backlog is no count. */
enum limits_work {
	WORK_READS,
	WORK_WRITES,
	WORK_REGISTRATIONS,
	WORK_FAILED_STOPS,
	WORK_FAILED_DESTROYS,
	WORK_FAILED_MAPS,
	WORK_BACKLOG,
	WORK_KINDS,
};

static const char * const work_names[WORK_KINDS] = {
	[WORK_READS]		= "reads",
	[WORK_WRITES]		= "writes",
	[WORK_REGISTRATIONS]	= "registrations",
	[WORK_FAILED_STOPS]	= "failed_stops",
	[WORK_FAILED_DESTROYS]	= "failed_destroys",
	[WORK_FAILED_MAPS]	= "failed_maps",
	[WORK_BACKLOG]		= "backlog",
};

static atomic_t work[WORK_KINDS];

static int work_get(char *buffer, const struct kernel_param *param)
{
	int i, length = 0;

	for (i = 0; i < WORK_KINDS; i++)
		length += sysfs_emit_at(buffer, length, "%s %d\n", work_names[i],
					atomic_read(&work[i]));
	return length;
}

static const struct kernel_param_ops work_ops = {
	.get	= work_get,
};
module_param_cb(work, &work_ops, NULL, 0444);
MODULE_PARM_DESC(work, "what was counted, a name and a number a line");

/* What a device has without this module. */
struct limits_saved {
	struct ib_device_attr attrs;
	int (*post_send)(struct ib_qp *qp, const struct ib_send_wr *wr,
			 const struct ib_send_wr **bad_wr);
	int (*post_recv)(struct ib_qp *qp, const struct ib_recv_wr *wr,
			 const struct ib_recv_wr **bad_wr);
	struct ib_mr *(*alloc_mr)(struct ib_pd *pd, enum ib_mr_type mr_type, u32 max_num_sg);
	int (*map_mr_sg)(struct ib_mr *mr, struct scatterlist *sg, int sg_nents,
			 unsigned int *sg_offset);
	int (*iw_create_listen)(struct iw_cm_id *cm_id, int backlog);
	int (*create_qp)(struct ib_qp *qp, struct ib_qp_init_attr *attr, struct ib_udata *udata);
	int (*modify_qp)(struct ib_qp *qp, struct ib_qp_attr *attr, int mask,
			 struct ib_udata *udata);
	int (*dereg_mr)(struct ib_mr *mr, struct ib_udata *udata);
	int (*dealloc_pd)(struct ib_pd *pd, struct ib_udata *udata);
};

static atomic_t invalidations = ATOMIC_INIT(0);
static atomic_t sends = ATOMIC_INIT(0);
static atomic_t receives = ATOMIC_INIT(0);
static atomic_t maps = ATOMIC_INIT(0);
static atomic_t stops = ATOMIC_INIT(0);
/* The first one that was to be destroyed, and its domain. */
static struct ib_mr *kept_mr;
static struct ib_pd *kept_pd;

static int limits_add(struct ib_device *device);
static void limits_remove(struct ib_device *device, void *data);

static struct ib_client limits_client = {
	.name	= "rpcrdma_test_limits",
	.add	= limits_add,
	.remove	= limits_remove,
};

/*
 * Posts a chain but for its last request, if that is a Send whose turn it is to fail. The user of a
 * device cannot know how much of a chain was posted when one of its requests was not.
 */
static int limits_post_without_send(struct limits_saved *saved, struct ib_qp *qp,
				    const struct ib_send_wr *wr, const struct ib_send_wr **bad_wr)
{
	/* Who posts a chain may change it again; only the driver may not. */
	struct ib_send_wr *last = (struct ib_send_wr *)wr, *before = NULL;
	int ret = 0;

	while (last->next) {
		before = last;
		last = last->next;
	}
	/* The connection manager sends as well. */
	if (qp->qp_type != IB_QPT_RC ||
	    (last->opcode != IB_WR_SEND && last->opcode != IB_WR_SEND_WITH_INV) ||
	    (workers_fail && !(current->flags & PF_WQ_WORKER)) ||
	    atomic_inc_return(&sends) % failing_sends)
		return saved->post_send(qp, wr, bad_wr);
	if (before) {
		before->next = NULL;
		ret = saved->post_send(qp, wr, bad_wr);
		before->next = last;
	}
	if (!ret)
		*bad_wr = last;
	return ret ?: -ENOMEM;
}

/* The driver does not know of the limit, and would take more. */
static bool limits_exceeded(const struct ib_qp *qp, const struct ib_send_wr *wr)
{
	if (max_send_sge < 0 || qp->qp_type != IB_QPT_RC)
		return false;
	for (; wr; wr = wr->next)
		if (wr->num_sge > max_send_sge)
			return true;
	return false;
}

static void limits_count(const struct ib_qp *qp, const struct ib_send_wr *wr)
{
	if (!count_work || qp->qp_type != IB_QPT_RC)
		return;
	for (; wr; wr = wr->next) {
		switch (wr->opcode) {
		case IB_WR_RDMA_READ:
		case IB_WR_RDMA_READ_WITH_INV:
			atomic_inc(&work[WORK_READS]);
			break;
		case IB_WR_RDMA_WRITE:
			atomic_inc(&work[WORK_WRITES]);
			break;
		case IB_WR_REG_MR:
			atomic_inc(&work[WORK_REGISTRATIONS]);
			break;
		default:
			break;
		}
	}
}

/* The failure of a queue pair, and whether its user was told. */
struct limits_failure {
	struct hrtimer timer;
	struct ib_qp *qp;
	bool is_told;
};

static enum hrtimer_restart limits_tell(struct hrtimer *timer)
{
	struct limits_failure *failure = container_of(timer, struct limits_failure, timer);
	struct ib_qp *qp = failure->qp;
	struct ib_event event = {
		.device	= qp->device,
		.element.qp = qp,
		.event	= IB_EVENT_QP_FATAL,
	};

	qp->event_handler(&event, qp->qp_context);
	smp_store_release(&failure->is_told, true);
	return HRTIMER_NORESTART;
}

/*
 * Some drivers tell of events in a hard interrupt, so this does, and lockdep knows of it. It is one
 * of this CPU, whatever locks the caller holds, as long as interrupts are on.
 */
static void limits_fail_qp(struct ib_qp *qp)
{
	struct limits_failure failure = { .qp = qp };

	if (WARN_ON_ONCE(irqs_disabled()))
		return;
	hrtimer_setup_on_stack(&failure.timer, limits_tell, CLOCK_MONOTONIC,
			       HRTIMER_MODE_REL_PINNED_HARD);
	hrtimer_start(&failure.timer, 0, HRTIMER_MODE_REL_PINNED_HARD);
	while (!smp_load_acquire(&failure.is_told))
		cpu_relax();
	hrtimer_cancel(&failure.timer);
	destroy_hrtimer_on_stack(&failure.timer);
}

static int limits_post_send(struct ib_qp *qp, const struct ib_send_wr *wr,
			    const struct ib_send_wr **bad_wr)
{
	struct limits_saved *saved = ib_get_client_data(qp->device, &limits_client);
	int ret;

	limits_count(qp, wr);
	if (limits_exceeded(qp, wr)) {
		*bad_wr = wr;
		return -EINVAL;
	}
	if (no_invalidation && wr->opcode == IB_WR_LOCAL_INV &&
	    atomic_inc_return(&invalidations) & 1) {
		*bad_wr = wr;
		return -ENOMEM;
	}
	if (failing_sends)
		return limits_post_without_send(saved, qp, wr, bad_wr);
	if (fatal_events && qp->qp_type == IB_QPT_RC && qp->event_handler &&
	    atomic_inc_return(&sends) % fatal_events == 0)
		limits_fail_qp(qp);
	ret = saved->post_send(qp, wr, bad_wr);
	/* The caller may hold a spinlock. */
	if (qp->qp_type == IB_QPT_RC)
		mdelay(slow_sends);
	return ret;
}

/* A device that is out of memory says the same as who has none for a Receive. */
static int limits_post_recv(struct ib_qp *qp, const struct ib_recv_wr *wr,
			    const struct ib_recv_wr **bad_wr)
{
	struct limits_saved *saved = ib_get_client_data(qp->device, &limits_client);
	struct ib_recv_wr *first = (struct ib_recv_wr *)wr, *rest = first->next;
	int ret;

	/* What waits for a queue to be drained has no buffer. */
	if (qp->qp_type != IB_QPT_RC || !wr->num_sge ||
	    atomic_inc_return(&receives) % failing_receives)
		return saved->post_recv(qp, wr, bad_wr);
	if (!rest) {
		*bad_wr = wr;
		return -ENOMEM;
	}
	first->next = NULL;
	ret = saved->post_recv(qp, wr, bad_wr);
	first->next = rest;
	if (!ret)
		*bad_wr = rest;
	return ret ?: -ENOMEM;
}

static struct ib_mr *limits_alloc_mr(struct ib_pd *pd, enum ib_mr_type mr_type, u32 max_num_sg)
{
	struct limits_saved *saved = ib_get_client_data(pd->device, &limits_client);

	return saved->alloc_mr(pd, mr_type == IB_MR_TYPE_SG_GAPS ? IB_MR_TYPE_MEM_REG : mr_type,
			       max_num_sg);
}

/*
 * siw keeps pieces of any address and length, but has ib_sg_to_pages() count them, which stops at a
 * gap. Between pages of one byte there is none.
 */
static int limits_map_mr_sg(struct ib_mr *mr, struct scatterlist *sg, int sg_nents,
			    unsigned int *sg_offset)
{
	struct limits_saved *saved = ib_get_client_data(mr->device, &limits_client);
	uint failing = READ_ONCE(failing_maps);
	u32 page_size = mr->page_size;
	int ret;

	if (failing && atomic_inc_return(&maps) % failing == 0) {
		atomic_inc(&work[WORK_FAILED_MAPS]);
		return 0;
	}
	if (slow_maps)
		msleep(slow_maps);
	if (mr->type == IB_MR_TYPE_SG_GAPS)
		mr->page_size = 1;
	ret = saved->map_mr_sg(mr, sg, sg_nents, sg_offset);
	mr->page_size = page_size;
	return ret;
}

static int limits_create_qp(struct ib_qp *qp, struct ib_qp_init_attr *attr,
			    struct ib_udata *udata)
{
	struct limits_saved *saved = ib_get_client_data(qp->device, &limits_client);

	if (attr->qp_type == IB_QPT_RC && attr->cap.max_send_wr > real_max_qp_wr)
		return -EINVAL;
	return saved->create_qp(qp, attr, udata);
}

static int limits_modify_qp(struct ib_qp *qp, struct ib_qp_attr *attr, int mask,
			    struct ib_udata *udata)
{
	struct limits_saved *saved = ib_get_client_data(qp->device, &limits_client);

	if (qp->qp_type == IB_QPT_RC && mask & IB_QP_STATE && attr->qp_state == IB_QPS_ERR &&
	    atomic_inc_return(&stops) <= failing_stops) {
		atomic_inc(&work[WORK_FAILED_STOPS]);
		return -EINVAL;
	}
	return saved->modify_qp(qp, attr, mask, udata);
}

static int limits_dereg_mr(struct ib_mr *mr, struct ib_udata *udata)
{
	struct limits_saved *saved = ib_get_client_data(mr->device, &limits_client);

	if (!cmpxchg(&kept_mr, NULL, mr))
		kept_pd = mr->pd;
	if (mr == kept_mr && atomic_read(&work[WORK_FAILED_DESTROYS]) < failing_destroys) {
		atomic_inc(&work[WORK_FAILED_DESTROYS]);
		return -ENOMEM;
	}
	if (mr == kept_mr)
		kept_pd = NULL;
	return saved->dereg_mr(mr, udata);
}

/* What still refers to a domain has to go first. */
static int limits_dealloc_pd(struct ib_pd *pd, struct ib_udata *udata)
{
	struct limits_saved *saved = ib_get_client_data(pd->device, &limits_client);

	if (pd == kept_pd) {
		kept_pd = NULL;
		saved->dereg_mr(kept_mr, NULL);
	}
	return saved->dealloc_pd(pd, udata);
}

/* Only iWARP devices are told. */
static int limits_create_listen(struct iw_cm_id *cm_id, int backlog)
{
	struct limits_saved *saved = ib_get_client_data(cm_id->device, &limits_client);

	atomic_set(&work[WORK_BACKLOG], backlog);
	return saved->iw_create_listen(cm_id, backlog);
}

static int limits_add(struct ib_device *device)
{
	struct limits_saved *saved;

	saved = kmalloc(sizeof(*saved), GFP_KERNEL);
	if (!saved)
		return -ENOMEM;
	saved->attrs = device->attrs;
	saved->post_send = device->ops.post_send;
	saved->post_recv = device->ops.post_recv;
	saved->alloc_mr = device->ops.alloc_mr;
	saved->map_mr_sg = device->ops.map_mr_sg;
	saved->iw_create_listen = device->ops.iw_create_listen;
	saved->create_qp = device->ops.create_qp;
	saved->modify_qp = device->ops.modify_qp;
	saved->dereg_mr = device->ops.dereg_mr;
	saved->dealloc_pd = device->ops.dealloc_pd;
	ib_set_client_data(device, &limits_client, saved);

	if (no_frwr)
		device->attrs.device_cap_flags &= ~IB_DEVICE_MEM_MGT_EXTENSIONS;
	if (max_send_sge >= 0)
		device->attrs.max_send_sge = max_send_sge;
	if (max_qp_wr >= 0)
		device->attrs.max_qp_wr = max_qp_wr;
	if (max_fast_reg_pages >= 0)
		device->attrs.max_fast_reg_page_list_len = max_fast_reg_pages;
	if (max_qp_rd_atom >= 0)
		device->attrs.max_qp_rd_atom = max_qp_rd_atom;
	if (max_qp_init_rd_atom >= 0)
		device->attrs.max_qp_init_rd_atom = max_qp_init_rd_atom;
	if (max_sgl_rd >= 0)
		device->attrs.max_sgl_rd = max_sgl_rd;
	if (no_invalidation || failing_sends || fatal_events || slow_sends || count_work ||
	    max_send_sge >= 0)
		device->ops.post_send = limits_post_send;
	if (failing_receives)
		device->ops.post_recv = limits_post_recv;
	if (failing_maps || slow_maps)
		device->ops.map_mr_sg = limits_map_mr_sg;
	if (real_max_qp_wr)
		device->ops.create_qp = limits_create_qp;
	if (failing_stops)
		device->ops.modify_qp = limits_modify_qp;
	if (failing_destroys) {
		device->ops.dereg_mr = limits_dereg_mr;
		device->ops.dealloc_pd = limits_dealloc_pd;
	}
	if (count_work && saved->iw_create_listen)
		device->ops.iw_create_listen = limits_create_listen;
	if (sg_gaps && rdma_cap_iw_cm(device, 1)) {
		device->attrs.kernel_cap_flags |= IBK_SG_GAPS_REG;
		device->ops.alloc_mr = limits_alloc_mr;
		device->ops.map_mr_sg = limits_map_mr_sg;
	}
	return 0;
}

static void limits_remove(struct ib_device *device, void *data)
{
	struct limits_saved *saved = data;

	device->ops.post_send = saved->post_send;
	device->ops.post_recv = saved->post_recv;
	device->ops.alloc_mr = saved->alloc_mr;
	device->ops.map_mr_sg = saved->map_mr_sg;
	device->ops.iw_create_listen = saved->iw_create_listen;
	device->ops.create_qp = saved->create_qp;
	device->ops.modify_qp = saved->modify_qp;
	device->ops.dereg_mr = saved->dereg_mr;
	device->ops.dealloc_pd = saved->dealloc_pd;
	device->attrs.kernel_cap_flags = saved->attrs.kernel_cap_flags;
	device->attrs.device_cap_flags = saved->attrs.device_cap_flags;
	device->attrs.max_send_sge = saved->attrs.max_send_sge;
	device->attrs.max_qp_wr = saved->attrs.max_qp_wr;
	device->attrs.max_fast_reg_page_list_len = saved->attrs.max_fast_reg_page_list_len;
	device->attrs.max_qp_rd_atom = saved->attrs.max_qp_rd_atom;
	device->attrs.max_qp_init_rd_atom = saved->attrs.max_qp_init_rd_atom;
	device->attrs.max_sgl_rd = saved->attrs.max_sgl_rd;
	kfree(saved);
}

static int __init limits_init(void)
{
	return ib_register_client(&limits_client);
}

static void __exit limits_exit(void)
{
	ib_unregister_client(&limits_client);
}

module_init(limits_init);
module_exit(limits_exit);
MODULE_DESCRIPTION("Lowers the attributes of RDMA devices, for tests");
MODULE_LICENSE("GPL");
