/* sheaf bench meta: metadata operations by client count: create, stat, resize, readdir, unlink.
 *
 * "create" is the open that creates a file, which is durable when it returns; files are closed
 * after the measurement, and "create + close" measures both. Each client works in its own directory
 * (they are spread over the metadata servers), or all in one ("one directory"); readdir lists a
 * shared directory, with attributes or without. "stat beside creates" is the 99th percentile of one
 * client's stats while three others create; "ping-pong beside creates" is the same for raw
 * ping-pongs. In memory the rates are compared with 4 ping-pong pairs, on disk with one process
 * that appends 4 KiB and syncs. The servers' background work on removed and closed files is waited
 * for between the measurements, not measured. Creates and resizes that several clients do together
 * are in bench_collective.c. */
#include <fcntl.h>

#include "bench/bench_impl.h"

#define LISTED 1000 /* names in the listed directory */
#define LARGE \
	100000 /* names in the directory listed with attributes; a tenth on disk or for one round */
#define COUNTED 4 /* repetitions of a request count; the minimum is used */
#define BESIDE 4 /* clients: one is measured, the others create */

/* ---- preparing ---- */

static int make_dir(struct bench_worker *w)
{
	return bench_why(w, "mkdir", sheaf_mkdir(w->fs, bench_path(w, "c%d", w->index), 0700));
}

static int make_shared(struct bench_worker *w)
{
	static const char *const dirs[] = { "listed", "large", "all" };
	int r = 0;

	for (size_t k = 0; !r && k < ARRAY_LEN(dirs); k++)
		r = sheaf_mkdir(w->fs, bench_path(w, "%s", dirs[k]), 0700);
	return bench_why(w, "mkdir", r);
}

/* Creates this client's share of the listed names; job.size names in the large directory. */
static int make_listed(struct bench_worker *w)
{
	const struct bench_job *j = w->job;
	struct sheaf_file *f;
	int r = 0;

	for (uint64_t k = (uint64_t)w->index; !r && k < j->size + LISTED; k += j->width) {
		bench_path(w, "%s/name-%06llu", k < j->size ? "large" : "listed",
			   (unsigned long long)k);
		r = sheaf_open(w->fs, w->path, O_RDONLY | O_CREAT, 0600, NULL, &f);
		if (!r)
			r = sheaf_close(f);
	}
	return bench_why(w, "make names", r);
}

static int make_small(struct bench_worker *w)
{
	struct sheaf_file *f;
	ssize_t r = sheaf_open(w->fs, bench_path(w, "small"), O_RDWR | O_CREAT, 0600, NULL, &f);

	if (r)
		return bench_why(w, "create", r);
	r = sheaf_pwrite(f, "0123456789abcdef", 16, 0);
	if (r >= 0)
		r = sheaf_close(f);
	return bench_why(w, "make a small file", r);
}

/* ---- the operations ---- */

static int create_once(struct bench_worker *w)
{
	int r = sheaf_open(w->fs, bench_made_path(w, w->made), O_RDWR | O_CREAT | O_EXCL, 0600,
			   NULL, &w->open[w->n_open]);

	if (!r) {
		w->made++;
		w->n_open++;
	}
	return bench_why(w, "create", r);
}

static int close_made(struct bench_worker *w)
{
	int r = 0, e;

	while (w->n_open) {
		e = sheaf_close(w->open[--w->n_open]);
		r = r ? r : e;
	}
	return bench_why(w, "close", r);
}

static int create_close_once(struct bench_worker *w)
{
	int r = create_once(w);

	return r ? r : close_made(w);
}

static int stat_once(struct bench_worker *w)
{
	struct stat st;

	return bench_why(w, "stat", sheaf_stat(w->fs, bench_made_path(w, w->i % w->made), &st));
}

static int resize_once(struct bench_worker *w)
{
	return bench_why(w, "resize",
			 sheaf_truncate(w->fs, bench_made_path(w, w->i % w->made),
					w->i / w->made % 2 ? 0 : (off_t)MIB));
}

static int unlink_once(struct bench_worker *w)
{
	return bench_why(w, "unlink", sheaf_unlink(w->fs, bench_made_path(w, w->i)));
}

/* One name per call; the library fetches pages of names. With job.count: with attributes. */
static int readdir_once(struct bench_worker *w)
{
	const struct bench_job *j = w->job;
	struct sheaf_dirent e;
	struct sheaf_dir *d;
	struct stat st;
	uint64_t n = 0;
	int r = sheaf_opendir(w->fs, bench_path(w, j->count ? "large" : "listed"), &d);

	if (r)
		return bench_why(w, "opendir", r);
	while ((r = j->count ? sheaf_readdir_stat(d, &e, &st) : sheaf_readdir(d, &e)) > 0)
		n++;
	sheaf_closedir(d);
	return bench_why(w, "readdir", r ? r : n < j->size ? -EIO : 0);
}

/* Client 0 is measured, the others load the servers. */
static int stat_beside(struct bench_worker *w)
{
	struct stat st;

	if (w->index)
		return create_close_once(w);
	return bench_why(w, "stat", sheaf_stat(w->fs, bench_path(w, "small"), &st));
}

static int ping_beside(struct bench_worker *w)
{
	return w->index ? create_close_once(w) : bench_do_ping(w);
}

static int remove_made(struct bench_worker *w)
{
	int r = 0;

	while (!r && w->made) {
		r = sheaf_unlink(w->fs, bench_made_path(w, w->made - 1));
		w->made -= !r;
	}
	return bench_why(w, "unlink", r);
}

/* Opens and reads a small file; it stays open until the requests are counted. */
static int open_read_once(struct bench_worker *w)
{
	char b[16];
	ssize_t r =
		sheaf_open(w->fs, bench_path(w, "small"), O_RDONLY, 0, NULL, &w->open[w->n_open]);

	if (!r)
		r = sheaf_pread(w->open[w->n_open++], b, sizeof(b), 0);
	return bench_why(w, "open and read", r);
}

/* Closes and removes the files that counting left; these requests are not counted. */
static int close_counted(struct bench_worker *w)
{
	int r = close_made(w);

	return r ? r : remove_made(w);
}

static int count_all(struct bench *b, struct bench_case *c, double *value)
{
	double most, n;
	int r = 0;

	*value = 0;
	for (int i = 0; !r && i < COUNTED; i++) { /* the first ones fill the referral cache */
		r = bench_count_requests(b, &c->job, 1, &most, &n);
		*value = i && *value < n ? *value : n;
	}
	return r ? r : bench_once(b, 1, close_counted, 0, 0);
}

/* ---- the benchmark ---- */

struct meta_case {
	const char *what;
	struct bench_case c;
};

/* The last three: all clients in one directory. */
static const struct meta_case by_clients[] = {
	{ "create",
	  { .job = { .once = create_once, .finish = close_made, .max_ops = BENCH_MAX_FILES },
	    .wait_idle = true } },
	{ "create + close",
	  { .job = { .once = create_close_once, .max_ops = BENCH_MAX_FILES }, .wait_idle = true } },
	{ "stat", { .job = { .once = stat_once }, .wait_idle = true } },
	{ "resize", { .job = { .once = resize_once }, .wait_idle = true } },
	{ "list 1,000 names",
	  { .job = { .once = readdir_once, .size = LISTED }, .wait_idle = true } },
	{ "unlink", { .job = { .once = unlink_once, .all_made = true }, .wait_idle = true } },
	{ "create, one directory",
	  { .job = { .once = create_once,
		     .finish = close_made,
		     .max_ops = BENCH_MAX_FILES,
		     .count = 1 },
	    .wait_idle = true } },
	{ "stat, one directory", { .job = { .once = stat_once, .count = 1 } } },
	{ "unlink, one directory",
	  { .job = { .once = unlink_once, .all_made = true, .count = 1 } } },
};

static const struct meta_case others[] = {
	{ "ping-pong beside creates",
	  { .job = { .once = ping_beside, .finish = remove_made, .tail = true },
	    .workers = BESIDE,
	    .figure = BENCH_P99,
	    .wait_idle = true } },
	{ "stat beside creates",
	  { .job = { .once = stat_beside, .finish = remove_made, .tail = true },
	    .workers = BESIDE,
	    .figure = BENCH_P99,
	    .wait_idle = true } },
	{ "requests of a create",
	  { .job = { .once = create_once, .max_ops = 1 },
	    .custom = count_all,
	    .unit = "requests",
	    .wait_idle = true } },
	{ "requests of open + read",
	  { .job = { .once = open_read_once, .max_ops = 1 },
	    .custom = count_all,
	    .unit = "requests",
	    .wait_idle = true } },
};

static void add_by_clients(struct bench *b, int clients)
{
	for (size_t i = 0; i < ARRAY_LEN(by_clients); i++) {
		struct bench_case c = by_clients[i].c;

		c.workers = clients;
		bench_case_add(b, c, "%s", by_clients[i].what);
	}
}

static void add_others(struct bench *b, uint64_t large)
{
	const struct bench_case list = { .job = { .once = readdir_once, .size = large, .count = 1 },
					 .wait_idle = true };

	bench_case_add(b, list, "list with attributes");
	for (size_t i = 0; i < ARRAY_LEN(others); i++)
		bench_case_add(b, others[i].c, "%s", others[i].what);
}

static uint64_t n_large(const struct bench *b)
{
	return b->place.on_disk || b->rounds == 1 ? LARGE / 10 : LARGE;
}

/* The baselines directly precede the client count that is compared with them. */
static int setup(struct bench *b)
{
	uint64_t large = n_large(b);
	int r = bench_once(b, b->most_clients, make_dir, 0, 0), judged = 0;

	if (!r)
		r = bench_once(b, 1, make_shared, 0, 0);
	if (!r)
		r = bench_once(b, b->most_clients, make_listed, large, (uint32_t)b->most_clients);
	if (!r)
		r = bench_once(b, 1, make_small, 0, 0);
	for (int i = 0; i < b->n_clients; i++)
		if (b->clients[i] == BENCH_PAIRS)
			judged = i;
	for (int i = 0; i < b->n_clients; i++) {
		if (i == judged) {
			bench_add_ping(b, BENCH_PAIRS);
			bench_add_appender(b);
		}
		add_by_clients(b, b->clients[i]);
	}
	if (b->most_clients >= BESIDE)
		add_others(b, large);
	bench_collective_add(b);
	return r;
}

/* Names per second, from listings per second. */
static const struct bench_row *entries(struct bench *b)
{
	const struct bench_row *lists = bench_find(b, "list with attributes", 1, 0, 0);
	double n = (double)n_large(b);

	return lists ? bench_scaled(b, "listed", lists, n, "1/s") : NULL;
}

/* Adds a bar for an existing row. */
static void bar_of(struct bench *b, const char *name, const char *what, enum bench_sense sense,
		   double need)
{
	const struct bench_row *r = bench_find(b, what, 1, 0, 0);

	bench_bar(b, r ? bench_scaled(b, name, r, 1, r->unit) : NULL, sense, need);
}

static void plot(struct bench *b, const char *name, const char *title, const char *const *what,
		 int n, const struct bench_row *ref)
{
	struct bench_plot *p = bench_plot_add(b, name, title);

	p->ref = ref;
	for (int s = 0; s < b->n_clients; s++)
		bench_plot_series(p, "%d client%s", BENCH_CLIENTS(b->clients[s]));
	for (int g = 0; g < n; g++) {
		bench_plot_group(p, "%s", what[g]);
		for (int s = 0; s < b->n_clients; s++)
			p->cell[g][s] = bench_find(b, what[g], (uint32_t)b->clients[s], 0, 0);
	}
}

/* Plots one operation: one column per number of clients. */
static void plot_one(struct bench *b, const char *name, const char *title, const char *what,
		     const struct bench_row *ref)
{
	struct bench_plot *p = bench_plot_add(b, name, title);

	p->n_series = 1;
	p->ref = ref;
	for (int i = 0; i < b->n_clients; i++) {
		int g = bench_plot_group(p, "%d client%s", BENCH_CLIENTS(b->clients[i]));

		p->cell[g][0] = bench_find(b, what, (uint32_t)b->clients[i], 0, 0);
	}
}

static void judge(struct bench *b)
{
	static const char *const changes[] = { "create", "create + close", "resize", "unlink" };
	const struct bench_row *pairs = bench_find(b, BENCH_PINGPONG, BENCH_PAIRS, BENCH_PING, 0);
	const struct bench_row *append = bench_find(b, BENCH_APPENDER, 1, 4 * KIB, 0);
	const struct bench_row *create4 = bench_find(b, "create", 4, 0, 0);
	const struct bench_row *create16 = bench_find(b, "create", 16, 0, 0);
	const struct bench_row *stat4 = bench_find(b, "stat", 4, 0, 0);

	bar_of(b, "create_requests", "requests of a create", BENCH_EXACTLY, 1);
	bar_of(b, "open_read_requests", "requests of open + read", BENCH_AT_MOST, 2);
	bench_bar(b, entries(b), BENCH_AT_LEAST, 200000);
	bench_bar_ratio(b, "stat_p99", bench_find(b, "stat beside creates", BESIDE, 0, 0),
			bench_find(b, "ping-pong beside creates", BESIDE, 0, 0), BENCH_AT_MOST, 3);
	if (b->place.in_memory) {
		bench_bar_ratio(b, "stat4", stat4, pairs, BENCH_AT_LEAST, 0.33);
		bench_bar_ratio(b, "create4", create4, pairs, BENCH_AT_LEAST, 0.15);
		bench_bar_ratio(b, "create4_one_directory",
				bench_find(b, "create, one directory", 4, 0, 0), pairs,
				BENCH_AT_LEAST, 0.15);
	} else if (b->place.on_disk) {
		bench_bar_ratio(b, "durable_create4", create4, append, BENCH_AT_LEAST, 0.8);
		bench_bar_ratio(b, "durable_create16", create16, append, BENCH_AT_LEAST, 1.3);
	}
	plot(b, "meta-changes", "Changes of names, by number of clients", changes, 4,
	     b->place.on_disk ? append : NULL);
	plot_one(b, "meta-stat", "stat, by number of clients", "stat", pairs);
	plot_one(b, "meta-list", "Listings of a directory of 1,000 names", "list 1,000 names",
		 NULL);
	bench_collective_judge(b);
}

const struct bench_kind bench_meta = {
	.name = "meta",
	.summary = "names by number of clients against ping-pong pairs and a syncing appender",
	.clients = { 1, 4, 16 },
	.setup = setup,
	.judge = judge,
};
