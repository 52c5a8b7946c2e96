/* SPDX-License-Identifier: GPL-2.0 */
#ifndef RPCRDMA_TEST_BACKWARD_H
#define RPCRDMA_TEST_BACKWARD_H

#include <linux/types.h>

struct rpc_clnt;
struct test_backward;

struct test_backward *test_backward_start(struct rpc_clnt *client, u32 program);
void test_backward_stop(struct test_backward *service);
void test_backward_outlive(struct test_backward *service, struct rpc_clnt *client);

#endif /* RPCRDMA_TEST_BACKWARD_H */
