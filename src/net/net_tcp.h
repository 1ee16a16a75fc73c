/* Private to net_tcp: a link, and what its two halves, sending (net_tcp_send.c) and the rest (net_tcp.c), need of each other. */
#ifndef SHEAF_NET_TCP_H
#define SHEAF_NET_TCP_H

#include "net/backend.h"
#include "net/frame.h"

#define IOV_CALL 1024
#define QUEUE_MAX 1024 /* frames that wait to be sent on one link, of each kind */

struct tcp_link {
	struct link l;
	struct source src;
	struct frame_in in;
	struct list control; /* messages to send */
	struct list bulk; /* transfers to send, the first one is being sent */
	struct list gets; /* transfers whose data are to come */
	struct pace pace;
	struct late late; /* messages of this turn wait for each other, bulk for those of all links */
	uint32_t n_control, n_pulled; /* messages, and answers to pulls, that wait to be sent */
	size_t queued; /* memory of the messages */
	uint64_t in_at, out_at, get_at; /* when each last got on; see stalled() */
	uint64_t got,
		get_mark; /* since get_at: bytes that came; the last transfer that was due then */
	/* the DATA frame being sent: that of the first transfer of bulk */
	bool in_frame;
	uint8_t head[FRAME_HEAD], tail[FRAME_TAIL];
	uint32_t frame_len; /* of its body */
	uint64_t frame_sent; /* of head, body and tail */
	uint8_t *packed; /* BOUNCE bytes or more; or NULL until they are needed */
	uint64_t packed_at; /* from this byte of the body on it is there, if packed_len; to its end */
	uint64_t packed_len;
	/* the DATA frame being received */
	struct xfer *rx_get;
	struct net_desc *rx_desc;
	uint64_t rx_at; /* its place in the stream or the transfer */
	bool unpacks; /* what was last asked for comes through the scratch memory ... */
	bool directly; /* ... or goes to the better place of a get */
	uint64_t next_id;
	bool connecting;
	bool got_bulk; /* a transfer has all its data in buffers: whoever waits for them goes first */
};

static inline struct tcp_link *tcp(struct link *l)
{
	return container_of(l, struct tcp_link, l);
}

static inline struct env *env_of(struct tcp_link *t)
{
	return t->l.net->loop->env;
}

/* So many calls of the system were made for it. */
static inline void count_calls(struct tcp_link *t, unsigned n)
{
	t->l.net->loop->calls += n;
	t->l.account->calls += n;
}

/* Nothing waits to be sent. */
static inline bool idle(const struct tcp_link *t)
{
	return list_empty(&t->control) && list_empty(&t->bulk);
}

/* ---- net_tcp.c ---- */

void tcp_watch(struct tcp_link *t, unsigned events);

/* A link that is owed bytes, or owes some, must get on from now on. */
void tcp_mind_stalls(struct tcp_link *t);

/* ---- net_tcp_send.c ---- */

/* The pieces of stream bytes [at, at + len) of a client's memory, some of them; true: they had better be copied than given to
 * the system. */
bool tcp_look(struct tcp_link *t, struct net_desc *d, uint64_t at, uint64_t len, struct iovec *out,
	      size_t max, size_t *n, uint64_t *got);

/* So many bytes of a client's data went through its link. */
void tcp_moved(struct tcp_link *t, uint64_t n, bool packed);

/* Sends what there is, until the socket is full or others have their turn; what breaks closes the link. */
void tcp_flush(struct tcp_link *t);

/* A transfer gets in line. May break the link. */
void tcp_send_bulk(struct tcp_link *t, struct xfer *x);

/* Memory of ours is about to go; 0, or why the link cannot go on. */
int tcp_send_retract(struct tcp_link *t, struct net_desc *d);

/* The link closes: messages that waited for others of their turn leave if they can, the rest is dropped. */
void tcp_send_last(struct tcp_link *t);
void tcp_drop_control(struct tcp_link *t);

void tcp_send_late(struct late *late);
void tcp_send(struct link *l, struct msg *m);
void tcp_put(struct link *l, const struct wire_mem_desc *d, uint64_t at, const struct iovec *src,
	     size_t n, struct req *q);
void tcp_put_file(struct link *l, const struct wire_mem_desc *d, uint64_t at, int file,
		  const struct extent *ext, const struct iovec *mapped, size_t n, struct req *q);

#endif
