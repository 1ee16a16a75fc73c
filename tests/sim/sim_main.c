/* sheaf-sim: runs seeds of the simulation in several processes and sums up what they did.
 *
 * A process takes the next seed when it has finished one; its output goes to a file, which is
 * printed when the process ends. After a failure no process takes another seed. Real time is
 * used for the summary only. Metadata is a real LMDB in its own directory, on tmpfs if there is
 * one. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "sim_scenario.h"
#include "sim_world.h"

#define TWICE 5 /* seeds that are run twice */
#define MAX_JOBS 64

struct options {
	uint64_t first, last; /* `last` is not included */
	uint32_t jobs;
	bool verbose, hash, selftest, single, has_seeds, stats, scenarios, require;
	const char *scenario; /* NULL: all */
};

/* Memory that the processes share. */
struct shared {
	_Atomic uint64_t next; /* next seed */
	_Atomic bool failed;
	struct counters counts[MAX_JOBS];
};

/* A simulated crash leaks memory on purpose. */
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
		"usage: sheaf-sim [--seeds N | --seeds A:B | --seed S] [--jobs N] [--stats]\n"
		"                 [--require] [--verbose] [--hash]\n"
		"       sheaf-sim --selftest\n"
		"       sheaf-sim --scenarios | --scenario NAME [--seed S | --seeds A:B] [--verbose]\n"
		"                 [--hash]\n"
		"\n"
		"Runs seeds A to B-1 (0 to N-1; default 0 to 299), N processes at a time (1).\n"
		"--stats prints how often each fault and each rare situation came about, --hash the\n"
		"trace hash of each seed. --require: fails when one of them never did.\n"
		"SHEAF_SIM_SCALE: operations of a client in percent.\n");
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
		uint64_t n;
		char *end;

		if (!strcmp(argv[i], "--verbose")) {
			o->verbose = true;
		} else if (!strcmp(argv[i], "--hash")) {
			o->hash = true;
		} else if (!strcmp(argv[i], "--stats")) {
			o->stats = true;
		} else if (!strcmp(argv[i], "--require")) {
			o->require = true;
		} else if (!strcmp(argv[i], "--jobs") && !parse_number(next, &end, &n) && !*end &&
			   n >= 1 && n <= MAX_JOBS) {
			o->jobs = (uint32_t)n;
			i++;
		} else if (!strcmp(argv[i], "--selftest")) {
			o->selftest = true;
		} else if (!strcmp(argv[i], "--scenarios")) {
			o->scenarios = true;
		} else if (!strcmp(argv[i], "--scenario") && next) {
			o->scenarios = true;
			o->scenario = next;
			i++;
		} else if (!strcmp(argv[i], "--seeds") && !parse_seeds(o, next)) {
			o->has_seeds = true;
			i++;
		} else if (!strcmp(argv[i], "--seed") && !parse_number(next, &end, &o->first) &&
			   !*end) {
			o->last = o->first + 1;
			o->single = o->has_seeds = true;
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

/* Every row must be above zero in the seeds of `make check`, except for these. */
static bool may_be_zero(const char *what)
{
	return !strcmp(what, "histories too large to check") ||
	       !strcmp(what, sim_injected_names[SIM_CARD_LATE]) || /* scenarios have them */
	       !strcmp(what, sim_injected_names[SIM_CARD_WAITED]); /* credits prevent it */
}

struct table {
	const struct options *o;
	uint64_t seeds;
	bool missing; /* a row that must not be zero is zero */
};

static void row(struct table *t, const char *what, uint64_t n)
{
	if (t->o->stats)
		printf("%-52s %10llu %10.2f\n", what, (unsigned long long)n,
		       t->seeds ? (double)n / (double)t->seeds : 0);
	if (!t->o->require || n || may_be_zero(what))
		return;
	printf("never in these seeds: %s\n", what);
	t->missing = true;
}

/* Prints how often each fault was injected and each situation occurred. */
static bool table(const struct options *o, const struct counters *c)
{
	struct table t = { o, o->last - o->first, false };

	if (o->stats)
		printf("%-52s %10s %10s\n", "", "in all", "per seed");
	for (int i = 0; i < FAULT_KINDS; i++)
		row(&t, fault_names[i], c->faults[i]);
	for (int i = 0; i < SIM_INJECTED; i++)
		row(&t, sim_injected_names[i], c->injected[i]);
	row(&t, "links cut while clients reclaim", c->reclaim_cuts);
	row(&t, "links of servers cut beside a change", c->pair_cuts);
	row(&t, "requests sent again", c->resent);
	row(&t, "operations on contended names", c->race_ops);
	row(&t, "histories of them that were explained", c->races);
	row(&t, "histories too large to check", c->race_unchecked);
	row(&t, "reads of contended bytes that were checked", c->duels);
	row(&t, "... of those: of a write that was cut off", c->duel_cut_reads);
	row(&t, "operations beside another one of the same open file", c->duel_overlaps);
	row(&t, "appends that were acknowledged", c->appends);
	row(&t, "files of appends that were read back", c->append_files);
	row(&t, "looks through directories that move", c->paths);
	row(&t, "... of those: through one that had moved", c->paths_moved);
	for (int i = 0; i < ACL_COUNTS; i++)
		row(&t, acl_count_names[i], c->acl[i]);
	row(&t, "waiting accesses that a fence refused", c->refused);
	row(&t, "holes punched", c->punched);
	row(&t, "copies", c->copies);
	row(&t, "... of those: with bytes of another server", c->copies_far);
	row(&t, "... of those: within one file", c->copies_within);
	row(&t, "... of those: up to the end of the source", c->copies_short);
	row(&t, "... of those: while a server lost power", c->copies_crash);
	row(&t, "copies onto themselves that were refused", c->copies_refused);
	row(&t, "room made", c->rooms);
	row(&t, "... of those: that made the file longer", c->rooms_longer);
	row(&t, "... of those: behind the end, which stayed", c->rooms_kept);
	row(&t, "holes made by fallocate", c->holes);
	row(&t, "... of those: over the end of the file", c->holes_behind);
	row(&t, "zeros made by fallocate", c->zeros);
	row(&t, "... of those: that made the file longer", c->zeros_longer);
	row(&t, "seeks that found data", c->seeks_data);
	row(&t, "seeks that found no more data", c->seeks_none);
	row(&t, "seeks that found a hole", c->seeks_hole);
	row(&t, "seeks that found the end of the file", c->seeks_end);
	row(&t, "copies, allocations and seeks that failed", c->copies_failed);
	row(&t, "objects closed to make room", c->evicted);
	row(&t, "logs of fences written anew", c->compacted);
	row(&t, "locks", c->locks);
	row(&t, "... of those: shared with another client", c->shared_locks);
	row(&t, "locks taken over from a client that was cut off", c->lock_lost);
	row(&t, "targets that joined", c->joins);
	row(&t, "... joins that were broken off and run again", c->joins_again);
	row(&t, "... commands that died meanwhile", c->join_admins);
	row(&t, "... crashes within the format of the target", c->join_formats);
	row(&t, "... crashes of the target", c->join_downs);
	row(&t, "... crashes of a server that tells or publishes the map", c->join_publishers);
	row(&t, "... of those: with the new map in its commit", c->join_commits);
	row(&t, "... times that one server had published it, another not", c->joins_partial);
	row(&t, "... files opened that use the target", c->join_files);
	row(&t, "... clients that had learned of it at the end", c->join_learned);
	return t.missing;
}

/* Returns 0, or 1 if something that must occur did not. */
static int summary(const struct options *o, const struct counters *c, double seconds)
{
	uint64_t seeds = o->last - o->first;
	bool missing = table(o, c);

	printf("%llu seeds, %llu operations, %llu events", (unsigned long long)seeds,
	       (unsigned long long)(c->ops + c->race_ops), (unsigned long long)c->events);
	printf(", %llu timeouts, %llu files and %llu histories unchecked, %.1f s\n",
	       (unsigned long long)c->network_errors, (unsigned long long)c->unchecked,
	       (unsigned long long)c->race_unchecked, seconds);
	return missing;
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

/* One process: runs seeds as long as there are any. */
static int run_seeds(const struct options *o, struct shared *sh, uint32_t job)
{
	uint64_t s;

	if (make_scratch())
		return 1;
	while (!sh->failed && (s = atomic_fetch_add(&sh->next, 1)) < o->last)
		if (run_seed(o, s, &sh->counts[job])) {
			sh->failed = true;
			return 1;
		}
	return 0;
}

static int run_scenarios(const struct options *o)
{
	struct world_opts w = { .dir = scratch, .verbose = o->verbose, .hash = o->hash };

	return make_scratch() || scenarios_run(o->scenario, o->first, o->last, &w);
}

static void copy_out(FILE *from)
{
	char buf[4096];
	size_t n;

	rewind(from);
	while ((n = fread(buf, 1, sizeof(buf), from)) > 0)
		fwrite(buf, 1, n, stdout);
}

/* Runs several processes. Returns 0, or 1 if one of them failed. */
static int run_side_by_side(const struct options *o, struct shared *sh)
{
	FILE *words[MAX_JOBS];
	pid_t pid;
	int status, failed = 0;

	fflush(stdout);
	for (uint32_t i = 0; i < o->jobs; i++) {
		words[i] = tmpfile();
		pid = words[i] ? fork() : -1;
		if (pid == 0) {
			if (dup2(fileno(words[i]), STDOUT_FILENO) < 0)
				_exit(1);
			exit(run_seeds(o, sh, i));
		}
		failed |= pid < 0;
	}
	while (wait(&status) > 0) {
		if (WIFSIGNALED(status))
			printf("a process was ended by signal %d\n", WTERMSIG(status));
		if (status)
			sh->failed = true; /* a process that died within a seed has not set it */
		failed |= status != 0;
	}
	for (uint32_t i = 0; i < o->jobs; i++)
		if (words[i])
			copy_out(words[i]);
	return failed;
}

int main(int argc, char **argv)
{
	struct options o = { .last = 300, .jobs = 1 };
	struct shared *sh =
		mmap(NULL, sizeof(*sh), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct counters sum = { 0 };
	double start = now_s();
	int r;

	if (parse(&o, argc, argv))
		return usage();
	if (o.selftest)
		return sim_selftest();
	if (sh == MAP_FAILED)
		return 1;
	log_open(NULL, o.verbose ? LOG_DEBUG : LOG_ERROR);
	if (!o.verbose)
		log_open("/dev/null", LOG_ERROR);
	if (o.scenarios) {
		if (!o.has_seeds)
			o.last = SCENE_SEEDS;
		return run_scenarios(&o);
	}
	sh->next = o.first;
	r = o.jobs > 1 ? run_side_by_side(&o, sh) : run_seeds(&o, sh, 0);
	if (r)
		return 1;
	for (uint32_t i = 0; i < o.jobs; i++)
		for (size_t k = 0; k < sizeof(sum) / sizeof(uint64_t); k++)
			((uint64_t *)&sum)[k] += ((const uint64_t *)&sh->counts[i])[k];
	return summary(&o, &sum, now_s() - start);
}
