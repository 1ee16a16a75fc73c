/* What link.c offers to the backends, and what they offer to it. Private to net. */
#ifndef SHEAF_BACKEND_H
#define SHEAF_BACKEND_H

#include "net/net.h"

/* A transfer under way on a link; from the spare list of its net. */
struct xfer {
	struct list link;
	struct net *net;
	struct req *q; /* who waits, or NULL */
	uint64_t tag, at, id; /* stream, first byte, number of a pull */
	uint64_t len, done; /* done: bytes in whole frames, or received */
	const struct iovec *iov; /* server side */
	size_t n;
	struct net_direct *direct; /* or NULL: another place for the bytes of a get */
	const struct extent *ext; /* or pieces of a file, n of them; with iov: the same, mapped */
	int file;
	uint64_t zero_to; /* the file does not hold what is before this place any more */
	struct net_desc *desc; /* client side; NULL: retracted */
	int32_t status; /* sent behind the data */
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
int loop_listen(struct net *n, const char *address, char *err, size_t err_len);
int loop_dial(struct net *n, struct peer *p, const char *address, uint32_t target,
	      struct link **out);

/* Link core: refs start at 1, the net's. */
void link_init(struct link *l, struct net *n, const struct net_ops *ops, struct peer *p,
	       uint32_t target);
/* An accepted link whose origin is known: it may displace another that has proved nothing. */
void link_admit(struct link *l);
/* It goes by the shorter way of this host, dialled by that user: the proofs say so, so that nobody in between can pass them on. */
void link_set_local(struct link *l, uint32_t user);
void link_connected(struct link *l); /* a dialled one: begins the handshake */
/* A message came; takes m. Non-zero: the link is closed. */
int link_message(struct link *l, uint32_t kind, uint64_t tag, struct msg *m);
/* May a frame with this head come now? 0 or -EPROTO. */
int link_check_head(struct link *l, const struct wire_frame_head *h);
struct net_desc *link_desc(struct link *l, uint64_t tag);

/* Upcalls into peer.c */
void peer_link_up(struct peer *p, struct link *l);
void peer_map(struct peer *p, uint32_t version);
void peer_link_down(struct peer *p, struct link *l, int error);
int peer_reply(struct peer *p, struct link *l, uint64_t tag, struct msg *m); /* takes m */

/* ---- pace.c: how much a link moves in one turn of the loop ---- */

struct allowance {
	uint64_t turn, left; /* bytes, in that turn of the loop */
};
struct pace {
	struct allowance send, receive;
	uint64_t bulk_at; /* when bulk last began to move, 0: never */
	uint64_t moved; /* the turn of the loop in which it last did */
};
/* The link has work for us; bulk: some is on its way. */
void pace_heard(const struct link *l, const struct pace *p, bool bulk);
/* Bytes of bulk for one frame, or one call. */
uint64_t pace_chunk(const struct link *l);
/* Has it had its turn? It goes on in the next one. */
bool pace_over(const struct link *l, struct allowance *a);
void pace_use(const struct link *l, struct pace *p, struct allowance *a, size_t bytes);

#endif
