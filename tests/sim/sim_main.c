/* sheaf-sim: runs seeds of the simulation.
 *
 * Real time is looked at for the summary only. Metadata is a real LMDB in a directory of its own, in
 * memory where there is such a place. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "sim_world.h"

#define TWICE 5 /* seeds that are run twice */

struct options {
	uint64_t first, last; /* the latter not included */
	bool verbose, hash, selftest, single;
};

/* A simulated crash abandons memory by design. */
__attribute__((visibility("default"))) const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
	return "detect_leaks=0";
}

static char scratch[64];

static void remove_scratch(void)
{
	if (scratch[0])
		rmdir(scratch);
}

static int make_scratch(void)
{
	const char *tmp = getenv("TMPDIR");
	const char *dir = access("/dev/shm", W_OK) == 0 ? "/dev/shm" :
			  tmp && strlen(tmp) < 40	? tmp :
							  "/tmp";

	snprintf(scratch, sizeof(scratch), "%s/sheaf-sim-XXXXXX", dir);
	if (!mkdtemp(scratch)) {
		fprintf(stderr, "sheaf-sim: cannot make %s: %s\n", scratch, strerror(errno));
		scratch[0] = 0;
		return -1;
	}
	atexit(remove_scratch);
	return 0;
}

static int usage(void)
{
	fprintf(stderr,
		"usage: sheaf-sim [--seeds N | --seeds A:B | --seed S] [--verbose] [--hash]\n"
		"       sheaf-sim --selftest\n"
		"\n"
		"Runs seeds A to B-1 (0 to N-1; default 0 to 299). --hash prints the trace hash\n"
		"of each. SHEAF_SIM_SCALE: operations of a client in percent.\n");
	return 2;
}

static int parse_number(const char *s, char **end, uint64_t *out)
{
	if (!s || *s < '0' || *s > '9')
		return -1;
	*out = strtoull(s, end, 10);
	return 0;
}

static int parse_seeds(struct options *o, const char *s)
{
	char *end;

	o->first = 0;
	if (parse_number(s, &end, &o->last))
		return -1;
	if (*end == ':') {
		o->first = o->last;
		if (parse_number(end + 1, &end, &o->last))
			return -1;
	}
	return *end || o->last < o->first ? -1 : 0;
}

static int parse(struct options *o, int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		const char *next = argv[i + 1];
		char *end;

		if (!strcmp(argv[i], "--verbose")) {
			o->verbose = true;
		} else if (!strcmp(argv[i], "--hash")) {
			o->hash = true;
		} else if (!strcmp(argv[i], "--selftest")) {
			o->selftest = true;
		} else if (!strcmp(argv[i], "--seeds") && !parse_seeds(o, next)) {
			i++;
		} else if (!strcmp(argv[i], "--seed") && !parse_number(next, &end, &o->first) &&
			   !*end) {
			o->last = o->first + 1;
			o->single = true;
			i++;
		} else {
			return -1;
		}
	}
	return 0;
}

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void summary(const struct options *o, const struct counters *c, double seconds)
{
	printf("%llu seeds, %llu operations, %llu locks (%llu lost), %llu events",
	       (unsigned long long)(o->last - o->first), (unsigned long long)c->ops,
	       (unsigned long long)c->locks, (unsigned long long)c->ousted,
	       (unsigned long long)c->events);
	for (int i = 0; i < FAULT_KINDS; i++)
		printf(", %llu %s", (unsigned long long)c->faults[i], fault_names[i]);
	printf(", %llu timeouts, %llu files unchecked, %.1f s\n", (unsigned long long)c->soft,
	       (unsigned long long)c->wild, seconds);
}

static int run_seed(const struct options *o, uint64_t seed, struct counters *c)
{
	const char *scale = getenv("SHEAF_SIM_SCALE");
	struct world_opts w = { .dir = scratch, .verbose = o->verbose, .scale = 100 };
	struct counters again = { 0 };
	uint64_t hash, second;

	if (scale && atoi(scale) > 0)
		w.scale = (uint32_t)atoi(scale);
	if (world_run(seed, &w, c, &hash))
		return 1;
	if (o->hash)
		printf("seed %llu hash %016llx\n", (unsigned long long)seed,
		       (unsigned long long)hash);
	fflush(stdout);
	if (o->single || o->hash || seed - o->first >= TWICE)
		return 0;
	if (world_run(seed, &w, &again, &second))
		return 1;
	if (hash == second)
		return 0;
	printf("seed %llu gives two traces: %016llx and %016llx\n", (unsigned long long)seed,
	       (unsigned long long)hash, (unsigned long long)second);
	return 1;
}

int main(int argc, char **argv)
{
	struct options o = { .last = 300 };
	struct counters c = { 0 };
	double start = now_s();

	if (parse(&o, argc, argv))
		return usage();
	if (o.selftest)
		return sim_selftest();
	if (make_scratch())
		return 1;
	log_open(NULL, o.verbose ? LOG_DEBUG : LOG_ERROR);
	if (!o.verbose)
		log_open("/dev/null", LOG_ERROR);
	for (uint64_t s = o.first; s < o.last; s++)
		if (run_seed(&o, s, &c))
			return 1;
	summary(&o, &c, now_s() - start);
	return 0;
}
