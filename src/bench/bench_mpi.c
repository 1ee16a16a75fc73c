/* sheaf bench mpi: the MPI programs of bench/mpi, 4 processes each: tiles, block columns,
 * contiguous blocks, and the access pattern of BT-IO. On Sheaf by its MPI-IO library with each
 * method; by the MPI library's own MPI-IO on `sheaf mount`, and on a directory beside the storage.
 *
 * A case either runs a program (job.out), or takes another figure of the run before it. The
 * programs repeat and warm up by themselves, and compare what they read. Ranks yield while they
 * wait (bench_mpi_run.c). */
#include "bench/bench_impl.h"

#define MAX_SPECS 64
#define DUMPS "40" /* of BT-IO, class A */
#define FEW_DUMPS "4" /* for a single round */
#define SLEEP "25" /* ms of computing between two dumps */

enum { WRITE, READ, IO, TOTAL, REQUESTS, ACCESSES, MOVED, EXCHANGED, FIGURES };
static const char *const figure_names[FIGURES] = { "write",    "read",	   "I/O",   "total",
						   "requests", "accesses", "moved", "exchanged" };
static const char *const units[FIGURES] = { "GB/s", "GB/s", "s", "s", "count", "count", "MB", "MB" };

static const struct way {
	const char *name;
	enum bench_mpi_side side;
	const char *method;
	bool never_sieve, tcp, no_io;
} independent[] = { { .name = "typed", .method = "typed" },
		    { .name = "list", .method = "list" },
		    { .name = "sieving", .method = "sieve" },
		    { .name = "multiple", .method = "multiple" },
		    { .name = "mount", .side = BENCH_MPI_MOUNT },
		    { .name = "local", .side = BENCH_MPI_LOCAL } },
  contiguous[] = { { .name = "auto", .method = "auto" },
		   { .name = "mount", .side = BENCH_MPI_MOUNT },
		   { .name = "local", .side = BENCH_MPI_LOCAL } },
  collective[] = { { .name = "none", .side = BENCH_MPI_LOCAL, .no_io = true },
		   { .name = "typed", .method = "typed" },
		   { .name = "two-phase", .method = "twophase" },
		   { .name = "multiple", .method = "multiple" },
		   { .name = "list", .method = "list", .never_sieve = true },
		   { .name = "list + sieving", .method = "list" },
		   { .name = "sieving", .method = "sieve" },
		   { .name = "auto", .method = "auto" },
		   { .name = "typed, tcp", .method = "typed", .tcp = true },
		   { .name = "mount", .side = BENCH_MPI_MOUNT },
		   { .name = "local", .side = BENCH_MPI_LOCAL } };

static const char *const sizes[] = { "512", "2048", "4096" }; /* one for a single round */

static struct bench_mpi_run specs[MAX_SPECS];
static uint32_t n_specs;
static struct bench_mpi_result last;

/* ---- measuring ---- */

static double figure(const struct bench_mpi_result *r, uint32_t which)
{
	switch (which) {
	case WRITE:
		return r->bytes / r->write_s / 1e9;
	case READ:
		return r->bytes / r->read_s / 1e9;
	case IO:
		return r->write_s + r->read_s;
	case TOTAL:
		return r->total_s;
	case REQUESTS:
		return r->requests;
	case ACCESSES:
		return r->accesses;
	case MOVED:
		return r->moved / 1e6;
	default:
		return r->exchanged / 1e6;
	}
}

static int measure(struct bench *b, struct bench_case *c, double *value)
{
	int r = c->job.out ? bench_mpi_run(b, &specs[c->job.way], &last) : 0;

	*value = r ? 0 : figure(&last, c->job.seed);
	return r;
}

/* The programs warm up by themselves: with this, the warm-up round leaves them out. */
static int no_warm_up(struct bench *b, struct bench_case *c)
{
	(void)b;
	(void)c;
	return 0;
}

/* ---- cases ---- */

static size_t n_sizes(const struct bench *b)
{
	return b->rounds == 1 ? 1 : ARRAY_LEN(sizes);
}

static void add_case(struct bench *b, const char *name, const struct way *w, int which, bool runs)
{
	bench_case_add(b,
		       (struct bench_case){
			       .job = { .way = n_specs, .seed = (uint32_t)which, .out = runs },
			       .workers = BENCH_RANKS,
			       .unit = units[which],
			       .wait_idle = runs,
			       .never_sieve = w->never_sieve,
			       .before = no_warm_up,
			       .custom = measure },
		       "%s %s: %s", name, w->name, figure_names[which]);
}

static struct bench_mpi_run spec_of(const char *program, const struct way *w)
{
	return (struct bench_mpi_run){
		.program = program, .side = w->side, .method = w->method, .tcp = w->tcp
	};
}

static void add_rates(struct bench *b, const char *name, const struct way *w,
		      const struct bench_mpi_run *run)
{
	specs[n_specs] = *run;
	specs[n_specs].args[0] = "--rounds";
	specs[n_specs].args[1] = b->rounds == 1 ? "1" : "5";
	add_case(b, name, w, WRITE, true);
	add_case(b, name, w, READ, false);
	n_specs++;
}

static void add_block_columns(struct bench *b)
{
	char name[64];

	for (size_t i = 0; i < n_sizes(b); i++)
		for (size_t k = 0; k < ARRAY_LEN(independent); k++) {
			struct bench_mpi_run run = spec_of("blockcolumn", &independent[k]);

			run.args[2] = "--size";
			run.args[3] = sizes[i];
			snprintf(name, sizeof(name), "blockcolumn %s", sizes[i]);
			add_rates(b, name, &independent[k], &run);
		}
}

static void add_bt(struct bench *b, const struct way *w)
{
	static const int on_servers[] = { REQUESTS, ACCESSES, MOVED };
	struct bench_mpi_run run = spec_of("bt", w);
	const char *const args[] = { "--sleep", SLEEP,
				     "--dumps", b->rounds == 1 ? FEW_DUMPS : DUMPS,
				     "--io",	w->no_io ? "0" : "1" };

	memcpy(run.args, args, sizeof(args));
	run.collective = true;
	specs[n_specs] = run;
	add_case(b, "bt", w, TOTAL, true);
	if (!w->no_io)
		add_case(b, "bt", w, IO, false);
	for (size_t i = 0; w->side == BENCH_MPI_SHEAF && i < ARRAY_LEN(on_servers); i++)
		add_case(b, "bt", w, on_servers[i], false);
	if (w->method && strcmp(w->method, "twophase") == 0)
		add_case(b, "bt", w, EXCHANGED, false);
	n_specs++;
}

static int setup(struct bench *b)
{
	struct bench_mpi_run run;
	int r = bench_mount_open(b);

	n_specs = 0;
	for (size_t i = 0; i < ARRAY_LEN(independent); i++) {
		run = spec_of("tile", &independent[i]);
		add_rates(b, "tile", &independent[i], &run);
	}
	add_block_columns(b);
	for (size_t i = 0; i < ARRAY_LEN(contiguous); i++) {
		run = spec_of("contig", &contiguous[i]);
		add_rates(b, "contig", &contiguous[i], &run);
	}
	for (size_t i = 0; i < ARRAY_LEN(collective); i++)
		add_bt(b, &collective[i]);
	return r;
}

/* ---- judging ---- */

static const struct bench_row *row_of(struct bench *b, const char *name, const char *way, int which)
{
	char what[64];

	snprintf(what, sizeof(what), "%s %s: %s", name, way, figure_names[which]);
	return bench_find(b, what, BENCH_RANKS, 0, 0);
}

/* The speed of `way` / that of another one; need 0: not judged. */
static const struct bench_row *faster(struct bench *b, const char *program, const char *way,
				      const char *other, int which, double need)
{
	const struct bench_row *r;
	char name[64];

	snprintf(name, sizeof(name), "mpi_%s_%s_vs_%s", program, figure_names[which], other);
	for (char *c = name; *c; c++)
		*c = *c == ' ' ? '_' : *c;
	r = bench_ratio(b, name, row_of(b, program, way, which), row_of(b, program, other, which));
	if (need > 0 && b->place.in_memory)
		bench_bar(b, r, BENCH_AT_LEAST, need);
	return r;
}

static void judge_rates(struct bench *b, int which)
{
	char name[64];

	for (size_t i = 1; i < ARRAY_LEN(independent); i++) {
		const char *other = independent[i].name;
		bool is_mount = independent[i].side == BENCH_MPI_MOUNT;

		faster(b, "tile", "typed", other, which, is_mount ? 5 : 0);
		for (size_t k = 0; k < n_sizes(b); k++) {
			snprintf(name, sizeof(name), "blockcolumn %s", sizes[k]);
			bench_paper(b, faster(b, name, "typed", other, which, 0),
				    which == WRITE && strcmp(other, "multiple") == 0 ?
					    "3.5 - 12.1" :
					    NULL);
		}
	}
	faster(b, "contig", "auto", "local", which, 0.25);
	faster(b, "contig", "auto", "mount", which, 0.9);
}

/* I/O times of BT-IO / that of typed; the paper's: table 5, and for TCP table 4 of the other. */
static void judge_bt(struct bench *b)
{
	static const struct {
		const char *name, *way, *paper;
		double need;
	} times[] = { { "mpi_bt_twophase", "two-phase", "1.90", 1.6 },
		      { "mpi_bt_multiple", "multiple", "6.86", 5 },
		      { "mpi_bt_list", "list", "1.24", 0 },
		      { "mpi_bt_sieving", "sieving", "5.57", 0 },
		      { "mpi_bt_tcp", "typed, tcp", "2.54", 0 },
		      { "mpi_bt_auto", "auto", NULL, 0 },
		      { "mpi_bt_mount", "mount", NULL, 0 },
		      { "mpi_bt_local", "local", NULL, 0 } };
	const struct bench_row *typed = row_of(b, "bt", "typed", IO), *r;

	for (size_t i = 0; i < ARRAY_LEN(times); i++) {
		r = bench_ratio(b, times[i].name, row_of(b, "bt", times[i].way, IO), typed);
		bench_paper(b, r, times[i].paper);
		if (times[i].need > 0 && b->place.in_memory)
			bench_bar(b, r, BENCH_AT_LEAST, times[i].need);
	}
	r = bench_scaled(b, "mpi_bt_requests", row_of(b, "bt", "typed", REQUESTS), 1,
			 units[REQUESTS]);
	if (b->rounds > 1)
		bench_bar(b, r, BENCH_AT_MOST, 1360);
}

/* Tables of the papers with the same figures here: those of table 6 for one process, or one of 4
 * servers. */
static const struct paper_cell {
	const char *table, *way, *paper;
	int which;
} cells[] = {
	{ "table5_time", "none", "165.6", TOTAL },
	{ "table5_time", "multiple", "180.0", TOTAL },
	{ "table5_time", "two-phase", "169.6", TOTAL },
	{ "table5_time", "list", "168.2", TOTAL },
	{ "table5_time", "typed", "167.7", TOTAL },
	{ "table5_time", "sieving", "177.3", TOTAL },
	{ "table5_io", "multiple", "14.4", IO },
	{ "table5_io", "two-phase", "4.0", IO },
	{ "table5_io", "list", "2.6", IO },
	{ "table5_io", "typed", "2.1", IO },
	{ "table5_io", "sieving", "11.7", IO },
	{ "table6_requests", "multiple", "163840", REQUESTS },
	{ "table6_requests", "two-phase", "160", REQUESTS },
	{ "table6_requests", "list", "1360", REQUESTS },
	{ "table6_requests", "typed", "1360", REQUESTS },
	{ "table6_requests", "sieving", "82040", REQUESTS },
	{ "table6_accesses", "multiple", "163840", ACCESSES },
	{ "table6_accesses", "two-phase", "3200", ACCESSES },
	{ "table6_accesses", "list", "163840", ACCESSES },
	{ "table6_accesses", "typed", "7680", ACCESSES },
	{ "table6_accesses", "sieving", "85060", ACCESSES },
	{ "table6_moved", "multiple", "200", MOVED },
	{ "table6_moved", "two-phase", "200", MOVED },
	{ "table6_moved", "list", "200", MOVED },
	{ "table6_moved", "typed", "200", MOVED },
	{ "table6_moved", "sieving", "490", MOVED },
	{ "table6_exchanged", "two-phase", "150", EXCHANGED },
	{ "table4_time", "none", "61.71", TOTAL },
	{ "table4_time", "typed", "63.83", TOTAL },
	{ "table4_time", "typed, tcp", "67.09", TOTAL },
	{ "table4_io", "typed", "2.12", IO },
	{ "table4_io", "typed, tcp", "5.38", IO },
};

static void show_tables(struct bench *b)
{
	char name[64];

	for (size_t i = 0; i < ARRAY_LEN(cells); i++) {
		const struct paper_cell *c = &cells[i];

		snprintf(name, sizeof(name), "%s_%s", c->table, c->way);
		for (char *at = name; *at; at++)
			*at = *at == ' ' || *at == ',' || *at == '-' ? '_' : *at;
		bench_paper(b,
			    bench_scaled(b, name, row_of(b, "bt", c->way, c->which),
					 c->which >= REQUESTS ? 1.0 / BENCH_RANKS : 1,
					 units[c->which]),
			    c->paper);
	}
}

static void plot(struct bench *b, const char *name, const char *title, int which)
{
	struct bench_plot *p = bench_plot_add(b, name, title);
	char program[64];

	for (size_t k = 0; k < ARRAY_LEN(independent); k++)
		bench_plot_series(p, "%s", independent[k].name);
	for (size_t i = 0; i <= n_sizes(b); i++) {
		strcpy(program, "tile");
		if (i < n_sizes(b))
			snprintf(program, sizeof(program), "blockcolumn %s", sizes[i]);
		bench_plot_group(p, "%s", program);
		for (size_t k = 0; k < ARRAY_LEN(independent); k++)
			p->cell[i][k] = row_of(b, program, independent[k].name, which);
	}
}

static void judge(struct bench *b)
{
	judge_rates(b, WRITE);
	judge_rates(b, READ);
	judge_bt(b);
	if (b->rounds > 1)
		show_tables(b);
	plot(b, "mpi-write", "4 MPI processes write noncontiguous data", WRITE);
	plot(b, "mpi-read", "4 MPI processes read noncontiguous data", READ);
}

static const char about[] =
	"Programs of 4 MPI processes (--mpi). Each way but the last two is a method of Sheaf's\n"
	"MPI-IO library (sheaf_method):\n"
	"  typed       one request to each server, which describes all pieces by a data type\n"
	"  list        the same with a list of the pieces\n"
	"  two-phase   the processes exchange data, then some of them access large ranges\n"
	"  sieving     a process accesses ranges that cover many of its pieces\n"
	"  multiple    one call for each piece\n"
	"  auto        what the library chooses\n"
	"  mount       the MPI library's own MPI-IO on `sheaf mount`\n"
	"  local       the same on a directory beside the storage\n"
	"tile: one tile of 1024 x 768 elements of 24 bytes for each process. blockcolumn N: an array\n"
	"of N x N integers, whose columns are divided among the processes. contig: blocks of 4 MiB.\n"
	"bt: 40 times an array of 64 x 64 x 64 x 5 doubles, written, then read back, by collective\n"
	"calls; list: the servers access each piece separately, except with sieving; none: the same\n"
	"program without I/O. Before a read on the mount its cache is dropped. A write includes the\n"
	"close. PAPER: \"Supporting Efficient Noncontiguous Access in PVFS over InfiniBand\", tables 5\n"
	"and 6 and figure 6, and the Quadrics paper, table 4; table 6: of one process, or of one\n"
	"server.\n";

const struct bench_kind bench_mpi = {
	.name = "mpi",
	.summary =
		"MPI programs on Sheaf, on a mount by the MPI library's own MPI-IO, and beside it",
	.about = about,
	.clients = { BENCH_RANKS },
	.missing = bench_mpi_missing,
	.setup = setup,
	.judge = judge,
	.end = bench_fuse_close,
};
