/* Messages: memory for one encoded message and its frame head. */
#ifndef SHEAF_MSG_H
#define SHEAF_MSG_H

#include "core/core.h"
#include "core/fabric.h"
#include "xdr/xdr.h"

struct net;

#define MSG_SHORT (9 * KIB) /* body of a message in a slab: includes a little inline data */
#define MSG_PER_SLAB 28 /* 256 KiB */
#define MSG_LONGS 4 /* long messages that a net with RDMA keeps, of MSG_MAX bytes each */
#define MSG_SLABS_FIRST 9 /* slabs of a net; each link with RDMA may have one more */

/* Memory of several messages, or of a long one; see msg.c. */
struct msg_slab {
	struct list link;
	struct net *net; /* NULL: ended */
	uint32_t n_used;
	size_t bytes; /* of mem */
	bool is_long, is_registered;
	struct fabric_mem registered;
	_Alignas(16) char mem[];
};

/* One message, with space for its frame head in front. */
struct msg {
	struct list link;
	struct net *net;
	struct msg_slab *slab; /* NULL: it has memory of its own */
	uint32_t len, cap; /* bytes of the body */
	uint32_t sent; /* bytes of head and body sent so far */
	uint64_t tag; /* of its frame */
	uint64_t behind; /* a reply: the tag of its request, whose data must be sent before; or 0 */
	uint8_t head[FRAME_HEAD];
	uint8_t body[];
};
struct msg *msg_new(struct net *n, uint32_t cap); /* NULL: out of memory */
struct msg *msg_own(struct net *n, uint32_t cap); /* the same, never of a slab */
void msg_free(struct msg *m); /* accepts NULL */
static inline size_t msg_memory(const struct msg *m)
{
	return sizeof(*m) + m->cap;
}
/* Copies a received message, with its head, into memory of its own if slabs are short; else, or if
 * there is no memory, returns m. */
struct msg *msg_spare_slab(struct msg *m);
void msg_slabs_end(struct net *n); /* the net ends */
/* Encodes one or two values into a message. NULL: too long, or out of memory. */
struct msg *msg_encode(struct net *n, xdr_any f1, void *v1, xdr_any f2, void *v2);

#endif
