/* sheaf bench bank: stats, and reads of one file, by several clients, with and without the cache
 * bank, while the servers have all processors and while they have a part of one; by daemons and
 * sizes of blocks; and what the servers still read when many clients read a file that was just
 * written (paper 001, chapter 7, whose ratios are printed).
 *
 * Processes: the memcached daemons run where the servers do. Errors: what cannot be limited on this
 * machine is left out, with a line that says so. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bench/bench_impl.h"

#define FILE_BYTES (8 * MIB)
#define FILES 2048 /* for stats */
#define DAEMONS 4
#define PORT 21211
#define QUOTA_PERCENT 10 /* of one processor, for all servers together */
#define CASE_NS (300 * NSEC_PER_MSEC)
#define WAIT_NS (10 * NSEC_PER_SEC)

static const uint64_t sizes[] = { 512, 2 * KIB, 16 * KIB, 64 * KIB };
static const char *const modes[] = { "off", "on", "always" };
enum { OFF, ON, ALWAYS };
/* What the cluster files bank0.conf and so on differ in. */
static const struct variant {
	int daemons;
	uint32_t block;
} variants[] = { { 2, 8192 }, { 1, 8192 }, { 4, 8192 }, { 2, 256 }, { 2, 2048 }, { 2, 32768 } };
enum { USUAL, ONE_DAEMON, FOUR_DAEMONS, BLOCKS };

static pid_t daemons[DAEMONS];
static char group[128]; /* directory of the servers' control group; "": none */

/* ---- daemons and limits ---- */

static const char *missing(struct bench *b)
{
	if (!b->dir)
		return "it needs --dir, for servers with a bank";
	if (access("/usr/bin/memcached", X_OK))
		return "memcached is not installed (Debian: memcached)";
	return NULL;
}

static struct sockaddr_in daemon_address(struct bench *b, int i)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons((uint16_t)(PORT + i)) };

	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (b->hosts.n)
		a.sin_addr = bench_hosts_address(b, i % b->servers);
	return a;
}

static bool daemon_answers(struct bench *b, int i)
{
	struct sockaddr_in a = daemon_address(b, i);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	bool is = fd >= 0 && connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0;

	if (fd >= 0)
		close(fd);
	return is;
}

static int start_daemon(struct bench *b, int i)
{
	struct sockaddr_in a = daemon_address(b, i);
	char host[INET_ADDRSTRLEN], port[8];
	const char *argv[] = { "memcached", "-u", "root", "-l", host, "-p", port,
			       "-U",	    "0",  "-t",	  "1",	"-m", "64", NULL };
	const struct timespec nap = { 0, 20000000 };
	uint64_t end = time_now() + WAIT_NS;

	inet_ntop(AF_INET, &a.sin_addr, host, sizeof(host));
	snprintf(port, sizeof(port), "%d", PORT + i);
	if (b->hosts.n && bench_hosts_enter(b, i % b->servers))
		return bench_program_fail(b, "enter the host of a daemon", -EIO);
	daemons[i] = bench_program_start(b, "memcached", argv);
	if (b->hosts.n)
		bench_hosts_enter(b, -1);
	while (daemons[i] > 0 && !daemon_answers(b, i) && time_now() < end)
		nanosleep(&nap, NULL);
	return daemon_answers(b, i) ? 0 : bench_program_fail(b, "memcached", -EIO);
}

static void write_number(const char *name, const char *text)
{
	char path[192];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", group, name);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	if (write(fd, text, strlen(text)) < 0)
		group[0] = 0;
	close(fd);
}

/* A control group for the servers, of version 1 or 2. */
static void make_group(struct bench *b)
{
	static const char *const tops[] = { "/sys/fs/cgroup/cpu", "/sys/fs/cgroup" };
	char pid[16];

	for (size_t i = 0; i < ARRAY_LEN(tops) && !group[0]; i++) {
		char file[192];

		snprintf(group, sizeof(group), "%s/sheaf-bench-%d", tops[i], (int)getpid());
		if (mkdir(group, 0755)) {
			group[0] = 0;
			continue;
		}
		snprintf(file, sizeof(file), "%s/%s", group, i ? "cpu.max" : "cpu.cfs_quota_us");
		if (access(file, W_OK)) {
			rmdir(group);
			group[0] = 0;
		}
	}
	for (int i = 0; group[0] && i < b->servers; i++) {
		snprintf(pid, sizeof(pid), "%d", (int)b->place.daemons[i].pid);
		write_number("cgroup.procs", pid);
	}
	if (!group[0])
		fprintf(stderr, "sheaf bench: no control group can be made here (root can): the "
				"servers are not limited\n");
}

static void limit_servers(bool limited)
{
	char v1[16], v2[32];

	if (!group[0])
		return;
	snprintf(v1, sizeof(v1), "%d", limited ? QUOTA_PERCENT * 1000 : -1);
	snprintf(v2, sizeof(v2), limited ? "%d 100000" : "max 100000", QUOTA_PERCENT * 1000);
	write_number("cpu.cfs_quota_us", v1);
	write_number("cpu.max", v2);
}

static void put_line(FILE *out, const char *line, void *arg)
{
	(void)arg;
	fputs(line, out);
}

/* A cluster file of clients is that of the servers with a section [bank]. Attributes live for a
 * minute, so that what is measured has been stored once. */
static int write_conf(struct bench *b, const char *path, const char *key, const struct variant *v)
{
	FILE *f = bench_conf_edit(b->place.conf_path, path, put_line, NULL) ? NULL :
									      fopen(path, "ae");

	if (!f)
		return bench_program_fail(b, path, -EIO);
	fprintf(f, "\n[bank]\nkey = %s\nblock = %u\nattributes = 60\nservers =", key, v->block);
	for (int i = 0; i < v->daemons; i++) {
		struct sockaddr_in a = daemon_address(b, i);
		char host[INET_ADDRSTRLEN];

		fprintf(f, " %s:%d", inet_ntop(AF_INET, &a.sin_addr, host, sizeof(host)), PORT + i);
	}
	fputc('\n', f);
	fclose(f);
	return 0;
}

static int open_bank(struct bench *b)
{
	struct bench_place *p = &b->place;
	char path[CLI_PATH_MAX], key[CLI_PATH_MAX], err[512];
	int r = 0;

	snprintf(key, sizeof(key), "%.900s/bank.key", p->dir);
	if (key_create(key, err, sizeof(err)))
		return bench_program_fail(b, err, -EIO);
	for (int i = (int)ARRAY_LEN(variants) - 1; !r && i >= 0; i--) {
		snprintf(path, sizeof(path), "%.900s/bank%d.conf", p->dir, i);
		r = write_conf(b, path, key, &variants[i]);
	}
	for (int i = 0; !r && i < DAEMONS; i++)
		r = start_daemon(b, i);
	make_group(b);
	memcpy(p->client_conf, path, sizeof(p->client_conf));
	return r;
}

static void end_bank(struct bench *b)
{
	(void)b;
	limit_servers(false);
	for (int i = 0; i < DAEMONS; i++) {
		if (daemons[i] > 0)
			kill(daemons[i], SIGTERM);
		bench_end_process(&daemons[i], time_now() + WAIT_NS);
	}
}

static int drop_group(struct bench *b)
{
	limit_servers(false);
	return bench_drop_files(b);
}

/* ---- what clients do ---- */

/* Connects with the bank on or off, and with one of the cluster files. */
static int connect_as(struct bench_worker *w, uint32_t way, struct sheaf **fs)
{
	char conf[CLI_PATH_MAX];

	snprintf(conf, sizeof(conf), "%s", w->conf);
	conf[strlen(conf) - strlen("0.conf")] = (char)('0' + w->job->server);
	setenv("SHEAF_BANK", modes[way], 1);
	return bench_why(w, "connect", sheaf_connect(conf, fs));
}

/* Connects anew, and opens the file that all read. */
static int do_reopen(struct bench_worker *w)
{
	int r;

	if (w->f)
		sheaf_close(w->f);
	w->f = NULL;
	sheaf_disconnect(w->fs);
	w->fs = NULL;
	r = connect_as(w, w->job->way, &w->fs);
	if (!r)
		r = bench_why(w, "open the file",
			      (int)sheaf_open(w->fs, bench_path(w, "shared"), O_RDONLY, 0, NULL,
					      &w->f));
	return r;
}

static int do_create(struct bench_worker *w)
{
	ssize_t r = sheaf_mkdir(w->fs, bench_path(w, "stat"), 0755);

	for (int i = 0; i < FILES && r >= 0; i++) {
		r = sheaf_open(w->fs, bench_path(w, "stat/%d", i), O_RDWR | O_CREAT, 0644, NULL,
			       &w->f);
		if (r >= 0)
			r = sheaf_close(w->f);
		w->f = NULL;
	}
	return bench_why(w, "create files", r);
}

static int do_stat(struct bench_worker *w)
{
	uint64_t i = hash_u64(w->i * 64 + (uint64_t)w->index) % FILES;
	struct stat st;

	return bench_why(w, "stat", sheaf_stat(w->fs, bench_path(w, "stat/%d", (int)i), &st));
}

/* Puts the attributes of all files into the bank, by a connection of its own. No connection uses
 * attributes from before its own beginning. */
static int do_fill_stats(struct bench_worker *w)
{
	const struct timespec nap = { 0, 600000000 };
	struct sheaf *fs;
	struct stat st;
	int r = connect_as(w, ALWAYS, &fs);

	if (r)
		return r;
	nanosleep(&nap, NULL);
	for (int i = 0; i < FILES && !r; i++)
		r = bench_why(w, "stat", sheaf_stat(fs, bench_path(w, "stat/%d", i), &st));
	sheaf_disconnect(fs);
	return r;
}

static int do_write(struct bench_worker *w)
{
	ssize_t r = sheaf_open(w->fs, bench_path(w, "shared"), O_RDWR | O_CREAT, 0644, NULL, &w->f);

	memset(w->buf, (int)w->job->seed, BENCH_BLOCK);
	for (uint64_t at = 0; at < FILE_BYTES && r >= 0; at += BENCH_BLOCK)
		r = sheaf_pwrite(w->f, w->buf, BENCH_BLOCK, (off_t)at);
	if (r >= 0)
		r = sheaf_fsync(w->f);
	if (w->f && sheaf_close(w->f) && r >= 0)
		r = -EIO;
	w->f = NULL;
	return bench_why(w, "write the file", r);
}

/* Reads the whole file, `size` bytes at a time. */
static int do_sweep(struct bench_worker *w)
{
	uint64_t size = w->job->size;

	for (uint64_t at = 0; at < FILE_BYTES; at += size) {
		int r = bench_moved(w, "read", sheaf_pread(w->f, w->buf, size, (off_t)at), size);

		if (r)
			return r;
	}
	return 0;
}

/* Another place of the file each time. */
static int do_read(struct bench_worker *w)
{
	uint64_t size = w->job->size;
	uint64_t at = hash_u64(w->i * 64 + (uint64_t)w->index) % (FILE_BYTES / size) * size;

	return bench_moved(w, "read", sheaf_pread(w->f, w->buf, size, (off_t)at), size);
}

/* size: of the reads of a sweep; else the variant. */
static int run_all(struct bench *b, int n, bench_fn *once, uint64_t size, uint32_t way,
		   uint32_t seed)
{
	struct bench_job j = { .once = once,
			       .max_ops = 1,
			       .size = size,
			       .server = once == do_sweep ? 0 : (uint32_t)size,
			       .way = way,
			       .seed = seed };
	struct bench_result out[BENCH_MAX_CLIENTS];

	snprintf(j.path, sizeof(j.path), "%s", b->place.scratch);
	return bench_clients_run(b, &j, n, out);
}

/* Before the measurement clients find out whether asking pays. */
static int warm_up(struct bench *b, struct bench_case *c)
{
	struct bench_result out[BENCH_MAX_CLIENTS];
	struct bench_job j = c->job;

	j.ns = CASE_NS;
	snprintf(j.path, sizeof(j.path), "%s", b->place.scratch);
	return bench_clients_run(b, &j, c->workers, out);
}

/* All clients of the case have the file open, and the bank has all of it. */
static int prepare(struct bench *b, struct bench_case *c)
{
	uint32_t way = c->job.way, variant = c->job.server;
	int r;

	limit_servers(false);
	r = run_all(b, c->workers, do_reopen, variant, ALWAYS, 0);
	for (int i = 0; !r && i < 2 && way != OFF && c->job.once == do_read; i++)
		r = run_all(b, 1, do_sweep, MIN(64 * KIB, 32 * (uint64_t)variants[variant].block),
			    0, 0);
	if (!r)
		r = run_all(b, c->workers, do_reopen, variant, way, 0);
	if (!r && way != OFF && c->job.once == do_stat)
		r = run_all(b, 1, do_fill_stats, variant, ALWAYS, 0);
	limit_servers(c->job.seed);
	return r ? r : warm_up(b, c);
}

static int served(struct bench *b, double *bytes)
{
	struct sheaf_server s;
	int r = 0;

	*bytes = 0;
	for (int i = 0; !r && i < b->servers; i++) {
		r = bench_server_status(b, i, &s);
		*bytes += r ? 0 : (double)s.bytes_read;
	}
	return r;
}

/* Which part of what the clients read the servers read. */
static int read_after_write(struct bench *b, struct bench_case *c, double *value)
{
	static uint32_t version;
	double before = 0, after = 0;
	int r;

	limit_servers(false);
	r = run_all(b, 1, do_write, 0, OFF, ++version);
	if (!r)
		r = run_all(b, c->workers, do_reopen, USUAL, c->job.way, 0);
	if (!r)
		r = served(b, &before);
	if (!r)
		r = run_all(b, c->workers, do_sweep, 8 * KIB, 0, 0);
	if (!r)
		r = served(b, &after);
	*value = (after - before) / ((double)FILE_BYTES * c->workers);
	return r;
}

/* ---- cases ---- */

static void add_to(struct bench *b, bench_fn *once, uint64_t size, int clients, uint32_t way,
		   bool limited, int variant)
{
	const struct variant *v = &variants[variant];
	char which[64] = "";
	struct bench_case c = { .job = { .once = once,
					 .size = size,
					 .way = way,
					 .seed = limited,
					 .server = (uint32_t)variant },
				.before = prepare,
				.workers = clients,
				.bytes = size,
				.ns = CASE_NS,
				.figure = BENCH_RATE };

	if (variant >= BLOCKS)
		snprintf(which, sizeof(which), ", blocks of %u", v->block);
	else if (variant != USUAL)
		snprintf(which, sizeof(which), ", %d daemon%s", v->daemons,
			 v->daemons > 1 ? "s" : "");
	bench_case_add(b, c, "%s%s, bank %s%s", once == do_stat ? "stat" : "read",
		       limited ? ", servers limited" : "", modes[way], which);
}

static int some_clients(const struct bench *b)
{
	return MIN(b->most_clients, 8);
}

/* Other numbers of daemons and sizes of blocks, always asked. */
static void add_variants(struct bench *b, bool limited)
{
	for (int v = ONE_DAEMON; v <= FOUR_DAEMONS; v++) {
		add_to(b, do_stat, 0, b->most_clients, ALWAYS, limited, v);
		add_to(b, do_read, MIB, some_clients(b), ALWAYS, limited, v);
	}
	add_to(b, do_read, MIB, some_clients(b), OFF, limited, USUAL);
	for (int v = BLOCKS; v < (int)ARRAY_LEN(variants); v++) {
		add_to(b, do_read, 1, 1, ALWAYS, limited, v);
		add_to(b, do_read, 2 * KIB, 1, ALWAYS, limited, v);
		if (variants[v].block > 256) /* 64 KiB are more blocks than one question has */
			add_to(b, do_read, 64 * KIB, 1, ALWAYS, limited, v);
	}
	add_to(b, do_read, 1, 1, ALWAYS, limited, USUAL);
	add_to(b, do_read, 1, 1, OFF, limited, USUAL);
}

static int setup(struct bench *b)
{
	int r = run_all(b, 1, do_write, 0, OFF, 0);

	if (!r)
		r = run_all(b, 1, do_create, 0, OFF, 0);
	for (int limited = 0; limited < (group[0] ? 2 : 1); limited++) {
		for (int i = 0; i < b->n_clients; i++)
			for (uint32_t way = OFF; way <= ALWAYS; way++)
				add_to(b, do_stat, 0, b->clients[i], way, limited, USUAL);
		for (size_t s = 0; s < ARRAY_LEN(sizes); s++)
			for (int i = 0; i < b->n_clients; i++)
				for (uint32_t way = OFF; way <= ALWAYS; way++)
					add_to(b, do_read, sizes[s], b->clients[i], way, limited,
					       USUAL);
	}
	add_variants(b, group[0]);
	for (uint32_t way = OFF; way <= ALWAYS; way += ALWAYS)
		bench_case_add(b,
			       (struct bench_case){ .job = { .way = way },
						    .workers = b->most_clients,
						    .bytes = 8 * KIB,
						    .unit = "of the bytes",
						    .custom = read_after_write },
			       "served after a write, bank %s", modes[way]);
	return r;
}

static const struct bench_row *find(struct bench *b, const char *what, size_t size, int clients,
				    int way, bool limited, const char *which)
{
	char name[96];

	snprintf(name, sizeof(name), "%s%s, bank %s%s", what, limited ? ", servers limited" : "",
		 modes[way], which);
	return bench_find(b, name, (uint32_t)clients, size, 0);
}

/* The ratio with the bank on to that without it, of one size (0: stats) and number of clients. */
static const struct bench_row *compare(struct bench *b, size_t size, int clients, bool limited)
{
	const char *what = size ? "read" : "stat";
	char name[64], text[32] = "stat";

	if (size)
		bench_size_text(text, sizeof(text), size);
	snprintf(name, sizeof(name), "bank_%s, %s, %d clients", limited ? "limited" : "idle", text,
		 clients);
	return bench_ratio(b, name, find(b, what, size, clients, ON, limited, ""),
			   find(b, what, size, clients, OFF, limited, ""));
}

/* The ratios of the paper's figures, and ours. */
static void compare_with_paper(struct bench *b)
{
	static const struct {
		const char *name, *paper, *what, *which;
		size_t size;
		int clients; /* 0: most */
	} figures[] = {
		{ "bank_daemons, stat, 1 daemon", "5.6", "stat", ", 1 daemon", 0, 0 },
		{ "bank_daemons, stat, 4 daemons", NULL, "stat", ", 4 daemons", 0, 0 },
		{ "bank_blocks, 1 B, 256 B", "2.4", "read", ", blocks of 256", 1, 1 },
		{ "bank_blocks, 1 B, 2 KiB", "1.8", "read", ", blocks of 2048", 1, 1 },
		{ "bank_blocks, 1 B, 8 KiB", "1.4", "read", "", 1, 1 },
		{ "bank_large, 1 daemon", NULL, "read", ", 1 daemon", MIB, 8 },
		{ "bank_large, 4 daemons", "2.1", "read", ", 4 daemons", MIB, 8 },
	};

	for (size_t i = 0; i < ARRAY_LEN(figures); i++) {
		int n = figures[i].clients ? MIN(figures[i].clients, b->most_clients) :
					     b->most_clients;
		const struct bench_row *row = bench_ratio(
			b, figures[i].name,
			find(b, figures[i].what, figures[i].size, n, ALWAYS, group[0],
			     figures[i].which),
			find(b, figures[i].what, figures[i].size, n, OFF, group[0], ""));

		if (figures[i].paper)
			bench_paper(b, row, figures[i].paper);
	}
}

static void judge(struct bench *b)
{
	const struct bench_row *idle[32], *limited = NULL;
	int n = 0;

	for (size_t s = 0; s <= ARRAY_LEN(sizes); s++)
		for (int i = 0; i < b->n_clients && n < (int)ARRAY_LEN(idle); i++) {
			size_t size = s ? sizes[s - 1] : 0;
			int k = b->clients[i];

			idle[n++] = compare(b, size, k, false);
			limited = compare(b, size, k, true);
			if (k == b->most_clients && (!size || size == 2 * KIB))
				bench_bar(b, limited, BENCH_AT_LEAST, size ? 3 : 2);
		}
	compare_with_paper(b);
	bench_bar(b, bench_worst_point(b, "bank_idle", idle, n, false), BENCH_AT_LEAST, 0.9);
	bench_bar(b,
		  bench_find(b, "served after a write, bank always", (uint32_t)b->most_clients,
			     8 * KIB, 0),
		  BENCH_AT_MOST, 1.0 / 16);
}

const struct bench_kind bench_bank = {
	.name = "bank",
	.summary = "stats and reads of one file with and without the cache bank",
	.clients = { 1, 8, 32 },
	.missing = missing,
	.open = open_bank,
	.setup = setup,
	.judge = judge,
	.cleanup = drop_group,
	.end = end_bank,
};
