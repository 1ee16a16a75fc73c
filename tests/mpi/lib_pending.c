/* Accesses under way: nonblocking ones end in every way that MPI has, and split ones. */
#include "lib_program.h"

#include <stddef.h>

struct batch {
	MPI_Request request[PENDING + 2];
	MPI_Status status[PENDING + 2];
	MPI_Status *to[PENDING + 2]; /* where the status belongs, or NULL */
	int n;
};

static void batch_add(struct batch *b, struct rng *r, MPI_Request request, MPI_Status *to)
{
	int at = rng_below(r, b->n + 1);

	b->request[b->n] = b->request[at];
	b->to[b->n] = b->to[at];
	b->n++;
	b->request[at] = request;
	b->to[at] = to;
}

/* Ends the requests one after the other or in the order in which they are done. */
static void batch_one_by_one(struct program *p, struct batch *b)
{
	uint32_t how = rng_below(&p->mine, 4);

	for (int left = b->n, i = b->n - 1; left;) {
		MPI_Status status;
		int done = 1;

		if (how == 0)
			MPI_Wait(&b->request[i], &status);
		else if (how == 1)
			MPI_Test(&b->request[i], &done, &status);
		else if (how == 2)
			MPI_Waitany(b->n, b->request, &i, &status);
		else
			MPI_Testany(b->n, b->request, &i, &done, &status);
		if (!done)
			continue;
		b->status[i] = status;
		left--;
		i--;
	}
}

static void batch_some(struct batch *b)
{
	MPI_Status status[PENDING + 2];
	int which[PENDING + 2], n;

	for (int left = b->n; left; left -= n) {
		MPI_Waitsome(b->n, b->request, &n, which, status);
		for (int i = 0; i < n; i++)
			b->status[which[i]] = status[i];
	}
}

static void batch_all(struct program *p, struct batch *b)
{
	int done = 0;

	if (rng_one_in(&p->mine, 2))
		MPI_Waitall(b->n, b->request, b->status);
	else
		while (!done)
			MPI_Testall(b->n, b->request, &done, b->status);
}

/* Collectives are done on the reference, and have no request there. */
static void wait_for_reference(struct program *p)
{
	for (int i = 0; i < p->n_pending && n_sides > 1; i++) {
		struct side *s = &p->pending[i]->side[REFERENCE];

		if (s->request != MPI_REQUEST_NULL)
			MPI_Wait(&s->request, &s->status);
	}
}

/* Ends what is under way, together with a message. */
void wait_for_pending(struct program *p)
{
	struct batch b = { .n = 0 };
	int sent = 1, received = 0;
	MPI_Request message[2];

	if (!p->n_pending)
		return;
	MPI_Irecv(&received, 1, MPI_INT, 0, 1, MPI_COMM_SELF, &message[0]);
	MPI_Isend(&sent, 1, MPI_INT, 0, 1, MPI_COMM_SELF, &message[1]);
	for (int i = 0; i < 2; i++)
		batch_add(&b, &p->mine, message[i], NULL);
	for (int i = 0; i < p->n_pending; i++) {
		struct access *a = p->pending[i];

		batch_add(&b, &p->mine, a->side[OURS].request, &a->side[OURS].status);
	}
	wait_for_reference(p);
	if (rng_one_in(&p->mine, 3))
		batch_all(p, &b);
	else if (rng_one_in(&p->mine, 2))
		batch_some(&b);
	else
		batch_one_by_one(p, &b);
	for (int i = 0; i < b.n; i++)
		if (b.to[i])
			*b.to[i] = b.status[i];
	for (int i = 0; i < p->n_pending; i++)
		access_judge(p, p->pending[i]);
	p->n_pending = 0;
}

void end_split(struct program *p)
{
	struct access *a = p->split;

	if (!a)
		return;
	p->split = NULL;
	note(p, "end of %s", kind_info[a->kind].name);
	for (int s = 0; s < n_sides; s++)
		access_end(a, p->file[s], s);
	access_judge(p, a);
}

bool accesses_overlap(struct program *p, struct access *a, struct access *b)
{
	bool a_writes = kind_info[a->kind].is_write, b_writes = kind_info[b->kind].is_write;

	if (!a->length || !b->length || (!a_writes && !b_writes))
		return false;
	if (a->first < b->first + b->length && b->first < a->first + a->length)
		return true;
	/* a write may move the end of the file that cuts off a read */
	return (!a_writes && bytes_before_end(p, a->first, a->length) < a->length) ||
	       (!b_writes && bytes_before_end(p, b->first, b->length) < b->length);
}

bool conflicts_with_pending(struct program *p, struct access *a)
{
	for (int i = 0; i < p->n_pending; i++)
		if (accesses_overlap(p, a, p->pending[i]))
			return true;
	return false;
}
