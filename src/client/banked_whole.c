/* Small files as wholes: the entry with the attributes of a handle also has all bytes of the file,
 * with the state that names its blocks. A client that asks for the attributes keeps the bytes; an
 * open that finds the file in the same state reads them from here, without a further conversation.
 *
 * Bytes are used by the rule of blocks: only by an open to which the metadata server told the state
 * that they belong to. How old the attributes beside them are does not matter.
 *
 * Threads: the loop's. Buffers: a few files for each client. Errors: without memory nothing is
 * kept. */
#include <stdlib.h>

#include "client/banked.h"
#include "client/names_impl.h"

#define KEPT 8 /* files */
#define VAIN_MAX 32 /* wholes that were fetched and not read: then they are not fetched ... */
#define TRY_EVERY 64 /* ... but sometimes */

struct kept_wholes {
	struct bank_whole at[KEPT];
	uint32_t next, n_vain, n_looks;
};

static struct kept_wholes *kept(struct client *c)
{
	if (!c->wholes)
		c->wholes = calloc(1, sizeof(*c->wholes));
	return c->wholes;
}

bool whole_wanted(struct client *c)
{
	struct kept_wholes *k = kept(c);

	return k && bank_has_data(c->bank) &&
	       (k->n_vain < VAIN_MAX || ++k->n_looks % TRY_EVERY == 0);
}

static bool is_of(const struct bank_whole *w, uint64_t incarnation, uint64_t ino)
{
	return w->length && w->state.ino == ino && w->state.incarnation == incarnation;
}

void whole_keep(struct client *c, const struct bank_whole *w)
{
	struct kept_wholes *k = kept(c);
	uint32_t i = 0;

	if (!k || !w->length || w->length != w->state.size || w->length > BANK_WHOLE_MAX)
		return;
	while (i < KEPT && !is_of(&k->at[i], w->state.incarnation, w->state.ino))
		i++;
	if (i == KEPT)
		i = k->next++ % KEPT;
	k->at[i].state = w->state;
	k->at[i].length = w->length;
	memcpy(k->at[i].data, w->data, w->length);
	k->n_vain++;
}

const struct bank_whole *whole_of(const struct client *c, uint64_t incarnation, uint64_t ino,
				  uint64_t change)
{
	for (uint32_t i = 0; c->wholes && i < KEPT; i++)
		if (is_of(&c->wholes->at[i], incarnation, ino) &&
		    c->wholes->at[i].state.change == change)
			return &c->wholes->at[i];
	return NULL;
}

const struct bank_whole *whole_find(struct client *c, const struct bank_state *s)
{
	const struct bank_whole *w = whole_of(c, s->incarnation, s->ino, s->change);

	return w && !memcmp(&w->state, s, sizeof(*s)) ? w : NULL;
}

/* Takes all blocks of the call from there. */
void whole_take(struct client *c, const struct bank_whole *w, struct bank_call *call)
{
	uint32_t block = bank_block_bytes(call->bank);

	for (size_t i = 0; i < call->n; i++) {
		struct bank_block *k = &call->blocks[i];

		if (k->length)
			memcpy(k->data, w->data + k->index * block, k->length);
		k->is_found = true;
	}
	c->wholes->n_vain = 0;
	bank_counts(c->bank)->wholes++;
}

/* The file that these blocks are all of; false: they are not, or it is not small. */
static bool make_whole(const struct bank_call *call, struct bank_whole *w)
{
	uint32_t block = bank_block_bytes(call->bank);

	if (!call->state.size || call->state.size > BANK_WHOLE_MAX ||
	    call->n < (call->state.size + block - 1) / block)
		return false;
	w->state = call->state;
	w->length = (uint32_t)call->state.size;
	for (size_t i = 0; i < call->n; i++) {
		const struct bank_block *k = &call->blocks[i];

		if (k->index != i)
			return false;
		if (k->length)
			memcpy(w->data + i * block, k->data, k->length);
	}
	return true;
}

void whole_store(struct cop *op, const struct bank_call *call)
{
	struct client *c = op->c;
	const struct wire_getattr_res *r = &op->res.getattr;
	struct bank_call *look;

	if (c->is_front || !bank_attr_seconds(c->bank) ||
	    (r->cache && !(r->cache & CACHE_ATTRIBUTES)))
		return;
	look = bank_look_new(c->bank);
	if (look && make_whole(call, &look->look->whole) &&
	    attrs_fill(look, &r->at, call->state.incarnation, op->look_stamp)) {
		whole_keep(c, &look->look->whole);
		bank_store(look);
	} else {
		bank_call_free(look);
	}
}
