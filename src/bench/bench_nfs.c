/* sheaf bench nfs: NFSv3 through the gateway against NFS-Ganesha on a `sheaf mount`, the obvious
 * alternative, and against NFS-Ganesha on a local directory, which has no second hop.
 *
 * One client of ours (src/nfsc) measures all servers, from the same processes, one server
 * after the other in each round. A client has its own directory, a file, and some names. Small
 * calls wait for their replies; large reads and writes keep AHEAD calls in progress, as kernels do.
 * A write is a whole file with a COMMIT behind it. Before reads, the file is dropped from the page
 * cache of the mount, so that the reads reach Sheaf. The gateway's creates and removes are durable
 * when they are answered, those of Ganesha on a local directory are not. */
#include <fcntl.h>
#include <unistd.h>

#include "bench/bench_nfs.h"

#define FILE_SIZE (128 * MIB)
#define BLOCK NFS3_DATA_MAX
#define AHEAD 4
#define PAGE (4 * KIB)
#define NAMES 100 /* looked up by a client */
#define HELD 256 /* connections while the memory is measured */
#define BASE_MIB 32 /* that the gateway may use beside the memory of calls */
#define MEMORY "memory with 256 connections"

/* A client's place at a server; in the client's process. */
static struct place {
	struct nfsc_conn conn;
	struct nfsc_handle dir, file;
	struct nfsc_handle named; /* no writer: a GETATTR asks the metadata server only */
} places[BENCH_NFS_SIDES];
static struct nfsc_conn held[HELD];

static struct place *place_of(const struct bench_worker *w)
{
	return &places[w->job->way];
}

/* ---- what a job does ---- */

static int getattr_once(struct bench_worker *w)
{
	struct place *p = place_of(w);

	return bench_why(w, "getattr", nfsc_getattr(&p->conn, &p->named));
}

static int lookup_once(struct bench_worker *w)
{
	struct place *p = place_of(w);
	char name[32];

	snprintf(name, sizeof(name), "name%u", (unsigned)(w->i % NAMES));
	return bench_why(w, "lookup", nfsc_lookup(&p->conn, &p->dir, name));
}

static int create_once(struct bench_worker *w)
{
	struct place *p = place_of(w);
	struct nfsc_handle h;
	char name[32];
	int r;

	snprintf(name, sizeof(name), "f%llu", (unsigned long long)w->made);
	r = nfsc_create(&p->conn, &p->dir, name, &h);
	w->made += !r;
	return bench_why(w, "create", r);
}

static int remove_once(struct bench_worker *w)
{
	struct place *p = place_of(w);
	char name[32];

	snprintf(name, sizeof(name), "f%llu", (unsigned long long)w->i);
	return bench_why(w, "remove", nfsc_remove(&p->conn, &p->dir, name));
}

static int read_page_once(struct bench_worker *w)
{
	uint64_t k = hash_u64(w->i << 8 | (uint64_t)w->index) % (FILE_SIZE / PAGE);
	struct place *p = place_of(w);

	return bench_why(w, "read",
			 nfsc_bulk(&p->conn, &(struct nfsc_bulk){ .file = &p->file,
								  .at = k * PAGE,
								  .size = PAGE,
								  .n = 1,
								  .ahead = 1 }));
}

static struct nfsc_bulk whole(const struct place *p, const void *data)
{
	return (struct nfsc_bulk){ .file = &p->file,
				   .data = data,
				   .size = BLOCK,
				   .n = FILE_SIZE / BLOCK,
				   .ahead = AHEAD };
}

static int read_once(struct bench_worker *w)
{
	struct place *p = place_of(w);
	struct nfsc_bulk k = whole(p, NULL);

	return bench_why(w, "read", nfsc_bulk(&p->conn, &k));
}

static int write_once(struct bench_worker *w)
{
	struct place *p = place_of(w);
	struct nfsc_bulk k = whole(p, w->buf);
	int r = nfsc_bulk(&p->conn, &k);

	return bench_why(w, "write", r ? r : nfsc_commit(&p->conn, &p->file));
}

/* Drops the client's file from the page cache of the mount that Ganesha exports. */
static int drop_cache(struct bench_worker *w)
{
	int fd, r;

	if (w->job->way != BENCH_NFS_ON_MOUNT)
		return 0;
	fd = open(bench_path(w, "c%d/file", w->index), O_RDONLY | O_CLOEXEC);
	r = fd < 0 ? -errno : -posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	if (fd >= 0)
		close(fd);
	return bench_why(w, "drop the page cache", r);
}

/* ---- preparing ---- */

static int find_root(struct bench_worker *w, struct nfsc_handle *root)
{
	struct nfsc_conn c;
	int r = nfsc_dial(&c, &bench_nfs_sides[w->job->way].mount);

	if (r)
		return r;
	r = nfsc_mnt(&c, w->job->path, root);
	nfsc_hang_up(&c);
	return r;
}

static int make_names(struct place *p)
{
	char name[32];
	int r = 0;

	for (unsigned i = 0; !r && i < NAMES; i++) {
		snprintf(name, sizeof(name), "name%u", i);
		r = nfsc_create(&p->conn, &p->dir, name, &p->named);
	}
	return r;
}

/* Connects, and makes the directory, the file and the names of this client. */
static int make_place(struct bench_worker *w)
{
	struct place *p = place_of(w);
	struct nfsc_handle root;
	char name[32];
	int r = find_root(w, &root);

	if (r)
		return bench_why(w, "mount", r);
	r = nfsc_dial(&p->conn, &bench_nfs_sides[w->job->way].nfs);
	if (r)
		return bench_why(w, "connect", r);
	snprintf(name, sizeof(name), "c%d", w->index);
	r = nfsc_mkdir(&p->conn, &root, name, &p->dir);
	if (!r)
		r = make_names(p);
	if (!r)
		r = nfsc_create(&p->conn, &p->dir, "file", &p->file);
	return r ? bench_why(w, "make files", r) : write_once(w);
}

static int on_side(struct bench *b, int side, int clients, bench_fn *once)
{
	struct bench_result r[BENCH_MAX_CLIENTS];
	struct bench_job j = { .once = once, .max_ops = 1, .way = (uint32_t)side };

	snprintf(j.path, sizeof(j.path), "%s", bench_nfs_sides[side].path);
	return bench_clients_run(b, &j, clients, r);
}

/* ---- memory ---- */

static int hold(struct bench_worker *w)
{
	int r = 0;

	for (int i = 0; !r && i < HELD; i++) {
		r = nfsc_dial(&held[i], &bench_nfs_sides[w->job->way].nfs);
		if (!r)
			r = nfsc_null(&held[i]);
	}
	return bench_why(w, "connect", r);
}

static int let_go(struct bench_worker *w)
{
	(void)w;
	for (int i = 0; i < HELD; i++)
		nfsc_hang_up(&held[i]);
	return 0;
}

static int memory_now(struct bench *b, struct bench_case *c, double *value)
{
	int r = on_side(b, BENCH_NFS_GATEWAY, 1, hold);

	(void)c;
	*value = bench_nfs_memory();
	return r ? r : on_side(b, BENCH_NFS_GATEWAY, 1, let_go);
}

/* ---- the benchmark ---- */

/* The ratios that are judged, by number of clients; 0: only shown. */
static const struct nfs_case {
	const char *what, *id;
	struct bench_case c;
	double on_mount, local;
} cases[] = {
	{ "getattr", "getattr", { .job = { .once = getattr_once } }, 2, 0.7 },
	{ "lookup", "lookup", { .job = { .once = lookup_once } }, 2, 0.7 },
	{ "create",
	  "create",
	  { .job = { .once = create_once, .max_ops = BENCH_MAX_FILES }, .wait_idle = true },
	  2,
	  1 },
	{ "remove",
	  "remove",
	  { .job = { .once = remove_once, .all_made = true }, .wait_idle = true },
	  0,
	  0 },
	{ "random read",
	  "read4k",
	  { .job = { .prepare = drop_cache, .once = read_page_once },
	    .bytes = PAGE,
	    .wait_idle = true },
	  2,
	  0 },
	{ "read",
	  "read",
	  { .job = { .prepare = drop_cache, .once = read_once, .max_ops = 1, .size = FILE_SIZE },
	    .bytes = BLOCK,
	    .figure = BENCH_BANDWIDTH },
	  1.5,
	  0.6 },
	{ "write",
	  "write",
	  { .job = { .once = write_once, .max_ops = 1, .size = FILE_SIZE },
	    .bytes = BLOCK,
	    .figure = BENCH_BANDWIDTH,
	    .wait_idle = true },
	  1.5,
	  0.8 },
};

/* Adds one case of one server; its row is named "SERVER: what". */
static void add(struct bench *b, int side, const struct nfs_case *k, int clients)
{
	struct bench_case c = k->c;

	c.workers = clients;
	c.job.way = (uint32_t)side;
	snprintf(c.job.path, sizeof(c.job.path), "%s", bench_nfs_sides[side].path);
	bench_case_add(b, c, "%s: %s", bench_nfs_sides[side].name, k->what);
}

/* Names that were created at a server are removed there before the next server is measured. */
static void add_cases(struct bench *b, int clients)
{
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		bool names = cases[i].c.job.once == create_once;

		for (int s = 0; s < BENCH_NFS_SIDES; s++) {
			if (!bench_nfs_sides[s].is_there)
				continue;
			add(b, s, &cases[i], clients);
			if (names)
				add(b, s, &cases[i + 1], clients);
		}
		i += names;
	}
}

static const char *missing(struct bench *b)
{
	return b->dir ? NULL : "it needs --dir, for servers and a gateway of its own";
}

static int setup(struct bench *b)
{
	const char *why = bench_nfs_other_missing(b);
	int r;

	if (why)
		fprintf(stderr, "sheaf bench: the gateway is compared with nothing: %s\n", why);
	r = bench_nfs_start(b);
	for (int s = 0; !r && s < BENCH_NFS_SIDES; s++)
		if (bench_nfs_sides[s].is_there)
			r = on_side(b, s, b->most_clients, make_place);
	for (int i = 0; !r && i < b->n_clients; i++)
		add_cases(b, b->clients[i]);
	if (!r)
		bench_case_add(b, (struct bench_case){ .custom = memory_now, .unit = "MiB" },
			       MEMORY);
	return r;
}

/* ---- judging ---- */

static const struct bench_row *row_of(struct bench *b, int side, const struct nfs_case *k,
				      int clients)
{
	char name[64];

	snprintf(name, sizeof(name), "%s: %s", bench_nfs_sides[side].name, k->what);
	return bench_find(b, name, (uint32_t)clients, k->c.bytes, 0);
}

static void compare(struct bench *b, const struct nfs_case *k, int clients, int side, double need)
{
	const struct bench_row *r;
	char name[64];

	snprintf(name, sizeof(name), "nfs_%s%d_vs_%s", k->id, clients,
		 side == BENCH_NFS_LOCAL ? "local" : "mount");
	r = bench_ratio(b, name, row_of(b, BENCH_NFS_GATEWAY, k, clients),
			row_of(b, side, k, clients));
	if (need > 0)
		bench_bar(b, r, BENCH_AT_LEAST, need);
}

/* Plots the cases from `first` to `last` for all servers. */
static void plot(struct bench *b, const char *name, const char *title, size_t first, size_t last)
{
	struct bench_plot *p = bench_plot_add(b, name, title);

	for (int s = 0; s < BENCH_NFS_SIDES; s++)
		bench_plot_series(p, "%s", bench_nfs_sides[s].name);
	for (size_t k = first; k <= last; k++)
		for (int i = 0; i < b->n_clients && p->n_groups < BENCH_PLOT_MAX; i++) {
			int g = bench_plot_group(p, "%s, %d", cases[k].what, b->clients[i]);

			for (int s = 0; s < BENCH_NFS_SIDES; s++)
				p->cell[g][s] = row_of(b, s, &cases[k], b->clients[i]);
		}
}

static void judge(struct bench *b)
{
	const struct bench_row *memory = bench_find(b, MEMORY, 1, 0, 0);

	for (int i = 0; i < b->n_clients; i++)
		for (size_t k = 0; k < ARRAY_LEN(cases); k++) {
			compare(b, &cases[k], b->clients[i], BENCH_NFS_ON_MOUNT, cases[k].on_mount);
			compare(b, &cases[k], b->clients[i], BENCH_NFS_LOCAL, cases[k].local);
		}
	bench_bar(b, bench_scaled(b, "nfs_memory", memory, 1, "MiB"), BENCH_AT_MOST,
		  BASE_MIB + (double)b->place.conf->nfs.memory / (double)MIB);
	plot(b, "nfs-names", "NFS: names, by number of clients", 0, 3);
	plot(b, "nfs-data", "NFS: 1 MiB reads and writes, by number of clients", 5, 6);
}

static const char about[] =
	"  gateway           sheaf-nfsd\n"
	"  ganesha on mount  NFS-Ganesha with a `sheaf mount` of the same servers\n"
	"  ganesha local     NFS-Ganesha with a directory beside the storage\n"
	"All are on the host of server 0. Reads and writes are of 1 MiB with 4 calls in progress, a\n"
	"write is a file of 128 MiB and its COMMIT.\n";

const struct bench_kind bench_nfs = {
	.name = "nfs",
	.summary = "NFSv3 through the gateway against NFS-Ganesha on a mount and on a directory",
	.about = about,
	.clients = { 1, 4 },
	.missing = missing,
	.open = bench_nfs_choose,
	.setup = setup,
	.judge = judge,
	.end = bench_nfs_end,
};
