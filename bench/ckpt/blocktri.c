/* Solves block-tridiagonal systems step by step, and takes checkpoints on the way.
 *
 *     blocktri [--OPTION NUMBER]... JOB TO
 *
 * TO is "none", "sheaf" (a job of that name in the file system of SHEAF_CONF), a directory, or
 * "nfs:ADDRESS:PORT:MOUNT-PORT/PATH". On Sheaf it continues from the newest checkpoint if there is
 * one, also with another number of processes; the result is the same. Prints one line of JSON.
 *
 * Processes: one, or those of mpiexec in the build for MPI. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "blocktri.h"

static struct options o = { .grid = 32, .steps = 10, .active = 100, .timeout = 60 };

static const struct number {
	const char *name, *what;
	double *value;
} numbers[] = {
	{ "grid", "points along each edge", &o.grid },
	{ "steps", "the last one; checkpoints are taken before it only", &o.steps },
	{ "every", "steps between checkpoints; 0: none", &o.every },
	{ "active", "percent of the rows that the steps between two checkpoints change",
	  &o.active },
	{ "compare", "number of images at the end, with the same bytes by plain calls",
	  &o.compare },
	{ "die", "all processes kill themselves after this step", &o.die },
	{ "remove", "1: removes its checkpoints at the end", &o.remove },
	{ "async", "1: continues while a checkpoint is written", &o.async },
	{ "incremental", "1: writes only changed pages", &o.incremental },
	{ "rate", "bytes per second that a process writes in the background", &o.rate },
	{ "chain", "incremental checkpoints behind a full one at most", &o.chain },
	{ "timeout", "seconds for which processes wait for each other", &o.timeout },
};
#define NUMBERS (sizeof(numbers) / sizeof(numbers[0]))

static void usage(void)
{
	if (!rank) {
		fprintf(stderr, "usage: blocktri [--OPTION NUMBER]... JOB TO\n");
		for (size_t i = 0; i < NUMBERS; i++)
			fprintf(stderr, "  --%-12s %s (%g)\n", numbers[i].name, numbers[i].what,
				*numbers[i].value);
	}
	ranks_end();
	exit(2);
}

static void take_number(const char *name, const char *value)
{
	size_t i = 0;
	char *end;

	while (i < NUMBERS && strcmp(numbers[i].name, name) != 0)
		i++;
	if (i == NUMBERS)
		usage();
	*numbers[i].value = strtod(value, &end);
	if (end == value || *end || !(*numbers[i].value >= 0))
		usage();
}

static void take_arguments(int argc, char **argv)
{
	int i = 1;

	for (; i + 1 < argc && strncmp(argv[i], "--", 2) == 0; i += 2)
		take_number(argv[i] + 2, argv[i + 1]);
	if (i + 2 != argc || o.grid < ranks || o.grid > 1000 || o.active > 100)
		usage();
	o.job = argv[i];
	o.to = argv[i + 1];
}

/* ---- the run ---- */

/* Advances one step: all rows, or a part that moves on with each checkpoint. */
static void advance(struct grid *g)
{
	int rows = (int)(g->n * o.active / 100), at = 0;

	rows = rows < 1 ? 1 : rows;
	if (o.every >= 1 && rows < g->n)
		at = (int)((long)(g->step / (uint64_t)o.every) * rows % (g->n - rows + 1));
	grid_advance(g, at, at + rows);
	if (o.die > 0 && g->step == (uint64_t)o.die)
		raise(SIGKILL);
}

static void say_taken(const struct grid *g)
{
	if (!rank) {
		fprintf(stderr, "step %llu\n", (unsigned long long)g->step);
		fflush(stderr);
	}
}

struct result {
	double total, blocked;
	int checkpoints;
	uint64_t hash;
};

static struct result run(struct grid *g, struct images *m)
{
	uint64_t last = (uint64_t)o.steps, every = (uint64_t)o.every;
	struct result r = { 0 };
	double start;

	ranks_wait();
	start = seconds();
	while (g->step < last) {
		advance(g);
		if (!every || g->step % every || g->step >= last)
			continue;
		r.blocked += images_take(m);
		r.checkpoints++;
		say_taken(g);
	}
	images_finish(m);
	ranks_wait();
	r.total = ranks_most(seconds() - start);
	r.hash = grid_hash(g);
	return r;
}

/* ---- the result ---- */

static void print_times(const char *name, const struct times *t)
{
	printf(", \"%s\": [", name);
	for (int i = 0; i < t->n; i++)
		printf("%s%.9g", i ? ", " : "", t->v[i]);
	printf("]");
}

static void print(const struct grid *g, const struct images *m, const struct result *r)
{
	double bytes = ARRAYS * UNKNOWNS * sizeof(double) * (double)g->n * g->n * g->n;

	printf("{\"program\": \"blocktri\", \"processes\": %d", ranks);
	for (size_t i = 0; i < NUMBERS; i++)
		printf(", \"%s\": %g", numbers[i].name, *numbers[i].value);
	printf(", \"bytes\": %.0f, \"restored\": %llu, \"result\": \"%016llx\"", bytes,
	       (unsigned long long)m->restored, (unsigned long long)r->hash);
	printf(", \"total_s\": %.6f, \"blocked_s\": %.6f, \"checkpoints\": %d", r->total,
	       r->blocked, r->checkpoints);
	printf(", \"overlapped\": %s, \"depend\": %d", m->overlapped ? "true" : "false", m->depend);
	print_times("take_s", &m->take);
	print_times("take_bytes", &m->bytes);
	print_times("raw_write_s", &m->raw_write);
	print_times("restore_s", &m->restore);
	print_times("raw_read_s", &m->raw_read);
	printf("}\n");
}

int main(int argc, char **argv)
{
	struct images m;
	struct result r;
	struct grid g;

	ranks_begin(&argc, &argv);
	take_arguments(argc, argv);
	grid_make(&g, (int)o.grid);
	grid_begin(&g);
	images_open(&m, &g, &o);
	r = run(&g, &m);
	images_compare(&m);
	images_close(&m);
	if (!rank)
		print(&g, &m, &r);
	grid_free(&g);
	ranks_end();
	return 0;
}
