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
#include <sys/sysmacros.h>
#include <unistd.h>

#include "bench/bench_impl.h"

#define FILE_BYTES (8 * MIB)
#define FILES 2048 /* for stats */
#define FILES_LONG 262144
#define DAEMONS 4
#define PORT 21211
#define QUOTA_PERCENT 10 /* of one processor, for all servers together */
#define CASE_NS (300 * NSEC_PER_MSEC)
#define CASE_LONG_NS (2 * NSEC_PER_SEC)
#define COLD_BYTES (64 * MIB)
#define COLD_IOPS 400 /* of the disk below a loop device, in cold cases */
#define WAIT_NS (10 * NSEC_PER_SEC)

static const uint64_t usual_sizes[] = { 512, 2 * KIB, 16 * KIB, 64 * KIB };
static uint64_t sizes[BENCH_MAX_LIST]; /* these, or those of --sizes */
static size_t n_sizes;
static uint64_t n_files;
static const char *const modes[] = { "off", "on", "always" };
enum { OFF, ON, ALWAYS };
/* What the cluster files bank0.conf and so on differ in. */
static const struct variant {
	int daemons;
	uint32_t block;
} variants[] = { { 2, 8192 },	{ 1, 8192 },   { 4, 8192 },   { 2, 256 },   { 2, 2048 },
		 { 2, 32768 },	{ 2, 1024 },   { 2, 4096 },   { 2, 16384 }, { 2, 65536 },
		 { 2, 131072 }, { 2, 262144 }, { 2, 1048576 } };
enum { USUAL, ONE_DAEMON, FOUR_DAEMONS, BLOCKS, MORE_BLOCKS = BLOCKS + 3 };
static const char digits[] = "0123456789abcdef"; /* of variants, in names of cluster files */
enum { LIMITED = 1, EMPTY = 2, COLD = 4 }; /* job.seed: the servers; the bank; the disk */

static pid_t daemons[DAEMONS];
#define LOOP_MAJOR 7
#define READ_LIMIT "/sys/fs/cgroup/blkio/blkio.throttle.read_iops_device"
static char disk[16]; /* of the servers: "MAJOR:MINOR"; "": it cannot be limited */
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

/* The servers still run: they go back to the group above. */
static void remove_group(struct bench *b)
{
	char own[sizeof(group)], pid[16];

	if (!group[0])
		return;
	memcpy(own, group, sizeof(own));
	*strrchr(group, '/') = 0;
	for (int i = 0; group[0] && i < b->servers; i++) {
		snprintf(pid, sizeof(pid), "%d", (int)b->place.daemons[i].pid);
		write_number("cgroup.procs", pid);
	}
	rmdir(own);
	group[0] = 0;
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

/* The disk of the servers, if it is a loop device whose reads can be limited: "MAJOR:MINOR". */
static void find_disk(struct bench *b)
{
	struct stat st;

	disk[0] = 0;
	if (!b->place.on_disk || stat(b->place.dir, &st) || major(st.st_dev) != LOOP_MAJOR)
		return;
	if (access(READ_LIMIT, W_OK) == 0)
		snprintf(disk, sizeof(disk), "%u:%u", major(st.st_dev), minor(st.st_dev));
	else
		fprintf(stderr, "sheaf bench: reads of the disk cannot be limited (no blkio of "
				"control groups, version 1): no cold reads\n");
}

static void limit_disk(bool limited)
{
	FILE *f = disk[0] ? fopen(READ_LIMIT, "we") : NULL;

	if (!f)
		return;
	fprintf(f, "%s %d\n", disk, limited ? COLD_IOPS : 0);
	fclose(f);
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
		snprintf(path, sizeof(path), "%.900s/bank%c.conf", p->dir, digits[i]);
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
	limit_servers(false);
	limit_disk(false);
	remove_group(b);
	for (int i = 0; i < DAEMONS; i++) {
		if (daemons[i] > 0)
			kill(daemons[i], SIGTERM);
		bench_end_process(&daemons[i], time_now() + WAIT_NS);
	}
}

static int drop_group(struct bench *b)
{
	limit_servers(false);
	limit_disk(false);
	return bench_drop_files(b);
}

/* ---- what clients do ---- */

/* Connects with the bank on or off, and with one of the cluster files. */
static int connect_as(struct bench_worker *w, uint32_t way, struct sheaf **fs)
{
	char conf[CLI_PATH_MAX];

	snprintf(conf, sizeof(conf), "%s", w->conf);
	conf[strlen(conf) - strlen("0.conf")] = digits[w->job->server];
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
			      (int)sheaf_open(w->fs,
					      bench_path(w, w->job->cold ? "cold" : "shared"),
					      O_RDONLY, 0, NULL, &w->f));
	return r;
}

static int do_create(struct bench_worker *w)
{
	ssize_t r = sheaf_mkdir(w->fs, bench_path(w, "stat"), 0755);

	if (r == -EEXIST)
		r = 0;
	for (uint64_t i = (uint64_t)w->index; i < w->job->bytes && r >= 0; i += w->job->count) {
		r = sheaf_open(w->fs, bench_path(w, "stat/%d", (int)i), O_RDWR | O_CREAT, 0644,
			       NULL, &w->f);
		if (r >= 0)
			r = sheaf_close(w->f);
		w->f = NULL;
	}
	return bench_why(w, "create files", r);
}

static int do_stat(struct bench_worker *w)
{
	uint64_t i = hash_u64(w->i * 64 + (uint64_t)w->index) % w->job->bytes;
	struct stat st;

	return bench_why(w, "stat", sheaf_stat(w->fs, bench_path(w, "stat/%d", (int)i), &st));
}

/* Puts the attributes of this client's part of the files into the bank, by a connection of its own.
 * Attributes are not used that are from within a second of the servers' last change before. */
static int do_fill_stats(struct bench_worker *w)
{
	const struct timespec nap = { 1, 100000000 };
	struct sheaf *fs;
	struct stat st;
	int r = connect_as(w, ALWAYS, &fs);

	if (r)
		return r;
	nanosleep(&nap, NULL);
	for (uint64_t i = (uint64_t)w->index; i < w->job->bytes && !r; i += w->job->count)
		r = bench_why(w, "stat", sheaf_stat(fs, bench_path(w, "stat/%d", (int)i), &st));
	sheaf_disconnect(fs);
	return r;
}

static int do_write(struct bench_worker *w)
{
	const char *path = bench_path(w, w->job->cold ? "cold" : "shared");
	uint64_t bytes = w->job->cold ? COLD_BYTES : FILE_BYTES;
	ssize_t r = sheaf_open(w->fs, path, O_RDWR | O_CREAT, 0644, NULL, &w->f);

	memset(w->buf, (int)w->job->seed, BENCH_BLOCK);
	for (uint64_t at = 0; at < bytes && r >= 0; at += BENCH_BLOCK)
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
	uint64_t size = w->job->size, bytes = w->job->cold ? COLD_BYTES : FILE_BYTES;

	for (uint64_t at = 0; at < bytes; at += size) {
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
	uint64_t bytes = w->job->cold ? COLD_BYTES : FILE_BYTES;
	uint64_t at = hash_u64(w->i * 64 + (uint64_t)w->index) % (bytes / size) * size;

	return bench_moved(w, "read", sheaf_pread(w->f, w->buf, size, (off_t)at), size);
}

/* A job like that of a case, once. */
static int run_once(struct bench *b, int n, bench_fn *once, const struct bench_job *like)
{
	struct bench_job j = { .once = once,
			       .max_ops = 1,
			       .size = like->size,
			       .server = like->server,
			       .way = like->way,
			       .seed = like->seed,
			       .cold = like->cold,
			       .bytes = n_files,
			       .count = (uint32_t)n };
	struct bench_result out[BENCH_MAX_CLIENTS];

	snprintf(j.path, sizeof(j.path), "%s", b->place.scratch);
	return bench_clients_run(b, &j, n, out);
}

/* Before the measurement clients find out whether asking pays. */
static int warm_up(struct bench *b, struct bench_case *c)
{
	struct bench_result out[BENCH_MAX_CLIENTS];
	struct bench_job j = c->job;

	j.ns = c->ns;
	snprintf(j.path, sizeof(j.path), "%s", b->place.scratch);
	return bench_clients_run(b, &j, c->workers, out);
}

/* The bank has all of the file, if it is for that. */
static int fill_bank(struct bench *b, const struct bench_case *c)
{
	struct bench_job j = c->job;
	int r = 0;

	j.size = MIN(64 * KIB, 32 * (uint64_t)variants[j.server].block);
	for (int i = 0; !r && i < 2; i++)
		r = run_once(b, 1, do_sweep, &j);
	return r;
}

/* The file has a state that no bank has seen. */
static int write_anew(struct bench *b, bool cold)
{
	static uint32_t version;
	const struct bench_job j = { .seed = ++version, .cold = cold };

	return run_once(b, 1, do_write, &j);
}

/* No server has the cold file in its memory, and the disk is slow. */
static int cool(struct bench *b, bool is_cold)
{
	char file[CLI_PATH_MAX];

	if (!is_cold)
		return 0;
	snprintf(file, sizeof(file), "%s/cold", b->place.scratch);
	limit_disk(true);
	return bench_drop_cached(b, file);
}

/* All clients of the case have the file open, and the bank has all of it, or nothing. */
static int prepare(struct bench *b, struct bench_case *c)
{
	struct bench_job j = c->job;
	int r = 0;

	limit_servers(false);
	limit_disk(false);
	if (j.seed & EMPTY)
		r = write_anew(b, j.cold);
	j.way = ALWAYS;
	if (!r)
		r = run_once(b, c->workers, do_reopen, &j);
	if (!r && c->job.way != OFF && j.once == do_read && !(j.seed & EMPTY))
		r = fill_bank(b, c);
	j.way = c->job.way;
	if (!r)
		r = run_once(b, c->workers, do_reopen, &j);
	if (!r && j.way != OFF && j.once == do_stat)
		r = run_once(b, c->workers, do_fill_stats, &j);
	limit_servers(j.seed & LIMITED);
	if (!r)
		r = cool(b, j.cold);
	return r || (j.seed & EMPTY) ? r : warm_up(b, c);
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
	double before = 0, after = 0;
	struct bench_job j = c->job;
	int r;

	limit_servers(false);
	r = write_anew(b, false);
	if (!r)
		r = run_once(b, c->workers, do_reopen, &j);
	if (!r)
		r = served(b, &before);
	j.size = 8 * KIB;
	if (!r)
		r = run_once(b, c->workers, do_sweep, &j);
	if (!r)
		r = served(b, &after);
	*value = (after - before) / ((double)FILE_BYTES * c->workers);
	return r;
}

/* ---- cases ---- */

static void add_to(struct bench *b, bench_fn *once, uint64_t size, int clients, uint32_t way,
		   uint32_t how, int variant)
{
	const struct variant *v = &variants[variant];
	char which[64] = "";
	struct bench_case c = { .job = { .once = once,
					 .size = size,
					 .way = way,
					 .seed = how,
					 .cold = how & COLD,
					 .bytes = n_files,
					 .server = (uint32_t)variant },
				.before = prepare,
				.workers = clients,
				.bytes = size,
				.ns = b->long_form || (how & COLD) ? CASE_LONG_NS : CASE_NS,
				.figure = BENCH_RATE };

	if (variant >= BLOCKS)
		snprintf(which, sizeof(which), ", blocks of %u", v->block);
	else if (variant != USUAL)
		snprintf(which, sizeof(which), ", %d daemon%s", v->daemons,
			 v->daemons > 1 ? "s" : "");
	bench_case_add(b, c, "%s%s%s%s, bank %s%s", how & COLD ? "cold " : "",
		       once == do_stat ? "stat" : "read", how & LIMITED ? ", servers limited" : "",
		       how & EMPTY ? ", empty" : "", modes[way], which);
}

static int some_clients(const struct bench *b)
{
	return MIN(b->most_clients, 8);
}

/* Other numbers of daemons and sizes of blocks, always asked. */
static void add_variants(struct bench *b, uint32_t how)
{
	for (int v = ONE_DAEMON; v <= FOUR_DAEMONS; v++) {
		add_to(b, do_stat, 0, b->most_clients, ALWAYS, how, v);
		add_to(b, do_read, MIB, some_clients(b), ALWAYS, how, v);
	}
	add_to(b, do_read, MIB, some_clients(b), OFF, how, USUAL);
	for (int v = BLOCKS; v < MORE_BLOCKS; v++) {
		add_to(b, do_read, 1, 1, ALWAYS, how, v);
		add_to(b, do_read, 2 * KIB, 1, ALWAYS, how, v);
		if (variants[v].block > 256) /* 64 KiB are more blocks than one question has */
			add_to(b, do_read, 64 * KIB, 1, ALWAYS, how, v);
	}
	add_to(b, do_read, 1, 1, ALWAYS, how, USUAL);
	add_to(b, do_read, 1, 1, OFF, how, USUAL);
}

/* --blocks: reads of several sizes of what the bank has, and while it is filled. A conversation has
 * at most 64 blocks. */
static void add_blocks(struct bench *b, uint32_t how)
{
	static const uint64_t reads[] = { 256, 2 * KIB, 16 * KIB, 64 * KIB, MIB };

	for (int v = USUAL; v < (int)ARRAY_LEN(variants); v++) {
		if (v == ONE_DAEMON || v == FOUR_DAEMONS)
			continue;
		for (size_t i = 0; i < ARRAY_LEN(reads); i++) {
			if (reads[i] > 63 * variants[v].block)
				continue;
			add_to(b, do_read, reads[i], some_clients(b), ALWAYS, how, v);
			if (reads[i] < MIB)
				add_to(b, do_read, reads[i], some_clients(b), ALWAYS, how | EMPTY,
				       v);
		}
	}
}

static void add_after_write(struct bench *b)
{
	for (uint32_t way = OFF; way <= ALWAYS; way += ALWAYS)
		bench_case_add(b,
			       (struct bench_case){ .job = { .way = way },
						    .workers = b->most_clients,
						    .bytes = 8 * KIB,
						    .unit = "of the bytes",
						    .custom = read_after_write },
			       "served after a write, bank %s", modes[way]);
}

/* Reads of a file that the servers have to read from a slow disk. */
static int add_cold(struct bench *b)
{
	const struct bench_job j = { .cold = true };

	for (int i = 0; i < b->n_clients; i++)
		for (uint32_t way = OFF; way <= ALWAYS; way++)
			add_to(b, do_read, 2 * KIB, b->clients[i], way, COLD, USUAL);
	return run_once(b, 1, do_write, &j);
}

static void add_usual(struct bench *b)
{
	for (uint32_t how = 0; how <= (group[0] ? LIMITED : 0); how++) {
		for (int i = 0; i < b->n_clients && !b->n_sizes; i++)
			for (uint32_t way = OFF; way <= ALWAYS; way++)
				add_to(b, do_stat, 0, b->clients[i], way, how, USUAL);
		for (size_t s = 0; s < n_sizes; s++)
			for (int i = 0; i < b->n_clients; i++)
				for (uint32_t way = OFF; way <= ALWAYS; way++)
					add_to(b, do_read, sizes[s], b->clients[i], way, how,
					       USUAL);
	}
	if (!b->n_sizes)
		add_variants(b, group[0] ? LIMITED : 0);
	if (!b->n_sizes)
		add_after_write(b);
}

static void take_sizes(struct bench *b)
{
	n_sizes = b->n_sizes ? (size_t)b->n_sizes : ARRAY_LEN(usual_sizes);
	for (size_t s = 0; s < n_sizes; s++)
		sizes[s] = b->n_sizes ? (uint64_t)b->sizes[s] : usual_sizes[s];
	n_files = b->long_form ? FILES_LONG : FILES;
}

static int setup(struct bench *b)
{
	const struct bench_job j = { .way = OFF };
	int r;

	take_sizes(b);
	find_disk(b);
	r = run_once(b, 1, do_write, &j);
	if (!r && !b->n_sizes && !b->blocks)
		r = run_once(b, b->most_clients, do_create, &j);
	if (b->blocks)
		add_blocks(b, group[0] ? LIMITED : 0);
	else
		add_usual(b);
	if (!r && disk[0] && !b->blocks)
		r = add_cold(b);
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

static void compare_cold(struct bench *b)
{
	for (int i = 0; i < b->n_clients && disk[0]; i++) {
		int k = b->clients[i];
		char name[64];
		const struct bench_row *row;

		snprintf(name, sizeof(name), "bank_cold, 2 KiB, %d clients", k);
		row = bench_ratio(b, name, find(b, "cold read", 2 * KIB, k, ON, false, ""),
				  find(b, "cold read", 2 * KIB, k, OFF, false, ""));
		if (k == b->most_clients)
			bench_bar(b, row, BENCH_AT_LEAST, 3);
	}
}

static void judge(struct bench *b)
{
	const struct bench_row *idle[64], *limited = NULL;
	int n = 0;

	if (b->blocks)
		return;
	for (size_t s = 0; s <= n_sizes; s++)
		for (int i = 0; i < b->n_clients && n < (int)ARRAY_LEN(idle); i++) {
			size_t size = s ? sizes[s - 1] : 0;
			int k = b->clients[i];

			idle[n++] = compare(b, size, k, false);
			limited = compare(b, size, k, true);
			if (k == b->most_clients && (!size || size == 2 * KIB))
				bench_bar(b, limited, BENCH_AT_LEAST, size ? 3 : 2);
		}
	compare_with_paper(b);
	compare_cold(b);
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
	.clients_long = 64,
	.missing = missing,
	.open = open_bank,
	.setup = setup,
	.judge = judge,
	.cleanup = drop_group,
	.end = end_bank,
};
