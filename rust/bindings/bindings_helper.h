/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The headers whose types and functions bindings/mod.rs offers to rdma/ and
 * sunrpc/. bindgen_parameters leaves out what the kernel crate's own bindings
 * already contain. As the kernel's own, the helpers have no prototypes.
 */
#include <linux/in.h>
#include <linux/sunrpc/addr.h>
#include <linux/sunrpc/clnt.h>
#include <linux/sunrpc/sched.h>
#include <linux/sunrpc/xdr.h>
#include <linux/sunrpc/xprt.h>
#include <linux/sunrpc/bc_xprt.h>
#include <rdma/ib_verbs.h>
#include <rdma/ib_cm.h>
#include <rdma/rdma_cm.h>
#include <rdma/rw.h>
#include "../helpers/debugfs.c"
#include "../helpers/helpers.c"
#include "../helpers/svc_helpers.c"
#include "../helpers/sysctl.c"
#include "trace/rpcrdma.h"

const size_t RPCRDMA_DMA_MINALIGN = ARCH_DMA_MINALIGN;
