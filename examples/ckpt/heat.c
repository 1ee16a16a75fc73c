/* A computation that can be killed at any time: it takes a checkpoint now and then, and continues
 * from the newest one. docs/checkpoint.md explains it.
 *
 *     heat STEPS */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sheaf_ckpt.h"

#define CELLS 1000000

static double now[CELLS], next[CELLS];
static long step;

static void must(const char *what, int result)
{
	if (result >= 0)
		return;
	fprintf(stderr, "%s: %s\n", what, sheaf_ckpt_why());
	exit(1);
}

static void compute(void)
{
	for (long i = 1; i < CELLS - 1; i++)
		next[i] = now[i] + 0.25 * (now[i - 1] - 2 * now[i] + now[i + 1]);
	memcpy(now + 1, next + 1, (CELLS - 2) * sizeof(double));
}

int main(int argc, char **argv)
{
	struct sheaf_ckpt_options o = {
		.size = sizeof(o), .interval_s = 0.5, .signal_now = SIGUSR1, .signal_end = SIGTERM
	};
	long steps = argc > 1 ? atol(argv[1]) : 100;
	struct sheaf_ckpt *c;
	struct sheaf *fs;
	uint64_t number;
	double sum = 0;
	int r;

	if (sheaf_connect(NULL, &fs)) {
		fprintf(stderr, "cannot connect: %s\n", sheaf_why());
		return 1;
	}
	must("open", sheaf_ckpt_open(fs, "heat", NULL, &o, &c));
	must("step", sheaf_ckpt_add(c, "step", &step, NULL, sizeof(step)));
	must("now", sheaf_ckpt_add(c, "now", now, NULL, sizeof(now)));
	r = sheaf_ckpt_restore(c, &number);
	if (r == -ENOENT) {
		now[CELLS / 2] = 1e6;
	} else {
		must("restore", r);
		printf("continues at step %ld\n", step);
	}
	while (step < steps && !sheaf_ckpt_ending(c)) {
		compute();
		step++;
		must("checkpoint", sheaf_ckpt_poll(c));
	}
	must("close", sheaf_ckpt_close(c));
	for (long i = 0; i < CELLS; i++)
		sum += now[i] * (double)(i % 1000);
	printf("step %ld: %.6f\n", step, sum);
	sheaf_disconnect(fs);
	return 0;
}
