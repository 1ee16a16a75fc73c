/* Buffers of calls and replies, in three sizes. Free buffers are kept, so that a large transfer
 * does not fault its pages in again. The limits are held by the receivers. Half of the memory is
 * for messages: a connection is read only while there is room for one more call of any size. The
 * other half is for the data of READs, reserved before a READ is executed: so READs wait only for
 * the end of other READs, and messages that wait behind them do not keep these from ending. */
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

struct nfs_buf *data_take(struct gateway *g, size_t size)
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
	return b;
}

void data_give(struct gateway *g, struct nfs_buf *b)
{
	int i;

	if (!b)
		return;
	i = class_of(b->size);
	if (g->n_free[i] >= class_keep[i]) {
		free(b);
		return;
	}
	b->next = g->free_bufs[i];
	g->free_bufs[i] = b;
	g->n_free[i]++;
}

struct nfs_buf *buf_take(struct gateway *g, size_t size)
{
	struct nfs_buf *b = data_take(g, size);

	if (b)
		g->memory_used += b->size;
	return b;
}

void buf_give(struct gateway *g, struct nfs_buf *b)
{
	if (b)
		g->memory_used -= b->size;
	data_give(g, b);
}

bool memory_has_room(const struct gateway *g)
{
	return g->memory_used + RECORD_MAX <= g->memory_max / 2;
}

bool data_reserve(struct gateway *g, size_t has, size_t bytes)
{
	size_t left = g->memory_max / 2 - g->data_used;

	if (has && has + bytes > left)
		return false;
	if (g->data_is_awaited || bytes > left) {
		g->data_is_awaited = true;
		return false;
	}
	g->data_used += bytes;
	return true;
}

void data_release(struct gateway *g, size_t bytes)
{
	g->data_used -= bytes;
}

void memory_end(struct gateway *g)
{
	for (int i = 0; i < BUF_CLASSES; i++)
		for (struct nfs_buf *b; (b = g->free_bufs[i]);) {
			g->free_bufs[i] = b->next;
			free(b);
		}
}
