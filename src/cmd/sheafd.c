/* sheafd: one server of a cluster, around src/server.
 *
 * Threads: main turns the loop; the server has its own writer and workers. Signals: SIGTERM and
 * SIGINT stop cleanly, SIGHUP reopens the log and reloads keys and networks. Errors: a failed start
 * is one line on stderr and, as "error: ...", on the notify descriptor; exit status 1, or 2 for
 * wrong usage. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "cli/cli.h"
#include "embed/embed.h"
#include "server/server.h"

#define BUSY_TRIES 20
#define BUSY_US 100000
#define FILLER_END_NS (2 * NSEC_PER_SEC)

static struct loop loop;
static struct server_filler *filler; /* or NULL */
static volatile sig_atomic_t stop_asked, hangup_asked;

struct daemon_opts {
	const char *conf, *server, *log;
	enum log_level level;
	int notify; /* or -1 */
};

static const char usage_text[] =
	"usage: sheafd --conf FILE --server NAME|ID [--log FILE] [--log-level error|warn|info|debug]\n"
	"              [--notify-fd N]\n"
	"Serves one storage directory of the cluster file until SIGTERM; SIGHUP reopens the log and reads\n"
	"keys and networks of the cluster file again.\n"
	"--notify-fd gets \"ready\" or \"error: ...\", one line. 'sheaf start' runs this for all servers\n"
	"of a host.\n";

static int usage_error(const char *fmt, const char *what)
{
	fputs("sheafd: ", stderr);
	fprintf(stderr, fmt, what);
	fputs("; 'sheafd --help' shows what it takes\n", stderr);
	return CLI_USAGE;
}

static int parse_level(const char *s, enum log_level *out)
{
	static const char *const names[] = { "error", "warn", "info", "debug" };

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (strcmp(s, names[i]) == 0) {
			*out = (enum log_level)i;
			return 0;
		}
	return -EINVAL;
}

/* -1: continue; else the exit status. */
static int parse_args(int argc, char **argv, struct daemon_opts *o)
{
	static const struct cli_option table[CLI_MAX_OPTIONS] = {
		{ 0, "server", "NAME", "" },
		{ 0, "log", "FILE", "" },
		{ 0, "log-level", "LEVEL", "" },
		{ 0, "notify-fd", "N", "" },
	};
	struct cli_parsed p = { 0 };
	char err[128];
	uint64_t fd;

	if (cli_parse(table, false, argc, argv, &p, err, sizeof(err)))
		return usage_error("%s", err);
	if (p.help) {
		fputs(usage_text, stdout);
		return CLI_OK;
	}
	if (p.version) {
		puts("sheafd " CLI_VERSION);
		return CLI_OK;
	}
	if (p.n_args)
		return usage_error("'%s' is one argument too many", p.args[0]);
	if (!p.conf || !p.opt[0])
		return usage_error("%s is missing", p.conf ? "--server NAME" : "--conf FILE");
	if (p.opt[2] && parse_level(p.opt[2], &o->level))
		return usage_error("--log-level %s is none of error, warn, info, debug", p.opt[2]);
	if (p.opt[3]) {
		if (cli_number(p.opt[3], 1, 1 << 20, &fd) || fcntl((int)fd, F_GETFD) < 0)
			return usage_error("--notify-fd %s is not an open descriptor", p.opt[3]);
		o->notify = (int)fd;
		fcntl(o->notify, F_SETFD, FD_CLOEXEC);
	}
	o->conf = p.conf;
	o->server = p.opt[0];
	o->log = p.opt[1];
	return -1;
}

static void tell(struct daemon_opts *o, const char *text)
{
	if (o->notify < 0)
		return;
	if (dprintf(o->notify, "%s\n", text) < 0)
		log_warn("sheafd", "no process reads the notify descriptor");
	close(o->notify);
	o->notify = -1;
}

static int start_failed(struct daemon_opts *o, const char *why)
{
	char line[CLI_PATH_MAX + 512];

	fprintf(stderr, "sheafd: %s\n", why);
	snprintf(line, sizeof(line), "error: %s", why);
	tell(o, line);
	return CLI_FAILED;
}

static int find_target(const struct conf *conf, const char *server, uint32_t *out, char *err,
		       size_t n)
{
	uint64_t id;

	if (cli_number(server, 0, conf->n_targets - 1, &id))
		for (id = 0; id < conf->n_targets; id++)
			if (strcmp(conf->targets[id].name, server) == 0)
				break;
	*out = (uint32_t)id;
	if (id < conf->n_targets)
		return 0;
	snprintf(err, n, "%s has no server '%s'; it has %u, from %s to %s", conf->path, server,
		 conf->n_targets, conf->targets[0].name, conf->targets[conf->n_targets - 1].name);
	return -ENOENT;
}

/* ---- signals ---- */

static void on_signal(int sig)
{
	if (sig == SIGHUP)
		hangup_asked = 1;
	else
		stop_asked = 1;
	loop_wake(&loop);
}

static void catch_signals(void)
{
	struct sigaction sa = { .sa_handler = on_signal, .sa_flags = SA_RESTART };

	sigaction(SIGTERM, &sa, NULL);
	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGHUP, &sa, NULL);
}

/* ---- the pid file ---- */

static int write_pid(const struct conf_target *t, char *err, size_t err_len)
{
	char path[CLI_PATH_MAX];
	int fd, r = 0;

	cli_pid_path(path, t);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	if (fd < 0 || dprintf(fd, "%d\n", getpid()) < 0)
		r = -errno;
	if (fd >= 0)
		close(fd);
	if (r)
		snprintf(err, err_len, "%s: cannot write the pid file: %s", path, error_text(r));
	return r;
}

static void remove_pid(const struct conf_target *t)
{
	char path[CLI_PATH_MAX];

	cli_pid_path(path, t);
	if (cli_pid_read(t) == getpid()) /* else the next server has started already */
		unlink(path);
}

/* ---- start, run, stop ---- */

/* Without a log file, only errors reach stderr during the start: a failure is one line. */
static int open_log(const struct daemon_opts *o, char *err, size_t err_len)
{
	int fd;

	if (!o->log) {
		log_open(NULL, LOG_ERROR);
		return 0;
	}
	fd = open(o->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
	if (fd < 0) {
		snprintf(err, err_len, "%s: cannot open the log: %s", o->log, error_text(errno));
		return -errno;
	}
	close(fd);
	log_open(o->log, o->level);
	return 0;
}

/* Loads the client keys of a cluster file. */
static int load_auth_conf(struct conf *conf, uint8_t client_key[KEY_BYTES], char *err,
			  size_t err_len)
{
	int r = key_load(conf->key_file, client_key, err, err_len);

	return r ? r : keys_load(conf, err, err_len);
}

/* SIGHUP: loads keys and networks of the current cluster file; on an error the old ones stay. */
static void reread(const char *path, struct server *s, struct conf **auth_conf)
{
	uint8_t client_key[KEY_BYTES];
	char err[CLI_PATH_MAX + 256];
	struct conf *c = NULL;

	if (conf_load(path, &c, err, sizeof(err)) ||
	    load_auth_conf(c, client_key, err, sizeof(err))) {
		log_error("sheafd", "keys and networks stay as they were: %s", err);
		conf_free(c);
		return;
	}
	server_reread(s, c, client_key);
	explicit_bzero(client_key, sizeof(client_key));
	conf_free(*auth_conf);
	*auth_conf = c;
	log_info("sheafd", "read the keys and networks of %s: %u named keys", c->path, c->n_keys);
}

/* Without one, readers fill the cache bank. */
static struct server_filler *start_filler(const struct conf *conf, uint32_t target)
{
	bool wants = conf->bank.n_servers && conf->bank.server_fills && !conf->nosync &&
		     (conf->targets[target].roles & ROLE_META);
	int r = wants ? filler_start(conf->path, &filler) : 0;

	if (r)
		log_warn("sheafd", "readers fill the cache bank: %s", error_text(r));
	return filler;
}

/* The server answers what the filler has asked for. One that waits for another server does not
 * keep this one from stopping. */
static bool end_filler(void)
{
	uint64_t end = time_now() + FILLER_END_NS;

	while (!filler_stop(filler) && time_now() < end)
		loop_turn(&loop, 20 * NSEC_PER_MSEC);
	return filler_stop(filler);
}

/* A server that was killed just before may hold its storage a little longer than its process. */
static int start_soon(const struct server_opts *o, struct server **s, char *err, size_t err_len)
{
	int r = server_start(o, s, err, err_len);

	for (int i = 0; r == -EBUSY && i < BUSY_TRIES && usleep(BUSY_US) == 0; i++)
		r = server_start(o, s, err, err_len);
	return r;
}

/* Loads everything and starts the server, until it listens. */
static int start(struct daemon_opts *o, struct conf **conf, struct server **s, uint32_t *target,
		 char *err, size_t err_len)
{
	struct server_opts so = { .measure = true, .loop = &loop };
	int r = conf_load(o->conf, conf, err, err_len);

	if (!r)
		r = find_target(*conf, o->server, target, err, err_len);
	if (!r)
		r = load_auth_conf(*conf, so.client_key, err, err_len);
	if (!r)
		r = key_load((*conf)->server_key_file, so.server_key, err, err_len);
	if (!r)
		r = open_log(o, err, err_len);
	if (!r) {
		r = loop_init(&loop, env_real());
		if (r)
			snprintf(err, err_len, "cannot make an event loop: %s", error_text(r));
	}
	if (!r) {
		catch_signals();
		so.conf = *conf;
		so.was_unclean = cli_pid_read(&(*conf)->targets[*target]) != 0;
		so.target = *target;
		so.filler = start_filler(*conf, *target);
		r = start_soon(&so, s, err, err_len);
	}
	explicit_bzero(so.client_key, sizeof(so.client_key));
	explicit_bzero(so.server_key, sizeof(so.server_key));
	return r;
}

static void serve(const char *conf, struct server *s, struct conf **auth_conf)
{
	while (!stop_asked) {
		if (hangup_asked) {
			hangup_asked = 0;
			log_reopen();
			reread(conf, s, auth_conf);
		}
		loop_turn(&loop, UINT64_MAX);
	}
}

int main(int argc, char **argv)
{
	struct daemon_opts o = { .level = LOG_INFO, .notify = -1 };
	const struct conf_target *t;
	struct conf *conf = NULL, *auth_conf = NULL; /* auth_conf: from the last SIGHUP */
	struct server *s = NULL;
	char err[CLI_PATH_MAX + 256];
	uint32_t target = 0;
	bool is_alone;
	int r = parse_args(argc, argv, &o);

	if (r >= 0)
		return r;
	signal(SIGPIPE, SIG_IGN);
	raise_file_limit();
	if (start(&o, &conf, &s, &target, err, sizeof(err)) ||
	    write_pid(&conf->targets[target], err, sizeof(err))) {
		if (s)
			server_stop(s);
		loop_fini(&loop);
		conf_free(conf);
		return start_failed(&o, err);
	}
	t = &conf->targets[target];
	log_set_level(o.level);
	log_info("sheafd", "%s serves %s on %s", t->name, t->storage, t->address);
	if (server_was_unclean(s))
		log_error("sheafd",
			  "the last stop of %s was not clean: it crashed, was killed, or its host "
			  "failed; data that no fsync covered may be lost, and their writers get "
			  "EIO from the next fsync or close",
			  t->name);
	if (t->metrics[0] && metrics_start(s, t->metrics))
		log_warn("sheafd", "metrics address %s cannot be used: continuing without metrics",
			 t->metrics);
	tell(&o, "ready");
	serve(conf->path, s, &auth_conf);
	log_info("sheafd", "%s stops", t->name);
	is_alone = end_filler();
	r = server_stop(s);
	if (r) /* the pid file stays as a sign for 'sheaf stop' */
		log_error("sheafd", "%s could not stop cleanly: %s", t->name, error_text(r));
	else
		remove_pid(t);
	log_info("sheafd", "%s has stopped", t->name);
	if (!is_alone)
		_exit(r ? CLI_FAILED : CLI_OK);
	filler_free(filler); /* until now the server could report files to it */
	loop_fini(&loop);
	conf_free(auth_conf);
	conf_free(conf);
	return r ? CLI_FAILED : CLI_OK;
}
