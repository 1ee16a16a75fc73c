/* Direct reads, in the three steps of api_direct.c: begun, read without the client, and ended; if
 * one fails, the servers are asked. The expected result of the read stays the same.
 *
 * Between the three steps the client may continue, lose its links, or die: then the read does not
 * end. */
#include <stdlib.h>

#include "sim_priv.h"
#include "sim_world.h"

#define STEP_NS (2 * NSEC_PER_MSEC) /* longest time between two steps */

struct direct_op {
	struct op *op;
	uint32_t number; /* number of op */
	struct client *client;
	struct cfile *file;
	struct cop *cop;
	struct direct_piece pieces[DIRECT_PIECES];
	int n, error;
	uint8_t mem[];
};

static bool is_over(const struct direct_op *d)
{
	return !d->op->busy || d->op->number != d->number || d->op->a->client != d->client;
}

static void next(struct direct_op *d, void (*step)(void *arg))
{
	struct sim *s = &d->op->a->w->sim;
	bool stopped = sim_chance(s, 20000); /* as by SIGSTOP: its lease may run out */

	sim_after(s, sim_below(s, stopped ? 40 * NSEC_PER_SEC : STEP_NS), step, d);
}

/* Copies the data into the memory of the operation. */
static void scatter(const struct direct_op *d)
{
	const uint8_t *p = d->mem;

	for (size_t i = 0; i < d->op->n_iov; p += d->op->iov[i++].iov_len)
		memcpy(d->op->iov[i].iov_base, p, d->op->iov[i].iov_len);
}

static void end(void *arg)
{
	struct direct_op *d = arg;
	struct op *op = d->op;

	if (is_over(d)) {
		free(d);
		return;
	}
	if (client_direct_end(d->file, d->pieces, d->n, d->error)) {
		op->a->w->sim.injected[SIM_DIRECT_READ]++;
		scatter(d);
		d->cop->result = (int64_t)op->total;
		op_judge(op, d->cop);
	} else {
		client_read(d->cop, d->file, op->iov, op->n_iov, op->ext, op->n_ext);
	}
	free(d);
}

static void copy(void *arg)
{
	struct direct_op *d = arg;

	if (is_over(d)) {
		free(d);
		return;
	}
	d->error = direct_read(&d->op->a->node->env, d->pieces, d->n, d->mem);
	next(d, end);
}

bool direct_begin(struct op *op, struct cop *c)
{
	struct direct_op *d;

	if (op->n_ext != 1 || !op->total)
		return false;
	d = sim_alloc(sizeof(*d) + op->total);
	*d = (struct direct_op){
		.op = op, .number = op->number, .client = op->a->client, .file = op->h->cf, .cop = c
	};
	d->n = client_direct_begin(op->h->cf, op->ext[0].offset, op->total, d->pieces);
	if (!d->n) {
		free(d);
		return false;
	}
	next(d, copy);
	return true;
}
