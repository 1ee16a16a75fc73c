/* Where `sheaf bench` runs: temporary servers below --dir, or the running file system with a
 * scratch directory in it. bench_place_close() removes everything that was created, also after a
 * signal or a failure. Single-threaded, blocking. */
#include <arpa/inet.h>
#include <ftw.h>
#include <limits.h>
#include <linux/magic.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/bench_impl.h"

#define START_NS (15 * NSEC_PER_SEC)
#define START_TRIES 3 /* another process may take a port between the probe and the start */
#define SETTLE_NS (20 * NSEC_PER_SEC)
#define FIRST_PORT 20000
#define LAST_PORT 32000 /* below the kernel's range of ephemeral ports */

/* ---- the file system below the storage ---- */

static void look_at_storage(struct bench_place *p)
{
	static const struct {
		long magic;
		const char *name;
	} known[] = { { TMPFS_MAGIC, "tmpfs" },	      { RAMFS_MAGIC, "ramfs" },
		      { EXT4_SUPER_MAGIC, "ext4" },   { XFS_SUPER_MAGIC, "xfs" },
		      { BTRFS_SUPER_MAGIC, "btrfs" }, { OVERLAYFS_SUPER_MAGIC, "overlayfs" },
		      { NFS_SUPER_MAGIC, "nfs" } };
	struct statfs s;

	snprintf(p->fs_type, sizeof(p->fs_type), "unknown");
	if (!p->storage[0] || statfs(p->storage, &s))
		return;
	snprintf(p->fs_type, sizeof(p->fs_type), "0x%lx", (unsigned long)s.f_type);
	for (size_t i = 0; i < ARRAY_LEN(known); i++)
		if ((unsigned long)known[i].magic == (unsigned long)s.f_type)
			snprintf(p->fs_type, sizeof(p->fs_type), "%s", known[i].name);
	p->in_memory = s.f_type == TMPFS_MAGIC || s.f_type == RAMFS_MAGIC;
	p->on_disk = !p->in_memory;
}

/* ---- temporary servers ---- */

static bool port_is_free(int port)
{
	struct sockaddr_in a = { .sin_family = AF_INET,
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
				 .sin_port = htons((uint16_t)port) };
	int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	bool ok = s >= 0 && bind(s, (struct sockaddr *)&a, sizeof(a)) == 0;

	if (s >= 0)
		close(s);
	return ok;
}

uint32_t bench_find_ports(uint32_t n)
{
	for (int tries = 0; tries < 1000; tries++) {
		uint32_t base, k = 0;

		if (getrandom(&base, sizeof(base), 0) != sizeof(base))
			return 0;
		base = FIRST_PORT + base % (LAST_PORT - FIRST_PORT - n);
		while (k < n && port_is_free((int)(base + k)))
			k++;
		if (k == n)
			return base;
	}
	return 0;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st, (void)type, (void)ftw;
	return remove(path);
}

/* Temporary servers need no clean stop. */
static void kill_servers(struct bench_place *p)
{
	uint32_t n = p->conf ? p->conf->n_targets : 0;

	for (uint32_t i = 0; p->daemons && i < n; i++)
		if (p->daemons[i].pid > 0)
			kill(p->daemons[i].pid, SIGKILL);
	for (uint32_t i = 0; p->daemons && i < n; i++)
		if (p->daemons[i].pid > 0)
			waitpid(p->daemons[i].pid, NULL, 0);
	cli_daemons_free(p->daemons, n);
	conf_free(p->conf);
	p->daemons = NULL;
	p->conf = NULL;
}

static void remove_servers(struct bench_place *p)
{
	kill_servers(p);
	if (p->dir[0])
		nftw(p->dir, remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
	p->dir[0] = 0;
}

static void remove_own(struct bench *b)
{
	struct bench_place *p = &b->place;

	kill_servers(p);
	bench_hosts_close(b);
	remove_servers(p);
}

/* Waits for all servers; `why` gets the message of the first that failed. */
static bool all_ready(struct bench_place *p, char *why, size_t n)
{
	bool ok = true;

	cli_daemons_wait(p->daemons, p->conf->n_targets, START_NS);
	for (uint32_t i = 0; ok && i < p->conf->n_targets; i++) {
		const struct cli_daemon *d = &p->daemons[i];

		ok = d->ok;
		if (!ok)
			snprintf(why, n, "%s: %.400s", d->target->name,
				 d->message[0] ? d->message : "it did not become ready");
	}
	return ok && !cli_signal;
}

/* Makes storage, hosts and the cluster file. 0 or -errno, with the reason in `why`. */
static int make_own(struct bench *b, uint32_t servers, char *why, size_t n)
{
	struct bench_place *p = &b->place;
	struct sheaf_init o = { .size = sizeof(o),
				.servers = servers,
				.metas = MIN((uint32_t)b->metas, servers),
				.port = bench_find_ports(servers),
				.stripe_unit = BENCH_UNIT };
	int r = sheaf_init(p->dir, &o);

	if (r) {
		snprintf(why, n, "%s", sheaf_why());
		return r;
	}
	snprintf(p->conf_path, sizeof(p->conf_path), "%s/sheaf.conf", p->dir);
	if (b->on_hosts || b->kind->slow_client)
		r = bench_hosts_open(b, (int)servers, why, n);
	return r ? r : conf_load(p->conf_path, &p->conf, why, n);
}

static int spawn_own(struct bench *b, char *why, size_t n)
{
	struct bench_place *p = &b->place;
	int r = 0;

	p->daemons = cli_daemons_find(p->conf);
	if (!p->daemons) {
		snprintf(why, n, "out of memory");
		return -ENOMEM;
	}
	for (uint32_t i = 0; !r && i < p->conf->n_targets; i++) {
		r = bench_hosts_enter(b, (int)i);
		if (!r)
			p->daemons[i].done = cli_daemon_spawn(&p->daemons[i], p->conf) != 0;
	}
	if (!r)
		r = bench_hosts_enter(b, -1);
	if (r) {
		snprintf(why, n, "cannot enter a network namespace: %s", error_text(r));
		return r;
	}
	return all_ready(p, why, n) ? 0 : -EAGAIN;
}

static int start_own(struct bench *b, const char *dir, uint32_t servers, char *why, size_t n)
{
	struct bench_place *p = &b->place;
	int r;

	snprintf(p->dir, sizeof(p->dir), "%.*s/sheaf-bench-XXXXXX", (int)sizeof(p->dir) - 32, dir);
	if (!mkdtemp(p->dir)) {
		snprintf(why, n, "cannot make a directory in %s: %s", dir, error_text(errno));
		p->dir[0] = 0;
		return -EIO;
	}
	r = make_own(b, servers, why, n);
	return r ? r : spawn_own(b, why, n);
}

static int open_own(struct bench *b, const char *given, uint32_t servers)
{
	struct bench_place *p = &b->place;
	char dir[PATH_MAX], why[CLI_PATH_MAX + 512] = "";
	int r = -EAGAIN;

	if (!realpath(given, dir))
		return cli_fail_host(b->c, given, -errno);
	if (strlen(dir) > sizeof(p->dir) - 64)
		return cli_fail_host(b->c, given, -ENAMETOOLONG);
	p->own = true;
	p->never_sieve = false;
	for (int i = 0; r == -EAGAIN && i < START_TRIES && !cli_signal; i++) {
		remove_own(b);
		r = start_own(b, dir, servers, why, sizeof(why));
	}
	if (cli_signal)
		return CLI_FAILED;
	if (r)
		return cli_error(b->c, "cannot start temporary servers: %s", why);
	snprintf(p->storage, sizeof(p->storage), "%s", p->dir);
	memcpy(p->client_conf, p->conf_path, sizeof(p->client_conf));
	return CLI_OK;
}

/* open_own() works on the place of the benchmark. */
int bench_place_add(struct bench *b, struct bench_place *other, uint32_t servers)
{
	struct bench_place mine = b->place;
	int status;

	b->place = (struct bench_place){ 0 };
	status = open_own(b, b->dir, servers);
	if (status)
		remove_servers(&b->place);
	*other = b->place;
	b->place = mine;
	return status ? -EIO : 0;
}

void bench_place_remove(struct bench *b, struct bench_place *other)
{
	(void)b;
	remove_servers(other);
	*other = (struct bench_place){ 0 };
}

int bench_make_dir(struct bench *b, const char *path)
{
	int r = mkdir(path, 0700) ? -errno : 0;

	if (r)
		cli_fail_host(b->c, path, r);
	return r;
}

int bench_conf_edit(const char *from, const char *to,
		    void (*put)(FILE *out, const char *line, void *arg), void *arg)
{
	char tmp[CLI_PATH_MAX + 8], *line = NULL;
	FILE *in = fopen(from, "re"), *out;
	size_t room = 0;
	int r;

	snprintf(tmp, sizeof(tmp), "%s.new", to);
	out = in ? fopen(tmp, "we") : NULL;
	r = out ? 0 : -errno;
	while (out && getline(&line, &room, in) > 0)
		put(out, line, arg);
	if (out && (fclose(out) || rename(tmp, to)))
		r = -errno;
	if (in)
		fclose(in);
	free(line);
	return r;
}

/* Sets or removes `sieve = never`; `arg`: is sieving on? */
static void put_sieve(FILE *out, const char *line, void *arg)
{
	const bool *sieve = arg;

	if (strncmp(line, "sieve = ", 8) != 0)
		fputs(line, out);
	if (strcmp(line, "[cluster]\n") == 0 && !*sieve)
		fputs("sieve = never\n", out);
}

/* A server that has answered twice after the signal has read the file: it does so between turns of
 * its loop. */
int bench_place_sieve(struct bench *b, bool sieve)
{
	struct bench_place *p = &b->place;
	int r;

	if (p->never_sieve == !sieve || !p->own)
		return 0;
	r = bench_conf_edit(p->conf_path, p->conf_path, put_sieve, &sieve);
	for (int i = 0; !r && i < b->servers; i++)
		if (kill(p->daemons[i].pid, SIGHUP) < 0)
			r = -errno;
	for (int i = 0; !r && i < 2 * b->servers; i++)
		r = sheaf_ping(b->c->fs, i % b->servers);
	p->never_sieve = !sieve;
	if (r)
		cli_fail_host(b->c, p->conf_path, r);
	return r;
}

/* ---- the running file system ---- */

/* Finds the directory that holds a server's storage, if it is on this host. */
static void find_storage(struct bench_place *p)
{
	const struct conf_target *t = &p->conf->targets[0];
	char *slash;

	if (!cli_address_is_local(t->address) || strlen(t->storage) >= sizeof(p->storage))
		return;
	snprintf(p->storage, sizeof(p->storage), "%s", t->storage);
	slash = strrchr(p->storage, '/');
	if (slash && slash > p->storage)
		*slash = 0;
	if (access(p->storage, W_OK) < 0)
		p->storage[0] = 0;
}

static int open_running(struct bench *b)
{
	struct bench_place *p = &b->place;
	int status = cli_load_conf(b->c, &p->conf);

	if (status)
		return status;
	snprintf(p->conf_path, sizeof(p->conf_path), "%s", p->conf->path);
	memcpy(p->client_conf, p->conf_path, sizeof(p->client_conf));
	find_storage(p);
	return CLI_OK;
}

int bench_place_open(struct bench *b, const char *dir, uint32_t servers)
{
	int status = dir ? open_own(b, dir, servers) : open_running(b);

	if (status)
		return status;
	look_at_storage(&b->place);
	b->servers = (int)b->place.conf->n_targets;
	b->metas = 0;
	for (int i = 0; i < b->servers; i++)
		b->metas += (b->place.conf->targets[i].roles & ROLE_META) != 0;
	return CLI_OK;
}

int bench_place_connect(struct bench *b)
{
	struct bench_place *p = &b->place;
	struct sheaf_account a;
	uint32_t id;
	int r;

	b->c->conf = p->client_conf;
	r = cli_connect(b->c);
	if (r)
		return r;
	if (getrandom(&id, sizeof(id), 0) != sizeof(id))
		id = (uint32_t)getpid();
	snprintf(p->scratch, sizeof(p->scratch), "/.sheaf-bench-%08x", id);
	r = sheaf_mkdir(b->c->fs, p->scratch, 0700);
	p->medium = !r && !sheaf_account(b->c->fs, 0, &a) && a.medium ? a.medium : "unknown";
	if (!b->shown.servers)
		b->shown = (struct bench_shown){ b->servers, b->metas,	MAX(b->hosts.n, 1),
						 b->rounds,  p->medium, bench_hosts_rate(b) };
	if (!r)
		return CLI_OK;
	r = cli_fail(b->c, p->scratch, r);
	p->scratch[0] = 0;
	return r;
}

/* ---- cleanup ---- */

static void remove_inside(struct bench *b, const char *dir)
{
	struct cli_names names = { 0 };
	char path[CLI_PATH_MAX];

	if (cli_names_inside(b->c, dir, false, &names) == 0) {
		for (size_t i = 0; i < names.n; i++) {
			if (cli_join(path, dir, names.v[i].name))
				continue;
			if (S_ISDIR(names.v[i].type))
				remove_inside(b, path);
			else
				sheaf_unlink(b->c->fs, path);
		}
	}
	cli_names_free(&names);
	sheaf_rmdir(b->c->fs, dir);
}

void bench_place_close(struct bench *b)
{
	struct bench_place *p = &b->place;

	if (b->c->fs && p->scratch[0] && !p->own) {
		remove_inside(b, p->scratch);
		bench_wait_idle(b); /* complete the removal before the next benchmark starts */
	}
	cli_disconnect(b->c);
	bench_proxy_close(b);
	if (p->own)
		remove_own(b);
	conf_free(p->conf);
	p->conf = NULL;
}

void bench_wait_idle(struct bench *b)
{
	const struct timespec pause = { 0, 5000000 };
	uint64_t end = time_now() + SETTLE_NS;
	struct sheaf_request row;
	int busy;

	do {
		busy = 0;
		for (int i = 0; !busy && i < b->servers; i++)
			busy = sheaf_server_requests(b->c->fs, i, CLI_STATUS_MS, &row, 1) > 0;
		if (busy)
			nanosleep(&pause, NULL);
	} while (busy && time_now() < end && !cli_signal);
}
