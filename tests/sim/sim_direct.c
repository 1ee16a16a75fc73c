/* Reads past the servers of this host, as in api_direct.c: files are lent, read without the client,
 * and returned; if that fails, the servers are asked. The expected result of the read stays the
 * same.
 *
 * Between the three steps the client may continue, lose its links, or die: then nothing is
 * returned. */
#include <stdlib.h>

#include "sim_priv.h"
#include "sim_world.h"

#define PIECES 64
#define STEP_NS (2 * NSEC_PER_MSEC) /* longest time between two steps */

struct visit {
	struct op *op;
	uint32_t number; /* number of op */
	struct client *client;
	struct cfile *file;
	struct cop *cop;
	struct lent lent[PIECES];
	int n, error;
	uint8_t mem[];
};

static bool is_over(const struct visit *v)
{
	return !v->op->busy || v->op->number != v->number || v->op->a->client != v->client;
}

static void next(struct visit *v, void (*step)(void *arg))
{
	struct sim *s = &v->op->a->w->sim;
	bool stopped = sim_chance(s, 20000); /* as by SIGSTOP: its lease may run out */

	sim_after(s, sim_below(s, stopped ? 40 * NSEC_PER_SEC : STEP_NS), step, v);
}

/* Copies the data into the memory of the operation. */
static void scatter(const struct visit *v)
{
	const uint8_t *p = v->mem;

	for (size_t i = 0; i < v->op->n_iov; p += v->op->iov[i++].iov_len)
		memcpy(v->op->iov[i].iov_base, p, v->op->iov[i].iov_len);
}

static void give_back(void *arg)
{
	struct visit *v = arg;
	struct op *op = v->op;

	if (is_over(v)) {
		free(v);
		return;
	}
	if (near_return(v->file, v->lent, v->n, v->error)) {
		op->a->w->sim.injected[SIM_NEAR_READ]++;
		scatter(v);
		v->cop->result = (int64_t)op->total;
		op_judge(op, v->cop);
	} else {
		client_read(v->cop, v->file, op->iov, op->n_iov, op->ext, op->n_ext);
	}
	free(v);
}

static void look(void *arg)
{
	struct visit *v = arg;
	struct env *e;
	uint8_t *to = v->mem;

	if (is_over(v)) {
		free(v);
		return;
	}
	e = &v->op->a->node->env;
	for (int i = 0; i < v->n && !v->error; i++) {
		struct iovec mem = { to, v->lent[i].length };
		ssize_t r = e->file->read_cached(e, v->lent[i].fd, &mem, 1,
						 (off_t)v->lent[i].offset, v->lent[i].memory);

		v->error = r < 0 ? (int)r : (uint64_t)r < v->lent[i].length ? -EAGAIN : 0;
		to += v->lent[i].length;
	}
	next(v, give_back);
}

bool near_begin(struct op *op, struct cop *c)
{
	struct visit *v;

	if (op->n_ext != 1 || !op->total)
		return false;
	v = sim_alloc(sizeof(*v) + op->total);
	*v = (struct visit){
		.op = op, .number = op->number, .client = op->a->client, .file = op->h->cf, .cop = c
	};
	v->n = near_lend(op->h->cf, op->ext[0].offset, op->total, v->lent, PIECES);
	if (!v->n) {
		free(v);
		return false;
	}
	next(v, look);
	return true;
}
