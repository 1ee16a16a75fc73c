/* sheaf bench meta: metadata operations by client count: create, stat, resize, readdir, unlink.
 *
 * "create" is the open that creates a file, which is durable when it returns; files are closed
 * after the measurement, and "create + close" measures both. Each client works in its own directory
 * (they are spread over the metadata servers), or all in one ("one directory"); readdir lists a
 * shared directory, with attributes or without. "stat beside creates" is the 99th percentile of one
 * client's stats while three others create; "ping-pong beside creates" is the same for raw
 * ping-pongs. In memory the rates are compared with 4 ping-pong pairs, on disk with one process
 * that appends 4 KiB and syncs. The servers' background work on removed and closed files is waited
 * for between the measurements, not measured. */
#include <fcntl.h>

#include "bench/bench_impl.h"

#define LISTED 1000 /* names in the listed directory */
#define LARGE \
	100000 /* names in the directory listed with attributes; a tenth on disk or for one round */
#define COUNTED 4 /* repetitions of a request count; the minimum is used */
#define BESIDE 4 /* clients: one is measured, the others create */

/* Path of a file of this client: in its own directory, or in the shared one if j->count. */
static void path_of(struct bench_worker *w, const struct bench_job *j, uint64_t i,
		    char out[CLI_PATH_MAX])
{
	if (j->count)
		snprintf(out, CLI_PATH_MAX, "%s/all/c%d-%llu", w->scratch, w->index,
			 (unsigned long long)i);
	else
		snprintf(out, CLI_PATH_MAX, "%s/c%d/f%llu", w->scratch, w->index,
			 (unsigned long long)i);
}

/* ---- preparing ---- */

static int make_dir(struct bench_worker *w, const struct bench_job *j, uint64_t i)
{
	char path[CLI_PATH_MAX];

	(void)j, (void)i;
	snprintf(path, sizeof(path), "%s/c%d", w->scratch, w->index);
	return bench_why(w, "mkdir", sheaf_mkdir(w->fs, path, 0700));
}

static int make_shared(struct bench_worker *w, const struct bench_job *j, uint64_t i)
{
	static const char *const dirs[] = { "listed", "large", "all" };
	char path[CLI_PATH_MAX];
	int r = 0;

	(void)j, (void)i;
	for (size_t k = 0; !r && k < ARRAY_LEN(dirs); k++) {
		snprintf(path, sizeof(path), "%s/%s", w->scratch, dirs[k]);
		r = sheaf_mkdir(w->fs, path, 0700);
	}
	return bench_why(w, "mkdir", r);
}

/* Creates this client's share of the listed names; j->size names in the large directory. */
static int make_listed(struct bench_worker *w, const struct bench_job *j, uint64_t i)
{
	struct sheaf_file *f;
	char path[CLI_PATH_MAX];
	int r = 0;

	(void)i;
	for (uint64_t k = (uint64_t)w->index; !r && k < j->size + LISTED; k += j->width) {
		snprintf(path, sizeof(path), "%s/%s/name-%06llu", w->scratch,
			 k < j->size ? "large" : "listed", (unsigned long long)k);
		r = sheaf_open(w->fs, path, O_RDONLY | O_CREAT, 0600, NULL, &f);
		if (!r)
			r = sheaf_close(f);
	}
	return bench_why(w, "make names", r);
}

/* ---- the operations ---- */

static int create_once(struct bench_worker *w, const struct bench_job *j, uint64_t i)
{
	char path[CLI_PATH_MAX];
	int r;

	(void)i;
	path_of(w, j, w->made, path);
	r = sheaf_open(w->fs, path, O_RDWR | O_CREAT | O_EXCL, 0600, NULL, &w->open[w->n_open]);
	if (!r) {
		w->made++;
		w->n_open++;
	}
	return bench_why(w, "create", r);
}

static int create_finish(struct bench_worker *w, const struct bench_job *j)
{
	int r = 0, e;

	(void)j;
	while (w->n_open) {
		e = sheaf_close(w->open[--w->n_open]);
		r = r ? r : e;
	}
	return bench_why(w, "close", r);
}

static int create_close_once(struct bench_worker *w, const struct bench_job *j, uint64_t i)
{
	int r = create_once(w, j, i);

	return r ? r : create_finish(w, j);
}

static int stat_once(struct bench_worker *w, const struct bench_job *j, uint64_t i)
{
	char path[CLI_PATH_MAX];
	struct stat st;

	path_of(w, j, i % w->made, path);
	return bench_why(w, "stat", sheaf_stat(w->fs, path, &st));
}

static int resize_once(struct bench_worker *w, const struct bench_job *j, uint64_t i)
{
	char path[CLI_PATH_MAX];

	path_of(w, j, i % w->made, path);
	return bench_why(w, "resize",
			 sheaf_truncate(w->fs, path, i / w->made % 2 ? 0 : (off_t)MIB));
}

/* One name per call; the library fetches pages of names. */
static int readdir_once(struct bench_worker *w, const struct bench_job *j, uint64_t i)
{
	char path[CLI_PATH_MAX];
	struct sheaf_dirent e;
	struct sheaf_dir *d;
	int r, n = 0;

	(void)j, (void)i;
	snprintf(path, sizeof(path), "%s/listed", w->scratch);
	r = sheaf_opendir(w->fs, path, &d);
	if (r)
		return bench_why(w, "opendir", r);
	while ((r = sheaf_readdir(d, &e)) > 0)
		n++;
	sheaf_closedir(d);
	return bench_why(w, "readdir", r ? r : n < LISTED ? -EIO : 0);
}

static int readdir_stat_once(struct bench_worker *w, const struct bench_job *j, uint64_t i)
{
	char path[CLI_PATH_MAX];
	struct sheaf_dirent e;
	struct sheaf_dir *d;
	struct stat st;
	uint64_t n = 0;
	int r;

	(void)i;
	snprintf(path, sizeof(path), "%s/large", w->scratch);
	r = sheaf_opendir(w->fs, path, &d);
	if (r)
		return bench_why(w, "opendir", r);
	while ((r = sheaf_readdir_stat(d, &e, &st)) > 0)
		n++;
	sheaf_closedir(d);
	return bench_why(w, "readdir", r ? r : n < j->size ? -EIO : 0);
}

/* Client 0 is measured, the others load the servers. */
static int stat_beside(struct bench_worker *w, const struct bench_job *j, uint64_t i)
{
	char path[CLI_PATH_MAX];
	struct stat st;

	if (w->index)
		return create_close_once(w, j, i);
	snprintf(path, sizeof(path), "%s/small", w->scratch);
	return bench_why(w, "stat", sheaf_stat(w->fs, path, &st));
}

static int ping_beside(struct bench_worker *w, const struct bench_job *j, uint64_t i)
{
	return w->index ? create_close_once(w, j, i) : bench_do_ping(w, j, i);
}

static int remove_beside(struct bench_worker *w, const struct bench_job *j)
{
	char path[CLI_PATH_MAX];
	int r = 0;

	while (!r && w->made) {
		path_of(w, j, w->made - 1, path);
		r = sheaf_unlink(w->fs, path);
		w->made -= !r;
	}
	return bench_why(w, "unlink", r);
}

/* Opens and reads a small file; it stays open until the requests are counted. */
static int open_read_once(struct bench_worker *w, const struct bench_job *j, uint64_t i)
{
	char path[CLI_PATH_MAX], b[16];
	ssize_t r;

	(void)j, (void)i;
	snprintf(path, sizeof(path), "%s/small", w->scratch);
	r = sheaf_open(w->fs, path, O_RDONLY, 0, NULL, &w->open[w->n_open]);
	if (!r) {
		w->n_open++;
		r = sheaf_pread(w->open[w->n_open - 1], b, sizeof(b), 0);
	}
	return bench_why(w, "open and read", r < 0 ? (int)r : 0);
}

static int make_small(struct bench_worker *w, const struct bench_job *j, uint64_t i)
{
	struct sheaf_file *f;
	char path[CLI_PATH_MAX];
	ssize_t r;

	(void)j, (void)i;
	snprintf(path, sizeof(path), "%s/small", w->scratch);
	r = sheaf_open(w->fs, path, O_RDWR | O_CREAT, 0600, NULL, &f);
	if (r)
		return bench_why(w, "create", (int)r);
	r = sheaf_pwrite(f, "0123456789abcdef", 16, 0);
	if (r >= 0)
		r = sheaf_close(f);
	return bench_why(w, "make a small file", r < 0 ? (int)r : 0);
}

/* Closes and removes the files that counting left; these requests are not counted. */
static int close_counted(struct bench_worker *w, const struct bench_job *j, uint64_t i)
{
	char path[CLI_PATH_MAX];
	int r = create_finish(w, j);

	(void)i;
	while (!r && w->made) {
		path_of(w, j, --w->made, path);
		r = sheaf_unlink(w->fs, path);
	}
	return bench_why(w, "unlink", r);
}

static int count_all(struct bench *b, struct bench_case *c, double *value)
{
	double most, n;
	int r = 0;

	*value = 0;
	for (int i = 0; !r && i < COUNTED; i++) { /* the first ones fill the referral cache */
		r = bench_count_requests(b, &c->job, &most, &n);
		*value = i && *value < n ? *value : n;
	}
	return r ? r : bench_once(b, 1, close_counted, 0, 0);
}

static int unlink_once(struct bench_worker *w, const struct bench_job *j, uint64_t i)
{
	char path[CLI_PATH_MAX];

	path_of(w, j, i, path);
	return bench_why(w, "unlink", sheaf_unlink(w->fs, path));
}

static int forget_made(struct bench_worker *w, const struct bench_job *j)
{
	(void)j;
	w->made = 0;
	return 0;
}

/* ---- the benchmark ---- */

static const struct {
	const char *what;
	struct bench_job job;
} steps[] = {
	{ "create", { .once = create_once, .finish = create_finish, .max_ops = BENCH_MAX_FILES } },
	{ "create + close", { .once = create_close_once, .max_ops = BENCH_MAX_FILES } },
	{ "stat", { .once = stat_once } },
	{ "resize", { .once = resize_once } },
	{ "list 1,000 names", { .once = readdir_once } },
	{ "unlink", { .once = unlink_once, .finish = forget_made, .all_made = true } },
};

static void add_case(struct bench *b, const char *what, int clients, struct bench_case c)
{
	if (c.custom)
		c.unit = "requests";
	c.workers = clients;
	bench_case_add(b, c, "%s", what);
}

/* All clients in one directory. */
static void add_shared(struct bench *b, int clients)
{
	const struct bench_job create = {
		.once = create_once, .finish = create_finish, .max_ops = BENCH_MAX_FILES, .count = 1
	};
	const struct bench_job stat = { .once = stat_once, .count = 1 };
	const struct bench_job unlink = {
		.once = unlink_once, .finish = forget_made, .all_made = true, .count = 1
	};

	add_case(b, "create, one directory", clients,
		 (struct bench_case){ .job = create, .wait_idle = true });
	add_case(b, "stat, one directory", clients, (struct bench_case){ .job = stat });
	add_case(b, "unlink, one directory", clients, (struct bench_case){ .job = unlink });
}

static void add_others(struct bench *b, uint64_t large)
{
	const struct bench_job list = { .once = readdir_stat_once, .size = large };
	struct bench_job beside = { .finish = remove_beside, .tail = true };

	add_case(b, "list with attributes", 1,
		 (struct bench_case){ .job = list, .wait_idle = true });
	beside.once = ping_beside;
	add_case(b, "ping-pong beside creates", BESIDE,
		 (struct bench_case){ .job = beside, .figure = BENCH_P99, .wait_idle = true });
	beside.once = stat_beside;
	add_case(b, "stat beside creates", BESIDE,
		 (struct bench_case){ .job = beside, .figure = BENCH_P99, .wait_idle = true });
	add_case(b, "requests of a create", 1,
		 (struct bench_case){ .job = { .once = create_once, .max_ops = 1 },
				      .custom = count_all,
				      .wait_idle = true });
	add_case(b, "requests of open + read", 1,
		 (struct bench_case){ .job = { .once = open_read_once, .max_ops = 1 },
				      .custom = count_all,
				      .wait_idle = true });
}

static void add_steps(struct bench *b, int clients)
{
	for (size_t s = 0; s < ARRAY_LEN(steps); s++)
		add_case(b, steps[s].what, clients,
			 (struct bench_case){ .job = steps[s].job, .wait_idle = true });
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
		add_steps(b, b->clients[i]);
		add_shared(b, b->clients[i]);
	}
	if (b->most_clients >= BESIDE)
		add_others(b, large);
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
}

const struct bench_kind bench_meta = {
	.name = "meta",
	.summary = "names by number of clients against ping-pong pairs and a syncing appender",
	.clients = { 1, 4, 16 },
	.setup = setup,
	.judge = judge,
};
