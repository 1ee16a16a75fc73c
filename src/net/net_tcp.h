/* Private to net_tcp: the link, and the interface between its halves: sending (net_tcp_send.c) and
 * the rest (net_tcp.c). */
#ifndef SHEAF_NET_TCP_H
#define SHEAF_NET_TCP_H

#include "net/backend.h"
#include "net/frame.h"

#define IOV_CALL 1024

struct tcp_link {
	struct link l;
	struct source src;
	struct frame_in in;
	struct list control; /* messages to send */
	struct list bulk; /* transfers to send; the first one is being sent */
	struct list gets; /* transfers whose data have not all arrived */
	struct pace pace;
	struct deferred
		deferred; /* messages wait for the end of the turn, bulk for all links' messages */
	uint32_t n_control, n_pulled; /* queued messages, and queued answers to PULLs */
	size_t queued; /* memory of the queued messages */
	uint64_t in_at, out_at, get_at; /* last progress of each; see stalled() */
	uint64_t got, get_mark; /* bytes of gets since get_at; id of the newest get at that time */
	/* the DATA frame being sent, of the first transfer in bulk */
	bool in_frame;
	uint8_t head[FRAME_HEAD], tail[FRAME_TAIL];
	uint32_t frame_len; /* of its body */
	uint64_t frame_sent; /* of head, body and tail */
	uint8_t *packed; /* at least BOUNCE bytes; NULL until needed */
	uint64_t packed_at; /* if packed_len: the body from this byte to its end is in `packed` */
	uint64_t packed_len;
	/* the DATA frame being received */
	struct xfer *rx_get;
	struct net_desc *rx_desc;
	uint64_t rx_at; /* its position in the stream */
	bool is_unpacking; /* the last requested bytes go through the scratch memory ... */
	bool is_direct; /* ... or to the preferred destination of a get */
	uint64_t next_id;
	/* see inflow.c: the last period in which it received, segments out of order, its window */
	uint64_t inflow_period;
	uint32_t out_of_order, window;
	bool connecting;
	bool got_bulk; /* a transfer is complete in its buffers: run the waiting request first */
};

static inline struct tcp_link *tcp_of(struct link *l)
{
	return container_of(l, struct tcp_link, l);
}

static inline struct env *env_of(struct tcp_link *t)
{
	return t->l.net->loop->env;
}

/* Counts n system calls for the link. */
static inline void count_calls(struct tcp_link *t, unsigned n)
{
	t->l.net->loop->calls += n;
	t->l.account->calls += n;
}

/* Nothing waits to be sent. */
static inline bool tcp_is_idle(const struct tcp_link *t)
{
	return list_empty(&t->control) && list_empty(&t->bulk);
}

/* ---- inflow.c ---- */

/* Bytes have arrived: adapts the link's receive window. */
void tcp_note_inflow(struct tcp_link *t, size_t bytes);

/* ---- net_tcp.c ---- */

extern const struct net_ops tcp_ops;

void tcp_watch(struct tcp_link *t, unsigned events);
bool tcp_retract(struct link *l, struct net_desc *d);
void tcp_get(struct link *l, const struct wire_mem_desc *d, uint64_t at, const struct iovec *dst,
	     size_t n, struct net_direct *direct, struct req *q);

/* Starts the stall timer if bytes are due in either direction. */
void tcp_watch_stalls(struct tcp_link *t);

/* ---- net_tcp_send.c ---- */

/* Some pieces of stream bytes [at, at + len) of a client's memory. True: packing them is cheaper
 * than passing them to the kernel one by one. */
bool tcp_look(struct tcp_link *t, struct net_desc *d, uint64_t at, uint64_t len, struct iovec *out,
	      size_t max, size_t *n, uint64_t *got);

/* Counts n bytes of a client's data that went through its link. */
void tcp_moved(struct tcp_link *t, uint64_t n, bool packed);

/* Sends until the socket is full or the link has used its turn; an error closes the link. */
void tcp_flush(struct tcp_link *t);

/* Queues a transfer. May close the link. */
void tcp_send_bulk(struct tcp_link *t, struct xfer *x);

/* Exposed memory is about to be withdrawn. 0, or the error that must close the link. */
int tcp_send_retract(struct tcp_link *t, struct net_desc *d);

/* The link closes: sends messages that were delayed to the end of the turn, if the socket takes
 * them; drops the rest. */
void tcp_send_last(struct tcp_link *t);
void tcp_drop_control(struct tcp_link *t);

void tcp_send_deferred(struct deferred *d);
void tcp_send(struct link *l, struct msg *m);
void tcp_put(struct link *l, const struct wire_mem_desc *d, uint64_t at, const struct iovec *src,
	     size_t n, struct req *q);
void tcp_put_file(struct link *l, const struct wire_mem_desc *d, uint64_t at, int file,
		  const struct extent *ext, const struct iovec *mapped, size_t n, struct req *q);

#endif
