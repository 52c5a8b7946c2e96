/* SPDX-License-Identifier: GPL-2.0 */
/*
 * One end: a listener and its present connection, or a connection that it has asked for, over
 * librdmacm and libibverbs: what Rust cannot call, because much of it is inline. Functions return
 * a negative errno when they fail.
 */
#ifndef RPCRDMA_PEER_VERBS_H
#define RPCRDMA_PEER_VERBS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct peer;

/* What a connection is accepted or asked for with. */
struct peer_accept {
	const uint8_t *private_data;
	uint8_t private_len;
	/* Receives to post, and the bytes that each of them takes. */
	uint32_t receives;
	uint32_t receive_size;
	/* Bytes that a Send has at most. */
	uint32_t send_size;
	/* Bytes of memory for RDMA Reads and Writes. */
	uint32_t data_size;
	/* Times that the other end repeats a Send for which there is no Receive; 7 is for ever. */
	uint8_t rnr_retries;
	/*
	 * How long either end waits for an acknowledgement, 4.096 us * 2^n, with which a connection is asked for
	 * and which is not repeated then; 0 for what is usual.
	 */
	uint8_t ack_timeout;
};

/* They exit the process if they cannot. */
struct peer *peer_make(void);
struct peer *peer_listen(uint16_t port);

/* Waits for the next request for a connection; the length of its private data. */
int peer_wait_request(struct peer *peer, int timeout_ms, uint8_t *private_data, size_t size);
int peer_accept(struct peer *peer, const struct peer_accept *parameters);
int peer_reject(struct peer *peer, const uint8_t *private_data, uint8_t length);

/*
 * Asks for a connection, whose memory for data the other end may read and write. Without @establish
 * the handshake is left as it is when the answer has come, and there is no queue pair.
 */
int peer_connect(struct peer *peer, const char *address, uint16_t port,
		 const struct peer_accept *parameters, bool establish);
/*
 * As peer_connect() with @establish, but the other end is not told that its answer has come, as if that
 * message were lost. peer_confirm() makes up for that.
 */
int peer_connect_unconfirmed(struct peer *peer, const char *address, uint16_t port,
			     const struct peer_accept *parameters);
int peer_confirm(struct peer *peer);
/* As peer_connect() without @establish, but does not wait for the answer. */
int peer_ask(struct peer *peer, const char *address, uint16_t port,
	     const struct peer_accept *parameters);
/* Waits for it. -ENOTCONN if the other end has refused, -ETIMEDOUT if it says nothing. */
int peer_wait_answer(struct peer *peer, int timeout_ms);
/* Where that memory is, and its handle. */
uint64_t peer_memory(struct peer *peer, uint32_t *key);
/* Waits until the connection manager has told that the other end has ended the connection. */
int peer_wait_end(struct peer *peer, int timeout_ms);
/* Resets the queue pair, so that nothing is answered any more and nobody is told. */
int peer_vanish(struct peer *peer);
/* Has the queue pair refuse RDMA Writes and Reads of the other end, also those of no bytes. */
int peer_refuse_writes(struct peer *peer);

/*
 * Waits for the next message; its length. -ETIMEDOUT if none comes, -ENOTCONN if the connection
 * has ended and no message is left. The Receive is not posted again.
 */
int peer_receive(struct peer *peer, int timeout_ms, uint8_t *buffer, size_t size);
/* Posts the Receive of one message again that peer_receive() took. */
int peer_post_receive(struct peer *peer);

/* Posts a Send, with the invalidation of *@invalidate unless that is NULL. */
int peer_send(struct peer *peer, const uint8_t *message, size_t length, const uint32_t *invalidate);
/* Waits for all Sends; 0, or the ibv_wc_status of the first that failed. */
int peer_flush(struct peer *peer);
/*
 * RDMA Write from @buffer or RDMA Read to it, and the wait for it; 0 or an ibv_wc_status. With @immediate
 * data the Write uses up a Receive of the other end.
 */
int peer_write(struct peer *peer, const uint8_t *buffer, size_t length, uint64_t address, uint32_t key,
	       bool immediate);
int peer_read(struct peer *peer, uint8_t *buffer, size_t length, uint64_t address, uint32_t key);

/* Ends the connection, with what is still posted. */
void peer_disconnect(struct peer *peer);

#endif /* RPCRDMA_PEER_VERBS_H */
