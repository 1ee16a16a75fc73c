/* The program sheaf-nfsd: connects to the file system and serves NFS until SIGTERM.
 *
 * Signals: SIGTERM and SIGINT stop, after calls in progress; SIGHUP reopens the log and reads the
 * exports of the cluster file again. A failed start is one line on stderr and, as "error: ...", on
 * the notify descriptor; exit status 1, or 2 for wrong usage. */
#include <fcntl.h>
#include <getopt.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "nfs/nfs.h"
#include "nfs/nfs_priv.h"

static const char usage[] =
	"usage: sheaf-nfsd [--conf FILE] [--address HOST:PORT] [--log FILE]\n"
	"                  [--log-level error|warn|info|debug] [--notify-fd N] [--no-portmap]\n"
	"Serves the exports of the cluster file to NFSv3 clients until SIGTERM; SIGHUP reads them again.\n"
	"'sheaf nfs start' runs this in the background.\n";

struct nfsd_opts {
	const char *conf, *address, *log;
	enum log_level level;
	int notify; /* or -1 */
	bool no_portmap;
};

static struct gateway gateway;
static struct loop loop;

/* -1: continue; else the exit status. */
static int parse(int argc, char **argv, struct nfsd_opts *o)
{
	static const struct option table[] = {
		{ "conf", 1, NULL, 'c' },	{ "address", 1, NULL, 'a' },
		{ "log", 1, NULL, 'l' },	{ "help", 0, NULL, 'h' },
		{ "log-level", 1, NULL, 'v' },	{ "notify-fd", 1, NULL, 'n' },
		{ "no-portmap", 0, NULL, 'p' }, { 0 },
	};
	static const char *const levels[] = { "error", "warn", "info", "debug" };
	int k;

	while ((k = getopt_long(argc, argv, "", table, NULL)) != -1) {
		if (k == 'h')
			fputs(usage, stdout);
		if (k == 'h')
			return 0;
		if (k == 'c')
			o->conf = optarg;
		else if (k == 'a')
			o->address = optarg;
		else if (k == 'l')
			o->log = optarg;
		else if (k == 'n')
			o->notify = atoi(optarg);
		else if (k == 'p')
			o->no_portmap = true;
		else if (k != 'v')
			return 2;
		for (size_t i = 0; k == 'v' && i < ARRAY_LEN(levels); i++)
			if (strcmp(optarg, levels[i]) == 0)
				o->level = (enum log_level)i;
	}
	if (optind == argc)
		return -1;
	fprintf(stderr, "sheaf-nfsd: '%s' is one argument too many\n", argv[optind]);
	return 2;
}

static void tell(struct nfsd_opts *o, const char *text)
{
	if (o->notify < 0)
		return;
	if (dprintf(o->notify, "%s\n", text) < 0)
		log_warn("nfs", "no process reads the notify descriptor");
	close(o->notify);
	o->notify = -1;
}

__attribute__((format(printf, 2, 3))) static int failed(struct nfsd_opts *o, const char *fmt, ...)
{
	char why[CONF_PATH_MAX + 512], line[sizeof(why) + 8];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(why, sizeof(why), fmt, ap);
	va_end(ap);
	fprintf(stderr, "sheaf-nfsd: %s\n", why);
	snprintf(line, sizeof(line), "error: %s", why);
	tell(o, line);
	return 1;
}

/* ---- signals ---- */

static void reload(struct gateway *g)
{
	struct conf *c;
	char err[512];

	log_reopen();
	if (conf_load(g->conf_path, &c, err, sizeof(err))) {
		log_error("nfs", "the exports stay as they are: %s", err);
		return;
	}
	strcpy(c->nfs.address, g->conf->nfs.address);
	if (gateway_use(g, c)) {
		conf_free(c);
		return;
	}
	holders_resume(g); /* an address may have come to this host */
	log_info("nfs", "%u exports from now on", c->n_exports);
}

static void signals_ready(struct nfs_source *s, unsigned events)
{
	struct signalfd_siginfo i;

	(void)events;
	while (read(s->fd, &i, sizeof(i)) == sizeof(i)) {
		if (i.ssi_signo == SIGHUP)
			reload(s->g);
		else
			s->g->stopping = true;
	}
}

static int catch_signals(struct gateway *g, const sigset_t *set)
{
	int fd = signalfd(-1, set, SFD_CLOEXEC | SFD_NONBLOCK);

	return fd < 0 ? -errno : source_add(g, &g->signals, fd, EV_IN, signals_ready);
}

/* Before any thread starts, so that all of them leave the signals to the descriptor. */
static void block_signals(sigset_t *set)
{
	sigemptyset(set);
	sigaddset(set, SIGINT);
	sigaddset(set, SIGTERM);
	sigaddset(set, SIGHUP);
	pthread_sigmask(SIG_BLOCK, set, NULL);
	signal(SIGPIPE, SIG_IGN);
}

/* ---- start ---- */

static int load(struct gateway *g, struct nfsd_opts *o)
{
	static char path[CONF_PATH_MAX];
	struct conf *c;
	char err[512];

	if (conf_find(o->conf, path, sizeof(path), err, sizeof(err)))
		return failed(o, "%s", err);
	if (strncmp(path, "local:", 6) == 0)
		return failed(o, "%s is inside one process; a gateway needs servers", path);
	g->conf_path = path;
	g->no_portmap = o->no_portmap;
	if (conf_load(path, &c, err, sizeof(err)))
		return failed(o, "%s", err);
	if (gateway_use(g, c))
		return failed(o, "out of memory");
	if (o->address && strlen(o->address) < CONF_ADDR_MAX && strrchr(o->address, ':'))
		strcpy(g->conf->nfs.address, o->address);
	else if (o->address)
		return failed(o, "--address %s is not HOST:PORT", o->address);
	if (!g->conf->n_exports)
		return failed(o, "%s has no export; add [export.data] with path = /", path);
	if (handles_init(g, err, sizeof(err)))
		return failed(o, "%s", err);
	g->fsid = hash_bytes(&g->conf->fs_id, sizeof(g->conf->fs_id), 3) >> 1;
	g->memory_max = MAX(g->conf->nfs.memory, MEMORY_MIN);
	return 0;
}

static int start(struct gateway *g, struct nfsd_opts *o, const sigset_t *set)
{
	struct stat st;
	int r = load(g, o);

	if (r)
		return r;
	setenv("SHEAF_JOB", "", 1); /* its clients are jobs of their own */
	if (sheaf_connect(g->conf_path, &g->fs))
		return failed(o, "%s", sheaf_why());
	r = sheaf_h_getattr(g->fs, NULL, sheaf_root(g->fs), &st);
	if (r)
		return failed(o, "%s: %s ('sheaf status' shows which servers are up)", g->conf_path,
			      sheaf_strerror(r));
	g->loop = &loop;
	r = loop_init(&loop, env_real());
	if (!r)
		r = gateway_init(g, loop_descriptor(&loop));
	if (!r)
		r = gateway_listen(g);
	if (r)
		return failed(o, "%s cannot be served: %s", g->conf->nfs.address, error_text(r));
	if (g->conf->nfs.metrics[0] && nfs_metrics_start(g))
		log_warn("nfs", "metrics address %s cannot be used: continuing without metrics",
			 g->conf->nfs.metrics);
	r = control_listen(g);
	if (!r)
		r = catch_signals(g, set);
	return r ? failed(o, "a socket for 'sheaf nfs' cannot be made: %s", error_text(r)) : 0;
}

int nfsd_main(int argc, char **argv)
{
	struct nfsd_opts o = { .level = LOG_INFO, .notify = -1 };
	struct gateway *g = &gateway;
	int r = parse(argc, argv, &o);
	sigset_t set;

	if (r >= 0)
		return r;
	if (o.notify >= 0)
		fcntl(o.notify, F_SETFD, FD_CLOEXEC);
	log_open(o.log, o.level);
	raise_file_limit();
	/* fixed: large arrays of sessions stay mapped pages, which cost memory only where used */
	mallopt(M_MMAP_THRESHOLD, 128 * KIB);
	block_signals(&set);
	r = start(g, &o, &set);
	if (r)
		return r;
	log_info("nfs", "%u exports at %s", g->conf->n_exports, g->conf->nfs.address);
	tell(&o, "ready");
	holders_resume(g);
	gateway_run(g);
	if (g->n_tasks > g->n_idle)
		_exit(0); /* calls wait for servers that do not answer */
	gateway_end(g);
	source_close(&g->signals);
	source_close(&g->control);
	nfs_sessions_end(g);
	sheaf_disconnect(g->fs);
	conf_give(g->conf_now);
	mac_key_free(g->handle_key);
	return 0;
}
