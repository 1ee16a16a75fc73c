/* sheaf bench bank: small reads of one file by several clients, with and without the cache bank,
 * while the servers have all processors and while they have a part of one; and what the servers
 * still read when many clients read a file that was just written (paper 001, chapter 7).
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
#define DAEMONS 2
#define PORT 21211
#define QUOTA_PERCENT 10 /* of one processor, for all servers together */
#define WAIT_NS (10 * NSEC_PER_SEC)

static const uint64_t sizes[] = { 512, 2 * KIB, 16 * KIB, 64 * KIB };
static const char *const modes[] = { "off", "on", "always" };
enum { OFF, ON, ALWAYS };

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

/* The clients' cluster file is that of the servers with a section [bank]. */
static int open_bank(struct bench *b)
{
	struct bench_place *p = &b->place;
	char path[CLI_PATH_MAX], key[CLI_PATH_MAX], err[512];
	FILE *f;
	int r = 0;

	snprintf(path, sizeof(path), "%.900s/bank.conf", p->dir);
	snprintf(key, sizeof(key), "%.900s/bank.key", p->dir);
	if (key_create(key, err, sizeof(err)))
		return bench_program_fail(b, err, -EIO);
	r = bench_conf_edit(p->conf_path, path, put_line, NULL);
	f = r ? NULL : fopen(path, "ae");
	if (!f)
		return bench_program_fail(b, path, -EIO);
	fprintf(f, "\n[bank]\nkey = %s\nservers =", key);
	for (int i = 0; i < DAEMONS; i++) {
		struct sockaddr_in a = daemon_address(b, i);
		char host[INET_ADDRSTRLEN];

		fprintf(f, " %s:%d", inet_ntop(AF_INET, &a.sin_addr, host, sizeof(host)), PORT + i);
	}
	fputc('\n', f);
	fclose(f);
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

/* Connects anew with the bank on or off, and opens the file that all read. */
static int do_reopen(struct bench_worker *w)
{
	int r;

	if (w->f)
		sheaf_close(w->f);
	w->f = NULL;
	sheaf_disconnect(w->fs);
	setenv("SHEAF_BANK", modes[w->job->way], 1);
	r = bench_do_connect(w);
	if (!r)
		r = bench_why(w, "open the file",
			      (int)sheaf_open(w->fs, bench_path(w, "shared"), O_RDONLY, 0, NULL,
					      &w->f));
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

static int run_all(struct bench *b, int n, bench_fn *once, uint64_t size, uint32_t way,
		   uint32_t seed)
{
	struct bench_job j = { .once = once, .max_ops = 1, .size = size, .way = way, .seed = seed };
	struct bench_result out[BENCH_MAX_CLIENTS];

	snprintf(j.path, sizeof(j.path), "%s", b->place.scratch);
	return bench_clients_run(b, &j, n, out);
}

/* All clients of the case have the file open, and the bank has all of it. */
static int prepare(struct bench *b, struct bench_case *c)
{
	int r;

	limit_servers(false);
	r = run_all(b, c->workers, do_reopen, 0, ALWAYS, 0);
	for (int i = 0; !r && i < 2 && c->job.way != OFF; i++)
		r = run_all(b, 1, do_sweep, 64 * KIB, 0, 0);
	if (!r)
		r = run_all(b, c->workers, do_reopen, 0, c->job.way, 0);
	limit_servers(c->job.seed);
	return r;
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
		r = run_all(b, c->workers, do_reopen, 0, c->job.way, 0);
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

static void add(struct bench *b, uint64_t size, int clients, uint32_t way, bool limited)
{
	struct bench_case c = {
		.job = { .once = do_read, .size = size, .way = way, .seed = limited },
		.before = prepare,
		.workers = clients,
		.bytes = size,
		.figure = BENCH_RATE
	};

	bench_case_add(b, c, "read%s, bank %s", limited ? ", servers limited" : "", modes[way]);
}

static int setup(struct bench *b)
{
	int r = run_all(b, 1, do_write, 0, OFF, 0);

	for (int limited = 0; limited < (group[0] ? 2 : 1); limited++)
		for (size_t s = 0; s < ARRAY_LEN(sizes); s++)
			for (int i = 0; i < b->n_clients; i++)
				for (uint32_t way = OFF; way <= ALWAYS; way++)
					add(b, sizes[s], b->clients[i], way, limited);
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

static const struct bench_row *find(struct bench *b, size_t size, int clients, int way,
				    bool limited)
{
	char name[64];

	snprintf(name, sizeof(name), "read%s, bank %s", limited ? ", servers limited" : "",
		 modes[way]);
	return bench_find(b, name, (uint32_t)clients, sizes[size], 0);
}

static void judge(struct bench *b)
{
	const struct bench_row *idle[32], *limited = NULL;
	char name[64], size[32];
	int n = 0;

	for (size_t s = 0; s < ARRAY_LEN(sizes); s++)
		for (int i = 0; i < b->n_clients && n < (int)ARRAY_LEN(idle); i++) {
			int k = b->clients[i];

			bench_size_text(size, sizeof(size), sizes[s]);
			snprintf(name, sizeof(name), "bank_idle, %s, %d clients", size, k);
			idle[n++] = bench_ratio(b, name, find(b, s, k, ON, false),
						find(b, s, k, OFF, false));
			snprintf(name, sizeof(name), "bank_limited, %s, %d clients", size, k);
			limited = bench_ratio(b, name, find(b, s, k, ON, true),
					      find(b, s, k, OFF, true));
			if (sizes[s] == 2 * KIB && k == b->most_clients)
				bench_bar(b, limited, BENCH_AT_LEAST, 3);
		}
	bench_bar(b, bench_worst_point(b, "bank_idle", idle, n, false), BENCH_AT_LEAST, 0.9);
	bench_bar(b,
		  bench_find(b, "served after a write, bank always", (uint32_t)b->most_clients,
			     8 * KIB, 0),
		  BENCH_AT_MOST, 1.0 / 16);
}

const struct bench_kind bench_bank = {
	.name = "bank",
	.summary = "small reads of one file with and without the cache bank",
	.clients = { 1, 8, 32 },
	.missing = missing,
	.open = open_bank,
	.setup = setup,
	.judge = judge,
	.cleanup = drop_group,
	.end = end_bank,
};
