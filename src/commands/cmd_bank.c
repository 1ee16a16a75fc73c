/* sheaf bank: starts and stops the memcached daemons of the cache bank that belong to this host,
 * and asks all of them. A daemon that was started here has its pid in a file beside the
 * cluster file.
 *
 * Threads: one. Buffers: answers of daemons are bounded. Errors: a daemon that fails is named, and
 * the others go on. */
#include <json-c/json.h>
#include <netdb.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "commands/bank_status.h"

#define START_MS 5000
#define STOP_MS 5000

enum { OPT_MEMORY, OPT_JSON };

struct daemon {
	struct bank_daemon at;
	char pid_file[CLI_PATH_MAX];
	bool is_here;
};

/* Only addresses of this host can be bound. */
static bool is_local(const struct bank_daemon *d)
{
	struct addrinfo *a = bank_daemon_resolve(d);
	struct sockaddr_storage any = { 0 };
	bool is = false;
	int fd;

	if (!a)
		return false;
	memcpy(&any, a->ai_addr, a->ai_addrlen);
	((struct sockaddr_in *)&any)->sin_port = 0; /* of both families at the same place */
	fd = socket(a->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	is = fd >= 0 && bind(fd, (struct sockaddr *)&any, a->ai_addrlen) == 0;
	if (fd >= 0)
		close(fd);
	freeaddrinfo(a);
	return is;
}

/* ---- start, stop ---- */

static int wait_up(struct cli *c, const struct daemon *d, char stats[BANK_ANSWER_MAX])
{
	for (int ms = 0; ms < START_MS; ms += 20) {
		const struct timespec nap = { 0, 20000000 };

		if (bank_daemon_ask(&d->at, stats) == 0)
			return CLI_OK;
		nanosleep(&nap, NULL);
	}
	return cli_error(c, "%s does not answer; bank.log beside the cluster file has the reason",
			 d->at.address);
}

/* Memcached refuses to run as root: it gets the user of Debian's package, or the user "nobody". */
static const char *user_of_daemons(void)
{
	return getpwnam("memcache") ? "memcache" : "nobody";
}

/* 0, or -errno after a message. */
static int launch(struct cli *c, const struct conf *conf, const struct daemon *d,
		  const char *memory)
{
	char log[CLI_PATH_MAX];
	const char *argv[] = { "memcached", "-l", d->at.host, "-p", d->at.port, "-U", "0",  "-I",
			       "2m",	    "-c", "16384",    "-m", memory,	NULL, NULL, NULL };
	pid_t pid;
	FILE *f;
	int r;

	if (geteuid() == 0) {
		argv[13] = "-u";
		argv[14] = user_of_daemons();
	}
	snprintf(log, sizeof(log), "%s", conf->path);
	snprintf(strrchr(log, '/') + 1, 32, "bank.log");
	r = cli_spawn("memcached", (char **)(uintptr_t)argv, log, -1, &pid);
	if (r == ENOENT)
		return cli_error(c, "memcached is not installed (Debian: memcached)");
	f = r ? NULL : fopen(d->pid_file, "we");
	if (!f)
		return cli_fail_host(c, r ? "memcached" : d->pid_file, r ? -r : -errno);
	fprintf(f, "%d\n", (int)pid);
	return fclose(f) ? cli_fail_host(c, d->pid_file, -errno) : CLI_OK;
}

static int start_one(struct cli *c, const struct conf *conf, const struct daemon *d)
{
	char *stats = malloc(BANK_ANSWER_MAX), memory[24] = "64";
	uint64_t bytes = 0;
	int status = CLI_OK;

	if (!stats)
		return cli_error(c, "out of memory");
	if (bank_daemon_ask(&d->at, stats) == 0) {
		printf("%s is already running, pid %llu\n", d->at.address,
		       (unsigned long long)bank_daemon_number(stats, "pid"));
		free(stats);
		return CLI_OK;
	}
	if (c->opt[OPT_MEMORY] && (parse_size(c->opt[OPT_MEMORY], &bytes) || bytes < MIB))
		status =
			cli_usage(c, "--memory %s is not a size of 1M or more", c->opt[OPT_MEMORY]);
	if (bytes)
		snprintf(memory, sizeof(memory), "%llu", (unsigned long long)(bytes / MIB));
	if (!status)
		status = launch(c, conf, d, memory);
	if (!status)
		status = wait_up(c, d, stats);
	if (!status)
		printf("%s is up, pid %llu, %s MiB\n", d->at.address,
		       (unsigned long long)bank_daemon_number(stats, "pid"), memory);
	free(stats);
	return status;
}

/* The pid of a daemon that was started here and runs: a pidfd, or -1. */
static int find_started(const struct daemon *d, pid_t *pid)
{
	char path[64], name[32] = "";
	FILE *f = fopen(d->pid_file, "re");
	int fd = -1;

	*pid = 0;
	if (f && fscanf(f, "%d", pid) == 1 && *pid > 0)
		fd = pidfd_open(*pid, 0);
	if (f)
		fclose(f);
	if (fd < 0)
		return -1;
	snprintf(path, sizeof(path), "/proc/%d/comm", *pid);
	f = fopen(path, "re");
	if (!f || !fgets(name, sizeof(name), f) || strcmp(name, "memcached\n") != 0) {
		close(fd);
		fd = -1; /* another process has the number now */
	}
	if (f)
		fclose(f);
	return fd;
}

static int stop_one(struct cli *c, const struct conf *conf, const struct daemon *d)
{
	struct pollfd p = { .events = POLLIN };
	int status = CLI_OK;
	pid_t pid;

	(void)conf;
	p.fd = find_started(d, &pid);
	if (p.fd < 0) {
		printf("%s was not started by sheaf bank, or is not running\n", d->at.address);
		return CLI_OK;
	}
	if (pidfd_send_signal(p.fd, SIGTERM, NULL, 0))
		status = cli_fail_host(c, d->at.address, -errno);
	else if (poll(&p, 1, STOP_MS) != 1)
		status = cli_error(c, "%s: pid %d is still stopping", d->at.address, pid);
	else
		printf("%s has stopped\n", d->at.address);
	if (!status)
		unlink(d->pid_file);
	close(p.fd);
	return status;
}

/* ---- status ---- */

static void add_row(struct cli_table *t, const struct bank_daemon_now *d)
{
	char used[32], limit[32];

	if (d->error) {
		cli_table_add(t, "%s\tdown\t\t\t\t\t%s", d->at.address, error_text(d->error));
		return;
	}
	format_size(used, sizeof(used), d->bytes);
	format_size(limit, sizeof(limit), d->limit);
	cli_table_add(t, "%s\tup\t%llu\t%s of %s\t%llu\t%llu\t%llu evicted", d->at.address,
		      (unsigned long long)d->entries, used, limit, (unsigned long long)d->hits,
		      (unsigned long long)d->misses, (unsigned long long)d->evictions);
}

/* Servers that do not answer are left out; daemons are what this command is about. */
static int status_of_all(struct cli *c, const struct conf *conf)
{
	static const char *const heads[] = { "DAEMON", "STATE",	  ">ENTRIES", "MEMORY",
					     ">HITS",  ">MISSES", "NOTE" };
	struct bank_state_now s;
	struct json_object *o;
	struct cli_table t;
	int status = CLI_OK;

	if (sheaf_connect(c->conf, &c->fs))
		c->fs = NULL;
	else
		c->n_conf = sheaf_server_count(c->fs);
	o = bank_state_take(&s, conf, c->fs);
	if (s.n_up < s.n)
		status = CLI_FAILED;
	if (c->opt[OPT_JSON]) {
		cli_json_print(o, JSON_C_TO_STRING_PRETTY);
	} else {
		json_object_put(o);
		cli_table_init(&t, heads, ARRAY_LEN(heads));
		for (uint32_t i = 0; s.rows && i < s.n; i++)
			add_row(&t, &s.rows[i]);
		if (cli_table_print(&t, stdout))
			status = cli_error(c, "out of memory");
		bank_state_line(&s, stdout);
	}
	free(s.rows);
	return status;
}

/* ---- the command ---- */

static int prepare_key(struct cli *c, const struct conf *conf)
{
	char err[CLI_PATH_MAX + 256];

	if (access(conf->bank.key_file, F_OK) == 0)
		return CLI_OK;
	if (key_create(conf->bank.key_file, err, sizeof(err)))
		return cli_error(c, "%s", err);
	printf("made %s: give it to the hosts whose root, gateways and mounts may read every file\n",
	       conf->bank.key_file);
	return CLI_OK;
}

/* A first daemon, on this host. */
static int add_section(struct cli *c, struct conf **conf)
{
	char err[CLI_PATH_MAX + 256];

	if (conf_append(conf, "\n[bank]\nservers = 127.0.0.1:11211\n", err, sizeof(err)))
		return cli_error(c, "%s", err);
	printf("added [bank] with one daemon of this host to %s\n", (*conf)->path);
	return CLI_OK;
}

static int each_here(struct cli *c, const struct conf *conf, const struct daemon *d,
		     int (*fn)(struct cli *c, const struct conf *conf, const struct daemon *d))
{
	int status = CLI_OK, n = 0;

	for (uint32_t i = 0; i < conf->bank.n_servers; i++) {
		if (!d[i].is_here)
			continue;
		n++;
		if (fn(c, conf, &d[i]))
			status = CLI_FAILED;
	}
	return n ? status :
		   cli_error(c, "no daemon of [bank] in %s has an address of this host",
			     conf->path);
}

static struct daemon *daemons_of(const struct conf *conf)
{
	struct daemon *d = calloc(conf->bank.n_servers + 1, sizeof(*d));

	for (uint32_t i = 0; d && i < conf->bank.n_servers; i++) {
		d[i].at.address = conf->bank.servers[i];
		bank_daemon_split(&d[i].at);
		d[i].is_here = is_local(&d[i].at);
		snprintf(d[i].pid_file, sizeof(d[i].pid_file), "%s", conf->path);
		snprintf(strrchr(d[i].pid_file, '/') + 1, 32, "bank-%s.pid", d[i].at.port);
	}
	return d;
}

static int run_bank(struct cli *c)
{
	const char *what = c->args[0];
	bool starts = strcmp(what, "start") == 0, stops = strcmp(what, "stop") == 0;
	struct daemon *d = NULL;
	struct conf *conf;
	int status;

	if (!starts && !stops && strcmp(what, "status") != 0)
		return cli_usage(c, "'%s' is none of start, stop, status", what);
	status = cli_load_conf(c, &conf);
	if (status)
		return status;
	if (!conf->bank.n_servers)
		status = starts ? add_section(c, &conf) :
				  cli_error(c, "%s has no [bank]; 'sheaf bank start' adds one",
					    conf->path);
	if (!status && starts)
		status = prepare_key(c, conf);
	if (!status && !(d = daemons_of(conf)))
		status = cli_error(c, "out of memory");
	if (!status && starts) {
		status = each_here(c, conf, d, start_one);
		servers_reread(c, conf, "[bank]"); /* some may set notices from now on */
	}
	if (!status && stops)
		status = each_here(c, conf, d, stop_one);
	else if (!status && !starts)
		status = status_of_all(c, conf);
	free(d);
	conf_free(conf);
	return status;
}

const struct cli_command cmd_bank = {
	.name = "bank",
	.usage = "start|stop|status [--memory SIZE] [--json]",
	.summary = "the cache bank: memcached daemons that keep blocks of files",
	.run = run_bank,
	.min_args = 1,
	.max_args = 1,
	.options = { [OPT_MEMORY] = { 0, "memory", "SIZE", "of each daemon that is started (64M)" },
		     [OPT_JSON] = { 0, "json", NULL, "status as JSON" } },
	.more = "start runs the daemons of the section [bank] that have an address of this host, and adds that\n"
		"section, with one daemon, and a key where there is none. Clients use the bank from their next\n"
		"connection on. docs/bank.md says when it helps.\n",
	.examples = "  sheaf bank start --memory 1G\n"
		    "  sheaf bank status --json | jq '.daemons[].get_hits'\n",
};
