/* The write verifier of a file: a number made of the verifiers of all its data servers.
 *
 *   ASK (servers that were not reached yet) -> ANSWER
 *
 * Threads: the loop's. Memory: the operation's arena. Errors: those of the requests, unless the
 * server has answered: each answer, also an error, carries its verifier. */
#include "client/file_impl.h"

enum { ASK, ANSWER };
static const char *const names[] = { [ASK] = "objects", [ANSWER] = "end" };

struct asking {
	uint32_t n; /* calls made */
	struct {
		struct call call;
		struct wire_objstat_args args;
		struct wire_object_res res;
	} of[]; /* per object */
};

bool cfile_verifier(const struct cfile *f, uint64_t *v)
{
	uint64_t all = 1;

	for (uint32_t i = 0; i < f->layout.width; i++) {
		uint64_t one = f->c->peers[f->targets[i]].verifier;

		if (!one)
			return false;
		all = hash_bytes(&one, sizeof(one), all);
	}
	*v = all >> 1; /* fits the result of an operation */
	return true;
}

static void ask(struct cop *op, struct asking *k)
{
	struct cfile *f = op->file;

	for (uint32_t i = 0; i < f->layout.width; i++) {
		struct peer *p = &f->c->peers[f->targets[i]];

		if (p->verifier)
			continue;
		k->of[k->n].args.at = file_access(f, i);
		k->of[k->n].call = call_make(op, OP_OBJSTAT, &k->of[k->n].args, &k->of[k->n].res);
		peer_call(p, &k->of[k->n++].call, &op->q);
	}
}

static bool step(struct req *q)
{
	struct cop *op = cop_of(q);
	struct asking *k = op->state;
	uint64_t v;

	if (q->state == ASK) {
		req_goto(q, ANSWER);
		ask(op, k);
		return true;
	}
	for (uint32_t i = 0; k && i < k->n; i++)
		call_fini(&k->of[i].call);
	if (cfile_verifier(op->file, &v))
		return cop_end(op, (int64_t)v);
	return cop_end(op, q->error ? q->error : -EIO);
}

static const struct req_ops verifier_ops = REQ_OPS("verifier", step, ANSWER, names);

void client_verifier(struct cop *op, struct cfile *f)
{
	struct asking *k = arena_alloc(&op->arena, sizeof(*k) + f->layout.width * sizeof(k->of[0]));

	op->file = f;
	op->state = k;
	if (k)
		k->n = 0;
	cop_start(op, &verifier_ops, !f->unsynced ? -EISDIR : k ? 0 : -ENOMEM);
}
