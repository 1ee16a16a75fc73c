/* Memory of messages, from a free list of the net. Threads: the loop's. */
#include <stdlib.h>

#include "net/msg.h"
#include "net/net.h"

#define SPARE_CAP (9 * KIB) /* messages up to this size are reused: includes a little inline data */

struct msg *msg_new(struct net *n, uint32_t cap)
{
	struct msg *m;

	if (cap <= SPARE_CAP && !list_empty(&n->spare_msgs)) {
		m = list_entry(list_pop(&n->spare_msgs), struct msg, link);
		n->n_spare_msgs--;
	} else {
		cap = MAX(cap, (uint32_t)SPARE_CAP);
		m = malloc(sizeof(*m) + cap);
		if (!m)
			return NULL;
		m->cap = cap;
		m->net = n;
	}
	list_init(&m->link);
	m->len = m->sent = 0;
	m->behind = 0;
	return m;
}

void msg_free(struct msg *m)
{
	if (!m)
		return;
	if (m->cap == SPARE_CAP && m->net->n_spare_msgs < MSG_SPARE_MAX) {
		list_push_front(&m->net->spare_msgs, &m->link);
		m->net->n_spare_msgs++;
		return;
	}
	free(m);
}

static bool encode_into(struct msg *m, xdr_any f1, void *v1, xdr_any f2, void *v2)
{
	struct xdr x;

	xdr_encoder(&x, m->body, MIN(m->cap, (uint32_t)MSG_MAX));
	if (!f1(&x, v1) || (f2 && !f2(&x, v2)))
		return false;
	m->len = (uint32_t)xdr_used(&x);
	return true;
}

struct msg *msg_encode(struct net *n, xdr_any f1, void *v1, xdr_any f2, void *v2)
{
	struct msg *m = msg_new(n, SPARE_CAP);

	if (m && encode_into(m, f1, v1, f2, v2))
		return m;
	msg_free(m);
	m = msg_new(n, MSG_MAX);
	if (m && encode_into(m, f1, v1, f2, v2))
		return m;
	msg_free(m);
	return NULL;
}
