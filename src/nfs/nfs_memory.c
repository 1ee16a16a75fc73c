/* Buffers of calls and replies, in three sizes. Free buffers are kept, so that a large transfer
 * does not fault its pages in again. The limit is held by the receivers: a connection is read only
 * while there is room for one more call of any size. */
#include <stdlib.h>

#include "nfs/nfs_priv.h"

static const size_t class_size[BUF_CLASSES] = { REPLY_SMALL, LISTING_MAX + REPLY_SMALL,
						RECORD_MAX };
static const unsigned class_keep[BUF_CLASSES] = { 64, 8, 16 };

static int class_of(size_t size)
{
	for (int i = 0; i < BUF_CLASSES; i++)
		if (size <= class_size[i])
			return i;
	return -1;
}

struct nfs_buf *buf_take(struct gateway *g, size_t size)
{
	int i = class_of(size);
	struct nfs_buf *b = i < 0 ? NULL : g->free_bufs[i];

	if (i < 0)
		return NULL;
	if (b) {
		g->free_bufs[i] = b->next;
		g->n_free[i]--;
	} else {
		b = malloc(sizeof(*b) + class_size[i]);
		if (!b)
			return NULL;
		b->size = class_size[i];
	}
	g->memory_used += b->size;
	return b;
}

void buf_give(struct gateway *g, struct nfs_buf *b)
{
	int i;

	if (!b)
		return;
	i = class_of(b->size);
	g->memory_used -= b->size;
	if (g->n_free[i] >= class_keep[i]) {
		free(b);
		return;
	}
	b->next = g->free_bufs[i];
	g->free_bufs[i] = b;
	g->n_free[i]++;
}

bool memory_has_room(const struct gateway *g)
{
	return g->memory_used + RECORD_MAX <= g->memory_max;
}

void memory_end(struct gateway *g)
{
	for (int i = 0; i < BUF_CLASSES; i++)
		for (struct nfs_buf *b; (b = g->free_bufs[i]);) {
			g->free_bufs[i] = b->next;
			free(b);
		}
}
