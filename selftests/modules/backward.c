// SPDX-License-Identifier: GPL-2.0
/*
 * A service for backward Calls: one thread, NULL, a procedure that is answered when the transport has
 * its second connection, and one that is answered when nothing else keeps the transport.
 */
#include <linux/delay.h>
#include <linux/err.h>
#include <linux/slab.h>
#include <linux/sunrpc/bc_xprt.h>
#include <linux/sunrpc/clnt.h>
#include <linux/sunrpc/svc.h>
#include <linux/sunrpc/svc_xprt.h>
#include <linux/sunrpc/xprt.h>
#include <linux/version.h>

#include "backward.h"

/* Requests that the service asks the transport to provide for. */
#define BACKWARD_REQUESTS	16

struct test_backward {
	struct svc_serv *serv;
	struct rpc_xprt *xprt;
};

static __be32 backward_null(struct svc_rqst *rqstp)
{
	return rpc_success;
}

/* Of the only service that there is at a time. */
static struct rpc_xprt *backward_xprt;

static __be32 backward_second(struct svc_rqst *rqstp)
{
	unsigned int milliseconds = 0;

	for (; READ_ONCE(backward_xprt->stat.connect_count) < 2 ||
	       !xprt_connected(backward_xprt); milliseconds++) {
		if (milliseconds == 20000)
			return rpc_system_err;
		msleep(1);
	}
	return rpc_success;
}

static __be32 backward_last(struct svc_rqst *rqstp)
{
	unsigned int milliseconds = 0;

	/* The Call itself has a reference. */
	for (; kref_read(&backward_xprt->kref) > 1; milliseconds++) {
		if (milliseconds == 20000)
			return rpc_system_err;
		msleep(1);
	}
	return rpc_success;
}

static bool backward_nothing(struct svc_rqst *rqstp, struct xdr_stream *xdr)
{
	return true;
}

static const struct svc_procedure backward_procedures[] = {
	{
		.pc_func	= backward_null,
		.pc_decode	= backward_nothing,
		.pc_encode	= backward_nothing,
		.pc_xdrressize	= 1,
		.pc_name	= "NULL",
	},
	{
		.pc_func	= backward_second,
		.pc_decode	= backward_nothing,
		.pc_encode	= backward_nothing,
		.pc_xdrressize	= 1,
		.pc_name	= "SECOND",
	},
	{
		.pc_func	= backward_last,
		.pc_decode	= backward_nothing,
		.pc_encode	= backward_nothing,
		.pc_xdrressize	= 1,
		.pc_name	= "LAST",
	},
};

static int backward_dispatch(struct svc_rqst *rqstp)
{
	*rqstp->rq_accept_statp = rqstp->rq_procinfo->pc_func(rqstp);
	return 1;
}

#if LINUX_VERSION_CODE < KERNEL_VERSION(7, 3, 0)
/* Later kernels count only for services that have statistics. */
static DEFINE_PER_CPU_ALIGNED(unsigned long, backward_counts[ARRAY_SIZE(backward_procedures)]);
#endif

static const struct svc_version backward_version = {
	.vs_vers	= 1,
	.vs_nproc	= ARRAY_SIZE(backward_procedures),
	.vs_proc	= backward_procedures,
#if LINUX_VERSION_CODE < KERNEL_VERSION(7, 3, 0)
	.vs_count	= backward_counts,
#endif
	.vs_dispatch	= backward_dispatch,
	.vs_hidden	= true,
};

static const struct svc_version *backward_versions[] = {
	[1] = &backward_version,
};

static enum svc_auth_status backward_authenticate(struct svc_rqst *rqstp)
{
	rqstp->rq_auth_stat = rpc_auth_ok;
	return SVC_OK;
}

static struct svc_program backward_program = {
	.pg_nvers		= ARRAY_SIZE(backward_versions),
	.pg_vers		= backward_versions,
	.pg_name		= "rpcrdma-test",
	.pg_class		= "rpcrdma-test",
	.pg_authenticate	= backward_authenticate,
	.pg_init_request	= svc_generic_init_request,
};

static int backward_thread(void *data)
{
	struct svc_rqst *rqstp = data;

	svc_thread_init_status(rqstp, 0);
	while (!svc_thread_should_stop(rqstp))
		svc_recv(rqstp, 0);
	svc_exit_thread(rqstp);
	return 0;
}

/* Serves backward Calls of @program on the transport of @client. */
struct test_backward *test_backward_start(struct rpc_clnt *client, u32 program)
{
	struct test_backward *service;
	int round, status;

	service = kzalloc(sizeof(*service), GFP_KERNEL);
	if (!service)
		return ERR_PTR(-ENOMEM);
	/* The client keeps its only transport. */
	service->xprt = rcu_access_pointer(client->cl_xprt);
	backward_xprt = service->xprt;
	backward_program.pg_prog = program;
	service->serv = svc_create(&backward_program, PAGE_SIZE, backward_thread);
	if (!service->serv) {
		kfree(service);
		return ERR_PTR(-ENOMEM);
	}
	set_bc_enabled(service->serv);
	status = svc_set_num_threads(service->serv, 0, 1);
	if (status) {
		svc_destroy(&service->serv);
		kfree(service);
		return ERR_PTR(status);
	}
	service->xprt->bc_serv = service->serv;
	/* As many sessions as there are requests for one, none of which may take any of them along. */
	for (round = 0; ; round++) {
		status = xprt_setup_backchannel(service->xprt, BACKWARD_REQUESTS);
		if (status) {
			test_backward_stop(service);
			return ERR_PTR(status);
		}
		if (round == BACKWARD_REQUESTS)
			return service;
		xprt_destroy_backchannel(service->xprt, BACKWARD_REQUESTS);
	}
}

/* To be called while the client is there. */
void test_backward_stop(struct test_backward *service)
{
	xprt_svc_shutdown_bc(service->xprt);
	svc_set_num_threads(service->serv, 0, 0);
	xprt_svc_destroy_nullify_bc(service->xprt, &service->serv);
	xprt_destroy_backchannel(service->xprt, BACKWARD_REQUESTS);
	kfree(service);
}

/* As test_backward_stop(), but @client ends while the service has a Call of LAST in its hands. */
void test_backward_outlive(struct test_backward *service, struct rpc_clnt *client)
{
	xprt_svc_shutdown_bc(service->xprt);
	rpc_shutdown_client(client);
	svc_set_num_threads(service->serv, 0, 0);
	svc_destroy(&service->serv);
	kfree(service);
}
