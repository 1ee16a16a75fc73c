/* Images of the solver's state, in the way that --to names, and their times. */
#include <stdio.h>
#include <string.h>

#include "blocktri.h"

static void note(struct times *t, double v)
{
	if (t->n < MAX_TIMES)
		t->v[t->n++] = v;
}

/* The time of a call in the slowest process; 0: there is no such call. */
static double timed(struct images *m, void (*call)(struct images *m))
{
	double start;

	if (!call)
		return 0;
	ranks_wait();
	start = seconds();
	call(m);
	return ranks_most(seconds() - start);
}

void images_open(struct images *m, struct grid *g, const struct options *o)
{
	*m = (struct images){ .g = g, .o = o };
	if (strcmp(o->to, "none") == 0)
		return;
	m->way = strcmp(o->to, "sheaf") == 0	? &way_sheaf :
		 strncmp(o->to, "nfs:", 4) == 0 ? &way_nfs :
						  &way_dir;
	m->way->open(m);
}

double images_take(struct images *m)
{
	double start, spent, bytes = 0;

	if (!m->way)
		return 0;
	ranks_wait();
	start = seconds();
	m->way->take(m, &bytes);
	spent = ranks_most(seconds() - start);
	m->taken++;
	note(&m->take, spent);
	note(&m->bytes, (double)ranks_sum((uint64_t)bytes));
	return spent;
}

void images_finish(struct images *m)
{
	if (m->way && m->way->finish)
		m->way->finish(m);
}

static void compare_writes(struct images *m)
{
	for (int i = 0; i < (int)m->o->compare; i++) {
		images_take(m);
		images_finish(m);
		if (i)
			m->way->raw_drop(m);
		note(&m->raw_write, timed(m, m->way->raw_write));
	}
}

void images_compare(struct images *m)
{
	if (!m->way || m->o->compare < 1)
		return;
	compare_writes(m);
	for (int i = 0; m->way->restore && i < (int)m->o->compare; i++) {
		note(&m->restore, timed(m, m->way->restore));
		note(&m->raw_read, timed(m, m->way->raw_read));
	}
	m->way->raw_drop(m);
}

void images_close(struct images *m)
{
	if (m->way)
		m->way->close(m);
}
