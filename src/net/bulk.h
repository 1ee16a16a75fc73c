/* Bulk transfers: "move these local buffers to or from that stream of the peer's memory".
 *
 * A client exposes a view of the user's memory for one request; the server puts into it and gets
 * from it by stream position; only the backend knows how. A reply is sent behind the data of its
 * request. */
#ifndef SHEAF_BULK_H
#define SHEAF_BULK_H

#include "core/core.h"
#include "layout/layout.h"
#include "net/costs.h"
#include "xdr/xdr.h"

struct link;

/* Local memory that the peer may access for one request. Embedded in the call. */
struct net_desc {
	struct list link;
	uint64_t tag; /* 0: not exposed */
	struct view *view;
	int access; /* CAP_READ: the peer reads it; CAP_WRITE: the peer writes into it */
	enum net_method method; /* the caller's choice */
	bool packs; /* the next pieces will probably be packed: a look at a few of them is enough */
	bool tells; /* the caller will say is_whole; else unwritten bytes keep their value */
	bool is_whole; /* before net_retract(): the peer has written all bytes */
	int error; /* -EFAULT: a part of this memory is not mapped; or the error of a put */
	void (*retracted)(struct net_desc *d); /* a retract that takes time has completed */
	uint64_t moved; /* when its bytes last moved or were pulled */
	struct wire_bytes keys; /* of the backend; sent in the request */
	struct list key; /* of the backend */
	void *impl; /* of the backend */
};

/* A preferred destination for the first bytes of a get: they go there instead of to the buffers
 * while may() returns true. may() is called before each such read. A backend may ignore this. */
struct net_direct {
	bool (*may)(struct net_direct *d);
	const struct iovec *iov;
	size_t n;
	uint64_t len; /* of iov and of the transfer: no more bytes than these go there */
	uint64_t done; /* bytes stored there, the rest is in the buffers; -EFAULT also ends it */
};

/* Client: makes a view of user memory reachable for one request. The view and d must live until the
 * retract has completed. -ECONNRESET: the link is closing. With `tells`, what the peer writes may
 * come through a buffer: if d->is_whole is not set before the retract, none of it may reach the
 * memory, and d->error is -ENODATA. */
int net_expose(struct link *l, struct view *mem, int access, enum net_method method, bool tells,
	       uint64_t tag, struct net_desc *d);
/* Ends the exposure. True: the peer can no longer access that memory, all bytes are in their places
 * and d->error is final. False: that takes time; retracted() is called from the loop, at the latest
 * when the link has closed. Where net_peer_moves(), the request must have been answered. */
bool net_retract(struct link *l, struct net_desc *d, void (*retracted)(struct net_desc *d));
/* The peer, not this process, moves the bytes: exposed memory is safe after the reply only, or when
 * the link has closed. */
bool net_peer_moves(const struct link *l);
/* Server: moves bytes [at, at + sum(iov)) of the stream that d describes to or from local buffers.
 * The iovecs are lent until q continues with req_done(q, error, bytes). A broken link ends the
 * transfer with -ECONNRESET. */
void net_put(struct link *l, const struct wire_mem_desc *d, uint64_t at, const struct iovec *src,
	     size_t n, struct req *q);
void net_get(struct link *l, const struct wire_mem_desc *d, uint64_t at, const struct iovec *dst,
	     size_t n, struct net_direct *direct, struct req *q); /* direct may be NULL */
/* Sends straight from a file whose pages are in the page cache, if the backend supports it
 * (net_can_put_file). What the file no longer holds arrives as zeros. `mapped` (or NULL) has the
 * same pieces as memory, from object_map(): then many of them leave in one system call. */
bool net_can_put_file(const struct link *l);
/* True: without `mapped`, pages are not copied until the peer reads them. */
bool net_lends_pages(const struct link *l);
void net_put_file(struct link *l, const struct wire_mem_desc *d, uint64_t at, int file,
		  const struct extent *ext, const struct iovec *mapped, size_t n, struct req *q);

#endif
