/* sheaf bench: measures Sheaf and what the same machine does without it, in the same run.
 *
 * This file has the command and the rounds. Every round runs every case once, so alternatives are
 * interleaved; a ratio is computed within a round; bars judge the median of the ratios. The first
 * round is a short warm-up, not counted. */
#include "bench/bench_impl.h"

#include <stdlib.h>
#include <unistd.h>

#include "bench/bench.h"

#define DEFAULT_ROUNDS 9
#define DEFAULT_SERVERS 4
#define SLICE_NS (200 * NSEC_PER_MSEC)
#define WARM_NS (20 * NSEC_PER_MSEC)

enum {
	OPT_DIR,
	OPT_SERVERS,
	OPT_META,
	OPT_CLIENTS,
	OPT_SIZES,
	OPT_PIECES,
	OPT_ROUNDS,
	OPT_MOVER,
	OPT_MPI,
	OPT_LONG,
	OPT_BLOCKS,
	OPT_HOSTS,
	OPT_RATE,
	OPT_DELAY,
	OPT_JSON,
	OPT_REPORT
};

const struct bench_kind *const bench_kinds[] = {
	&bench_net,	     &bench_contig,	&bench_latency,
	&bench_meta,	     &bench_lists,	&bench_transfer,
	&bench_blockcolumn,  &bench_tile,	&bench_wan,
	&bench_incast,	     &bench_bank,	&bench_common,
	&bench_registration, &bench_mount,	&bench_mpi,
	&bench_nfs,	     &bench_checkpoint, NULL,
};

static void progress(struct bench *b, const char *what, int round)
{
	if (!isatty(STDERR_FILENO))
		return;
	if (!what)
		fputs("\r\033[K", stderr);
	else if (round < 0)
		fprintf(stderr, "\r\033[Kbench %s: %s", b->kind->name, what);
	else
		fprintf(stderr, "\r\033[Kbench %s: round %d of %d: %s", b->kind->name, round + 1,
			b->rounds, what);
}

/* ---- measuring ---- */

int bench_once_in(struct bench *b, const char *dir, int n, bench_fn *once, uint64_t size,
		  uint32_t width)
{
	struct bench_result r[BENCH_MAX_CLIENTS];
	struct bench_job j = { .once = once, .max_ops = 1, .size = size, .width = width };

	snprintf(j.path, sizeof(j.path), "%s", dir);
	return bench_clients_run(b, &j, n, r);
}

int bench_once(struct bench *b, int n, bench_fn *once, uint64_t size, uint32_t width)
{
	return bench_once_in(b, b->place.scratch, n, once, size, width);
}

int bench_drop_files(struct bench *b)
{
	return bench_once(b, b->most_clients, bench_do_drop, 0, 0);
}

/* The clients run at the same time for about as long: rates are summed, times are not. */
static double figure_of(const struct bench_case *c, const struct bench_result *r)
{
	double sum = 0;

	if (c->figure == BENCH_P99)
		return (double)r[0].p99_ns / 1e3;
	for (int i = 0; i < c->workers; i++) {
		if (!r[i].ops)
			continue;
		if (c->figure == BENCH_LATENCY)
			sum += (double)r[i].ns / (double)r[i].ops / 1e3 / c->workers;
		else
			sum += (double)r[i].ops * 1e9 / (double)r[i].ns;
	}
	if (c->figure == BENCH_BANDWIDTH)
		sum *= (double)c->job.size * MAX(c->job.count, 1) / 1e9;
	return sum;
}

/* System calls so far of all servers that answer. */
static uint64_t server_calls(struct bench *b)
{
	struct sheaf_server s;
	uint64_t sum = 0;

	for (int i = 0; i < b->servers; i++)
		if (sheaf_server_status(b->c->fs, i, CLI_STATUS_MS, &s) == 0 && s.up)
			sum += s.calls;
	return sum;
}

int bench_server_status(struct bench *b, int i, struct sheaf_server *s)
{
	int r = sheaf_server_status(b->c->fs, i, 5 * CLI_STATUS_MS, s);

	if (!r && !s->up)
		r = -ETIMEDOUT;
	if (r)
		cli_fail(b->c, "status", r);
	return r;
}

static int count_requests(struct bench *b, uint64_t *out)
{
	struct sheaf_server s;
	int r;

	for (int i = 0; i < b->servers; i++) {
		r = bench_server_status(b, i, &s);
		if (r)
			return r;
		out[i] = s.requests;
	}
	return 0;
}

int bench_count_requests(struct bench *b, const struct bench_job *j, int n, double *most,
			 double *all)
{
	uint64_t count[3][CONF_MAX_TARGETS];
	struct bench_result results[BENCH_MAX_CLIENTS];
	int r = count_requests(b, count[0]);

	if (!r)
		r = count_requests(b, count[1]);
	if (!r)
		r = bench_clients_run(b, j, n, results);
	if (!r)
		r = count_requests(b, count[2]);
	*most = *all = 0;
	for (int i = 0; !r && i < b->servers; i++) {
		double more =
			(double)(count[2][i] - count[1][i]) - (double)(count[1][i] - count[0][i]);

		*most = MAX(*most, more);
		*all += more;
	}
	return r;
}

static int set_delay(struct bench *b, uint64_t ns)
{
	if (b->hosts.n)
		return bench_hosts_delay(b, ns);
	bench_proxy_delay(b, ns);
	return 0;
}

/* The system calls are counted in the first round only: a server that was asked for its counters
 * sends bulk in shorter chunks for some milliseconds, as it does for any small request. */
static int run_case(struct bench *b, struct bench_case *c, int round, double *value)
{
	struct bench_result r[BENCH_MAX_CLIENTS];
	bool warm = round < 0, counts = round == 0;
	uint64_t calls = 0;
	struct bench_job j = c->job;
	uint64_t ns = c->ns ? c->ns : b->slice_ns;
	int e;

	if (c->wait_idle)
		bench_wait_idle(b);
	if (c->before && warm)
		return 0;
	e = bench_place_sieve(b, !c->never_sieve);
	if (!e && c->delay)
		e = set_delay(b, *c->delay);
	if (!e && c->before)
		e = c->before(b, c);
	if (e)
		return e;
	if (c->custom)
		return c->custom(b, c, value);
	if (!j.all_made)
		j.ns = !warm ? ns : c->ns ? 1 : WARM_NS;
	if (counts)
		calls = server_calls(b);
	e = bench_clients_run(b, &j, c->workers, r);
	if (e)
		return e;
	*value = figure_of(c, r);
	if (!counts)
		return 0;
	c->row->server_calls = server_calls(b) - calls;
	for (int i = 0; i < c->workers; i++) {
		c->row->ops += r[i].ops;
		c->row->client_calls += r[i].calls;
	}
	return 0;
}

static int run_round(struct bench *b, int round)
{
	char what[128];
	double v = 0;
	int r;

	for (size_t i = 0; i < b->n_cases; i++) {
		struct bench_case *c = &b->cases[i];

		if (cli_signal)
			return -EINTR;
		bench_row_text(what, sizeof(what), c->row);
		progress(b, round < 0 ? "warming up" : what, round);
		r = run_case(b, c, round, &v);
		if (r)
			return r;
		if (round >= 0)
			c->row->values[c->row->runs++] = v;
	}
	return 0;
}

static void choose_clients(struct bench *b)
{
	b->n_clients = b->n_given;
	memcpy(b->clients, b->given, sizeof(b->clients));
	for (int i = 0; !b->n_given && i < BENCH_MAX_LIST && b->kind->clients[i]; i++)
		b->clients[b->n_clients++] = b->kind->clients[i];
	if (!b->n_given && b->long_form && b->kind->clients_long)
		b->clients[b->n_clients++] = b->kind->clients_long;
	b->most_clients = 1;
	for (int i = 0; i < b->n_clients; i++)
		b->most_clients = MAX(b->most_clients, b->clients[i]);
}

static int run_kind(struct bench *b)
{
	const struct bench_kind *k = b->kind;
	int r;

	b->n_cases = 0;
	progress(b, "preparing", -1);
	r = k->setup(b);
	for (int i = -1; !r && i < b->rounds; i++)
		r = run_round(b, i);
	if (!r && k->cleanup)
		r = k->cleanup(b);
	if (k->end)
		k->end(b);
	progress(b, NULL, 0);
	if (r)
		return r;
	for (size_t i = 0; i < b->n_rows; i++)
		bench_row_sum_up(&b->rows[i]);
	k->judge(b);
	return 0;
}

static int output(struct bench *b)
{
	const char *dir = b->c->opt[OPT_REPORT];
	struct json_object *json = bench_json(b);
	int status = CLI_OK, r;

	if (dir) {
		r = bench_report(b, dir, json);
		if (r)
			status = cli_fail_host(b->c, dir, r);
	}
	if (b->c->opt[OPT_JSON])
		puts(json_object_to_json_string_ext(json, JSON_C_TO_STRING_PRETTY |
								  JSON_C_TO_STRING_NOSLASHESCAPE));
	else
		status |= bench_print(b);
	if (dir && !status && !b->c->opt[OPT_JSON])
		printf("\nthe report is %s/index.html\n", dir);
	json_object_put(json);
	return status;
}

/* ---- the command ---- */

/* A list of at most BENCH_MAX_LIST numbers up to `most`. */
static int take_list(struct bench *b, const char *option, const char *list, int most, int *out,
		     int *n)
{
	char text[128], *save, *word;
	uint64_t v;
	int found = 0;

	snprintf(text, sizeof(text), "%s", list);
	for (word = strtok_r(text, ",", &save); word; word = strtok_r(NULL, ",", &save)) {
		if (found == BENCH_MAX_LIST || cli_number(word, 1, (uint64_t)most, &v))
			found = -1;
		if (found < 0)
			break;
		out[found++] = (int)v;
	}
	*n = found;
	if (found > 0 && strlen(list) < sizeof(text))
		return CLI_OK;
	return cli_usage(b->c, "%s %s: not a list of at most %d numbers from 1 to %d", option, list,
			 BENCH_MAX_LIST, most);
}

static int take_mover(struct bench *b, const char *name)
{
	for (int i = 0; i < SHEAF_ALL_MOVERS; i++)
		if (strcmp(name, sheaf_mover_name((enum sheaf_mover)i)) == 0) {
			b->mover = (enum sheaf_mover)i;
			return 0;
		}
	return -EINVAL;
}

static int take_options(struct bench *b, uint64_t *servers)
{
	struct cli *c = b->c;
	uint64_t v = 0, metas = 0;
	int r;

	*servers = 0;
	if (c->opt[OPT_SERVERS] && !c->opt[OPT_DIR])
		return cli_usage(c, "--servers goes with --dir: a running file system has its own");
	if (c->opt[OPT_META] && (!c->opt[OPT_DIR] || cli_number(c->opt[OPT_META], 1, 64, &metas)))
		return cli_usage(c, "--meta goes with --dir and a number of servers");
	if (c->opt[OPT_SERVERS] && cli_number(c->opt[OPT_SERVERS], 1, 64, servers))
		return cli_usage(c, "--servers %s: not a number from 1 to 64", c->opt[OPT_SERVERS]);
	b->metas = metas ? (int)metas :
			   (int)cli_metas(*servers ? (uint32_t)*servers : DEFAULT_SERVERS);
	if (c->opt[OPT_ROUNDS] && cli_number(c->opt[OPT_ROUNDS], 1, BENCH_MAX_ROUNDS, &v))
		return cli_usage(c, "--rounds %s: not a number from 1 to %d", c->opt[OPT_ROUNDS],
				 BENCH_MAX_ROUNDS);
	b->given_rounds = (int)v;
	b->rounds = v ? (int)v : DEFAULT_ROUNDS;
	if (c->opt[OPT_MOVER] && take_mover(b, c->opt[OPT_MOVER]))
		return cli_usage(c, "--mover %s: not auto, inline, pack, gather or driven",
				 c->opt[OPT_MOVER]);
	b->mpi = c->opt[OPT_MPI];
	if (b->mpi && strcmp(b->mpi, "mpich") != 0 && strcmp(b->mpi, "openmpi") != 0)
		return cli_usage(c, "--mpi %s: not mpich or openmpi", b->mpi);
	b->long_form = c->opt[OPT_LONG] != NULL;
	b->blocks = c->opt[OPT_BLOCKS] != NULL;
	b->on_hosts = c->opt[OPT_HOSTS] != NULL;
	r = bench_hosts_take(b, c->opt[OPT_RATE], c->opt[OPT_DELAY]);
	if (!r && c->opt[OPT_CLIENTS])
		r = take_list(b, "--clients", c->opt[OPT_CLIENTS], BENCH_MAX_CLIENTS, b->given,
			      &b->n_given);
	if (!r && c->opt[OPT_SIZES])
		r = take_list(b, "--sizes", c->opt[OPT_SIZES], MIB, b->sizes, &b->n_sizes);
	if (!r && c->opt[OPT_PIECES])
		r = take_list(b, "--pieces", c->opt[OPT_PIECES], MIB, b->counts, &b->n_counts);
	return r;
}

/* Why this machine cannot run the benchmark, or NULL. */
static const char *missing(struct bench *b, const struct bench_kind *k)
{
	const char *why = NULL;

	if (b->on_hosts || k->slow_client)
		why = bench_hosts_missing(b, b->delay_ns || (b->on_hosts && k->delays));
	return !why && k->missing ? k->missing(b) : why;
}

/* "all" leaves out benchmarks that this machine cannot run. */
static bool wanted(struct bench *b, const struct bench_kind *k, const struct bench_kind *only)
{
	const char *why;

	if (only)
		return only == k;
	why = missing(b, k);
	if (why)
		fprintf(stderr, "sheaf bench: %s is left out: %s\n", k->name, why);
	return !why;
}

/* Runs one benchmark, from the first process to the last. With --dir each starts with an empty file
 * system, so that its results do not depend on the others. servers 0: the default number. */
static int run_apart(struct bench *b, const struct bench_kind *k, uint32_t servers)
{
	int status, processes;

	b->kind = k;
	choose_clients(b);
	b->rounds = b->given_rounds ? b->given_rounds : k->rounds ? k->rounds : DEFAULT_ROUNDS;
	processes = MAX(BENCH_PAIRS, b->most_clients);
	if (!servers)
		servers = k->servers ? k->servers : DEFAULT_SERVERS;
	progress(b, "starting", -1);
	status = bench_place_open(b, b->dir, servers);
	if (!status && k->open && k->open(b))
		status = CLI_FAILED;
	if (!status)
		status = bench_clients_start(b, processes);
	if (!status)
		status = bench_place_connect(b);
	if (!status && bench_once(b, processes, bench_do_connect, 0, 0))
		status = CLI_FAILED;
	if (!status && run_kind(b))
		status = CLI_FAILED;
	progress(b, NULL, 0);
	bench_clients_stop(b);
	bench_place_close(b);
	return status;
}

static int run_all(struct bench *b, const struct bench_kind *only, uint32_t servers)
{
	int status = CLI_OK;

	for (const struct bench_kind *const *k = bench_kinds; !status && *k; k++)
		if (wanted(b, *k, only))
			status = run_apart(b, *k, servers);
	return status;
}

static const struct bench_kind *find_kind(const char *name)
{
	const struct bench_kind *const *k = bench_kinds;

	while (*k && strcmp((*k)->name, name) != 0)
		k++;
	return *k;
}

/* Checks the options of hosts and their links. */
static int check_links(struct bench *b, const struct bench_kind *only)
{
	if (b->on_hosts && !b->dir)
		return cli_usage(b->c, "--hosts goes with --dir: it starts servers on them");
	if ((b->rate || b->delay) && !b->on_hosts && !(only && only->slow_client))
		return cli_usage(b->c, "--rate and --delay go with --hosts: they are of its links");
	return CLI_OK;
}

static int run_bench(struct cli *c)
{
	const char *name = c->n_args ? c->args[0] : c->opt[OPT_REPORT] ? "all" : NULL;
	const struct bench_kind *only = name ? find_kind(name) : NULL;
	const char *why;
	struct bench *b;
	uint64_t servers;
	int status;

	if (!only && (!name || strcmp(name, "all") != 0))
		return cli_usage(
			c,
			"%s%s: there are net, contig, latency, meta, lists, transfer, blockcolumn, tile, wan, incast, bank, common, registration, mount, mpi, nfs, checkpoint and all",
			name ? "no benchmark " : "which benchmark", name ? name : "");
	b = calloc(1, sizeof(*b));
	if (!b)
		return cli_error(c, "out of memory");
	b->c = c;
	b->name = name;
	b->dir = c->opt[OPT_DIR];
	b->slice_ns = SLICE_NS;
	status = take_options(b, &servers);
	if (!status)
		status = check_links(b, only);
	why = !status && only ? missing(b, only) : NULL;
	if (why)
		status = cli_error(c, "%s: %s", only->name, why);
	if (!status) {
		cli_catch_signals();
		status = run_all(b, only, (uint32_t)servers);
		if (!status)
			status = output(b);
	}
	free(b);
	return status;
}

const struct cli_command cmd_bench = {
	.name = "bench",
	.usage =
		"net|contig|latency|meta|lists|transfer|blockcolumn|tile|wan|incast|bank|common|registration|mount|mpi|nfs|checkpoint|all\n"
		"                   [--dir DIR] [--servers N] [--meta N] [--clients LIST]\n"
		"                   [--sizes LIST] [--pieces LIST] [--rounds N] [--mover NAME]\n"
		"                   [--mpi NAME] [--long] [--blocks] [--hosts] [--rate RATE] [--delay TIME] [--json]\n"
		"                   [--report DIR]",
	.summary = "measure Sheaf, and the same machine without it, in the same run",
	.run = run_bench,
	.max_args = 1,
	.options = { { 0, "dir", "DIR", "on temporary servers below DIR, removed afterwards" },
		     { 0, "servers", "N", "how many of them (4; incast: 16)" },
		     { 0, "meta", "N", "how many of these keep metadata (one for two processors)" },
		     { 0, "clients", "LIST", "numbers of clients to compare, for example 1,4,16" },
		     { 0, "sizes", "LIST",
		       "transfer: only segments of these bytes, for example 64,2048, no typed access; bank: only reads of these bytes" },
		     { 0, "pieces", "LIST",
		       "transfer: only these numbers of segments, 128 or 1024; no typed access" },
		     { 0, "rounds", "N", "how often everything is measured (9; checkpoint: 3)" },
		     { 0, "mover", "NAME",
		       "blockcolumn, tile: auto, inline, pack, gather or driven (auto)" },
		     { 0, "mpi", "NAME",
		       "mpi, checkpoint: mpich or openmpi (the first that is there)" },
		     { 0, "long", NULL,
		       "mount: a million operations before its memory is measured again; bank: 262,144 files and 64 clients; checkpoint: a larger grid, and all runs on each storage" },
		     { 0, "blocks", NULL,
		       "bank: only compare sizes of blocks, 256 bytes to 1 MiB" },
		     { 0, "hosts", NULL,
		       "each of these servers, and all clients, in a network namespace; as root" },
		     { 0, "rate", "RATE", "of each link between hosts, for example 1gbit" },
		     { 0, "delay", "TIME",
		       "added to each round trip between hosts, for example 1ms" },
		     { 0, "json", NULL,
		       "for programs: {\"bench\", \"conditions\", \"rows\", \"bars\"}" },
		     { 0, "report", "DIR",
		       "also write DIR/index.html with plots, and bench.json" } },
	.more = "Without --dir it measures the running file system, in a directory of its own there that is\n"
		"removed afterwards. Exit status 0 means that it ran, whatever the bars say.\n",
	.examples = "  sheaf bench contig --clients 1,4\n"
		    "  sheaf bench transfer --clients 4 --dir /dev/shm\n"
		    "  sheaf bench transfer --sizes 64,2048,65536 --rounds 3\n"
		    "  sheaf bench latency --dir /dev/shm --hosts --rate 10gbit\n"
		    "  sheaf bench all --dir /mnt/fast --report report\n",
};
