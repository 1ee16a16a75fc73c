/* Data and holes: each object says where its next data or hole begins; the first of these in the
 * file is the answer.
 *
 *   ASK -> ANSWER (-> ASK with a fresh capability)
 *
 * Threads: the loop's. Memory: the operation's arena. Errors: -ENXIO behind the end of the file. */
#include "client/file_impl.h"

#define MAX_TRIES 100

enum { ASK, ANSWER };
static const char *const names[] = { [ASK] = "objects", [ANSWER] = "end" };

struct seeking {
	uint64_t off;
	bool hole;
	uint32_t tries;
	uint32_t n; /* calls made */
	struct {
		struct call call;
		struct wire_seek_args args;
		struct wire_seek_res res;
	} of[]; /* per object */
};

static void ask(struct cop *op, struct seeking *k)
{
	struct cfile *f = op->file;

	k->n = f->layout.width;
	for (uint32_t i = 0; i < k->n; i++) {
		k->of[i].args = (struct wire_seek_args){
			.at = file_access(f, i),
			.offset = layout_object_size(&f->layout, i, k->off),
			.whence = k->hole ? WHENCE_HOLE : WHENCE_DATA,
		};
		k->of[i].call = call_make(op, OP_SEEK, &k->of[i].args, &k->of[i].res);
		peer_call(&f->c->peers[f->targets[i]], &k->of[i].call, &op->q);
	}
	sizing_start(op, &f->h);
}

/* The end of the file counts as a hole, wherever its objects end. */
static int64_t first_of(const struct cop *op, const struct seeking *k)
{
	uint64_t first = UINT64_MAX, size = MIN(op->attr.size, (uint64_t)INT64_MAX);

	for (uint32_t i = 0; i < k->n; i++)
		if (k->of[i].res.offset != SEEK_NONE)
			first = MIN(first,
				    layout_file_offset(&op->file->layout, i, k->of[i].res.offset));
	if (k->off >= size || (!k->hole && first >= size))
		return -ENXIO;
	return (int64_t)MAX(MIN(first, size), k->off);
}

static bool step(struct req *q)
{
	struct cop *op = cop_of(q);
	struct seeking *k = op->state;

	if (q->state == ASK) {
		req_goto(q, ANSWER);
		cap_take(op->file, &op->call); /* if one was asked for */
		ask(op, k);
		return true;
	}
	for (uint32_t i = 0; k && i < k->n; i++)
		call_fini(&k->of[i].call);
	if (k && k->n && q->error == -EKEYEXPIRED && ++k->tries < MAX_TRIES) {
		q->error = 0;
		k->n = 0;
		req_goto(q, ASK);
		cap_ask(op, op->file, &op->call, q);
		return true;
	}
	call_fini(&op->call);
	if (q->error)
		return cop_end(op, q->error == -EBADF ? -EIO : q->error);
	return cop_end(op, first_of(op, k));
}

static const struct req_ops seek_ops = REQ_OPS("seek", step, ANSWER, names);

void client_seek(struct cop *op, struct cfile *f, uint64_t off, bool hole)
{
	struct seeking *k =
		arena_alloc(&op->arena, sizeof(*k) + f->layout.width * sizeof(k->of[0]));

	op->file = f;
	op->state = k;
	if (k)
		*k = (struct seeking){ .off = off, .hole = hole };
	cop_start(op, &seek_ops, !f->unsynced ? -EISDIR : k ? 0 : -ENOMEM);
}
