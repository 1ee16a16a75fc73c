/* The servers of this host: which there are, which are running, and starting one.
 *
 * A running sheafd keeps STORAGE/sheafd.pid. A pid is accepted only if that process is a sheafd
 * with this cluster file and this server on its command line; a pidfd then refers to it, so that a
 * signal cannot reach another process that reused the pid. A server whose pid file is missing, or
 * names another cluster file, is asked for its pid at its address; that counts only if the process
 * is as old as the server says, since the server may run in another container. Blocking;
 * single-threaded. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <ftw.h>
#include <ifaddrs.h>
#include <limits.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cli/cli.h"

extern char **environ;

/* ---- addresses ---- */

static bool same_host(const struct sockaddr *a, const struct sockaddr *b)
{
	if (!b || a->sa_family != b->sa_family)
		return false;
	if (a->sa_family == AF_INET)
		return ((const struct sockaddr_in *)a)->sin_addr.s_addr ==
		       ((const struct sockaddr_in *)b)->sin_addr.s_addr;
	if (a->sa_family == AF_INET6)
		return memcmp(&((const struct sockaddr_in6 *)a)->sin6_addr,
			      &((const struct sockaddr_in6 *)b)->sin6_addr,
			      sizeof(struct in6_addr)) == 0;
	return false;
}

static bool is_loopback_or_any(const struct sockaddr *a)
{
	const struct in6_addr *six;
	uint32_t four;

	if (a->sa_family == AF_INET) {
		four = ntohl(((const struct sockaddr_in *)a)->sin_addr.s_addr);
		return four >> 24 == 127 || four == 0;
	}
	if (a->sa_family != AF_INET6)
		return false;
	six = &((const struct sockaddr_in6 *)a)->sin6_addr;
	return IN6_IS_ADDR_LOOPBACK(six) || IN6_IS_ADDR_UNSPECIFIED(six);
}

static bool is_interface(const struct sockaddr *a)
{
	struct ifaddrs *all;
	bool found = false;

	if (getifaddrs(&all) < 0)
		return false;
	for (struct ifaddrs *i = all; i && !found; i = i->ifa_next)
		found = same_host(a, i->ifa_addr);
	freeifaddrs(all);
	return found;
}

/* Splits HOST:PORT or [HOST]:PORT; false: it is neither. */
static bool split_address(const char *address, char host[CONF_ADDR_MAX], char port[16])
{
	const char *colon = strrchr(address, ':');
	size_t n;

	if (!colon || colon == address)
		return false;
	n = MIN((size_t)(colon - address), (size_t)CONF_ADDR_MAX - 1);
	memcpy(host, address, n);
	host[n] = 0;
	if (host[0] == '[' && host[n - 1] == ']') {
		memmove(host, host + 1, n - 2);
		host[n - 2] = 0;
	}
	snprintf(port, 16, "%s", colon + 1);
	return true;
}

bool cli_address_is_local(const char *address)
{
	const struct addrinfo want = { .ai_socktype = SOCK_STREAM };
	char host[CONF_ADDR_MAX], port[16];
	struct addrinfo *all;
	bool local = false;

	if (!split_address(address, host, port) || getaddrinfo(host, NULL, &want, &all))
		return false;
	for (struct addrinfo *a = all; a && !local; a = a->ai_next)
		local = is_loopback_or_any(a->ai_addr) || is_interface(a->ai_addr);
	freeaddrinfo(all);
	return local;
}

/* ---- running servers ---- */

void cli_pid_path(char out[CLI_PATH_MAX], const struct conf_target *t)
{
	snprintf(out, CLI_PATH_MAX, "%s/sheafd.pid", t->storage);
}

void cli_log_path(char out[CLI_PATH_MAX], const struct conf_target *t)
{
	snprintf(out, CLI_PATH_MAX, "%s/sheafd.log", t->storage);
}

/* Reads the beginning of a file as a string; its length, 0 if it cannot be read. */
static size_t read_text(const char *path, char *out, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : read(fd, out, size - 1);

	if (fd >= 0)
		close(fd);
	out[MAX(n, 0)] = 0;
	return (size_t)MAX(n, 0);
}

pid_t cli_pid_read(const struct conf_target *t)
{
	char path[CLI_PATH_MAX], text[32];
	uint64_t pid = 0;

	cli_pid_path(path, t);
	read_text(path, text, sizeof(text));
	text[strcspn(text, "\n")] = 0;
	return cli_number(text, 1, INT_MAX, &pid) ? 0 : (pid_t)pid;
}

/* Does `path`, relative to the working directory of the process, name the file `ours`? */
static bool same_file(pid_t pid, const char *path, const char *ours)
{
	char full[CLI_PATH_MAX];
	struct stat a, b;

	if (strcmp(path, ours) == 0)
		return true;
	if (path[0] == '/')
		snprintf(full, sizeof(full), "%s", path);
	else
		snprintf(full, sizeof(full), "/proc/%d/cwd/%s", pid, path);
	return stat(full, &a) == 0 && stat(ours, &b) == 0 && a.st_dev == b.st_dev &&
	       a.st_ino == b.st_ino;
}

/* The value of an option on a command line of n bytes (NUL-terminated strings), or NULL. */
static const char *find_value(const char *line, size_t n, const char *option)
{
	size_t len = strlen(option);

	for (const char *p = line; p < line + n; p += strlen(p) + 1) {
		if (strncmp(p, option, len) != 0)
			continue;
		if (p[len] == '=' || (p[len] == 0 && p + len + 1 < line + n))
			return p + len + 1;
	}
	return NULL;
}

static bool is_our_sheafd(pid_t pid, const struct conf *conf, const struct conf_target *t)
{
	char path[64], line[2 * CLI_PATH_MAX], id[16];
	const char *file, *server;
	size_t n;

	snprintf(path, sizeof(path), "/proc/%d/cmdline", pid);
	n = read_text(path, line, sizeof(line));
	if (strcmp(cli_basename(line), "sheafd") != 0)
		return false;
	snprintf(id, sizeof(id), "%u", t->id);
	file = find_value(line, n, "--conf");
	server = find_value(line, n, "--server");
	return file && server && same_file(pid, file, conf->path) &&
	       (strcmp(server, t->name) == 0 || strcmp(server, id) == 0);
}

static void find_running(struct cli_daemon *d, const struct conf *conf)
{
	pid_t pid = cli_pid_read(d->target);
	int fd = pid ? pidfd_open(pid, 0) : -1;

	if (fd >= 0 && is_our_sheafd(pid, conf, d->target)) {
		d->pid = pid;
		d->pidfd = fd;
	} else if (fd >= 0) {
		close(fd);
	}
}

/* Does anything listen at the address? Local addresses answer at once, unless their queue is
 * full. */
static bool is_taken(const char *address)
{
	const struct addrinfo want = { .ai_socktype = SOCK_STREAM };
	char host[CONF_ADDR_MAX], port[16];
	struct addrinfo *all, *a;
	bool taken = false;

	if (!split_address(address, host, port) || getaddrinfo(host, port, &want, &all))
		return false;
	for (a = all; a && !taken; a = a->ai_next) {
		int fd = socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
		struct pollfd p = { fd, POLLOUT, 0 };
		socklen_t n = sizeof(int);
		int error = 0;

		if (fd < 0)
			continue;
		if (connect(fd, a->ai_addr, a->ai_addrlen) < 0 && errno != EINPROGRESS)
			error = errno;
		else if (poll(&p, 1, CLI_STATUS_MS) == 1)
			getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &n);
		taken = !error;
		close(fd);
	}
	freeaddrinfo(all);
	return taken;
}

/* Is the process a sheafd for this server? Its cluster file may be a copy of ours. */
static bool is_sheafd_for(pid_t pid, const struct conf_target *t)
{
	char path[64], line[2 * CLI_PATH_MAX], id[16];
	const char *server;
	size_t n;

	snprintf(path, sizeof(path), "/proc/%d/cmdline", pid);
	n = read_text(path, line, sizeof(line));
	snprintf(id, sizeof(id), "%u", t->id);
	server = find_value(line, n, "--server");
	return strcmp(cli_basename(line), "sheafd") == 0 && server &&
	       (strcmp(server, t->name) == 0 || strcmp(server, id) == 0);
}

/* Since when the process runs, in ns since the host started; 0: not known. */
static uint64_t process_start(pid_t pid)
{
	char path[64], text[1024];
	unsigned long long ticks;
	const char *rest;
	long hz = sysconf(_SC_CLK_TCK);

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	read_text(path, text, sizeof(text));
	rest = strrchr(text, ')'); /* the name before it may hold anything */
	if (!rest || hz <= 0 ||
	    sscanf(rest + 1,
		   " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
		   &ticks) != 1)
		return 0;
	return ticks * (NSEC_PER_SEC / (uint64_t)hz);
}

#define START_NS (2 * NSEC_PER_SEC) /* of a sheafd before it counts its uptime, and of the answer */

/* Has the process run for as long as the server says that it has? Otherwise its pid is that of
 * another pid namespace. While the host is suspended, the uptime stands still. */
static bool is_of_age(pid_t pid, uint64_t uptime_ns)
{
	uint64_t start = process_start(pid), age, suspended;
	struct timespec t;

	clock_gettime(CLOCK_BOOTTIME, &t);
	age = (uint64_t)t.tv_sec * NSEC_PER_SEC + (uint64_t)t.tv_nsec;
	suspended = age - MIN(age, time_now());
	age -= MIN(age, start);
	return start && age + START_NS >= uptime_ns && age <= uptime_ns + suspended + START_NS;
}

static void ask_one(struct cli *c, struct cli_daemon *d, int i)
{
	struct sheaf_server s = { 0 };
	int fd;

	if (sheaf_server_status(c->fs, i, CLI_STATUS_MS, &s))
		return;
	d->down = s.down;
	d->asked_pid = s.up ? (pid_t)s.pid : 0;
	if (!s.up) {
		cli_server_why(&s, d->message);
		return;
	}
	fd = pidfd_open((pid_t)s.pid, 0);
	if (fd >= 0 && is_sheafd_for((pid_t)s.pid, d->target) &&
	    is_of_age((pid_t)s.pid, s.uptime_ns)) {
		d->pid = (pid_t)s.pid;
		d->pidfd = fd;
	} else if (fd >= 0) {
		close(fd);
	}
}

int cli_daemons_ask(struct cli *c, struct cli_daemon *d, const struct conf *conf)
{
	int status = CLI_OK;

	for (uint32_t i = 0; i < conf->n_targets && !status; i++) {
		if (!d[i].here || d[i].done || d[i].pid || !is_taken(d[i].target->address))
			continue;
		if (!c->fs)
			status = cli_connect(c);
		if (!status)
			ask_one(c, &d[i], (int)i);
	}
	cli_disconnect(c); /* before servers stop */
	return status;
}

struct cli_daemon *cli_daemons_find(const struct conf *conf)
{
	struct cli_daemon *d = calloc(conf->n_targets, sizeof(*d));

	for (uint32_t i = 0; d && i < conf->n_targets; i++) {
		d[i].target = &conf->targets[i];
		d[i].pidfd = d[i].notify = -1;
		d[i].here = cli_address_is_local(conf->targets[i].address);
		if (d[i].here)
			find_running(&d[i], conf);
	}
	return d;
}

void cli_daemons_free(struct cli_daemon *d, size_t n)
{
	for (size_t i = 0; d && i < n; i++) {
		if (d[i].pidfd >= 0)
			close(d[i].pidfd);
		if (d[i].notify >= 0)
			close(d[i].notify);
	}
	free(d);
}

/* ---- starting ---- */

int cli_make_parents(const char *path)
{
	char part[CLI_PATH_MAX];

	for (const char *p = strchr(path + 1, '/'); p; p = strchr(p + 1, '/')) {
		snprintf(part, sizeof(part), "%.*s", (int)(p - path), path);
		if (p[1] && mkdir(part, 0755) < 0 && errno != EEXIST)
			return -errno;
	}
	return 0;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
	(void)st;
	(void)type;
	if (at->level > 0)
		remove(path);
	return 0;
}

void cli_remove_tree(const char *dir, bool itself)
{
	nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
	if (itself)
		rmdir(dir);
}

void cli_find_program(const char *name, char out[CLI_PATH_MAX])
{
	static const char *const places[] = { ".", "../sbin" };
	char self[CLI_PATH_MAX], dir[CLI_PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (n > 0) {
		self[n] = 0;
		*strrchr(self, '/') = 0;
		for (size_t i = 0; i < ARRAY_LEN(places); i++)
			if (cli_join(dir, self, places[i]) == 0 && cli_join(out, dir, name) == 0 &&
			    access(out, X_OK) == 0)
				return;
	}
	snprintf(out, CLI_PATH_MAX, "%s", name);
}

/* Sends the server's output to the log, or to /dev/null without a log (sheafd reports that). */
static int wire_up(posix_spawn_file_actions_t *fa, const char *log, int notify)
{
	int fd = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644), r;

	if (fd >= 0)
		close(fd);
	else
		log = "/dev/null";
	r = posix_spawn_file_actions_addopen(fa, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
	if (!r && notify >= 0)
		r = posix_spawn_file_actions_adddup2(fa, notify, CLI_NOTIFY_FD);
	if (!r)
		r = posix_spawn_file_actions_addopen(fa, STDOUT_FILENO, log, O_WRONLY | O_APPEND,
						     0);
	if (!r)
		r = posix_spawn_file_actions_adddup2(fa, STDOUT_FILENO, STDERR_FILENO);
	if (!r)
		r = posix_spawn_file_actions_addchdir_np(fa, "/");
	return r;
}

int cli_spawn(const char *program, char **argv, const char *log, int notify, pid_t *pid)
{
	posix_spawn_file_actions_t fa;
	posix_spawnattr_t at;
	sigset_t set;
	int r;

	posix_spawn_file_actions_init(&fa);
	posix_spawnattr_init(&at);
	posix_spawnattr_setflags(&at, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGDEF |
					      POSIX_SPAWN_SETSIGMASK);
	sigfillset(&set);
	posix_spawnattr_setsigdefault(&at, &set);
	sigemptyset(&set);
	posix_spawnattr_setsigmask(&at, &set);
	r = wire_up(&fa, log, notify);
	if (!r)
		r = posix_spawnp(pid, program, &fa, &at, argv, environ);
	posix_spawnattr_destroy(&at);
	posix_spawn_file_actions_destroy(&fa);
	return r;
}

int cli_daemon_spawn(struct cli_daemon *d, const struct conf *conf)
{
	char program[CLI_PATH_MAX], log[CLI_PATH_MAX], fd_text[8];
	char *argv[] = { "sheafd",
			 "--conf",
			 (char *)conf->path,
			 "--server",
			 (char *)d->target->name,
			 "--notify-fd",
			 fd_text,
			 "--log",
			 log,
			 NULL };
	int ends[2], r;

	cli_find_program("sheafd", program);
	cli_log_path(log, d->target);
	snprintf(fd_text, sizeof(fd_text), "%d", CLI_NOTIFY_FD);
	if (access(d->target->storage, W_OK) < 0) /* sheafd reports the reason */
		argv[ARRAY_LEN(argv) - 3] = NULL;
	if (pipe2(ends, O_CLOEXEC) < 0) {
		r = errno;
	} else {
		r = cli_spawn(program, argv, log, ends[1], &d->pid);
		close(ends[1]);
		if (r)
			close(ends[0]);
		else
			d->notify = ends[0];
	}
	if (r) {
		d->pid = 0;
		snprintf(d->message, sizeof(d->message), "error: cannot run %.300s: %s", program,
			 error_text(r));
	}
	return -r;
}

int cli_lock_servers(const struct conf *conf)
{
	int fd = open(conf->server_key_file, O_RDONLY | O_CLOEXEC);

	if (fd >= 0)
		flock(fd, LOCK_EX);
	return fd;
}

/* Reads the message of a starting server; done when the line is complete or on end of file. */
static void listen_to(struct cli_daemon *d)
{
	ssize_t n = read(d->notify, d->message + d->message_len,
			 sizeof(d->message) - 1 - d->message_len);

	if (n < 0 && (errno == EINTR || errno == EAGAIN))
		return;
	if (n > 0)
		d->message_len += (size_t)n;
	d->message[d->message_len] = 0;
	if (n > 0 && !strchr(d->message, '\n') && d->message_len < sizeof(d->message) - 1)
		return;
	d->message[strcspn(d->message, "\n")] = 0;
	d->done = true;
	d->ok = strcmp(d->message, "ready") == 0;
}

void cli_daemons_wait(struct cli_daemon *d, size_t n, uint64_t ns)
{
	struct pollfd p[CONF_MAX_TARGETS];
	struct cli_daemon *who[CONF_MAX_TARGETS];
	uint64_t end = time_now() + ns, now;

	while ((now = time_now()) < end && !cli_signal) {
		nfds_t m = 0;

		for (size_t i = 0; i < n; i++) {
			if (d[i].done)
				continue;
			who[m] = &d[i];
			p[m++] = (struct pollfd){ d[i].notify, POLLIN, 0 };
		}
		if (!m)
			return;
		if (poll(p, m, (int)((end - now) / NSEC_PER_MSEC) + 1) <= 0)
			continue;
		for (nfds_t i = 0; i < m; i++)
			if (p[i].revents)
				listen_to(who[i]);
	}
}
