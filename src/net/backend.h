/* What link.c offers to the backends, and the backends to link.c. Private to net. */
#ifndef SHEAF_BACKEND_H
#define SHEAF_BACKEND_H

#include "net/bulk.h"
#include "net/link.h"
#include "net/msg.h"
#include "net/net.h"

struct peer;

/* Bits of HELLO and CHALLENGE. FETCH: this end knows FETCH and WORKING, too. */
enum { BACKEND_TCP = 1, BACKEND_LOOPBACK = 2, BACKEND_RDMA = 4, BACKEND_FETCH = 8 };

#define NET_SCRATCH (64 * KIB)
uint8_t *net_scratch(struct net *n); /* allocates n->scratch; NULL: out of memory */

/* A backend: how links of one medium send and transfer. */
struct net_ops {
	const char *name;
	/* Sends behind all data of the tag m->behind. The head is encoded; takes m. */
	void (*send)(struct link *l, struct msg *m);
	int (*expose)(struct link *l, struct net_desc *d);
	/* Called once for each descriptor. True: nothing can reach its memory any more. False:
	 * later; then the backend calls link_desc_end(). On a link that is shut: always true. */
	bool (*retract)(struct link *l, struct net_desc *d);
	bool peer_moves; /* see net_peer_moves() */
	void (*put)(struct link *l, const struct wire_mem_desc *d, uint64_t at,
		    const struct iovec *src, size_t n, struct req *q);
	/* NULL: not supported by this backend */
	void (*put_file)(struct link *l, const struct wire_mem_desc *d, uint64_t at, int file,
			 const struct extent *ext, const struct iovec *mapped, size_t n,
			 struct req *q);
	void (*get)(struct link *l, const struct wire_mem_desc *d, uint64_t at,
		    const struct iovec *dst, size_t n, struct net_direct *direct, struct req *q);
	/* Ends all transfers with `error`, and then calls link_shut(), at once or, unless `now`,
	 * later: when nothing can reach their buffers or exposed memory any more. */
	void (*shut)(struct link *l, int error, bool now);
	void (*destroy)(struct link *l);
};

/* A transfer in progress on a link; from the free list of its net. */
struct xfer {
	struct list link;
	struct net *net;
	struct req *q; /* the waiting request, or NULL */
	uint64_t tag, at, id; /* stream, first byte, number of the PULL */
	uint64_t len, done; /* done: bytes in whole frames sent, or received */
	uint64_t asked; /* a get: when its PULL was sent; else 0 */
	bool is_alone; /* a get: the link had no other one then */
	const struct iovec *iov; /* server side */
	size_t n;
	struct net_direct *direct; /* preferred destination for the bytes of a get, or NULL */
	const struct extent *ext; /* n pieces of a file, or NULL; with iov: the same, mapped */
	int file;
	uint64_t zero_to; /* the file no longer holds the bytes before this position */
	struct net_desc *desc; /* client side; NULL: retracted */
	int32_t status; /* sent after the data */
	struct msg *reply; /* of the request: sent after all its data; or NULL */
};
struct xfer *xfer_new(struct net *n, uint64_t tag, uint64_t at, const struct iovec *iov,
		      size_t n_iov, struct req *q); /* NULL: out of memory */
void xfer_end(struct xfer *x, int error);

struct acceptor {
	struct list in_net;
	struct net *net;
	void (*close)(struct acceptor *a); /* frees it */
};

int tcp_listen(struct net *n, const char *address, char *err, size_t err_len);
int tcp_dial(struct net *n, struct peer *p, const char *address, uint32_t target,
	     struct link **out);
struct link *tcp_accepted(struct net *n, int fd); /* or NULL: out of memory */
int loopback_listen(struct net *n, const char *address, char *err, size_t err_len);
int loopback_dial(struct net *n, struct peer *p, const char *address, uint32_t target,
		  struct link **out);

bool net_is_loopback(const char *address);
/* Dials a server of this host over its Unix socket. Fails at once if there is none, if Unix sockets
 * are switched off (-EOPNOTSUPP), or if the server cannot accept now. */
int link_dial_local(struct net *n, struct peer *p, const char *address, uint32_t target,
		    struct link **out);

/* Initialises the common part of a link. refs starts at 1, held by the net. */
void link_init(struct link *l, struct net *n, const struct net_ops *ops, struct peer *p,
	       uint32_t target);
/* For an accepted link with a known origin: may close another link that has no proof yet. */
void link_admit(struct link *l);
/* The link uses the Unix socket and was dialled by that uid. Both go into the proofs, so a process
 * in between cannot relay them. */
void link_set_local(struct link *l, uint32_t user);
void link_connected(struct link *l); /* dialled link: begins the handshake */
/* A message arrived; takes m. Non-zero: the link is closed. */
int link_message(struct link *l, uint32_t kind, uint64_t tag, struct msg *m);
/* Is a frame with this head allowed now? 0 or -EPROTO. */
int link_check_head(struct link *l, const struct wire_frame_head *h);
int link_check_rdma(struct link *l, const struct wire_frame_head *h); /* that arrived by RDMA */
struct net_desc *link_desc(struct link *l, uint64_t tag);
/* A retract that took time has completed. */
void link_desc_end(struct net_desc *d);
#define QUEUE_MAX 1024 /* frames queued on one link, per kind */
/* True: so many queued messages are more than a correct client can cause. */
bool link_queue_is_over(const struct link *l, uint32_t messages, size_t bytes);
/* The backend has ended all transfers of a closing link: now it is closed. */
void link_shut(struct link *l);

/* ---- depth.c: how many windows of a request are in flight ---- */

/* The data of a get begin to arrive. */
void link_note_delay(struct link *l, const struct xfer *x);

/* ---- inflow.c: how much all servers send to this process at once ---- */

/* Begins a new period if one is due. */
void inflow_turn(struct inflow *f, uint64_t now);
/* The receive window of a link that received in this period; 0: no limit. is_lossy: segments were
 * lost on their way to it. */
uint32_t inflow_window(struct inflow *f, const struct sock_inflow *seen, bool is_lossy,
		       uint64_t now);

/* ---- pace.c: how much a link moves in one turn of the loop ---- */

struct allowance {
	uint64_t turn, left; /* left: bytes, in this turn of the loop */
};
struct pace {
	struct allowance send, receive;
	uint64_t bulk_at; /* when bulk last began to move; 0: never */
	uint64_t moved; /* turn of the loop in which it last did */
};
/* The link has work for this process. bulk: some of it is in flight. */
void pace_note_work(const struct link *l, const struct pace *p, bool bulk);
/* Bytes of bulk for one frame or one system call. */
uint64_t pace_chunk(const struct link *l);
/* True: the link has used its allowance and continues in the next turn of the loop. */
bool pace_over(const struct link *l, struct allowance *a);
void pace_use(const struct link *l, struct pace *p, struct allowance *a, size_t bytes);

#endif
