// SPDX-License-Identifier: GPL-2.0

#include "verbs.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <rdma/rdma_cma.h>

/* Requests for a connection that may wait; another one is refused by the backlog. */
#define REQUESTS	16

/* Send buffers, which are used in turn. */
#define SENDS		128

/* How long a completion may take that has to come. */
#define COMPLETION_MS	20000

/* What a work request is, in the upper half of its wr_id. */
enum { WR_RECEIVE, WR_SEND, WR_DATA };
#define WR_ID(kind, index)	((uint64_t)(kind) << 32 | (index))

/* How far a connection is that this end has asked for. */
enum { STEP_NONE, STEP_ADDRESS, STEP_ROUTE, STEP_ANSWERED, STEP_ESTABLISHED };

struct request {
	struct rdma_cm_id *id;
	uint8_t reads;
	size_t private_len;
	uint8_t private_data[256];
};

struct message {
	uint32_t slot;
	uint32_t length;
};

struct peer {
	struct rdma_event_channel *events;
	struct rdma_cm_id *listener;
	struct request requests[REQUESTS];
	unsigned int request_count;

	/* The connection, if there is one. */
	struct rdma_cm_id *id;
	unsigned int step;
	bool ended;
	/* The event that ended it, if the connection manager has told, and its status. */
	bool told;
	enum rdma_cm_event_type end;
	int end_status;
	struct ibv_pd *pd;
	struct ibv_comp_channel *completions;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	uint8_t *memory;
	size_t memory_size;

	uint32_t send_size;
	uint32_t data_size;
	uint32_t receives;
	uint32_t receive_size;
	/* A ring: what has arrived, and slots that the caller has emptied. */
	struct message *arrived;
	uint32_t arrived_head, arrived_count;
	uint32_t *emptied;
	uint32_t emptied_count;

	uint32_t sends_posted, sends_done;
	int send_status;
	bool data_done;
	int data_status;
};

static uint8_t *send_buffer(struct peer *peer, uint32_t index)
{
	return peer->memory + (size_t)index * peer->send_size;
}

static uint8_t *data_buffer(struct peer *peer)
{
	return send_buffer(peer, SENDS);
}

static uint8_t *receive_buffer(struct peer *peer, uint32_t slot)
{
	return data_buffer(peer) + peer->data_size + (size_t)slot * peer->receive_size;
}

static int64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

static void must(bool good, const char *what)
{
	if (!good) {
		fprintf(stderr, "%s: %s\n", what, strerror(errno));
		exit(2);
	}
}

struct peer *peer_make(void)
{
	struct peer *peer = calloc(1, sizeof(*peer));
	/* This call is also what links the providers in. */
	struct ibv_device **devices = ibv_get_device_list(NULL);

	must(peer && devices, "ibv_get_device_list");
	ibv_free_device_list(devices);
	peer->events = rdma_create_event_channel();
	must(peer->events, "rdma_create_event_channel");
	must(!fcntl(peer->events->fd, F_SETFL, O_NONBLOCK), "fcntl");
	return peer;
}

struct peer *peer_listen(uint16_t port)
{
	struct sockaddr_in6 address = {
		.sin6_family	= AF_INET6,
		.sin6_port	= htobe16(port),
		.sin6_addr	= in6addr_any,
	};
	struct peer *peer = peer_make();

	must(!rdma_create_id(peer->events, &peer->listener, peer, RDMA_PS_TCP), "rdma_create_id");
	must(!rdma_bind_addr(peer->listener, (struct sockaddr *)&address), "rdma_bind_addr");
	must(!rdma_listen(peer->listener, REQUESTS), "rdma_listen");
	return peer;
}

static void take_request(struct peer *peer, const struct rdma_cm_event *event)
{
	const struct rdma_conn_param *parameters = &event->param.conn;
	struct request *request = &peer->requests[peer->request_count];

	request->id = event->id;
	request->reads = parameters->initiator_depth;
	request->private_len = parameters->private_data_len;
	if (request->private_len)
		memcpy(request->private_data, parameters->private_data, request->private_len);
	peer->request_count++;
}

/* Takes in what the connection manager has to say; whether it had anything. */
static bool take_events(struct peer *peer)
{
	struct rdma_cm_event *event;
	bool any = false;

	while (!rdma_get_cm_event(peer->events, &event)) {
		struct rdma_cm_id *refused = NULL;

		any = true;
		switch (event->event) {
		case RDMA_CM_EVENT_CONNECT_REQUEST:
			if (peer->request_count < REQUESTS)
				take_request(peer, event);
			else
				refused = event->id;
			break;
		case RDMA_CM_EVENT_ADDR_RESOLVED:
			peer->step = STEP_ADDRESS;
			break;
		case RDMA_CM_EVENT_ROUTE_RESOLVED:
			peer->step = STEP_ROUTE;
			break;
		case RDMA_CM_EVENT_CONNECT_RESPONSE:
			peer->step = STEP_ANSWERED;
			break;
		case RDMA_CM_EVENT_ESTABLISHED:
			peer->step = STEP_ESTABLISHED;
			break;
		case RDMA_CM_EVENT_TIMEWAIT_EXIT:
			break;
		default:
			if (event->id == peer->id) {
				peer->ended = true;
				peer->told = true;
				peer->end = event->event;
				peer->end_status = event->status;
			}
		}
		rdma_ack_cm_event(event);
		if (refused)
			rdma_destroy_id(refused);
	}
	return any;
}

static void take_completion(struct peer *peer, const struct ibv_wc *wc)
{
	uint32_t index = (uint32_t)wc->wr_id;

	switch (wc->wr_id >> 32) {
	case WR_RECEIVE:
		if (wc->status) {
			peer->ended = true;
			break;
		}
		peer->arrived[(peer->arrived_head + peer->arrived_count) % peer->receives] =
			(struct message){ .slot = index, .length = wc->byte_len };
		peer->arrived_count++;
		break;
	case WR_SEND:
		peer->sends_done++;
		if (wc->status && !peer->send_status)
			peer->send_status = wc->status;
		break;
	case WR_DATA:
		peer->data_done = true;
		peer->data_status = wc->status;
		break;
	}
	if (wc->status)
		peer->ended = true;
}

static bool take_completions(struct peer *peer)
{
	struct ibv_wc wc[16];
	bool any = false;
	int count, i;

	if (!peer->id || !peer->cq)
		return false;
	while ((count = ibv_poll_cq(peer->cq, 16, wc)) > 0) {
		any = true;
		for (i = 0; i < count; i++)
			take_completion(peer, &wc[i]);
	}
	return any;
}

/* Takes in what has happened, or waits for it until @end. */
static int progress(struct peer *peer, int64_t end)
{
	struct pollfd fds[2] = { { .fd = peer->events->fd, .events = POLLIN } };
	struct ibv_cq *cq;
	void *context;
	int64_t left;

	if (take_events(peer) | take_completions(peer))
		return 0;
	if (peer->id && peer->cq) {
		fds[1] = (struct pollfd){ .fd = peer->completions->fd, .events = POLLIN };
		ibv_req_notify_cq(peer->cq, 0);
		/* What came before the request gives no event. */
		if (take_completions(peer))
			return 0;
	}
	left = end - now_ms();
	if (left <= 0)
		return -ETIMEDOUT;
	if (poll(fds, peer->id && peer->cq ? 2 : 1, (int)left) < 0 && errno != EINTR)
		return -errno;
	if (peer->id && peer->cq && fds[1].revents && !ibv_get_cq_event(peer->completions, &cq, &context))
		ibv_ack_cq_events(cq, 1);
	return 0;
}

int peer_wait_request(struct peer *peer, int timeout_ms, uint8_t *private_data, size_t size)
{
	int64_t end = now_ms() + timeout_ms;
	struct request *request = peer->requests;
	int status;

	while (!peer->request_count) {
		status = progress(peer, end);
		if (status)
			return status;
	}
	if (size > request->private_len)
		size = request->private_len;
	memcpy(private_data, request->private_data, size);
	return (int)size;
}

static void forget_request(struct peer *peer)
{
	peer->request_count--;
	memmove(peer->requests, peer->requests + 1, peer->request_count * sizeof(*peer->requests));
}

static int post_receive(struct peer *peer, uint32_t slot)
{
	struct ibv_sge sge = {
		.addr	= (uintptr_t)receive_buffer(peer, slot),
		.length	= peer->receive_size,
		.lkey	= peer->mr->lkey,
	};
	struct ibv_recv_wr wr = {
		.wr_id		= WR_ID(WR_RECEIVE, slot),
		.sg_list	= &sge,
		.num_sge	= 1,
	}, *bad;

	return -ibv_post_recv(peer->id->qp, &wr, &bad);
}

static int make_queues(struct peer *peer, uint32_t receives, int access)
{
	struct ibv_qp_init_attr attr = {
		.cap = {
			.max_send_wr	= SENDS + 1,
			.max_recv_wr	= receives + 1,
			.max_send_sge	= 1,
			.max_recv_sge	= 1,
		},
		.qp_type	= IBV_QPT_RC,
		.sq_sig_all	= 1,
	};
	struct ibv_context *device = peer->id->verbs;

	peer->pd = ibv_alloc_pd(device);
	peer->completions = ibv_create_comp_channel(device);
	if (!peer->pd || !peer->completions)
		return -errno;
	peer->cq = ibv_create_cq(device, (int)(SENDS + receives + 2), NULL, peer->completions, 0);
	if (!peer->cq)
		return -errno;
	attr.send_cq = peer->cq;
	attr.recv_cq = peer->cq;
	if (rdma_create_qp(peer->id, peer->pd, &attr))
		return -errno;
	peer->memory = aligned_alloc(4096, peer->memory_size);
	if (!peer->memory)
		return -ENOMEM;
	peer->mr = ibv_reg_mr(peer->pd, peer->memory, peer->memory_size,
			      IBV_ACCESS_LOCAL_WRITE | access);
	return peer->mr ? 0 : -errno;
}

static int make_resources(struct peer *peer, const struct peer_accept *parameters, int access)
{
	size_t memory;
	uint32_t slot;
	int status;

	peer->send_size = parameters->send_size;
	peer->data_size = parameters->data_size;
	peer->receives = parameters->receives;
	peer->receive_size = parameters->receive_size;
	memory = (size_t)SENDS * peer->send_size + peer->data_size +
		 (size_t)peer->receives * peer->receive_size;
	peer->memory_size = (memory + 4095) & ~(size_t)4095;
	peer->arrived = calloc(peer->receives + 1, sizeof(*peer->arrived));
	peer->emptied = calloc(peer->receives + 1, sizeof(*peer->emptied));
	status = peer->arrived && peer->emptied ? make_queues(peer, peer->receives, access) : -ENOMEM;
	for (slot = 0; !status && slot < peer->receives; slot++)
		status = post_receive(peer, slot);
	return status;
}

int peer_accept(struct peer *peer, const struct peer_accept *parameters)
{
	struct rdma_conn_param conn = {
		.private_data		= parameters->private_data,
		.private_data_len	= parameters->private_len,
		.rnr_retry_count	= parameters->rnr_retries,
	};
	int status;

	peer_disconnect(peer);
	if (!peer->request_count)
		return -ENOTCONN;
	peer->id = peer->requests[0].id;
	conn.initiator_depth = peer->requests[0].reads;
	forget_request(peer);
	status = make_resources(peer, parameters, 0);
	if (!status && rdma_accept(peer->id, &conn))
		status = -errno;
	if (status)
		peer_disconnect(peer);
	return status;
}

/* Waits for the connection manager's answer to the step before. */
static int wait_for_step(struct peer *peer, unsigned int step, int64_t end)
{
	int status;

	while (!peer->ended && peer->step < step) {
		status = progress(peer, end);
		if (status)
			return status;
	}
	return peer->ended ? -ENOTCONN : 0;
}

/* Finds the way to an address, and has a queue pair there if @queues. */
static int begin(struct peer *peer, const char *address, uint16_t port,
		 const struct peer_accept *parameters, bool queues)
{
	uint8_t ack_timeout = parameters->ack_timeout;
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP }, *found;
	int64_t end = now_ms() + COMPLETION_MS;
	char service[8];
	int status;

	snprintf(service, sizeof(service), "%u", port);
	if (rdma_getaddrinfo(address, service, &hints, &found))
		return -errno;
	status = rdma_create_id(peer->events, &peer->id, peer, RDMA_PS_TCP) ? -errno : 0;
	if (!status && rdma_resolve_addr(peer->id, NULL, found->ai_dst_addr, COMPLETION_MS))
		status = -errno;
	rdma_freeaddrinfo(found);
	if (!status && ack_timeout &&
	    rdma_set_option(peer->id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &ack_timeout, sizeof(ack_timeout)))
		status = -errno;
	if (!status)
		status = wait_for_step(peer, STEP_ADDRESS, end);
	if (!status && rdma_resolve_route(peer->id, COMPLETION_MS))
		status = -errno;
	if (!status)
		status = wait_for_step(peer, STEP_ROUTE, end);
	if (!status && queues)
		status = make_resources(peer, parameters,
					IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
	return status;
}

/* Sends the request, of a queue pair that the library does not know of if @number is not 0. */
static int request(struct peer *peer, const struct peer_accept *parameters, uint32_t number)
{
	struct rdma_conn_param conn = {
		.private_data		= parameters->private_data,
		.private_data_len	= parameters->private_len,
		.rnr_retry_count	= parameters->rnr_retries,
		.responder_resources	= 16,
		.retry_count		= 6,
		.qp_num			= number,
	};

	return rdma_connect(peer->id, &conn) ? -errno : 0;
}

/* Asks for a connection, and does not wait for the answer. */
static int ask(struct peer *peer, const char *address, uint16_t port,
	       const struct peer_accept *parameters, bool establish)
{
	static uint32_t connections;
	uint32_t number = 0;
	int status;

	status = begin(peer, address, port, parameters, establish);
	/* Without a queue pair the library leaves the end of the handshake to its user. */
	if (!status && !establish)
		/* No other connection has the same, of which the connection manager keeps account. */
		number = 0x200000 + ((getpid() & 0x3ff) << 10) + (++connections & 0x3ff);
	return status ? status : request(peer, parameters, number);
}

int peer_connect(struct peer *peer, const char *address, uint16_t port,
		 const struct peer_accept *parameters, bool establish)
{
	struct ibv_qp_attr pause = { .min_rnr_timer = 14 /* 1.28 ms */ };
	int64_t end = now_ms() + COMPLETION_MS;
	int status;

	peer_disconnect(peer);
	status = ask(peer, address, port, parameters, establish);
	if (!status)
		status = wait_for_step(peer, establish ? STEP_ESTABLISHED : STEP_ANSWERED, end);
	if (status && peer->ended)
		fprintf(stderr, "%s, status %d\n", rdma_event_str(peer->end), peer->end_status);
	/* As short as a pause is elsewhere. rxe takes a longer one for packets that are lost. */
	if (!status && establish)
		status = -ibv_modify_qp(peer->id->qp, &pause, IBV_QP_MIN_RNR_TIMER);
	if (status)
		peer_disconnect(peer);
	return status;
}

int peer_connect_unconfirmed(struct peer *peer, const char *address, uint16_t port,
			     const struct peer_accept *parameters)
{
	static const enum ibv_qp_state states[] = { IBV_QPS_RTR, IBV_QPS_RTS };
	int64_t end = now_ms() + COMPLETION_MS;
	struct ibv_qp *qp;
	unsigned int i;
	int status;

	peer_disconnect(peer);
	/* The library ends the handshake of a queue pair that it knows of. */
	status = begin(peer, address, port, parameters, true);
	qp = status ? NULL : peer->id->qp;
	if (!status)
		peer->id->qp = NULL;
	if (!status)
		status = request(peer, parameters, qp->qp_num);
	if (!status)
		status = wait_for_step(peer, STEP_ANSWERED, end);
	for (i = 0; !status && i < 2; i++) {
		struct ibv_qp_attr attr = { .qp_state = states[i] };
		int mask;

		status = rdma_init_qp_attr(peer->id, &attr, &mask) ? -errno : 0;
		if (!status)
			status = -ibv_modify_qp(qp, &attr, mask);
	}
	if (qp)
		peer->id->qp = qp;
	if (status)
		peer_disconnect(peer);
	return status;
}

int peer_confirm(struct peer *peer)
{
	struct ibv_qp *qp;
	int status;

	if (!peer->id)
		return -ENOTCONN;
	/* As for that of which the library does not know. */
	qp = peer->id->qp;
	peer->id->qp = NULL;
	status = rdma_establish(peer->id) ? -errno : 0;
	peer->id->qp = qp;
	return status;
}

int peer_ask(struct peer *peer, const char *address, uint16_t port,
	     const struct peer_accept *parameters)
{
	int status;

	peer_disconnect(peer);
	status = ask(peer, address, port, parameters, false);
	if (status)
		peer_disconnect(peer);
	return status;
}

int peer_wait_answer(struct peer *peer, int timeout_ms)
{
	return wait_for_step(peer, STEP_ANSWERED, now_ms() + timeout_ms);
}

uint64_t peer_memory(struct peer *peer, uint32_t *key)
{
	*key = peer->mr ? peer->mr->rkey : 0;
	return peer->mr ? (uintptr_t)data_buffer(peer) : 0;
}

int peer_wait_end(struct peer *peer, int timeout_ms)
{
	int64_t end = now_ms() + timeout_ms;
	int status = 0;

	while (!status && !peer->told)
		status = progress(peer, end);
	return status;
}

int peer_vanish(struct peer *peer)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };

	if (!peer->id)
		return -ENOTCONN;
	return -ibv_modify_qp(peer->id->qp, &attr, IBV_QP_STATE);
}

int peer_refuse_writes(struct peer *peer)
{
	struct ibv_qp_attr attr = { .qp_access_flags = 0 };

	if (!peer->id)
		return -ENOTCONN;
	return -ibv_modify_qp(peer->id->qp, &attr, IBV_QP_ACCESS_FLAGS);
}

int peer_reject(struct peer *peer, const uint8_t *private_data, uint8_t length)
{
	struct rdma_cm_id *id;
	int status;

	if (!peer->request_count)
		return -ENOTCONN;
	id = peer->requests[0].id;
	forget_request(peer);
	status = rdma_reject(id, private_data, length) ? -errno : 0;
	rdma_destroy_id(id);
	return status;
}

int peer_receive(struct peer *peer, int timeout_ms, uint8_t *buffer, size_t size)
{
	int64_t end = now_ms() + timeout_ms;
	struct message message;
	int status;

	while (!peer->arrived_count) {
		if (!peer->id || peer->ended)
			return -ENOTCONN;
		status = progress(peer, end);
		if (status)
			return status;
	}
	message = peer->arrived[peer->arrived_head];
	peer->arrived_head = (peer->arrived_head + 1) % peer->receives;
	peer->arrived_count--;
	peer->emptied[peer->emptied_count++] = message.slot;
	if (message.length > size)
		return -EMSGSIZE;
	memcpy(buffer, receive_buffer(peer, message.slot), message.length);
	return (int)message.length;
}

int peer_post_receive(struct peer *peer)
{
	if (!peer->emptied_count)
		return -ENOENT;
	return post_receive(peer, peer->emptied[--peer->emptied_count]);
}

static int post(struct peer *peer, struct ibv_send_wr *wr, void *buffer, size_t length)
{
	struct ibv_sge sge = {
		.addr	= (uintptr_t)buffer,
		.length	= (uint32_t)length,
		.lkey	= peer->mr->lkey,
	};
	struct ibv_send_wr *bad;

	wr->sg_list = &sge;
	wr->num_sge = length ? 1 : 0;
	return -ibv_post_send(peer->id->qp, wr, &bad);
}

/* Waits until no more than @count Sends are under way. */
static int wait_for_sends(struct peer *peer, uint32_t count)
{
	int64_t end = now_ms() + COMPLETION_MS;
	int status;

	while (peer->sends_posted - peer->sends_done > count) {
		status = progress(peer, end);
		if (status)
			return status;
	}
	return 0;
}

int peer_send(struct peer *peer, const uint8_t *message, size_t length, const uint32_t *invalidate)
{
	struct ibv_send_wr wr = {
		.wr_id	= WR_ID(WR_SEND, 0),
		.opcode	= invalidate ? IBV_WR_SEND_WITH_INV : IBV_WR_SEND,
	};
	uint8_t *buffer;
	int status;

	if (!peer->id)
		return -ENOTCONN;
	if (length > peer->send_size)
		return -EMSGSIZE;
	status = wait_for_sends(peer, SENDS - 1);
	if (status)
		return status;
	if (invalidate)
		wr.invalidate_rkey = *invalidate;
	buffer = send_buffer(peer, peer->sends_posted % SENDS);
	memcpy(buffer, message, length);
	status = post(peer, &wr, buffer, length);
	if (!status)
		peer->sends_posted++;
	return status;
}

int peer_flush(struct peer *peer)
{
	int status = wait_for_sends(peer, 0);

	return status ? status : peer->send_status;
}

static int move(struct peer *peer, enum ibv_wr_opcode opcode, size_t length, uint64_t address,
		uint32_t key)
{
	struct ibv_send_wr wr = {
		.wr_id		= WR_ID(WR_DATA, 0),
		.opcode		= opcode,
		.wr.rdma	= { .remote_addr = address, .rkey = key },
	};
	int64_t end = now_ms() + COMPLETION_MS;
	int status;

	peer->data_done = false;
	status = post(peer, &wr, data_buffer(peer), length);
	while (!status && !peer->data_done)
		status = progress(peer, end);
	return status ? status : peer->data_status;
}

int peer_write(struct peer *peer, const uint8_t *buffer, size_t length, uint64_t address, uint32_t key,
	       bool immediate)
{
	if (!peer->id)
		return -ENOTCONN;
	if (length > peer->data_size)
		return -EMSGSIZE;
	memcpy(data_buffer(peer), buffer, length);
	return move(peer, immediate ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE, length, address, key);
}

int peer_read(struct peer *peer, uint8_t *buffer, size_t length, uint64_t address, uint32_t key)
{
	int status;

	if (!peer->id)
		return -ENOTCONN;
	if (length > peer->data_size)
		return -EMSGSIZE;
	status = move(peer, IBV_WR_RDMA_READ, length, address, key);
	if (!status)
		memcpy(buffer, data_buffer(peer), length);
	return status;
}

void peer_disconnect(struct peer *peer)
{
	if (!peer->id)
		return;
	if (peer->id->qp) {
		rdma_disconnect(peer->id);
		rdma_destroy_qp(peer->id);
	}
	if (peer->mr)
		ibv_dereg_mr(peer->mr);
	if (peer->cq)
		ibv_destroy_cq(peer->cq);
	if (peer->completions)
		ibv_destroy_comp_channel(peer->completions);
	if (peer->pd)
		ibv_dealloc_pd(peer->pd);
	rdma_destroy_id(peer->id);
	free(peer->memory);
	free(peer->arrived);
	free(peer->emptied);
	/* Listener and requests stay. */
	memset(&peer->id, 0, sizeof(*peer) - offsetof(struct peer, id));
}
