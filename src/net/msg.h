/* Messages: memory for one encoded message and its frame head. */
#ifndef SHEAF_MSG_H
#define SHEAF_MSG_H

#include "core/core.h"
#include "xdr/xdr.h"

struct net;

#define MSG_SPARE_MAX 256 /* messages on the free list of a net */

/* One message, with space for its frame head in front; from a bounded free list of the net. */
struct msg {
	struct list link;
	struct net *net;
	uint32_t len, cap; /* bytes of the body */
	uint32_t sent; /* bytes of head and body sent so far */
	uint64_t behind; /* a reply: the tag of its request, whose data must be sent before; or 0 */
	uint8_t head[FRAME_HEAD];
	uint8_t body[];
};
struct msg *msg_new(struct net *n, uint32_t cap); /* NULL: out of memory */
void msg_free(struct msg *m); /* accepts NULL */
/* Encodes one or two values into a message. NULL: too long, or out of memory. */
struct msg *msg_encode(struct net *n, xdr_any f1, void *v1, xdr_any f2, void *v2);

#endif
